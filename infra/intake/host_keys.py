"""Host keys of machines, asked of the machines themselves: whoever answers at the address has said them."""

import base64
import hashlib
import subprocess
from collections.abc import Iterable, Sequence

from infra.errors import CausewayError
from infra.ground.rules.machines import holds_type
from infra.intake.machine import Row

KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
"""The first that a machine has is taken."""
ANSWER_LIMIT_S = 5
AT_ONCE = 256
"""Addresses for one ssh-keyscan, which asks all of them at the same time."""
SCAN_LIMIT_S = 60 + 2 * ANSWER_LIMIT_S
SSHS_PORT = "22"
MEANING = """These keys came over the network, from whoever answered at these addresses. From now on only
who has such a key is taken for the machine: if somebody else answered just now, it is he. Compare
a fingerprint with what the machine itself says on its console:
  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"""


def asked(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """(address, port) → `type base64` of the machines that answered; the others are missing."""
    by_port: dict[str, list[str]] = {}
    for row in rows:
        by_port.setdefault(row.get("ssh_port") or SSHS_PORT, []).append(row.get("address"))
    return {
        (address, port): key
        for port, addresses in by_port.items()
        for start in range(0, len(addresses), AT_ONCE)
        for address, key in _scan(port, addresses[start : start + AT_ONCE]).items()
    }


def _scan(port: str, addresses: list[str]) -> dict[str, str]:
    command = ["ssh-keyscan", "-T", str(ANSWER_LIMIT_S), "-t", "ed25519,ecdsa,rsa", "-p", port, "-f", "-"]
    try:
        done = subprocess.run(
            command,
            input="\n".join([*addresses, ""]),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SCAN_LIMIT_S,
        )
    except FileNotFoundError:
        raise CausewayError("ssh-keyscan is not installed", hint="install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise CausewayError(f"ssh-keyscan did not end within {SCAN_LIMIT_S} s") from None
    return answers(done.stdout.splitlines(), port)


def answers(lines: Iterable[str], port: str) -> dict[str, str]:
    """Address → its best key, of what ssh-keyscan prints: `address type base64`, or `[address]:port …`."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        parts = line.split()
        if len(parts) == 3 and parts[1] in KINDS and holds_type(parts[2], parts[1]):
            address = parts[0].removeprefix("[").removesuffix(f"]:{port}")
            found.setdefault(address, {}).setdefault(parts[1], f"{parts[1]} {parts[2]}")
    return {address: next(keys[kind] for kind in KINDS if kind in keys) for address, keys in found.items()}


def fingerprint(key: str) -> str:
    """`SHA256:…`, as ssh-keygen -l shows it."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
