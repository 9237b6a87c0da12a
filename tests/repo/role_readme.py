"""The variable table of a role's README, made from its argument_specs: `python tests/repo/role_readme.py`."""

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROLES = Path(__file__).resolve().parents[2] / "roles"
START, END = "<!-- variables: made from meta/argument_specs.yml -->", "<!-- end of variables -->"


def options(role: Path) -> dict[str, dict[str, Any]]:
    """A role's declared variables."""
    specs = YAML(typ="safe", pure=True).load((role / "meta" / "argument_specs.yml").read_text())
    (entry,) = specs["argument_specs"].values()
    declared: dict[str, dict[str, Any]] = entry["options"]
    return declared


def table(declared: dict[str, dict[str, Any]]) -> str:
    """Markdown rows; the keys of a list of dictionaries follow it, indented by its name."""
    return "\n".join(["| variable | type | default | meaning |", "|---|---|---|---|", *_rows(declared, "")])


def _rows(declared: dict[str, dict[str, Any]], prefix: str) -> list[str]:
    rows = []
    for name, option in declared.items():
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        if "choices" in option:
            kind = " \\| ".join(f"`{choice}`" for choice in option["choices"])
        rows.append(
            f"| `{prefix}{name}` | {kind} | {_default(option)} | {' '.join(option['description'].split())} |"
        )
        rows += _rows(option.get("options", {}), f"{name}[].")
    return rows


def _default(option: dict[str, Any]) -> str:
    if "default" not in option:
        return "*required*" if option.get("required") else ""
    value = option["default"]
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def current(role: Path) -> str:
    """What the README shall say: its own text with the table of today."""
    text = (role / "README.md").read_text()
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{table(options(role))}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Rewrite every role's table."""
    for specs in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        role = specs.parents[1]
        (role / "README.md").write_text(current(role))
    return 0


if __name__ == "__main__":
    sys.exit(main())
