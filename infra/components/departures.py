"""What goes: roles that leave nodes, and nodes that are gone for good."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from infra import ROOT
from infra.converge.runner import Progress, RunResult, run_playbook
from infra.drift.manifest import drift_dir, forget_host, load_manifest
from infra.errors import CausewayError
from infra.ground.contract import Contract
from infra.ground.identities import INSTANCE
from infra.inventory.roles import role_hosts, role_order
from infra.providers.local import nodes
from infra.stack import stack_dir


def take_leave(
    stack: str,
    leave: Mapping[str, Sequence[str]],
    run: str,
    on_progress: Callable[[Progress], None],
    *,
    purge_data: bool = False,
    inventory: Path | None = None,
) -> RunResult:
    """Take roles off hosts: host → roles, the first to leave first. RUN: the folder of its log."""
    return run_playbook(
        "playbooks/leave.yml",
        stack=stack,
        inventory=inventory,
        limit=list(leave),
        extra_vars={"causeway_leave_due": leave, "leave_purge_data": purge_data},
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
    roles = _roles_that_remember()
    known = {name for role in roles for name in role_hosts(contract, role)}
    if asked := [name for name in contract.hosts if name in known and name not in hosts]:
        result = run_playbook(
            "playbooks/forget.yml",
            stack=contract.stack,
            limit=asked,
            extra_vars={"forget_hosts": sorted(hosts), "forget_roles": roles, "forget_lossy": lossy},
            run_dir=ROOT / stack_dir(contract.stack) / "runs" / "forget",
            on_progress=on_progress,
        )
        failed = [name for name in result.failed if result.hosts[name].state == "failed"]
        if failed or len(result.failed) == len(asked):
            again = f"./run exec causeway forget {contract.stack} --host {' --host '.join(sorted(hosts))}"
            raise CausewayError(result.report(), hint=f"mend it, then: {again}")
    for name in hosts:
        forget_host(contract.stack, name)
        (converged_dir(contract.stack) / name).unlink(missing_ok=True)


def converged_dir(stack: str) -> Path:
    """Where is kept which roles a host last took, with which inputs."""
    return ROOT / stack_dir(stack) / "converged"


def _roles_that_remember() -> list[str]:
    """The roles that have something to forget, in their order."""
    return [role for role in role_order() if (ROOT / "roles" / role / "tasks" / "forget.yml").is_file()]
