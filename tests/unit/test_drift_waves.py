"""A node that cannot be repaired stops itself only; a task that no node gets through stops the repair."""

import os
import re
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra.drift.waves import COMMON, Stop, Waves

ROOT = Path(__file__).resolve().parents[2]
REPAIR = ROOT / "playbooks" / "repair.yml"
PLAYS = """
- hosts: nodes
  gather_facts: false
  serial: "{{ repair_serial }}"
  tasks:
    - {name: Clear, ansible.builtin.fail: {msg: "[Errno 28] No space left on device"}, when: clear is defined}
- hosts: nodes
  gather_facts: false
  serial: "{{ repair_serial }}"
  tasks:
    - {name: Base, ansible.builtin.fail: {msg: "[Errno 16] Device or resource busy"}, when: base is defined}
    - name: Die
      ansible.builtin.ping:
      when: dead is defined
      vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
    - {name: Notify, ansible.builtin.debug: {msg: x}, changed_when: true, notify: Restart}
  handlers:
    - {name: Restart, ansible.builtin.fail: {msg: will not start}, when: handler is defined}
- hosts: two
  gather_facts: false
  serial: "{{ repair_serial }}"
  tasks:
    - {name: Second, ansible.builtin.debug: {msg: "second of {{ inventory_hostname }}"}}
- hosts: nodes
  gather_facts: false
  tasks:
    - name: Proof
      ansible.builtin.debug: {msg: "proof of {{ ansible_play_hosts | join(' ') }}."}
      run_once: true
    - {name: Differs, ansible.builtin.fail: {msg: still differs}, when: differs is defined}
- hosts: elsewhere
  gather_facts: false
  tasks:
    - {name: Last, ansible.builtin.debug: {msg: "the last play"}}
"""
NODES = 6


def ansible(folder: Path, broken: dict[int, str], stands: str = "causeway_repair={}") -> tuple[int, str]:
    """Exit status and output of those plays; of the nodes some are BROKEN: number → by which variable."""
    lines = [
        f"n{number} ansible_connection=local {stands} {broken.get(number, 'x')}=1" for number in range(NODES)
    ]
    (folder / "hosts").write_text(
        "\n".join(
            ["[nodes]", *lines, "[two]", "n0", "n4", "[elsewhere]", "other ansible_connection=local", ""]
        )
    )
    (folder / "plays.yml").write_text(PLAYS)
    repair = YAML(typ="safe").load(REPAIR)
    default = re.search(r"default\((.*?)\)", next(play["serial"] for play in repair if "serial" in play))
    assert default
    serial = f'{{"repair_serial": {default[1]}}}'.replace("'", '"')
    done = subprocess.run(
        ["ansible-playbook", "-i", folder / "hosts", folder / "plays.yml", "-e", serial],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout + done.stderr


def proven(said: str) -> set[str]:
    found = re.search(r"proof of ([^.]*)\.", said)
    return set(found[1].split()) if found else set()


def test_what_stops_a_node_stops_no_other(tmp_path: Path) -> None:
    broken = {0: "clear", 1: "base", 2: "handler", 3: "dead"}
    status, said = ansible(tmp_path, broken)
    stopped = {f"n{number}" for number in broken}
    assert status != 0
    assert proven(said) == {f"n{number}" for number in range(NODES)} - stopped
    assert "second of n4" in said
    assert "second of n0" not in said
    assert "the last play" in said
    end = said.partition("PLAY RECAP")[2]
    assert {host for host in stopped if f"{host} was not repaired: " in end} == stopped
    for words in ("make room", "`umount` takes it off", "mend that on the node", "bring it back"):
        assert end.count(words) == 1


def test_nodes_that_still_differ_do_not_end_the_run_before_its_last_play(tmp_path: Path) -> None:
    status, said = ansible(tmp_path, dict.fromkeys(range(NODES), "differs"))
    assert status != 0
    assert "the last play" in said
    assert "was not repaired" not in said, "what failed in the proof names itself"


def test_a_broken_role_reaches_three_nodes(tmp_path: Path) -> None:
    status, said = ansible(tmp_path, dict.fromkeys(range(NODES), "base"))
    assert status != 0
    assert set(re.findall(r"(n\d) was not repaired: Base", said)) == {"n0", "n1", "n2"}
    assert "the repair was stopped: 3 nodes" in said
    assert "--limit 'all:!n0:!n1:!n2'" in said
    assert "the last play" not in said


def test_a_run_that_is_no_repair_is_ansibles_own(tmp_path: Path) -> None:
    status, said = ansible(tmp_path, {0: "base"}, stands="y=1")
    assert status == 2
    assert "was not repaired" not in said
    assert proven(said) == set()


TASKS = st.sampled_from(["clear", "template", "restart"])


@given(
    st.lists(st.none() | TASKS, min_size=1, max_size=40),
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
)
def test_of_any_nodes_in_any_waves(nodes: list[str | None], sizes: list[int]) -> None:
    """A node's task is where it fails. Those that come to their turn are repaired or named; the rest are left
    only where so many in a row failed in one task, without anybody who got through it."""
    waves, tried, left = Waves(), list[str | None](), list(nodes)
    going = True
    while left and going:
        size = sizes.pop(0) if sizes else len(left)
        wave, left = left[:size], left[size:]
        names = [f"n{len(tried) + number}" for number in range(len(wave))]
        failed = {name: Stop(task, "no") for name, task in zip(names, wave, strict=True) if task}
        tried += wave
        going = waves.ended("play", names, failed)
        if going:
            assert not waves.common
    assert set(waves.aside) == {f"n{number}" for number, task in enumerate(tried) if task}
    if left or not going:
        since = tried[max((n + 1 for n, task in enumerate(tried) if task is None), default=0) :]
        assert since.count(waves.common) >= COMMON
    assert ("the repair was stopped" in "\n".join(waves.in_words())) == (not going)


def test_one_broken_task_is_told_from_nodes_with_troubles_of_their_own() -> None:
    waves = Waves()
    assert waves.ended("base", ["a"], {"a": Stop("mount", "x")})
    assert waves.ended("base", ["b", "c"], {"b": Stop("apt", "x"), "c": Stop("restart", "x")})
    assert waves.ended("consul", ["d"], {"d": Stop("apt", "x")}), "another play counts anew"
    assert waves.ended("consul", ["e", "f"], {"e": Stop("apt", "x"), "f": Stop("mount", "x")})
    assert not waves.ended("consul", ["g"], {"g": Stop("apt", "x")})
    assert waves.common == "apt"
