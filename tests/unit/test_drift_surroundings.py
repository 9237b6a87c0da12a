"""What every boot, login and program goes by."""

import os
import struct
import subprocess
from hashlib import md5
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.drift.kinds import KINDS, known_keys, slow, unit
from infra.drift.kinds.effective import files_below
from infra.drift.looks import Look
from infra.drift.node import question
from roles.base.drift import surroundings
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_seal import claim, record, seal


def node_with(**known: list[str]) -> Look:
    return Look("5a17", "scan", [], known)


@pytest.fixture
def dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What dpkg knows: the file `shipped`, as its package brought it."""
    known = md5(b"as shipped").hexdigest()  # noqa: S324 - as dpkg keeps it
    status = f"Package: p\nConffiles:\n {tmp_path}/shipped {known}\n {tmp_path}/left {known} obsolete\n"
    monkeypatch.setattr(Look, "dpkg", lambda _look: b"\n\n" + status.encode())
    return tmp_path


def test_files_that_no_role_and_no_package_wrote_are_listed(dpkg: Path) -> None:
    for name, text in (
        ("shipped", "as shipped"),
        ("left", "as shipped"),
        ("own", ""),
        ("added", "x"),
        ("old.dpkg-dist", ""),
    ):
        (dpkg / name).write_text(text)
    (dpkg / "masked").symlink_to("/dev/null")
    (dpkg / "packaged").symlink_to("/usr/lib/x")
    (dpkg / "made").symlink_to("/etc/x")
    node = node_with(file=[f"{dpkg}/own"], link=[f"{dpkg}/made"])

    def listed() -> list[str]:
        return [Path(line.split()[0]).name for line in surroundings.strange_files(node, (str(dpkg),))]

    assert listed() == ["masked", "added"]
    (dpkg / "70-snap.lxd.rules").write_text("")
    assert listed() == ["masked", "added"]
    (dpkg / "shipped").write_text("edited")
    assert listed() == ["masked", "added", "shipped"]


def test_jobs_of_people_are_theirs(dpkg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, linger = dpkg / "crontabs", dpkg / "linger"
    monkeypatch.setattr(surroundings, "SPOOLS", (str(spool),))
    monkeypatch.setattr(surroundings, "LINGER", str(linger))
    rows = [["daemon", "x", "1"], ["ada", "x", "1000"], ["nobody", "x", "65534"]]
    monkeypatch.setattr(Look, "table", lambda *_: rows)
    for folder in (spool, linger):
        folder.mkdir()
        for name in ("daemon", "ada", "nobody", "of-a-directory"):
            (folder / name).write_text("x")
    owners = {"daemon": 1, "ada": 1000, "nobody": 65534, "of-a-directory": 1_400_000_000}
    for name, owner in owners.items():
        os.chown(spool / name, owner, 0)
    lines = surroundings.strange_files(node_with(), (str(spool), str(linger)))
    assert sorted(line.split()[0] for line in lines) == sorted(
        str(folder / name) for folder in (spool, linger) for name in ("daemon", "nobody")
    )


@pytest.mark.parametrize("what", sorted(surroundings.SURROUNDING_FILES))
def test_no_file_that_is_read_together_is_listed_under_two_names(what: str) -> None:
    others = {
        start for name, starts in surroundings.SURROUNDING_FILES.items() if name != what for start in starts
    }
    starts = surroundings.SURROUNDING_FILES[what]
    assert len(set(starts)) == len(starts)
    nested = [s for s in starts for o in others if f"{s}/".startswith(f"{o}/") or f"{o}/".startswith(f"{s}/")]
    assert nested == []


def test_alternatives_that_somebody_chose_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, chosen = tmp_path / "kept", tmp_path / "chosen"
    for name, mode, target in (
        ("a", "auto", "/usr/bin/x"),
        ("b", "manual", "/usr/bin/x"),
        ("c", "auto", "/y"),
    ):
        for folder in (kept, chosen):
            folder.mkdir(exist_ok=True)
        (kept / name).write_text(f"{mode}\n/usr/bin/{name}\n\n/usr/bin/x\n10\n\n")
        (chosen / name).symlink_to(target)
    monkeypatch.setattr(surroundings, "ALTERNATIVES", str(kept))
    monkeypatch.setattr(surroundings, "CHOSEN", str(chosen))
    assert surroundings.chosen() == ["alternative b /usr/bin/x", "alternative c /y"]


def test_diversions_of_packages_are_no_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "diversions"
    file.write_text("/bin/sh\n/bin/sh.distrib\ndash\n/usr/bin/tac\n/usr/bin/tac.real\n:\n")
    monkeypatch.setattr(surroundings, "DIVERSIONS", str(file))
    assert surroundings.diverted() == ["diverted /usr/bin/tac to /usr/bin/tac.real"]


def test_authorities_count_in_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / surroundings.BUNDLE
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "a.pem").symlink_to("/usr/share/ca-certificates/mozilla/a.crt")
    (tmp_path / "1f.0").symlink_to("a.pem")
    monkeypatch.setattr(surroundings, "CERTIFICATES", str(tmp_path))
    assert surroundings.strange_certificates() == []
    (tmp_path / "stranger.pem").write_text("x")
    bundle.write_text(2 * bundle.read_text())
    found = [f"{tmp_path}/stranger.pem 0", f"{surroundings.BUNDLE} has 1 more"]
    assert surroundings.strange_certificates() == found


def test_units_that_no_role_and_no_package_enabled_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, helper = tmp_path / "system", tmp_path / "helper-"
    wants = folder / "x.target.wants"
    wants.mkdir(parents=True)
    noted = Path(f"{helper}enabled", "x.target.wants")
    noted.mkdir(parents=True)
    (noted / "packaged.service").touch()
    for name in ("packaged", "own", "debug-shell"):
        (wants / f"{name}.service").symlink_to(f"/usr/lib/systemd/system/{name}.service")
    (folder / "masked.service").symlink_to("/dev/null")
    (folder / "file.service").write_text("")
    monkeypatch.setattr(surroundings, "ENABLED_IN", (str(folder),))
    monkeypatch.setattr(surroundings, "HELPER", str(helper))
    node = node_with(unit=["own.service"])
    node.mode = "seal"
    sealed = surroundings.enabled_links(node)
    assert [line.split()[0] for line in sealed if line.endswith(surroundings.BROUGHT)] == [
        f"{wants}/packaged.service"
    ]
    node.mode = "scan"
    found = surroundings.enabled_links(node)
    (noted / "packaged.service").unlink()
    assert len(surroundings.enabled_links(node)) == len(found) + 1
    node.want = {"enabled": sealed}
    assert surroundings.enabled_links(node) == found, "known, though its package forgot that it made it"
    assert [line.split()[0].rpartition("/")[2] for line in found] == ["masked.service", "debug-shell.service"]


def test_what_resolved_was_told_is_listed_unless_networkmanager_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").write_text("# state\nSERVERS=192.0.2.53\n")
    monkeypatch.setattr(surroundings, "RESOLVER", str(tmp_path))
    monkeypatch.setattr(surroundings, "MANAGER", str(tmp_path / "none"))
    assert surroundings.told_of_names() == ["lo SERVERS=192.0.2.53"]
    monkeypatch.setattr(surroundings, "MANAGER", str(tmp_path))
    assert surroundings.told_of_names() == []


def test_a_program_that_goes_before_a_packages_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs = tmp_path / "local", tmp_path / "usr"
    for folder, names in ((own, ("ip", "consul", "mine")), (theirs, ("ip", "mine"))):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    monkeypatch.setattr(surroundings, "OWN_PROGRAM_FOLDERS", (str(own),))
    monkeypatch.setattr(surroundings, "PROGRAM_FOLDERS", (str(theirs),))
    assert surroundings.shadowing(node_with(file=[f"{own}/mine"])) == [f"{own}/ip 0"]


def test_systemd_itself_is_asked_at_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object of a unit has its name behind systemd's."""
    assert b"/org/freedesktop/systemd1\0" in question(1, "", "Manager", "Environment")
    assert b"/org/freedesktop/systemd1/unit/_31_2eservice\0" in question(1, "1.service", "Unit", "Id")
    monkeypatch.setattr(
        unit, "ask_systemd", lambda _: [["LANG=C", "PATH=/bin", "LC_ALL=C", "LD_PRELOAD=/x=y"]]
    )
    node = look()
    assert surroundings.manager_environment(node) == [
        f"PATH {node.digest(b'/bin')}",
        f"LD_PRELOAD {node.digest(b'/x=y')}",
    ]


@pytest.mark.parametrize(
    ("aspect", "line", "undone"),
    [
        ("environment", "LD_PRELOAD 1f", ["systemctl", "unset-environment", "LD_PRELOAD"]),
        ("packages", "diverted /x to /y", ["dpkg-divert", "--local", "--rename", "--remove", "/x"]),
        ("packages", "alternative awk /y", ["update-alternatives", "--auto", "awk"]),
        ("trust", "ca-certificates.crt has 2 more", ["update-ca-certificates", "--fresh"]),
        ("names", "eth0 SERVERS=192.0.2.53", ["resolvectl", "revert", "eth0"]),
    ],
)
def test_what_was_added_is_named_with_the_command_that_takes_it_away(
    aspect: str, line: str, undone: list[str]
) -> None:
    plan = plan_for("surroundings", "all", {aspect: []}, {aspect: [line]})
    assert [command["argv"] for command in plan.obstacles.undone] == [undone]
    assert not plan.obstacles.added


def test_a_line_of_fstab_is_taken_out_and_its_neighbours_stay(tmp_path: Path) -> None:
    line = "tmpfs /etc/cron.d tmpfs ro 0 0"
    plan = plan_for("surroundings", "all", {"fstab": []}, {"fstab": [line]})
    (undo,) = plan.obstacles.undone
    file = tmp_path / "fstab"
    others = "tmpfs /etc/cronXd tmpfs ro 0 0\n# tmpfs /etc/cron.d tmpfs\ntmpfs /etc/cron.d/x tmpfs ro 0 0\n"
    file.write_text(f"{others}{line.replace(' ', chr(9))}\n")
    subprocess.run([*undo["argv"][:-1], file], check=True)
    assert file.read_text() == others


@pytest.mark.parametrize("both", [False, True])
def test_a_line_of_fstab_that_was_changed_is_set_back(tmp_path: Path, both: bool) -> None:
    """The root file system with another option; whether or not its line from before is there as well."""
    before, line = "UUID=1f-2 / ext4 defaults,x=a&b 0 1", "UUID=1f-2 / ext4 defaults,noatime 0 1"
    swap, more = "/swap none swap sw 0 0", "/more none swap sw 0 0"
    plan = plan_for("surroundings", "all", {"fstab": [before, swap]}, {"fstab": [before, line, swap, more]})
    file = tmp_path / "fstab"
    file.write_text("\n".join((*[before] * both, line.replace(" ", "  \t"), swap, more, "")))
    for undo in plan.obstacles.undone:
        subprocess.run([*undo["argv"][:-1], file], check=True)
    assert file.read_text() == f"{before}\n{swap}\n"


def test_another_choice_is_the_one_from_before_and_a_variable_is_named() -> None:
    expected = {"packages": ["alternative editor /usr/bin/vim"], "environment": ["PROXY 1f"]}
    found = {"packages": ["alternative editor /usr/bin/nano"], "environment": ["PROXY 2e"]}
    plan = plan_for("surroundings", "all", expected, {x: [*expected[x], *found[x]] for x in expected})
    assert [undo["argv"] for undo in plan.obstacles.undone] == [
        ["update-alternatives", "--set", "editor", "/usr/bin/vim"]
    ]


def test_added_files_and_links_are_moved_away_and_trust_is_made_again() -> None:
    found = {"enabled": ["/etc/systemd/system/x.wants/y ->/usr/lib/y"], "trust": ["/etc/ssl/certs/x.pem 0"]}
    plan = plan_for("surroundings", "all", {"enabled": [], "trust": []}, found)
    assert plan.obstacles.added == ["/etc/systemd/system/x.wants/y", "/etc/ssl/certs/x.pem"]
    assert [command["argv"][0] for command in plan.obstacles.undone] == ["update-ca-certificates"]
    assert [command["argv"] for command in plan.obstacles.commands] == [["systemctl", "daemon-reload"]]


def sealed_again(kind: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[Any, list[str]]:
    """What a second run seals of a kind's one entry, and what it says was not repaired."""
    empty: dict[str, Any] = {aspect: [] for aspect in KINDS[kind].aspects}
    made = claim(kind, "all")
    seal({"base": record(made)}, empty | before)
    again = seal({"base": record(made)}, empty | after, inputs="i2")
    return again.manifest.roles["base"].entries[0].want, again.not_repaired


def test_a_converge_blesses_none_of_it() -> None:
    brought = f"/etc/systemd/system/x ->/y {surroundings.BROUGHT}"
    new = {"boot": ["/a 1", "/etc/rc.local 2"], "enabled": [brought]}
    want, said = sealed_again("surroundings", {"boot": ["/a 1"]}, new)
    assert want["boot"] == ["/a 1"]
    assert want["enabled"] == [brought]
    assert len(said) == 1
    assert "/etc/rc.local" in said[0]


def test_a_link_whose_package_forgot_its_note_is_no_strangers() -> None:
    link = "/etc/systemd/system/multi-user.target.wants/x.service ->/usr/lib/systemd/system/x.service"
    _, said = sealed_again(
        "surroundings", {"enabled": [f"{link} {surroundings.BROUGHT}"]}, {"enabled": [link]}
    )
    assert said == []
    _, said = sealed_again("surroundings", {}, {"enabled": [link, "/etc/systemd/system/y ->/z"]})
    assert "/z" in "".join(said)


def test_looks_that_list_the_rest_are_told_what_roles_have() -> None:
    kinds = (
        *("file", "link", "directory", "unit", "mount", "user", "nft", "sysctl", "authorized_keys"),
        *("interface", "package"),
    )
    assert known_keys((kind, "k") for kind in kinds) == {kind: ["k"] for kind in kinds}


def test_a_file_that_was_there_before_is_named_and_stays() -> None:
    sealed, more = ["/etc/nsswitch.conf 1"], ["/etc/nsswitch.conf 2", "/etc/gai.conf 2"]
    plan = plan_for("surroundings", "all", {"names": sealed}, {"names": [*sealed, *more]})
    assert plan.obstacles.added == ["/etc/gai.conf"]


def test_what_python_runs_before_any_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib" / "python3.13" / "dist-packages"
    folder.mkdir(parents=True)
    (tmp_path / "lib" / "perl").mkdir()
    for name in ("x.pth", "x.py", "usercustomize.py"):
        (folder / name).touch()
    (tmp_path / "set").touch()
    (folder / "sitecustomize.py").symlink_to(tmp_path / "set")
    monkeypatch.setattr(surroundings, "PYTHONS", ((f"{tmp_path}/lib", "/dist-packages"), ("/nowhere", "")))
    expected = [folder / "usercustomize.py", folder / "x.pth", tmp_path / "set"]
    assert surroundings.pythons_first() == sorted(map(str, expected))


def test_what_python_runs_first_is_compared_with_the_package_that_the_timer_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, info = tmp_path / "lib" / "python3", tmp_path / "info"
    for made in (folder, info):
        made.mkdir(parents=True)
    brought, strange = folder / "brought.pth", folder / "strange.pth"
    for file in (brought, strange):
        file.write_text("as brought\n")
    sums = f"{md5(brought.read_bytes(), usedforsecurity=False).hexdigest()}  {str(brought)[1:]}\n"
    (info / "one.md5sums").write_text(sums)
    (info / "two.md5sums").touch()
    monkeypatch.setattr(unit, "DPKG_INFO", f"{info}/")
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setattr(surroundings, "PYTHONS", ((f"{tmp_path}/lib", ""),))
    monkeypatch.setattr(surroundings, "LIBRARY_FOLDERS", f"{tmp_path}/lib")
    both = [str(brought), str(strange)]
    assert surroundings.strange_first(look()) == both, "all lists have to be read"
    timer = look()
    timer.patient = True
    for node in (timer, look(), look("seal"), look("thorough")):
        assert surroundings.strange_first(node) == both[1:]
    monkeypatch.setattr(surroundings, "owners_of", lambda *_: pytest.fail("all lists were read"))
    assert surroundings.strange_first(look()) == both[1:]
    brought.write_text("changed\n")
    assert surroundings.strange_first(look()) == both, "the timer told where to look, not what is there"
    brought.write_text("as brought\n")
    (info / "one.md5sums").unlink()
    assert surroundings.strange_first(look()) == both
    brought.unlink()
    assert surroundings.strange_first(look()) == both[1:]


def test_files_below_a_folder_are_those_that_a_walk_finds(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "folder" / "deeper").mkdir(parents=True)
    for path in ("a", "b.dpkg-dist", "folder/c", "folder/deeper/d"):
        (top / path).touch()
    os.mkfifo(top / "folder" / "pipe")
    links = {"to a file": "a", "to a folder": "folder", "to nothing": "nowhere", "to itself": "to itself"}
    for name, target in links.items():
        (top / name).symlink_to(target)
    walked = sorted(f"{where}/{name}" for where, _, names in os.walk(top) for name in names)
    assert files_below(str(top)) == [path for path in walked if not path.endswith("dpkg-dist")]
    assert str(top / "to itself") in walked
    assert files_below(str(top / "a")) == [str(top / "a")]
    for nothing in ("nowhere", "to nothing", "a/inner"):
        assert files_below(str(top / nothing)) == []


@given(numbers=st.lists(st.sampled_from([0, 1, 0x2F, 0x412F, 0x2F2F, 0x2F00]) | st.integers(0, 2**32 - 1)))
def test_places_that_the_loaders_cache_has_beside_the_systems_own(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int]
) -> None:
    """NUMBERS: of the entries, as glibc has them before the names (sysdeps/generic/dl-cache.h)."""
    cache = tmp_path_factory.mktemp("loader") / "cache"
    with patch.object(surroundings, "LOADERS_CACHE", str(cache)):
        assert surroundings.cached_folders() == []
        own = ("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1", "/usr/lib/libc.so.6")
        head = b"glibc-ld.so.cache1.1" + struct.pack(f"<{len(numbers)}I", *numbers) + b"\0"
        for more, found in ((), []), (("/srv/lib/libz.so.1", "/srv/lib/libm.so.6"), ["/srv/lib"]):
            cache.write_bytes(head + b"\0".join(name.encode() for name in (*own, *more)) + b"\0")
            assert surroundings.cached_folders() == found


def test_what_services_are_started_with_counts_but_for_what_others_compare(
    dpkg: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ssh", "locale", "grub.d"):
        (dpkg / name).write_text("SSHD_OPTS=-oPermitRootLogin=yes")
    monkeypatch.setattr(surroundings, "STARTED_WITH", (str(dpkg),))
    monkeypatch.setattr(surroundings, "NOT_DEFAULTS", (f"{dpkg}/locale", f"{dpkg}/grub"))
    lines = surroundings.read_by_units(node_with())
    assert [line.split()[0] for line in lines] == [f"{dpkg}/ssh"]


def test_libraries_that_the_loader_takes_before_a_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, local = tmp_path / "lib", tmp_path / "local"
    monkeypatch.setattr(surroundings, "LIBRARY_FOLDERS", str(lib))
    monkeypatch.setattr(surroundings, "OWN_LIBRARIES", str(local))
    assert surroundings.overriding(node_with()) == []
    for folder in (lib / "x86_64-linux-gnu", local / "x86_64-linux-gnu"):
        folder.mkdir(parents=True)
    for name in ("libz.so.1", "libown.so.1", "libm.so.6"):
        (lib / "x86_64-linux-gnu" / name).touch()
    files = [local / "libz.so.1", local / "libown.so.1", local / "libalone.so.1"]
    for file in (*files, local / "x86_64-linux-gnu" / "libm.so.6"):
        file.touch()
    lines = surroundings.overriding(node_with(file=[str(files[1])]))
    assert lines == [f"{files[0]} 0", f"{local}/x86_64-linux-gnu/libm.so.6 0"]
    plan = plan_for("surroundings", "all", {"overriding": []}, {"overriding": lines[:1]})
    assert plan.obstacles.added == [str(files[0])]
    assert [command["argv"] for command in plan.obstacles.undone] == [["ldconfig"]]


def test_what_apt_and_dpkg_were_told_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = "".join(
        f"\n\nPackage: {name}\nStatus: {state} ok installed\n"
        for name, state in (("a", "install"), ("b", "hold"), ("own", "hold"))
    )
    monkeypatch.setattr(Look, "dpkg", lambda _look: status.encode())
    monkeypatch.setattr(surroundings, "ARCHITECTURES", str(tmp_path / "arch"))
    assert surroundings.choices(node_with(package=["own"])) == ["hold of b"]
    (tmp_path / "arch").write_text("amd64\ni386\n")
    lines = surroundings.choices(node_with(package=["own"]))
    assert lines == ["hold of b", "architecture amd64", "architecture i386"]
    plan = plan_for("surroundings", "all", {"choices": []}, {"choices": [lines[0], lines[2]]})
    assert [command["argv"] for command in plan.obstacles.undone] == [
        ["apt-mark", "unhold", "b"],
        ["dpkg", "--remove-architecture", "i386"],
    ]
