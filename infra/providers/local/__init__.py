"""Nodes, networks and WAN links on this machine."""
