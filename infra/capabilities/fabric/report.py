"""The fabrics in `causeway plan`: shape, counts, and the next step."""

from dataclasses import asdict
from typing import Any

from infra.capabilities.fabric import topology as fabric
from infra.ground import clos
from infra.ground.capability import RegionReport, Report


def report(plans: dict[str, fabric.FabricPlan]) -> Report:
    """Per region."""
    return Report(
        regions={
            name: RegionReport(_fabric_text(plan), {"fabric": _fabric(plan)}) for name, plan in plans.items()
        }
    )


def _fabric(plan: fabric.FabricPlan) -> dict[str, Any]:
    """Counts are over all planes; `max_endpoints` is for so many tiers, `largest` for as many as may be."""
    spec, shape, larger = plan.fabric, plan.shape, plan.shape.next_step()
    return {
        "kind": spec.kind,
        "tiers": shape.tiers,
        "planes": spec.planes,
        "nodes": shape.nodes,
        **asdict(plan.counts),
        "pods": len(shape.pods),
        "leaf_ports": {"down": clos.down_ports(spec), "up": shape.leaf_up},
        "max_endpoints": clos.max_endpoints(spec, max(shape.tiers, 2)),
        "largest": {
            "tiers": clos.max_tiers(spec),
            "nodes": clos.max_nodes(spec),
            "endpoints": clos.max_endpoints(spec),
        },
        "next_step": _next_step(shape, larger) if larger else None,
        "cidr": str(plan.cidr),
        "mtu_bytes": spec.mtu_bytes,
        "roce": spec.roce.model_dump(),
    }


def _next_step(shape: clos.Shape, larger: clos.Shape) -> dict[str, int]:
    """From how many nodes on it is due, how many it holds, and what has to be added to what stands."""
    now, then = asdict(fabric.Counts.of(shape)), asdict(fabric.Counts.of(larger))
    added = {f"more_{what}": then[what] - now[what] for what in now}
    return {"above_nodes": shape.full, "nodes": larger.nodes, "tiers": larger.tiers, **added}


def _fabric_text(plan: fabric.FabricPlan) -> str:
    spec, shape = plan.fabric, plan.shape
    counts = {what.replace("_", " "): number for what, number in asdict(plan.counts).items() if number}
    planes = f" in {spec.planes} planes" if spec.planes > 1 else ""
    lines = [
        f"fabric {spec.kind}, {shape.tiers} tier{'s' * (shape.tiers > 1)}{planes}, {spec.link_gbps} Gbit/s, "
        f"MTU {spec.mtu_bytes}, {plan.cidr}",
        "  " + ", ".join(f"{number:,} {what}" for what, number in counts.items()),
        f"  radix {spec.radix} carries up to {clos.max_nodes(spec):,} such nodes "
        f"({clos.max_endpoints(spec):,} endpoints) in {clos.max_tiers(spec)} tiers",
    ]
    larger = shape.next_step()
    if larger:
        step = _next_step(shape, larger)
        added = {what: step[f"more_{what}s"] for what in ("leaf", "spine", "core")}
        more = ", ".join(f"{number:,} {what}{'s' * (number > 1)}" for what, number in added.items() if number)
        lines.append(f"  more than {shape.full:,} nodes take {more} more, for up to {larger.nodes:,}")
    return "\n".join(lines)
