"""Every way into machines you have: jump hosts, an SSH agent, certificates, and a sudo that asks.

Three machines: a jump host, one behind it that lets nobody else in, and one that takes certificates only.
What is tried is what a user does: `causeway doctor`, `up`, `causeway drift`, a playbook, and plain ssh.
"""

import json
import os
import pty
import signal
import subprocess
import termios
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from infra.ground.ssh import jump_name
from tests.integration.checkout import Checkout, said
from tests.integration.machines import Machines, standing
from tests.patience import wait_for

PROVES = ("existing",)
TOOLS = ("victoria-logs",)

JUMP, BEHIND, SIGNED = (f"machine-{number}" for number in range(3))
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"
PASSPHRASE = "a passphrase of the test"  # noqa: S105 - of a key that opens containers of the test only


SUDO_PASSWORD = "{{ pä ss }} '\"$(id)`%s\\"  # noqa: S105 - likewise
ADA = """
useradd --create-home --shell /bin/bash ada && chpasswd && cp -r /root/.ssh /home/ada/
chown --recursive ada: /home/ada/.ssh && echo 'ada ALL=(ALL) ALL' >/etc/sudoers.d/ada
"""


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    with standing(checkout, {"machine": 3}) as made:
        yield made


@pytest.fixture(scope="module")
def authority(checkout: Checkout, machines: Machines) -> Path:
    """An authority's key; it has signed the users' key and the keys of two machines, by their addresses."""
    folder = checkout.folder.parent
    ca = folder / "authority"
    said("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ca))
    said(
        "ssh-keygen", "-q", "-s", str(ca), "-I", "users", "-n", "root", str(machines.key.with_suffix(".pub"))
    )
    for name in (BEHIND, SIGNED):
        public = folder / f"{name}.pub"
        public.write_text(machines.states[name].host_key + "\n")
        address = str(machines.states[name].address)
        said("ssh-keygen", "-q", "-s", str(ca), "-I", name, "-h", "-n", address, str(public))
        signed = (folder / f"{name}-cert.pub").read_text().strip()
        script = f"echo '{signed}' >/etc/ssh/signed-cert.pub; echo '{public_of(ca)}' >/etc/ssh/users_ca.pub"
        machines.on(name, "sh", "-ec", script)
    machines.key.with_name("key-cert.pub").rename(folder / "users-cert.pub")
    return ca


@pytest.fixture(scope="module", autouse=True)
def closed(machines: Machines, authority: Path) -> None:
    """From here on one machine lets in by the jump host only, and the other by certificates only."""
    assert authority.exists()
    certificate = "HostKey /etc/ssh/ssh_host_ed25519_key\nHostCertificate /etc/ssh/signed-cert.pub"
    machines.sshd(BEHIND, f"AllowUsers root@{machines.states[JUMP].address}\n{certificate}")
    only = "TrustedUserCAKeys /etc/ssh/users_ca.pub\nAuthorizedKeysFile none"
    machines.sshd(SIGNED, f"{only}\n{certificate}")


@pytest.fixture
def certificate(checkout: Checkout, machines: Machines) -> Iterator[Path]:
    """The users' certificate beside their key, as OpenSSH looks for it."""
    path = machines.key.with_name("key-cert.pub")
    path.write_text((checkout.folder.parent / "users-cert.pub").read_text())
    yield path
    path.unlink()


@pytest.fixture
def agent(checkout: Checkout, machines: Machines) -> Iterator[Mapping[str, str]]:
    """An agent that has a key with a passphrase, and its certificate; no file opens without a question."""
    folder = checkout.folder.parent
    key = folder / "with-passphrase"
    key.write_text(machines.key.read_text())
    key.chmod(0o600)
    said("ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", str(key))
    (folder / "with-passphrase-cert.pub").write_text((folder / "users-cert.pub").read_text())
    (folder / "with-passphrase.pub").write_text(machines.key.with_suffix(".pub").read_text())
    socket = folder / "agent"
    pid = int(said("ssh-agent", "-a", str(socket)).split("SSH_AGENT_PID=")[1].split(";")[0])
    ask = folder / "ask"
    ask.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    ask.chmod(0o700)
    words = ("SSH_ASKPASS_REQUIRE=force", f"SSH_ASKPASS={ask}", f"SSH_AUTH_SOCK={socket}")
    said("env", *words, "ssh-add", "-q", str(key))
    yield {"SSH_AUTH_SOCK": str(socket)}
    os.kill(pid, signal.SIGTERM)
    for path in folder.glob("with-passphrase*"):
        path.unlink()


def public_of(key: Path) -> str:
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


def words(printed: str) -> str:
    """What a table says, whatever lines it is broken into."""
    return " ".join(printed.replace("│", "").split())


def jump(machines: Machines, **other: Any) -> dict[str, Any]:
    state = machines.states[JUMP]
    return {"address": str(state.address), "host_key": state.host_key, **other}


def declared(
    checkout: Checkout,
    machines: Machines,
    name: str,
    *,
    known: bool = True,
    cluster: Mapping[str, Any] = MappingProxyType({}),
    **provider: Any,
) -> None:
    """A region of one machine, without its host key where an authority stands for it."""
    pool = machines.pool("control", name)
    if not known:
        del pool["hosts"][0]["host_key"]
    if provider.get("ssh_key_file", "") is None:
        del provider["ssh_key_file"]
        region = machines.region("hall", checkout.cidr(0), pool, **provider)
        del region["provider"]["ssh_key_file"]
    else:
        region = machines.region("hall", checkout.cidr(0), pool, **provider)
    checkout.declare({"name": "mine", "regions": [region], **cluster})


def doctor(checkout: Checkout, *, reached: bool = True, env: Mapping[str, str] | None = None) -> str:
    """What the look says; the machines are new, so names and the like are in the way."""
    printed = checkout.run("exec", "causeway", "doctor", checkout.stack, expect=1, env=env)
    assert ("no answer" in printed) != reached
    return printed


def test_the_stacks_key_is_there_before_anything_else_and_can_be_handed_out(
    checkout: Checkout, machines: Machines
) -> None:
    declared(checkout, machines, JUMP, ssh_key_file=None)
    printed = doctor(checkout, reached=False)
    public = public_of(checkout.files / "ssh" / "id_ed25519")
    assert f"~root/.ssh/authorized_keys there: {public} causeway" in words(printed)
    machines.on(JUMP, "sh", "-ec", f"echo '{public}' >>/root/.ssh/authorized_keys")
    doctor(checkout)


def test_without_the_jump_host_the_machine_behind_it_refuses(checkout: Checkout, machines: Machines) -> None:
    declared(checkout, machines, BEHIND)
    assert "does not let root in" in words(doctor(checkout, reached=False))
    declared(checkout, machines, BEHIND, ssh_jump=[jump(machines)])
    doctor(checkout)


def test_a_jump_host_with_another_key_is_refused_and_named(checkout: Checkout, machines: Machines) -> None:
    declared(checkout, machines, BEHIND, ssh_jump=[jump(machines, host_key=OTHER_KEY)])
    printed = words(doctor(checkout, reached=False))
    named = f"jump host {machines.states[JUMP].address}, on the way to hall-control-0, has another host key"
    assert f"{named} than the declared one; compare `host_key` of this `ssh_jump` with /etc/ssh/" in printed


def test_a_machine_that_takes_certificates_only(
    checkout: Checkout, machines: Machines, authority: Path, certificate: Path
) -> None:
    ca = public_of(authority)
    declared(checkout, machines, SIGNED, known=False, ssh_host_ca=ca)
    doctor(checkout)
    shown = certificate.read_text()
    certificate.unlink()
    assert "does not let root in" in words(doctor(checkout, reached=False)), "the key alone is refused"
    certificate.write_text(shown)
    declared(checkout, machines, JUMP, known=False, ssh_host_ca=ca)
    assert "its host key has to be signed" in words(doctor(checkout, reached=False)), "nobody did"


def test_an_agent_without_which_nothing_goes(
    checkout: Checkout, machines: Machines, agent: Mapping[str, str]
) -> None:
    declared(checkout, machines, JUMP, ssh_key_file=None, ssh_agent=True)
    doctor(checkout, env=agent)
    chosen = str(checkout.folder.parent / "with-passphrase")
    declared(checkout, machines, JUMP, ssh_key_file=chosen, ssh_agent=True)
    doctor(checkout, env=agent)
    printed = checkout.run("exec", "causeway", "doctor", checkout.stack, expect=1, env={"SSH_AUTH_SOCK": ""})
    assert "SSH_AUTH_SOCK is not set" in words(printed)


ASK = """
import sys
from infra.errors import CausewayError
from infra.ground.contract import load_contract
from infra.ground.login import as_root
from infra.stack import contract_file
contract = load_contract(contract_file(sys.argv[1]))
try:
    print(as_root(contract, "hall-control-0", "id", timeout_s=30), end="")
except CausewayError as error:
    sys.exit(error.message)
"""


def asked(checkout: Checkout, *, expect: int = 0, env: Mapping[str, str]) -> str:
    """What root on the machine is, asked as `status`, `logs` and `wan measure` ask."""
    return checkout.run("exec", "python", "-c", ASK, checkout.stack, expect=expect, env=env)


def everything(checkout: Checkout, env: Mapping[str, str]) -> None:
    """`up`, a scan, a repair, a playbook, and plain ssh all get in."""
    assert "0 failed, 0 unreachable" in checkout.run("up", checkout.stack, env=env)
    scan = ("exec", "causeway", "drift", checkout.stack)
    assert "1 clean" in checkout.run(*scan, env=env)
    stands = f"inventories/{checkout.stack}"
    linear = {**env, "ANSIBLE_STRATEGY": "linear"}
    for strategy in (env, linear):
        pinged = checkout.run("exec", "ansible", "all", "-i", stands, "-m", "ping", env=strategy)
        assert "SUCCESS" in pinged
    config = str(checkout.files / "ssh" / "config")
    assert "hall-control-0" in checkout.run(
        "exec", "ssh", "-F", config, "hall-control-0", "hostname", env=env
    )
    assert asked(checkout, env=env).endswith("uid=0(root) gid=0(root) groups=0(root)\n")


WATCHED = {
    "monitoring": {
        "kind": "prometheus",
        "interval_s": 5,
        "retention": {"time_days": 1},
        "logs": {"kind": "victorialogs", "retention_days": 1, "size_gib": 0.5},
    }
}


def its_services_answer(checkout: Checkout, machines: Machines, env: Mapping[str, str]) -> None:
    """`status` and `logs` tell what is so behind the jump host."""
    mark = uuid.uuid4().hex
    machines.on(BEHIND, "logger", "-t", "trial", mark)

    def state() -> dict[str, Any]:
        text = checkout.run("exec", "causeway", "status", checkout.stack, "--json", env=env)
        found: dict[str, Any] = json.loads(text[text.index("{") :])["regions"]["hall"]
        return found

    def logged() -> list[str]:
        text = checkout.run("exec", "causeway", "logs", checkout.stack, f'"{mark}"', "--json", env=env)
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [f"{line['node']}: {line['_msg']}" for line in lines]

    wait_for(lambda: state()["up"] == 1, "the server to have seen the machine")
    found = state()
    assert (found["declared"], found["problem"], found["gone"]) == (1, None, [])
    wait_for(lambda: logged() == [f"hall-control-0: {mark}"], "the line")
    machines.on(BEHIND, "systemctl", "stop", "prometheus-node-exporter.service")
    wait_for(lambda: state()["gone"] == ["hall-control-0"], "the server to miss the machine")
    machines.on(BEHIND, "systemctl", "start", "prometheus-node-exporter.service")


def who_refuses_is_named(checkout: Checkout, machines: Machines, env: Mapping[str, str]) -> None:
    """By all that connect, where a jump host opens no connection to the next."""
    causeway = ("exec", "causeway")
    verify = ("exec", "ansible-playbook", "playbooks/verify.yml", "-i", f"inventories/{checkout.stack}")
    address = machines.states[JUMP].address
    named = (
        f"jump host {address}, on the way to hall-control-0, does not reach jump host {address}, port 22: "
    )
    checkout.hang_up("hall-control-0", *(jump_name("hall", number) for number in range(2)))
    with machines.no_forwarding(JUMP):
        for command in ("doctor", "drift", "status", "logs"):
            printed = words(checkout.run(*causeway, command, checkout.stack, expect=1, env=env))
            assert f"{named}administratively prohibited: open failed; sshd there has to allow it" in printed
        assert f"unreachable hall-control-0: {named}" in words(checkout.run(*verify, expect=2, env=env))


def test_a_machine_behind_a_jump_host_stands_by_an_agent_and_an_authority(
    checkout: Checkout, machines: Machines, authority: Path, agent: Mapping[str, str]
) -> None:
    hop = jump(machines)
    ca = public_of(authority)
    way = {"ssh_jump": [hop, hop], "ssh_agent": True, "ssh_host_ca": ca, "ssh_key_file": None}
    declared(checkout, machines, BEHIND, known=False, cluster=WATCHED, **way)
    doctor(checkout, env=agent)
    everything(checkout, agent)
    its_services_answer(checkout, machines, agent)
    who_refuses_is_named(checkout, machines, agent)
    machines.on(BEHIND, "sh", "-c", "chmod 0600 /etc/chrony/chrony.conf")
    assert "expected 0644" in checkout.run("exec", "causeway", "drift", checkout.stack, expect=3, env=agent)
    repair = ("ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    checkout.run("exec", *repair, env=agent)
    assert "1 clean" in checkout.run("exec", "causeway", "drift", checkout.stack, env=agent)
    checkout.hang_up("hall-control-0")  # a connection that is shared would still be there
    machines.on(BEHIND, "systemctl", "stop", "ssh.service")
    through = f"jump host {hop['address']}, on the way to hall-control-0, does not reach hall-control-0"
    refused = asked(checkout, expect=1, env=agent)
    machines.on(BEHIND, "systemctl", "start", "ssh.service")
    assert f"{through} ({machines.states[BEHIND].address}), port 22: " in refused
    assert "Connection refused" in refused
    state = checkout.run("exec", "pulumi", "stack", "export", "--stack", checkout.stack)
    assert PASSPHRASE not in state


def on_a_terminal(checkout: Checkout, answer: str, *words: str, expect: int = 0) -> str:
    """What `./run WORDS` printed where somebody sits who answers its one question."""
    controller, terminal = pty.openpty()
    process = checkout.start(*words, stdin=terminal)

    def is_asked() -> bool:  # what was typed before is thrown away with the echo
        return process.poll() is not None or not termios.tcgetattr(controller)[3] & termios.ECHO

    try:
        wait_for(is_asked, "the question for a password")
        os.write(controller, answer.encode() + b"\n")
        return checkout.finish(process, expect)
    finally:
        os.close(terminal)
        os.close(controller)


def asked_ada(machines: Machines) -> int:
    """How often sudo was given another password than ada's."""
    said = machines.on(JUMP, "sh", "-c", "journalctl --sync; journalctl -q -o cat SYSLOG_IDENTIFIER=sudo")
    return said.count("authentication failure;")


def test_a_sudo_that_asks_for_a_password(checkout: Checkout, machines: Machines) -> None:
    subprocess.run(
        ["podman", "exec", "-i", machines.container(JUMP), "sh", "-ec", ADA],
        input=f"ada:{SUDO_PASSWORD}\n", text=True, check=True, timeout=60,
    )  # fmt: skip
    machines.sshd(JUMP, "AllowUsers ada")
    look = ("exec", "causeway", "doctor", checkout.stack)
    declared(checkout, machines, JUMP, ssh_user="ada")
    assert "sudo asks ada for a password" in (printed := words(doctor(checkout)))
    assert "declare `sudo: password` beside `ssh_user`" in printed
    declared(checkout, machines, JUMP, ssh_user="ada", sudo="password")
    assert "there is no terminal to ask for it" in checkout.run(*look, expect=1)
    before = asked_ada(machines)
    assert "sudo there does not take the password of ada" in words(
        on_a_terminal(checkout, "x", *look, expect=1)
    )
    assert asked_ada(machines) == before + 1, "a second one may lock the account"
    assert "ada, with a password" in words(on_a_terminal(checkout, SUDO_PASSWORD, *look, "--json", expect=1))


def test_a_machine_whose_sudo_asks_stands_by_a_secret(checkout: Checkout, machines: Machines) -> None:
    secret: dict[str, Any] = {
        "ssh_user": "ada",
        "sudo": "password",
        "sudo_password_secret": "sudo-hall",
    }
    declared(checkout, machines, JUMP, **secret)
    given = 'printf %s "$GIVEN" | causeway secret sudo-hall "$0"'
    checkout.run("exec", "sh", "-c", given, checkout.stack, env={"GIVEN": SUDO_PASSWORD})
    everything(checkout, {})
    machines.on(JUMP, "sh", "-c", "chmod 0600 /etc/chrony/chrony.conf")
    assert "expected 0644" in checkout.run("exec", "causeway", "drift", checkout.stack, expect=3)
    repair = ("ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    checkout.run("exec", *repair)
    assert "1 clean" in checkout.run("exec", "causeway", "drift", checkout.stack)
    kept = checkout.files / "secrets" / "given-sudo-hall"
    assert kept.read_bytes().decode() == SUDO_PASSWORD
    assert kept.stat().st_mode & 0o777 == 0o600
    holding = said("grep", "-rlF", "--", SUDO_PASSWORD, str(checkout.folder)).splitlines()
    assert holding == [str(kept)], "no state, log, inventory or record"


@pytest.mark.long
def test_a_machine_whose_sudo_asks_stands_by_somebody_at_a_terminal(
    checkout: Checkout, machines: Machines
) -> None:
    declared(checkout, machines, JUMP, ssh_user="ada", sudo="password")
    before = asked_ada(machines)
    assert "does not take the password of ada" in on_a_terminal(checkout, "x", "up", checkout.stack, expect=1)
    assert asked_ada(machines) == before + 1
    machines.on(JUMP, "sh", "-c", "rm /etc/chrony/chrony.conf")
    standing = on_a_terminal(checkout, SUDO_PASSWORD, "up", checkout.stack)
    assert "0 failed, 0 unreachable (verified now)" in standing
    assert not (checkout.files / "secrets" / "given-sudo-hall").exists()
    assert "1 clean" in on_a_terminal(checkout, SUDO_PASSWORD, "exec", "causeway", "drift", checkout.stack)
    play = ("ansible-playbook", "playbooks/verify.yml", "-i", f"inventories/{checkout.stack}")
    assert "no terminal to ask" in checkout.run("exec", *play, expect=2)
    below = ("exec", "causeway", "sudo", checkout.stack, "--")
    on_a_terminal(checkout, SUDO_PASSWORD, *below, *play)
    assert asked_ada(machines) == before + 1
    ping = ("ansible", "all", "-i", f"inventories/{checkout.stack}", "-m", "ping")
    assert "SUCCESS" in on_a_terminal(checkout, SUDO_PASSWORD, *below, *ping)
    wrong = on_a_terminal(checkout, "x", *below, *ping, "-vvv", expect=2)
    assert "sudo there does not take the password of ada; it was tried once" in words(wrong)
    assert asked_ada(machines) == before + 2, "by whoever tries it before, and never by the task"
