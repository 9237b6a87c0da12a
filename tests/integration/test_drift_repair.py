"""The repair as a user runs it: only what drifted, only where it did, and nothing of a stranger's unasked."""

import json
from typing import Any

import pytest

from tests.integration.checkout import Checkout, commit, two_regions

A, B = "tokyo-gpu-0", "shanghai-control-0"
ANSIBLE_FAILED = 2
STRANGER = "/etc/ssh/sshd_config.d/99-stranger.conf"


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> Checkout:
    """A stack that was just stood up."""
    checkout.declare(two_regions(checkout))
    commit(checkout.folder)
    checkout.up()
    return checkout


def scan(checkout: Checkout, *words: str, expect: int = 0) -> dict[str, Any]:
    """Node → report."""
    text = checkout.run("exec", "causeway", "drift", checkout.stack, "--json", *words, expect=expect)
    reports = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {report["host"]: report for report in reports}


def command(checkout: Checkout, *words: str) -> list[str]:
    """`./run`'s words for a repair without the proof, which the table's test has."""
    inventory = f"inventories/{checkout.stack}"
    playbook = ["ansible-playbook", "playbooks/repair.yml", "-i", inventory, "-e", "repair_verify=false"]
    return ["exec", *playbook, *words]


def test_nothing_to_repair_is_said_and_nothing_is_done(standing: Checkout) -> None:
    text = standing.run(*command(standing))
    assert "nothing to repair" in text
    assert "changed=0" in text
    assert "base :" not in text


def test_check_shows_what_would_be_done_and_does_nothing(standing: Checkout) -> None:
    standing.on_node(A, "sh", "-c", "echo '# changed' >> /etc/hosts")
    text = standing.run(*command(standing, "--check"))
    assert "base: file /etc/hosts: its content differs" in text
    assert "# changed" in standing.on_node(A, "cat", "/etc/hosts")


def test_only_the_drifted_role_runs_on_only_the_drifted_node(standing: Checkout) -> None:
    text = standing.run(*command(standing))
    assert "tcp_tuning :" not in text
    assert f"changed: [{B}]" not in text
    assert scan(standing)[A]["state"] == "clean"


def test_what_somebody_added_goes_with_consent_only(standing: Checkout) -> None:
    standing.on_node(A, "sh", "-c", f"echo 'MaxSessions 3' > {STRANGER} && systemctl reload ssh")
    text = standing.run(*command(standing), expect=ANSIBLE_FAILED)
    assert "repair_remove_added=true" in text
    assert standing.on_node(A, "cat", STRANGER) == "MaxSessions 3"
    text = standing.run(*command(standing, "-e", "repair_remove_added=true"))
    assert "Reload sshd" in text, "the running sshd has to learn of it"
    assert scan(standing)[A]["state"] == "clean"
