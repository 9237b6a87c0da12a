"""What a user declares. Knows neither Pulumi nor Ansible, nor what checks and planning make of it."""

from infra.spec.cluster import ClusterSpec
from infra.spec.discovery import ConsulDiscovery, DiscoverySpec
from infra.spec.fabric import FabricSpec, RoceSpec, SwitchAsic, SwitchSpec
from infra.spec.link import LinkEndSpec, TrafficClasses, WanLinkSpec
from infra.spec.region import (
    ExistingHost,
    ExistingProvider,
    LocalProvider,
    NodeKind,
    NodePoolSpec,
    RegionSpec,
)

__all__ = [
    "ClusterSpec",
    "ConsulDiscovery",
    "DiscoverySpec",
    "ExistingHost",
    "ExistingProvider",
    "FabricSpec",
    "LinkEndSpec",
    "LocalProvider",
    "NodeKind",
    "NodePoolSpec",
    "RegionSpec",
    "RoceSpec",
    "SwitchAsic",
    "SwitchSpec",
    "TrafficClasses",
    "WanLinkSpec",
]
