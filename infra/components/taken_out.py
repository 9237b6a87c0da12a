"""Machines of yours that are declared no more: which those are, and how they are given back.

Of a machine the declaration has an address and a host key; its name may follow from its place in a pool.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from infra.components.leaving import forget_all, recorded_roles, say, show_what_stays, take_leave
from infra.drift.trip import TripError, Trips, execute
from infra.errors import CausewayError, sentence
from infra.ground.contract import Contract
from infra.ground.identities import load_identities, of_machine

ASKED_AT_ONCE = 32
ANSWER_LIMIT_S = 30.0
Machines = Mapping[str, Mapping[str, str]]
"""Name → {address, host_key} of machines as they are declared."""


def machines_of(contract: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The hosts of a contract that no provider made; read as plain JSON, for it may be another version's."""
    regions = {key: contract["regions"][pool["region"]] for key, pool in contract["pools"].items()}
    hosts = contract["hosts"].items()
    return {name: host for name, host in hosts if not _is_made(regions[host["pool"]])}


def _is_made(region: Mapping[str, Any]) -> bool:
    """Whether a region's nodes go with the stack; contracts of version 1 say it by the provider's name."""
    return bool(region.get("makes_nodes", region["provider"] == "local"))


def answering(contract: Contract, declared: Machines) -> list[str]:
    """The machines of a contract that are declared no more and answer, by their names there.

    CausewayError where one would have another name.
    """
    made = {name for name, region in contract.regions.items() if region.makes_nodes}
    hosts = contract.hosts.items()
    known = {name: str(host.address) for name, host in hosts if contract.region_of(name) not in made}
    identities: dict[str, str] = {}
    with suppress(CausewayError):  # a file that cannot be read is written anew by the same update
        identities = load_identities(contract.stack)
    stays = _new_names(known, identities, declared)
    _require_names(contract.stack, known, stays)
    out = [name for name, new_name in stays.items() if new_name is None]
    if not out:
        return []
    # One that has another address now, or one more, is declared still.
    theirs, away = {machine["address"] for machine in declared.values()}, []
    for name, answer in asyncio.run(_addresses(contract, out)).items():
        if isinstance(answer, str):
            print(_keeps_its_roles(contract, name, answer), flush=True)
        elif not theirs & answer:
            away.append(name)
    return away


def _new_names(
    known: Mapping[str, str], identities: Mapping[str, str], declared: Machines
) -> dict[str, str | None]:
    """Name of a machine → what it is called now: who has its address, else its host key; None where nobody.

    A key that several have, as clones do, tells nothing.
    """
    by_address = {machine["address"]: name for name, machine in declared.items()}
    before = Counter(identities.get(name, "") for name in known)
    keys = {name: of_machine(machine["host_key"]) for name, machine in declared.items()}
    now = Counter(keys.values())
    by_key = {key: name for name, key in keys.items() if key and now[key] == before[key] == 1}
    return {
        name: by_address.get(address) or by_key.get(identities.get(name, ""))
        for name, address in known.items()
    }


def _require_names(stack: str, known: Mapping[str, str], stays: Mapping[str, str | None]) -> None:
    """What is known of a machine, here and by others, goes by its name: no machine takes on another."""
    renamed = {name: new for name, new in stays.items() if new not in (None, name)}
    had = recorded_roles(stack, renamed)
    moved = {name: new for name, new in renamed.items() if new in known or name in had}
    if not moved:
        return
    name, new = next(iter(moved.items()))
    address = known[name]
    others = f", which is the name of {known[new]}" if new in known else ""
    more = f", and {len(moved) - 1} more alike" if len(moved) > 1 else ""
    raise CausewayError(
        f"{address} is {name}, and would be {new}{others}{more}: what was done to a machine is known by its "
        "name",
        hint="without a name of its own a machine is called by its pool and its place there. Write the names "
        f"beside the addresses: {{name: {name}, address: {address}, …}}. To have a machine called otherwise, "
        "take it out of the declaration first, which gives it back, and declare it anew",
    )


def _keeps_its_roles(contract: Contract, name: str, why: str) -> str:
    roles = ", ".join(recorded_roles(contract.stack, [name]).get(name, ["nothing that is known of"]))
    address = contract.hosts[name].address
    return (
        f"{name} ({address}) is declared no more, and does not answer ({why}): it keeps {roles}. "
        f"Once it is gone for good: ./run exec causeway forget {contract.stack} --host {name}; if it comes "
        "back, declare it again, and take it out while it answers"
    )


async def _addresses(contract: Contract, hosts: Sequence[str]) -> dict[str, set[str] | str]:
    """Host → the addresses that it has, or why it does not say them."""
    trips, turns = Trips(contract), asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(name: str) -> set[str] | str:
        async with turns:
            try:
                connection = await trips.open(name)
                said, *_ = await execute(connection, "hostname --all-ip-addresses", b"", ANSWER_LIMIT_S)
                connection.abort()
            except (TripError, CausewayError) as error:  # also where its way in, as an agent, is no more
                return sentence(str(error))
        return set(said.decode(errors="replace").split()) or "it has no `hostname --all-ip-addresses`"

    return dict(zip(hosts, await asyncio.gather(*map(ask, hosts)), strict=True))


def take_roles_off(
    contract: Contract, machines: Sequence[str], leave: Mapping[str, Mapping[str, Any]]
) -> None:
    """Give back what was there before the roles, and have the others forget the machines.

    LEAVE: see `consent`. CausewayError where that failed: the next `up` goes on from there.
    """
    if not machines:
        return
    stack = contract.stack
    print(f"declared no more, and given back: {', '.join(machines)}", flush=True)
    if due := recorded_roles(stack, machines):
        result = take_leave(stack, due, "given-back", say)
        show_what_stays(result)
        if result.failed:
            raise CausewayError(
                result.report(), hint="mend it and run ./run up again, or declare the machine again"
            )
    for name, roles in recorded_roles(stack, machines).items():
        print(f"{name} keeps what could not be given back of {', '.join(roles)}", flush=True)
    forget_all(contract, machines, say, leave)
