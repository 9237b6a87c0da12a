"""The whole declaration: `causeway:cluster` of a stack."""

from typing import ClassVar

from infra.declaration.acceptance import AcceptanceSpec
from infra.declaration.base import KeyLine, Spec
from infra.declaration.containers import ImageRegistrySpec
from infra.declaration.discovery import DiscoverySpec
from infra.declaration.energy import EnergySpec
from infra.declaration.link import WanLinkSpec
from infra.declaration.monitoring import MonitoringSpec
from infra.declaration.region import RegionSpec
from infra.declaration.reliability import ReliabilitySpec
from infra.declaration.storage import StorageSpec


class LeaveSpec(Spec):
    """That a role may leave hosts."""

    what: ClassVar = "a role that may leave"
    role: str
    """The role, as errors name it."""
    hosts: tuple[str, ...]
    """Their names, or `all`."""


class ClusterSpec(Spec):
    """Regions and the links between them."""

    what: ClassVar = "a cluster"
    name: str
    """A DNS label."""
    regions: tuple[RegionSpec, ...]
    """The sites."""
    wan_links: tuple[WanLinkSpec, ...] = ()
    """The links between regions; packets have no other path."""
    authorized_keys: tuple[KeyLine, ...] = ()
    """Public keys (`ssh-ed25519 AAAA… name`) that may log in to every node beside the stack's own."""
    discovery: DiscoverySpec | None = None
    """How services are found; unset means that none is."""
    monitoring: MonitoringSpec | None = None
    """How the cluster is watched, and who is told; unset means that it is not."""
    acceptance: AcceptanceSpec | None = None
    """What nodes with GPUs have to be to join; unset means that nobody tries them."""
    energy: EnergySpec | None = None
    """What is drawn, what may be, and what it costs; unset means that power is not planned or watched."""
    reliability: ReliabilitySpec | None = None
    """How often things fail and what a job does about it; unset means that it is not planned."""
    storage: tuple[StorageSpec, ...] = ()
    """What regions keep, and export to their nodes."""
    registries: tuple[ImageRegistrySpec, ...] = ()
    """Regions' registries of container images."""
    leave: tuple[LeaveSpec, ...] = ()
    """Consent: roles that are declared no more, and may be taken off hosts although something is lost."""
    waves: tuple[tuple[str, ...], ...] = ()
    """Names of regions in the order in which they are configured: a list of lists, the canary first.

    Left out, every region is a wave of its own, in declared order.
    """

    def region(self, name: str) -> RegionSpec:
        """The region of that name; KeyError when it is not declared."""
        return {region.name: region for region in self.regions}[name]

    def rollout(self) -> tuple[tuple[str, ...], ...]:
        """The waves as declared, or one region after the other."""
        return self.waves or tuple((region.name,) for region in self.regions)
