"""A secret that a service made on a node comes to the controller, by real Ansible, and is told to nobody."""

import base64
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = "what only the node knows"
PLAY = """
- name: Keep a secret
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Keep it
      causeway_keep_secret:
        src: "{{ src }}"
        dest: "{{ dest }}"
"""


class Keeping:
    """A folder with a node's file and a controller's."""

    def __init__(self, folder: Path) -> None:
        self.source, self.kept = folder / "node" / "token", folder / "secrets" / "token"
        self.source.parent.mkdir()
        self.play = folder / "play.yml"
        self.play.write_text(PLAY)

    def run(self, *options: str) -> tuple[int, str]:
        """Exit status and output of the play, as talkative as Ansible gets."""
        command = ("ansible-playbook", "-vvvv", "-c", "local", "-i", "localhost,", *options, str(self.play))
        done = subprocess.run(
            [*command, "-e", f"src={self.source}", "-e", f"dest={self.kept}"],
            env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STRATEGY": "linear"},
            cwd=ROOT, text=True, check=False, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    return Keeping(tmp_path)


def test_it_is_kept_once_for_its_owner_alone_and_told_to_nobody(keeping: Keeping) -> None:
    keeping.source.write_text(KEPT)
    told = ""
    for counted in ("changed=1", "changed=0"):
        status, output = keeping.run()
        assert (status, counted in output) == (0, True), output
        told += output
    assert keeping.kept.read_text() == KEPT
    assert (keeping.kept.stat().st_mode & 0o777, keeping.kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert KEPT not in told
    assert base64.b64encode(KEPT.encode()).decode() not in told


def test_check_mode_writes_nothing_and_needs_no_secret_yet(keeping: Keeping) -> None:
    for made in (False, True):
        if made:
            keeping.source.write_text(KEPT)
        status, output = keeping.run("--check")
        assert (status, "changed=1" in output, keeping.kept.exists()) == (0, True, False), output


@pytest.mark.parametrize(
    ("content", "told"), [(None, "cannot be read on the node"), (b"\xff\x00", "is no text")]
)
def test_what_cannot_be_kept_says_why(content: bytes | None, told: str, keeping: Keeping) -> None:
    if content:
        keeping.source.write_bytes(content)
    status, output = keeping.run()
    assert (status, told in output, keeping.kept.exists()) == (2, True, False), output
