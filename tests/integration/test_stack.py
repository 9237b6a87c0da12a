"""What a user does, from `./run up` to `./run down`, on a clone of this checkout. The tests are one story."""

import json
import re
import time
from typing import Any

import pytest

from infra.process import run
from infra.providers.local import sweep
from tests.integration.checkout import Checkout, commit, said, two_regions

PROVES = ("local", "base", "tcp_tuning", "verification")

SLOW_MS = 80
"""Another test may have the machine busy; how well a link keeps to its delay is for test_local_engine.py."""
COMMENTED = "roles/tcp_tuning/tasks/main.yml"
"""Has another comment than the first `up` found, from one test on."""


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> str:
    """What the first `up` printed."""
    checkout.declare(two_regions(checkout))
    commit(checkout.folder)
    return checkout.run("up", checkout.stack)


def changed(cluster: dict[str, Any], region: int, **changes: Any) -> dict[str, Any]:
    """The declaration with some keys of one region changed."""
    regions = list(cluster["regions"])
    regions[region] = regions[region] | changes
    return cluster | {"regions": regions}


def test_up_shows_what_stands_and_what_the_link_really_carries(checkout: Checkout, standing: str) -> None:
    assert f"Stack {checkout.stack} stands" in standing
    assert set(checkout.instances()) == {"tokyo-control-0", "tokyo-gpu-0", "shanghai-control-0"}
    row = next(line for line in standing.splitlines() if "trans-sea" in line and "(20)" in line)
    rtt_ms, rate_mbps = (
        float(found) for found in re.findall(r"([\d.]+) (?:cubic )?\((?:20|50 cubic)\)", row)
    )
    assert 20 <= rtt_ms < SLOW_MS, "the declared delay is really there"
    assert 0 < rate_mbps < 55, "and the declared rate holds"
    assert re.search(r"checks: [1-9]\d* effective.*\b0 failed, 0 unreachable", standing)


@pytest.mark.usefixtures("standing")
def test_a_preview_after_up_shows_no_change(checkout: Checkout) -> None:
    assert checkout.changes() == {}


@pytest.mark.usefixtures("standing")
def test_a_second_up_touches_no_host(checkout: Checkout) -> None:
    before, runs = checkout.instances(), checkout.configured()
    started = time.monotonic()
    checkout.up()
    print(f"up with nothing to change: {time.monotonic() - started:.0f} s")
    assert checkout.instances() == before
    assert checkout.configured() == runs, "no role ran again"


@pytest.mark.usefixtures("standing")
def test_a_changed_time_zone_reaches_the_nodes_of_its_region_and_no_others(checkout: Checkout) -> None:
    before, runs = checkout.instances(), checkout.configured()
    checkout.declare(changed(two_regions(checkout), 0, timezone="Asia/Seoul"))
    assert checkout.changes() == {
        "inventory": "update",
        "configure-tokyo": "update",
        "verification": "update",
    }
    assert "2 hosts: base on 2\n" in checkout.up()
    zones = {node: checkout.on_node(node, "date", "+%Z") for node in before}
    assert zones == {"tokyo-control-0": "KST", "tokyo-gpu-0": "KST", "shanghai-control-0": "CST"}
    assert checkout.instances() == before, "the nodes are the same ones"
    assert checkout.configured()[len(runs) :] == [{"tokyo-control-0", "tokyo-gpu-0"}]
    assert "base : Set the timezone" in checkout.tasks_run()
    assert (
        not {"base : Generate locales", "base : Harden sshd", "base : Configure chrony"}
        & checkout.tasks_run()
    )
    checkout.run("exec", "causeway", "drift", checkout.stack)


@pytest.mark.usefixtures("standing")
def test_a_comment_in_a_role_runs_that_role_alone(checkout: Checkout) -> None:
    tasks = checkout.folder / COMMENTED
    tasks.write_text(tasks.read_text() + "# why\n")
    scan = checkout.run("exec", "causeway", "drift", checkout.stack, expect=3)
    assert "tcp_tuning: stale" in scan
    assert "base: stale" not in scan
    told = checkout.up()
    assert "2 hosts: tcp_tuning on 2\n" in told
    assert "1 host: tcp_tuning on 1\n" in told
    own = {task for task in checkout.tasks_run() if task.startswith("tcp_tuning : ")}
    assert {"tcp_tuning : Tune TCP", "tcp_tuning : Run it"} >= {
        task for task in own if "Validating" not in task
    }
    checkout.run("exec", "causeway", "drift", checkout.stack)
    assert checkout.changes() == {}


@pytest.mark.usefixtures("standing")
def test_the_wan_is_measured_with_both_congestion_controls(checkout: Checkout) -> None:
    found = checkout.measured()
    declared = found["declared"]
    assert found["mtu_bytes"] == declared["mtu_bytes"] == 1500
    assert declared["rtt_ms"] == 20
    assert 20 <= found["rtt_ms"] < SLOW_MS
    assert found["loss_pct"] <= 5, "a hundred times the declared loss would not be luck"
    assert found["configured"]["congestion_control"] == declared["congestion_control"] == "cubic"
    assert found["other"]["congestion_control"] == "bbr"
    assert 0 < found["configured"]["mbps"] < 55
    assert 0 < found["other"]["mbps"] < 55


@pytest.mark.usefixtures("standing")
def test_a_missing_iperf3_fails_the_measurement_and_not_the_stack(checkout: Checkout) -> None:
    tool, away = "/usr/bin/iperf3", "/usr/bin/iperf3.away"
    checkout.on_node("tokyo-control-0", "mv", tool, away)
    try:
        found = checkout.measured(expect=1)
        assert found["lacking"] == "no iperf3 on tokyo-control-0: install it (apt-get install iperf3)"
        assert found["rtt_ms"] >= 20
        assert found["configured"] is None
        assert found["lacking"] in checkout.up("--measure")
    finally:
        checkout.on_node("tokyo-control-0", "mv", away, tool)


@pytest.mark.usefixtures("standing")
def test_ansibles_own_commands_work_on_the_stack(checkout: Checkout) -> None:
    inventory = f"inventories/{checkout.stack}"
    listed = checkout.run("exec", "ansible-inventory", "-i", inventory, "--list")
    data = json.loads(listed[listed.index("{") :])
    assert set(data["_meta"]["hostvars"]) == {"tokyo-control-0", "tokyo-gpu-0", "shanghai-control-0"}
    assert data["pool_tokyo_gpu"]["hosts"] == ["tokyo-gpu-0"]
    assert "PRIVATE KEY" not in listed
    checkout.run("exec", "ansible-playbook", "playbooks/verify.yml", "-i", inventory)


@pytest.mark.usefixtures("standing")
def test_a_daemon_that_hangs_is_named_and_the_verification_ends(checkout: Checkout) -> None:
    """It is stopped by a signal: systemd says active, and whoever asks it waits."""
    hung = "tokyo-gpu-0"
    verification = [
        "python",
        "-m",
        "infra.verify.verification",
        "--inventory",
        f"inventories/{checkout.stack}",
    ]
    checkout.on_node(hung, "systemctl", "kill", "--signal=STOP", "chrony.service")
    try:
        text = checkout.run("exec", *verification, "--json", expect=1)
    finally:
        checkout.on_node(hung, "systemctl", "kill", "--signal=CONT", "chrony.service")
    checks = json.loads(text[text.index("{") :])["checks"]
    bad = [check for check in checks if check["verdict"] in ("failed", "unreachable")]
    assert {check["host"] for check in bad} == {hung}
    assert {"chrony answers", "chrony asks the declared servers"} <= {check["name"] for check in bad}
    assert any("hung: not done within" in check["message"] for check in bad), "chronyc waits for 7 s"
    proven = {(c["host"], c["role"]) for c in checks if c["verdict"] == "effective"}
    assert {(host, "base") for host in checkout.instances()} <= proven, "also what else there is on that node"


@pytest.mark.usefixtures("standing")
def test_a_pool_grows_by_one_node_and_the_others_stay(checkout: Checkout) -> None:
    before = checkout.instances()
    grown = changed(two_regions(checkout), 0, timezone="Asia/Seoul")
    grown["regions"][0]["pools"][1] |= {"count": 2}
    checkout.declare(grown)
    told = checkout.up()
    assert "2 hosts: base on 1, tcp_tuning on 1, names on 2, drift_watch on 1\n" in told
    assert "1 host: names on 1\n" in told, "of the others, those that answer for names learn one"
    after = checkout.instances()
    assert set(after) - set(before) == {"tokyo-gpu-1"}
    assert before.items() <= after.items()
    assert checkout.on_node("tokyo-gpu-1", "date", "+%Z") == "KST"
    for node in after:
        assert checkout.address("tokyo-gpu-1") in checkout.on_node(node, "getent", "ahostsv4", "tokyo-gpu-1")


@pytest.mark.usefixtures("standing")
def test_down_leaves_nothing(checkout: Checkout) -> None:
    said("git", "-C", str(checkout.folder), "checkout", "-q", COMMENTED)
    checkout.declare(two_regions(checkout))
    checkout.run("down", checkout.stack)
    assert sweep.leftovers(checkout.stack) == []
    assert checkout.stack not in run(["ip", "netns", "list"]) + run(["ip", "link", "show"])
    assert checkout.stack not in run(["ps", "-eo", "args"])
    assert not checkout.files.exists()
    assert not list((checkout.folder / ".causeway" / "locks").iterdir())
    stacks = checkout.run("exec", "pulumi", "stack", "ls", "--json")
    assert json.loads(stacks[stacks.index("[") :]) == []
    assert said("git", "-C", str(checkout.folder), "status", "--porcelain") == "", "git sees no trace"
