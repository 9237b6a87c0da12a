"""Roles that leave: out of the declaration, off the nodes, and the nodes as they were. One story."""

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.checkout import Checkout, commit, region
from tests.patience import wait_for
from tests.photograph import photographs

PROVES = ("consul", "drift")
TOOLS = ("consul",)
NODES = ("tokyo-control-0", "tokyo-gpu-0")
SETTINGS, EDITED = "/etc/default/consul", "EDITED=at-night"


def declared(checkout: Checkout, **more: Any) -> dict[str, Any]:
    tokyo = region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1, "gpu": 1})
    tokyo["pools"][1]["roles"] = {"exclude": ["drift_watch"]}
    return {"name": "pacific", "regions": [tokyo], **more}


@pytest.fixture(scope="module")
def before(checkout: Checkout) -> dict[str, set[str]]:
    """The nodes without the role, which then comes; somebody edits a file of it."""
    checkout.declare(declared(checkout))
    commit(checkout.folder)
    checkout.up()
    taken = photographs(checkout.on_node, NODES)
    checkout.declare(declared(checkout, discovery={"kind": "consul"}))
    assert "0 failed, 0 unreachable" in checkout.up()
    assert photographs(checkout.on_node, NODES) != taken
    checkout.on_node(NODES[1], "sh", "-c", f"echo {EDITED} >> {SETTINGS}")
    return taken


def test_what_would_be_lost_waits_for_consent(checkout: Checkout, before: dict[str, set[str]]) -> None:
    assert before
    checkout.declare(declared(checkout))
    printed = checkout.up(expect=1)
    assert f"leave: [{{role: consul, hosts: [{', '.join(NODES)}]}}]" in printed
    assert checkout.on_node(NODES[0], "systemctl", "is-active", "consul") == "active"


def test_a_run_that_is_killed_or_held_up_while_a_role_leaves_is_completed(
    checkout: Checkout, before: dict[str, set[str]]
) -> None:
    assert before
    checkout.declare(declared(checkout, leave=[{"role": "consul", "hosts": ["all"]}]))
    checkout.on_node(NODES[1], "mount", "--bind", SETTINGS, SETTINGS)
    process = checkout.start("up", checkout.stack)
    gone = (
        "podman",
        "exec",
        f"cw-{checkout.stack}-{NODES[0]}",
        "test",
        "!",
        "-e",
        "/etc/consul.d/consul.hcl",
    )
    wait_for(lambda: succeeds(*gone), "the role to have begun to leave")
    checkout.kill(process)
    printed = checkout.up(expect=1)
    assert f"removed {SETTINGS}: failed: [Errno 16] Device or resource busy" in printed, "it is held"
    way_out = rf"--limit {NODES[1]}\s+-e leave_roles=\S*consul\S*\s+-e leave_stuck=true"
    assert re.search(way_out, printed), "what leaves it where it is for good"
    assert ["consul" in roles for roles in map(recorded(checkout), NODES)] == [False, True]
    checkout.on_node(NODES[1], "umount", SETTINGS)
    assert "0 failed, 0 unreachable" in checkout.up()
    assert checkout.changes() == {}


def recorded(checkout: Checkout) -> Callable[[str], set[str]]:
    """The roles in a node's record."""
    drift = checkout.files / "drift"
    return lambda node: set(json.loads((drift / f"{node}.json").read_text())["roles"])


def succeeds(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_the_nodes_are_as_they_were(checkout: Checkout, before: dict[str, set[str]]) -> None:
    after = photographs(checkout.on_node, NODES)
    for node in NODES:
        assert not before[node] ^ after[node], "\n".join(sorted(before[node] ^ after[node]))


def test_no_record_has_it_any_more_and_nothing_differs(
    checkout: Checkout, before: dict[str, set[str]]
) -> None:
    assert before
    said = checkout.run("exec", "causeway", "drift", checkout.stack, "--json")
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {report["state"] for report in reports if "host" in report} == {"clean"}
    for node, roles in zip(NODES, ({"base", "names", "drift_watch"}, {"base", "names"}), strict=True):
        assert recorded(checkout)(node) == roles, "a pool leaves one out"


def test_data_stays_and_what_somebody_has_edited_is_kept(
    checkout: Checkout, before: dict[str, set[str]]
) -> None:
    assert before
    assert checkout.on_node(NODES[0], "ls", "/var/lib/consul/raft")
    kept = checkout.on_node(NODES[1], "sh", "-c", f"cat /var/lib/causeway/aside/*{SETTINGS}")
    assert EDITED in kept


@pytest.mark.long
def test_a_role_that_comes_again_finds_its_data_and_leaves_by_name(
    checkout: Checkout, before: dict[str, set[str]]
) -> None:
    checkout.declare(declared(checkout, discovery={"kind": "consul"}))
    assert "0 failed, 0 unreachable" in checkout.up()
    playbook = ["ansible-playbook", "playbooks/leave.yml", "-i", f"inventories/{checkout.stack}"]
    said = checkout.run("exec", *playbook, "-e", "leave_roles=consul", "-e", "leave_purge_data=true")
    assert "removed /var/lib/consul with its data" in said
    checkout.declare(declared(checkout))  # what answers for names without it is there before it, and after
    assert "0 failed, 0 unreachable" in checkout.up()
    after = photographs(checkout.on_node, NODES)
    for node in NODES:
        assert not before[node] ^ after[node], "\n".join(sorted(before[node] ^ after[node]))
