"""Programs of packages that are not as their package brought them."""

import os
import subprocess
from hashlib import md5
from pathlib import Path

import pytest

from infra.drift.kinds import unit
from roles.base.drift import privilege, programs
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for


def test_a_packages_program_that_changed_later_is_read_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that changed before, while it was unpacked, is not read; one that goes away is none."""
    info, program = f"{tmp_path}/info/", tmp_path / "usr/bin/x"
    program.parent.mkdir(parents=True)
    program.write_text("edited")
    sums = Path(info, "p.md5sums")
    sums.parent.mkdir()
    sums.with_name("p.list").touch()
    name = f"usr/bin/../..{program}"
    sums.write_text(f"{md5(b'packaged').hexdigest()}  {name}\n{md5(b'').hexdigest()}  usr/share/x\n")  # noqa: S324
    for place in (programs, privilege, unit):
        monkeypatch.setattr(place, "DPKG_INFO", info)
    monkeypatch.setattr(programs, "UNPACKED_S", 60)
    assert programs.edited_programs(look()) == []
    monkeypatch.setattr(programs, "UNPACKED_S", -60)
    assert programs.edited_programs(look()) == [f"/{name} p.md5sums"]
    monkeypatch.setattr(programs, "slow", lambda _node, _name, read: read())
    assert programs.look_at_programs(look(), "all", {})["edited"] == [f"/{name} p.md5sums"]
    program.write_text("packaged")
    assert programs.edited_programs(look()) == []
    program.unlink()
    assert not programs.is_edited(look(), str(program), "p.md5sums")
    plan = plan_for("programs", "all", {"edited": []}, {"edited": ["/usr/bin/x p:amd64.md5sums"]})
    assert [command["argv"][-1] for command in plan.obstacles.undone] == ["p:amd64"]
    assert not plan.obstacles.commands


def test_what_lies_beside_packages_programs_and_nobody_brought_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that programs, libraries and modules have; not a package's links, nor its file aside."""
    info, lib, ours = tmp_path / "info", tmp_path / "lib", tmp_path / "local"
    for folder in (info, lib / "python3/dist-packages/apt", ours / "causeway/infra", ours / "causewayless"):
        folder.mkdir(parents=True)
    python = lib / "python3/dist-packages"
    packaged = [lib / "libx.so.1.2", python / "apt/__init__.py", lib / "moved.so"]
    packaged[-1].with_suffix(".so.distrib").write_text("")
    for path in packaged[:-1]:
        path.write_text("")
    (lib / "libx.so.1").symlink_to("libx.so.1.2")
    (lib / "alone.so").write_text("of a package without checksums")
    (info / "p.md5sums").write_text("".join(f"{'0' * 32}  {str(path)[1:]}\n" for path in packaged))
    (info / "p.list").write_text(f"{lib}/libx.so.1\n{lib}/alone.so\n")
    for place in (programs, unit):
        monkeypatch.setattr(place, "DPKG_INFO", f"{info}/")
    diverted = tmp_path / "diversions"
    diverted.write_text(f"{packaged[-1]}\n{packaged[-1]}.distrib\nq\n")
    pythons = ((str(lib), "/dist-packages"),)
    for name, value in (("PYTHONS", pythons), ("OURS", str(ours)), ("DIVERSIONS", str(diverted))):
        monkeypatch.setattr(programs, name, value)
    monkeypatch.setattr(programs, "PACKAGES_OWN", (str(lib),))
    (python / "__pycache__").mkdir()
    (lib / "notes.txt").write_text("")
    node = look()
    node.known = {"file": [f"{ours}/causeway/own.py"]}
    (ours / "causeway/own.py").write_text("")
    assert programs.strange_programs(node) == []
    strange = [lib / "evil.so", lib / "python3/dist-packages/evil.py", python / "evil"]
    strange[0].symlink_to("/srv/evil.so")
    strange[1].write_text("")
    strange[2].mkdir()
    (ours / "causeway/infra/json.py").write_text("")
    (ours / "causewayless/json.py").write_text("")
    (ours / "theirs.py").write_text("")
    assert programs.strange_programs(node) == sorted(map(str, strange))
    monkeypatch.setattr(programs, "slow", lambda _node, _name, read: read())
    found = programs.look_at_programs(node, "all", {})["strange"]
    beside_ours = [ours / "causeway/infra/json.py", ours / "causewayless/json.py"]
    assert found == sorted(map(str, [*strange, *beside_ours]))
    strange[1].unlink()
    told = {"strange": list(map(str, strange))}
    monkeypatch.setattr(programs, "slow", lambda _node, name, _read: told.get(name))
    assert str(strange[1]) not in programs.look_at_programs(node, "all", {})["strange"]


def test_added_programs_are_moved_away() -> None:
    plan = plan_for("programs", "all", {"strange": []}, {"strange": ["/usr/bin/x"]})
    assert plan.obstacles.added == ["/usr/bin/x"]


def test_settings_beside_those_of_packages_that_no_package_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, units = tmp_path / "rules.d", tmp_path / "system"
    for folder in (rules, units):
        folder.mkdir()
    for name in ("a.service", "b.service"):
        (units / name).touch()
        (units / f"link-{name}").symlink_to(name)
    for name in ("packaged", "stranger"):
        (rules / name).touch()
    (tmp_path / "p.list").write_text(f"{rules}/packaged\n{units}/link-a.service\n")
    monkeypatch.setattr(programs, "UNITS", str(units))
    monkeypatch.setattr(programs, "DPKG_INFO", f"{tmp_path}/")
    monkeypatch.setattr(programs, "DIVERSIONS", "/nowhere")
    monkeypatch.setattr(programs, "SETTINGS", (str(rules), "/nowhere"))
    assert programs.strange_settings() == [f"{rules}/stranger", f"{units}/link-b.service"]
    plan = plan_for("programs", "all", {"settings": []}, {"settings": [f"{rules}/stranger"]})
    assert plan.obstacles.added == [f"{rules}/stranger"]


def test_drop_ins_beside_packages_units_that_no_package_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units, hooks = tmp_path / "system", tmp_path / "hooks"
    for folder in (units / "a.service.d", units / "b.service.d", hooks):
        folder.mkdir(parents=True)
    for path in (
        units / "a.service.d/own.conf",
        units / "b.service.d/x.conf",
        units / "x.conf",
        hooks / "50",
    ):
        path.touch()
    (units / "a.service.d" / "README").touch()
    (tmp_path / "p.list").write_text(f"{units}/a.service.d/own.conf\n")
    monkeypatch.setattr(programs, "UNITS", str(units))
    monkeypatch.setattr(programs, "CALLED_TOO", (str(hooks), "/nowhere"))
    monkeypatch.setattr(programs, "DPKG_INFO", f"{tmp_path}/")
    monkeypatch.setattr(programs, "DIVERSIONS", "/nowhere")
    assert programs.strange_dropins() == [f"{hooks}/50", f"{units}/b.service.d/x.conf"]
    dropin = "/usr/lib/systemd/system/ssh.service.d/x.conf"
    monkeypatch.undo()
    plan = plan_for("programs", "all", {"dropins": []}, {"dropins": [dropin]})
    assert plan.obstacles.added == [dropin]
    assert [command["argv"] for command in plan.obstacles.commands] == [["systemctl", "daemon-reload"]]


def test_a_packages_program_that_is_gone_or_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("gone", "off", "there", "lib.so")
    for name in names[1:]:
        (tmp_path / name).touch()
    (tmp_path / "there").chmod(0o755)
    monkeypatch.setattr(programs, "DPKG_INFO", f"{tmp_path}/")
    monkeypatch.setattr(programs, "PROGRAM_FOLDERS", (f"{tmp_path}/off", f"{tmp_path}/there"))
    owners = {f"{tmp_path}/{name}": "p.md5sums" for name in names}
    monkeypatch.setattr(programs, "brought", lambda _node: owners)
    (tmp_path / "p.md5sums").touch()
    monkeypatch.setattr(programs, "has_changed", lambda _path, _until: False)
    assert programs.missing_programs(look()) == [f"{tmp_path}/gone p.md5sums"]
    monkeypatch.setattr(programs, "has_changed", lambda _path, _until: True)
    missing = [f"{tmp_path}/{name} p.md5sums" for name in names[:2]]
    assert programs.missing_programs(look()) == missing
    (tmp_path / "p.md5sums").write_text(f"{'0' * 32}  {str(tmp_path)[1:]}/off\n")
    assert [programs.is_missing(*line.rsplit(" ", 1)) for line in missing] == [False, True]
    assert not programs.is_missing(f"{tmp_path}/off", "removed.md5sums")
    (undo,) = plan_for("programs", "all", {"missing": []}, {"missing": missing[1:]}).obstacles.undone
    assert undo["argv"][-1] == "p"


def test_a_packages_program_that_others_may_write_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, opened = tmp_path / "closed", tmp_path / "opened"
    for file, mode in ((closed, 0o755), (opened, 0o757)):
        file.touch()
        file.chmod(mode)
    monkeypatch.setattr(programs, "brought", lambda _node: {str(closed): "p", str(opened): "p"})
    monkeypatch.setattr(programs, "is_installed_so", lambda _path, _owner: False)
    assert programs.open_programs(look()) == [str(opened)]
    (undo,) = plan_for("programs", "all", {"open": []}, {"open": [str(opened)]}).obstacles.undone
    argv = undo["argv"]
    subprocess.run([*argv[:-2], f"{os.getuid()}", argv[-1]], check=True)
    assert programs.open_programs(look()) == []
    monkeypatch.setattr(programs, "is_installed_so", lambda _path, _owner: True)
    opened.chmod(0o757)
    assert programs.open_programs(look()) == [str(opened)], "no package opens one to all"
    opened.chmod(0o775)
    os.chown(opened, 0, 1)
    assert programs.open_programs(look()) == []
