"""Nodes that go: those that stay take over what they hold, then their roles say good-bye, or leave them."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pulumi

from infra.components import taken_out
from infra.components.holding import (
    DRAIN,
    GOING,
    Held,
    drained,
    drained_file,
    held_by,
    holders,
    remember_drained,
    require_taken_over,
    takers_of,
)
from infra.components.inventory_files import standing_contract
from infra.components.leaving import have_others, recorded_roles, say, silent_in, take_leave
from infra.converge.runner import RunResult
from infra.errors import CausewayError
from infra.ground.contract import Contract
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.providers.local import nodes
from infra.stack import contract_file

DRAIN_S = 1800
"""How long data may move until somebody is asked again."""


class DepartureLifecycle(Lifecycle):
    """Nodes that are about to go, while all of them still stand and the old contract is the one there is.

    Those that stay take over what they hold, then the roles on them say good-bye; machines of yours get back
    what was there before the roles. Where that cannot be, the update stops before anything is changed, unless
    the declaration lets the role go. `hosts`: all that are declared; `machines`: what is known of those that
    are not made here, name → {address, host_key}; `leave`: as of a wave.
    """

    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"departure/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Have nodes drained that go, and hold data again that stay after all."""
        stack, declared = inputs["stack"], set(inputs["hosts"])
        contract = standing_contract(stack)
        if contract is None:
            _require_known(stack, declared)
            return {}
        machines = taken_out.answering(contract, inputs["machines"])
        nodes_going = _standing(stack, contract.hosts.keys() - declared)
        going, keeps = [*nodes_going, *machines], inputs["keeps"]
        held = held_by(contract, going, declared, keeps, inputs["leave"])
        back, on_its_way = _back(stack, going, keeps), _on_its_way(stack, declared, keeps)
        drain(contract, held, inputs["leave"], on_its_way, back)
        if nodes_going:
            print(f"about to go: {', '.join(nodes_going)}", flush=True)
            say_goodbye(contract, nodes_going)
        taken_out.take_roles_off(contract, machines, inputs["leave"])
        return {}

    def observe(self, properties: Properties) -> list[str]:
        """Nodes that were drained, and are to hold data."""
        # The state of an older version does not say which those are.
        keeps: Mapping[str, Any] = properties.get("keeps") or dict.fromkeys(holders(), properties["hosts"])
        back = {host for hosts in _back(properties["stack"], (), keeps).values() for host in hosts}
        return [f"{name}: was to go, and may hold no data any more" for name in sorted(back)]

    def remove(self, properties: Properties) -> None:
        """Nothing of it stays."""
        drained_file(properties["stack"]).unlink(missing_ok=True)


class Departure(Managed, module="causeway", name="Departure"):
    """The good-bye of nodes that are about to go."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(DepartureLifecycle, name, inputs, opts)


def drain(
    contract: Contract,
    held: Mapping[str, Held],
    leave: Mapping[str, Mapping[str, Any]],
    on_its_way: Mapping[str, Collection[str]],
    back: Mapping[str, Collection[str]],
    said: tuple[str, str] = GOING,
) -> None:
    """Have others take over what is held where it is to go, and fill again those that come BACK.

    ON_ITS_WAY: those that others have taken over from before, and that stay so; it and BACK are role → hosts.
    LEAVE: see `consent`; SAID: see `no_consent`. From whom is written down first, so that after a killed run
    it is known. CausewayError where nobody can take something over and nobody has let it go, or where those
    who can did not; then nothing was taken away.
    """
    require_taken_over(held, leave, said)
    handed_over = {role: {*part.handed_over(), *on_its_way.get(role, ())} for role, part in held.items()}
    begun = {role: {*hosts, *back.get(role, ())} for role, hosts in handed_over.items()}
    remember_drained(contract.stack, begun)
    groups = [taken for part in held.values() for taken in part.takers.values()]
    groups += [set(takers_of(role, contract, host)) for role, hosts in back.items() for host in hosts]
    _hand_over(contract, [group for group in groups if group], held, back)
    remember_drained(contract.stack, handed_over)


def _hand_over(
    contract: Contract,
    groups: Sequence[Collection[str]],
    held: Mapping[str, Held],
    back: Mapping[str, Collection[str]],
) -> None:
    """Have GROUPS take over what is held, and fill again those that come BACK (role → hosts).

    CausewayError where in some group nobody could.
    """
    going = sorted({host for part in held.values() for host in part.handed_over()})
    if going:
        print(f"moving data: of {', '.join(going)} before it goes", flush=True)
    variables = {
        "forget_hosts": going,
        "forget_let_go": sorted({host for part in held.values() for host in part.let_go}),
        "forget_refill": sorted({host for hosts in back.values() for host in hosts}),
        "forget_until": time.time() + DRAIN_S,
    }
    result = have_others(contract, groups, DRAIN, say, variables)
    if result and silent_in(result, groups):
        raise CausewayError(
            result.report(),
            hint="nothing was taken away. Mend it and run ./run up again, or declare it again; "
            "where what they hold may be lost, let the role go in the declaration: "
            f"leave: [{{role: ROLE, hosts: [{', '.join(going)}]}}]",
        )


def _back(stack: str, going: Collection[str], keeps: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Role that holds data → hosts that were to go, or it was to leave them, and that are to have it."""
    found = drained(stack)
    return {
        role: sorted(found.get(role, set()).intersection(keeps.get(role, ())).difference(going))
        for role in holders()
    }


def _on_its_way(
    stack: str, declared: Collection[str], keeps: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Role that holds data → hosts that it has begun to leave; the contract may not know of it any more."""
    found = drained(stack)
    return {role: found.get(role, set()).intersection(declared).difference(keeps[role]) for role in holders()}


def _standing(stack: str, names: Collection[str]) -> list[str]:
    """Those of the names that nodes have which were made here; nobody is asked of none."""
    return sorted(nodes.standing(stack).intersection(names)) if names else []


def _require_known(stack: str, declared: Collection[str]) -> None:
    """Nodes of another version's contract that are declared no more: nobody knows what they hold."""
    try:
        contract = json.loads(contract_file(stack).read_bytes())
        hosts, machines = set(contract["hosts"]), set(taken_out.machines_of(contract))
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or `up` is to write it anew
        return
    out = sorted(machines.difference(declared))
    if unknown := [*_standing(stack, hosts.difference(declared)), *out]:
        raise CausewayError(
            f"{', '.join(unknown)}: declared no more, and another version of Causeway made them: what they "
            "hold is not known",
            hint="run ./run up once with all nodes declared, then take them out",
        )


def say_goodbye(contract: Contract, going: Sequence[str]) -> RunResult | None:
    """Have the roles on these nodes tell the others; a node that does not answer is forgotten afterwards.

    None where no role came to them.
    """
    leave = recorded_roles(contract.stack, going)
    return take_leave(contract.stack, leave, "good-bye", say, node_goes=True) if leave else None
