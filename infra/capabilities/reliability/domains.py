"""What one failure takes away: from the plans of the fabric and of the WAN."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from infra.capabilities.fabric.section import FabricSection
from infra.capabilities.reliability.outlook import Outlook
from infra.capabilities.wan.section import WanSection
from infra.ground.capability import Planned


@dataclass(frozen=True)
class Domain:
    """What fails together."""

    what: str
    gpus: int
    """Lost to the job while it is down, at most."""
    stays: str
    """What goes on, and how."""


def domains(outlook: Outlook, planned: Planned) -> tuple[Domain, ...]:
    """The largest of each kind, the smallest kind first."""
    found = [Domain("a node", outlook.gpus_per_node, "the others, after a restart")]
    found += _fabric(outlook, planned)
    copies = "nothing: no checkpoint is anywhere else"
    if outlook.replication:
        copies = f"nothing there; its checkpoints are beyond {outlook.replication.where}"
    found.append(Domain(f"region {outlook.region}", outlook.job_gpus, copies))
    return (*found, *_links(planned))


def _fabric(outlook: Outlook, planned: Planned) -> Iterator[Domain]:
    """Leafs and spines. A rail's leaf carries a NIC of each of its nodes, hence a GPU of each."""
    section = planned.section(FabricSection)
    if section is None or outlook.region not in section.regions:
        return
    ours = {node.name for node in planned.region_nodes(outlook.region)}
    on_leaf: dict[str, set[str]] = defaultdict(set)
    for host in ours & section.hosts.keys():
        for port in section.hosts[host]:
            on_leaf[port.leaf].add(host)
    region, nodes = section.regions[outlook.region], max(map(len, on_leaf.values()), default=0)
    has_spines = len(on_leaf) > region.rails * region.planes
    if region.planes > 1:
        share = f"{(region.planes - 1) / region.planes:.0%}"
        yield Domain("a leaf", 0, f"all: {nodes} nodes keep {share} of a rail's bandwidth by the other plane")
    else:
        yield Domain(
            "a leaf",
            outlook.leaf_gpus,
            f"nodes that are not on it; its {nodes} lose a port, and the job them",
        )
    if has_spines:
        yield Domain("a spine", 0, "all whose leafs have another, with less bandwidth")


def _links(planned: Planned) -> Iterator[Domain]:
    """Each WAN link with the pairs of regions that have no other path."""
    section = planned.section(WanSection)
    if section is None:
        return
    for name in section.links:
        cut = sorted(
            {
                tuple(sorted((here, route.region)))
                for here, region in section.regions.items()
                for route in region.routes
                if name in route.path and (not route.backup_path or name in route.backup_path)
            }
        )
        parted = ", ".join(" and ".join(pair) for pair in cut)
        stays = f"each region by itself: {parted} are parted" if cut else "all, over another path"
        yield Domain(f"link {name}", 0, stays)
