"""Around the Pulumi CLI: one worker per stack, stale locks, interrupts, and errors that say why."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infra import pulumi_cli
from infra.errors import BadInputError, CausewayError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file backend and a folder for locks of this test's own."""
    monkeypatch.setattr(pulumi_cli, "CAUSEWAY_DIR", tmp_path / ".causeway")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def test_a_second_worker_is_told_who_has_the_stack(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from infra import pulumi_cli\n"
        f"pulumi_cli.CAUSEWAY_DIR = pathlib.Path({str(tmp_path / '.causeway')!r})\n"
        "with pulumi_cli.only_one('s'):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CausewayError, match=f"process {holder.pid} since"), pulumi_cli.only_one("s"):
            pass
        with pulumi_cli.only_one("another"):
            pass
        holder.kill()
        holder.wait()
    with pulumi_cli.only_one("s"):  # the kernel has let go of the dead one's lock
        pass


@pytest.mark.parametrize("name", ["../passphrase", "..", ""])
def test_a_lock_lies_among_the_locks_or_nowhere(tmp_path: Path, name: str) -> None:
    passphrase = tmp_path / ".causeway" / "passphrase"
    passphrase.parent.mkdir()
    passphrase.write_text("secret")
    with pytest.raises(BadInputError), pulumi_cli.only_one(name):
        pass
    assert passphrase.read_text() == "secret"


def lock_of(backend: Path, pid: int, host: str = "") -> Path:
    """A lock as Pulumi's file backend writes it."""
    path = backend / ".pulumi" / "locks" / "organization" / "causeway" / "s" / "9f1c.json"
    path.parent.mkdir(parents=True)
    holder = {"pid": pid, "username": "root", "hostname": host or socket.gethostname()}
    path.write_text(json.dumps({**holder, "timestamp": "2026-01-01T00:00:00Z"}))
    return path


def test_a_lock_that_a_killed_pulumi_left_is_lifted(backend: Path) -> None:
    lock = lock_of(backend, os.getpid())  # a process ID that another program has since inherited
    with pulumi_cli.only_one("s"):
        assert not lock.exists()


def test_a_lock_of_another_machine_is_respected(backend: Path) -> None:
    """Whatever runs here under that number: it is not the one that holds the lock."""
    lock = lock_of(backend, os.getpid(), "the-other-controller")
    with (
        pytest.raises(CausewayError, match=r"pulumi on the-other-controller(.|\n)*pulumi cancel"),
        pulumi_cli.only_one("s"),
    ):
        pass
    assert lock.exists()


def test_a_pulumi_that_somebody_started_by_hand_is_respected(backend: Path, tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    shutil.copy2(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as by_hand:
        while Path(f"/proc/{by_hand.pid}/comm").read_text() != "pulumi\n":  # named a moment after its start
            time.sleep(0.01)
        lock = lock_of(backend, by_hand.pid)
        with pytest.raises(CausewayError, match=f"process {by_hand.pid}"), pulumi_cli.only_one("s"):
            pass
        assert lock.exists()
        by_hand.kill()


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A program called `pulumi`, first on the PATH."""
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_request_to_end_reaches_pulumi_as_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    # `nohup` has it ignored, and bash sets no trap then.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    script(tmp_path, monkeypatch, f"trap 'exit 7' INT; : > {ready}; while :; do sleep 0.05; done")

    def end() -> None:
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end)
    ending.start()
    assert pulumi_cli.pulumi(["up"]).returncode == 7
    ending.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_missing_cli_and_a_failed_command_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "echo 'no stack named q' >&2; exit 255")
    with pytest.raises(CausewayError, match=r"`pulumi stack select q` failed: no stack named q"):
        pulumi_cli.require(["stack", "select", "q"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CausewayError, match="not on the PATH"):
        pulumi_cli.pulumi(["version"])


def test_a_declaration_stays_as_its_user_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real CLI, which rewrites the file when it adds its salt."""
    monkeypatch.setattr(pulumi_cli, "ROOT", tmp_path)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "of this test")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    (tmp_path / "Pulumi.yaml").write_text("name: causeway\nruntime: python\n")
    declaration = tmp_path / "Pulumi.mine.yaml"
    mine = "config:\n  # why\n  causeway:cluster:\n    regions:\n    - {name: tokyo}   # so\n"
    declaration.write_text(mine)
    pulumi_cli.select_stack("mine", declaration)
    salted = declaration.read_text()
    assert salted.startswith(mine + "encryptionsalt: v1:")
    assert salted.count("\n") == mine.count("\n") + 1
    pulumi_cli.select_stack("mine", declaration)
    assert declaration.read_text() == salted
    assert pulumi_cli.stack_exists("mine")
    assert pulumi_cli.without_salt(salted) == mine


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of Pulumi's with one stack's file; whoever works in it has a passphrase of their own."""
    (tmp_path / "Pulumi.yaml").write_text("name: trial\nruntime: python\n")
    monkeypatch.setattr(pulumi_cli, "ROOT", tmp_path)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "ours")
    file = tmp_path / "Pulumi.s.yaml"
    file.write_text("# a comment\nconfig:\n    trial:a: b\n")
    return file


def somebody_elses(file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file with the salt of another passphrase, whose state is not here."""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "theirs")
    pulumi_cli.select_stack("s", file)
    shutil.rmtree(file.parent / "state")
    (file.parent / "state").mkdir()
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "ours")
    return file.read_text()


def test_a_committed_salt_of_anothers_passphrase_is_made_anew(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, theirs = project.read_text(), somebody_elses(project, monkeypatch)
    pulumi_cli.select_stack("s", project)
    assert "Pulumi.s.yaml: its encryptionsalt" in capsys.readouterr().out
    assert pulumi_cli.without_salt(project.read_text()) == plain
    assert project.read_text().count("encryptionsalt") == 1
    assert project.read_text() != theirs
    pulumi_cli.select_stack("s", project)
    assert capsys.readouterr().out == "", "it is ours now"


def test_what_is_encrypted_with_another_passphrase_is_never_forgotten(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = somebody_elses(project, monkeypatch)
    project.write_text(theirs.replace("config:\n", "config:\n    trial:c:\n        secure: v1:x:y\n"))
    before = project.read_text()
    with pytest.raises(CausewayError, match=r"Pulumi\.s\.yaml: its secrets are encrypted") as caught:
        pulumi_cli.select_stack("s", project)
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in caught.value.hint
    assert project.read_text() == before


def test_no_salt_of_ours_is_committed() -> None:
    grep = ["git", "grep", "--cached", "-l", "^encryptionsalt", "--", ":(glob)Pulumi*.yaml", "examples"]
    assert subprocess.run(grep, cwd=ROOT, capture_output=True, text=True).stdout == ""
