"""What gets through between two nodes, packet by packet."""

import re
import subprocess
from itertools import pairwise

PING_EVERY_S = 0.1


def pings(container: str, address: str, count: int) -> "subprocess.Popen[str]":
    """`ping` in a node's container, ten packets a second, already under way."""
    argv = ["ping", "-n", "-i", str(PING_EVERY_S), "-c", str(count), "-W", "1", address]
    return subprocess.Popen(["podman", "exec", container, *argv], stdout=subprocess.PIPE, text=True)


def replies(ping: "subprocess.Popen[str]") -> dict[int, float]:
    """Number of the packet → its round trip in ms."""
    said, _ = ping.communicate(timeout=120)
    return {int(n): float(ms) for n, ms in re.findall(r"icmp_seq=(\d+) .*time=([\d.]+) ms", said)}


def longest_gap_s(found: dict[int, float], count: int) -> float:
    """The longest time in which nothing came back."""
    seen = [0, *sorted(found), count + 1]
    return max(after - before - 1 for before, after in pairwise(seen)) * PING_EVERY_S


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]
