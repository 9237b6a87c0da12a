"""What a user declares. Knows neither Pulumi nor Ansible, nor what checks and planning make of it."""

from infra.declaration.acceptance import AcceptanceSpec, BreakerSpec, PoolAcceptanceSpec
from infra.declaration.cluster import ClusterSpec, LeaveSpec
from infra.declaration.containers import ContainerRuntimeSpec, ImageCacheSpec, ImageRegistrySpec, RegistrySpec
from infra.declaration.discovery import ConsulDiscovery, DiscoverySpec
from infra.declaration.fabric import FabricSpec, RoceSpec, SwitchAsic, SwitchSpec
from infra.declaration.gpu import GpuHostSpec, GpuSourceSpec, GpuStackSpec, MigSpec
from infra.declaration.link import LinkEndSpec, TrafficClasses, WanLinkSpec
from infra.declaration.monitoring import MonitoringSpec
from infra.declaration.region import (
    ExistingHost,
    ExistingProvider,
    JumpSpec,
    LocalProvider,
    MirrorsSpec,
    NodeKind,
    NodePoolSpec,
    RegionSpec,
    ScratchSpec,
)
from infra.declaration.storage import (
    CephfsExport,
    CephSpec,
    DeviceBackingSpec,
    DeviceSpec,
    FileBackingSpec,
    NfsFilesSpec,
    NfsFolderSpec,
    NfsSpec,
    RbdExport,
    RgwExport,
    StorageSpec,
)

__all__ = [
    "AcceptanceSpec",
    "BreakerSpec",
    "CephSpec",
    "CephfsExport",
    "ClusterSpec",
    "ConsulDiscovery",
    "ContainerRuntimeSpec",
    "DeviceBackingSpec",
    "DeviceSpec",
    "DiscoverySpec",
    "ExistingHost",
    "ExistingProvider",
    "FabricSpec",
    "FileBackingSpec",
    "GpuHostSpec",
    "GpuSourceSpec",
    "GpuStackSpec",
    "ImageCacheSpec",
    "ImageRegistrySpec",
    "JumpSpec",
    "LeaveSpec",
    "LinkEndSpec",
    "LocalProvider",
    "MigSpec",
    "MirrorsSpec",
    "MonitoringSpec",
    "NfsFilesSpec",
    "NfsFolderSpec",
    "NfsSpec",
    "NodeKind",
    "NodePoolSpec",
    "PoolAcceptanceSpec",
    "RbdExport",
    "RegionSpec",
    "RegistrySpec",
    "RgwExport",
    "RoceSpec",
    "ScratchSpec",
    "StorageSpec",
    "SwitchAsic",
    "SwitchSpec",
    "TrafficClasses",
    "WanLinkSpec",
]
