"""WAN links: that they lead somewhere, and that such a line can exist."""

import math
from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.wan import tcp as wan
from infra.declaration import ClusterSpec, WanLinkSpec
from infra.declaration.link import LinkKind
from infra.ground.capability import Limits
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rule import links

FASTEST_RTT_MS = 0.001
"""100 m of fibre there and back; within a hall nothing is a WAN."""
SLOWEST_RTT_MS = 2000
"""Two geostationary hops are 1.2 s; beyond this, TCP's first retransmission timer fires."""
SLOWEST_MBPS = 0.1
"""A packet of 1500 bytes takes 120 ms at this rate."""
FASTEST_MBPS = 1_600_000
"""1.6 Tbit/s: the fastest Ethernet port there is (IEEE 802.3dj)."""
LOSSY_PCT = 5.0
SMALLEST_MTU = 576
"""What every IPv4 host must accept (RFC 791)."""
SMALLEST_IPV6_MTU = 1280
LIMITS: Limits = {
    (WanLinkSpec, "rtt_ms"): f"{FASTEST_RTT_MS:g} to {SLOWEST_RTT_MS}",
    (WanLinkSpec, "bandwidth_mbps"): f"{SLOWEST_MBPS:g} to {FASTEST_MBPS}",
    (WanLinkSpec, "loss_pct"): "0 to below 100",
    (WanLinkSpec, "mtu_bytes"): f"{SMALLEST_MTU} to both regions' `mtu_bytes`, inside the tunnel",
}
"""What the rules below allow, in words."""


RTT_MS, MBPS = (FASTEST_RTT_MS, SLOWEST_RTT_MS), (SLOWEST_MBPS, FASTEST_MBPS)


def _is_possible(link: WanLinkSpec) -> bool:
    """Whether there is anything to reckon with; where not, `link-rates` tells."""
    return RTT_MS[0] <= link.rtt_ms <= RTT_MS[1] and MBPS[0] <= link.bandwidth_mbps <= MBPS[1]


class LinkEndsExist:
    """A link joins two declared regions."""

    id: ClassVar[str] = "link-ends"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Ends that name no region, and links from a region to itself."""
        names = list(dict.fromkeys(region.name for region in spec.regions))
        allowed = ", ".join(names)
        for path, link in links(spec):
            for end, name in (("a", link.a), ("b", link.b)):
                if name not in names:
                    message = f"{show(name)} is not a declared region ({allowed})"
                    yield Problem(f"{path}.{end}", message, show(name), allowed, nearest(name, names))
            if link.a == link.b and link.a in names:
                others = [name for name in names if name != link.a]
                message = f"the link leads from {link.a} to itself"
                suggestion = others[0] if len(others) == 1 else None
                yield Problem(f"{path}.b", message, show(link.b), ", ".join(others), suggestion)


class RegionsAreReached:
    """The links are the only paths between regions."""

    id: ClassVar[str] = "region-reached"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions of a larger cluster at which no link ends."""
        names = {region.name for region in spec.regions}
        if any(link.a == link.b or not {link.a, link.b} <= names for _, link in links(spec)):
            return  # where those links should lead is not known; `link-ends` tells
        reached = {end for _, link in links(spec) for end in (link.a, link.b)}
        for index, region in enumerate(spec.regions):
            if len(names) > 1 and region.name not in reached:
                message = f"no WAN link reaches region {region.name}"
                hint = f"add one to wan_links with a or b: {region.name}"
                yield Problem(f"regions[{index}]", message, hint=hint)


class RegionsAreOneCluster:
    """Two halves without a path between them are two clusters."""

    id: ClassVar[str] = "regions-connected"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions that links reach, but not from the first region."""
        neighbours: dict[str, set[str]] = {region.name: set() for region in spec.regions}
        for _, link in links(spec):
            if {link.a, link.b} <= neighbours.keys():
                neighbours[link.a].add(link.b)
                neighbours[link.b].add(link.a)
        seen: set[str] = set()
        todo = [region.name for region in spec.regions[:1]]
        while todo:
            name = todo.pop()
            todo += [] if name in seen else neighbours[name]
            seen.add(name)
        cut_off = [name for name, others in neighbours.items() if name not in seen and others]
        if cut_off:
            message = f"no chain of links leads from {spec.regions[0].name} to {', '.join(cut_off)}"
            yield Problem("wan_links", message)


class LinksDoNotCompete:
    """A route leads over one link, unless one is declared as the backup of another."""

    id: ClassVar[str] = "link-parallel"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links between two regions that an earlier link joins already, and that are not its backup."""
        first: dict[frozenset[str], str] = {}
        for path, link in links(spec):
            if link.backup_of is not None:
                continue
            earlier = first.setdefault(frozenset((link.a, link.b)), link.name)
            if earlier != link.name and link.a != link.b:
                message = f"{earlier} already joins {link.a} and {link.b}; the shorter RTT carries all"
                hint = "declare backup_of on the one that stands in for the other"
                yield Problem(path, message, hint=hint)


class MtuFitsThePath:
    """A packet of the link's size has to pass both regions' networks."""

    id: ClassVar[str] = "link-mtu"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links whose packets are larger than a region's at either end, or smaller than IPv4 allows."""
        mtus = {region.name: region.mtu_bytes for region in spec.regions}
        for path, link in links(spec):
            ends = [(mtus[name], name) for name in (link.a, link.b) if name in mtus]
            smallest, name = min(ends, default=(link.mtu_bytes, ""))
            inside, shown = wan.tunnel_mtu_bytes(link.kind, link.mtu_bytes), show(link.mtu_bytes)
            verb = "is" if link.kind == "dedicated_fiber" else f"leaves {inside} in the tunnel,"
            least, most = self._carrying(link.kind, SMALLEST_MTU), self._carrying(link.kind, smallest)
            if inside < SMALLEST_MTU:
                message = f"{shown} {verb} less than {SMALLEST_MTU}, which every IPv4 host must accept"
                yield Problem(f"{path}.mtu_bytes", message, shown, f"{least} to {most}")
            elif inside > smallest:
                message = f"{shown} {verb} larger than region {name}'s mtu_bytes of {smallest}"
                yield Problem(f"{path}.mtu_bytes", message, shown, f"at most {most}", str(most))

    @staticmethod
    def _carrying(kind: LinkKind, inside: int) -> int:
        """The line's MTU that leaves just so many bytes in the tunnel, or as few under it as can be."""
        outside = inside
        while wan.tunnel_mtu_bytes(kind, outside + 1) <= inside:
            outside += 1
        return outside


class MtuCarriesIpv6:
    """Below 1280 bytes IPv6 does not work (RFC 8200), and TCP pays more for headers."""

    id: ClassVar[str] = "link-mtu-small"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links with an MTU that IPv4 takes and IPv6 does not."""
        for path, link in links(spec):
            inside = wan.tunnel_mtu_bytes(link.kind, link.mtu_bytes)
            if SMALLEST_MTU <= inside < SMALLEST_IPV6_MTU:
                message = f"{inside} is less than the {SMALLEST_IPV6_MTU} that IPv6 needs"
                yield Problem(f"{path}.mtu_bytes", message, show(link.mtu_bytes))


class RatesArePossible:
    """Delay, rate and loss of a line that can exist."""

    id: ClassVar[str] = "link-rates"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Numbers outside what any line has."""
        for path, link in links(spec):
            yield from self._within(f"{path}.rtt_ms", link.rtt_ms, RTT_MS, "ms")
            yield from self._within(f"{path}.bandwidth_mbps", link.bandwidth_mbps, MBPS, "Mbit/s")
            if not 0 <= link.loss_pct < 100:
                message = f"{show(link.loss_pct)} % is impossible: loss is at least 0 and below 100"
                yield Problem(f"{path}.loss_pct", message, show(link.loss_pct), "0 to below 100")

    @staticmethod
    def _within(path: str, value: float, limits: tuple[float, float], unit: str) -> Iterator[Problem]:
        least, most = limits
        if not least <= value <= most:
            why = "must be more than 0" if value <= 0 else f"is less than {least:g}"
            why = f"is more than {most:,}" if value > most else why
            message = f"{show(value)} {unit} is impossible: it {why}".replace(": it is", ":")
            yield Problem(path, message, show(value), f"{least:g} to {most:,} {unit}")


class LossIsLow:
    """Above a few per cent no congestion control carries much, and a per cent is easily taken for a share."""

    id: ClassVar[str] = "link-loss-high"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links that lose more than 5 %."""
        for path, link in links(spec):
            if LOSSY_PCT < link.loss_pct < 100:
                message = (
                    f"{show(link.loss_pct)} % loss is very high; the unit is per cent (0.2 is 2 in 1000)"
                )
                yield Problem(f"{path}.loss_pct", message, show(link.loss_pct), f"up to {LOSSY_PCT:g}")


class FlowsFillTheLink:
    """A TCP window ends at 1,073,725,440 bytes (RFC 7323), so one flow has at most that in flight."""

    id: ClassVar[str] = "link-flows"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links whose declared flows together cannot keep a bandwidth-delay product in flight."""
        for path, link in links(spec):
            if not _is_possible(link):
                continue
            bdp = wan.bdp_bytes(link.bandwidth_mbps, link.rtt_ms)
            needed = -(-bdp // wan.MAX_WINDOW_BYTES)
            if link.flows < needed:
                rate = wan.window_mbps(link.rtt_ms)
                message = (
                    f"{link.flows} TCP flow{'s' * (link.flows > 1)} cannot fill the link: TCP's window of "
                    f"{wan.MAX_WINDOW_BYTES:,} bytes carries {rate:,.0f} Mbit/s a flow at {link.rtt_ms:g} ms"
                )
                yield Problem(
                    f"{path}.flows",
                    message,
                    show(link.flows),
                    f"{needed} or more",
                    hint=f"declare {needed} or more",
                )


class OneFlowIsCarried:
    """One TCP flow carries at most the link's rate, and 1,073,725,440 bytes each round trip."""

    id: ClassVar[str] = "link-single-flow"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Rates asked of one flow that no window scaling (RFC 7323) or the link itself allows."""
        for path, link in links(spec):
            target = link.single_flow_mbps
            if target is None or not _is_possible(link):
                continue
            window = math.floor(wan.window_mbps(link.rtt_ms))
            largest = min(window, link.bandwidth_mbps)
            if target > largest:
                of_link = f"the link has {link.bandwidth_mbps:g} Mbit/s"
                of_window = (
                    f"TCP's largest window, {wan.MAX_WINDOW_BYTES:,} bytes, carries {window:,} Mbit/s "
                    f"at {link.rtt_ms:g} ms"
                )
                message = f"{show(target)} Mbit/s is more than one flow can reach: "
                message += of_link if link.bandwidth_mbps <= window else of_window
                allowed = f"at most {largest:.10g} Mbit/s"
                yield Problem(f"{path}.single_flow_mbps", message, show(target), allowed, f"{largest:.10g}")


class ClassesFitTheLink:
    """What is promised to all classes together has to be there when all of them want it."""

    id: ClassVar[str] = "link-classes"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links whose classes add up to more than 100 %."""
        for path, link in links(spec):
            total = link.classes.total_pct
            if total > 100:
                parts = " + ".join(f"{share:g}" for share in link.classes.model_dump().values())
                message = f"{parts} is {total:g} % of the link, {total - 100:g} more than there is"
                yield Problem(f"{path}.classes", message, f"{total:g}", "at most 100 together")
