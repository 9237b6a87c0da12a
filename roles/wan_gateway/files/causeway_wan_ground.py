#!/usr/bin/python3
"""What of a gateway's machine is not the role's and would be in its way; changes nothing.

    causeway_wan_ground.py WANTED

WANTED is JSON: {"links": [as in /etc/causeway-wan-gateway.json], "shares": whether keepalived is needed}.
Prints JSON: {"obstacles": [sentences], "gone": {"tunnels": [devices of links that are no more],
"shared": whether keepalived's configuration is a leftover}}. Python 3.8, standard library only.

A file is the role's if its first line says so, or if it follows from the role's own list of links: so a file
of ours that somebody has rewritten is put right again, and one that never was ours is not touched.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path("/")
MARK = "(Causeway: wan_gateway)"
EARLIER_MARK = "Ansible managed"
"""What the role wrote before there was a mark; others' files say so too, hence not enough by itself."""
LIST = "etc/causeway-wan-gateway.json"
KEEPALIVED = "etc/keepalived/keepalived.conf"
FRR, DAEMONS = "etc/frr/frr.conf", "etc/frr/daemons"
BGP_PORT = 179
TABLE = "ip causeway_wan"
HANDLE = "1:"
"""Of the queueing that the role itself puts on links."""
IDLE = re.compile(
    r"\s*($|[!#]|(log|hostname|frr (version|defaults)|service integrated-vtysh-config|line vty|end|exit)\b)"
)
"""Lines of FRR's that a package brings, or that say nothing of routing."""
IDLE_DAEMONS = {"zebra", "staticd", "mgmtd"}


def say(*argv: str) -> str:
    """What a command says; nothing where it fails or is not there."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def text(name: str) -> str | None:
    """A file's text; None where there is no such file."""
    try:
        return (ROOT / name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def is_marked(name: str, *, here_before: bool) -> bool:
    """Whether a file says in its first line that the role made it."""
    line = (text(name) or "").partition("\n")[0]
    return MARK in line or (here_before and EARLIER_MARK in line)


def tunnel_file(device: str) -> str:
    """Where wg-quick looks for a tunnel."""
    return f"etc/wireguard/{device}.conf"


def devices(links: list[dict[str, Any]]) -> list[str]:
    """The tunnels of some links."""
    return [link["tunnel"]["device"] for link in links if "tunnel" in link]


class Ground:
    """The machine as it is, and what the role did there before."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.links: list[dict[str, Any]] = wanted["links"]
        self.shares: bool = wanted["shares"]
        self.known: list[dict[str, Any]] | None = None
        self.earlier = False
        """Whether the role was last here before it had a mark: its list did not say yet what it shares."""
        self.made: set[str] = set()
        try:
            before = json.loads(text(LIST) or "")
            self.known = before["links"]
        except (ValueError, KeyError, TypeError):
            return
        self.earlier = "shares" not in before
        self.made = {FRR, DAEMONS, *map(tunnel_file, devices(before["links"]))}
        self.made |= {KEEPALIVED} if before.get("shares") else set()

    def is_ours(self, name: str) -> bool:
        """Whether the role has made a file."""
        return name in self.made or is_marked(name, here_before=self.earlier)

    def gone(self) -> dict[str, Any]:
        """What the role has made and does not want any more; not what somebody has put in its place."""
        old = [device for device in devices(self.known or []) if device not in devices(self.links)]
        ours = [device for device in old if is_marked(tunnel_file(device), here_before=self.earlier)]
        shared = not self.shares and is_marked(KEEPALIVED, here_before=self.earlier)
        return {"tunnels": ours, "shared": shared}

    def obstacles(self) -> Iterator[str]:
        """What somebody else has made and the role would have to replace."""
        yield from self.tunnels()
        if self.shares and text(KEEPALIVED) is not None and not self.is_ours(KEEPALIVED):
            yield f"/{KEEPALIVED} is somebody else's, and gateways that share an address need it"
        if not self.is_ours(FRR):
            yield from self.routing()
        yield from self.queues()

    def tunnels(self) -> Iterator[str]:
        """Files, interfaces and ports that tunnels of ours would need."""
        for link in self.links:
            device, port = link.get("tunnel", {}).get("device"), link.get("tunnel", {}).get("port")
            if device is None or self.is_ours(tunnel_file(device)):
                continue
            needed = f"the link {link['name']} needs"
            if text(tunnel_file(device)) is not None:
                yield f"/{tunnel_file(device)} is somebody else's, and {needed} that name"
            elif say("ip", "-json", "link", "show", "dev", device):
                yield f"there is an interface {device} already, and {needed} that name"
            if say("ss", "-Hlun", f"sport = :{port}"):
                yield f"UDP port {port} is in use, and {needed} it"

    def routing(self) -> Iterator[str]:
        """Routing of somebody else's: FRR's, or another program's that speaks BGP."""
        found = list(self.frr())
        yield from found
        if not found and say("ss", "-Hltn", f"sport = :{BGP_PORT}"):
            yield f"another program than FRR speaks BGP here (TCP port {BGP_PORT} is in use)"
        if say("nft", "list", "table", *TABLE.split()):
            yield f"there is an nftables table {TABLE} already"

    def frr(self) -> Iterator[str]:
        """FRR's files that say more than a package brings."""
        for path in sorted((ROOT / FRR).parent.glob("*.conf")):
            name = str(path.relative_to(ROOT))
            telling = [line for line in (text(name) or "").splitlines() if not IDLE.match(line)]
            if telling and path.name != "vtysh.conf":
                yield f"/{name} is somebody else's ({telling[0].strip()} …)"
        on = re.findall(r"(?m)^(\w+d|zebra)=[\"']?yes", text(DAEMONS) or "")
        if not self.is_ours(DAEMONS) and set(on) - IDLE_DAEMONS:
            yield f"/{DAEMONS} has somebody run {', '.join(sorted(set(on) - IDLE_DAEMONS))}"

    def queues(self) -> Iterator[str]:
        """Interfaces of links on which somebody else has put queueing."""
        known = {link["address"] for link in self.known or []}
        for link in self.links:
            if "tunnel" in link or link["address"] in known or (self.known is None and self.is_ours(FRR)):
                continue
            found = say("ip", "-json", "-4", "address", "show", "to", link["address"].partition("/")[0])
            for device in [entry["ifname"] for entry in json.loads(found or "[]") if entry.get("ifname")]:
                for kind in self.queueing(device):
                    yield f"{device}, of the link {link['name']}, has a queueing discipline ({kind})"

    def queueing(self, device: str) -> list[str]:
        """What is on an interface and neither the kernel's, which has no handle, nor the role's."""
        others = {"0:"} if self.known is None else {"0:", HANDLE}
        queues = json.loads(say("tc", "-json", "qdisc", "show", "dev", device) or "[]")
        return [queue["kind"] for queue in queues if queue.get("root") and queue.get("handle") not in others]


def main(wanted: str) -> None:
    """Print what was found."""
    ground = Ground(json.loads(wanted))
    print(json.dumps({"obstacles": list(ground.obstacles()), "gone": ground.gone()}))


if __name__ == "__main__":
    main(sys.argv[1])
