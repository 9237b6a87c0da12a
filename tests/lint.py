"""ansible-lint with one syntax check for all, instead of a start of Ansible for each playbook and role.

    python -m tests.lint --offline --strict

Where that one check fails, ansible-lint makes its own of each file, and says of each what it always says.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ansiblelint.__main__ import main
from ansiblelint.errors import MatchError
from ansiblelint.file_utils import Lintable
from ansiblelint.runner import Runner

ROLE = "- {{hosts: localhost, tasks: [{{ansible.builtin.import_role: {{name: '{}'}}}}]}}\n"
QUIETLY = {"PYTHONWARNINGS": "ignore", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "False"}
"""As ansible-lint has it."""
LIMIT_S = 600
_each = Runner._run_syntax_check_phase


def pass_together(files: list[Lintable], env: Mapping[str, str]) -> bool:
    """Whether Ansible takes all of these playbooks and roles."""
    with tempfile.TemporaryDirectory() as folder:
        plays = [str(file.path) for file in files if file.kind == "playbook"]
        for number, role in enumerate(file for file in files if file.kind == "role"):
            play = Path(folder) / f"play{number}.yml"
            play.write_text(ROLE.format(role.path.absolute()))
            plays.append(str(play))
        done = subprocess.run(
            ["ansible-playbook", "--syntax-check", *plays],
            env={**env, **QUIETLY}, check=False, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return done.returncode == 0


def syntax_checks(runner: Runner, matches: list[MatchError]) -> list[Lintable]:
    """ansible-lint's phase of that name: the files that were looked at; what is wrong goes to MATCHES."""
    files = runner._collect_syntax_check_files()
    if runner.skip_ansible_syntax_check or not pass_together(files, runner.app.runtime.environ):
        files = _each(runner, matches)
    return files


if __name__ == "__main__":
    Runner._run_syntax_check_phase = syntax_checks  # type: ignore[method-assign, assignment]
    os.environ["ANSIBLE_INVENTORY"] = os.devnull  # the default one asks for a stack that stands
    sys.exit(main(sys.argv))
