"""The key by which the controller reaches every node of a stack."""

from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.ground import secrets, ssh
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.stack import stack_dir


class SshKeyLifecycle(Lifecycle):
    """The stack's key pair: a secret in the state, a file (0600) on the controller for OpenSSH.

    The state is what counts; a file that is lost or changed is written again from it.
    """

    outputs = ("public_key", "private_key")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"ssh/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """The known one, else what a killed run had written, else a new one."""
        path = self.path(inputs["stack"])
        made = {key: known[key] for key in self.outputs if known.get(key)}
        if len(made) < len(self.outputs):
            written = path.read_text(errors="replace") if path.exists() else ""
            private = written if ssh.public_key(written) else ssh.new_key()
            made = {
                "private_key": private,
                "public_key": f"{ssh.public_key(private)} causeway {inputs['stack']}",
            }
        secrets.write(path, self._parts(made))
        return made

    def observe(self, properties: Properties) -> list[str]:
        """A controller that has the state but not the files gets the files."""
        path, parts = self.path(properties["stack"]), self._parts(properties)
        files = {ending: path.with_name(path.name + ending) for ending in parts}
        secrets.write(path, {end: text for end, text in parts.items() if not files[end].exists()})
        return [
            f"{file.relative_to(ROOT)} is not what the state holds"
            for ending, file in files.items()
            if file.read_text(errors="replace") != parts[ending]
        ]

    def remove(self, properties: Properties) -> None:
        """Delete both files."""
        path = self.path(properties["stack"])
        path.unlink(missing_ok=True)
        path.with_suffix(".pub").unlink(missing_ok=True)

    @staticmethod
    def path(stack: str) -> Path:
        """Where the private half is on the controller."""
        return ROOT / stack_dir(stack) / "ssh" / "id_ed25519"

    def _parts(self, properties: Properties) -> secrets.Parts:
        return {"": properties["private_key"], ".pub": properties["public_key"] + "\n"}


class SshKey(Managed, module="causeway", name="SshKey"):
    """The key by which the controller reaches every node of the stack."""

    public_key: pulumi.Output[str]
    private_key: pulumi.Output[str]

    def __init__(self, name: str, stack: str, opts: pulumi.ResourceOptions) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["private_key"])
        super().__init__(SshKeyLifecycle, name, {"stack": stack}, pulumi.ResourceOptions.merge(opts, secret))
