"""`causeway schema`: the JSON Schema of declarations, for editors. Offline."""

import argparse
import json

from infra.checks.json_schema import declaration_schema
from infra.errors import ExitCode

OFFLINE = True
"""It needs no stack: where pip has installed the package alone, it works, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(arguments: argparse.Namespace) -> ExitCode:  # noqa: ARG001 - every command takes them
    """Print the schema."""
    print(schema_text(), end="")
    return ExitCode.OK


def schema_text() -> str:
    """The schema as it stands in docs/."""
    return json.dumps(declaration_schema(), indent=1, ensure_ascii=False) + "\n"
