"""Steps that declare what they read of the checkout: whether that is true, and whether it changed.

Where one declares nothing, its outcome depends on the whole checkout.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WATCH = Path(__file__).with_name("opened")
"""Stands first in PYTHONPATH: its `sitecustomize` notes what is opened."""
TOOLS = ("run", "toolchain/", "pyproject.toml", "requirements.lock", "ansible.cfg")
ALWAYS = (*TOOLS, "tests/*.py", "tests/opened/")
"""What every step stands on."""
NOBODYS = (".causeway/", ".git/", ".git")
"""Not of the checkout."""
SHOWN = 10


def environment(file: Path, path: str) -> Mapping[str, str]:
    """What a step's processes need for FILE to say what they opened; PATH is their PYTHONPATH otherwise."""
    return {
        "CAUSEWAY_OPENED": str(file),
        "CAUSEWAY_CHECKOUT": str(ROOT),
        "CAUSEWAY_WATCH": str(WATCH),
        "PYTHONPATH": f"{WATCH}:{path}".rstrip(":"),
    }


def undeclared(file: Path, patterns: Iterable[str]) -> list[str]:
    """The files that a step opened and did not declare; those that stand no longer are results of its own."""
    opened = sorted(set(file.read_text().splitlines())) if file.exists() else []
    known = (*patterns, *ALWAYS, *NOBODYS)
    return [name for name in opened if not matches(name, known) and (ROOT / name).is_file()]


def in_words(step: str, files: list[str]) -> str:
    """What to do about them."""
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return f"{step} read files that it does not declare (tests/steps.py): {', '.join(files[:SHOWN])}{more}"


def part(names: Iterable[str], patterns: tuple[str, ...]) -> Iterator[str]:
    """The names that a step's outcome may depend on; all where it declares nothing."""
    return (name for name in names if not patterns or matches(name, (*patterns, *ALWAYS)))


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns fits; `*` stays in a folder, and one that ends with `/` is all in it."""
    return bool(_expression(patterns).match(name))


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    plain = (re.escape(one).replace(r"\*", "[^/]*") for one in patterns)
    return re.compile("|".join(one if one.endswith("/") else f"{one}$" for one in plain))
