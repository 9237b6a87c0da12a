"""A stack's secret as a resource: made once, encrypted in the state, a file (0600) for roles."""

from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.files import value_hash
from infra.ground.secrets import GENERATORS, Parts, write
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.stack import secret_file


class SecretLifecycle(Lifecycle):
    """One secret. The state is what counts; a file that is lost or changed is written again from it."""

    outputs = ("parts", "fingerprint")
    replace_on = ("stack", "secret", "kind")

    def identity(self, inputs: Properties) -> str:
        """One per name."""
        return f"secret/{inputs['stack']}/{inputs['secret']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """The known one, else what a killed run had written, else a new one."""
        parts = known.get("parts") or self._written(inputs) or GENERATORS[inputs["kind"]]()
        write(self._path(inputs), parts)
        return {"parts": parts, "fingerprint": value_hash(parts)}

    def observe(self, properties: Properties) -> list[str]:
        """A controller that has the state but not the files gets the files."""
        path, parts = self._path(properties), properties["parts"]
        lost = {end: text for end, text in parts.items() if not path.with_name(path.name + end).exists()}
        write(path, lost)
        changed = self._written(properties) != parts
        return [f"{path.relative_to(ROOT)} is not what the state holds"] if changed else []

    def remove(self, properties: Properties) -> None:
        """Delete the files."""
        path = self._path(properties)
        for ending in properties["parts"]:
            path.with_name(path.name + ending).unlink(missing_ok=True)

    def _path(self, properties: Properties) -> Path:
        return secret_file(properties["stack"], properties["secret"])

    def _written(self, properties: Properties) -> Parts | None:
        """The parts as the files have them; None where one is missing."""
        path = self._path(properties)
        files = {end: path.with_name(path.name + end) for end in GENERATORS[properties["kind"]]()}
        if not all(file.exists() for file in files.values()):
            return None
        return {ending: file.read_text() for ending, file in files.items()}


class Secret(Managed, module="causeway", name="Secret"):
    """A secret of the stack. `fingerprint` changes with it and tells nothing of it."""

    parts: pulumi.Output[Parts]
    fingerprint: pulumi.Output[str]

    def __init__(self, name: str, kind: str, stack: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {"stack": stack, "secret": name, "kind": kind}
        secret = pulumi.ResourceOptions(additional_secret_outputs=["parts"])
        super().__init__(SecretLifecycle, name, inputs, pulumi.ResourceOptions.merge(opts, secret))
