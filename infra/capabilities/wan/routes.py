"""Paths from region to region over the declared links, also through regions between, and their TCP settings.

The path with the shortest round trip carries the traffic; links declared as `backup_of` another do so only
while that is down. Every choice is the same seen from both ends and from every region on the path, so hop by
hop forwarding follows the plan without loops: Σ 2ⁱ over the links' numbers i decides ties, and no two sets of
links have the same.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from infra.capabilities.wan import tcp as wan
from infra.capabilities.wan.section import CongestionControl
from infra.declaration import ClusterSpec, WanLinkSpec

Weight = tuple[int, int, int]
"""Round trip in µs (whole numbers add up the same in any order), links, and the sum that decides ties."""
DOWN_US = 10**12
"""What a link weighs that is to be avoided: more than any path around it."""


@dataclass(frozen=True)
class Path(wan.TcpPlan):
    """One path between two regions: `links` in travelling order, sums and minima over them.

    Round trip in ms, the narrowest link's rate in Mbit/s, loss in each direction in per cent.
    """

    links: tuple[str, ...]
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float


@dataclass(frozen=True)
class Route:
    """How one region reaches another: the path, the one that stands in for it, and settings that fit both.

    Packets have the primary path's size; where the backup takes smaller ones only, its first tunnel says so.
    """

    primary: Path
    backup: Path | None
    """The path while the primary one's links are down, as far as there is one.

    Links declared as their backups; and paths through other regions, where every region has gateway nodes,
    which tell each other what is down.
    """
    congestion_control: CongestionControl
    reason: str
    tcp_buffer_max_bytes: int


@dataclass(frozen=True)
class _Link:
    spec: WanLinkSpec
    index: int

    @property
    def weight(self) -> Weight:
        return round(self.spec.rtt_ms * 1000), 1, 1 << self.index

    def far(self, region: str) -> str:
        return self.spec.b if region == self.spec.a else self.spec.a


Graph = Mapping[str, list[tuple[str, Weight, WanLinkSpec]]]
"""Region → (far region, weight, link) of the links that end there."""
Paths = dict[str, tuple[WanLinkSpec, ...]]
"""Far region → the links that lead there."""


def plan_routes(spec: ClusterSpec) -> dict[str, dict[str, Route]]:
    """Region → other region it can reach → route, both in declared order."""
    names = [region.name for region in spec.regions]
    links = [_Link(link, index) for index, link in enumerate(spec.wan_links)]
    graph = _graph(names, links, down=frozenset())
    dynamic = all(any(pool.role == "gateway" for pool in region.pools) for region in spec.regions)
    stand_ins = {link.backup_of: link for link in reversed(spec.wan_links) if link.backup_of}
    detours: dict[frozenset[str], Graph] = {}
    routes: dict[str, dict[str, Route]] = {}
    for source in names:
        paths = _shortest(graph, source)
        routes[source] = {}
        for target in (name for name in names if name in paths and name != source):
            path = paths[target]
            around = tuple(stand_ins.get(link.name, link) for link in path)
            if dynamic:
                down = frozenset(link.name for link in path)
                if down not in detours:
                    detours[down] = _graph(names, links, down)
                around = _shortest(detours[down], source)[target]
            routes[source][target] = plan_route(path, around)
    return routes


def plan_route(primary: tuple[WanLinkSpec, ...], around: tuple[WanLinkSpec, ...]) -> Route:
    """A route of these links; `around` is the path while they are down, the same where there is none."""
    path = _path(primary)
    backup = _path(around) if around != primary else None
    paths = [path] if backup is None else [path, backup]
    # One setting has to hold on both, since hosts do not see which of them carries the traffic; but what is
    # near stays with CUBIC, however far the path around it.
    far = path.rtt_ms >= wan.LONG_PATH_RTT_MS
    control = next((one for one in paths if one.congestion_control == "bbr" and far), path)
    reason = f"on the backup path, {control.reason}" if control is backup else control.reason
    return Route(
        primary=path,
        backup=backup,
        congestion_control=control.congestion_control,
        reason=reason,
        tcp_buffer_max_bytes=max(one.tcp_buffer_max_bytes for one in paths),
    )


def path_line(links: tuple[WanLinkSpec, ...]) -> wan.Line:
    """Links one after the other as one: RTTs add up, losses combine, the narrowest and smallest counts.

    What one flow has to reach is declared of a link alone, and asks nothing of longer paths.
    """
    lines = [wan.line_of(link) for link in links]
    if len(lines) == 1:
        return lines[0]
    passed = math.prod(1 - line.loss_pct / 100 for line in lines)
    return wan.Line(
        rtt_ms=round(sum(line.rtt_ms for line in lines), 6),
        bandwidth_mbps=min(line.bandwidth_mbps for line in lines),
        loss_pct=round((1 - passed) * 100, 9),
        mtu_bytes=min(line.mtu_bytes for line in lines),
        flows=min(line.flows for line in lines),
    )


def _path(links: tuple[WanLinkSpec, ...]) -> Path:
    line = path_line(links)
    return Path(
        **asdict(wan.plan_tcp(line)),
        links=tuple(link.name for link in links),
        rtt_ms=line.rtt_ms,
        bandwidth_mbps=line.bandwidth_mbps,
        loss_pct=line.loss_pct,
    )


def _graph(names: list[str], links: list[_Link], down: frozenset[str]) -> Graph:
    """The links that carry traffic while those in `down` do not.

    A backup has its primary's weight, so that it is taken rather than a path through other regions.
    """
    weights = {link.spec.name: link.weight for link in links}
    graph: dict[str, list[tuple[str, Weight, WanLinkSpec]]] = {name: [] for name in names}
    for link in links:
        if link.spec.backup_of is not None and link.spec.backup_of not in down:
            continue
        base, hops, tie = weights[link.spec.backup_of or link.spec.name][0], *link.weight[1:]
        weight = (base + DOWN_US * (link.spec.name in down), hops, tie)
        for region in (link.spec.a, link.spec.b):
            graph[region].append((link.far(region), weight, link.spec))
    return graph


def _shortest(graph: Graph, source: str) -> Paths:
    """The shortest path from one region to every other it reaches (Dijkstra, 1959)."""
    paths: Paths = {}
    queue: list[tuple[Weight, str, tuple[WanLinkSpec, ...]]] = [((0, 0, 0), source, ())]
    while queue:
        weight, region, path = heapq.heappop(queue)
        if region in paths:
            continue
        paths[region] = path
        for far, more, link in graph[region]:
            if far not in paths:
                total = (weight[0] + more[0], weight[1] + more[1], weight[2] + more[2])
                heapq.heappush(queue, (total, far, (*path, link)))
    return paths
