"""wireguard: what is in force on a tunnel's interface, beside the file that `wg-quick` made it from."""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, LIVE_LIMIT_S, Live, differing_lines, in_force
from infra.drift.looks import Look
from infra.drift.node import run, text_of, words_of

WG_UNIT = "wg-quick@"
WG_SECRETS = ("privatekey", "presharedkey")


def look_at_wireguard(node: Look, key: str, how: How) -> Found:
    """Keys, port, peers, the interface's address, MTU and state. An endpoint moves with its peer."""
    device = key[len(WG_UNIT) :].rpartition(".")[0]
    return in_force(node, lambda: differing_lines(tunnel_now(node, device), tunnel_kept(node, device)))


def tunnel_now(node: Look, device: str) -> list[str]:
    """An interface's settings as lines, out of `wg show` and the kernel."""
    rows = [line.split("\t") for line in run(["wg", "show", device, "dump"], LIVE_LIMIT_S).splitlines()]
    found = [f"privatekey {node.digest(rows[0][0].encode())}", f"listenport {rows[0][2]}"]
    for peer, shared, _endpoint, allowed, _seen, _in, _out, alive in rows[1:]:
        found.append(f"peer {peer}")
        found += [f"peer {peer} allowedips {network}" for network in allowed.split(",")]
        found += [f"peer {peer} persistentkeepalive {alive}"] * (alive != "off")
        found += [f"peer {peer} presharedkey {node.digest(shared.encode())}"] * (shared != "(none)")
    for line in run(["ip", "-o", "address", "show", "dev", device, "scope", "global"]).splitlines():
        found.append(f"address {line.split()[3]}")
    base = f"/sys/class/net/{device}/"
    found.append(f"mtu {words_of(base + 'mtu')}")
    return found + ["it is down"] * (not int(words_of(base + "flags"), 16) & 1)


def tunnel_kept(node: Look, device: str) -> list[str]:
    """The same out of its file."""
    found: list[str] = []
    peer = ""
    for line in text_of(f"/etc/wireguard/{device}.conf", "").splitlines():
        name, _, value = (word.strip() for word in line.partition("#")[0].partition("="))
        name = name.lower()
        if name == "publickey":
            peer = f"peer {value}"
            found.append(peer)
        elif name in WG_SECRETS:
            found.append(f"{peer} {name} {node.digest(value.encode())}".strip())
        elif name in ("listenport", "mtu", "allowedips", "persistentkeepalive", "address"):
            found += [f"{peer} {name} {part.strip()}".strip() for part in value.split(",")]
    return found


# On the controller

KINDS = (Live("wireguard", look_at_wireguard, LIVE_ASPECTS, **LIVE, unit=WG_UNIT),)
