"""What one failure takes away: from the plans of the fabric and of the WAN."""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.capabilities.reliability.outlook import Outlook
from infra.capabilities.wan.section import WanSection
from infra.ground.capability import Planned
from infra.ground.clos import Shape


@dataclass(frozen=True)
class Domain:
    """What fails together."""

    what: str
    gpus: int
    """Lost to the job while it is down, at most."""
    stays: str
    """What goes on, and how."""


def domains(outlook: Outlook, shape: Shape | None, planned: Planned) -> tuple[Domain, ...]:
    """The largest of each kind, the smallest kind first. SHAPE is the fabric's of the job's region."""
    found = [Domain("a node", outlook.gpus_per_node, "the others, after a restart")]
    found += _fabric(outlook, shape) if shape else ()
    copies = "nothing: no checkpoint is anywhere else"
    if outlook.replication:
        copies = f"nothing there; its checkpoints are beyond {outlook.replication.where}"
    found.append(Domain(f"region {outlook.region}", outlook.job_gpus, copies))
    return (*found, *_links(planned))


def _fabric(outlook: Outlook, shape: Shape) -> Iterator[Domain]:
    """Leafs and spines. A rail's leaf carries a NIC of each of its nodes, hence a GPU of each."""
    nodes, planes = outlook.leaf_nodes, outlook.planes
    if planes > 1:
        share = f"{(planes - 1) / planes:.0%}"
        yield Domain("a leaf", 0, f"all: {nodes} nodes keep {share} of a rail's bandwidth by the other plane")
    else:
        stays = f"nodes that are not on it; its {nodes} lose a port, and the job them"
        yield Domain("a leaf", outlook.leaf_gpus, stays)
    fewest = min(pod.spines for pod in shape.pods)
    if fewest > 1 or (fewest and planes > 1):
        less = 100 / (fewest * planes)
        yield Domain("a spine", 0, f"all, with {less:.2g} % less bandwidth between its leafs")
    elif fewest:
        yield Domain("a spine", outlook.job_gpus, "what is on one leaf: there is no other spine")


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
