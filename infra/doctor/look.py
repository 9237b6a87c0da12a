"""Runs on a machine that somebody has, as root: looks, and changes nothing.

Travels through ssh with `infra/drift/node.py` as one file. Python 3.8, standard library. Each topic is a
function of its own: one that fails or hangs is named, and the others are answered.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from infra.drift.node import bytes_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RECORD = "/var/lib/causeway/manifest.json"
BEGUN = "/var/lib/causeway/before/roles.json"
"""Written before a role first runs (playbooks/module_utils/causeway_prior.py)."""
COMMAND_LIMIT_S = 10
PROBE_LIMIT_S = 3
SOME_LINES = 64
SOME_ITEMS = 200
LINE_CHARS = 160
HEAD_BYTES = 400
LARGE_BYTES = 1 << 20
LISTENS, UNCONNECTED = "0A", "07"
LOOPBACK = bytes((127, 0, 0, 1))
MAPPED = bytes(10) + b"\xff\xff"
"""Before an IPv4 address, in an IPv6 one."""
HELD_UNIT = re.compile(r"([^/\n]+\.(?:service|socket|scope))\s*$", re.MULTILINE)
CLOUD = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg", "/var/lib/cloud/instance/cloud-config.txt")


def say(*argv: str) -> str:
    """What a command prints; empty where there is none. ValueError where it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired:
        raise ValueError(f"{argv[0]} has not answered within {COMMAND_LIMIT_S} s") from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise ValueError(f"{argv[0]} fails: {last[0]}")
    return done.stdout.decode("utf-8", "replace")


def system(request: dict[str, Any]) -> dict[str, Any]:
    """What it is."""
    text = text_of("/etc/os-release", "") or text_of("/usr/lib/os-release", "")
    known = {key: value.strip("\"'") for key, value in re.findall(r"(?m)^(\w+)=(.*)$", text)}
    return {
        "os_id": known.get("ID", ""),
        "os_like": known.get("ID_LIKE", ""),
        "os_codename": known.get("VERSION_CODENAME", ""),
        "os_name": known.get("PRETTY_NAME", ""),
        "python": ".".join(map(str, sys.version_info[:3])),
        "root": os.geteuid() == 0,
        "systemd": os.path.isdir("/run/systemd/system"),
        "hostname": socket.gethostname(),
        "zone": os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2],
        "selinux": {"1": "enforcing", "0": "permissive"}.get(
            text_of("/sys/fs/selinux/enforce", "").strip(), ""
        ),
    }


def room(request: dict[str, Any]) -> dict[str, Any]:
    """Memory, what is free on the disks, and whether anything can be written there."""
    found = re.search(r"MemTotal:\s*(\d+)", text_of("/proc/meminfo"))
    free, files, read_only = {}, {}, []
    for folder in request["disks"]:
        there = folder
        while not os.path.isdir(there):
            there = os.path.dirname(there)
        stat = os.statvfs(there)
        free[folder] = stat.f_bavail * stat.f_frsize >> 20
        if stat.f_files:  # not every file system has a number of them
            files[folder] = stat.f_favail
        if stat.f_flag & os.ST_RDONLY:
            read_only.append(folder)
    return {
        "memory_mib": int(found.group(1)) >> 10 if found else 0,
        "disk_mib": free,
        "disk_files": files,
        "read_only": read_only,
    }


def network(request: dict[str, Any]) -> dict[str, Any]:
    """Addresses, the default route, and who sets them up."""
    interfaces: dict[str, list[str]] = {}
    tunnels: list[str] = []
    for link in json.loads(say("ip", "-json", "-details", "address", "show") or "[]"):
        held = [
            f"{one['local']}/{one['prefixlen']}"
            for one in link.get("addr_info", [])
            if one.get("family") == "inet"
        ]
        if held and len(interfaces) < SOME_ITEMS:
            interfaces[link["ifname"]] = held
        if link.get("linkinfo", {}).get("info_kind") == "wireguard":
            tunnels.append(link["ifname"])
    with suppress(ValueError):  # one that a program carries is no link of that kind; a kernel may know none
        tunnels += say("wg", "show", "interfaces").split()
    routes = json.loads(say("ip", "-json", "-4", "route", "show", "default") or "[]")
    first = routes[0] if routes else {}
    by = ["netplan"] if glob.glob("/etc/netplan/*.yaml") else []
    by += [
        name
        for name, unit in (
            ("NetworkManager", "NetworkManager"),
            ("systemd-networkd", "systemd-networkd"),
            ("ifupdown", "networking"),
        )
        if unit + ".service" in running(request)
    ]
    return {
        "interfaces": interfaces,
        "wireguard": sorted(set(tunnels))[:SOME_ITEMS],
        "default_route": " ".join(str(first[key]) for key in ("gateway", "dev") if key in first),
        "network": " with ".join(by),
    }


def names(request: dict[str, Any]) -> dict[str, Any]:
    """Who writes /etc/resolv.conf, /etc/hosts and the host's name."""
    path = "/etc/resolv.conf"
    about = os.readlink(path) if os.path.islink(path) else text_of(path, "")[:2000]
    known = {
        "systemd/resolve": "systemd-resolved",
        "systemd-resolved": "systemd-resolved",
        "NetworkManager": "NetworkManager",
        "resolvconf": "resolvconf",
        "dhclient": "dhclient",
        "dhcpcd": "dhcpcd",
        "cloud-init": "cloud-init",
    }
    resolver = [who for sign, who in known.items() if sign in about]
    says: dict[str, str] = {}
    if os.path.exists("/etc/cloud/cloud.cfg") and not os.path.exists("/etc/cloud/cloud-init.disabled"):
        for pattern in CLOUD:
            for file in sorted(glob.glob(pattern)):
                says.update(
                    re.findall(r"(?m)^(manage_etc_hosts|preserve_hostname):\s*([\w-]+)", text_of(file, ""))
                )
        says.setdefault("preserve_hostname", "false")
    return {
        "resolver": resolver[0] if resolver else "",
        "keeps_hosts": says.get("manage_etc_hosts", "false").lower() not in ("false", "no", "off"),
        "keeps_name": says.get("preserve_hostname", "true").lower() in ("false", "no", "off"),
        "ufw": bool(re.search(r"(?m)^ENABLED=yes", text_of("/etc/ufw/ufw.conf", ""))),
    }


def running(request: dict[str, Any]) -> dict[str, dict[str, bool]]:
    """The units in question that are there and run; none where systemd does not answer."""
    try:
        return {name: unit for name, unit in units(request)["units"].items() if unit["active"]}
    except ValueError:
        return {}


def units(request: dict[str, Any]) -> dict[str, Any]:
    """The units in question that are there."""
    if "units" not in request["seen"]:
        wanted = ("Id", "LoadState", "ActiveState", "UnitFileState")
        found = {}
        said = say("systemctl", "show", "--property=" + ",".join(wanted), *request["units"])
        for block in said.split("\n\n"):
            unit = dict(line.partition("=")[::2] for line in block.strip().splitlines())
            if unit.get("LoadState") in ("loaded", "masked"):
                found[unit["Id"]] = {
                    "active": unit.get("ActiveState") in ("active", "activating", "reloading"),
                    "enabled": unit.get("UnitFileState", "").startswith("enabled"),
                    "ours": is_our_unit(request, unit["Id"]),
                }
        request["seen"]["units"] = found
    return {"units": request["seen"]["units"]}


def ours(request: dict[str, Any]) -> set[str]:
    """The keys of all that a converge of Causeway's has recorded here."""
    if "ours" not in request["seen"]:
        try:
            roles = json.loads(text_of(RECORD, "{}")).get("roles", {})
            found = {entry["key"] for part in roles.values() for entry in part["entries"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            found = set()
        request["seen"]["ours"] = found
    keys: set[str] = request["seen"]["ours"]
    return keys


def begun(request: dict[str, Any]) -> dict[str, Any]:
    """The roles that have begun here and not left; which services were asked for then: these are theirs."""
    found: set[str] = set()
    asked: dict[str, list[str]] = {}
    for path in (RECORD, BEGUN):
        try:
            known = json.loads(text_of(path, "{}"))
            found.update(known.get("roles", {}))
            found.difference_update(map(str, known.get("left", {})))
            asked.update({str(role): [*map(str, names)] for role, names in known.get("asked", {}).items()})
        except (ValueError, TypeError, AttributeError):
            continue
    return {"begun": sorted(found)[:SOME_ITEMS], "asked": asked}


def is_our_unit(request: dict[str, Any], unit: str) -> bool:
    """Whether a converge has recorded a unit, or a file of it or of its template."""
    name, at, ending = unit.partition("@")
    template = name + "@." + ending.rpartition(".")[2] if at else unit
    keys = tuple("/etc/systemd/system/" + each for each in (unit, template))
    return bool(unit) and (unit in ours(request) or any(key.startswith(keys) for key in ours(request)))


def files(request: dict[str, Any]) -> dict[str, Any]:
    """Whose the files are that roles would write, and what some of them say."""
    paths = [*request["files"], *request["texts"]]
    for pattern in request["folders"]:
        paths += sorted(glob.glob(pattern))[:SOME_ITEMS]
    found, lines = {}, {}
    for path in dict.fromkeys(paths):
        if os.path.lexists(path):
            found[path] = whose(request, path)
            if path in request["texts"] or found[path] == "theirs":
                lines[path] = telling(path)
    return {"files": found, "lines": {path: lines[path] for path in lines if path in request["texts"]}}


def whose(request: dict[str, Any], path: str) -> str:
    """`ours`, a package's, some run of Ansible's, or somebody's."""
    if path in ours(request):
        return "ours"
    if not os.path.isfile(path) or os.path.getsize(path) > LARGE_BYTES:
        return "theirs"
    data = bytes_of(path)
    head = data[:HEAD_BYTES].partition(b"\n\n")[0]
    if b"causeway" in head.lower():
        return "ours"
    if not data.strip() or brought(request, path) == md5(data):
        return "package"
    return "ansible" if b"Ansible managed" in head else "theirs"


def md5(data: bytes) -> str:
    """As packages list their files by it."""
    try:
        return hashlib.new("md5", data).hexdigest()  # noqa: S324 - dpkg's own
    except ValueError:
        return "none"


def brought(request: dict[str, Any], path: str) -> str:
    """The MD5 of a configuration file as its package brought it, by dpkg or ucf."""
    if "brought" not in request["seen"]:
        status = text_of("/var/lib/dpkg/status", "")
        ucf = re.findall(r"(?m)^([0-9a-f]{32})\s+(\S+)$", text_of("/var/lib/ucf/hashfile", ""))
        dpkg = re.findall(r"(?m)^ (/\S+) ([0-9a-f]{32})(?: .*)?$", status)
        request["seen"]["brought"] = dict(dpkg, **{name: digest for digest, name in ucf})
    return str(request["seen"]["brought"].get(path, ""))


def telling(path: str) -> list[str]:
    """The first lines of a file that say something."""
    if not os.path.isfile(path) or os.path.getsize(path) > LARGE_BYTES:
        return []
    lines = [line.partition("#")[0].split() for line in text_of(path, "").splitlines()]
    return [" ".join(words)[:LINE_CHARS] for words in lines if words][:SOME_LINES]


def ports(request: dict[str, Any]) -> dict[str, Any]:
    """Who listens at the ports in question."""
    wanted = {(protocol, port, near) for protocol, a, b, near in request["ports"] for port in range(a, b + 1)}
    taken: dict[tuple[str, int, bool], str] = {}
    for table, protocol in (("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")):
        for line in text_of("/proc/net/" + table, "").splitlines()[1:]:
            words = line.split()
            address, _, hexed = words[1].rpartition(":")
            port, loopback = int(hexed, 16), takes_loopback(address)
            listens = LISTENS if protocol == "tcp" else UNCONNECTED
            asked = (protocol, port, False) in wanted or (loopback and (protocol, port, True) in wanted)
            if words[3] == listens and asked:
                taken.setdefault((protocol, port, loopback), words[9])
    holders = holding(set(taken.values())) if taken else {}
    found = []
    for (protocol, port, loopback), inode in sorted(taken.items())[:SOME_ITEMS]:
        program, unit = holders.get(inode, ("", ""))
        found.append(
            {
                "protocol": protocol,
                "port": port,
                "loopback": loopback,
                "program": program,
                "unit": unit,
                "ours": is_our_unit(request, unit),
            }
        )
    return {"listening": found}


def takes_loopback(address: str) -> bool:
    """Whether a socket's address, as /proc has it, is 127.0.0.1 or stands for all."""
    parts = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    data = b"".join(parts)
    return not any(data) or data in (LOOPBACK, MAPPED + LOOPBACK)


def holding(inodes: set[str]) -> dict[str, tuple[str, str]]:
    """Inode of a socket → name and unit of a process that has it; the first process, which systemd may be."""
    found: dict[str, tuple[str, str]] = {}
    for pid in sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int, reverse=True):
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target.startswith("socket:[") and target[8:-1] in inodes - found.keys():
                    unit = HELD_UNIT.search(text_of(f"/proc/{pid}/cgroup", ""))
                    name = text_of(f"/proc/{pid}/comm", "").strip()
                    found[target[8:-1]] = (name, unit.group(1) if unit else "")
        except OSError:
            continue
    return found


def firewall(request: dict[str, Any]) -> dict[str, Any]:
    """What nftables has, by whatever command it came there."""
    tables = re.findall(r"(?m)^table (\w+ \S+)$", say("nft", "list", "tables"))
    chains = json.loads(say("nft", "-j", "list", "chains") or "{}").get("nftables", [])
    found = [one["chain"] for one in chains if "chain" in one]
    first = [one for one in found if one.get("hook") == "input"][:SOME_LINES]
    drops = [one for one in first if one.get("policy") == "drop" or any(map(shuts, rules_of(one)))]
    return {
        "tables": tables[:SOME_ITEMS],
        "firewall": [" ".join(one[key] for key in ("family", "table", "name")) for one in drops],
    }


def rules_of(chain: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The expressions of each rule of a chain."""
    said = say("nft", "-j", "list", "chain", chain["family"], chain["table"], chain["name"]) or "{}"
    return [one["rule"]["expr"] for one in json.loads(said).get("nftables", []) if "rule" in one]


def shuts(rule: list[dict[str, Any]]) -> bool:
    """Whether a rule asks nothing and lets nothing in: so end many lists of iptables that have no policy."""
    ends = False
    for each in rule:
        for name, value in each.items():
            other = value or {} if name == "xt" else {}
            if name in ("drop", "reject") or other.get("name") in ("DROP", "REJECT"):
                ends = True
            elif name not in ("counter", "log") and other.get("name") != "comment":
                return False
    return ends


def programs(request: dict[str, Any]) -> dict[str, Any]:
    """What roles' own looks find in their way."""
    found = {}
    for role, (source, argument) in sorted(request["programs"].items()):
        said = say(sys.executable, "-IBc", source, argument)
        found[role] = [str(text)[: 4 * LINE_CHARS] for text in json.loads(said)["obstacles"]][:SOME_LINES]
    return {"obstacles": found}


def sites(request: dict[str, Any]) -> dict[str, Any]:
    """Numbers of those ports elsewhere from which nothing comes back: neither a connection nor a refusal."""
    waiting, closed, number_of = select.poll(), set(), {}
    open_ones = []
    for number, (address, port) in enumerate(request["sites"]):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.setblocking(False)
        open_ones.append(one)
        try:
            status = one.connect_ex((address, port))
        except OSError:  # a name that nobody knows
            status = errno.EHOSTUNREACH
        if status == errno.EINPROGRESS:
            waiting.register(one, select.POLLOUT)
            number_of[one.fileno()] = (number, one)
            closed.add(number)
        elif status not in (0, errno.ECONNREFUSED):
            closed.add(number)
    until = time.monotonic() + PROBE_LIMIT_S
    while number_of and (left_s := until - time.monotonic()) > 0:
        for handle, _event in waiting.poll(left_s * 1000):
            waiting.unregister(handle)
            number, one = number_of.pop(handle)
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                closed.discard(number)
    for one in open_ones:
        one.close()
    return {"closed": sorted(closed)}


TOPICS = {
    "system": system,
    "room": room,
    "begun": begun,
    "units": units,
    "network": network,
    "names": names,
    "files": files,
    "ports": ports,
    "firewall": firewall,
    "roles": programs,
    "sites": sites,
}


def answer_to(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """All topics; one at which it hangs ends the looking, and is named."""
    request["seen"] = {}
    found: dict[str, Any] = {"unseen": {}}
    done, now = threading.Event(), [""]

    def all_topics() -> None:
        for name, look in TOPICS.items():
            now[0] = name
            try:
                found.update(look(request))
            except Exception as error:  # whatever one topic meets, the others are looked at
                found["unseen"][name] = f"{type(error).__name__}: {error}"
        done.set()

    threading.Thread(target=all_topics, daemon=True).start()
    if not done.wait(timeout=limit_s):
        found["unseen"][now[0]] = "it hangs"
    return dict(found, clock_s=time.time())


def serve(request: dict[str, Any], limit_s: float) -> None:
    """Answer one request on standard output, and end even when a look that hangs does not."""
    data = json.dumps(answer_to(request, limit_s)).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)
