"""How the controller reaches nodes: the key, the known hosts, and an ssh_config for people and tools.

Every connection is checked against a host key that came over a trusted channel: read through podman for
local nodes, declared for existing ones.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from infra import ROOT
from infra.ground.contract import Contract
from infra.stack import stack_dir

CONNECT_TIMEOUT_S = 10
PUBLIC_KEY = re.compile(r"[a-z][a-z0-9@.-]+ AAAA[A-Za-z0-9+/]+={0,3}")
ALIVE = {"ServerAliveInterval": "5", "ServerAliveCountMax": "3"}
"""By these OpenSSH leaves a machine that has gone silent; where sshd still answers, only a deadline helps."""


def ssh_config_file(stack: str) -> Path:
    """The stack's ssh_config: `ssh -F FILE tokyo-gpu-0` works by hand."""
    return ROOT / stack_dir(stack) / "ssh" / "config"


def control_dir() -> Path:
    """Where connections that several commands share have their sockets; their paths must stay short."""
    return Path.home() / ".ssh"


def new_key() -> str:
    """A new ed25519 key as OpenSSH writes it."""
    plain = (Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return Ed25519PrivateKey.generate().private_bytes(*plain).decode()


def public_key(private: str) -> str | None:
    """`ssh-ed25519 AAAA…` of a private key; None where the text is no key that opens without a question."""
    try:
        key = load_ssh_private_key(private.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def known_hosts(contract: Contract, host_keys: Mapping[str, str]) -> str:
    """The known_hosts file for hosts whose public key is in `host_keys` (host name → `ssh-ed25519 AAAA…`).

    A key that is none is left out and its host named: one such line, and the file cannot be read at all.
    """
    lines = []
    for name, host in contract.hosts.items():
        key = " ".join((host_keys.get(name) or "").split()[:2])
        if PUBLIC_KEY.fullmatch(key):
            where = str(host.address) if host.ssh_port == 22 else f"[{host.address}]:{host.ssh_port}"
            lines.append(f"{where} {key}")
        elif name in host_keys:
            lines.append(f"# {name} has no host key")
    return "\n".join([*lines, ""])


def ssh_config(contract: Contract) -> str:
    """The stack's ssh_config: one Host block per node, and what all of them share."""
    hosts = {
        name: {
            "HostName": str(host.address),
            "Port": str(host.ssh_port),
            "User": contract.regions[contract.region_of(name)].ssh_user,
            "IdentityFile": str(ROOT / contract.regions[contract.region_of(name)].ssh_private_key_file),
        }
        for name, host in contract.hosts.items()
    }
    known = str(ROOT / contract.known_hosts_file)
    return config_text(
        hosts, control_dir() / "causeway-%C", StrictHostKeyChecking="yes", UserKnownHostsFile=known
    )


def config_text(hosts: Mapping[str, Mapping[str, str]], control_path: Path, **shared: str) -> str:
    """An ssh_config of hosts (name → keyword → value): one shared connection each, and never a question."""
    shared |= {
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        **ALIVE,
        "LogLevel": "ERROR",
        "ControlMaster": "auto",
        "ControlPath": str(control_path),
        "ControlPersist": "60s",
    }
    return "\n".join(_block(name, settings) for name, settings in {**hosts, "*": shared}.items())


def _block(name: str, settings: Mapping[str, str]) -> str:
    lines = (
        f'  {keyword} "{value}"' if " " in value else f"  {keyword} {value}"
        for keyword, value in settings.items()
    )
    return "\n".join([f"Host {name}", *lines, ""])
