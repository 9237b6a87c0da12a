#!/usr/bin/python3
"""RoCEv2 settings of a node's fabric interfaces: look, compare, set; and a keeper that puts them back.

The one implementation. The role's module imports it, and the node runs it:

    causeway-roce check             one line per interface and setting: what the device really has
    causeway-roce keep INTERFACE    applies, and again whenever the interface or its RDMA device changes
    causeway-roce restore           gives back what stood before a setting was first changed

Standard library only. Nothing is set that is already so, nothing is taken down, and an interface that
carries SSH or the default route is never touched. What a device cannot do is named with its tool's words.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG_FILE = Path("/etc/causeway/roce.json")
REFUSALS = Path("/run/causeway-roce")
"""What a device refused when it was last tried, a file per interface: checking cannot know without trying."""
BEFORE = Path("/var/lib/causeway/roce")
"""What stood before settings were first changed, a file per interface: {"own": its part of the settings,
"before": {setting: value}}."""
STAYS = 3
"""Exit status of `restore` where something cannot be given back: it is named, and the role leaves."""
SYS_NET = Path("/sys/class/net")
CONFIGFS_RDMA = Path("/sys/kernel/config/rdma_cm")
DEBUGFS_MLX5 = Path("/sys/kernel/debug/mlx5")
PRIORITIES = 8
ECT_0 = 2
"""The ECN bits of a packet that may be marked."""

NETLINK_KOBJECT_UEVENT = 15
RTMGRP_LINK, RTMGRP_IPV4_IFADDR = 0x1, 0x10
SETTLE_MS = 500
"""A link reset comes as a burst of events: wait for its end before looking."""

Config = dict[str, Any]
"""What the role writes to CONFIG_FILE. One of its `interfaces`: {"name": "rail0", "address": "100.64.0.2/24",
"gateway": "100.64.0.1", "network": "100.64.0.0/20"}; all but the name may be missing."""


class RefusedError(Exception):
    """The kernel or the device does not take this; the text says it in the words of whoever refused."""


@dataclass(frozen=True)
class Setting:
    """One setting of one interface. `read` and `write` raise RefusedError where the device has none of it.

    `write` takes a value of `read`: the wanted one, or what was there before.
    """

    name: str
    wanted: Any
    read: Callable[[], Any]
    write: Callable[[Any], object]
    needed: bool = False
    """Every Ethernet interface can have it: a refusal is a failure, not a lack."""


@dataclass(frozen=True)
class State:
    """How a setting stands: effective, unsupported, differs, failed, restored.

    Of an interface as a whole: missing, refused.
    """

    interface: str
    setting: str
    state: str
    reason: str = ""
    changed: bool = False

    def __str__(self) -> str:
        return f"{self.interface} {self.setting} {self.state}" + (f": {self.reason}" if self.reason else "")


def run(*command: str) -> str:
    """A command's output; RefusedError with what it said when it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RefusedError(f"{command[0]} is not installed") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"exits {done.returncode}"
        raise RefusedError(f"{command[0]}: {said.removeprefix(command[0] + ': ')}")
    return done.stdout


def ask(*command: str) -> Any:
    """A command's JSON; iproute2 and ethtool wrap a single answer in a list, dcb does not."""
    found = json.loads(run(*command) or "[]")
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def read_file(path: Path) -> str:
    """A file's text, stripped. RefusedError where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}") from error


def write_file(path: Path, value: object) -> None:
    """Write a value to a file of the kernel. RefusedError where it is not taken."""
    try:
        path.write_text(str(value))
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}") from error


# Priorities, by the IEEE interface of the driver (iproute2's dcb) or by NVIDIA's own tool


class Dcb:
    """Trust, DSCP map, PFC and ETS by iproute2's dcb: any driver with DCB."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dcb(self, table: str, verb: str, *words: str) -> str:
        """Run `dcb TABLE VERB dev NAME …`."""
        return run("dcb", "-j", table, verb, "dev", self.name, *words)

    def pfc(self) -> list[int]:
        """Priority → 1 where it is lossless."""
        return [int(bool(on)) for on in json.loads(self.dcb("pfc", "show", "prio-pfc"))["prio_pfc"]]

    def set_pfc(self, wanted: list[int]) -> None:
        """Make the priorities that are 1 lossless, and no other."""
        words = [f"{priority}:{'on' if on else 'off'}" for priority, on in enumerate(wanted)]
        self.dcb("pfc", "set", "prio-pfc", *words)

    def dscp(self) -> dict[int, list[int]]:
        """DSCP → the priorities it is mapped to; more than one where entries contradict each other."""
        found: dict[int, list[int]] = {}
        for code, priority in json.loads(self.dcb("app", "show", "dscp-prio") or "{}").get("dscp_prio", []):
            found.setdefault(code, []).append(priority)
        return found

    def set_dscp(self, wanted: dict[int, list[int]]) -> None:
        """Map each DSCP to its priority, and to no other; to several where it was so before."""
        self.dcb("app", "replace", "dscp-prio", *(f"{code}:{one[0]}" for code, one in wanted.items()))
        if more := [f"{code}:{priority}" for code, one in wanted.items() for priority in one[1:]]:
            self.dcb("app", "add", "dscp-prio", *more)

    def unset_dscp(self, codes: list[int]) -> None:
        """Map these to nothing."""
        entries = [f"{code}:{one}" for code, found in self.dscp().items() if code in codes for one in found]
        if entries:
            self.dcb("app", "del", "dscp-prio", *entries)

    def trust(self) -> str:
        """What the priority of a packet is taken from first: dscp, pcp, …

        Drivers without a trust order of their own (mlx5, bnxt, ice) trust DSCP as soon as the map has an
        entry, and their priority bits otherwise (mlx5e_dcbnl_ieee_setapp in Linux).
        """
        try:
            order = json.loads(self.dcb("apptrust", "show", "order"))["order"]
        except RefusedError:
            return "dscp" if self.dscp() else "pcp"
        return str((order or ["none"])[0])

    def set_trust(self, wanted: str) -> None:
        """Take the priority from `wanted` and nothing else."""
        self.dcb("apptrust", "set", "order", wanted)

    def ets(self) -> dict[str, list[Any]]:
        """prio_tc: priority → traffic class; tc_tsa, tc_bw: traffic class → scheduler, share in percent."""
        found = json.loads(self.dcb("ets", "show"))
        return {table: found[table] for table in ("prio_tc", "tc_tsa", "tc_bw")}

    def set_ets(self, wanted: dict[str, list[Any]]) -> None:
        """Set the three tables in one go: their sums are checked together."""
        words = []
        for table, values in wanted.items():
            words += [table.replace("_", "-"), *(f"{index}:{value}" for index, value in enumerate(values))]
        self.dcb("ets", "set", *words)


class MlnxQos(Dcb):
    """Trust, DSCP map and PFC by mlnx_qos (MLNX_OFED, DOCA), which knows its driver best; ETS as others."""

    def qos(self, *words: str) -> str:
        """Run `mlnx_qos -i NAME …`."""
        return run("mlnx_qos", "-i", self.name, *words)

    def find(self, pattern: str) -> str:
        """The first group of a pattern in what mlnx_qos shows; RefusedError where it shows no such thing."""
        found = re.search(pattern, self.qos(), re.MULTILINE)
        if not found:
            raise RefusedError(f"mlnx_qos shows nothing like {pattern!r}")
        return found[1]

    def pfc(self) -> list[int]:
        """See Dcb."""
        return [int(word) for word in self.find(r"^\s*enabled\s+([01 \t]+)$").split()]

    def set_pfc(self, wanted: list[int]) -> None:
        """See Dcb."""
        self.qos("--pfc", ",".join(map(str, wanted)))

    def dscp(self) -> dict[int, list[int]]:
        """See Dcb."""
        found: dict[int, list[int]] = {}
        for priority, codes in re.findall(r"prio:(\d) dscp:([\d,]+)", self.qos()):
            for code in codes.strip(",").split(","):
                found.setdefault(int(code), []).append(int(priority))
        return found

    def set_dscp(self, wanted: dict[int, list[int]]) -> None:
        """See Dcb."""
        for code, one in wanted.items():
            self.qos("--dscp2prio", f"set,{code},{one[0]}")

    def unset_dscp(self, codes: list[int]) -> None:
        """See Dcb."""
        for code, found in self.dscp().items():
            for one in found if code in codes else ():
                self.qos("--dscp2prio", f"del,{code},{one}")

    def trust(self) -> str:
        """See Dcb."""
        return self.find(r"^Priority trust state: (\w+)")

    def set_trust(self, wanted: str) -> None:
        """See Dcb."""
        self.qos("--trust", wanted)


def driver(name: str) -> str:
    """The interface's driver; empty for one without a device, like a veth."""
    link = SYS_NET / name / "device" / "driver"
    return link.resolve().name if link.exists() else ""


def priorities_of(name: str) -> Dcb:
    """The way to the priorities that this interface has on this node."""
    if driver(name).startswith("mlx"):
        try:
            run("mlnx_qos", "--help")
        except RefusedError:
            return Dcb(name)
        return MlnxQos(name)
    return Dcb(name)


def ets_tables(config: Config) -> dict[str, list[Any]]:
    """RDMA data and the rest share the line by weight, a class each; CNPs go strictly before both."""
    data, cnp, share = config["priority"], config["cnp_priority"], config["bandwidth_pct"]
    classes = [priority if priority in (data, cnp) else 0 for priority in range(PRIORITIES)]
    weights = {0: 100 - share}
    weights[data] = weights.get(data, 0) + share
    return {
        "prio_tc": classes,
        "tc_tsa": ["ets" if index in weights else "strict" for index in range(PRIORITIES)],
        "tc_bw": [weights.get(index, 0) for index in range(PRIORITIES)],
    }


def priority_settings(name: str, config: Config) -> Iterator[Setting]:
    """DSCP map, trust, PFC, ETS. The map comes before trust, which may follow from it."""
    way = priorities_of(name)
    codes = {config["dscp"]: [config["priority"]], config["cnp_dscp"]: [config["cnp_priority"]]}
    lossless = [int(priority == config["priority"]) for priority in range(PRIORITIES)]
    tables = ets_tables(config)

    def mapped() -> dict[int, list[int]]:
        return {code: one for code, one in way.dscp().items() if code in codes}

    def map_codes(wanted: dict[Any, list[int]]) -> None:
        there = {int(code): one for code, one in wanted.items()}
        if gone := codes.keys() - there.keys():
            way.unset_dscp(sorted(gone))
        if there:
            way.set_dscp(there)

    yield Setting("dscp", codes, mapped, map_codes)
    yield Setting("trust", "dscp", way.trust, way.set_trust)
    yield Setting("pfc", lossless, way.pfc, way.set_pfc)
    yield Setting("ets", tables, way.ets, way.set_ets)


# The link


def link_settings(name: str, config: Config) -> Iterator[Setting]:
    """MTU, state and global pause."""
    base, mtu = SYS_NET / name, config["mtu_bytes"]

    def pause() -> dict[str, bool]:
        found = ask("ethtool", "--json", "--show-pause", name)
        return {way: bool(found[way]) for way in ("rx", "tx")}

    yield Setting(
        "mtu",
        mtu,
        lambda: int(read_file(base / "mtu")),
        lambda bytes_: run("ip", "link", "set", "dev", name, "mtu", str(bytes_)),
        needed=True,
    )
    yield Setting(
        "up",
        True,
        lambda: bool(int(read_file(base / "flags"), 16) & 1),
        lambda up: run("ip", "link", "set", "dev", name, "up" if up else "down"),
        needed=True,
    )

    def set_pause(wanted: dict[str, bool]) -> None:
        words = [word for way, on in wanted.items() for word in (way, "on" if on else "off")]
        run("ethtool", "--pause", name, *words)

    yield Setting("pause", {"rx": False, "tx": False}, pause, set_pause)


def address_settings(name: str, config: Config) -> Iterator[Setting]:
    """The address, and the way to the rest of the rail: a link that goes down takes both along."""
    own = own_part(name, config)
    address, gateway, network = (own.get(key) for key in ("address", "gateway", "network"))

    def addresses() -> bool:
        found = ask("ip", "-json", "-4", "address", "show", "dev", name) or {}
        return address in [f"{one['local']}/{one['prefixlen']}" for one in found.get("addr_info", [])]

    def gateways() -> list[str]:
        routes = json.loads(run("ip", "-json", "-4", "route", "show", str(network), "dev", name) or "[]")
        return [route.get("gateway", "") for route in routes]

    def set_address(there: bool) -> None:
        run("ip", "address", "replace" if there else "del", str(address), "dev", name)

    def set_gateways(wanted: list[str]) -> None:
        way = ["via", wanted[0]] if wanted and wanted[0] else []
        run("ip", "route", "replace" if wanted else "del", str(network), *way, "dev", name)

    if address:
        yield Setting("address", True, addresses, set_address, needed=True)
    if gateway and network:
        yield Setting("route", [gateway], gateways, set_gateways, needed=True)


# The RDMA device on it


def rdma_port(name: str) -> tuple[str, str]:
    """The RDMA device of an interface and its port. RefusedError where there is none."""
    links = json.loads(run("rdma", "-j", "link", "show") or "[]")
    for link in links:
        if link.get("netdev") == name:
            return str(link["ifname"]), str(link["port"])
    raise RefusedError(f"no RDMA device on {name}")


def rdma_ports(names: list[str]) -> dict[str, str]:
    """Interface → its RDMA device and port, as NCCL writes them (`mlx5_0:1`), of those that have one."""
    try:
        links = json.loads(run("rdma", "-j", "link", "show") or "[]")
    except RefusedError:
        return {}
    found = {link.get("netdev"): f"{link['ifname']}:{link['port']}" for link in links}
    return {name: found[name] for name in names if name in found}


def has_rdma(name: str) -> bool:
    """Whether there is an RDMA device on an interface."""
    try:
        return bool(rdma_port(name))
    except RefusedError:
        return False


def set_soft_device(name: str, there: bool) -> None:
    """A Soft-RoCE device on the interface, or no such device."""
    if not there:
        run("rdma", "link", "delete", f"rxe_{name}")
        return
    run("modprobe", "rdma_rxe")
    run("rdma", "link", "add", f"rxe_{name}", "type", "rxe", "netdev", name)


def tos_file(name: str) -> Path:
    """Where the type of service of connections through the connection manager stands."""
    device, port = rdma_port(name)
    return CONFIGFS_RDMA / device / "ports" / port / "default_roce_tos"


def tos(name: str) -> int | None:
    """The connection manager's type of service; None where nobody has asked for the directory yet."""
    path = tos_file(name)
    return int(read_file(path)) if path.exists() else None


def set_tos(name: str, wanted: int | None) -> None:
    """Set it, as cma_roce_tos does; making the directory in configfs brings the files into being.

    None: take the directory away, and the kernel's own value is in force again.
    """
    path = tos_file(name)
    if wanted is None:
        run("rmdir", str(path.parents[2]))
        return
    if not CONFIGFS_RDMA.is_dir():
        run("modprobe", "rdma_cm")
    if not path.exists():
        run("mkdir", str(CONFIGFS_RDMA / rdma_port(name)[0]))
    write_file(path, wanted)


def marking_files(name: str, config: Config) -> dict[Path, int]:
    """The files for ECN and CNP that this driver has, and what shall stand in them. RefusedError for none."""
    ofed = SYS_NET / name / "ecn"
    if ofed.is_dir():
        priority = config["priority"]
        return {
            ofed / "roce_np" / "enable" / str(priority): 1,
            ofed / "roce_rp" / "enable" / str(priority): 1,
            ofed / "roce_np" / "cnp_dscp": config["cnp_dscp"],
            ofed / "roce_np" / "cnp_802p_prio": config["cnp_priority"],
        }
    inbox = DEBUGFS_MLX5 / (SYS_NET / name / "device").resolve().name / "cc_params"
    if inbox.is_dir():
        return {inbox / "np_cnp_dscp": config["cnp_dscp"], inbox / "np_cnp_prio": config["cnp_priority"]}
    raise RefusedError(f"driver {driver(name) or 'of a virtual interface'} has no settings for ECN and CNP")


def rdma_settings(name: str, config: Config) -> Iterator[Setting]:
    """A soft device where one is asked for, the ToS of connections, ECN reaction and CNPs."""

    def unmarked() -> dict[str, str]:
        files = marking_files(name, config)
        found = {str(path): read_file(path) for path in files}
        return {path: value for path, value in found.items() if value != str(files[Path(path)])}

    def mark(others: dict[str, str]) -> None:
        for path, value in marking_files(name, config).items():
            write_file(path, others.get(str(path), value))

    if config["soft_device"]:
        yield Setting("soft_device", True, lambda: has_rdma(name), lambda there: set_soft_device(name, there))
    wanted = config["dscp"] << 2 | ECT_0
    yield Setting("tos", wanted, lambda: tos(name), lambda value: set_tos(name, value))
    yield Setting("ecn", {}, unmarked, mark)


# All of it


def load_config() -> Config:
    """The settings the role left."""
    config: Config = json.loads(CONFIG_FILE.read_text())
    return config


def names_of(config: Config) -> list[str]:
    """The interfaces, in declared order."""
    return [one["name"] for one in config["interfaces"]]


def carrying(management_address: str) -> set[str]:
    """The interfaces of SSH and of default routes, with those they are made of (bond, bridge, VLAN)."""
    found = set()
    for family in ("-4", "-6"):
        for route in json.loads(run("ip", family, "-json", "route", "show", "default") or "[]"):
            found |= {hop["dev"] for hop in (route, *route.get("nexthops", ())) if "dev" in hop}
    found |= set(having(management_address))
    todo = list(found)
    while todo:
        lower = {path.name[len("lower_") :] for path in (SYS_NET / todo.pop()).glob("lower_*")} - found
        found |= lower
        todo += lower
    return found


def having(address: str) -> list[str]:
    """The interfaces that have an address."""
    links = json.loads(run("ip", "-json", "address", "show"))
    return [
        link["ifname"]
        for link in links
        if any(one.get("local") == address for one in link.get("addr_info", ()))
    ]


def refusals(name: str) -> dict[str, str]:
    """Setting → why the device refused it when it was last tried."""
    try:
        found: dict[str, str] = json.loads((REFUSALS / name).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def kept_of(name: str) -> dict[str, Any]:
    """What stood before the settings of an interface were first changed."""
    try:
        found: dict[str, Any] = json.loads((BEFORE / name).read_text())
    except (FileNotFoundError, ValueError):
        return {"before": {}}
    return found


def keep_of(name: str, kept: dict[str, Any]) -> None:
    """Keep that; nothing where nothing is left of it."""
    if not kept["before"]:
        (BEFORE / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other interfaces have theirs there, or nobody ever had
            BEFORE.rmdir()
        return
    BEFORE.mkdir(parents=True, exist_ok=True)
    part = BEFORE / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(kept, sort_keys=True))
    part.replace(BEFORE / name)


def own_part(name: str, config: Config) -> dict[str, Any]:
    """What the settings say of one interface."""
    return next((one for one in config["interfaces"] if one["name"] == name), {"name": name})


def keep_before(name: str, setting: str, found: object, config: Config) -> None:
    """Keep what a setting was, unless what it was before that is kept already."""
    kept = kept_of(name)
    if setting not in kept["before"]:
        before = {**kept["before"], setting: found}
        keep_of(name, {"own": own_part(name, config), "before": before})


def bring(name: str, setting: Setting, known: dict[str, str], config: Config, *, dry_run: bool) -> State:
    """Look at one setting and, unless it is a dry run, make it so. `known`: what was refused before."""
    lack = "failed" if setting.needed else "unsupported"
    try:
        found = setting.read()
        if found == setting.wanted:
            known.pop(setting.name, None)
            return State(name, setting.name, "effective")
        if dry_run and setting.name in known:
            return State(name, setting.name, lack, known[setting.name])
        if dry_run:
            return State(name, setting.name, "differs", f"{found}, not {setting.wanted}", changed=True)
        keep_before(name, setting.name, found, config)
        setting.write(setting.wanted)
        found = setting.read()
    except RefusedError as refused:
        known[setting.name] = str(refused)
        return State(name, setting.name, lack, str(refused))
    known.pop(setting.name, None)
    if found != setting.wanted:
        return State(name, setting.name, "failed", f"was taken, and yet is {found}, not {setting.wanted}")
    return State(name, setting.name, "effective", changed=True)


def settings_of(name: str, config: Config) -> Iterator[Setting]:
    """All settings of one interface, in the order in which they are made."""
    for group in (link_settings, address_settings, priority_settings, rdma_settings):
        yield from group(name, config)


def bring_interface(name: str, config: Config, dry_run: bool) -> list[State]:
    """All settings of one interface; a single one says that it is missing or carries SSH."""
    if not (SYS_NET / name).is_dir():
        there = ", ".join(sorted(path.name for path in SYS_NET.iterdir() if path.name != "lo"))
        return [State(name, "interface", "missing", f"this node has {there}")]
    if name in carrying(config["management_address"]):
        return [State(name, "interface", "refused", "it carries SSH or the default route")]
    known = refusals(name)
    found = [bring(name, one, known, config, dry_run=dry_run) for one in settings_of(name, config)]
    if not dry_run:
        REFUSALS.mkdir(exist_ok=True)
        (REFUSALS / name).write_text(json.dumps(known))
    return found


def bring_all(config: Config, dry_run: bool) -> list[State]:
    """Every interface, one after the other; what one lacks does not keep the others from theirs."""
    return [state for name in names_of(config) for state in bring_interface(name, config, dry_run)]


# Giving it back


def restore_all(config: Config, names: Iterable[str]) -> list[State]:
    """Give interfaces back what stood before; of one that is gone its settings went with it."""
    found = []
    for name in names:
        if not (SYS_NET / name).is_dir():
            keep_of(name, {"before": {}})
        elif name in carrying(config["management_address"]):
            found.append(State(name, "interface", "refused", "it carries SSH or the default route"))
        else:
            found += restore_interface(name, config)
    return found


def restore_interface(name: str, config: Config) -> list[State]:
    """One interface, the last setting first. What is refused stays kept, and failed."""
    kept = kept_of(name)
    if name not in names_of(config):
        config = {**config, "interfaces": [kept.get("own", {"name": name})]}
    settings = [one for one in settings_of(name, config) if one.name in kept["before"]][::-1]
    states = {one.name: give_back(name, one, kept["before"][one.name]) for one in settings}
    for one in settings:
        # Once more: trust follows from the map of DSCPs, where a driver has no order of its own.
        if states[one.name].state == "failed":
            states[one.name] = give_back(name, one, kept["before"][one.name])
    for state in states.values():
        if state.state == "restored":
            del kept["before"][state.setting]
    keep_of(name, kept)
    return list(states.values())


def give_back(name: str, setting: Setting, before: object) -> State:
    """Bring one setting back to what it was."""
    try:
        if json.loads(json.dumps(setting.read())) != before:
            setting.write(before)
    except RefusedError as refused:
        return State(name, setting.name, "failed", str(refused))
    return State(name, setting.name, "restored", changed=True)


def changed_interfaces() -> list[str]:
    """The interfaces of which something is kept."""
    return sorted(path.name for path in BEFORE.glob("[!.]*"))


# Keeping it


class Events:
    """Waits for what may undo the settings: the interface changes, or an RDMA device comes or goes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.links.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR))
        self.devices = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
        self.devices.bind((0, 1))
        self.poll = select.poll()
        for source in (self.links, self.devices):
            self.poll.register(source, select.POLLIN)

    def wait(self) -> None:
        """Block until something that concerns the interface happened, then until it has been quiet."""
        while not self.heard(None):
            pass
        while self.heard(SETTLE_MS) is not None:
            pass

    def heard(self, timeout_ms: int | None) -> bool | None:
        """Whether the next events concern the interface; None when there were none in time."""
        ready = self.poll.poll(timeout_ms)
        if not ready:
            return None
        return any(self.concerns(number) for number, _ in ready)

    def concerns(self, number: int) -> bool:
        """Whether one source's next event concerns the interface."""
        source = self.links if number == self.links.fileno() else self.devices
        try:
            data = source.recv(1 << 16)
        except OSError:  # ENOBUFS: more events than fit; that something happened is all that counts
            return True
        if source is self.devices:
            return b"SUBSYSTEM=infiniband\0" in data
        # nlmsghdr has 16 bytes; ifinfomsg and ifaddrmsg both have the index in the second four bytes.
        try:
            own = int((SYS_NET / self.name / "ifindex").read_text())
        except OSError:  # gone: the next link may be the one
            return True
        return bool(struct.unpack_from("=i", data, 20)[0] == own)


def keep(name: str) -> int:
    """Apply the settings of one interface now and whenever something may have undone them."""
    events = Events(name)
    before: list[str] = []
    while True:
        states = bring_interface(name, load_config(), dry_run=False)
        for state in states:
            if state.changed or str(state) not in before:
                print(state, flush=True)
        if [state.state for state in states] == ["refused"]:
            return 0
        before = [str(state) for state in states]
        events.wait()


def main() -> int:
    """`check` says how everything stands and judges nothing; `keep` stays; `restore` ends it."""
    if sys.argv[1:] == ["check"]:
        for state in bring_all(load_config(), dry_run=True):
            print(state)
        return 0
    if len(sys.argv) == 3 and sys.argv[1] == "keep":
        return keep(sys.argv[2])
    if sys.argv[1:] == ["restore"]:
        states = restore_all(load_config(), changed_interfaces())
        print(*states, sep="\n")
        return 0 if all(state.state == "restored" for state in states) else STAYS
    print("usage: causeway-roce check | keep INTERFACE | restore", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
