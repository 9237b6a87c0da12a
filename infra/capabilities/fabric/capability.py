"""The network between GPU nodes: rules, plan, and what hosts are told of it."""

from collections.abc import Mapping
from typing import ClassVar

from infra.capabilities.fabric.report import report
from infra.capabilities.fabric.rules import (
    FabricHasNodes,
    FabricHoldsItsNodes,
    FabricIsNotOversubscribed,
    FabricLeafHasThePorts,
    FabricMtuFits,
    FabricRailsAreNics,
    FabricRangeIsFree,
    FabricSidesAgree,
    FabricSpeedsAgree,
    LosslessEndsAtTheEdge,
    NicNamesFit,
    SwitchBuffersFit,
    SwitchHasThePorts,
    SwitchHasTheSpeed,
    SwitchModelIsKnown,
)
from infra.capabilities.fabric.section import FabricRegion, FabricSection, Nic, Roce
from infra.capabilities.fabric.topology import FabricPlan, plan_fabric
from infra.declaration import ClusterSpec, FabricSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.problem import listing
from infra.ground.rules.pools import NIC_GBPS

ECN_CAPABLE = 0b10
"""ECT(0), the low bits of the IP header's ToS byte (RFC 3168)."""
Fabrics = dict[str, FabricPlan]
"""Region → its fabric."""


class Fabric(Capability[Fabrics]):
    """Where a region declares one."""

    name = "fabric"
    rules = (
        NicNamesFit(),
        FabricHasNodes(),
        FabricSpeedsAgree(),
        FabricRailsAreNics(),
        FabricLeafHasThePorts(),
        FabricHoldsItsNodes(),
        FabricIsNotOversubscribed(),
        FabricRangeIsFree(),
        FabricSidesAgree(),
        FabricMtuFits(),
        SwitchModelIsKnown(),
        SwitchHasTheSpeed(),
        SwitchHasThePorts(),
        SwitchBuffersFit(),
        LosslessEndsAtTheEdge(),
    )
    limits: ClassVar = {(FabricSpec, "link_gbps"): listing(NIC_GBPS)}

    def plan(self, spec: ClusterSpec, planned: Planned) -> Fabrics | None:
        """None where no region has nodes on one."""
        made = (plan_fabric(number, region) for number, region in enumerate(spec.regions))
        return {fabric.region: fabric for fabric in made if fabric is not None} or None

    def section(self, plan: Fabrics) -> FabricSection:
        """What hosts have to know."""
        return FabricSection(
            regions={name: _region(fabric) for name, fabric in plan.items()},
            hosts={
                node: tuple(
                    Nic(**vars(nic) | {"leaf": fabric.switch_name("leaf", nic.plane, nic.leaf)})
                    for nic in nics
                )
                for fabric in plan.values()
                for node, nics in fabric.node_nics()
            },
        )

    def resources(self, plan: Fabrics) -> Mapping[str, int]:
        """The switches' files, one resource a region."""
        return {"hand_off": sum(fabric.fabric.switch is not None for fabric in plan.values())}

    def report(self, plan: Fabrics) -> Report:
        """In a module of its own."""
        return report(plan)


def _region(plan: FabricPlan) -> FabricRegion:
    fabric, roce = plan.fabric, plan.fabric.roce
    return FabricRegion(
        **fabric.model_dump(include={"kind", "link_gbps", "planes", "rails", "mtu_bytes"}),
        roce=Roce(tos=roce.dscp << 2 | ECN_CAPABLE, **roce.model_dump()),
        nccl=nccl(fabric),
        rail_cidrs=tuple(
            plan.rail_range(plane, rail) for plane in range(fabric.planes) for rail in range(fabric.rails)
        ),
    )


def nccl(fabric: FabricSpec) -> dict[str, str]:
    """What NCCL is told of a fabric and of what is declared for it (Environment Variables in its user guide).

    `NCCL_CROSS_NIC`: 0 where every NIC of a node has a leaf of its own, so that a ring keeps to its rail; 1
    where all have the same leaf; nothing for a single NIC. A hint that is unset is NCCL's to find out.
    """
    told = {f"NCCL_{name.upper()}": str(value) for name, value in fabric.nccl if value is not None}
    if "NCCL_QPS_PER_CONNECTION" in told:
        told["NCCL_IB_QPS_PER_CONNECTION"] = told.pop("NCCL_QPS_PER_CONNECTION")
    if fabric.rails > 1:
        told["NCCL_CROSS_NIC"] = "0" if fabric.kind == "rail_optimized" else "1"
    return dict(sorted(told.items()))


CAPABILITY = Fabric()
