"""What a user declares. Knows neither Pulumi nor Ansible, nor what checks and planning make of it."""

from infra.declaration.cluster import ClusterSpec
from infra.declaration.discovery import ConsulDiscovery, DiscoverySpec
from infra.declaration.fabric import FabricSpec, RoceSpec, SwitchAsic, SwitchSpec
from infra.declaration.gpu import GpuStackSpec, MigSpec
from infra.declaration.link import LinkEndSpec, TrafficClasses, WanLinkSpec
from infra.declaration.monitoring import MonitoringSpec
from infra.declaration.region import (
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
    "GpuStackSpec",
    "LinkEndSpec",
    "LocalProvider",
    "MigSpec",
    "MonitoringSpec",
    "NodeKind",
    "NodePoolSpec",
    "RegionSpec",
    "RoceSpec",
    "SwitchAsic",
    "SwitchSpec",
    "TrafficClasses",
    "WanLinkSpec",
]
