"""`causeway forget`: takes nodes that are gone for good out of the memory of those that stay."""

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from infra.commands.arguments import add_stack, require_known
from infra.components.leaving import forget, recorded
from infra.drift.trip import TripError, Trips
from infra.errors import BadInputError, ExitCode
from infra.ground.contract import Contract, load_contract
from infra.pulumi_cli import only_one
from infra.stack import contract_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument(
        "--host", action="append", required=True, metavar="H", help="a node that will never come back"
    )
    parser.add_argument(
        "--lossy", action="store_true", help="also where what it held may be the only copy: that is lost then"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Have the others forget them. BadInputError for an unknown name, and for a node that answers."""
    contract = load_contract(contract_file(arguments.stack))
    hosts = list(dict.fromkeys(arguments.host))
    require_known("host", hosts, sorted(contract.hosts.keys() | recorded(contract.stack)))
    if answering := asyncio.run(_answering(contract, hosts)):
        raise BadInputError(
            f"{', '.join(answering)} can be reached, hence is not gone",
            hint="stop it for good first; where only a role is to go, docs/leave.md says how",
        )
    with only_one(contract.stack):
        forget(contract, hosts, partial(print, flush=True), lossy=arguments.lossy)
    print(f"forgotten: {', '.join(hosts)}")
    if declared := [name for name in hosts if name in contract.hosts]:
        print(f"Still declared, so the next ./run up {contract.stack} wants a new one: {', '.join(declared)}")
    return ExitCode.OK


async def _answering(contract: Contract, hosts: Sequence[str]) -> list[str]:
    """Those of them that let us in. Of one that does not, the roles still know whether it lives."""
    trips = Trips(contract)

    async def answers(name: str) -> bool:
        try:
            connection = await trips.open(name)
        except TripError as error:
            return error.reached
        connection.abort()
        return True

    asked = [name for name in hosts if name in contract.hosts]
    found = await asyncio.gather(*map(answers, asked))
    return [name for name, is_there in zip(asked, found, strict=True) if is_there]
