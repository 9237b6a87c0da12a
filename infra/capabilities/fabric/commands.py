"""`causeway switch`: bring a planned switch configuration and a switch together. Offline."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from infra.capabilities.fabric.join import Joined, join
from infra.errors import BadInputError, CausewayError, ExitCode

COMMAND, SUMMARY = "switch", "join a planned switch configuration with a switch's own, offline"
OFFLINE = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    what = "join: what a switch has of its own, with every planned table as it is planned"
    parser.add_argument("what", choices=["join"], help=what)
    parser.add_argument("planned", type=Path, metavar="PLANNED", help="of `causeway plan --switches DIR`")
    parser.add_argument("own", type=Path, metavar="OWN", help="the switch's /etc/sonic/config_db.json")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the whole there instead of printing it"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print or write the whole configuration; what it takes away from the switch goes to stderr."""
    joined = join(_tables(arguments.planned), _tables(arguments.own))
    text = json.dumps(joined.tables, indent=1) + "\n"
    if arguments.out is None:
        print(text, end="")
    else:
        try:
            arguments.out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CausewayError(f"{arguments.out} cannot be written: {error.strerror}") from None
    _tell(joined)
    return ExitCode.OK


def _tell(joined: Joined) -> None:
    if joined.removed:
        entries = ", ".join(f"{table} {count}" for table, count in joined.removed.items())
        print(f"entries of the switch that are not planned and go: {entries}", file=sys.stderr)
    for line in joined.dangling:
        print(f"warning: {line}, which goes; the entry stays", file=sys.stderr)


def _tables(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """A config_db.json. BadInputError where it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON: {error}", hint=_HINT) from None
    if not isinstance(found, dict):
        raise BadInputError(f"{path} is not a config_db.json: it holds no tables", hint=_HINT)
    for name, table in found.items():
        if not isinstance(table, dict) or not all(isinstance(fields, dict) for fields in table.values()):
            raise BadInputError(f"{path} is not a config_db.json: {name} is not a table", hint=_HINT)
    return found


_HINT = "a config_db.json has tables of keys with fields, such as sonic-cfggen writes"
