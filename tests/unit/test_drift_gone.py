"""Settings that somebody deleted."""

from pathlib import Path

import pytest

from infra.drift.kinds import slow
from infra.drift.looks import Look
from roles.base.drift import gone
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_surroundings import sealed_again


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages' settings, all of them there: of an installed one, of one that is removed, and by ucf."""
    etc = tmp_path / "etc"
    etc.mkdir()
    status = f"""Package: sudo
Status: hold ok installed
Conffiles:
 {etc}/sudoers {"1" * 32}
 {etc}/a file {"2" * 32}
 {etc}/older {"3" * 32} obsolete
 {etc}/moved {"4" * 32}
Description: lines that begin with a space follow
 {etc}/none {"5" * 32}

Package: removed
Status: deinstall ok config-files
Conffiles:
 {etc}/kept {"6" * 32}

Package: last
Status: install ok installed
Conffiles:
 {etc}/last {"7" * 32}
"""
    monkeypatch.setattr(Look, "dpkg", lambda _: b"\n\n" + status.encode())
    files = {"diversions": f"{etc}/moved\n{etc}/moved.x\nq\n", "hashfile": f"{'8' * 32}  {etc}/sshd\n"}
    files["registry"] = f"openssh-server {etc}/sshd\npurged {etc}/forgotten\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, place in (("DIVERSIONS", "diversions"), ("UCF", "hashfile"), ("UCF_NAMES", "registry")):
        monkeypatch.setattr(gone, name, f"{tmp_path}/{place}")
    monkeypatch.setattr(gone, "OF_ALL", (f"{etc}/nsswitch.conf",))
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path / "answers"))
    for name in ("sudoers", "a file", "last", "sshd", "nsswitch.conf"):
        (etc / name).touch()
    return etc


def test_what_somebody_deleted_is_named_with_its_package(etc: Path) -> None:
    node = look()
    node.want = {"settings": []}
    assert gone.look_at_gone(node, "all", {}) == {"settings": []}
    for name in ("sudoers", "a file", "last", "sshd", "nsswitch.conf"):
        (etc / name).unlink()
    lines = [f"{etc}/a file sudo", f"{etc}/last last", f"{etc}/nsswitch.conf -", f"{etc}/sshd openssh-server"]
    lines.append(f"{etc}/sudoers sudo")
    assert gone.look_at_gone(node, "all", {}) == {"settings": lines}
    node.known = {"file": [f"{etc}/last"], "link": [f"{etc}/sshd"]}
    others = [lines[0], lines[2], lines[4]]
    assert gone.look_at_gone(node, "all", {})["settings"] == others, "its role brings it back"
    node.known = {}
    (etc / "sudoers").symlink_to("/nowhere")
    assert gone.look_at_gone(node, "all", {})["settings"] == lines[:-1], "what is there is compared elsewhere"


def test_what_was_gone_at_the_seal_is_known_and_may_come_back(etc: Path) -> None:
    (etc / "last").unlink()
    sealed = gone.look_at_gone(look("seal"), "all", {})
    assert sealed == {"settings": [f"{etc}/last last"]}
    node = look(**sealed)
    assert gone.look_at_gone(node, "all", {}) == sealed
    (etc / "last").touch()
    assert gone.look_at_gone(node, "all", {}) == sealed
    want, said = sealed_again("gone", {}, sealed)
    assert want["settings"] == []
    assert "last" in said[0]


def test_its_package_brings_it_again_and_what_none_has_is_named() -> None:
    found = {"settings": ["/etc/pam.d/sshd openssh-server", "/etc/nsswitch.conf -"]}
    plan = plan_for("gone", "all", {"settings": []}, found)
    (undo,) = plan.obstacles.undone
    assert undo["argv"][:2] == ["env", "UCF_FORCE_CONFFMISS=1"]
    assert undo["argv"][-1] == "openssh-server"
    assert "Dpkg::Options::=--force-confmiss" in undo["argv"]
    assert plan.lines == ["base: gone all: gone: /etc/pam.d/sshd openssh-server, /etc/nsswitch.conf -"]
