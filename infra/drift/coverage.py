"""Which tasks of a role a record can express, told from the role's files: no node is needed."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.drift.claims import COMMANDS, NEUTRAL
from infra.drift.kinds import MODULES
from infra.drift.owner import TELLS_OTHERS
from infra.inventory.steps import read_yaml, tasks_in

KEYWORDS = {
    *("action", "any_errors_fatal", "args", "async", "become", "become_exe", "become_flags", "become_method"),
    *(
        "become_user",
        "block",
        "always",
        "changed_when",
        "check_mode",
        "collections",
        "connection",
        "debugger",
    ),
    *("delay", "delegate_facts", "delegate_to", "diff", "environment", "failed_when", "ignore_errors"),
    *("ignore_unreachable", "listen", "local_action", "loop", "loop_control", "module_defaults", "name"),
    *("no_log", "notify", "poll", "port", "register", "remote_user", "rescue", "retries", "run_once", "tags"),
    *("throttle", "timeout", "until", "vars", "when"),
}
"""Keys of a task that are not its module."""


@dataclass
class Coverage:
    """A role's state-changing tasks: those a record can express, and those it cannot."""

    covered: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many tasks change state."""
        return len(self.covered) + len(self.uncovered)

    @property
    def percent(self) -> float:
        """Share of covered tasks; 100 for a role that changes nothing."""
        return 100.0 * len(self.covered) / self.total if self.total else 100.0


def role_coverage(role: str, root: Path = ROOT) -> Coverage:
    """The coverage of one role, from `tasks/` and `handlers/`."""
    found = Coverage()
    folder = root / "roles" / role
    tasks = (path for path in folder.glob("tasks/**/*.yml") if path.stem not in TELLS_OTHERS)
    for path in sorted([*tasks, *folder.glob("handlers/**/*.yml")]):
        for task in tasks_in(read_yaml(path)):
            module = next((key for key in task if key not in KEYWORDS and not key.startswith("with_")), "")
            name = f"{task.get('name', module)} ({module})"
            verdict = _covers(task, module, folder)
            if verdict is not None:
                (found.covered if verdict else found.uncovered).append(name)
    return found


def _covers(task: Mapping[str, Any], module: str, folder: Path) -> bool | None:
    """Whether a record can express the task; None when it changes nothing on the node."""
    if "causeway_governs" in (task.get("vars") or {}):
        return True
    if module in NEUTRAL or task.get("delegate_to") == "localhost":
        return None
    if module in COMMANDS:
        return None if task.get("changed_when") is False else False
    if module in MODULES:
        return True
    own = folder / "library" / f"{module}.py"
    return own.is_file() and _says_what_it_governs(own.read_text())


def _says_what_it_governs(source: str) -> bool:
    """Whether a module's code hands `governs` back, as an argument or as a key; words in its texts do not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "governs":
            return True
        if isinstance(node, ast.Dict):
            keys = (key.value for key in node.keys if isinstance(key, ast.Constant))
            if "governs" in keys:
                return True
    return False
