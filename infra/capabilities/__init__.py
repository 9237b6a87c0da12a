"""What a cluster is given beside its nodes: each capability in a package of its own."""
