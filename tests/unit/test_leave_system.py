"""What roles did to units, accounts, mounts and the kernel: as before, or as somebody has it since."""

from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from tests.loaded import load

UNDO = load(ROOT / "playbooks/library/causeway_undo.py")
PRIOR = import_module("ansible.module_utils.causeway_prior")


def undoing(facts: dict[str, Any], run: Any, *things: dict[str, Any], contents: Any = None) -> Any:
    """The module's own object, for a node on which RUN stands for its commands."""
    params = {"roles": ["ours"], "purge_data": False, "staying": [], "salt": ""}
    params["things"] = [{"roles": ["ours"], "want": {}, **thing} for thing in things]
    module = SimpleNamespace(
        params=params, check_mode=False, run_command=lambda argv, **_: (run(*argv) or 0, "", "")
    )
    undo = UNDO.Undo(module)
    prior = PRIOR.Prior(1, {"paths": {}, "looked_at": {}, **facts})
    prior._contents = contents or {}
    undo.prior = lambda *_: prior
    return undo


class Systemd:
    """One unit, as systemctl has it: what is decided for good and until the next boot, and its state."""

    def __init__(self, enabled: str, active: str) -> None:
        self.lasting = "" if enabled.endswith("-runtime") else enabled
        self.runtime = enabled.removesuffix("-runtime") if enabled.endswith("-runtime") else ""
        self.active = active

    @property
    def enabled(self) -> str:
        """What `is-enabled` says: a mask counts before all else."""
        if "masked" in (self.lasting, self.runtime):
            return "masked" if self.lasting == "masked" else "masked-runtime"
        if self.lasting == "enabled":
            return "enabled"
        return "enabled-runtime" if self.runtime == "enabled" else "disabled"

    def run(self, *argv: str) -> int:
        words = [word for word in argv if word != "--quiet"]
        verb, runtime = words[1], "--runtime" in words
        if verb in ("enable", "mask"):
            setattr(self, "runtime" if runtime else "lasting", {"enable": "enabled", "mask": "masked"}[verb])
        elif verb == "disable":
            self.lasting, self.runtime = ("disabled" if self.lasting == "enabled" else self.lasting), ""
        elif verb == "unmask":
            self.lasting, self.runtime = (
                "disabled" if each == "masked" else each for each in (self.lasting, self.runtime)
            )
        elif verb == "stop":
            self.active = "inactive"
        elif verb in ("restart", "start"):
            if self.enabled.startswith("masked"):
                return 1
            self.active = "active"
        return 0


ENABLED = st.sampled_from(["enabled", "enabled-runtime", "disabled", "masked", "masked-runtime"])
ACTIVE = st.sampled_from(["active", "inactive", "failed", "activating", "reloading"])


@given(was=ENABLED, ran=ACTIVE, now=ENABLED, runs=st.sampled_from(["active", "inactive", "failed"]))
def test_a_unit_is_again_what_it_was(was: str, ran: str, now: str, runs: str) -> None:
    """One that was about to start when the node was looked at had been started by somebody."""
    unit = Systemd(now, runs)
    undo = undoing({"units": {"u.service": [was, ran]}}, unit.run, {"kind": "unit", "key": "u.service"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UNDO, "units", lambda: {"u.service": [unit.enabled, unit.active]})
        patch.setattr(UNDO, "said", lambda *_: unit.enabled)
        undo.stop()
        undo.restart()
    assert unit.enabled == was
    assert undo.failed == []
    if not was.startswith("masked"):
        assert (unit.active == "active") == (ran in ("active", "activating", "reloading"))


@pytest.mark.parametrize("there", [True, False])
def test_a_group_that_was_there_stays_when_a_user_of_its_name_goes(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """userdel takes the group along in which nobody else is."""
    group = ["ours", "x", "970", ""]
    tables = {"passwd": {"ours": ["ours", "x", "970", "970", "", "/", "/bin/sh"]}, "group": {"ours": group}}
    done: list[tuple[str, ...]] = []

    def run(*argv: str) -> None:
        done.append(argv)
        if argv[0] == "userdel":
            tables["passwd"].clear()
            tables["group"].clear()

    facts = {"accounts": {}, "groups": {"ours": group} if there else {}}
    undo = undoing(facts, run, {"kind": "user", "key": "ours"})
    monkeypatch.setattr(UNDO, "accounts", tables.__getitem__)
    undo.accounts()
    again = [("groupadd", "--gid", "970", "ours")] if there else []
    assert done == [("userdel", "ours"), *again]


def test_what_somebody_else_changed_of_an_account_is_no_reason_to_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number, its name in words: usermod would be told what it is already, by every run."""
    was = ["ops", "x", "1000", "1000", "Ops", "/home/ops", "/bin/bash"]
    tables = {"passwd": {"ops": [*was[:2], "2000", "2000", "Operations", *was[5:]]}, "group": {}}
    undo = undoing({"accounts": {"ops": was}, "groups": {}}, pytest.fail, {"kind": "user", "key": "ops"})
    monkeypatch.setattr(UNDO, "accounts", tables.__getitem__)
    undo.accounts()
    assert undo.changes == []


GROUPS = st.sets(st.sampled_from("abc"))


@given(
    before=GROUPS,
    sealed=GROUPS,
    today=GROUPS,
    shells=st.lists(st.sampled_from("xyz"), min_size=3, max_size=3),
)
def test_of_an_account_that_was_there_what_the_role_changed_is_undone_and_nothing_else(
    before: set[str], sealed: set[str], today: set[str], shells: list[str]
) -> None:
    """Somebody may have put it into another group since, or given it another shell."""
    was, ours, now = (["ops", "x", "1", "1", "", "/", shell] for shell in shells)
    state: dict[str, Any] = {"groups": set(today), "shell": now[6]}

    def groups(names: set[str]) -> dict[str, list[str]]:
        return {name: [name, "x", "1", "ops" * (name in names)] for name in "abc"}

    def run(*argv: str) -> None:
        if "--groups" in argv:
            state["groups"] = {*argv[2].split(",")} - {""}
        else:
            state["shell"] = argv[argv.index("--shell") + 1]

    want = {"groups": sorted(sealed), "shell": ours[6], "home": "/"}
    facts = {"accounts": {"ops": was}, "groups": groups(before)}
    undo = undoing(facts, run, {"kind": "user", "key": "ops", "want": want})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            UNDO, "accounts", lambda table: {"ops": now} if table == "passwd" else groups(state["groups"])
        )
        undo.accounts()
    for name in "abc":
        as_sealed = (name in sealed) == (name in today)
        assert (name in state["groups"]) == ((name in before) if as_sealed else (name in today))
    assert state["shell"] == (was[6] if now[6] == ours[6] else now[6])


SHM = (
    "25 1 0:22 / /run/shm rw,nosuid shared:3 - tmpfs tmpfs rw{}\n30 1 8:1 / /a\\040b rw - ext4 /dev/sda1 rw\n"
)


@pytest.mark.parametrize(
    ("before", "now", "size"),
    [
        (",inode64", ",size=1024k", "50%"),
        (",size=64k", ",size=1024k", "64k"),
        ("", "", ""),
        (None, ",size=1k", ""),
    ],
)
def test_a_tmpfs_has_the_size_that_it_had(
    monkeypatch: pytest.MonkeyPatch, before: str | None, now: str, size: str
) -> None:
    """Also before the next boot: of /dev/shm a role says how large it is."""
    text = ""
    monkeypatch.setattr(Path, "read_text", lambda *_: text)
    text = SHM.format(before)
    was = PRIOR.mounts() if before is not None else ["/run/shm"]
    text = SHM.format(now)
    assert PRIOR.mounts()["/a b"] == ""
    done: list[tuple[str, ...]] = []
    undo = undoing({"mounts": was}, lambda *argv: done.append(argv))
    undo.size_again("/run/shm", undo.prior())
    undo.size_again("/a b", undo.prior())
    undo.size_again("/gone", undo.prior())
    assert done == ([("mount", "--options", f"remount,size={size}", "/run/shm")] if size else [])


ROOT_LINE, LAST = "UUID=1 / ext4 errors=remount-ro 0 1\n", "tmpfs /run/x tmpfs size=1m 0 0\n"
OURS, THEIRS = "10.0.0.1:/a /mnt/a nfs4 rw 0 0\n", "192.0.2.1:/old /mnt/a nfs ro 0 0\n"


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (ROOT_LINE + LAST, ROOT_LINE + OURS + LAST, ROOT_LINE + LAST),
        (ROOT_LINE + THEIRS + LAST, ROOT_LINE + OURS + LAST, ROOT_LINE + THEIRS + LAST),
        (ROOT_LINE + THEIRS, ROOT_LINE + LAST, ROOT_LINE + LAST + THEIRS),
        (ROOT_LINE + THEIRS, ROOT_LINE + THEIRS + LAST, ROOT_LINE + THEIRS + LAST),
        (None, OURS, ""),
        (None, None, None),
        (ROOT_LINE, None, None),
        ("unknown", ROOT_LINE + OURS, ROOT_LINE + OURS),
    ],
)
def test_a_line_of_fstab_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, now: str | None, after: str | None
) -> None:
    file = tmp_path / "fstab"
    if now is not None:
        file.write_text(now)
    paths = {str(each): ["directory", 0, 0, 0, ""] for each in file.parents if str(each) != "/"}
    paths |= {str(file): ["file", 0o644, 0, 0, ""]} if before is not None else {}
    facts = {"mounts": [], "paths": paths, "looked_at": {str(tmp_path): 1}}
    contents = {str(file)[1:]: before.encode()} if before not in (None, "unknown") else {}
    undo = undoing(facts, pytest.fail, {"kind": "mount", "key": "/mnt/a"}, contents=contents)
    monkeypatch.setattr(UNDO, "FSTAB", file)
    monkeypatch.setattr(import_module("ansible.module_utils.causeway_paths"), "PASSED_OVER", ())
    undo.unmount()
    assert (file.read_text() if file.exists() else None) == after
    assert bool(undo.left) == (before == "unknown")


@pytest.mark.parametrize(
    ("before", "now", "value"),
    [
        ({}, {}, "60"),
        ({}, {"99-mine.conf": "# vm.swappiness = 7\n-vm/swappiness=1"}, "1"),
        ({}, {"10-mine.conf": "vm.swappiness = 1", "99-mine.conf": "vm.swappiness = 2"}, "2"),
        ({"50-old.conf": "vm.swappiness = 5"}, {"50-old.conf": "vm.swappiness = 5"}, "60"),
        ({"50-old.conf": "vm.swappiness = 5"}, {"50-old.conf": "vm.swappiness = 6"}, "6"),
    ],
)
def test_a_setting_is_what_it_was_unless_somebody_has_written_another_one_since(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, str],
    now: dict[str, str],
    value: str,
) -> None:
    """Set by hand at the look counts more than a file that said otherwise then, as it did."""
    for name, text in now.items():
        (tmp_path / name).write_text(text)
    facts = {"sysctls": {"vm/swappiness": "60"}}
    undo = undoing(facts, pytest.fail, {"kind": "sysctl", "key": "vm.swappiness"})
    monkeypatch.setattr(UNDO, "SYSCTLS", tmp_path)
    monkeypatch.setattr(
        undo, "is_as_before", lambda path, _prior: before.get(Path(path).name) == now.get(Path(path).name)
    )
    written: list[str] = []
    monkeypatch.setattr(undo, "change", lambda what, _action: written.append(what))
    monkeypatch.setattr(Path, "read_text", lambda path, **_: now.get(path.name, "10\n"))
    undo.kernel()
    assert written == [f"vm.swappiness is {value} again"]


def test_a_table_of_rules_goes_while_there_is_a_program_that_knows_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nft may come and go with the role's packages."""
    there, order = ["ip ours", "inet theirs"], list[str]()
    undo = undoing(
        {"tables": ["inet theirs"], "interfaces": []},
        lambda *argv: there.remove(" ".join(argv[3:])),
        {"kind": "nft", "key": "ip ours"},
        {"kind": "nft", "key": "inet theirs"},
    )
    monkeypatch.setattr(UNDO, "tables", lambda: there)
    undo.network()
    assert there == ["inet theirs"]

    def called(step: str) -> Any:
        order.append(step)
        return SimpleNamespace(uninstall=dict)

    for step in ("stop", "network", "silence", "set_aside", "unmount", "packages", "give_back_paths"):
        monkeypatch.setattr(undo, step, partial(called, step))
    for step in ("restart", "accounts", "kernel", "name_the_rest", "note", "note_folders"):
        monkeypatch.setattr(undo, step, list)
    undo.all()
    assert order.index("network") < order.index("packages")
