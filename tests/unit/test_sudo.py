"""The one place that says how a command becomes root, and what happens to a password on its way.

sudo is played by a program that asks as sudo does: line by line from standard input, three times. The real
one is asked in tests/integration/test_getting_in.py.
"""

import argparse
import asyncio
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities.monitoring import state
from infra.checks import load
from infra.commands import sudo as command
from infra.doctor import trip as look
from infra.drift import trip
from infra.errors import HARMFUL, BadInputError, CausewayError
from infra.ground import sudo
from infra.ground.contract import Contract
from infra.ground.sudo import Become
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.verify import verification
from infra.verify.expectations import Expectation
from tests.unit.texts import KEY
from tests.unit.ways import Way
from tests.verify import backend

SUDO = r"""#!/usr/bin/python3 -IS
import os, sys
folder = os.path.dirname(os.path.abspath(__file__))
def note(name, data):
    with open(os.path.join(folder, name), "ab") as file:
        file.write(data + b"\n")
def line():
    said = b""
    while (byte := os.read(0, 1)) and byte != b"\n":
        said += byte
    return said if said or byte else None
def end(text):
    sys.exit("sudo: " + text)
shown = {key: value for key, value in os.environb.items() if key not in (b"_", b"PWD", b"OLDPWD", b"SHLVL")}
note("seen", repr((sys.argv[1:], sorted(shown.items()))).encode())
words = sys.argv[1:]
flags = []
while words and words[0].startswith("-"):
    flags.append(words.pop(0))
    if flags[-1] in ("-p", "-u"):
        flags.append(words.pop(0))
expected = open(os.path.join(folder, "password"), "rb").read()
if expected and "-n" in flags:
    end("a password is required")
for number in range(3 if expected else 0):
    os.write(2, flags[flags.index("-p") + 1].encode())
    if (tried := line()) is None:
        end("no password was provided")
    note("tried", tried)
    if tried == expected:
        break
else:
    if expected:
        end("3 incorrect password attempts")
os.execvp(words[0], words)
"""
SSH = '#!/bin/sh\nfor word; do :; done\nexec sh -c "$word"\n'
SHELLS_OWN = " \\'\"$`%*!#-~nct0"
PASSWORDS = st.one_of(
    st.text(SHELLS_OWN, min_size=1, max_size=12),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
).filter(lambda text: not HARMFUL.search(text) and "\t" not in text and "\n" not in text)


class Host:
    """A folder of programs that stands for a host; `password` is what its sudo asks for, if anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("sudo", SUDO), ("ssh", SSH)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o700)
        self.asks_for("")

    def asks_for(self, password: str) -> None:
        (self.folder / "password").write_bytes(password.encode())
        for name in ("seen", "tried"):
            (self.folder / name).write_bytes(b"")

    def run(self, command: str, data: bytes, locale: str = "C.UTF-8") -> "subprocess.CompletedProcess[bytes]":
        path = f"{self.folder}:/usr/bin:/bin"
        environment = {"PATH": path, "LC_ALL": locale}
        return subprocess.run(["sh", "-c", command], input=data, capture_output=True, env=environment)

    def noted(self, name: str) -> list[bytes]:
        return (self.folder / name).read_bytes().splitlines()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sudo.HANDED, raising=False)
    monkeypatch.delenv(sudo.PROVEN, raising=False)
    monkeypatch.setattr(sudo, "_kept", {})
    monkeypatch.setattr(sudo, "_memory", [])
    monkeypatch.setattr(sudo, "_proofs", {})


def asked(password: str, host: str = "n") -> Become:
    sudo._kept["s"] = {"asked-ada": password}
    sudo._proofs.clear()
    return Become("s", host, "ada", "asked-ada")


@settings(max_examples=30)
@example(r"  a\n\c  ", b"\n\nx", "C", False)
@example("-n", b"", "C", True)
@given(PASSWORDS, st.binary(max_size=200), st.sampled_from(["C", "C.UTF-8"]), st.booleans())
def test_a_password_arrives_byte_for_byte_and_stands_in_no_command(
    host: Host, password: str, data: bytes, locale: str, proven: bool
) -> None:
    host.asks_for("another one")
    other = asked("another one")
    assert host.run(other.command("cat", proven=proven), other.ahead.encode(), locale).returncode == 0
    shown = host.noted("seen")
    host.asks_for(password)
    becoming = asked(password)
    done = host.run(becoming.command("cat", proven=proven), becoming.ahead.encode() + data, locale)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")
    assert host.noted("tried") == [password.encode()] * (1 if proven else 2)
    assert host.noted("seen") == shown, "words and environment are the same with any password"


@settings(max_examples=10)
@given(PASSWORDS, st.binary(max_size=200), st.booleans())
def test_where_sudo_asks_for_nothing_the_program_does_not_get_the_password(
    host: Host, password: str, data: bytes, proven: bool
) -> None:
    host.asks_for("")
    becoming = asked(password)
    done = host.run(becoming.command("cat", proven=proven), becoming.ahead.encode() + data)
    assert (done.returncode, done.stdout) == (0, data)


def test_a_wrong_one_is_tried_once_and_nothing_of_the_input_is_taken_for_another(host: Host) -> None:
    host.asks_for("right")
    becoming = asked("wrong")
    done = host.run(becoming.command("cat"), becoming.ahead.encode() + b"right\nright\n")
    assert (done.returncode, done.stdout) == (sudo.REFUSED_STATUS, b"")
    assert host.noted("tried") == [b"wrong"]
    assert becoming.refusal(f"`{becoming.command('cat')}` ended with 1") is None, "its own words are none"
    said = becoming.refusal(done.stderr.decode())
    assert said == (
        "sudo there does not take the password of ada; it was tried once (sudo: no password was provided);"
        " no other machine was asked"
    )
    with pytest.raises(CausewayError, match="sudo on n has refused the password of ada before"):
        _ = becoming.ahead
    with pytest.raises(CausewayError, match=r"sudo on n .* no other machine was asked"):
        _ = Become("s", "m", "ada", "asked-ada").ahead
    sudo._kept["s"]["asked-eve"] = "hers"
    assert Become("s", "n", "eve", "asked-eve").ahead == "hers\n", "another password is another's"


@pytest.mark.parametrize(
    ("complaint", "meant"),
    [
        ("sudo: sorry, you must have a tty to run sudo", "requiretty), which is not supported: Defaults:ada"),
        ("ada is not in the sudoers file.", "ada may not run every command by sudo"),
        ("sh: 1: sudo: not found", "there is no sudo"),
        ("sudo: /etc/sudo.conf must be owned by uid 0", "sudo there does not work, and took no password"),
        ("/etc/sudoers:3:1: syntax error\nsudo: no valid sudoers sources found", "(syntax error)"),
    ],
)
def test_what_sudo_says_is_told_in_words(complaint: str, meant: str) -> None:
    becoming = asked("x")
    becoming.note_refusal(complaint)
    assert meant in becoming.in_words(complaint)
    assert becoming.ahead == "x\n", "it says nothing of the password"


def test_without_a_password_commands_are_as_they_always_were() -> None:
    assert Become("s", "n", "root").command("python3 -") == "python3 -"
    assert Become("s", "n", "ada").command("python3 -") == "sudo -n python3 -"
    assert Become("s", "n", "ada").ahead == ""


@pytest.mark.parametrize("text", ["", "a\nb", "a\tb", "a\x03", "\x7f", "x" * 512, "\ud800"])
def test_what_is_no_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(CausewayError) as caught:
        sudo.checked(text, "asked-ada")
    assert not text or text not in str(caught.value)


CHILD = """
import json, os, subprocess, sys
from infra.ground import sudo
sudo.get_ready("s", {"asked-ada": ["hall"], "asked-eve": ["barn"]})
sudo.get_ready("s", {"asked-ada": ["hall"]})
code = "from infra.ground import sudo; import json; print(json.dumps([sudo.password('s', n) for n in NAMES]))"
code = code.replace("NAMES", "('asked-ada', 'asked-eve')")
said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
shown = open("/proc/self/cmdline").read() + "".join(os.environ.values())
memory = os.environ["CAUSEWAY_SUDO"]
print(json.dumps({"child": json.loads(said), "shown": shown, "memory": memory, "is": os.readlink(memory)}))
"""


def test_each_is_asked_once_on_a_terminal_and_is_gone_with_who_asked(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    out = tmp_path / "out"
    environment = {key: value for key, value in os.environ.items() if key != sudo.HANDED}
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD], cwd=ROOT, env=environment, stdin=terminal, stdout=file,
            stderr=terminal, start_new_session=True,
        )  # fmt: skip
    os.close(terminal)
    said = b""
    for user, secret in ((b"ada", "pä ss'\"$(x)`"), (b"eve", "{{ other }}")):
        while b"password of " + user not in said:
            said += os.read(controller, 1000)
        os.write(controller, secret.encode() + b"\n")
    assert process.wait(timeout=60) == 0
    os.close(controller)
    found = json.loads(out.read_text())
    assert found["child"] == ["pä ss'\"$(x)`", "{{ other }}"]
    assert "$(x)" not in found["shown"]
    assert "$(x)" not in said.decode()
    assert found["is"].startswith("/memfd:"), "no file has it"
    assert not Path(found["memory"]).exists()


def test_without_a_terminal_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115, PTH123 - pytest closes nothing of its own
    with pytest.raises(CausewayError, match="no terminal to ask") as caught:
        sudo.get_ready("lab", {"asked-ada": ["hall"]})
    assert "causeway sudo lab -- COMMAND" in caught.value.hint
    assert "sudo_password_secret: NAME" in caught.value.hint


PULUMI_SAYS = {
    "no stack named 's' found": "Pulumi does not know stack s yet",
    "configuration key 'ops' not found for stack 's'": "stack s has no secret ops yet",
    "incorrect passphrase": "incorrect passphrase",
}
"""What it says (seen of Pulumi itself) → what is told."""


def test_a_secret_comes_from_pulumi_and_else_from_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sudo, "secret_file", lambda _stack, name: tmp_path / name)

    said = ""

    def fails(*_: Any, **__: Any) -> str:
        raise CausewayError(f"`pulumi config get` ended with status 1: error: {said}")

    monkeypatch.setattr(sudo, "run", fails)
    for words, meant in PULUMI_SAYS.items():
        said = words
        with pytest.raises(CausewayError, match=meant) as caught:
            sudo.get_ready("s", {"secret-ops": ["hall"]})
        assert ("causeway secret ops s" in caught.value.hint) is (meant != said)
    with pytest.raises(CausewayError, match="stack s has no secret ops yet"):
        sudo.password("s", "secret-ops")
    (tmp_path / "given-ops").write_text("of the file")
    assert sudo.password("s", "secret-ops") == "of the file", "Ansible that nobody started by a command"
    for words, meant in PULUMI_SAYS.items():
        said = words
        if "know" not in meant:  # the file's may be the password of before
            with pytest.raises(CausewayError, match=meant):
                sudo.get_ready("s", {"secret-ops": ["hall"]})
    said = "no stack named 's' found"
    sudo.get_ready("s", {"secret-ops": ["hall"]})
    assert sudo.password("s", "secret-ops") == "of the file"
    forget(monkeypatch)
    monkeypatch.setattr(sudo, "run", lambda words: f"{words[5]}\n")
    sudo.get_ready("s", {"secret-ops": ["hall"]})
    assert sudo.password("s", "secret-ops") == "causeway:ops", "the newer one"


def test_checks_get_in_with_a_password(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    password = "pä ss'\"$(x)`"  # noqa: S105 - of a play
    host.asks_for(password)
    monkeypatch.setenv("PATH", f"{host.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(backend.BySsh, "passwords", {"n": asked(password)})
    node = backend.BySsh("n", sudo=True)
    for _ in range(2):
        done = node.run("printf '%%s|' %s; cat; echo no >&2; exit 3", "it's $HOME")
        assert (done.rc, done.stdout, done.stderr) == (3, "it's $HOME|", "no\n")
        assert password not in repr(done)
    assert host.noted("tried") == [password.encode()]


def by_ansible(folder: Path, hosts: Sequence[str], *words: str) -> str:
    """What a command of Ansible's says, whose hosts are all this machine with the sudo in `folder`."""
    own = {"ansible_connection": "local", "ansible_become": True, "causeway_sudo_source": "s/asked-ada"}
    own |= {"ansible_become_method": "causeway_sudo", "ansible_python_interpreter": sys.executable}
    own |= {"ansible_user": "ada"}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, own)}}))
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STRATEGY": "linear",
        "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
        "ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.yaml",
    }
    argv = [*words, "-i", str(folder / "hosts.json")]
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


PING = ("ansible", "all", "-vvv", "-m", "ansible.builtin.ping")


def test_ansible_gets_it_by_no_variable(tmp_path: Path) -> None:
    """Ansible itself: what it says of its variables has where the password comes from, and sudo gets it."""
    password = "{{ lookup('pipe', 'id') }} ä"  # noqa: S105 - of a play
    host = Host(tmp_path)
    host.asks_for(password)
    sudo._keep("s", "asked-ada", password)
    pinged = by_ansible(tmp_path, ["n"], *PING)
    assert '"ping": "pong"' in pinged or "ping: pong" in pinged
    assert host.noted("tried") == [password.encode()] * 2, "once before, and for the task"
    debug = ("ansible", "n", "-m", "ansible.builtin.debug", "-a", "var=vars")
    listed = by_ansible(tmp_path, ["n"], "ansible-inventory", "--list") + by_ansible(tmp_path, ["n"], *debug)
    for text in (pinged, listed):
        assert "lookup(" not in text
    assert "asked-ada" in listed


@pytest.mark.parametrize(("given", "told"), [("right", 1), ("wrong", 1), ("wrong", 0)])
def test_ansible_has_one_host_try_it_and_the_others_wait(tmp_path: Path, given: str, told: int) -> None:
    """Five at once; one does not answer and tells nothing. A second command knows what the first learnt."""
    host, names = Host(tmp_path), [f"n{number}" for number in range(4)]
    host.asks_for("right")
    (tmp_path / "ssh").write_text(SSH.replace("exec", '[ "$3" != off ] || exit 255\nexec', 1))
    sudo._keep("s", "asked-ada", given)
    said = by_ansible(tmp_path, ["off", *names], *PING)
    # On a busy machine another one may be refused first; then this one is not asked.
    ends = len(re.findall(r"off \| (?:UNREACHABLE|FAILED)!", said))
    assert ends == 1 or given == "right", said
    if given == "right":
        assert len(re.findall(r"n\d \| SUCCESS", said)) == 4
        assert set(host.noted("tried")) == {b"right"}
        return
    assert host.noted("tried") == [b"wrong"], "the account may be a central one"
    assert len(re.findall(r"n\d \| FAILED", said)) == 4
    words = " ".join(said.split())
    assert "sudo there does not take the password of ada; it was tried once" in words
    assert len(re.findall(r"sudo on n\d has refused the password of ada before", words)) >= 3
    if told:
        again = " ".join(by_ansible(tmp_path, names, *PING).split())
        assert "has refused the password of ada before" in again
        assert host.noted("tried") == [b"wrong"]
    else:
        sudo._keep("s", "asked-ada", "right")
        assert "n0 | SUCCESS" in by_ansible(tmp_path, names, *PING), "another one is tried anew"


DECLARED = """
name: lab
regions:
  - name: hall
    provider: {kind: existing, ssh_user: ada, sudo: password}
    cidr: 192.0.2.0/24
    pools:
      - {name: control, role: control, count: 1, hosts: [{address: 192.0.2.10, host_key: KEY}]}
"""


@pytest.mark.parametrize("ends", ["exit 7", "kill -TERM $$"])
def test_a_command_runs_with_what_was_asked_for_and_ends_as_it_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], ends: str
) -> None:
    file = tmp_path / "Pulumi.lab.yaml"
    file.write_text(DECLARED.replace("KEY", KEY))
    monkeypatch.setattr(command, "declaration_of", lambda _stack: file)
    sudo._keep("lab", "asked-ada", "right")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    code = "from infra.ground import sudo; print(sudo.password('lab', 'asked-ada'))"
    words = ["sh", "-c", f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}; {ends}", "--", "--more"]
    status = command.run(parser.parse_args(["lab", "--", *words]))
    assert status == (7 if "exit" in ends else 128 + signal.SIGTERM)
    assert capfd.readouterr().out == "right\n"
    with pytest.raises(BadInputError, match="/nowhere: No such file"):
        command.run(parser.parse_args(["lab", "--", "/nowhere"]))


def test_status_asks_a_region_with_a_password_and_once_with_a_wrong_one(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "Pulumi.lab.yaml"
    file.write_text(DECLARED.replace("KEY", KEY))
    spec = load(file).spec
    contract = build_contract(spec, make_plan(spec), "lab")
    monkeypatch.setenv("PATH", f"{host.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(state, "ASK", "import json, sys; print(json.dumps({'asked': sys.argv[1]}))")
    host.asks_for("right")
    sudo._keep("lab", "asked-ada", "right")
    assert state._ask(contract, "hall-control-0", history=False) == {"asked": "192.0.2.10"}
    host.asks_for("another")
    for said in ("sudo there does not take the password of ada", "has refused the password of ada before"):
        with pytest.raises(CausewayError, match=said):
            state._ask(contract, "hall-control-0", history=False)
    assert host.noted("tried") == [b"right"]


def test_an_up_asks_the_machines_of_before_with_the_password_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another source, none any more, and a region that leaves."""

    def contract(**provider: str) -> Contract:
        file = tmp_path / "Pulumi.lab.yaml"
        file.write_text(DECLARED.replace("KEY", KEY))
        spec = load(file).spec
        (region,) = spec.regions
        changed = region.model_copy(update={"provider": region.provider.model_copy(update=provider)})
        spec = spec.model_copy(update={"regions": (changed,)})
        return build_contract(spec, make_plan(spec), "lab")

    asked, given = contract(), contract(sudo_password_secret="ops")  # noqa: S106 - a name
    sudo._keep("lab", "secret-ops", "right")
    sudo.carry_over(asked, given)
    assert sudo.password("lab", "asked-ada") == "right"
    forget(monkeypatch)
    sudo.carry_over(asked, contract(sudo="passwordless"))
    assert sudo.password("lab", "asked-ada") == "none"
    forget(monkeypatch)
    with pytest.raises(CausewayError, match="no terminal"):
        sudo.carry_over(asked, asked.model_copy(update={"regions": {}}))


def test_nobody_is_asked_for_the_sake_of_other_hosts(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.lab.yaml"
    file.write_text(DECLARED.replace("KEY", KEY))
    spec = load(file).spec
    contract = build_contract(spec, make_plan(spec), "lab")
    sudo.ready(contract, ())
    with pytest.raises(CausewayError, match="no terminal"):
        sudo.ready(contract, contract.hosts)


NO_TTY = "#!/bin/sh\necho 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1\n"
RIGHT, WRONG = "right", "wrong"
KINDS = ("off", "asks for nothing", "wants a terminal", "asks")


class Fleet:
    """Five hosts of one account, each of a kind, that hold still where others may come between."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], given: str) -> None:
        file = folder / "Pulumi.lab.yaml"
        hosts = ", ".join(f"{{address: 192.0.2.{10 + number}, host_key: KEY}}" for number in range(5))
        text = DECLARED.replace("count: 1", "count: 5").replace("{address: 192.0.2.10, host_key: KEY}", hosts)
        file.write_text(text.replace("KEY", KEY))
        spec = load(file).spec
        self.contract = build_contract(spec, make_plan(spec), "lab")
        self.kinds = dict(zip(self.contract.hosts, kinds, strict=True))
        self.hosts = dict[str, Host]()
        for name, kind in self.kinds.items():
            (folder / name).mkdir(exist_ok=True)
            self.hosts[name] = Host(folder / name)
            self.hosts[name].asks_for(RIGHT if kind == "asks" else "")
            if kind == "wants a terminal":
                (folder / name / "sudo").write_text(NO_TTY)
        sudo._proofs.clear()
        sudo._keep("lab", "asked-ada", given)

    @property
    def asking(self) -> set[str]:
        return {name for name, kind in self.kinds.items() if kind == "asks"}

    def tried(self) -> dict[str, list[bytes]]:
        return {name: self.hosts[name].noted("tried") for name in self.asking}

    async def open(self, host: str) -> Way:
        await asyncio.sleep(0)
        if self.kinds[host] == "off":
            raise trip.TripError("it is off", reached=False)
        return Way(host)

    async def execute(self, way: Way, command: str, data: bytes, *_: Any) -> tuple[bytes, bytes, int]:
        await asyncio.sleep(0)
        done = await asyncio.to_thread(self.hosts[way.host].run, command, data)
        return done.stdout, done.stderr, done.returncode

    def ssh(self, _config: Path, host: str, command: str, stdin: str) -> "subprocess.CompletedProcess[str]":
        if self.kinds[host] == "off":
            return subprocess.CompletedProcess((), 255, "", "it is off")
        done = self.hosts[host].run(command, stdin.encode())
        return subprocess.CompletedProcess((), done.returncode, done.stdout.decode(), done.stderr.decode())


def try_all(fleet: Fleet) -> Mapping[str, object]:
    return look.try_sudo(fleet.contract, "", tuple(fleet.contract.hosts))


def look_at_all(fleet: Fleet) -> Mapping[str, object]:
    found = look.look_at(fleet.contract, "", {host: {} for host in fleet.contract.hosts})
    return {name: seen if isinstance(seen, trip.TripError) else seen.sudo for name, seen in found.items()}


def ask_all(fleet: Fleet) -> Mapping[str, object]:
    trips, found = trip.Trips(fleet.contract, ""), dict[str, object]()

    async def ask(host: str) -> None:
        async with await trips.open(host) as connection:
            await trips.ask(connection, host, {"entries": []})

    async def one(host: str) -> None:
        found[host] = await trip.failure_of(ask(host), 60)

    async def every() -> None:
        await asyncio.gather(*map(one, fleet.contract.hosts))

    asyncio.run(every())
    return found


def connect_to_all(fleet: Fleet) -> Mapping[str, object]:
    names = list(fleet.contract.hosts)
    options = {"User": "ada"}
    wanted = [
        Expectation(name, (), {}, "ssh", name, options, become=True, stack="lab", sudo_source="asked-ada")
        for name in names
    ]
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(
            zip(names, pool.map(lambda host: verification._connect(host, Path("x")), wanted), strict=True)
        )


ROUTES = (try_all, look_at_all, ask_all, connect_to_all)


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=4, deadline=None)
@example(("asks",) * 5, WRONG)
@example(("asks",) * 5, RIGHT)
@example((*KINDS, "asks"), WRONG)
@given(st.tuples(*[st.sampled_from(KINDS)] * 5), st.sampled_from([RIGHT, WRONG]))
def test_a_mistyped_password_reaches_one_machine_once_whoever_asks(
    tmp_path_factory: pytest.TempPathFactory,
    route: Callable[[Fleet], Mapping[str, object]],
    kinds: tuple[str, ...],
    given: str,
) -> None:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), kinds, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trip.Trips, "open", lambda _trips, host: fleet.open(host))
        patch.setattr(trip, "execute", fleet.execute)
        patch.setattr(look, "execute", fleet.execute)
        patch.setattr(look, "PYTHON", "/nowhere/python3")
        patch.setattr(trip, "PYTHON", "echo")
        patch.setattr(
            verification, "_ssh", lambda config, host, command, stdin: fleet.ssh(config, host, command, stdin)
        )
        found = route(fleet)
        again = route(fleet)
    tried = fleet.tried()
    if given == RIGHT:
        assert all(tried.values()), "once one has taken it, all are asked"
        assert {word for words in tried.values() for word in words} <= {b"right"}
        return
    assert [word for words in tried.values() for word in words] == [b"wrong"] * bool(fleet.asking)
    if fleet.asking:
        (first,) = (name for name, words in tried.items() if words)
        assert "no password was provided" in str(found[first])
        for name in fleet.asking - {first}:
            assert f"sudo on {first} has refused" in str(found.get(name, f"sudo on {first} has refused"))
        assert route is try_all or f"sudo on {first} has refused" in str(again[first])
        proof = Become("lab", first, "ada", "asked-ada").proof
        assert (proof.refused_by, proof.others) == (first, "no other machine was asked")


def test_a_refusal_after_another_machine_took_it_ends_the_asking_too(host: Host) -> None:
    host.asks_for("right")
    becoming = asked("right")
    assert becoming.prove(lambda command, data: host.run(command, data.encode()).stdout.decode()) == ""
    assert becoming.proof.taken
    other = Become("s", "m", "ada", "asked-ada")
    other.note_refusal("sudo: 1 incorrect password attempt")
    with pytest.raises(CausewayError, match=r"sudo on m has refused .*; no further machine is asked"):
        _ = becoming.ahead
