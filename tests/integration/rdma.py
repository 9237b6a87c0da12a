"""RDMA between two nodes, and the packets of it that a region's network really carries."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from infra.providers.local import names, netns
from tests.integration.checkout import Checkout

ROCE_PORT = 4791
WRITE_S = 3
ATTEMPTS = 15
PATIENCE_S = 20
"""For one attempt: connecting takes a second, where no datagram of it is lost."""
RATE = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)
"""A row of perftest's table: bytes, iterations, peak, average, messages."""
WATCH = """
import collections, json, signal, socket, sys
seen = collections.Counter()
def end(*_):
    print(json.dumps(seen))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("watching", flush=True)
while True:
    frame = every.recv(65535)
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 17:
        header = 14 + (frame[14] & 15) * 4
        if int.from_bytes(frame[header + 2 : header + 4], "big") == int(sys.argv[1]):
            seen[frame[15]] += 1
"""


@contextmanager
def watched(stack: str, region: str) -> Iterator[dict[int, int]]:
    """ToS byte → RoCEv2 packets seen on the bridges of a region, filled in at the end of the context."""
    argv = netns.inside(names.router_netns(stack, region), ["python3", "-c", WATCH, str(ROCE_PORT)])
    found: dict[int, int] = {}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "watching\n"
        try:
            yield found
        finally:
            process.terminate()
            counts = json.loads(process.stdout.read())
            found |= {int(tos): count for tos, count in counts.items()}


def write(checkout: Checkout, writer: str, reader: str, device: str, address: str) -> float:
    """Write from one node to another through RDMA-CM, in packets of 4096 bytes; MiB/s on average.

    perftest reports no rate where it cannot tell how fast the processor counts, as in a virtual machine on a
    busy host, and waits for ever for an answer that was lost: then it is tried again.
    """
    words = f"ib_write_bw -R -d {device} -m 4096 -D {WRITE_S}"
    for _ in range(ATTEMPTS):
        listen = f"pkill ib_write_bw; setsid {words} >/tmp/ib_write_bw.log 2>&1 & sleep 2"
        checkout.ssh(reader, listen)
        done = checkout.ssh(writer, f"timeout {PATIENCE_S} {words} {address} 2>&1 || true")
        if row := RATE.search(done):
            return float(row[1])
    raise AssertionError(f"no rate in {ATTEMPTS} attempts:\n{done}")
