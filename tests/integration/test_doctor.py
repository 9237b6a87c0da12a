"""Machines you already have, looked at before anything is changed: each thing in the way is found."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from infra.providers.local import sweep
from tests.integration.checkout import Checkout, said
from tests.integration.machines import Machines, standing

PROVES = ("existing",)

HEALTHY, CONSUL, ROUTER, ROCKY, WALL, OFF, FAR = (*(f"machine-{number}" for number in range(6)), "far-0")
HOSTS = {
    HEALTHY: "hall-control-0",
    CONSUL: "hall-control-1",
    ROCKY: "hall-control-2",
    WALL: "hall-control-3",
    OFF: "hall-control-4",
    ROUTER: "hall-gateway-0",
    FAR: "far-control-0",
}
CONTROL = (HEALTHY, CONSUL, ROCKY, WALL, OFF)
LIVED_IN = {
    HEALTHY: "true",
    CONSUL: """
        mkdir -p /etc/consul.d && echo 'datacenter = "office"' >/etc/consul.d/office.hcl
        printf '[Service]\\nExecStart=/usr/bin/python3 -m http.server 8301\\n' \\
          >/etc/systemd/system/consul.service
        systemctl daemon-reload && systemctl start consul.service
        echo '192.0.2.9 db.office' >>/etc/hosts
        mkdir -p /etc/chrony && printf 'server ntp.office iburst\\n' >/etc/chrony/chrony.conf
        systemd-run --quiet --unit=office-names python3 -c \
          'import socket, time; s = socket.socket(type=2); s.bind(("127.0.0.1", 53)); time.sleep(9999)'
    """,
    ROUTER: """
        mkdir -p /etc/frr && printf 'router bgp 65001\\n' >/etc/frr/frr.conf
        printf 'bgpd=yes\\n' >/etc/frr/daemons
    """,
    ROCKY: """
        rm /etc/os-release
        printf 'ID="rocky"\\nID_LIKE="rhel centos fedora"\\nPRETTY_NAME="Rocky Linux 9.4"\\n' >/etc/os-release
    """,
    WALL: """
        command -v nft >/dev/null || { apt-get -qq update && apt-get -qq install nftables >/dev/null; }
        nft -f - <<'END'
        table inet office {
          chain input {
            type filter hook input priority 0; policy drop;
            ct state established accept; tcp dport 22 accept;
          }
        }
END
    """,
    OFF: "true",
    FAR: "true",
}
SEEN = "find / -xdev -not -path '/proc/*' -not -path '/var/log/*' -printf '%p %T@ %C@ %s %m %u %l\\n' | sort"
"""Every file with its times but for what sshd logs."""
OTHERS = re.compile(r"/run[ /]|/var/lib/systemd/")
"""What any login has systemd and PAM write."""


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    with standing(checkout, {"machine": 6, "far": 1}) as made:
        for name, script in LIVED_IN.items():
            made.on(name, "systemctl", "stop", "*.timer")  # what they run writes files of its own
            made.on(name, "sh", "-c", 'echo "$1" >/etc/hostname && hostname "$1"', "name", HOSTS[name])
            made.on(name, "sh", "-ec", script)
        yield made


def declaration(checkout: Checkout, machines: Machines) -> dict[str, Any]:
    hall = machines.region("hall", checkout.cidr(0), machines.pool("control", *CONTROL))
    hall["pools"].append(machines.pool("gateway", ROUTER))
    far = machines.region("far", checkout.cidr(1), machines.pool("control", FAR))
    regions = [region | {"timezone": "Etc/UTC"} for region in (hall, far)]
    link = {"name": "line", "a": "hall", "b": "far", "rtt_ms": 20, "bandwidth_mbps": 100}
    ends = {
        "a_end": {"address": "192.0.2.1/30", "gateway": HOSTS[ROUTER]},
        "b_end": {"address": "192.0.2.2/30"},
    }
    return {
        "name": "mine",
        "regions": regions,
        "wan_links": [link | ends],
        "discovery": {"kind": "consul"},
    }


def listing(machines: Machines) -> dict[str, set[str]]:
    found = {}
    for name in HOSTS:
        lines = machines.on(name, "sh", "-c", SEEN).splitlines()
        found[name] = {line for line in lines if not OTHERS.match(line)}
    return found


def doctor(checkout: Checkout, *words: str) -> tuple[dict[str, Any], str]:
    """What it says as JSON and as tables."""
    command = ("exec", "causeway", "doctor", checkout.stack, *words)
    printed = checkout.run(*command, "--json", expect=1)
    return json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["hosts"], checkout.run(
        *command, expect=1
    )


def words(host: dict[str, Any], grade: str) -> list[str]:
    return [f"{one['about']}: {one['says']}" for one in host["findings"] if one["grade"] == grade]


def test_all_is_found_by_its_word_and_nothing_is_touched(checkout: Checkout, machines: Machines) -> None:
    checkout.declare(declaration(checkout, machines))
    before = listing(machines)
    said("podman", "pause", machines.container(OFF))
    try:
        hosts, printed = doctor(checkout)
        stopped = checkout.up(expect=1)
    finally:
        said("podman", "unpause", machines.container(OFF))
    print(printed)

    healthy = hosts[HOSTS[HEALTHY]]
    assert healthy["grade"] == "in the way", "the far region has no way yet"
    assert {one["about"] for one in healthy["findings"] if one["grade"] == "in the way"} == {"sites"}
    assert {"OS", "Python", "sudo", "disk", "memory", "clock", "host name", "address"} <= {
        one["about"] for one in healthy["findings"] if one["grade"] == "fine"
    }

    lived_in = "\n".join(words(hosts[HOSTS[CONSUL]], "in the way"))
    assert words(hosts[HOSTS[CONSUL]], "impossible") == [
        "consul: consul.service of somebody's runs, and role consul would set it up anew"
    ]
    assert "TCP port 8301, for consul-gossip, is taken by python3 (consul.service)" in lived_in
    assert "UDP port 53 on 127.0.0.1, for dns-stub, is taken by python3 (office-names.service)" in lived_in
    assert (
        "/etc/hosts has entries of somebody's, and role base writes it anew: 192.0.2.9 db.office" in lived_in
    )
    assert "/etc/chrony/chrony.conf is somebody's, and role base would replace it" in lived_in
    assert "/etc/systemd/system/consul.service is somebody's, and role consul" in lived_in

    assert words(hosts[HOSTS[ROUTER]], "impossible") == [
        "wan_gateway: /etc/frr/frr.conf is somebody else's (router bgp 65001 …)",
        "wan_gateway: /etc/frr/daemons has somebody run bgpd",
    ]
    assert words(hosts[HOSTS[ROCKY]], "impossible") == ["OS: Rocky Linux 9.4: roles need Debian or Ubuntu"]
    assert "firewall: nftables drops in inet office input what no rule lets in" in words(
        hosts[HOSTS[WALL]], "in the way"
    )
    assert hosts[HOSTS[OFF]]["grade"] == "no answer"
    assert "no answer within 10 s" in hosts[HOSTS[OFF]]["silent"]

    for word in ("db.office", "Rocky Linux 9.4", "inet office input", "no answer", "impossible"):
        assert word in printed
    assert "nothing was changed, for it cannot work: " in stopped
    assert "Rocky Linux 9.4: roles need Debian or Ubuntu" in stopped
    assert "consul.service of somebody's runs" in stopped
    assert not (checkout.files / "contract.json").exists(), "nothing was made"

    after = listing(machines)
    assert {name: changed for name in HOSTS if (changed := sorted(before[name] ^ after[name]))} == {}


def test_a_machine_that_is_well_is_fine(checkout: Checkout, machines: Machines) -> None:
    hall = machines.region("hall", checkout.cidr(0), machines.pool("control", HEALTHY))
    checkout.declare({"name": "mine", "regions": [hall | {"timezone": "Etc/UTC"}]})
    printed = checkout.run("exec", "causeway", "doctor", checkout.stack)
    assert "1 machine: 0 impossible, 0 in the way, 0 adopted, 1 fine" in printed


def test_without_python_or_sudo_a_shell_says_so(checkout: Checkout, machines: Machines) -> None:
    machines.on(
        FAR, "sh", "-ec", "useradd --create-home --shell /bin/sh guest && cp -r /root/.ssh /home/guest/"
    )
    machines.on(FAR, "chown", "--recursive", "guest:", "/home/guest")
    region = machines.region("far", checkout.cidr(1), machines.pool("control", FAR), ssh_user="guest")
    checkout.declare({"name": "mine", "regions": [region]})
    hosts, _ = doctor(checkout)
    assert words(hosts[HOSTS[FAR]], "impossible") == ["sudo: sudo asks guest for a password"]
    machines.on(FAR, "mv", "/usr/bin/python3", "/usr/bin/python3.away")
    hosts, _ = doctor(checkout)
    assert words(hosts[HOSTS[FAR]], "impossible")[1:] == ["Python: there is no /usr/bin/python3"]
    assert sweep.leftovers(checkout.stack) == []
