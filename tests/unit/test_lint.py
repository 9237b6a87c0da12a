"""One syntax check for all playbooks and roles fails where one of them is wrong, wherever it stands."""

import os
from pathlib import Path

from ansiblelint.file_utils import Lintable

from tests.lint import pass_together

ROOT = Path(__file__).resolve().parents[2]
WRONG = "- {ansible.builtin.debug: {msg: one}, ansible.builtin.command: two}\n"


def test_a_wrong_role_between_right_playbooks_fails(tmp_path: Path) -> None:
    playbook = tmp_path / "right.yml"
    playbook.write_text("- {hosts: localhost, tasks: [ansible.builtin.debug: {msg: one}]}\n")
    tasks = tmp_path / "roles" / "wrong" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    tasks.write_text(WRONG)
    right, wrong = Lintable(playbook, kind="playbook"), Lintable(tmp_path / "roles" / "wrong", kind="role")
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY": os.devnull}
    assert not pass_together([right, wrong, right], env)
    tasks.write_text(WRONG.partition(", ansible")[0] + "}\n")
    assert pass_together([right, wrong, right], env)
