"""The provider `existing` as Pulumi sees it: one resource per pool, which tells that SSH reaches it."""

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi

from infra.errors import sentence
from infra.ground import ssh
from infra.ground.contract import JumpContract
from infra.ground.hop import Stop, hops
from infra.ground.login import SSHS_OWN, lost_at
from infra.providers.lifecycle import Lifecycle, Managed, Properties

CONCURRENT_CONNECTIONS = 32
ANSWER_LIMIT_S = 30
"""For one machine to say who it is, the login included."""
MACHINE = "machine"
"""What the machine is called in the ssh_config by which it is asked."""
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
            asked = {name: pool.submit(_ask, host, properties) for name, host in properties["hosts"].items()}
        return {name: answer.result() for name, answer in asked.items()}


class ExistingNodePool(Managed, module="causeway", name="ExistingNodePool"):
    """A pool of machines you already have."""

    instances: pulumi.Output[dict[str, Any]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ExistingPoolLifecycle, name, inputs, opts)


def _ask(host: Properties, pool: Properties) -> tuple[str, str]:
    """(machine-id, "") of a machine that answers, or (UNREACHED, why not)."""
    user, port = pool["ssh_user"], f"{host['port']:.0f}"
    with tempfile.TemporaryDirectory(prefix="causeway-ask-") as folder:
        config = _config(Path(folder), host, pool)
        try:
            said = subprocess.run(
                ["ssh", "-F", str(config), MACHINE, "cat /etc/machine-id"],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=ANSWER_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return UNREACHED, (
                f"connected, then silent for {ANSWER_LIMIT_S} s: see what keeps `ssh -p {port} "
                f"{user}@{host['address']} true` from ending (a disk that hangs, a login script)"
            )
        if said.returncode == SSHS_OWN and (lost := _lost_at(config, host, pool)):
            return UNREACHED, lost
    if said.returncode:
        why = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
        refused = "Permission denied" in why
        out = ssh.to_hand_out(user, pool["ssh_key_file"]) if refused else ""
        return UNREACHED, f"{why} {out}".strip()
    return said.stdout.strip(), ""


def _way(pool: Properties) -> ssh.Way:
    access = pool.get("access", {})
    return ssh.Way(
        key_file=pool["ssh_key_file"],
        agent=access.get("ssh_agent", False),
        jumps=tuple(JumpContract.model_validate(jump) for jump in access.get("ssh_jump", ())),
    )


def _lost_at(config: Path, host: Properties, pool: Properties) -> str:
    """What is said of the jump host that does not lead on; empty where each one does."""
    machine, way = Stop("the machine", host["address"], int(host["port"])), _way(pool)
    return lost_at(config, MACHINE, hops(way.jumps, machine, way.key_file))


def _config(folder: Path, host: Properties, pool: Properties) -> Path:
    """An ssh_config that leads to the machine, by connections of its own: this asks who is there now."""
    way = _way(pool)
    address, port = host["address"], int(host["port"])
    machine = {"HostName": address, "Port": str(port), "User": pool["ssh_user"]}
    blocks = {MACHINE: machine | way.keys() | way.over(MACHINE), **way.blocks(MACHINE)}
    known = [ssh.known_line(address, port, host["host_key"])]
    known += [ssh.known_line(jump.address, jump.ssh_port, jump.host_key) for jump in way.jumps]
    (folder / "known_hosts").write_text("\n".join([*known, ""]))
    text = ssh.config_text(
        blocks, None, StrictHostKeyChecking="yes", UserKnownHostsFile=str(folder / "known_hosts")
    )
    (folder / "config").write_text(text)
    return folder / "config"
