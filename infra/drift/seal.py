"""Seals what a run recorded: reads the values from the nodes, one trip each, has them merged, and keeps the
manifests on the controller and on the node.
"""

import asyncio
import posixpath
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from infra.drift.inputs import Inputs
from infra.drift.journal import keep_changes
from infra.drift.manifest import NODE_COPY, Manifest, RoleManifest, load_manifest, save_manifest, sweep_texts
from infra.drift.merge import HostSeal, Record
from infra.drift.task_inputs import TaskInputs
from infra.drift.trip import TripError, Trips, execute, failure_of, login_by
from infra.errors import CausewayError, one_line, sentence, why
from infra.ground.contract import Contract, load_contract
from infra.ground.identities import load_identities
from infra.stack import contract_file

AT_ONCE = 32
STORE_TIMEOUT_S = 20
LIMIT_S = 600
HOST_LIMIT_S = 140


async def seal_host(trips: Trips, seal: HostSeal) -> None:
    """One trip: read, merge, leave the copy on the node. TripError when any of it fails."""
    connection = await trips.open(seal.host)
    async with connection:
        answer = await trips.ask(connection, seal.host, seal.request())
        try:
            seal.merge(answer)
        except Exception:  # not to keep what was merged half
            seal.manifest = load_manifest(seal.stack, seal.host) or Manifest(host=seal.host)
            raise
        await store_copy(trips, connection, seal.host, seal.manifest)
    save_manifest(seal.stack, seal.manifest)
    keep_changes(seal.stack, seal.host, seal.is_unsealed)


async def store_copy(trips: Trips, connection: Any, host: str, manifest: Manifest) -> None:
    """Write the node's copy of its manifest, whole or not at all, for root only."""
    folder, part = posixpath.dirname(NODE_COPY), f"{NODE_COPY}.part"
    steps = f"umask 077 && mkdir -p {folder} && cat > {part} && mv {part} {NODE_COPY}"
    command = trips.as_root(host, f"sh -c '{steps}'")
    data = trips.ahead(host) + manifest.node_copy()
    _, complaint, status = await execute(connection, command, data, STORE_TIMEOUT_S)
    if status != 0:
        raise TripError(f"cannot write {NODE_COPY}: {trips.cause(host, complaint)}", True)


async def seal_all(stack: str, hosts: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """Seal many hosts at once; the problems, one line each."""
    contract = load_contract(contract_file(stack))
    trips, identities = Trips(contract), load_identities(stack)
    known = Inputs(contract, identities)
    tasks, inputs = TaskInputs(known), known.all()
    gate = asyncio.Semaphore(AT_ONCE)
    problems: list[str] = []
    deadline = time.monotonic() + LIMIT_S

    async def one(host: str, records: Mapping[str, Record]) -> None:
        async with gate:
            try:
                identity = identities.get(host, "")
                key = way_in(contract, host)
                seal = HostSeal(stack, host, records, inputs[host], identity, partial(tasks.of, host), key)
                left_s = deadline - time.monotonic()
                error: TripError | None = TripError(f"its turn had not come after {LIMIT_S} s", reached=False)
                if left_s > 0:
                    error = await failure_of(seal_host(trips, seal), min(HOST_LIMIT_S, left_s))
                if error:
                    mark_unsealed(seal, str(error))
                problems.extend(map(one_line, _problems(seal, error)))
            except Exception as error:  # its manifest on the controller cannot be read or written
                problems.append(f"{host}: not sealed: {why(error)}")

    # What tasks on other nodes may have made is sealed after it was sealed there.
    recorded = {host: records for host, records in hosts.items() if host in inputs}
    last = [host for host, records in recorded.items() if any(map(waits_for_others, records.values()))]
    for part in ([host for host in recorded if host not in last], last):
        await asyncio.gather(*(one(host, recorded[host]) for host in part))
    with suppress(OSError):  # a manifest that cannot be read is its host's problem, and named above
        sweep_texts(stack)
    return problems


def way_in(contract: Contract, host: str) -> str:
    """The fingerprint of the key by which a host is reached; empty where it may be any of an agent's."""
    with suppress(CausewayError):  # whoever opens the connection says what is wrong with it
        return login_by(contract, host)[1]
    return ""


def waits_for_others(record: Record) -> bool:
    """Whether something of it is shared by all nodes, and was not changed here."""
    return any(claim["how"].get("shared") and not claim["changed"] for claim in record["claims"])


def _problems(seal: HostSeal, error: TripError | None) -> Iterator[str]:
    if error:
        yield f"{seal.host}: not sealed: {error}"
        return
    for role in seal.records:
        yield from (f"{seal.host}: {role}: {line}" for line in seal.manifest.roles[role].problems)
    left = "still differs, no task of this run changes it back"
    yield from (f"{seal.host}: {left}: {sentence(line)}" for line in dict.fromkeys(seal.not_repaired))


def mark_unsealed(seal: HostSeal, why: str) -> None:
    """A seal that failed leaves the roles of the run as not sealed, which the scan says."""
    for role in seal.records:
        part = seal.manifest.roles.setdefault(role, RoleManifest())
        part.sealed_at, part.problems = None, [why]
    save_manifest(seal.stack, seal.manifest)


def seal_run(stack: str, hosts: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """Seal what a run recorded of HOSTS; the problems, one line each."""
    try:
        return asyncio.run(seal_all(stack, hosts))
    except CausewayError as error:
        return [str(error)]
