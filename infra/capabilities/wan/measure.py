"""What the WAN really carries: round trip, loss, packet size and TCP rate between a node of each region.

RTT comes from pings, the path MTU from pings that may not be cut, loss from a paced UDP stream (thousands of
packets, so that 0.2 % shows), and the rate from one TCP flow: with the congestion control that the node's
routes have, as a program would get it, and once more with the other one.

Streams are marked as replication between regions is. Over links that others work on they are held to that
class's share, which the link carries beside all others; a link that is made here is filled.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, get_args

from infra.capabilities.wan.endpoints import FIRST_MEASURE_PORT
from infra.capabilities.wan.section import CongestionControl, WanRoute, WanSection
from infra.errors import CausewayError, sentence
from infra.ground.contract import Contract
from infra.ground.login import on

PINGS = 100
PING_INTERVAL_S = 0.02
UDP_SECONDS = 4
UDP_SHARE_OF_RATE = 0.2
UDP_MAX_MBPS = 50
TCP_SECONDS = 8
TCP_WARM_UP_SECONDS = 2
PATIENCE_S = 60
REPLICATION_TOS = 10 << 2
"""AF11."""
SHOWN_CHARS = 80
CONTROL_NAME = re.compile(r"[a-z0-9_]{0,15}")
"""Of a congestion control, as Linux has them."""

# Prints the largest packet that arrives whole: three tries each, so that a lost one does not count. First the
# declared size and one byte more; only where that does not settle it, a search between IPv4's least and the
# interface's own. `-M probe` asks the path and not the route, which holds what is declared.
PATH_MTU = """
passes() { ping -n -q -M probe -c 3 -i 0.2 -W 1 -s $(($1 - 28)) $address >/dev/null 2>&1; }
set -- $(ip -o route get $address); while [ "$1" != dev ]; do shift; done
low=576 high=$(($(cat /sys/class/net/$2/mtu) + 1))
for size in $declared $((declared + 1)); do
  [ $size -lt $high ] && [ $size -gt $low ] || continue
  if passes $size; then low=$size; else high=$size; fi
done
passes $low || { echo 0; exit; }
while [ $((high - low)) -gt 1 ]; do
  size=$(((low + high) / 2))
  if passes $size; then low=$size; else high=$size; fi
done
echo $low
"""


@dataclass(frozen=True)
class Rate:
    """What one TCP flow carried: Mbit/s, and the congestion control that its socket had."""

    mbps: float
    congestion_control: str


@dataclass(frozen=True)
class Measurement:
    """The path between two regions as found, from host to host. None where it was not measured.

    Milliseconds for the round trip, per cent in the direction to the target, bytes. `lacking` says
    what could not be measured of a path that carries packets; `problem` why it carries none.
    """

    declared: WanRoute
    source_region: str
    target_region: str
    source: str
    target: str
    rtt_ms: float | None = None
    loss_pct: float | None = None
    mtu_bytes: int | None = None
    configured: Rate | None = None
    other: Rate | None = None
    lacking: str | None = None
    problem: str | None = None
    held_to_mbps: float | None = None
    """The most that any stream was allowed to send; None where it was free to fill the link."""


def held_to_mbps(contract: Contract, route: WanRoute) -> float | None:
    """What replication is guaranteed on every link of a path and of its backup; None where all of
    them are made here."""
    links = [contract.need(WanSection).links[name] for name in (*route.path, *route.backup_path)]
    if all(contract.regions[region].makes_links for link in links for region in (link.a, link.b)):
        return None
    return min(link.bandwidth_mbps * link.classes.replication_pct / 100 for link in links)


def measure_wan(
    contract: Contract,
    on_progress: Callable[[str], None] = lambda _line: None,
    *,
    neighbours_only: bool = False,
    compare: bool = True,
) -> list[Measurement]:
    """Measure all pairs of regions with a path between them, one after the other: none disturbs another.

    A pair that cannot be measured says why; the others are measured all the same. `compare` adds the rate
    with the other congestion control.
    """
    found = []
    for source_region, target_region in combinations(_declared(contract), 2):
        route = contract.need(WanSection).route(source_region, target_region)
        if route is None or (neighbours_only and len(route.path) > 1):
            continue
        on_progress(f"measuring {source_region} – {target_region} (over {', '.join(route.path)})")
        source, target = (_host(contract, region) for region in (source_region, target_region))
        held = held_to_mbps(contract, route)
        blank = Measurement(route, source_region, target_region, source, target, held_to_mbps=held)
        pair = _Pair(contract, blank)
        found.append(pair.measure(compare))
    return found


def _declared(contract: Contract) -> list[str]:
    """The regions in the order of their numbers, which the contract's own order by name does not keep."""
    regions = contract.need(WanSection).regions
    return sorted(regions, key=lambda name: regions[name].asn)


def _host(contract: Contract, region: str) -> str:
    """A host that uses the gateways, and is none."""
    hosts = contract.region_hosts(region)
    gateways = contract.need(WanSection).regions[region].gateways
    return next((host for host in hosts if host not in gateways), hosts[0])


@dataclass
class _Pair:
    """One measurement under way."""

    contract: Contract
    found: Measurement
    port: int = FIRST_MEASURE_PORT

    def measure(self, compare: bool) -> Measurement:
        try:
            self.found = replace(self.found, rtt_ms=self._rtt_ms())
        except CausewayError as error:
            return replace(self.found, problem=error.message)
        try:
            self._measure_rest(compare)
        except CausewayError as error:
            self.found = replace(self.found, lacking=error.message)
        return self.found

    def _measure_rest(self, compare: bool) -> None:
        """What pings and iperf3 tell besides; CausewayError leaves what was found so far."""
        self.found = replace(self.found, mtu_bytes=self._mtu_bytes())
        without = [host for host in (self.found.source, self.found.target) if not self._has_iperf3(host)]
        if without:
            where = " and ".join(without)
            raise CausewayError(f"no iperf3 on {where}: install it (apt-get install iperf3)")
        self.found = replace(self.found, loss_pct=self._loss_pct())
        configured = self._tcp()
        self.found = replace(self.found, configured=configured)
        if compare:
            used = configured.congestion_control
            other = next(name for name in get_args(CongestionControl) if name != used)
            self.found = replace(self.found, other=self._tcp(f"-C {other}"))

    @property
    def address(self) -> str:
        return str(self.contract.hosts[self.found.target].address)

    def _rtt_ms(self) -> float:
        said = self._source(f"ping -n -q -c {PINGS} -i {PING_INTERVAL_S} -w 20 {self.address} || true")
        times = re.search(r"= \d+[\d.]*/(\d{1,9}(?:\.\d+)?)/", said, re.ASCII)
        if not times:
            raise CausewayError(f"{self.found.source} gets no answer from {self.address}")
        return round(float(times[1]), 1)

    def _mtu_bytes(self) -> int | None:
        settings = f"address={self.address} declared={self.found.declared.mtu_bytes}"
        said = self._source(f"{settings}\n{PATH_MTU}").strip()
        if not re.fullmatch(r"\d{1,6}", said, re.ASCII):
            raise CausewayError(f"{self.found.source} says no packet size: {said[:SHOWN_CHARS]!r}")
        return int(said) or None

    def _has_iperf3(self, host: str) -> bool:
        return not _on(self.contract, host, "command -v iperf3 >/dev/null || echo missing").strip()

    def _loss_pct(self) -> float:
        mbps = self._allowed(min(self.found.declared.bandwidth_mbps * UDP_SHARE_OF_RATE, UDP_MAX_MBPS))
        sent = self._iperf(f"-u -l 1000 -t {UDP_SECONDS} -b {round(mbps * 1e6)}")
        lost_pct = self._number(sent, "sum", "lost_percent", most=100, least=-100)
        return round(max(lost_pct, 0.0), 2)  # less than none is lost where packets came twice

    def _tcp(self, options: str = "") -> Rate:
        held = self.found.held_to_mbps
        # The first holds the mean, also where a socket cannot be paced; the second what follows a pause.
        paced = "" if held is None else "-b {0} --fq-rate {0}".format(round(held * 1e6))
        end = self._iperf(f"-t {TCP_SECONDS} -O {TCP_WARM_UP_SECONDS} {paced} {options}")
        mbps = round(self._number(end, "sum_received", "bits_per_second", most=1e15) / 1e6, 1)
        used = end.get("sender_tcp_congestion", "")
        return Rate(mbps, used if isinstance(used, str) and CONTROL_NAME.fullmatch(used) else "")

    def _number(self, end: dict[str, Any], part: str, name: str, most: float, least: float = 0) -> float:
        """A figure of iperf3's. CausewayError where there is none, or one that cannot be."""
        of_part = end.get(part)
        value = of_part.get(name) if isinstance(of_part, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self._no_sense(f"{part}.{name} is {str(value)[:SHOWN_CHARS]!r}")
        return float(value)

    def _no_sense(self, what: str) -> CausewayError:
        return CausewayError(
            f"what iperf3 on {self.found.source} says makes no sense: {what}",
            hint=f"try there: iperf3 --json -c {self.address}",
        )

    def _allowed(self, mbps: float) -> float:
        return mbps if self.found.held_to_mbps is None else min(mbps, self.found.held_to_mbps)

    def _iperf(self, options: str) -> dict[str, Any]:
        """The `end` of one iperf3 test; once more where it failed, as after a lost first packet of UDP's."""
        answer = self._iperf_once(options)
        if "error" in answer:
            answer = self._iperf_once(options)
        if "error" in answer:
            what = f"iperf3 from {self.found.source} to {self.found.target}"
            raise CausewayError(sentence(f"{what}: {answer['error']}"))
        end = answer.get("end")
        if not isinstance(end, dict):
            raise self._no_sense("it has no end")
        return end

    def _iperf_once(self, options: str) -> dict[str, Any]:
        """What iperf3 answers; its server serves one client and ends by itself, whatever becomes of us."""
        port, self.port = self.port, self.port + 1
        listens = f"for _ in $(seq 100); do ss -Hltn sport = :{port} | grep -q . && break; sleep 0.1; done"
        server = f"timeout {PATIENCE_S} iperf3 -s -1 -D -p {port}; {listens}"
        _on(self.contract, self.found.target, server)
        marked = f"-S {REPLICATION_TOS} {options}"
        client = f"iperf3 --json -c {self.address} -p {port} --connect-timeout 5000 {marked} || true"
        said = self._source(client)
        if not said:
            return {"error": "it said nothing"}
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):
            raise self._no_sense(f"{said[:SHOWN_CHARS]!r}") from None
        if not isinstance(answer, dict):
            raise self._no_sense(f"{said[:SHOWN_CHARS]!r}")
        return answer

    def _source(self, command: str) -> str:
        return _on(self.contract, self.found.source, command)


def _on(contract: Contract, host: str, script: str) -> str:
    """What a shell script printed on a host. CausewayError when the host cannot be reached or it failed."""
    return on(contract, host, "sh", stdin=script, timeout_s=PATIENCE_S)
