"""Names of the inventory's groups."""

NODE_ROLES = ("control", "gpu", "storage", "gateway")
"""Every one has a group `role_<name>`, also when no node is in it."""


def group_name(*parts: str) -> str:
    """`group_name("pool", "tokyo", "gpu-a")` → `pool_tokyo_gpu_a`; Ansible refuses dashes in groups."""
    return "_".join(parts).replace("-", "_")
