"""A kind of drift is one file: the engine finds it, and what it says runs on a node and on the controller."""

import ast
import builtins
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import ROOT
from infra.drift import manifest as manifests
from infra.drift.answer import read_answer
from infra.drift.assembly import PYTHON, probe_source, script
from infra.drift.claims import claims_of
from infra.drift.compared import untouched
from infra.drift.findings import explain
from infra.drift.kind import Task
from infra.drift.kinds import KINDS, kind_files, kind_of
from infra.drift.looks import Look
from infra.drift.manifest import Entry, Manifest, RoleManifest, load_manifest
from infra.drift.probe import entries_of, request_of
from roles.base.drift import sshd
from roles.dns_stub.drift.resolver import NO_RESOLVER_LINK, RESOLVED, look_at_resolver
from tests.unit.test_drift_repair import plan_for

WALL = '''
"""wall: the colour of a wall."""

from __future__ import annotations

from infra.drift.kind import Claim, Kind, is_text
from infra.drift.node import words_of


def look_at_wall(node, key, how):
    """Its colour."""
    return {"colour": words_of(key)}


def painted(task):
    """A coat of paint."""
    yield Claim("wall", task.args["path"], {"colour": task.args["colour"]})


class Wall(Kind):
    """A wall."""

    def explain(self, expected, found):
        """As painters say it."""
        return f"was painted {found['colour']} over {expected['colour']}"

    def obstacle(self, found, difference, manifest):
        """Who painted it may have locked it."""
        found.thaw.append(difference.key)
        found.run("unlocked the wall", "unlock", difference.key)


KINDS = (Wall("wall", look_at_wall, {"colour": is_text}, modules={"paint": painted}, stands_alone=True),)
'''
PAINT = """
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"path": {"type": "path"}, "colour": {}})
wall = Path(module.params["path"])
changed = not wall.exists() or wall.read_text() != module.params["colour"]
wall.write_text(module.params["colour"])
module.exit_json(changed=changed)
"""
TASKS = """
- name: Paint the wall
  paint: {path: "{{ there }}", colour: red}
- name: Paint the ceiling
  paint: {path: "{{ there }}.ceiling", colour: white}
"""
PLAY = "- {hosts: all, gather_facts: false, roles: [house]}\n"
DRIVER = '''
"""Seals the records of a run, or scans and plans, with this machine in the place of the node."""

import asyncio, json, subprocess, sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

from infra.drift import scan, seal, trip
from infra.drift.coverage import role_coverage
from infra.drift.manifest import load_manifest
from infra.drift.repair import host_plan
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.declaration import ClusterSpec

pool = {"name": "n", "role": "control", "count": 1}
region = {"name": "r", "provider": {"kind": "local"}, "cidr": "10.81.0.0/16", "pools": [pool]}
spec = ClusterSpec.model_validate({"name": "c", "regions": [region]})
contract = build_contract(spec, make_plan(spec), "s")
(host,) = contract.hosts
inputs = {host: {"house": "i"}}


class Connection:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass


async def connect(trips, host):
    return Connection()


async def execute(connection, command, data, *limits):
    done = subprocess.run(["sh", "-c", command], input=data, stdout=subprocess.PIPE)
    return done.stdout, b"", done.returncode


scan.NODE_COPY = seal.NODE_COPY = str(Path("copy.json").resolve())
trip.Trips.open, trip.Trips.as_root = connect, lambda trips, host, command: command
trip.execute = seal.execute = execute
seal.Inputs = lambda *given: SimpleNamespace(all=lambda: inputs)
seal.TaskInputs = lambda known: SimpleNamespace(of=lambda *given: {})
seal.load_contract = lambda path: contract
if sys.argv[1:]:
    answer = {"problems": seal.seal_run("s", {host: json.loads(Path(sys.argv[1]).read_text())["node"]})}
else:
    report = asyncio.run(scan.Scanner(contract, inputs).host(host))
    manifest = load_manifest("s", host)
    answer = {"message": report.message, "differences": [str(found) for found in report.differences]}
    answer["kinds"] = [(entry.kind, entry.key, entry.want) for entry in manifest.roles["house"].entries]
    answer["plan"] = asdict(host_plan(report, manifest))
    answer["covered"] = role_coverage("house").covered
print(json.dumps(answer))
'''


class Copy:
    """A checkout of its own, with a role that has a kind."""

    def __init__(self, folder: Path) -> None:
        self.root, self.wall = folder / "checkout", folder / "wall"
        skipped = shutil.ignore_patterns("molecule", "__pycache__")
        for name in ("infra", "roles"):
            shutil.copytree(ROOT / name, self.root / name, ignore=skipped, symlinks=True)
        shutil.copy(ROOT / "ansible.cfg", self.root)
        self.write("roles/house/tasks/main.yml", TASKS)
        self.write("roles/house/library/paint.py", PAINT)
        self.write("play.yml", PLAY)
        self.write("driver.py", DRIVER)

    def write(self, path: str, text: str) -> None:
        """A file of it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command in it, that knows nothing of this checkout."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "LC_ALL": "C.UTF-8", **variables}
        return subprocess.run(
            words, cwd=self.root, env=environment, text=True, capture_output=True, check=False
        )

    def python(self, *words: str) -> Any:
        """What a program of it prints, as JSON."""
        done = self.run(sys.executable, *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def converge(self) -> None:
        """Run the role on this machine, and seal what was recorded."""
        given = json.dumps({"there": str(self.wall), "ansible_connection": "local"})
        done = self.run(
            *("ansible-playbook", "-i", "node,", "-e", given, "play.yml"),
            ANSIBLE_CONFIG=str(self.root / "ansible.cfg"),
            ANSIBLE_INVENTORY_ENABLED="ansible.builtin.host_list",
            CAUSEWAY_RECORD=str(self.root / "record.json"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.python("driver.py", "record.json") == {"problems": []}


def test_a_kind_is_one_file(tmp_path: Path) -> None:
    """From the task that makes it true to the plan that repairs it; nothing else in the checkout names it."""
    copy = Copy(tmp_path)
    copy.write("roles/house/drift/wall.py", WALL)
    copy.converge()
    found = copy.python("driver.py")
    wall, ceiling = str(copy.wall), f"{copy.wall}.ceiling"
    assert found["kinds"] == [["wall", wall, {"colour": "red"}], ["wall", ceiling, {"colour": "white"}]]
    assert found["covered"] == ["Paint the wall (paint)", "Paint the ceiling (paint)"]
    assert (found["message"], found["differences"], found["plan"]["roles"]) == ("", [], [])
    copy.wall.write_text("blue")
    found = copy.python("driver.py")
    assert found["differences"] == [f"wall {wall}: was painted blue over red"]
    assert found["plan"]["roles"] == ["house"]
    assert found["plan"]["obstacles"]["thaw"] == [wall]
    assert found["plan"]["obstacles"]["commands"] == [{"what": "unlocked the wall", "argv": ["unlock", wall]}]
    assert found["plan"]["settled"] == {"house": ["Paint the ceiling"]}
    copy.converge()
    assert copy.python("driver.py")["differences"] == []
    (copy.root / "roles/house/drift/wall.py").unlink()
    found = copy.python("driver.py")
    unknown = "cannot be read: this version of Causeway has no kind wall"
    assert found["differences"] == [f"wall {wall}: {unknown}", f"wall {ceiling}: {unknown}"]
    assert found["plan"]["roles"] == ["house"], "its next run is sealed without"


TWICE = (
    ("wall.py", WALL, "wall.py", "both have the kind wall"),
    ("more.py", WALL.replace('"wall"', '"more"'), "", "the kinds wall and more both record tasks of paint"),
    ("more.py", WALL.replace('"wall"', '"more"').replace('"paint"', '"wipe"').replace('["colour"]', '["x"]'),
     "more.py", "look_at_wall is two things in"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "text", "named", "words"), TWICE, ids=["kind", "module", "function"])
def test_what_two_files_would_both_be_is_said(
    tmp_path: Path, name: str, text: str, named: str, words: str
) -> None:
    copy = Copy(tmp_path)
    copy.write("roles/house/drift/wall.py", WALL)
    if words.startswith("look"):
        text = text.replace("words_of(key)", "words_of(key + '.more')")
    copy.write(f"roles/other/drift/{name}", text)
    done = copy.run(sys.executable, "-c", "from infra.drift import assembly; assembly.probe_source()")
    assert done.returncode != 0
    assert words in done.stderr
    assert f"roles/other/drift/{named}" in done.stderr or not named


@pytest.mark.parametrize("kind", [*sorted(KINDS), None])
def test_what_travels_stands_on_its_own_and_runs_on_the_oldest_python(kind: str | None) -> None:
    whole = ast.parse(probe_source(None if kind is None else frozenset([kind])), feature_version=(3, 8))
    names = [node for node in ast.walk(whole) if isinstance(node, ast.Name)]
    known = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(dir(builtins)) | {"__name__"}
    for node in ast.walk(whole):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.alias):
            known.add(node.asname or node.name)
        elif isinstance(node, ast.arg | ast.ExceptHandler):
            known.add(str(getattr(node, "arg", None) or getattr(node, "name", None)))
    assert {node.id for node in names} <= known


def test_a_look_travels_without_what_the_controller_does_with_the_kind() -> None:
    sent = probe_source(frozenset(["package"]))
    assert "look_at_package" in sent
    assert not [name for name in ("Kind", "Claim", "is_flag", "look_at_unit", "ask_systemd") if name in sent]


SSHD = {"inputs": ["/nowhere/sshd_config"], "argv": ["echo", "yes"], "lines": True, "include": ["include"]}
OLDER: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("effective", "sshd -T", {**SSHD, "sealed": {}, "package": "none", "packaged": []}, {"lines": []}),
    ("effective", "sshd -T", {"inputs": ["/nowhere"], "argv": ["echo", "a"]}, {"output": ["a"]}),
    ("effective", "somebody's own", {"inputs": ["/nowhere"], "argv": ["echo", "a"]}, {"output": ["a"]}),
    ("file", "/nowhere", {"content": False}, {"type": "absent"}),
    ("authorized_keys", "/nowhere", {"own": [], "taken": []}, {"keys": []}),
    ("authorized_keys", "nobody-of-that-name", {"own": [], "taken": [], **SSHD}, {"keys": []}),
    ("route", "10.255.255.0/24", {}, {"route": None}),
    ("crystal", "ball", {}, {"clear": True}),
]
"""Kind, key, how and want, as older versions have sealed them."""


def test_what_an_older_version_sealed_is_compared_and_what_nobody_knows_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    entries = [{"kind": k, "key": key, "task": "t", "want": want, "how": how} for k, key, how, want in OLDER]
    part = {"inputs": "i", "sealed_at": "2026-01-01T00:00:00+00:00", "entries": entries}
    path = manifests.manifest_path("s", "node")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"host": "node", "salt": "5a17", "roles": {"base": part}}))
    manifest = load_manifest("s", "node")
    assert manifest is not None
    plain = manifest.model_dump(mode="json")
    request = request_of(plain, entries_of(plain))
    said = subprocess.run(
        ["sh", "-c", PYTHON], input=script(request), stdout=subprocess.PIPE, check=True, timeout=60
    )
    differs = dict(read_answer(said.stdout, request)["values"])
    shown = {number: explain(OLDER[number][0], {}, found["found"]) for number, found in differs.items()}
    if not shutil.which("ip", path="/usr/sbin:/usr/bin:/sbin:/bin"):
        del shown[6]  # a node has one
    assert shown == {7: "cannot be read: this version of Causeway has no kind crystal"}
    assert kind_of("crystal").aspects == {}


def test_the_timer_looks_at_all_kinds_from_one_file(tmp_path: Path) -> None:
    """As the role drift_watch installs it: the assembled probe, and what makes metrics of its answers."""
    library = tmp_path / "library"
    (library / "infra" / "drift").mkdir(parents=True)
    (library / "infra" / "drift" / "probe.py").write_text(probe_source())
    shutil.copy(ROOT / "roles" / "drift_watch" / "files" / "watch.py", library / "infra" / "drift")
    governed = [
        Entry(kind="directory", key=str(tmp_path), task="t", want={"type": "directory"}),
        Entry(kind="absent", key=str(tmp_path), task="t", want={"type": "absent"}),
        Entry(kind="crystal", key="ball", task="t", want={"clear": True}),
    ]
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(Manifest(host="node", roles={"base": RoleManifest(entries=governed)}).node_copy())
    done = subprocess.run(
        [sys.executable, "-sB", "-m", "infra.drift.watch", str(manifest), str(tmp_path), "60"],
        env={"PYTHONPATH": str(library)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    metrics = (tmp_path / "causeway_drift.prom").read_text()
    assert 'causeway_drift_differences{role="base"} 2\n' in metrics, done.stderr


def test_no_kind_is_named_by_the_engine_that_belongs_to_one_role() -> None:
    own = {
        name
        for name, kind in KINDS.items()
        if kind.look and sys.modules[kind.look.__module__].__name__.startswith("roles.")
    }
    assert own >= {"route", "hostname", "locale", "authorized_keys", "effective sshd -T"}
    engine = [*(ROOT / "infra" / "drift").glob("*.py"), *(ROOT / "infra" / "drift" / "kinds").glob("*.py")]
    words = {f'"{name.partition(" ")[2] or name}"' for name in own}
    words |= {'"/etc/ssh', '"/etc/apt/apt', '"/etc/chrony'}
    assert [(file.name, word) for file in engine for word in words if word in file.read_text()] == []
    assert {file.parent.name for file in kind_files()} == {"kinds", "drift"}


@pytest.mark.parametrize(("own", "kept"), [(b"PasswordAuthentication no\n", False), (b"UseDNS no\n", True)])
def test_how_one_logs_in_is_looked_at_where_the_role_says_how(
    monkeypatch: pytest.MonkeyPatch, own: bytes, kept: bool
) -> None:
    files = {sshd.SSHD_OWN: own, "/etc/ssh/sshd_config": b""}
    theirs = ["/etc/ssh/sshd_config: PermitRootLogin yes", "/etc/ssh/sshd_config: Port 22"]
    found: dict[str, Any] = {
        "output": ["passwordauthentication yes", "port 22"],
        "lines": theirs,
        "_since": 1.0,
    }
    monkeypatch.setattr(sshd, "sshd_files", lambda *_: files)
    monkeypatch.setattr(sshd, "settings_of", lambda *_: found)
    monkeypatch.setattr(sshd, "bytes_of", lambda path: files[path])
    looked = sshd.look_at_sshd(None, "sshd -T", {})  # type: ignore[arg-type] # it asks the node nothing
    short = {"output": found["output"][1:], "lines": theirs[1:], "_since": 1.0}
    assert looked == (short if kept else found)


# The link by which programs ask systemd-resolved


def resolver_of(path: Path, **want: str) -> str:
    node = Look("5a17", "scan" if want else "seal", [])
    node.want = dict(want)
    return str(look_at_resolver(node, str(path), {})["leads"])


def test_the_link_by_which_resolved_is_asked_is_compared_where_it_is_one(tmp_path: Path) -> None:
    path, target = tmp_path / "resolv.conf", "../run/systemd/resolve/stub-resolv.conf"
    path.symlink_to(target)
    assert resolver_of(path) == resolver_of(path, leads=target) == target
    path.unlink()
    assert resolver_of(path, leads=target) == NO_RESOLVER_LINK
    path.write_text("nameserver 192.0.2.8\n")
    assert resolver_of(path, leads=target) == resolver_of(path) == NO_RESOLVER_LINK
    path.unlink()
    path.symlink_to("elsewhere")
    assert resolver_of(path, leads=target) == "elsewhere"
    assert resolver_of(path, leads=NO_RESOLVER_LINK) == NO_RESOLVER_LINK, "DHCP's, and then somebody's"


def test_a_start_of_resolved_makes_no_link_and_a_repair_does(tmp_path: Path) -> None:
    arguments = {"name": RESOLVED, "state": "restarted"}
    started = Task("t", "ansible.builtin.systemd_service", arguments, {"changed": True}, changed=True)
    (link,) = (claim for claim in claims_of(started, []) if claim.kind == "resolver")
    assert untouched(started, link) == {"leads"}
    plan = plan_for("resolver", link.key, {"leads": "../stub"}, {"leads": NO_RESOLVER_LINK})
    assert plan.lines == ["base: resolver /etc/resolv.conf: is no link, expected one to ../stub"]
    assert plan.obstacles.thaw == ["/etc/resolv.conf"], "it may be immutable"
    (command,) = plan.obstacles.commands
    assert command["argv"][-2:] == ["../stub", "/etc/resolv.conf"]
    path, aside = tmp_path / "resolv.conf", tmp_path / "aside"
    script = command["argv"][2].replace("/var/lib/causeway/aside", str(aside))
    for text in ("nameserver 192.0.2.1\n", None):
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text)
        subprocess.run(["sh", "-c", script, "link", "../stub", str(path)], check=True)
        assert path.readlink() == Path("../stub")
        assert [kept.read_text() for kept in aside.glob("*/etc/resolv.conf")] == ["nameserver 192.0.2.1\n"]
