"""A handler whose run ended before its turn has it in the next one, and no other run."""

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.drift import owed as notes
from infra.drift.manifest import drift_dir, forget_host
from infra.drift.owed import Owed, forget_owed, owed, owed_path
from tests.patience import wait_for

ROOT = Path(__file__).resolve().parents[2]
PLAY = """
- hosts: all
  gather_facts: false
  roles: [daemon]
"""
TASKS = """
- name: Configure
  ansible.builtin.copy: {content: "{{ level | default('info') }}", dest: "{{ there }}/conf", mode: "0644"}
  notify: Restart the daemon
- name: Configure slowly
  ansible.builtin.shell: test -e {{ there }}/slow || { echo made; touch {{ there }}/slow; sleep 20; }
  register: __slow
  changed_when: "'made' in __slow.stdout"
  notify: "{{ 'Tell ' ~ 'others' }}"
  when: slow is defined
- name: Fail
  ansible.builtin.fail: {msg: no}
  when: broken is defined
"""
HANDLERS = """
- {name: Restart the daemon, ansible.builtin.shell: "echo restarted >>{{ there }}/done", changed_when: true}
- name: Tell them
  listen: Tell others
  ansible.builtin.shell: "echo told >>{{ there }}/done"
  changed_when: true
"""


class Site:
    """A stack of one host, this machine, with one role."""

    def __init__(self, folder: Path, stack: str) -> None:
        self.folder, self.stack, self.there = folder, stack, folder / "node"
        self.log = folder / "log"
        self.there.mkdir()
        for name, text in (("tasks", TASKS), ("handlers", HANDLERS)):
            file = folder / "roles" / "daemon" / name / "main.yml"
            file.parent.mkdir(parents=True)
            file.write_text(text)
        (folder / "play.yml").write_text(PLAY)
        given_to = f"ansible_connection=local causeway_stack={stack} there={self.there}"
        (folder / "hosts").write_text(f"[all]\nnode {given_to}\n[all:vars]\ncauseway_stack={stack}\n")

    def start(self, *words: str) -> "subprocess.Popen[str]":
        environment = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(self.folder / "roles"),
            "ANSIBLE_CALLBACKS_ENABLED": "causeway_durations",
            "ANSIBLE_HOME": str(self.folder),
        }
        return subprocess.Popen(
            ["ansible-playbook", "-i", "hosts", "play.yml", *words],
            cwd=self.folder,
            env=os.environ | environment,
            stdout=self.log.open("w"),  # no pipe: what a killed run had started may hold it
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, expect: int = 0) -> list[str]:
        """What handlers did in a run."""
        process = self.start(*words)
        assert process.wait(timeout=120) == expect, self.log.read_text()
        done = self.there / "done"
        found = done.read_text().split() if done.exists() else []
        done.unlink(missing_ok=True)
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    stack = f"owed-{secrets.token_hex(4)}"
    yield Site(tmp_path, stack)
    shutil.rmtree(drift_dir(stack).parent, ignore_errors=True)


def test_a_handler_is_due_after_a_run_that_failed(site: Site) -> None:
    assert site.run("-e", "broken=1", expect=2) == []
    assert owed(site.stack, "node") == {"daemon": ["Restart the daemon"]}
    assert site.run("--check") == []
    assert site.run() == ["restarted"]
    assert not owed_path(site.stack, "node").exists()
    assert site.run() == []


def test_a_handler_is_due_after_a_run_that_was_killed_in_the_task(site: Site) -> None:
    process = site.start("-e", "slow=1")
    wait_for((site.there / "slow").exists, "the task to change something")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    assert site.run("-e", "slow=1") == ["restarted", "told"], "this one by what it listens to"
    assert not owed_path(site.stack, "node").exists()


NAMES = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
OUTCOMES = st.sampled_from(("same", "changed", "failed", "killed"))
STEPS = st.lists(st.tuples(st.sampled_from("rs"), NAMES, OUTCOMES))


@given(steps=STEPS)
def test_what_may_have_been_done_is_owed_and_nothing_else(
    steps: list[tuple[str, list[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tasks of two roles, one after the other; after a killed one another run goes on."""
    folder = tmp_path_factory.mktemp("drift")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(notes, "ROOT", folder)
        run, expected = Owed("x"), dict[str, set[str]]()
        for number, (role, names, outcome) in enumerate(steps):
            run.begin("node", role, str(number), names)
            assert set(owed("x", "node").get(role, ())) == expected.get(role, set()) | set(names)
            if outcome == "killed":
                run = Owed("x")
            else:
                notified = names if outcome == "changed" else []
                run.end("node", role, str(number), notified, unclear=outcome == "failed")
            if outcome != "same":
                expected[role] = expected.get(role, set()) | set(names)
            assert {one: set(left) for one, left in owed("x", "node").items()} == {
                one: left for one, left in expected.items() if left
            }
        run.settle("node", "r")
        assert set(owed("x", "node")) <= {"s"}
        forget_owed("x", "node", ["s"])
        assert owed("x", "node") == {}
        assert not list(folder.rglob("*.owed"))


def test_a_host_that_is_gone_is_owed_nothing(site: Site) -> None:
    Owed(site.stack).begin("node", "daemon", "1", ["Restart the daemon"])
    assert json.loads(owed_path(site.stack, "node").read_text())
    forget_host(site.stack, "node")
    assert not owed_path(site.stack, "node").exists()
