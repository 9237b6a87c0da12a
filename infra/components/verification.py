"""The verification of a stack: Testinfra against every node, once the waves are through."""

from typing import Any

import pulumi

from infra import ROOT
from infra.errors import CausewayError
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.verify import verification
from infra.verify.verdicts import Verdict, read_result


class VerificationLifecycle(Lifecycle):
    """The verification: Testinfra against every node, once the waves are through."""

    outputs = ("effective", "rendered", "unsupported")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"verification/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Run all checks; CausewayError that names every failed one and every host that was not reached."""
        inventory = f"inventories/{inputs['stack']}"
        result = verification.verify(ROOT / inventory, on_progress=lambda line: print(line, flush=True))
        if result.failed:
            again = f"./run exec ansible-playbook playbooks/verify.yml -i {inventory}"
            raise CausewayError(result.report(), hint=f"{again} shows it again")
        counts = result.counts()
        return {kind: counts[Verdict(kind)] for kind in self.outputs}

    def observe(self, properties: Properties) -> list[str]:
        """A stack of which the last verification did not pass is verified again."""
        result = read_result(properties["stack"])
        if not result.failed:
            return []
        counts = ", ".join(f"{count} {verdict}" for verdict, count in result.counts().items())
        return [f"the last verification did not pass: {counts}"]

    def remove(self, properties: Properties) -> None:
        """Nothing stands for it."""


class Verification(Managed, module="causeway", name="Verification"):
    """What was verified, counted: effective, rendered only, unsupported here."""

    effective: pulumi.Output[int]
    rendered: pulumi.Output[int]
    unsupported: pulumi.Output[int]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(VerificationLifecycle, name, inputs, opts)
