"""A node that cannot be repaired stops itself only; a task that fails twice alike is not tried on others."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra.drift.waves import ALIKE, Stop, Waves
from infra.plugins.strategy.causeway_linear import has_ahead

ROOT = Path(__file__).resolve().parents[2]
REPAIR = ROOT / "playbooks" / "repair.yml"
PLAYS = """
- name: Clear the way
  hosts: nodes
  gather_facts: false
  serial: "{{ repair_serial }}"
  tasks:
    - {name: Clear, ansible.builtin.fail: {msg: "[Errno 28] No space left on device"}, when: clear is defined}
- name: The walls
  hosts: nodes
  gather_facts: false
  serial: "{{ repair_serial }}"
  vars: {causeway_role: wall}
  roles: [wall]
- name: The doors
  hosts: nodes
  gather_facts: false
  serial: "{{ repair_serial }}"
  vars: {causeway_role: door}
  tasks:
    - {name: Second, ansible.builtin.debug: {msg: "second of {{ inventory_hostname }}"}}
- name: The end
  hosts: nodes
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
WALL = """
- {name: Base, ansible.builtin.fail: {msg: "[Errno 16] Device or resource busy"}, when: base is defined}
- name: Die
  ansible.builtin.ping:
  when: dead is defined
  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
- {name: Plaster, ansible.builtin.debug: {msg: "plaster of {{ inventory_hostname }}"}}
- {name: Notify, ansible.builtin.debug: {msg: x}, changed_when: true, notify: Restart}
"""
HANDLERS = """
- name: Restart
  ansible.builtin.fail: {msg: "will not start: {{ inventory_hostname }}"}
  when: handler is defined
"""
NODES = 6


def ansible(
    folder: Path,
    broken: dict[int, str],
    stands: str = "causeway_repair={}",
    settled: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[int, str]:
    """Exit status and output of those plays; of the nodes some are BROKEN: number → by which variable.

    SETTLED: number → tasks of the role `wall` that this node does not need.
    """
    lines = []
    for number in range(NODES):
        roles = json.dumps({"wall": settled.get(number, ())}, separators=(",", ":"))
        words = (stands, f"causeway_settled_tasks='{roles}'", f"{broken.get(number, 'x')}=1")
        lines.append(f"n{number} ansible_connection=local {' '.join(words)}")
    elsewhere = ["[elsewhere]", "other ansible_connection=local", ""]
    (folder / "hosts").write_text("\n".join(["[nodes]", *lines, *elsewhere]))
    (folder / "plays.yml").write_text(PLAYS)
    for part, text in (("tasks", WALL), ("handlers", HANDLERS)):
        (folder / "roles" / "wall" / part).mkdir(parents=True)
        (folder / "roles" / "wall" / part / "main.yml").write_text(text)
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


def of_task(words: str, said: str) -> set[str]:
    """The nodes on which a task said WORDS of itself."""
    return set(re.findall(rf"{words} of (n\d)\b", said))


ALL = {f"n{number}" for number in range(NODES)}


def test_what_stops_a_node_stops_no_other(tmp_path: Path) -> None:
    broken = {0: "clear", 1: "base", 2: "handler", 3: "dead"}
    status, said = ansible(tmp_path, broken)
    stopped = {f"n{number}" for number in broken}
    assert status != 0
    assert proven(said) == ALL - stopped
    assert of_task("second", said) == ALL - stopped
    assert "the last play" in said
    end = said.partition("PLAY RECAP")[2]
    assert {host for host in stopped if f"{host} was not repaired: " in end} == stopped
    for words in ("make room", "`umount` takes it off", "mend that on the node", "bring it back"):
        assert end.count(words) == 1
    assert "in the same way" not in end


def test_nodes_that_still_differ_do_not_end_the_run_before_its_last_play(tmp_path: Path) -> None:
    status, said = ansible(tmp_path, dict.fromkeys(range(NODES), "differs"))
    assert status != 0
    assert "the last play" in said
    assert "was not repaired" not in said, "what failed in the proof names itself"


def test_a_broken_task_is_left_out_where_it_is_still_ahead(tmp_path: Path) -> None:
    """The first node fails, and then two at once. The others come to the other role, and to the proof."""
    status, said = ansible(tmp_path, dict.fromkeys(range(NODES), "base"))
    failed = {"n0", "n1", "n2"}
    assert status != 0
    assert set(re.findall(r"(n\d) was not repaired: wall : Base", said)) == failed
    assert of_task("plaster", said) == set(), "what the role does before or after it is left out, too"
    assert of_task("second", said) == ALL - failed
    assert proven(said) == ALL - failed
    assert "the last play" in said
    end = said.partition("PLAY RECAP")[2]
    assert "wall : Base failed on n0…2 in the same way: [Errno 16] Device or resource busy" in end
    assert "not tried on n3…5: the role wall was left out there" in end


def test_who_does_not_need_the_broken_task_goes_on(tmp_path: Path) -> None:
    settled = {3: ("Base",), 5: ("Base",)}
    _, said = ansible(tmp_path, dict.fromkeys(range(NODES), "base"), settled=settled)
    assert of_task("plaster", said) == {"n3", "n5"}
    assert "not tried on n4: the role wall" in said


def test_a_broken_handler_is_left_out_with_the_tasks_that_would_have_it_run(tmp_path: Path) -> None:
    settled = {4: ("Notify",)}
    _, said = ansible(tmp_path, dict.fromkeys(range(NODES), "handler"), settled=settled)
    assert of_task("plaster", said) == {"n0", "n1", "n2", "n4"}
    assert "Restart failed on n0…2 in the same way: will not start" in said
    assert "not tried on n3, n5: the role wall" in said


def test_nodes_that_are_gone_stop_no_task(tmp_path: Path) -> None:
    _, said = ansible(tmp_path, {0: "dead", 1: "dead", 2: "dead"})
    assert of_task("second", said) == {"n3", "n4", "n5"}
    assert of_task("plaster", said) == {"n3", "n4", "n5"}


@pytest.mark.parametrize(("path", "goes_on"), [("/etc/wall", False), ("/etc/door", True)])
def test_of_what_is_in_the_way_only_the_same_thing_is_left(path: str, goes_on: bool) -> None:
    said = f"[Errno 30] Read-only file system: '/aside/20261124T1200Z{path}'. Done so far: /etc/wall: thawed"
    task = SimpleNamespace(action="causeway_drift_prepare")
    host = SimpleNamespace(vars={"causeway_repair": {"obstacles": {"thaw": ["/etc/wall"]}}})
    assert has_ahead(host, Stop("Bring back", said, ansibles=task), None) is not goes_on


def test_a_run_that_is_no_repair_is_ansibles_own(tmp_path: Path) -> None:
    status, said = ansible(tmp_path, {0: "base"}, stands="y=1")
    assert status == 2
    assert "was not repaired" not in said
    assert proven(said) == set()


TASKS = st.sampled_from(["clear", "template", "restart"])
WORDS = st.sampled_from(["no", "never"])


@given(
    st.lists(st.none() | st.tuples(TASKS, WORDS), min_size=1, max_size=40),
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
)
def test_of_any_nodes_in_any_waves(nodes: list[tuple[str, str] | None], sizes: list[int]) -> None:
    """A node's task is where it would fail, and how. A task is stopped once two nodes failed there alike;
    every node is either tried, or spared for a task of its own that is stopped."""
    waves, left, tried = Waves(), list(enumerate(nodes)), dict[str, tuple[str, str] | None]()
    while left:
        size = sizes.pop(0) if sizes else len(left)
        wave, left = left[:size], left[size:]
        halts = {halt.stop.task: halt for halt in waves.halts("play")}
        ran = {}
        for number, fails in wave:
            if fails and fails[0] in halts:
                waves.spare(f"n{number}", halts[fails[0]])
            else:
                ran[f"n{number}"] = fails
        waves.ended("play", "role", {name: Stop(*fails) for name, fails in ran.items() if fails})
        tried |= ran
        alike = Counter(fails for fails in tried.values() if fails)
        assert {halt.stop.task for halt in waves.halts("play")} == {
            task for (task, _), number in alike.items() if number >= ALIKE
        }
    assert waves.halts("another play") == []
    assert set(waves.aside) == {name for name, fails in tried.items() if fails}
    assert waves.spared == {
        f"n{number}": {"role"} for number in range(len(nodes)) if f"n{number}" not in tried
    }
    said = "\n".join(waves.in_words())
    assert ("in the same way" in said) == bool(waves.halts("play"))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("n1: no room for /tmp/ansible-tmp-1.2/x", "n2: no room for /tmp/ansible-tmp-3.4/x", True),
        ("port 22 of 10.0.0.1 is taken", "port 22 of 10.0.0.2 is taken", True),
        ("'/etc/a' is busy. Done so far: nothing", "'/etc/a' is busy. Done so far: set x", True),
        ("'/etc/a' is busy", "'/etc/b' is busy", False),
        ("[Errno 28] No space left on device", "[Errno 16] Device or resource busy", False),
    ],
)
def test_what_is_a_nodes_own_makes_no_other_way(one: str, other: str, alike: bool) -> None:
    waves = Waves()
    waves.ended("base", "base", {"n1": Stop("apt", one)})
    waves.ended("base", "base", {"n2": Stop("apt", other)})
    assert bool(waves.halts("base")) is alike


def test_where_no_role_is_stopped_the_whole_node_is_left_alone() -> None:
    waves = Waves()
    waves.ended("clear", "", {"a": Stop("clear", "x"), "b": Stop("clear", "x")})
    waves.spare("c", waves.halts("clear")[0])
    assert set(waves.aside) == {"a", "b", "c"}
    assert "not tried on c: nothing was repaired there" in "\n".join(waves.in_words())
