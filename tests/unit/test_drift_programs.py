"""Programs of packages that are not as their package brought them."""

from hashlib import md5
from pathlib import Path

import pytest

from infra.drift.kinds import unit
from roles.base.drift import programs
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
    name = f"usr/bin/../..{program}"
    sums.write_text(f"{md5(b'packaged').hexdigest()}  {name}\n{md5(b'').hexdigest()}  usr/share/x\n")  # noqa: S324
    for place in (programs, unit):
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
    told = {"strange": list(map(str, strange)), "edited": []}
    monkeypatch.setattr(programs, "slow", lambda _node, name, _read: told[name])
    assert str(strange[1]) not in programs.look_at_programs(node, "all", {})["strange"]


def test_added_programs_are_moved_away() -> None:
    plan = plan_for("programs", "all", {"strange": []}, {"strange": ["/usr/bin/x"]})
    assert plan.obstacles.added == ["/usr/bin/x"]
