"""`causeway accept`: what nodes say of themselves, what may be taken out, and what the breaker holds back."""

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.capabilities.acceptance.answers import Round, Verdict, read_answer, unheard, weighed
from infra.capabilities.acceptance.breaker import Held
from infra.capabilities.acceptance.floors import floor
from infra.capabilities.acceptance.node.nccl import Result
from infra.capabilities.acceptance.pairs import Judgement, Tried, judged
from infra.capabilities.acceptance.section import AcceptanceSection
from infra.commands.arguments import add_stack
from infra.drift.trip import TripError, Trips, execute, failure_of
from infra.errors import BadInputError, ExitCode, one_line
from infra.ground.contract import Contract, load_contract
from infra.ground.names import some
from infra.stack import contract_file

COMMAND, SUMMARY = "accept", "show which nodes are good, and which may be taken out"
SHOW = "env PYTHONPATH=/usr/local/lib/causeway python3 -sB -m infra.capabilities.acceptance.node show"
AT_ONCE = 48
ANSWER_LIMIT_S, HOST_LIMIT_S = 30, 60
MOST_BYTES = 1 << 18
SHOWN_REASONS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument(
        "--nccl",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="judge outputs of nccl-tests' all_reduce_perf instead, each of some of the stack's nodes",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask every node and the breaker; FAILED unless jobs may start on all of them."""
    contract = load_contract(contract_file(arguments.stack))
    section = contract.section(AcceptanceSection)
    if section is None:
        raise BadInputError(
            f"stack {contract.stack} accepts no nodes", hint="declare `acceptance: {}` and run ./run up"
        )
    if arguments.nccl:
        return _nccl(contract, arguments.nccl, arguments.json)
    hosts = [host for host, node in contract.hosts.items() if node.pool in section.pools]
    found = weighed(contract, section, asyncio.run(ask(contract, section, hosts)))
    if arguments.json:
        print(json.dumps(as_json(found)))
    else:
        print("\n".join(in_words(found)))
    return ExitCode.OK if found.is_fine else ExitCode.FAILED


async def ask(contract: Contract, section: AcceptanceSection, hosts: Iterable[str]) -> dict[str, Verdict]:
    """Every host's verdict, by one SSH trip each; what went wrong with one is its verdict."""
    trips, free = Trips(contract), asyncio.Semaphore(AT_ONCE)
    found: dict[str, Verdict] = dict.fromkeys(hosts, unheard("unreachable", "it was not asked"))

    async def one(host: str) -> None:
        async def trip() -> None:
            async with await trips.open(host) as connection:
                said, complaint, _ = await execute(connection, SHOW, b"", ANSWER_LIMIT_S, MOST_BYTES)
            if not said:
                raise TripError(f"it has no acceptance: {complaint.decode(errors='replace')[-200:]}", True)
            found[host] = read_answer(said, time.time(), section.interval_min)

        async with free:
            if error := await failure_of(trip(), HOST_LIMIT_S):
                found[host] = unheard("unknown" if error.reached else "unreachable", str(error))

    await asyncio.gather(*(one(host) for host in found))
    return found


def as_json(found: Round) -> dict[str, Any]:
    """Nodes with their verdicts, and the breaker's ruling."""
    return {
        "nodes": {host: verdict.model_dump() for host, verdict in found.verdicts.items()},
        "take_out": list(found.ruling.allowed),
        "held": [_held_json(one) for one in found.ruling.held],
    }


def _held_json(one: Held) -> dict[str, Any]:
    kind, name = one.domain
    return {
        "node": one.node,
        "kind": kind,
        "domain": name,
        "out": one.out,
        "most": one.most,
        "nodes": one.nodes,
    }


def in_words(found: Round) -> Iterator[str]:
    """How many are in each state, why those that are not fine are not, and what the breaker says."""
    by_severity: dict[str, list[str]] = {}
    for host, verdict in found.verdicts.items():
        by_severity.setdefault(verdict.severity, []).append(host)
    for severity, hosts in by_severity.items():
        yield f"{len(hosts)} {severity}: {some(hosts)}"
    yield from _alike(found.verdicts)
    if found.ruling.allowed:
        yield "May be taken out:"
        yield from (f"  {host}: {found.verdicts[host].action}" for host in found.ruling.allowed)
    if found.ruling.held:
        yield "Held back by the breaker, for people to look at what they share:"
        for one in found.ruling.held:
            kind, name = one.domain
            yield f"  {one.node}: {one.out} of {one.nodes} nodes of {kind} {name} are out, {one.most} may be"


def _alike(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Nodes that say the same, together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for host, verdict in verdicts.items():
        if verdict.reasons:
            together.setdefault(tuple(verdict.reasons), []).append(host)
    for reasons, hosts in together.items():
        yield f"{some(hosts)}:"
        yield from (f"  {one_line(reason, 300)}" for reason in reasons[:SHOWN_REASONS])
        if len(reasons) > SHOWN_REASONS:
            yield f"  and {len(reasons) - SHOWN_REASONS} more: --json has all"


def _nccl(contract: Contract, files: list[Path], is_json: bool) -> ExitCode:
    runs = [read_run(contract, file) for file in files]
    judgement = judged(tried for tried, _ in runs)
    if is_json:
        print(json.dumps({"runs": [line for _, line in runs], **_judgement_json(judgement)}))
    else:
        for _, line in runs:
            word = "passed" if line["passed"] else "FAILED"
            reached = f"{line['bus_gbs']:g} of at least {line['floor_gbs']:g} GB/s"
            print(f"{word}: {some(line['nodes'])}, {reached}")
        print("\n".join(_judged(judgement)))
    return ExitCode.OK if all(tried.passed for tried, _ in runs) else ExitCode.FAILED


def read_run(contract: Contract, file: Path) -> tuple[Tried, dict[str, Any]]:
    """A run against the floor for its nodes. BadInputError for a file or nodes that have none."""
    try:
        result = Result(file.read_text(errors="replace"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{file}: {error}", hint="all_reduce_perf -b 1G -e 8G -f 2 writes one") from None
    nodes = [_host_of(contract, name, file) for name in result.gpus]
    pools = {contract.hosts[node].pool for node in nodes}
    if len(pools) != 1 or result.collective.lower() not in ("", "allreduce", "all_reduce_perf", "all_reduce"):
        raise BadInputError(f"{file}: no floor is known but of all_reduce among nodes of one pool")
    pool = contract.pools[pools.pop()]
    wanted = floor(pool.gpu_model or "", pool.gpus, pool.nics * (pool.nic_gbps or 0), len(nodes))
    if wanted is None:
        raise BadInputError(
            f"{file}: no floor is known for {len(nodes)} nodes of {pool.gpus} {pool.gpu_model}"
        )
    missing = [
        f"{node} has {gpus}"
        for node, gpus in zip(nodes, result.gpus.values(), strict=True)
        if gpus != pool.gpus
    ]
    if missing:
        raise BadInputError(f"{file}: {', '.join(missing)} of {pool.gpus} declared GPUs: use all of them")
    passed = result.right and result.bus_gbs >= wanted
    line = {
        "nodes": nodes,
        "bus_gbs": result.bus_gbs,
        "floor_gbs": wanted,
        "right": result.right,
        "passed": passed,
    }
    return Tried(frozenset(nodes), passed), line


def _host_of(contract: Contract, name: str, file: Path) -> str:
    host = name.partition(".")[0]
    if host not in contract.hosts:
        raise BadInputError(f"{file}: {one_line(name, 80)} is no node of stack {contract.stack}")
    return host


def _judgement_json(judgement: Judgement) -> dict[str, Any]:
    return {name: [*value] for name, value in vars(judgement).items()}


def _judged(judgement: Judgement) -> Iterator[str]:
    if judgement.blamed:
        yield f"To blame: {some(judgement.blamed)}: too slow with two peers that are good without it"
    if judgement.paths:
        yield from (
            f"What lies between {' and '.join(pair)}: each is good with another" for pair in judgement.paths
        )
    if judgement.suspects:
        yield f"Suspects, not to be blamed yet: {some(judgement.suspects)}"
    yield from (f"Try next: {' with '.join(pair)}" for pair in judgement.next)
