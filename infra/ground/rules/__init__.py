"""Rules on regions, their pools, and the machines in them: what every cluster has."""
