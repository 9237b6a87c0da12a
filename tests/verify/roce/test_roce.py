"""The fabric interfaces have the declared RoCEv2 settings, wherever their devices know such settings."""

import json
import shlex

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

pytestmark = pytest.mark.deadline(60)

PROGRAM = "/usr/local/sbin/causeway-roce"
IP_AND_ICMP_BYTES = 28

# A file without a suffix is no module by itself.
CARRYING = """
import json, sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = SourceFileLoader("roce", sys.argv[1])
roce = module_from_spec(spec_from_loader("roce", loader))
sys.dont_write_bytecode, sys.modules["roce"] = True, roce
loader.exec_module(roce)
print(json.dumps(sorted(roce.carrying(sys.argv[2]))))
"""

States = dict[str, dict[str, tuple[str, str]]]
LINK = ("mtu", "up", "address", "route", "pause")
PRIORITIES = ("dscp", "trust", "pfc", "ets")
RDMA = ("soft_device", "tos", "ecn")


def names(expect: Expect) -> list[str]:
    return [interface["name"] for interface in expect.roce_interfaces]


def keepers(host: Host, expect: Expect) -> dict[str, str]:
    """Interface → its unit; systemd writes a dash in a name otherwise."""
    escape = f"systemd-escape --template=causeway-roce@.service {' '.join(names(expect))}"
    return dict(zip(names(expect), host.run(escape).stdout.split(), strict=True))


@pytest.fixture(scope="module")
def states(host: Host, expect: Expect) -> States:
    """Interface → setting → state and reason, as the node's own program finds the devices to be.

    It compares them with its file, so that has to be what is declared, or its answers would prove nothing.
    """
    told = json.loads(host.file("/etc/causeway/roce.json").content_string)
    assert told == {key: getattr(expect, f"roce_{key}") for key in told}
    found: States = {}
    for line in host.run(f"{PROGRAM} check").stdout.splitlines():
        interface, setting, state = (words := line.split(maxsplit=3))[:3]
        found.setdefault(interface, {})[setting] = (state.rstrip(":"), "".join(words[3:]))
    return found


def test_every_interface_is_there(expect: Expect, verdict: VerdictRecorder, states: States) -> None:
    if not names(expect):
        verdict.not_declared("no fabric interface")
    assert {name: states[name]["interface"] for name in names(expect) if "interface" in states[name]} == {}


@pytest.mark.parametrize("setting", LINK + PRIORITIES + RDMA)
def test_setting(expect: Expect, verdict: VerdictRecorder, states: States, setting: str) -> None:
    found = {name: states[name][setting] for name in names(expect) if setting in states[name]}
    if not found:
        verdict.not_declared(f"no interface shall have {setting}")
    wrong = {name: state for name, state in found.items() if state[0] not in ("effective", "unsupported")}
    assert wrong == {}
    reasons = {name: why for name, (state, why) in found.items() if state == "unsupported"}
    if reasons:
        verdict.unsupported("; ".join(f"{name}: {why}" for name, why in reasons.items()))


def test_the_kernel_carries_the_declared_packets(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    addresses = {one["name"]: one["address"] for one in expect.roce_interfaces if one.get("address")}
    if not addresses:
        verdict.not_declared("no fabric interface with an address")
    for name, address in addresses.items():
        found = json.loads(host.run(f"ip -json address show dev {shlex.quote(name)}").stdout)[0]
        local = [f"{one['local']}/{one['prefixlen']}" for one in found["addr_info"]]
        assert (found["mtu"], address in local) == (expect.roce_mtu_bytes, True), name


def test_packets_of_full_size_reach_the_leaf(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    leafs = {one["name"]: one["gateway"] for one in expect.roce_interfaces if one.get("gateway")}
    if not leafs:
        verdict.not_declared("no fabric interface with a leaf")
    size = expect.roce_mtu_bytes - IP_AND_ICMP_BYTES
    ping = f"ping -q -c 3 -W 2 -M do -s {size}"
    lost = {name: leaf for name, leaf in leafs.items() if host.run(f"{ping} -I {name} {leaf}").rc != 0}
    assert lost == {}, f"packets of {expect.roce_mtu_bytes} bytes do not come back"


def test_the_keepers_run(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not names(expect):
        verdict.not_declared("no fabric interface")
    units = " ".join(shlex.quote(unit) for unit in keepers(host, expect).values())
    done = host.run(f"systemctl is-enabled {units}; systemctl is-active {units}")
    count = len(names(expect))
    assert done.stdout.split() == ["enabled"] * count + ["active"] * count


def test_the_keepers_come_back_with_their_devices(
    host: Host, expect: Expect, verdict: VerdictRecorder, in_container: bool
) -> None:
    if not names(expect):
        verdict.not_declared("no fabric interface")
    if in_container:
        verdict.unsupported("a container has no udev that tells systemd of devices")
    for unit in keepers(host, expect).values():
        shown = host.run(f"systemctl show --property=BindsTo,WantedBy --value {shlex.quote(unit)}").stdout
        interface = unit.removeprefix("causeway-roce@").removesuffix(".service")
        assert shown.split() == [f"sys-subsystem-net-devices-{interface}.device"] * 2


def test_the_way_in_is_left_alone(host: Host, expect: Expect) -> None:
    carrying = ask(host, CARRYING, PROGRAM, expect.roce_management_address)
    way_out = json.loads(host.run("ip -json route show default").stdout)
    assert {route["dev"] for route in way_out} <= set(carrying)
    assert set(carrying) & set(names(expect)) == set()


@pytest.fixture(name="nccl", scope="module")
def _nccl(host: Host) -> dict[str, str]:
    """What NCCL reads."""
    lines = host.file("/etc/nccl.conf").content_string.splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_nccl_marks_as_the_fabric_expects(
    expect: Expect, verdict: VerdictRecorder, nccl: dict[str, str]
) -> None:
    wanted = {"NCCL_IB_TC": expect.roce_dscp * 4 + 2, **expect.roce_nccl_profile, **expect.roce_nccl_options}
    assert {key: nccl.get(key) for key in wanted} == {key: str(value) for key, value in wanted.items()}
    verdict.rendered("NCCL alone reads it")


def test_nccl_has_the_fabrics_devices_and_no_others(
    host: Host, expect: Expect, verdict: VerdictRecorder, nccl: dict[str, str]
) -> None:
    if "NCCL_IB_HCA" in expect.roce_nccl_options:
        verdict.rendered("NCCL_IB_HCA is set by roce_nccl_options")
    # Of the kernel itself: the folder of an RDMA device names its interface.
    shown = host.run("grep -H . /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0").stdout
    rows = [line.split(":", 1) for line in shown.splitlines()]
    there = {name.strip(): f"{path.split('/')[4]}:{path.split('/')[6]}" for path, name in rows}
    wanted = [there[name] for name in names(expect) if name in there]
    assert nccl.get("NCCL_IB_HCA", "=").removeprefix("=").split(",") == (wanted or [""])
    if not wanted:
        verdict.unsupported("no fabric interface has an RDMA device here: NCCL takes sockets")
    verdict.rendered("NCCL alone reads it")


def test_nccl_meets_by_the_management_interface(
    host: Host, expect: Expect, verdict: VerdictRecorder, nccl: dict[str, str]
) -> None:
    if "NCCL_SOCKET_IFNAME" in expect.roce_nccl_options:
        verdict.rendered("NCCL_SOCKET_IFNAME is set by roce_nccl_options")
    found = json.loads(host.run("ip -json address show").stdout)
    having = {one["ifname"]: [address.get("local") for address in one.get("addr_info", ())] for one in found}
    own = [name for name, addresses in having.items() if expect.roce_management_address in addresses]
    if not own:
        assert "NCCL_SOCKET_IFNAME" not in nccl
        verdict.unsupported(f"no interface has {expect.roce_management_address}: NCCL chooses one")
    assert nccl["NCCL_SOCKET_IFNAME"] == f"={own[0]}"
    verdict.rendered("NCCL alone reads it")
