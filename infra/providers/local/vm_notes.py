"""The note that stands beside a virtual machine's disk: whose it is, and what it was made from."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.providers.local import names

FILE = "note.json"


def of_stack(stack: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each machine's folder with its note, also of half-made ones."""
    return ((folder, read(folder)) for folder in sorted(names.vms_dir(stack).glob("*")))


def read(folder: Path) -> dict[str, Any]:
    """A machine's note; {} where a run was killed before it was written."""
    try:
        note = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def made_from(image: Path) -> list[str]:
    """The machines of all stacks whose disks are overlays of a file below this folder."""
    folders = sorted(names.VM_DIR.glob("*/*"))
    using = (folder for folder in folders if Path(read(folder).get("image", "")).is_relative_to(image))
    return [names.node(folder.parent.name, read(folder)["node"]) for folder in using]
