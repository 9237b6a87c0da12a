"""The verification of a stack: Testinfra against its nodes, once the waves are through."""

from functools import partial
from typing import Any

import pulumi

from infra.components.inventory_files import standing_contract
from infra.errors import CausewayError
from infra.ground.contract import Contract
from infra.inventory.roles import roles_of
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.verify import due
from infra.verify.due import Roles
from infra.verify.verdicts import Verdict, VerificationResult, read_result
from infra.verify.verification import verify_stack


class VerificationLifecycle(Lifecycle):
    """The verification, once the waves are through: of what something happened to, and of witnesses.

    `checks`: the checks themselves, and `ways`: networks and links; what changes there is due on every node.
    `pools`: pool → when anything was last made there. The other inputs say that there is something to do.
    """

    outputs = ("effective", "rendered", "unsupported")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"verification/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Verify what is due; CausewayError with every failed check and every host that was not reached."""
        stack = inputs["stack"]
        contract = standing_contract(stack)
        choose = partial(_due, inputs, known, contract) if contract else _all
        result = verify_stack(stack, choose, lambda line: print(line, flush=True))
        if result.failed:
            again = f"./run exec ansible-playbook playbooks/verify.yml -i inventories/{stack}"
            raise CausewayError(result.report(), hint=f"{again} shows it again")
        counts = result.counts()
        return {kind: counts[Verdict(kind)] for kind in self.outputs}

    def observe(self, properties: Properties) -> list[str]:
        """Verified again where the last verification did not pass, or never looked at roles that ran."""
        result = read_result(properties["stack"])
        if result.failed:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in result.counts().items())
            return [f"the last verification did not pass: {counts}"]
        contract = standing_contract(properties["stack"])
        left = due.unproven(roles_of(contract), result) if contract else {}
        return [f"{name}: {', '.join(roles)} ran and was not verified" for name, roles in left.items()]

    def remove(self, properties: Properties) -> None:
        """Nothing stands for it."""


def _due(
    inputs: Properties, known: Properties, contract: Contract, declared: Roles, kept: VerificationResult
) -> Roles:
    """What is due by what changed since `known`; all of it where that is too much, or too little is known."""
    if any(known.get(key) != inputs[key] for key in ("checks", "ways")):
        return declared
    made = [pool for pool, at in inputs["pools"].items() if known.get("pools", {}).get(pool) != at]
    pools: dict[str, list[str]] = {pool: [] for pool in contract.pools}
    for name in declared:
        if name in contract.hosts:
            pools[contract.hosts[name].pool].append(name)
    elsewhere = any(known.get(key) != inputs[key] for key in ("contract", "overrides"))
    return due.due(declared, pools, kept, made=made, elsewhere=elsewhere)


def _all(declared: Roles, _kept: VerificationResult) -> Roles:
    return declared


class Verification(Managed, module="causeway", name="Verification"):
    """What was verified, counted: effective, rendered only, unsupported here."""

    effective: pulumi.Output[int]
    rendered: pulumi.Output[int]
    unsupported: pulumi.Output[int]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(VerificationLifecycle, name, inputs, opts)
