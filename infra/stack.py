"""What a stack may be called, and where it keeps its files.

Its name is part of paths, of containers' names and of namespaces.
"""

import re
from pathlib import Path

from infra import ROOT
from infra.errors import BadInputError

MAX_STACK = 40
"""A Unix socket's path holds 107 bytes, and the stack's name is in it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_stack(stack: str) -> str:
    """The name itself; BadInputError for one that could lead to another's files, or to none."""
    if not _NAME.fullmatch(stack) or len(stack) > MAX_STACK:
        raise BadInputError(
            f"{stack!r} cannot be a stack's name",
            "a letter or digit first, then also '-', '_' and '.',"
            f" at most {MAX_STACK} characters: it is the NAME of Pulumi.NAME.yaml",
        )
    return stack


def stack_dir(stack: str) -> Path:
    """Where a stack keeps its files, relative to the checkout."""
    return Path(".causeway") / "stacks" / check_stack(stack)


def contract_file(stack: str) -> Path:
    """Where the contract of a stack is: absolute."""
    return ROOT / stack_dir(stack) / "contract.json"


def secret_file(stack: str, name: str, ending: str = "") -> Path:
    """Where a part of a secret is on the controller: absolute, for roles read it by that."""
    return ROOT / stack_dir(stack) / "secrets" / f"{name}{ending}"
