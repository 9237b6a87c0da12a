"""What a region keeps: Ceph clusters, and what they export."""
