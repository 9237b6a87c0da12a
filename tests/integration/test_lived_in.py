"""Machines that another admin runs: all of it is named, goes on working under ours, and is there afterwards.

One of each release of Debian that we know, behind a jump host.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from infra.cached import cache_folder
from infra.inventory.steps import values
from tests.integration.checkout import Checkout, said
from tests.integration.machines import Machines, standing
from tests.patience import wait_for
from tests.photograph import photographs

PROVES = ("existing",)
TOOLS = ("consul",)

NAMES, JUMP = ("hall-0", "hall-1"), "hall-2"
OWN = {"hall-0": "db1", "hall-1": "db2"}
PACKAGES = """
export DEBIAN_FRONTEND=noninteractive
apt-get -qq install --no-install-recommends chrony frr keepalived wireguard-go wireguard-tools >/dev/null
umask 077; wg genkey >/etc/wireguard/office.key && wg pubkey </etc/wireguard/office.key
"""
OFFICE = """
own=$1 peer=$2 number=$3 other=$4 shared=$5 jump=$6 theirs=$7
echo "db$number" >/etc/hostname && hostname "db$number"
printf '192.0.2.9 db.office' >>/etc/hosts  # and no newline after it

printf 'server 192.0.2.123 iburst\\nmakestep 1 3\\n' >/etc/chrony/chrony.conf
echo 'DAEMON_OPTS="-F 1 -x"' >/etc/default/chrony
mkdir -p /etc/systemd/system/chrony.service.d
printf '[Unit]\\nConditionCapability=\\n' >/etc/systemd/system/chrony.service.d/office.conf

sed -i s/bgpd=no/bgpd=yes/ /etc/frr/daemons
cat >/etc/frr/frr.conf <<END
router bgp 6500$number
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor $peer remote-as 6500$other
 neighbor $peer timers connect 1
 network 203.0.113.$number/32
END
cat >/etc/keepalived/keepalived.conf <<END
vrrp_instance office {
  interface eth0
  virtual_router_id 77
  priority 10$number
  virtual_ipaddress { $shared }
}
END
cat >/etc/wireguard/wg-office.conf <<END
[Interface]
PrivateKey = $(cat /etc/wireguard/office.key)
ListenPort = 51820
Address = 10.99.0.$number/24
[Peer]
PublicKey = $theirs
Endpoint = $peer:51820
AllowedIPs = 10.99.0.$other/32
END
cat >/etc/ssh/sshd_config.d/00-office.conf <<END
AllowUsers root@$jump
KexAlgorithms ecdh-sha2-nistp384
Ciphers aes256-ctr
MACs hmac-sha2-512-etm@openssh.com
HostKeyAlgorithms ssh-ed25519
MaxAuthTries 2
PasswordAuthentication yes
END
systemctl daemon-reload
systemctl enable --quiet wg-quick@wg-office
systemctl restart chrony frr keepalived wg-quick@wg-office ssh
"""
CONSUL = """
cat >/etc/systemd/system/consul.service <<END
[Service]
ExecStart=/usr/bin/consul agent -server -bootstrap-expect=1 -datacenter=office -bind=$1 \\
  -data-dir=/var/lib/consul -config-dir=/etc/consul.d -log-level=warn
[Install]
WantedBy=multi-user.target
END
mkdir -p /etc/consul.d
systemctl daemon-reload && systemctl enable --quiet --now consul
"""
CLOUD = """
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq install --no-install-recommends cloud-init >/dev/null
mkdir -p /var/lib/cloud/seed/nocloud && cd /var/lib/cloud/seed/nocloud
printf 'instance-id: i-1\\nlocal-hostname: db1\\n' >meta-data
printf '#cloud-config\\nmanage_etc_hosts: true\\npreserve_hostname: false\\n' >user-data
printf 'datasource_list: [NoCloud]\\nmanage_etc_hosts: true\\n' >/etc/cloud/cloud.cfg.d/99-office.cfg
echo '192.0.2.9 db.office' >>/etc/cloud/templates/hosts.debian.tmpl
cloud-init init --local
"""
WRITE_HOSTS = "cloud-init single --name update_etc_hosts --frequency always >/dev/null"
"""As at every boot."""


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    with standing(checkout, {"hall": 3}, {"hall-1": "bookworm"}) as made:
        keys = {name: made.on(name, "sh", "-ec", PACKAGES).splitlines()[-1] for name in NAMES}
        addresses = {name: str(made.states[name].address) for name in (*NAMES, JUMP)}
        program = cache_folder() / f"consul-{values('consul')['consul_version']}" / "consul"
        said("podman", "cp", str(program), f"{made.container(NAMES[0])}:/usr/bin/consul")
        for number, name in enumerate(NAMES, 1):
            other = NAMES[number % 2]
            words = (addresses[name], addresses[other], number, 3 - number, shared(checkout))
            given = (*map(str, words), addresses[JUMP], keys[other])
            made.on(name, "sh", "-ec", OFFICE, "office", *given)
        made.on(NAMES[0], "sh", "-ec", CONSUL, "consul", addresses[NAMES[0]])
        made.on(NAMES[0], "sh", "-ec", CLOUD + WRITE_HOSTS)
        works(made)
        made.on(NAMES[0], "consul", "kv", "put", "office/kept", "theirs")
        yield made


def shared(checkout: Checkout) -> str:
    """The address that one of the two has, by VRRP."""
    return checkout.cidr(0).replace(".0/20", ".77")


ASKED = {
    "FRR has a route of its neighbour's": (
        "vtysh -c 'show bgp ipv4 unicast json'",
        r"203\.0\.113\.{other}/32",
    ),
    "wg-office leads to the other one": ("ping -c 1 -W 2 10.99.0.{other}", " 0% packet loss"),
    "chrony asks whom it asked": ("chronyc -n sources", r"192\.0\.2\.123"),
    "it has its own name": ("hostname", "^db{number}$"),
    "db.office is known": ("getent hosts db.office", r"192\.0\.2\.9"),
    "sshd takes passwords": ("sshd -T", "^passwordauthentication yes$"),
}
"""What has to be so → how a user would see it, and what they would see."""
ALONE = {
    "hall-0": {"Consul has its member": ("consul members", "^db1 .* alive .* office ")},
    "hall-1": {"keepalived holds the address": ("ip -4 -brief address show eth0", r"\.77/")},
}


def broken(machines: Machines) -> list[str]:
    """What does not do what it is there for."""
    found = []
    for number, name in enumerate(NAMES, 1):
        for what, (command, expected) in {**ASKED, **ALONE[name]}.items():
            words = {"number": number, "other": 3 - number}
            said = machines.on(name, "sh", "-c", f"{command.format(**words)} 2>&1 || true")
            if not re.search(expected.format(**words), said, re.MULTILINE):
                found.append(f"{name}: not so: {what}: {said[-300:]}")
    return found


def works(machines: Machines) -> None:
    """Come back once all does what it is there for: what was started again may be on its way still."""
    found: list[str] = []

    def whole() -> bool:
        found[:] = broken(machines)
        return not found

    try:
        wait_for(whole, "the office to run")
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *found])) from None


@pytest.fixture(scope="module")
def before(machines: Machines) -> dict[str, set[str]]:
    """The machines as they were when somebody let us in."""
    works(machines)
    return photographs(machines.on, NAMES)


@pytest.fixture(scope="module")
def declared(checkout: Checkout, machines: Machines) -> dict[str, Any]:
    pool = machines.pool("control", *NAMES)
    for name, host in zip(NAMES, pool["hosts"], strict=True):
        host["name"] = OWN[name]
    jump = machines.states[JUMP]
    kept = ("hostname", "time_servers", "timezone", "locale", "passwords", "unattended_upgrades", "resolver")
    region = machines.region(
        "hall",
        checkout.cidr(0),
        pool,
        ssh_jump=[{"address": str(jump.address), "host_key": jump.host_key}],
        adopt={**dict.fromkeys(kept, "keep"), "hosts_file": "managed_block"},
    )
    cluster = {"name": "mine", "regions": [region]}
    checkout.declare(cluster)
    return cluster


@pytest.mark.usefixtures("declared", "before")
def test_all_that_runs_there_is_named(checkout: Checkout) -> None:
    printed = checkout.run("exec", "causeway", "doctor", checkout.stack, "--json", expect=1)
    hosts = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["hosts"]
    for name in ("db1", "db2"):
        adopted = "\n".join(
            f"{one['about']}: {one['says']}" for one in hosts[name]["findings"] if one["grade"] == "adopted"
        )
        for words in (
            "frr.service runs, and stays as it is",
            "keepalived.service runs, and stays as it is",
            "tunnel wg-office stays",
            "chrony stays as it is",
            "entries of somebody's stay in /etc/hosts: 192.0.2.9 db.office",
            "by password stay as sshd's other files have them",
        ):
            assert words in adopted
        assert ("consul.service runs, and stays as it is" in adopted) == (name == "db1")
        assert not [one for one in hosts[name]["findings"] if one["grade"] == "impossible"]
    in_the_way = {one["says"] for one in hosts["db1"]["findings"] if one["grade"] == "in the way"}
    assert "cloud-init writes /etc/hosts at every boot" in in_the_way


@pytest.mark.usefixtures("declared")
def test_it_goes_on_working_under_ours(checkout: Checkout, machines: Machines) -> None:
    printed = checkout.up()
    assert "0 failed, 0 unreachable" in printed
    works(machines)
    assert machines.on(NAMES[0], "consul", "kv", "get", "office/kept") == "theirs"
    assert "2 clean" in checkout.run("exec", "causeway", "drift", checkout.stack)
    assert machines.on(NAMES[0], "getent", "hosts", "db2").split()[0] == str(
        machines.states[NAMES[1]].address
    )
    assert checkout.changes() == {}


@pytest.mark.usefixtures("declared")
def test_a_cloud_init_that_insists_is_found_and_mended(checkout: Checkout, machines: Machines) -> None:
    machines.on(NAMES[0], "sh", "-ec", WRITE_HOSTS)
    found = checkout.run("exec", "causeway", "drift", checkout.stack, expect=3)
    assert "managed_block /etc/hosts: missing" in found
    checkout.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    assert "2 clean" in checkout.run("exec", "causeway", "drift", checkout.stack)


@pytest.mark.usefixtures("declared")
def test_all_of_it_is_there_afterwards(
    checkout: Checkout, machines: Machines, before: dict[str, set[str]]
) -> None:
    printed = checkout.run("down", checkout.stack, "--remove-roles", "--purge-data")
    assert f"Stack {checkout.stack} is gone: nothing is left of it." in printed
    works(machines)
    after = photographs(machines.on, NAMES)
    for name in NAMES:
        assert not before[name] ^ after[name], "\n".join(sorted(before[name] ^ after[name]))
    assert machines.on(NAMES[0], "consul", "kv", "get", "office/kept") == "theirs"
