"""The role `roce` on interfaces in network namespaces: what it sets, keeps under faults, and leaves alone.

Devices with DCB and RDMA are not needed for that; what they get is shown on VM nodes.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.patience import wait_for

PROVES = ("fabric", "roce")

PROGRAM = Path(__file__).resolve().parents[2] / "roles/roce/module_utils/causeway_roce_host.py"
START = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("roce", sys.argv[1])
roce = sys.modules["roce"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(roce)
folder = Path(sys.argv[2])
roce.CONFIG_FILE, roce.REFUSALS, roce.BEFORE = folder / "roce.json", folder / "refusals", folder / "before"
"""
APPLY = START + "print(*roce.bring_all(roce.load_config(), dry_run=sys.argv[3] == 'look'), sep='\\n')"
RESTORE = START + "sys.argv[1:] = ['restore']; sys.exit(roce.main())"
KEEP = START + "sys.exit(roce.keep(sys.argv[3]))"
SIZE_BYTES = 9000 - 28
"""The largest ping that fits into one packet."""
BACK_WITHIN_S = 60
"""They are back within a second on a machine with nothing else to do."""


@dataclass
class Machine:
    """A network namespace and a view of /sys that belongs to it; both end with their process."""

    process: "subprocess.Popen[str]"

    def command(self, *argv: str) -> list[str]:
        return ["nsenter", f"--target={self.process.pid}", "--net", "--mount", "--", *argv]

    def run(self, *argv: str, expect: int = 0) -> str:
        done = subprocess.run(self.command(*argv), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == expect, f"{argv}: {done.stderr}"
        return done.stdout

    def link(self, name: str) -> dict[str, Any]:
        """An interface: its MTU, flags and addresses; empty where there is none."""
        found = [one for one in json.loads(self.run("ip", "-json", "address")) if one["ifname"] == name]
        return found[0] if found else {}

    def has_its_settings(self, name: str) -> bool:
        """Whether an interface has what CONFIG says."""
        link = self.link(name)
        local = [one["local"] for one in link.get("addr_info", []) if one["family"] == "inet"]
        if not link or link["mtu"] != 9000 or "UP" not in link["flags"] or local != ["100.64.0.2"]:
            return False
        return "via 100.64.0.1" in self.run("ip", "route", "show", "100.64.0.0/20")


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """A node and a leaf; rail0 and rail1 of the node end there."""
    hold = "mount -t sysfs sysfs /sys && ip link set lo up && echo ready && exec sleep infinity"
    argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "sh", "-c", hold]
    made = []
    try:
        for _ in range(2):
            made.append(Machine(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)))
            assert made[-1].process.stdout
            assert made[-1].process.stdout.readline() == "ready\n"
        node, leaf = made
        for name in ("rail0", "rail1"):
            plug(node, leaf, name)
        yield node, leaf
    finally:
        for machine in made:
            machine.process.kill()
            machine.process.wait()


def plug(node: Machine, leaf: Machine, name: str) -> None:
    node.run("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", str(leaf.process.pid))
    leaf.run("ip", "link", "set", name, "mtu", "9216", "up")
    if name == "rail0":
        leaf.run("ip", "address", "add", "100.64.0.1/24", "dev", name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    declare(tmp_path, "rail0", "rail1")
    return tmp_path


def declare(folder: Path, *interfaces: str) -> None:
    way = {"address": "100.64.0.2/24", "gateway": "100.64.0.1", "network": "100.64.0.0/20"}
    config = {
        "interfaces": [{"name": name, **(way if name == "rail0" else {})} for name in interfaces],
        **{"management_address": "192.0.2.1", "mtu_bytes": 9000, "soft_device": False, "bandwidth_pct": 50},
        **{"dscp": 26, "priority": 3, "cnp_dscp": 48, "cnp_priority": 6},
    }
    (folder / "roce.json").write_text(json.dumps(config))


def apply(node: Machine, folder: Path, how: str = "apply") -> list[str]:
    return node.run("python3", "-c", APPLY, str(PROGRAM), str(folder), how).splitlines()


@pytest.fixture
def kept(machines: tuple[Machine, Machine], folder: Path) -> Iterator[tuple[Machine, Machine]]:
    """The machines while a keeper keeps rail0."""
    node, leaf = machines
    keeper = subprocess.Popen(node.command("python3", "-c", KEEP, str(PROGRAM), str(folder), "rail0"))
    wait_for(lambda: node.has_its_settings("rail0"), "the first settings", BACK_WITHIN_S)
    try:
        yield node, leaf
        assert keeper.poll() is None
    finally:
        keeper.kill()
        keeper.wait()


@pytest.fixture
def load(kept: tuple[Machine, Machine]) -> Iterator[None]:
    """The leaf sends as much as it can to rail0."""
    flood = ["ping", "-q", "-f", "-s", str(SIZE_BYTES), "100.64.0.2"]
    process = subprocess.Popen(kept[1].command(*flood), stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def whole_packets_pass(leaf: Machine) -> bool:
    """Of several by one ping: the flood's answers fill its socket, too, until it filters them."""
    several = ["-c", "5", "-i", "0.1", "-W", "1"]
    ping = leaf.command("ping", "-q", "-M", "do", *several, "-s", str(SIZE_BYTES), "100.64.0.2")
    return subprocess.run(ping, stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_what_is_there_is_set_and_what_is_not_is_named(
    machines: tuple[Machine, Machine], folder: Path
) -> None:
    node, leaf = machines
    assert "rail0 mtu differs: 1500, not 9000" in apply(node, folder, "look")
    assert not node.has_its_settings("rail0")
    said = apply(node, folder)
    assert {"rail0 mtu effective", "rail0 up effective", "rail0 address effective"} <= set(said)
    assert "rail0 pfc unsupported: dcb: Attribute read: Operation not supported" in said
    assert whole_packets_pass(leaf)
    assert apply(node, folder, "look") == said


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize(
    "fault",
    [
        "ip link set rail0 down && ip link set rail0 up",
        "ip link set rail0 down",
        "ip link set rail0 mtu 1500",
        "ip address flush dev rail0",
    ],
)
def test_settings_come_back_under_load(kept: tuple[Machine, Machine], fault: str) -> None:
    node, leaf = kept
    node.run("sh", "-c", fault)
    wait_for(lambda: node.has_its_settings("rail0"), f"the settings after {fault}", BACK_WITHIN_S)
    wait_for(lambda: whole_packets_pass(leaf), "packets of full size", BACK_WITHIN_S)


def test_settings_come_back_with_a_new_device(kept: tuple[Machine, Machine]) -> None:
    node, leaf = kept
    node.run("ip", "link", "delete", "rail0")
    plug(node, leaf, "rail0")
    wait_for(lambda: node.has_its_settings("rail0"), "the settings of the new device", BACK_WITHIN_S)


def test_a_missing_interface_is_named_and_the_others_are_set(
    machines: tuple[Machine, Machine], folder: Path
) -> None:
    node, _ = machines
    declare(folder, "rail0", "enp65s0", "rail1")
    said = apply(node, folder)
    assert "enp65s0 interface missing: this node has rail0, rail1" in said
    assert node.has_its_settings("rail0")
    assert node.link("rail1")["mtu"] == 9000


@pytest.mark.parametrize("still_declared", [True, False])
def test_what_an_interface_had_comes_back(
    machines: tuple[Machine, Machine], folder: Path, still_declared: bool
) -> None:
    node, _ = machines
    node.run("ip", "address", "add", "192.0.2.7/24", "dev", "rail0")
    before = {name: node.link(name) for name in ("rail0", "rail1")}
    apply(node, folder)
    assert node.link("rail0")["mtu"] == 9000
    if not still_declared:
        declare(folder, "rail1")
    said = node.run("python3", "-c", RESTORE, str(PROGRAM), str(folder)).splitlines()
    assert {line.rpartition(" ")[2] for line in said} == {"restored"}
    assert {"rail0 mtu restored", "rail0 route restored", "rail1 up restored"} < set(said)
    for name, link in before.items():
        for what in ("mtu", "flags", "addr_info"):
            assert shown(node.link(name), what) == shown(link, what), (name, what)


def shown(link: dict[str, Any], what: str) -> Any:
    """Of addresses those that somebody gave: the kernel's own come with the state of the link."""
    if what == "addr_info":
        return [one["local"] for one in link[what] if one["scope"] != "link"]
    return sorted(link[what]) if isinstance(link[what], list) else link[what]


@pytest.mark.parametrize(
    "way_in",
    [
        "ip link set rail0 up; ip address add 10.9.0.2/24 dev rail0; ip route add default via 10.9.0.1",
        "ip address add 192.0.2.1/24 dev rail0",
        "ip link add br0 type bridge; ip link set rail0 master br0; ip address add 192.0.2.1/24 dev br0",
    ],
    ids=["default route", "management address", "part of a bridge"],
)
def test_the_way_in_is_left_alone(machines: tuple[Machine, Machine], folder: Path, way_in: str) -> None:
    node, _ = machines
    node.run("sh", "-c", way_in)
    said = apply(node, folder)
    assert "rail0 interface refused: it carries SSH or the default route" in said
    assert node.link("rail0")["mtu"] == 1500
    assert "100.64.0.2" not in [one["local"] for one in node.link("rail0")["addr_info"]]
    assert node.link("rail1")["mtu"] == 9000
