"""What WAN links really carry: round trip, loss and rate between a node of each end, beside the declaration.

RTT comes from pings, loss from a paced UDP stream (thousands of packets, so that 0.2 % shows), the rate
from TCP with the settings that the nodes have.
"""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.errors import CausewayError
from infra.handoff.contract import Contract, LinkContract
from infra.handoff.ssh import ssh_config_file

PINGS = 100
PING_INTERVAL_S = 0.02
UDP_SECONDS = 4
UDP_SHARE_OF_RATE = 0.2
UDP_MAX_MBPS = 50
TCP_SECONDS = 6
TCP_WARM_UP_SECONDS = 2
UDP_PORT, TCP_PORT = 5291, 5292  # one each: the first server may still be closing its port
PATIENCE_S = 45


@dataclass(frozen=True)
class LinkMeasurement:
    """One link as found. Milliseconds, per cent in one direction, Mbit/s; `problem` when it could not be."""

    link: str
    source: str
    target: str
    rtt_ms: float | None = None
    loss_pct: float | None = None
    rate_mbps: float | None = None
    problem: str | None = None


def measure_links(
    contract: Contract, on_progress: Callable[[str], None] = lambda _line: None
) -> list[LinkMeasurement]:
    """Measure every link, one after the other so that they do not disturb each other.

    A link that cannot be measured says why in `problem`; the others are measured all the same.
    """
    found = []
    for name, link in contract.links.items():
        on_progress(f"measuring {name} ({link.a} – {link.b})")
        source, target = contract.region_hosts(link.a)[0], contract.region_hosts(link.b)[0]
        try:
            found.append(_measure(contract, name, link, source, target))
        except CausewayError as error:
            found.append(LinkMeasurement(name, source, target, problem=error.message))
    return found


def _measure(contract: Contract, name: str, link: LinkContract, source: str, target: str) -> LinkMeasurement:
    address = str(contract.hosts[target].address)
    rtt_ms = _rtt_ms(contract.stack, source, address)
    udp_mbps = min(link.bandwidth_mbps * UDP_SHARE_OF_RATE, UDP_MAX_MBPS)
    udp = ["-u", "-l", "1000", "-t", str(UDP_SECONDS), "-b", f"{udp_mbps}M"]
    tcp = ["-t", str(TCP_SECONDS), "-O", str(TCP_WARM_UP_SECONDS), "-P", "4"]
    lost = _iperf(contract.stack, source, target, address, UDP_PORT, udp)["sum"]
    carried = _iperf(contract.stack, source, target, address, TCP_PORT, tcp)["sum_received"]
    return LinkMeasurement(
        name,
        source,
        target,
        rtt_ms=round(rtt_ms, 1),
        loss_pct=round(lost["lost_percent"], 2),
        rate_mbps=round(carried["bits_per_second"] / 1e6, 1),
    )


def _rtt_ms(stack: str, source: str, address: str) -> float:
    said = _ssh(stack, source, f"ping -n -q -c {PINGS} -i {PING_INTERVAL_S} -w 20 {address} || true")
    found = re.search(r"= [\d.]+/([\d.]+)/", said)
    if not found:
        raise CausewayError(f"{source} gets no answer from {address}")
    return float(found[1])


def _iperf(
    stack: str, source: str, target: str, address: str, port: int, options: list[str]
) -> dict[str, Any]:
    """One iperf3 test; its server serves one client and ends by itself, whatever becomes of us."""
    listens = f"for _ in $(seq 50); do ss -Hltn sport = :{port} | grep -q . && break; sleep 0.1; done"
    _ssh(stack, target, f"timeout {PATIENCE_S} iperf3 -s -1 -D -p {port}; {listens}")
    client = f"iperf3 --json -c {address} -p {port} --connect-timeout 5000 {' '.join(options)}"
    answer = json.loads(_ssh(stack, source, client))
    if "error" in answer:
        raise CausewayError(f"iperf3 from {source} to {target}: {answer['error']}")
    end: dict[str, Any] = answer["end"]
    return end


def _ssh(stack: str, host: str, command: str) -> str:
    try:
        done = subprocess.run(
            ["ssh", "-F", str(ssh_config_file(stack)), host, command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise CausewayError(f"{host} did not answer within {PATIENCE_S} s") from None
    if done.returncode and not done.stdout.startswith("{"):
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CausewayError(f"{host}: {last}")
    return done.stdout
