"""A stack's secret as a resource: made once, encrypted in the state, a file (0600) for roles."""

from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.errors import CausewayError
from infra.ground.secrets import GENERATORS, GIVEN, Parts, fingerprint, read, write
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
        path, kind = self._path(inputs), inputs["kind"]
        parts = known.get("parts") or read(path, kind) or GENERATORS[kind]()
        write(path, parts)
        return {"parts": parts, "fingerprint": fingerprint(parts)}

    def observe(self, properties: Properties) -> list[str]:
        """A controller that has the state but not the files gets the files."""
        path, parts = self._path(properties), properties["parts"]
        lost = {end: text for end, text in parts.items() if not path.with_name(path.name + end).exists()}
        write(path, lost)
        changed = read(path, properties["kind"]) != parts
        return [f"{path.relative_to(ROOT)} is not what the state holds"] if changed else []

    def remove(self, properties: Properties) -> None:
        """Delete the files."""
        path = self._path(properties)
        for ending in properties["parts"]:
            path.with_name(path.name + ending).unlink(missing_ok=True)

    def _path(self, properties: Properties) -> Path:
        return secret_file(properties["stack"], properties["secret"])


class GivenSecretLifecycle(SecretLifecycle):
    """One that the user gives: where it is another one, so are the file and the fingerprint."""

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """What the configuration says. CausewayError where that is nothing."""
        if not inputs["value"].strip():
            name = inputs["secret"].removeprefix(GIVEN)
            hint = f"./run exec causeway secret {name} {inputs['stack']}"
            raise CausewayError(f"the secret {name} is empty", hint=hint)
        parts = {"": inputs["value"]}
        write(self._path(inputs), parts)
        return {"parts": parts, "fingerprint": fingerprint(parts)}


class Secret(Managed, module="causeway", name="Secret"):
    """A secret of the stack. `fingerprint` changes with it and tells nothing of it."""

    secret_name: str
    parts: pulumi.Output[Parts]
    fingerprint: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        kind: str,
        stack: str,
        opts: pulumi.ResourceOptions,
        value: pulumi.Output[str] | None = None,
    ) -> None:
        """`value` is what the user gives, for kind `given`."""
        self.secret_name = name
        inputs: dict[str, Any] = {"stack": stack, "secret": name, "kind": kind}
        if value is not None:
            inputs["value"] = value
        secret = pulumi.ResourceOptions(additional_secret_outputs=["parts", "value"])
        lifecycle = SecretLifecycle if value is None else GivenSecretLifecycle
        super().__init__(lifecycle, name, inputs, pulumi.ResourceOptions.merge(opts, secret))


class NodeSecretLifecycle(Lifecycle):
    """One that a service makes on a node: its file is the role's to write, and goes with the stack.

    Nothing of it is in the state: what a controller lost, the next converge of its role fetches again.
    """

    replace_on = ("stack", "secret")

    def identity(self, inputs: Properties) -> str:
        """One per name."""
        return f"node-secret/{inputs['stack']}/{inputs['secret']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """The node makes it."""
        return {}

    def remove(self, properties: Properties) -> None:
        """Delete the file."""
        secret_file(properties["stack"], properties["secret"]).unlink(missing_ok=True)


class NodeSecret(Managed, module="causeway", name="NodeSecret"):
    """A secret of the stack that comes from a node."""

    def __init__(self, name: str, stack: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(NodeSecretLifecycle, name, {"stack": stack, "secret": name}, opts)
