"""How the controller reaches nodes: the key, the known hosts, and an ssh_config for people and tools.

Every connection is checked against a host key that came over a trusted channel: read through podman for
local nodes, declared for existing ones.
"""

from collections.abc import Mapping
from pathlib import Path

from infra import ROOT
from infra.handoff.contract import Contract, stack_dir
from infra.process import run

CONNECT_TIMEOUT_S = 10


def ssh_config_file(stack: str) -> Path:
    """The stack's ssh_config: `ssh -F FILE tokyo-gpu-0` works by hand."""
    return ROOT / stack_dir(stack) / "ssh" / "config"


def control_dir() -> Path:
    """Where connections that several commands share have their sockets; their paths must stay short."""
    return Path.home() / ".ssh"


def generate_key(path: Path, comment: str) -> None:
    """A new ed25519 key pair at `path` and `path`.pub, unless one is there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        run(command, hint="install openssh-client")


def known_hosts(contract: Contract, host_keys: Mapping[str, str]) -> str:
    """The known_hosts file for hosts whose public key is in `host_keys` (host name → `ssh-ed25519 AAAA…`)."""
    lines = []
    for name, host in contract.hosts.items():
        if name in host_keys:
            where = str(host.address) if host.ssh_port == 22 else f"[{host.address}]:{host.ssh_port}"
            lines.append(f"{where} {host_keys[name]}")
    return "\n".join([*lines, ""])


def ssh_config(contract: Contract) -> str:
    """One Host block per node, and what all of them share."""
    blocks = [
        "\n".join(
            [
                f"Host {name}",
                f"  HostName {host.address}",
                f"  Port {host.ssh_port}",
                f"  User {contract.regions[contract.region_of(name)].ssh_user}",
                f"  IdentityFile {ROOT / contract.regions[contract.region_of(name)].ssh_private_key_file}",
            ]
        )
        for name, host in contract.hosts.items()
    ]
    shared = "\n".join(
        [
            "Host *",
            "  IdentitiesOnly yes",
            "  BatchMode yes",
            "  StrictHostKeyChecking yes",
            f"  UserKnownHostsFile {ROOT / contract.known_hosts_file}",
            f"  ConnectTimeout {CONNECT_TIMEOUT_S}",
            "  ServerAliveInterval 5",
            "  ServerAliveCountMax 3",
            "  ControlMaster auto",
            f"  ControlPath {control_dir()}/causeway-%C",
            "  ControlPersist 60s",
        ]
    )
    return "\n\n".join([*blocks, shared, ""])
