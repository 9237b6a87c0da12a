"""systemd reads its units where something may have changed since it last did, and not in vain."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.converge.reloads import Reloads

SERVICE = "ansible.builtin.systemd_service"


def task(action: str = SERVICE, delegate_to: str | None = None, **arguments: Any) -> Any:
    return SimpleNamespace(action=action, args=arguments, delegate_to=delegate_to)


START = task(name="consul.service", state="started", daemon_reload=True)
COPY = task("ansible.builtin.template", dest="/etc/systemd/system/consul.service")


class Run:
    """A run of Ansible on hosts; `step` says whether systemd was told to read its units."""

    def __init__(self) -> None:
        self.reloads = Reloads()

    def step(
        self,
        what: Any,
        host: str = "a",
        *,
        changed: bool = False,
        failed: bool = False,
        skipped: bool = False,
    ) -> bool:
        before = dict(what.args)
        with self.reloads.only_due(host, what):
            told = bool(what.args.get("daemon_reload"))
        assert what.args == before
        self.reloads.note(host, what, changed=changed, failed=failed, skipped=skipped)
        return told


def test_the_first_of_a_run_is_due_and_no_other_while_nothing_changes() -> None:
    run = Run()
    assert run.step(START)
    run.step(COPY)
    assert not run.step(START)
    assert not run.step(START, changed=True)
    assert not run.step(START), "a service that was started wrote no unit"
    assert run.step(START, "b"), "another host"


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("by", [COPY, task("ansible.builtin.apt", name="x"), task("causeway_undo")])
def test_what_changed_something_or_may_have_makes_it_due(by: Any, failed: bool) -> None:
    run = Run()
    run.step(START)
    run.step(by, changed=not failed, failed=failed)
    assert run.step(START)
    assert not run.step(START)


def test_one_that_failed_or_was_left_out_has_read_nothing() -> None:
    run = Run()
    run.step(START, failed=True)
    run.step(START, skipped=True)
    assert run.step(START)


def test_what_is_done_on_another_host_makes_it_due_on_all() -> None:
    run = Run()
    run.step(START)
    run.step(START, "b")
    run.step(task("ansible.builtin.command", delegate_to="b"), changed=True)
    assert run.step(START)
    assert run.step(START, "b")


@pytest.mark.parametrize(
    "other",
    [
        task(daemon_reload=True),
        task(name="x", daemon_reload="{{ it }}"),
        task(name="x", scope="user", daemon_reload=True),
        task(name="x", daemon_reload=True, delegate_to="b"),
    ],
)
def test_others_are_as_they_are_written(other: Any) -> None:
    run = Run()
    run.step(START)
    assert run.step(other)


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([START, COPY]), st.booleans()))


@given(steps=STEPS)
def test_no_service_is_started_by_what_systemd_has_not_read(steps: list[tuple[str, Any, bool]]) -> None:
    """As if each reload were done: whatever was written lies behind one when a service is started."""
    run, unread = Run(), {"a", "b"}
    for host, what, changed in steps:
        told = run.step(what, host, changed=changed)
        if what is START:
            assert told == (host in unread)
            unread.discard(host)
        elif changed:
            unread.add(host)
