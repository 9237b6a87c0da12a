"""The declaration as Pulumi resources."""

from infra.components.cluster import Cluster
from infra.components.configuration import Rollout
from infra.components.declaration import declared_cluster
from infra.components.inventory import Inventory
from infra.components.region import NodePool, Region
from infra.components.wan_link import WanLink

__all__ = ["Cluster", "Inventory", "NodePool", "Region", "Rollout", "WanLink", "declared_cluster"]
