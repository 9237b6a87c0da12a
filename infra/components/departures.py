"""What goes: roles that leave nodes, nodes that are about to go, and nodes that are gone for good."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT, capabilities
from infra.components.inventory_files import contract_file, standing_contract
from infra.converge.runner import Progress, RunResult, run_playbook
from infra.declaration import ClusterSpec
from infra.drift.manifest import drift_dir, forget_host, load_manifest
from infra.errors import CausewayError
from infra.files import write_file
from infra.ground.contract import Contract
from infra.ground.identities import INSTANCE
from infra.inventory.roles import role_hosts, role_order
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.providers.local import nodes
from infra.stack import stack_dir

FORGET, DRAIN = "forget", "drain"
"""Files with tasks of roles, for nodes that are gone and for those that are about to go."""
SHOWN_HOSTS = 5
DRAIN_S = 1800
"""How long data may move until somebody is asked again."""


def take_leave(
    stack: str,
    leave: Mapping[str, Sequence[str]],
    run: str,
    on_progress: Callable[[Progress], None],
    *,
    purge_data: bool = False,
    node_goes: bool = False,
    inventory: Path | None = None,
) -> RunResult:
    """Take roles off hosts: host → roles, the first to leave first. RUN: the folder of its log.

    NODE_GOES: the nodes go with them, so the roles say good-bye, and nothing is given back.
    """
    return run_playbook(
        "playbooks/leave.yml",
        stack=stack,
        inventory=inventory,
        limit=list(leave),
        extra_vars={
            "causeway_leave_due": leave,
            "leave_purge_data": purge_data,
            "leave_node_goes": node_goes,
        },
        run_dir=ROOT / stack_dir(stack) / "runs" / run,
        on_progress=on_progress,
    )


def recorded(stack: str) -> set[str]:
    """The hosts of which this controller has a record, declared or not."""
    return {path.stem for path in drift_dir(stack).glob("*.json")}


def gone_nodes(contract: Contract) -> list[str]:
    """Nodes that were made here, took roles, are declared no more, and do not stand any more.

    Pulumi takes a whole pool away only once all else of an update is done.
    """
    left = sorted(recorded(contract.stack) - contract.hosts.keys())
    found = {name: load_manifest(contract.stack, name) for name in left}
    ours = [name for name, one in found.items() if one and one.identity.startswith(INSTANCE)]
    there = nodes.standing(contract.stack) if ours else set()
    return [name for name in ours if name not in there]


def forget_gone(
    contract: Contract,
    on_progress: Callable[[Progress], None],
    leave: Mapping[str, Mapping[str, Any]],
) -> None:
    """Have the others forget the nodes that are gone; nothing where there are none. LEAVE: see `consent`."""
    gone = gone_nodes(contract)
    if gone:
        print(f"gone for good: {', '.join(gone)}", flush=True)
    let_go = [name for name in gone if any(is_let_go(leave, role, name) for role in _holders())]
    for lossy, hosts in ((False, [name for name in gone if name not in let_go]), (True, let_go)):
        if hosts:
            forget(contract, hosts, on_progress, lossy=lossy)


def forget(
    contract: Contract,
    hosts: Collection[str],
    on_progress: Callable[[Progress], None],
    *,
    lossy: bool = False,
) -> None:
    """Have the roles of the other hosts forget HOSTS, then this controller. It may be done again.

    LOSSY: also where what they held may be the only copy. CausewayError where a role cannot.
    """
    groups = [group - set(hosts) for role in _roles_with(FORGET) for group in _groups(contract, role)]
    variables = {"forget_hosts": sorted(hosts), "forget_lossy": lossy}
    result = _have_others(contract, groups, FORGET, on_progress, variables)
    if result and (
        silent_in(result, groups) or any(host.state == "failed" for host in result.hosts.values())
    ):
        again = f"./run exec causeway forget {contract.stack} --host {' --host '.join(sorted(hosts))}"
        raise CausewayError(result.report(), hint=f"mend it, then: {again}")
    _remember_drained(contract.stack, _drained(contract.stack).difference(hosts))
    for name in hosts:
        forget_host(contract.stack, name)
        (converged_dir(contract.stack) / name).unlink(missing_ok=True)


def converged_dir(stack: str) -> Path:
    """Where is kept which roles a host last took, with which inputs."""
    return ROOT / stack_dir(stack) / "converged"


def consent(spec: ClusterSpec) -> dict[str, dict[str, Any]]:
    """Role that leaves with consent only → why, and the hosts that have it."""
    given: dict[str, list[str]] = {}
    for one in spec.leave:
        given.setdefault(one.role, []).extend(one.hosts)
    return {
        name: {"why": role.leaves, "hosts": given.get(name, [])}
        for name, role in capabilities.roles().items()
        if role.leaves
    }


def no_consent(waiting: Mapping[str, Sequence[str]], why: Mapping[str, Mapping[str, Any]]) -> CausewayError:
    """What waits, role → hosts, why, and the lines that let it go."""
    reasons = (f"{role} on {', '.join(hosts)} ({why[role]['why']})" for role, hosts in waiting.items())
    lines = (
        f"{{role: {role}, hosts: [{', '.join(hosts if len(hosts) <= SHOWN_HOSTS else ['all'])}]}}"
        for role, hosts in waiting.items()
    )
    return CausewayError(
        f"declared no more, and not taken away without consent: {'; '.join(reasons)}",
        hint=f"declare it again, or say so in the cluster's declaration: leave: [{', '.join(lines)}]",
    )


def _roles_with(step: str) -> list[str]:
    """The roles that have something to do at a step, in their order."""
    return [role for role in role_order() if (ROOT / "roles" / role / "tasks" / f"{step}.yml").is_file()]


def _groups(contract: Contract, role: str) -> list[set[str]]:
    """Hosts of a role, put together where each of them can do what one of them can."""
    hosts = role_hosts(contract, role)
    groups = {frozenset(_takers(role, contract, host)) or frozenset(hosts) for host in hosts}
    return [set(group) for group in sorted(groups, key=sorted)]


def silent_in(result: RunResult, groups: Iterable[Collection[str]]) -> bool:
    """Whether of some group no host did well."""
    well = {name for name, host in result.hosts.items() if host.state == "ok"}
    return any(group and not well.intersection(group) for group in groups)


def _have_others(
    contract: Contract,
    groups: Iterable[Collection[str]],
    step: str,
    on_progress: Callable[[Progress], None],
    variables: Mapping[str, Any],
) -> RunResult | None:
    """Have the roles do a step on groups of hosts; None where there is no host."""
    asked = set().union(*groups)
    if not asked:
        return None
    return run_playbook(
        "playbooks/forget.yml",
        stack=contract.stack,
        limit=[name for name in contract.hosts if name in asked],
        extra_vars={"forget_roles": _roles_with(step), "forget_step": step, **variables},
        run_dir=ROOT / stack_dir(contract.stack) / "runs" / step,
        on_progress=on_progress,
    )


class DepartureLifecycle(Lifecycle):
    """Nodes that are about to go, while all of them still stand and the old contract is the one there is.

    Those that stay take over what they hold, then the roles on them say good-bye. Where that cannot be, the
    update stops before anything is changed, unless the declaration lets the role go. `hosts`: all that are
    declared; `leave`: as of a wave.
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
        going = _standing(stack, contract.hosts.keys() - declared)
        back = sorted(_drained(stack) & declared)
        held = _held(contract, going, inputs["leave"])
        if lost := {role: hosts for role, part in held.items() if (hosts := part.nobody_takes())}:
            raise no_consent(lost, inputs["leave"])
        drained = sorted({host for part in held.values() for host in part.takers if host not in part.let_go})
        _remember_drained(stack, {*drained, *back})
        groups = [taken for part in held.values() for taken in part.takers.values()]
        groups += [set(_takers(role, contract, host)) for role in _holders() for host in back]
        self._hand_over(contract, [group for group in groups if group], held, drained, back)
        _remember_drained(stack, drained)
        if going:
            print(f"about to go: {', '.join(going)}", flush=True)
            _say_goodbye(contract, going)
        return {}

    def observe(self, properties: Properties) -> list[str]:
        """Nodes that were drained, and are declared."""
        back = _drained(properties["stack"]).intersection(properties["hosts"])
        return [f"{name}: was to go, and may hold no data any more" for name in sorted(back)]

    def remove(self, properties: Properties) -> None:
        """Nothing of it stays."""
        _drained_file(properties["stack"]).unlink(missing_ok=True)

    def _hand_over(
        self,
        contract: Contract,
        groups: Sequence[Collection[str]],
        held: Mapping[str, "Held"],
        going: Sequence[str],
        back: Sequence[str],
    ) -> None:
        if going:
            print(f"moving data: of {', '.join(going)} before it goes", flush=True)
        variables = {
            "forget_hosts": list(going),
            "forget_let_go": sorted({host for part in held.values() for host in part.let_go}),
            "forget_refill": list(back),
            "forget_until": time.time() + DRAIN_S,
        }
        result = _have_others(contract, groups, DRAIN, say, variables)
        if result and silent_in(result, groups):
            raise CausewayError(
                result.report(),
                hint="no node was taken away. Mend it and run ./run up again, or declare the nodes again; "
                "where what they hold may be lost, let the role go in the declaration: "
                f"leave: [{{role: ROLE, hosts: [{', '.join(going)}]}}]",
            )


class Departure(Managed, module="causeway", name="Departure"):
    """The good-bye of nodes that are about to go."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(DepartureLifecycle, name, inputs, opts)


def _say_goodbye(contract: Contract, going: Sequence[str]) -> None:
    """Have the roles on these nodes tell the others; a node that does not answer is forgotten afterwards."""
    found = {name: load_manifest(contract.stack, name) for name in going}
    order = {role: turn for turn, role in enumerate(role_order())}
    leave = {
        name: sorted(one.roles, key=lambda role: -order.get(role, len(order)))
        for name, one in found.items()
        if one and one.roles
    }
    if leave:
        take_leave(contract.stack, leave, "good-bye", say, node_goes=True)


def _holders() -> list[str]:
    """The roles that hold data."""
    return [name for name, role in capabilities.roles().items() if role.takers]


def _takers(role: str, contract: Contract, host: str) -> Collection[str]:
    takers = capabilities.roles()[role].takers
    return takers(contract, host) if takers else ()


@dataclass(frozen=True)
class Held:
    """What nodes that are about to go hold of one role: node → who can take it over; whose may be lost."""

    takers: Mapping[str, set[str]]
    let_go: Collection[str]

    def nobody_takes(self) -> list[str]:
        """The nodes that hold something, and nobody takes it over or has let it go."""
        return [host for host, takers in self.takers.items() if not takers and host not in self.let_go]


def _held(
    contract: Contract, going: Collection[str], leave: Mapping[str, Mapping[str, Any]]
) -> dict[str, Held]:
    """Role that holds data → what it holds on nodes that are about to go."""
    found: dict[str, Held] = {}
    for role in _holders():
        hosts = [name for name in role_hosts(contract, role) if name in going]
        takers = {host: set(_takers(role, contract, host)).difference(going) for host in hosts}
        found[role] = Held(takers, [host for host in hosts if is_let_go(leave, role, host)])
    return found


def is_let_go(leave: Mapping[str, Mapping[str, Any]], role: str, host: str) -> bool:
    """Whether the declaration lets a role go from a host."""
    return bool({host, "all"} & set(leave[role]["hosts"]))


def _standing(stack: str, names: Collection[str]) -> list[str]:
    """Those of the names that nodes have which were made here; nobody is asked of none."""
    return sorted(nodes.standing(stack).intersection(names)) if names else []


def _require_known(stack: str, declared: Collection[str]) -> None:
    """Nodes of another version's contract that are declared no more: nobody knows what they hold."""
    try:
        hosts = set(json.loads(contract_file(stack).read_bytes())["hosts"])
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or `up` is to write it anew
        return
    if unknown := _standing(stack, hosts.difference(declared)):
        raise CausewayError(
            f"{', '.join(unknown)}: declared no more, and another version of Causeway made them: what they "
            "hold is not known",
            hint="run ./run up once with all nodes declared, then take them out",
        )


def say(progress: Progress) -> None:
    """Print how far a run is."""
    print(progress, flush=True)


def _drained(stack: str) -> set[str]:
    """The nodes that others have been asked to take everything over from."""
    try:
        return set(json.loads(_drained_file(stack).read_text()))
    except FileNotFoundError:
        return set()


def _remember_drained(stack: str, names: Collection[str]) -> None:
    if names:
        write_file(_drained_file(stack), json.dumps(sorted(names)) + "\n")
    else:
        _drained_file(stack).unlink(missing_ok=True)


def _drained_file(stack: str) -> Path:
    return ROOT / stack_dir(stack) / "drained.json"
