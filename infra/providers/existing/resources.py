"""The provider `existing` as Pulumi sees it: one resource per pool, which tells that SSH reaches it."""

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.errors import sentence
from infra.ground.ssh import ALIVE, CONNECT_TIMEOUT_S
from infra.providers.lifecycle import Lifecycle, Managed, Properties

CONCURRENT_CONNECTIONS = 32
ANSWER_LIMIT_S = 30
"""For one machine to say who it is, the login included."""
UNREACHED = ""
"""The instance of a machine that did not answer: it is configured once it does."""


class ExistingPoolLifecycle(Lifecycle):
    """The machines of one pool. Their machine-id is the instance: a reinstalled one is configured anew."""

    outputs = ("instances",)
    replace_on = ("stack", "region", "pool")

    def identity(self, inputs: Properties) -> str:
        """One per pool."""
        return f"{inputs['stack']}/{inputs['region']}/{inputs['pool']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Ask every machine who it is. One that does not answer is reported and does not stop the rest."""
        answers = self._ask_all(inputs)
        for name, (machine_id, why) in answers.items():
            if machine_id == UNREACHED:
                print(f"{name}: no answer by SSH: {sentence(why)}", flush=True)
        return {
            "instances": {
                name: {"id": answers[name][0], "host_key": host["host_key"]}
                for name, host in inputs["hosts"].items()
            }
        }

    def observe(self, properties: Properties) -> list[str]:
        """Machines that answer as another one than last time; a silent one is for verification to report."""
        drift = []
        for name, (machine_id, _why) in self._ask_all(properties).items():
            known = properties["instances"][name]["id"]
            if machine_id not in (UNREACHED, known):
                drift.append(f"{name}: {'answers now' if known == UNREACHED else 'has another machine-id'}")
        return drift

    def remove(self, properties: Properties) -> None:
        """The machines are yours: they stay as they are."""

    def _ask_all(self, properties: Properties) -> dict[str, tuple[str, str]]:
        with ThreadPoolExecutor(CONCURRENT_CONNECTIONS) as pool:
            asked = {
                name: pool.submit(_ask, host, properties["ssh_user"], properties["ssh_key_file"])
                for name, host in properties["hosts"].items()
            }
        return {name: answer.result() for name, answer in asked.items()}


class ExistingNodePool(Managed, module="causeway", name="ExistingNodePool"):
    """A pool of machines you already have."""

    instances: pulumi.Output[dict[str, Any]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ExistingPoolLifecycle, name, inputs, opts)


def _ask(host: Properties, user: str, key_file: str) -> tuple[str, str]:
    """(machine-id, "") of a machine that answers, or (UNREACHED, why not)."""
    with tempfile.NamedTemporaryFile("w", suffix=".known_hosts") as known:
        known.write(f"causeway {host['host_key']}\n")
        known.flush()
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": known.name,
            "HostKeyAlias": "causeway",
            "ConnectTimeout": CONNECT_TIMEOUT_S,
            "IdentitiesOnly": "yes",
            **ALIVE,
        }
        command = ["ssh", *(f"-o{key}={value}" for key, value in options.items())]
        key = ROOT / Path(key_file).expanduser()
        command += ["-i", str(key), "-p", f"{host['port']:.0f}", f"{user}@{host['address']}"]
        try:
            said = subprocess.run(
                [*command, "cat /etc/machine-id"],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=ANSWER_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return UNREACHED, (
                f"connected, then silent for {ANSWER_LIMIT_S} s: see what keeps `ssh -p {host['port']:.0f} "
                f"{user}@{host['address']} true` from ending (a disk that hangs, a login script)"
            )
    if said.returncode:
        return UNREACHED, (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return said.stdout.strip(), ""
