"""How the controller reaches nodes: keys, jump hosts, known hosts, and an ssh_config for people and tools.

OpenSSH and asyncssh have to get in the same way, so what follows from a region's declaration stands here.

Every connection is checked against a host key that came over a trusted channel: read through podman for
local nodes, declared for existing ones.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
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
from infra.declaration import ExistingHost, ExistingProvider
from infra.declaration.region import Provider
from infra.files import given_file
from infra.ground.contract import Contract, JumpContract, RegionContract
from infra.stack import stack_dir

CONNECT_TIMEOUT_S = 10
PUBLIC_KEY = re.compile(r"[a-z][a-z0-9@.-]+ AAAA[A-Za-z0-9+/]+={0,3}")
AUTHORITY = "@cert-authority"
TO_ITS_END = ("ProxyCommand",)
"""Keywords whose value is the rest of the line: quotes would be its own."""
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
    """The known_hosts file for jump hosts and hosts whose public key is in `host_keys` (host name → key).

    A key is `ssh-ed25519 AAAA…`, or that of the authority that signed it (`signed_by`). One that is none is
    left out and its host named: one such line, and the file cannot be read at all.
    """
    jumps = (jump for region in contract.regions.values() for jump in region.ssh_jump)
    lines = [line for jump in jumps if (line := known_line(jump.address, jump.ssh_port, jump.host_key))]
    for name, host in contract.hosts.items():
        if line := known_line(str(host.address), host.ssh_port, host_keys.get(name) or ""):
            lines.append(line)
        elif name in host_keys:
            lines.append(f"# {name} has no host key")
    return "\n".join([*dict.fromkeys(lines), ""])


def signed_by(authority: str) -> str:
    """What stands for a host's key where an authority signed it."""
    return f"{AUTHORITY} {authority}"


def key_of_host(provider: Provider, host: ExistingHost) -> str:
    """What a machine is known by: its own key, or that of the authority."""
    authority = provider.ssh_host_ca if isinstance(provider, ExistingProvider) else None
    return host.host_key or signed_by(authority or "")


def known_line(address: str, port: int, key: str) -> str:
    """The line of known_hosts for one machine; empty where the key is none."""
    marker, rest = (f"{AUTHORITY} ", key.removeprefix(AUTHORITY)) if key.startswith(AUTHORITY) else ("", key)
    plain = " ".join(rest.split()[:2])
    where = address if port == 22 else f"[{address}]:{port}"
    return f"{marker}{where} {plain}" if PUBLIC_KEY.fullmatch(plain) else ""


def agent_socket() -> str | None:
    """Where the agent of whoever calls answers; None where there is none."""
    return os.environ.get("SSH_AUTH_SOCK") or None


def key_path(file: str) -> Path:
    """A region's private key on the controller."""
    return given_file(file, ROOT)


@dataclass(frozen=True)
class Way:
    """How a region's machines are reached: which keys are shown, and through which jump hosts."""

    key_file: str
    agent: bool
    jumps: tuple[JumpContract, ...]

    @classmethod
    def to(cls, region: RegionContract) -> "Way":
        """The way into a region of the contract."""
        return cls(region.ssh_private_key_file, region.ssh_agent, region.ssh_jump)

    def keys(self) -> dict[str, str]:
        """Keywords of ssh_config. OpenSSH takes a key's certificate, `KEY-cert.pub`, by itself."""
        if not self.key_file:
            return {"IdentitiesOnly": "no", "IdentityFile": "none"}
        return {"IdentitiesOnly": "yes", "IdentityFile": str(key_path(self.key_file))}

    def blocks(self, region: str) -> dict[str, dict[str, str]]:
        """The jump hosts for an ssh_config: each is reached through the one before."""
        return {
            jump_name(region, number): {
                "HostName": jump.address,
                "Port": str(jump.ssh_port),
                "User": jump.ssh_user,
                **self.keys(),
                **Way(self.key_file, self.agent, self.jumps[:number]).over(region),
            }
            for number, jump in enumerate(self.jumps)
        }

    def over(self, region: str) -> dict[str, str]:
        """What a machine behind them needs in an ssh_config that has their blocks."""
        return {"ProxyJump": jump_name(region, len(self.jumps) - 1)} if self.jumps else {}

    def command(self, stack: str, region: str) -> dict[str, str]:
        """The same for an ssh that reads another ssh_config, such as Ansible's."""
        if not self.jumps:
            return {}
        config, last = shlex.quote(str(ssh_config_file(stack))), jump_name(region, len(self.jumps) - 1)
        return {"ProxyCommand": f"ssh -F {config} -W [%h]:%p {last}"}


def jump_name(region: str, number: int) -> str:
    """What a jump host is called in the stack's ssh_config; no node can be called so."""
    return f"causeway_jump_{region}_{number}"


def to_hand_out(user: str, file: str) -> str:
    """What has to stand on a machine that lets nobody in with a key; empty where nobody knows."""
    if not file:
        return ""
    path = key_path(file)
    public = path.with_name(f"{path.name}.pub")
    try:
        line = public.read_text() if public.exists() else public_key(path.read_text()) or ""
    except (OSError, UnicodeDecodeError):
        return ""
    if not PUBLIC_KEY.match(line):
        return ""
    return f"hand this line out, to ~{user}/.ssh/authorized_keys there: {' '.join(line.split()[:3])}"


def ssh_config(contract: Contract) -> str:
    """The stack's ssh_config: one Host block per node, and what all of them share."""
    hosts = {
        name: {
            "HostName": str(host.address),
            "Port": str(host.ssh_port),
            **_of_region(contract, contract.region_of(name)),
        }
        for name, host in contract.hosts.items()
    }
    for name, region in contract.regions.items():
        hosts |= Way.to(region).blocks(name)
    known = str(ROOT / contract.known_hosts_file)
    return config_text(
        hosts, control_dir() / "causeway-%C", StrictHostKeyChecking="yes", UserKnownHostsFile=known
    )


def _of_region(contract: Contract, name: str) -> dict[str, str]:
    region, way = contract.regions[name], Way.to(contract.regions[name])
    return {"User": region.ssh_user, **way.keys(), **way.over(name)}


def config_text(hosts: Mapping[str, Mapping[str, str]], control_path: Path | None, **shared: str) -> str:
    """An ssh_config of hosts (name → keyword → value) that never asks; with a path, one connection each."""
    shared |= {
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        **ALIVE,
        "LogLevel": "ERROR",
    }
    if control_path is not None:
        shared |= {"ControlMaster": "auto", "ControlPath": str(control_path), "ControlPersist": "60s"}
    return "\n".join(_block(name, settings) for name, settings in {**hosts, "*": shared}.items())


def _block(name: str, settings: Mapping[str, str]) -> str:
    lines = (
        f'  {keyword} "{value}"' if " " in value and keyword not in TO_ITS_END else f"  {keyword} {value}"
        for keyword, value in settings.items()
    )
    return "\n".join([f"Host {name}", *lines, ""])
