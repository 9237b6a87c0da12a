"""Whether this node's monitor has a voice, as a metric; asked at its own socket.

    quorum.py STORAGE SOCKET FILE

Without a majority the managers go on to say what was true before, so each monitor is asked for itself.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path

VOICE = "causeway_ceph_monitor_in_quorum"
ASKED = "causeway_ceph_monitor_asked_timestamp_seconds"
PATIENCE_S = 10
IN_QUORUM = {"leader", "peon"}


def status(path: str) -> dict[str, object]:
    """What a daemon says at its socket: four bytes with a length, then JSON.

    As Ceph's src/common/admin_socket.cc has it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(PATIENCE_S)
        asked.connect(path)
        asked.sendall(b'{"prefix": "mon_status", "format": "json"}\0')
        with asked.makefile("rb") as said:
            (length,) = struct.unpack(">I", said.read(4))
            found: dict[str, object] = json.loads(said.read(length))
            return found


def has_voice(path: str) -> bool:
    """Whether a monitor is one of a majority; one that does not answer is not."""
    try:
        return status(path).get("state") in IN_QUORUM
    except (OSError, ValueError, struct.error):
        return False


def metrics(storage: str, voice: bool, now: float) -> str:
    """In Prometheus' text format."""
    return (
        f"# HELP {VOICE} Whether this node's monitor is one of a majority.\n# TYPE {VOICE} gauge\n"
        f'{VOICE}{{storage="{storage}"}} {int(voice)}\n'
        f"# HELP {ASKED} When it was asked.\n# TYPE {ASKED} gauge\n"
        f'{ASKED}{{storage="{storage}"}} {int(now)}\n'
    )


def main(storage: str, path: str, file: str) -> None:
    """Ask, and leave the answer: whole or not at all."""
    target = Path(file)
    part = target.with_name(f".{target.name}.part")
    part.write_text(metrics(storage, has_voice(path), time.time()))
    part.chmod(0o644)
    part.replace(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
