"""What can be said about a machine without being root on it."""

import os
from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import host, vms

NEEDS = host.Requirements("local", {"tokyo": IPv4Network("10.81.0.0/16")}, nodes=3)


def test_requirements_come_from_plain_values() -> None:
    plain = {"stack": "local", "cidrs": {"tokyo": "10.81.0.0/16"}, "nodes": 3.0, "checkout": "/x"}
    assert host.Requirements.of(plain) == NEEDS


def test_a_user_who_is_not_root_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CausewayError, match="need root"):
        host.require(NEEDS)


def test_several_problems_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [host.Problem("no disk", "make room"), host.Problem("no podman", "install it")]
    monkeypatch.setattr(host, "problems", lambda _: found)
    with pytest.raises(CausewayError) as error:
        host.require(NEEDS)
    for words in ("for 2 reasons", "no disk", "make room", "no podman", "install it"):
        assert words in str(error.value)


def test_memory_counts_the_nodes_that_stand_already() -> None:
    assert host.capacity(standing=5) >= 5


def test_machines_that_do_not_fit_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_free_mib", lambda: 5000)
    monkeypatch.setattr(vms, "running", lambda _: {"tokyo-gpu-0"})
    memory = {f"tokyo-gpu-{number}": 1024 for number in range(6)}
    found = list(host._vm_memory_problems(replace(NEEDS, nodes=6, vm_memory_mib=memory), 0))
    assert [
        p.message
        for p in found
        if "6 virtual machines are declared, and this machine's free memory holds 4" in p.message
    ]
    fewer = replace(NEEDS, nodes=4, vm_memory_mib=dict(list(memory.items())[:4]))
    assert list(host._vm_memory_problems(fewer, 0)) == []
    assert list(host._vm_memory_problems(fewer, 20)) != [], (
        "containers that are still to come take theirs first"
    )


def test_a_failed_command_says_what_it_was_and_what_it_said() -> None:
    with pytest.raises(CausewayError) as error:
        run(["sh", "-c", "echo first; echo why >&2; exit 7"], hint="do this")
    assert "status 7" in error.value.message
    assert "why" in error.value.message
    assert error.value.hint == "do this"


def test_a_missing_program_and_a_slow_one_are_told_apart() -> None:
    with pytest.raises(CausewayError, match="`no-such-program` is not installed"):
        run(["no-such-program"])
    with pytest.raises(CausewayError, match=r"did not end within 0\.1 s"):
        run(["sleep", "5"], timeout_s=0.1)
