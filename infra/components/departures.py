"""What goes: roles that leave nodes, nodes that are about to go, and nodes that are gone for good."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT, capabilities
from infra.components.inventory_files import standing_contract
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


def forget_gone(contract: Contract, on_progress: Callable[[Progress], None]) -> None:
    """Have the others forget the nodes that are gone; nothing where there are none."""
    if gone := gone_nodes(contract):
        print(f"gone for good: {', '.join(gone)}", flush=True)
        forget(contract, gone, on_progress)


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
    known = {name for role in _roles_with(FORGET) for name in role_hosts(contract, role)}
    variables = {"forget_hosts": sorted(hosts), "forget_lossy": lossy}
    failed = _have_others(contract, known.difference(hosts), FORGET, on_progress, variables)
    if failed:
        again = f"./run exec causeway forget {contract.stack} --host {' --host '.join(sorted(hosts))}"
        raise CausewayError(failed.report(), hint=f"mend it, then: {again}")
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


def _have_others(
    contract: Contract,
    asked: Collection[str],
    step: str,
    on_progress: Callable[[Progress], None],
    variables: Mapping[str, Any],
) -> RunResult | None:
    """Have the roles do a step on hosts; the result where it failed.

    One that does not answer is no failure while another one does it.
    """
    if not asked:
        return None
    result = run_playbook(
        "playbooks/forget.yml",
        stack=contract.stack,
        limit=[name for name in contract.hosts if name in asked],
        extra_vars={"forget_roles": _roles_with(step), "forget_step": step, **variables},
        run_dir=ROOT / stack_dir(contract.stack) / "runs" / step,
        on_progress=on_progress,
    )
    failed = any(result.hosts[name].state == "failed" for name in result.failed)
    return result if failed or len(result.failed) == len(asked) else None


def parting_nodes(contract: Contract, declared: Collection[str]) -> list[str]:
    """Nodes that were made here, took roles, and stand, but are declared no more."""
    found = {name: load_manifest(contract.stack, name) for name in contract.hosts if name not in declared}
    ours = [name for name, one in found.items() if one and one.identity.startswith(INSTANCE)]
    there = nodes.standing(contract.stack) if ours else set()
    return [name for name in ours if name in there]


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
        contract = standing_contract(inputs["stack"])
        if contract is None:
            return {}
        going = parting_nodes(contract, inputs["hosts"])
        back = sorted(_drained(contract.stack).intersection(inputs["hosts"]))
        holding = _holding(contract, going, inputs["leave"])
        takers = {
            (role, host): set(_takers(role, contract, host)) - set(going)
            for role, hosts in holding.items()
            for host in hosts
        }
        lost: dict[str, list[str]] = {}
        for (role, host), others in takers.items():
            if not others:
                lost.setdefault(role, []).append(host)
        if lost:
            raise no_consent(lost, inputs["leave"])
        drained = sorted({host for _, host in takers})
        _remember_drained(contract.stack, {*drained, *back})
        asked = {other for others in takers.values() for other in others}
        asked |= {other for role in _holders() for host in back for other in _takers(role, contract, host)}
        if asked:
            self._hand_over(contract, asked, drained, back)
        _remember_drained(contract.stack, drained)
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
        self, contract: Contract, asked: Collection[str], going: Sequence[str], back: Sequence[str]
    ) -> None:
        moved = f"{', '.join(going)} before it goes" if going else f"{', '.join(back)}, which stays after all"
        print(f"moving data: of {moved}", flush=True)
        failed = _have_others(
            contract, asked, DRAIN, _say, {"forget_hosts": list(going), "forget_refill": list(back)}
        )
        if failed:
            raise CausewayError(
                failed.report(),
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
        take_leave(contract.stack, leave, "good-bye", _say, node_goes=True)


def _holders() -> list[str]:
    """The roles that hold data."""
    return [name for name, role in capabilities.roles().items() if role.takers]


def _takers(role: str, contract: Contract, host: str) -> Collection[str]:
    takers = capabilities.roles()[role].takers
    return takers(contract, host) if takers else ()


def _holding(
    contract: Contract, going: Sequence[str], leave: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Role that holds data → the hosts that are about to go with it, where nobody has let it go."""
    found: dict[str, list[str]] = {}
    for role in _holders():
        let_go = {"all"} & set(leave[role]["hosts"])
        hosts = [name for name in role_hosts(contract, role) if name in going]
        if kept := [name for name in hosts if not let_go and name not in leave[role]["hosts"]]:
            found[role] = kept
    return found


def _say(progress: Progress) -> None:
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
