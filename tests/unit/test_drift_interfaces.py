"""Links that somebody made, and settings that somebody changed live."""

import subprocess

import pytest

from infra.drift.kinds import KINDS
from infra.drift.looks import Look
from roles.base.drift import interfaces, traffic
from tests.unit.test_drift_known import NET_ADMIN
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_surroundings import sealed_again

LOOKING = (
    "import infra.drift.kinds;from infra.drift.looks import Look;"
    "from roles.base.drift.interfaces import look_at_interfaces as look;"
    "print(*sum(look(Look('', 'seal', []), 'all', {}).values(), []), sep=chr(10))"
)
CHANGES = {
    "a link": ("links", "", "ip link add odd0 type bridge", "odd0 bridge"),
    "a setting of a link": (
        "settings",
        "net/ipv4/conf/lan0/rp_filter 0",
        "sysctl --quiet --write net/ipv4/conf/lan0/rp_filter=1",
        "net/ipv4/conf/lan0/rp_filter 1",
    ),
    "a setting of two values": (
        "settings",
        "net/ipv4/ip_local_port_range 32768 60999",
        "sysctl --quiet --write 'net.ipv4.ip_local_port_range=1024 2000'",
        "net/ipv4/ip_local_port_range 1024 2000",
    ),
    "a queue": ("settings", "lan0 txqueuelen 1000", "ip link set dev lan0 txqueuelen 9", "lan0 txqueuelen 9"),
    "an MTU": ("settings", "lan0 mtu 1500", "ip link set dev lan0 mtu 1400", "lan0 mtu 1400"),
    **{
        what: ("settings", f"lan0 {what} {old}", f"ip link set dev lan0 {what} {new}", f"lan0 {what} {new}")
        for what, old, new in (
            *(("arp", "on", "off"), ("multicast", "on", "off")),
            *(("promisc", "off", "on"), ("allmulticast", "off", "on")),
        )
    },
    "a setting of TCP": (
        "settings",
        "net/ipv4/tcp_retries1 3",
        "sysctl --quiet --write net/ipv4/tcp_retries1=9",
        "net/ipv4/tcp_retries1 9",
    ),
    "a bridge": (
        "settings",
        "lan0 master -",
        "ip link add lan1 type bridge; ip link set dev lan0 master lan1",
        "lan0 master lan1",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_somebody_did_is_read_from_the_kernel_and_undone(what: str) -> None:
    """In a network of its own, by the programs that an administrator would use."""
    aspect, before, command, after = CHANGES[what]
    sealed = [before] if before else []
    (undo,) = plan_for("interfaces", "all", {aspect: sealed}, {aspect: [*sealed, after]}).obstacles.undone
    python = f'python3 -c "{LOOKING}"'
    argv = " ".join(f"'{word}'" for word in undo["argv"])
    script = f"""set -e; mount --types sysfs sysfs /sys; mount --types proc proc /proc
        ip link add lan0 txqueuelen 1000 type veth peer name lan9
        sysctl --quiet --write net/ipv4/conf/lan0/rp_filter=0
        {python} >/tmp/one; {command}; {python} >/tmp/two; {argv}; {python} >/tmp/three
        for file in one two three; do cat /tmp/$file; echo ==; done"""
    inner = ["sh", "-c", f"mount --types tmpfs tmpfs /tmp; {script}"]
    said = subprocess.run(
        [*NET_ADMIN, "--mount", "--pid", "--fork", *inner], stdout=subprocess.PIPE, text=True, check=True
    )
    first, second, third = (set(part.splitlines()) - {""} for part in said.stdout.split("==\n")[:3])
    assert (before in first) == bool(before)
    assert after in second - first
    assert after not in third
    assert third >= first


def test_a_link_that_was_up_and_the_forwarding_of_each_count_where_a_node_forwards() -> None:
    looking = """
import sys, infra.drift.kinds
from infra.drift.looks import Look
from roles.base.drift.interfaces import look_at_interfaces
node = Look('', sys.argv[1], [], {'sysctl': ['net.ipv4.ip_forward']} if sys.argv[2:] else {})
if sys.argv[1] == 'scan':
    node.want = {'settings': ['lan0 state up', 'net/ipv4/conf/lan0/forwarding 1']}
for line in look_at_interfaces(node, 'all', {})['settings']:
    if ' state ' in line or '/forwarding' in line:
        print(line)
"""
    shown = {}
    for name, up, mode, more in (
        ("sealed", "up", "seal", ["forwards"]),
        ("sealed, down", "down", "seal", ["forwards"]),
        ("scanned", "down", "scan", ["forwards"]),
        ("no router", "up", "seal", []),
    ):
        script = f"""set -e; mount --types sysfs sysfs /sys; mount --types proc proc /proc
            sysctl --quiet --write net.ipv4.ip_forward=1; ip link add lan0 type bridge; ip link set lan0 {up}
            sysctl --quiet --write net.ipv4.conf.lan0.forwarding={int(up == "up")}; python3 -c "$0" "$@" """
        argv = [*NET_ADMIN, "--mount", "--pid", "--fork", "sh", "-c", script, looking, mode, *more]
        said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        shown[name] = {line for line in said if "lan0" in line}
    forwards = "net/ipv4/conf/lan0/forwarding {}".format
    sealed = {"lan0 state up", forwards(1)}
    assert shown["sealed"] == sealed
    assert shown["sealed, down"] == {forwards(0)}
    assert shown["scanned"] == sealed | {"lan0 state down", forwards(0)}
    assert shown["no router"] == {"lan0 state up"}
    settings = {"settings": ["eth0 state up"]}, {"settings": ["eth0 state down"]}
    (undo,) = plan_for("interfaces", "all", *settings).obstacles.undone
    assert undo["argv"] == ["ip", "link", "set", "dev", "eth0", "up"]


def test_what_a_device_does_by_itself_is_read_and_set_back_by_ethtool() -> None:
    script = f"""set -e; mount --types sysfs sysfs /sys; mount --types proc proc /proc
        ip link add lan0 type veth peer name lan9; ip link add lan1 type bridge; python3 -c "{LOOKING}" """
    found = set(
        subprocess.run(
            [*NET_ADMIN, "--mount", "--pid", "--fork", "sh", "-c", script],
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout.splitlines()
    )  # fmt: skip
    assert {"lan0 tx on", "lan0 sg on", "lan0 tso on", "lan0 gso on", "lan0 gro off"} <= found
    assert {"lan0 rx-channels 1", "lan0 tx-channels 1"} <= found
    assert not {line for line in found if "-ring" in line}, "a pair of links has none"
    assert not {line for line in found if line.startswith("lan1 g")}, "a bridge does as its links do"
    for sealed, after, argv in (
        ("eth0 gro on", "eth0 gro off", ["ethtool", "-K", "eth0", "gro", "on"]),
        ("eth0 rx-ring 1024", "eth0 rx-ring 64", ["ethtool", "-G", "eth0", "rx", "1024"]),
        ("eth0 channels 8", "eth0 channels 1", ["ethtool", "-L", "eth0", "combined", "8"]),
    ):
        settings = {"settings": [sealed]}, {"settings": [after]}
        (undo,) = plan_for("interfaces", "all", *settings).obstacles.undone
        assert undo["argv"] == argv


def test_what_comes_with_a_new_link_is_sealed_and_a_changed_setting_is_not() -> None:
    old = {"settings": ["eth0 txqueuelen 1000"], "links": []}
    now = [*old["settings"], "eth0 txqueuelen 7", "wan0 txqueuelen 500", "net/ipv4/tcp_sack 0"]
    want, said = sealed_again("interfaces", old, {"settings": now, "links": ["odd0 dummy"]})
    assert want["settings"] == ["eth0 txqueuelen 1000", "net/ipv4/tcp_sack 0", "wan0 txqueuelen 500"]
    assert want.keys() == KINDS["interfaces"].aspects.keys()
    assert want["links"] == []
    assert "eth0 txqueuelen 7" in "".join(said)
    assert "wan0" not in "".join(said)
    assert "odd0" in "".join(said)


def test_the_mtu_that_is_declared_by_now_is_sealed_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "declared_mtu", lambda _stack, _host: "9000")
    old = {"settings": ["eth0 mtu 1500", "eth1 mtu 1500", "net/ipv4/tcp_sack 1"]}
    now = {"settings": ["eth0 mtu 9000", "eth1 mtu 1400", "net/ipv4/tcp_sack 9000"]}
    want, said = sealed_again("interfaces", old, now)
    assert want["settings"] == [*sorted(["eth0 mtu 9000", *old["settings"]])]
    assert "eth1 mtu 1400" in "".join(said)
    assert "eth0" not in "".join(said)


def test_the_mtu_of_links_that_are_declared_or_governed_is_compared_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {traffic.RAILS_FILE: {"192.0.2.1"}, interfaces.LINKS_FILE: {"192.0.2.5"}}
    lines = ["192.0.2.1/29 dev rail0", "192.0.2.5/30 dev wan0", "192.0.2.9/24 dev eth0"]
    monkeypatch.setattr(interfaces, "addresses_in", given.__getitem__)
    monkeypatch.setattr(interfaces, "address_lines", lambda _node, _names: lines)
    monkeypatch.setattr(interfaces, "is_tunnel", lambda _node, name: name == "wg0")
    links = {name: {interfaces.MTU: b""} for name in ("rail0", "wan0", "eth0", "wg0", "own0", "lan0")}
    monkeypatch.setattr(interfaces, "called", lambda has: "bridge" if has is links["lan0"] else "")
    node = Look("5a17", "scan", [], {"interface": ["own0"]})
    assert list(interfaces.nobodys_mtu(node, links, {})) == ["eth0"]


def test_settings_count_where_they_were_sealed() -> None:
    lines = ["eth0 txqueuelen 7", "wan0 txqueuelen 7", "net/ipv4/tcp_sack 0"]
    assert interfaces.of_known(look(settings=["eth0 txqueuelen 1000"]), lines) == lines[:1]
    assert interfaces.of_known(look("seal"), lines) == lines


def test_links_of_containers_and_tunnels_of_roles_are_nobodys_news() -> None:
    node = Look("5a17", "scan", [], {"file": ["/etc/wireguard/wg-tokyo.conf"]})

    def info(kind: str) -> dict[int, bytes]:
        text = kind.encode() + b"\0"
        size = len(text) + 4
        part = size.to_bytes(2, "little") + (1).to_bytes(2, "little") + text
        return {interfaces.INFO: part + bytes(-len(part) % 4)}

    assert interfaces.kind_of(node, "odd0", info("dummy")) == "dummy"
    assert interfaces.kind_of(node, "eth0", {}) == ""
    assert interfaces.kind_of(node, "wan0", info("veth")) == ""
    assert interfaces.kind_of(node, "wg-tokyo", info("wireguard")) == ""
    assert interfaces.kind_of(node, "wg-office", info("wireguard")) == "wireguard"
    assert interfaces.kind_of(node, "sit0", info("sit")) == ""
