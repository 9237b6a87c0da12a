#!/usr/bin/python3 -sB
"""Health checks that Consul's agent runs: they ask a service for what it is there for.

causeway_check.py ssh ADDRESS PORT    an SSH server greets
causeway_check.py ntp ADDRESS PORT    a time server answers with a time it believes in
causeway_check.py node                nothing keeps work from being sent to this node

Exit status as Consul wants it: 0 passing, 1 warning, 2 critical. Modules are loaded where they are used: the
agent starts each check twice a minute, and loading all takes longer than asking.
"""

from __future__ import annotations

import os
import sys
import time

PATIENCE_S = 5
METRICS = "/var/lib/prometheus/node-exporter/causeway_drift.prom"
SCAN_OLD_S, SCANS_MISSED = 900, 15
"""A look of the drift watch that is so old, and as old as so many looks, is missing: as its alert has it."""
PASSING, WARNING, CRITICAL = 0, 1, 2


def ssh(address: str, port: int) -> tuple[int, str]:
    """An SSH server's greeting."""
    import socket

    with socket.create_connection((address, port), timeout=PATIENCE_S) as link:
        greeting = link.recv(64)
    return (PASSING if greeting.startswith(b"SSH-2") else CRITICAL), f"said {greeting!r}"


def ntp(address: str, port: int) -> tuple[int, str]:
    """A time server's answer (RFC 5905: mode 4); stratum 0 or 16 means that it has no time to give."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(PATIENCE_S)
        link.sendto(bytes([0x23]) + bytes(47), (address, port))
        answer = link.recv(512)
    good = len(answer) >= 48 and answer[0] & 7 == 4 and 0 < answer[1] < 16
    return (PASSING if good else CRITICAL), f"stratum {answer[1]}" if len(answer) > 1 else "too short"


def node() -> tuple[int, str]:
    """Critical where the node cannot work, a warning where it is not as it should be."""
    ill = []
    if os.statvfs("/").f_flag & os.ST_RDONLY:
        return CRITICAL, "the root file system is read-only"
    import subprocess

    state = subprocess.run(
        ["systemctl", "is-system-running"], stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    if state in ("stopping", "maintenance"):
        return CRITICAL, f"the system is {state}"
    if state == "degraded":
        words = ["systemctl", "--failed", "--plain", "--no-legend"]
        failed = subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        ill.append("failed: " + " ".join(line.split()[0] for line in failed if line))
    ill += drift()
    return (WARNING, "; ".join(ill)) if ill else (PASSING, "as it should be")


def drift() -> list[str]:
    """What the node's own watch over drift says, where it has one."""
    try:
        with open(METRICS) as file:
            text = file.read()
    except FileNotFoundError:
        return []
    import re

    counts = re.findall(r'^causeway_drift_differences\{role="(\w+)"\} (\S+)', text, re.MULTILINE)
    found = [f"{role} drifted" for role, count in counts if float(count)]
    looked = re.search(r"^causeway_drift_scan_timestamp_seconds (\S+)", text, re.MULTILINE)
    every = re.search(r"^causeway_drift_scan_interval_seconds (\S+)", text, re.MULTILINE)
    limit_s = max(SCAN_OLD_S, SCANS_MISSED * float(every[1]) if every else 0)
    if looked and time.time() - float(looked[1]) > limit_s:
        found.append("nobody looks for drift")
    return found


def main(words: list[str]) -> int:
    """Run the check that the words name, and print what it found."""
    try:
        if words[:1] == ["node"]:
            status, text = node()
        else:
            check = {"ssh": ssh, "ntp": ntp}[words[0]]
            status, text = check(words[1], int(words[2]))
    except OSError as error:
        status, text = CRITICAL, str(error)
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
