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
