"""How a cluster is watched: metrics and alerts in every region, a view of all of them in one."""
