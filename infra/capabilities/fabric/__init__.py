"""The network between GPU nodes of a region: topology, cables, switches."""
