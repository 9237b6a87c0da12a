"""`causeway logs`: what the nodes of a stack have logged, asked of every region's store."""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from infra.capabilities.logs.section import LogsSection
from infra.commands.arguments import add_stack
from infra.errors import BadInputError, CausewayError, ExitCode, one_line, sentence
from infra.ground.contract import Contract, load_contract
from infra.ground.login import on
from infra.ground.problem import nearest, show
from infra.process import begun
from infra.stack import contract_file

COMMAND, SUMMARY = "logs", "find what nodes have logged, in every region's store"
PATIENCE_S = 60
"""A login over the WAN, and a question that may read days."""
LONGEST = 4000
"""Characters of a line that are shown."""
HELP = 'QUERY is LogsQL: words, field:="value", then | and a pipe; docs/logs.md has examples'
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
REFUSED = "causeway refused"
"""The field of an answer that is none: no name that a query would give one."""
ASK = """
import json, sys, urllib.error, urllib.parse, urllib.request
words = urllib.parse.urlencode(dict(pair.split("=", 1) for pair in sys.argv[1:])).encode()
try:
    with urllib.request.urlopen("http://127.0.0.1:9428/select/logsql/query", words, timeout=45) as answer:
        sys.stdout.buffer.write(answer.read())
except urllib.error.HTTPError as error:
    said = error.read().decode(errors="replace")
    print(json.dumps({"causeway refused": said[max(said.find("cannot parse query"), 0):]}))
except OSError as error:
    sys.exit("its store does not answer: " + str(error))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument(
        "query", nargs="?", default="*", metavar="QUERY", help="LogsQL, as 'error' or '* | top 5 by (node)'"
    )
    parser.add_argument(
        "--since", type=seconds, default=seconds("15m"), metavar="TIME", help="how far back: 30s, 15m, 2h, 7d"
    )
    parser.add_argument("--region", metavar="NAME", help="ask this region only")
    parser.add_argument("--node", metavar="NAME", help="lines of this node only")
    parser.add_argument(
        "--limit", type=positive, default=200, metavar="N", help="the last N of each region (200)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line, for programs")


def seconds(text: str) -> int:
    """A length of time such as 15m, in seconds."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time such as 30s, 15m, 2h or 7d")
    return int(match[1]) * UNITS_S[match[2]]


def positive(text: str) -> int:
    """A number of lines, from 1 to 100,000."""
    value = int(text)
    if not 1 <= value <= 100_000:
        raise ValueError(text)
    return value


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask the stores, and print what they found by time; FAILED when one could not be asked."""
    contract = load_contract(contract_file(arguments.stack))
    words = {
        "query": arguments.query,
        "start": str(int(time.time()) - arguments.since),
        "limit": str(arguments.limit),
    }
    if arguments.node:
        words["extra_filters"] = json.dumps({"node": _known(arguments.node, contract.hosts, "a node")})
    found, problems = ask(contract, chosen(contract, arguments), words)
    for line in sorted(found, key=_when):
        print(json.dumps(line) if arguments.json else shown(line))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.OK


def _when(fields: dict[str, str]) -> str:
    """What orders lines by time: a store leaves out zeros at a fraction's end, and `Z` is after any digit."""
    return fields.get("_time", "").removesuffix("Z")


def chosen(contract: Contract, arguments: argparse.Namespace) -> dict[str, str]:
    """Region → store of those that are asked. BadInputError where there are none."""
    section = contract.section(LogsSection)
    if section is None:
        raise BadInputError(
            f"stack {contract.stack} keeps no logs",
            hint="declare `logs: {kind: victorialogs}` below `monitoring`",
        )
    if section.external:
        raise BadInputError(
            f"the logs of stack {contract.stack} are in a store of your own, {section.external.url}",
            hint="ask it in its own language",
        )
    region = contract.region_of(arguments.node) if arguments.node in contract.hosts else None
    if arguments.region is not None:
        region = _known(arguments.region, section.stores, "a region")
    return {name: host for name, host in section.stores.items() if region in (None, name)}


def _known(name: str, names: Any, what: str) -> str:
    if name not in names:
        meant = nearest(name, names)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(list(names)[:10])}"
        raise BadInputError(f"{show(name)} is not {what} of this stack", hint=hint)
    return name


def ask(
    contract: Contract, stores: dict[str, str], words: dict[str, str]
) -> tuple[list[dict[str, str]], list[str]]:
    """The lines that were found, each with its `region`, and who could not be asked."""
    found: list[dict[str, str]] = []
    problems: list[str] = []

    asked = {host: begun(partial(_found, contract, region, host, words)) for region, host in stores.items()}
    for host, answer in asked.items():
        try:
            found += answer.result()
        except BadInputError:
            raise
        except CausewayError as error:
            problems.append(sentence(f"{host} cannot be asked: {error.message}"))
    return found, problems


def _found(contract: Contract, region: str, host: str, words: dict[str, str]) -> list[dict[str, str]]:
    lines = list(_lines(_answer(contract, host, words)))
    if lines and REFUSED in lines[0]:
        raise BadInputError(sentence(f"{host} refuses the query: {lines[0][REFUSED]}"), hint=HELP)
    return [{**line, "region": region} for line in lines]


def _answer(contract: Contract, host: str, words: dict[str, str]) -> str:
    command = shlex.join(["python3", "-", *(f"{key}={value}" for key, value in words.items())])
    return on(contract, host, command, stdin=ASK, timeout_s=PATIENCE_S)


def _lines(answer: str) -> Iterator[dict[str, str]]:
    """The objects of an answer; what is none is left out.

    JSON writes a new line as \\n only, and U+0085, U+2028 and others that Python splits at as they are.
    """
    for line in answer.split("\n"):
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield {str(key): str(value) for key, value in fields.items()}


def shown(fields: dict[str, str]) -> str:
    """A line of a log for people, or the fields of what a query counted; never a terminal's commands."""
    if "_msg" not in fields:
        text = "  ".join(f"{key}={value}" for key, value in fields.items())
        return one_line(text, LONGEST)
    unit = fields.get("unit", "").removesuffix(".service")
    place = f"{fields.get('_time', '?')} {fields.get('node', '?')} {unit}"
    return one_line(f"{place}: {fields['_msg']}", LONGEST)
