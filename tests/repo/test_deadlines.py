"""Nothing that we start may hang for ever: every process has a deadline, or a reason why it has none."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTS = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *(f"asyncio.create_subprocess_{name}" for name in ("exec", "shell")),
}
WAITS = {"communicate", "wait"}
REASON = "# deadline: "


def without_deadline(text: str) -> list[str]:
    """The calls that start a process or wait for one, and say nothing of how long, each with its line."""
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(word.arg == "timeout" for word in node.keywords):
            continue
        name = ast.unparse(node.func)
        waits = isinstance(node.func, ast.Attribute) and node.func.attr in WAITS and name != "asyncio.wait"
        reason = any(REASON in line for line in lines[node.lineno - 1 : node.end_lineno])
        if (name in STARTS or waits) and not reason:
            found.append(f"{node.lineno}: {name}")
    return found


def test_every_process_has_a_deadline_or_a_reason() -> None:
    files = sorted((ROOT / "infra").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): without_deadline(path.read_text()) for path in files}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_one_without_is_found() -> None:
    text = 'subprocess.run(["true"])\nchild.communicate()\nsubprocess.run(["true"], timeout=5)\n'
    assert without_deadline(text) == ["1: subprocess.run", "2: child.communicate"]
    assert without_deadline('subprocess.Popen(["x"])  # deadline: none, it is a daemon') == []
