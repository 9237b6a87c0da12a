"""Machines you already have: configured and proven by SSH, never created, and left running by `down`."""

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from infra.providers.local import sweep
from tests.integration.checkout import Checkout, containers, said
from tests.integration.machines import Machines, standing
from tests.photograph import photographs

PROVES = ("existing",)
TOOLS = ("consul",)

NAMES = ("machine-0", "machine-1")
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"

USERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqBqDHZ/KXKmhYaL93/jxJxnoSp/pxzjvdkxrVFGUfc night@desk"
ADMIN = """
useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
"""
"""As clouds hand machines over. Whoever becomes root later, beside what is declared, is a difference."""
NO_ROOT = """
mv /root/.ssh /home/admin/ && chown --recursive admin: /home/admin/.ssh
"""
"""From here on nobody comes in as root."""
THEIRS = "192.0.2.9 db.office"


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    with standing(checkout, {"machine": 2}, {"machine-1": "bookworm"}) as made:
        for name in NAMES:
            made.on(name, "sh", "-ec", ADMIN)
            made.on(name, "sh", "-c", f"printf '%s' '{THEIRS}' >>/etc/hosts")  # and no newline after it
        yield made


@pytest.fixture(scope="module")
def before(machines: Machines) -> dict[str, set[str]]:
    """The machines as they were when somebody handed them over."""
    return photographs(machines.on, NAMES)


def declaration(checkout: Checkout, machines: Machines, **host_keys: str) -> dict[str, Any]:
    """A region of both machines; by its name, a machine may be declared with another host key."""
    pool = machines.pool("control", *NAMES, **host_keys)
    region = machines.region("hall", checkout.cidr(0), pool, adopt={"hosts_file": "managed_block"})
    return {"name": "mine", "regions": [region]}


def test_a_dry_run_shows_what_would_change_and_writes_nothing(
    checkout: Checkout, machines: Machines, before: dict[str, set[str]]
) -> None:
    checkout.declare(declaration(checkout, machines, machine_1=OTHER_KEY))
    printed = checkout.run("up", checkout.stack, "--dry-run")
    assert re.search(r"left out: hall-control-1: .*host key", printed, re.IGNORECASE)
    assert "machines asked: 1, of which would change: 1; nothing was written there" in printed
    assert re.search(r" +--- /etc/hosts\n(.*\n)+? +\+\S+ hall-control-0\n", printed)
    hardened = r"base: Harden sshd: hall-control-0\n(  .*\n)+?  \+PasswordAuthentication no\n"
    assert re.search(hardened, printed)
    assert "not told: base: Run chrony: hall-control-0: " in printed, (
        "it is not installed, and the rest goes on"
    )
    assert "drift_watch: " in printed
    assert not (checkout.files / "contract.json").exists()
    after = photographs(machines.on, NAMES)
    for name in NAMES:
        assert not before[name] ^ after[name], "\n".join(sorted(before[name] ^ after[name]))


def test_a_machine_with_another_host_key_is_refused_and_named(
    checkout: Checkout, machines: Machines, before: dict[str, set[str]]
) -> None:
    assert before
    checkout.declare(declaration(checkout, machines, machine_1=OTHER_KEY))
    printed = checkout.up(expect=1)
    assert "hall-control-1: no answer by SSH: Host key verification failed." in printed
    assert "hall-control-1 unreachable" in printed
    assert machines.on(NAMES[0], "date", "+%Z") == "JST", "the other one is configured"
    assert machines.on(NAMES[1], "date", "+%Z") != "JST", "and nothing was sent to this one"


def test_with_the_right_keys_both_are_configured_and_proven(checkout: Checkout, machines: Machines) -> None:
    runs = len(checkout.configured())
    checkout.declare(declaration(checkout, machines))
    printed = checkout.up()
    assert "0 failed, 0 unreachable" in printed
    assert machines.on(NAMES[1], "date", "+%Z") == "JST"
    assert machines.on(NAMES[1], "hostname") == "hall-control-1"
    assert checkout.configured()[runs:] == [{"hall-control-1"}]
    assert checkout.changes() == {}
    assert containers(checkout.stack) == {}, "no node was made"
    assert "it has another name" in printed, "of the machine that is new"
    all_is_fine(checkout)


def all_is_fine(checkout: Checkout) -> None:
    """What stands there is ours, and in nobody's way."""
    said = checkout.run("exec", "causeway", "doctor", checkout.stack)
    assert "2 machines: 0 impossible, 0 in the way, 2 adopted, 0 fine" in said
    assert f"entries of somebody's stay in /etc/hosts: {THEIRS}" in said


LETS_IN_AND_IS_SILENT = "/etc/ssh/sshd_config.d/00-silent.conf"


@pytest.mark.long
def test_a_machine_that_is_off_or_silent_fails_every_up_by_its_name(
    checkout: Checkout, machines: Machines
) -> None:
    runs, container = checkout.configured(), machines.container(NAMES[1])
    said("podman", "pause", container)
    try:
        for _ in range(2):
            printed = checkout.up(expect=1)
            assert re.search(r"[1-9]\d* effective, .* 1 unreachable", printed), "counts of now"
            assert re.search(r"unreachable +hall-control-1: ", printed)
            assert f"Stack {checkout.stack} stands" not in printed
    finally:
        said("podman", "unpause", container)
    assert "0 failed, 0 unreachable (what changed verified now, the rest since " in checkout.up()
    again = checkout.up()
    assert "0 failed, 0 unreachable (what changed verified at " in again, "nothing had to be done"
    assert checkout.configured() == runs, "there was nothing to configure at any time"

    silent = f"echo ForceCommand sleep 3600 >{LETS_IN_AND_IS_SILENT} && systemctl reload ssh"
    machines.on(NAMES[1], "sh", "-c", silent)
    printed = checkout.up(expect=1)
    assert "hall-control-1 failed: logged in, then no answer" in printed
    assert re.search(r"unreachable +hall-control-1: ", printed)
    machines.on(NAMES[1], "sh", "-c", f"rm {LETS_IN_AND_IS_SILENT} && systemctl reload ssh")
    assert "0 failed, 0 unreachable (what changed verified now, the rest since " in checkout.up()
    assert checkout.changes() == {}


def test_a_user_with_sudo_configures_scans_repairs_and_proves(checkout: Checkout, machines: Machines) -> None:
    for name in NAMES:
        machines.on(name, "sh", "-ec", NO_ROOT)
    declared = declaration(checkout, machines)
    declared["regions"][0]["provider"]["ssh_user"] = "admin"
    checkout.declare(declared | {"authorized_keys": [USERS_KEY]})
    assert "0 failed, 0 unreachable" in checkout.up()
    assert USERS_KEY in machines.on(NAMES[0], "cat", "/home/admin/.ssh/authorized_keys")
    scan = ["exec", "causeway", "drift", checkout.stack]
    assert "2 clean" in checkout.run(*scan)
    machines.on(NAMES[1], "sh", "-c", "chmod 0600 /etc/chrony/chrony.conf && systemctl stop chrony")
    machines.on(NAMES[1], "sh", "-c", r"sed -i '/hall-control-0$/d; $a # their own' /etc/hosts")
    found = checkout.run(*scan, expect=3)
    assert re.search(r"managed_block /etc/hosts: missing: \S+ hall-control-0\n", found)
    assert "mode is 0600, expected 0644" in found
    checkout.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    assert "2 clean" in checkout.run(*scan)
    hosts = machines.on(NAMES[1], "cat", "/etc/hosts")
    assert {THEIRS, "# their own"} < set(hosts.splitlines()), "what is theirs is no difference, and stays"
    assert machines.on(NAMES[1], "getent", "hosts", "hall-control-0").split()[1] == "hall-control-0"
    machines.on(NAMES[1], "sed", "-i", "/# their own/d", "/etc/hosts")


def test_down_leaves_the_machines_as_they_are(checkout: Checkout, machines: Machines) -> None:
    before = containers(machines.stack)
    booted = [machines.on(name, "stat", "-c", "%y", "/proc/1") for name in NAMES]
    said = checkout.run("down", checkout.stack)
    assert "nothing is left" not in said
    for number, name in enumerate(NAMES):
        address = machines.states[name].address
        assert f"hall-control-{number} ({address}): base, names, drift_watch\n" in said
    assert containers(machines.stack) == before
    assert [machines.on(name, "stat", "-c", "%y", "/proc/1") for name in NAMES] == booted
    assert [machines.on(name, "date", "+%Z") for name in NAMES] == ["JST", "JST"]
    assert sweep.leftovers(checkout.stack) == []


def kept(checkout: Checkout) -> dict[str, str]:
    """Name → text of the stack's secrets and of its SSH key."""
    found = [*checkout.files.glob("secrets/*"), *checkout.files.glob("ssh/id_*")]
    return {path.name: path.read_text() for path in found}


@pytest.mark.long
def test_after_a_down_the_next_up_goes_on_with_the_same_authority_and_keys(
    checkout: Checkout, machines: Machines
) -> None:
    declared = declaration(checkout, machines)
    declared["regions"][0]["provider"]["ssh_user"] = "admin"
    checkout.declare(declared)  # and no key of the user's any more
    printed = checkout.up()
    assert "0 failed, 0 unreachable" in printed
    revoked = [line for line in printed.splitlines() if "not repaired by the roles" in line]
    assert all("keys added: " in line and "night@desk" in line for line in revoked)
    named = {line.count("/home/admin/.ssh/authorized_keys") for line in revoked}
    assert named == {1}, "the key that was taken out of the declaration, and not the stack's own"
    for name in NAMES:
        machines.on(name, "sed", "-i", "/night@desk/d", "/home/admin/.ssh/authorized_keys")
    assert "2 clean" in checkout.run("exec", "causeway", "drift", checkout.stack)
    checkout.declare(declared | {"discovery": {"kind": "consul"}})
    a_consul_of_theirs_is_not_taken_over(checkout, machines)
    assert "0 failed, 0 unreachable" in checkout.up()
    all_is_fine(checkout)
    before = kept(checkout)
    assert {"consul-ca", "consul-ca.crt", "id_ed25519"} <= before.keys()
    trusted = machines.on(NAMES[0], "sha256sum", "/etc/consul.d/ca.pem")
    shutil.rmtree(checkout.files / "secrets")  # as on another controller: only the state has them
    assert "hall-control-1" in checkout.run("down", checkout.stack)
    assert kept(checkout) == before
    assert {path.name for path in checkout.files.iterdir()} == {
        *("contract.json", "drift", "identities.json", "secrets", "ssh")
    }
    assert "2 clean" in checkout.run("exec", "causeway", "drift", checkout.stack)
    assert "0 failed, 0 unreachable" in checkout.up()
    assert kept(checkout) == before
    assert machines.on(NAMES[0], "sha256sum", "/etc/consul.d/ca.pem") == trusted


def a_consul_of_theirs_is_not_taken_over(checkout: Checkout, machines: Machines) -> None:
    """Neither by `up`, which looks first, nor by a playbook that somebody starts."""
    unit = "/etc/systemd/system/consul.service"
    text = "[Service]\\nExecStart=/bin/sleep infinity\\n"
    machines.on(NAMES[1], "sh", "-ec", f"printf '{text}' >{unit}; systemctl start consul")
    runs = checkout.configured()
    printed = checkout.up(expect=1)
    assert "nothing was changed, for it cannot work: hall-control-1: " in printed
    assert "consul.service of somebody's runs, and role consul would set it up anew" in printed
    assert checkout.configured() == runs
    asked = {"roles": ["consul"], "services": {"consul": ["consul.service"]}}
    module = ("-M", "playbooks/library", "-m", "causeway_before", "-a", json.dumps(asked))
    inventory = f"inventories/{checkout.stack}"
    refused = checkout.run("exec", "ansible", "hall-control-1", "-i", inventory, *module, expect=2)
    assert "nothing was changed here: consul.service of somebody's runs" in refused
    assert "take_over: [consul]" in refused
    assert machines.on(NAMES[1], "systemctl", "is-active", "consul") == "active"
    machines.on(NAMES[1], "sh", "-ec", f"systemctl stop consul; rm {unit}; systemctl daemon-reload")


@pytest.mark.long
def test_a_machine_that_is_taken_out_alone_is_given_back_and_no_name_moves(
    checkout: Checkout, machines: Machines, before: dict[str, set[str]]
) -> None:
    declared = declaration(checkout, machines) | {"discovery": {"kind": "consul"}}
    declared["regions"][0]["provider"]["ssh_user"] = "admin"
    pool = declared["regions"][0]["pools"][0]
    hosts = pool["hosts"]
    pool["count"], address = 1, hosts.pop(0)["address"]
    checkout.declare(declared)
    printed = checkout.up(expect=1)
    assert f"{hosts[0]['address']} is hall-control-1, and would be hall-control-0" in printed
    assert f"is the name of {address}" in printed
    assert machines.on(NAMES[1], "hostname") == "hall-control-1"

    hosts[0]["name"] = "hall-control-1"
    checkout.declare(declared)
    standing = photographs(machines.on, NAMES)
    printed = checkout.run("up", checkout.stack, "--dry-run")
    assert "declared no more, and would be given back: hall-control-0" in printed
    assert "consul would leave: hall-control-0\n" in printed
    assert re.search(r"Bring the node back .*: hall-control-0\n(  .*\n)*  removed /etc/consul\.d\n", printed)
    assert "left out" not in printed
    after = photographs(machines.on, NAMES)
    assert not [standing[name] ^ after[name] for name in NAMES if standing[name] ^ after[name]]
    assert "hall-control-0" in checkout.run("exec", "causeway", "drift", checkout.stack), "its record stays"

    printed = checkout.up()
    assert "declared no more, and given back: hall-control-0" in printed
    assert "0 failed, 0 unreachable" in printed
    assert not before[NAMES[0]] ^ photographs(machines.on, NAMES)[NAMES[0]]
    assert "hall-control-0" not in machines.on(NAMES[1], "cat", "/etc/hosts")
    assert not (checkout.files / "drift" / "hall-control-0.json").exists()
    assert checkout.changes() == {}
    checkout.run("down", checkout.stack)
    assert "hall-control-1" in checkout.run("down", checkout.stack), "said again, as long as they are kept"


def test_a_down_that_takes_the_roles_off_gives_everything_back(
    checkout: Checkout, machines: Machines, before: dict[str, set[str]]
) -> None:
    said = checkout.run("down", checkout.stack, "--remove-roles", "--purge-data")
    assert f"Stack {checkout.stack} is gone: nothing is left of it." in said
    after = photographs(machines.on, NAMES)
    for name in NAMES:
        assert not before[name] ^ after[name], "\n".join(sorted(before[name] ^ after[name]))
    assert not checkout.files.exists()
