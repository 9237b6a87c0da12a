"""A checkout of its own for tests that do what a user does, and a place on this machine for its stack.

Places are numbered. Each has a range of addresses and a lock that ends with the process which holds it, so
that test runs stay out of each other's way, and whoever comes next sweeps what a dead one left.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from infra.errors import CausewayError
from infra.process import descendants
from infra.providers.local import names, netns, sweep, wan
from infra.pulumi_cli import without_salt
from tests.patience import wait_for

ROOT = Path(__file__).resolve().parents[2]
PLACES = Path(tempfile.gettempdir()) / "causeway-tests"
RANGES = tuple(IPv4Network("10.208.0.0/12").subnets(new_prefix=16))
PATIENCE_S = 2400
"""For one command: the machine may be busy with other tests."""
ANSWER_S = 60
"""For a node to take a connection: one under emulation, on a busy machine, may stand still for a while."""
WITHIN = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    *("HOME=/root", "TERM=xterm", "container=podman"),
)
"""What stands in a container's environment."""
STANDING = ("conmon", "vde_switch", "wirefilter", "qemu-system-x86")
PREPARED = re.compile(r"^(PULUMI|ANSIBLE|MOLECULE)_|^(PYTHONPATH|VIRTUAL_ENV|CONTAINERS_CONF)$")
"""What `./run` sets: a test's own call of `./run` starts without it, as a user's does."""


@dataclass
class Checkout:
    """A clone of the working tree, with one stack of its own."""

    folder: Path
    stack: str
    range: IPv4Network
    running: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def declaration(self) -> Path:
        """The stack's file."""
        return self.folder / f"Pulumi.{self.stack}.yaml"

    @property
    def files(self) -> Path:
        """Where the stack keeps its files."""
        return self.folder / ".causeway" / "stacks" / self.stack

    def cidr(self, number: int) -> str:
        """The range of region `number`, from 0 to 15."""
        return str(list(self.range.subnets(new_prefix=20))[number])

    def declare(self, cluster: Mapping[str, Any]) -> None:
        """Write the stack's declaration; like an editor, keep the line that Pulumi has added to it."""
        text = self.declaration.read_text() if self.declaration.exists() else ""
        with self.declaration.open("w") as file:
            YAML().dump({"config": {"causeway:cluster": dict(cluster)}}, file)
            file.write(text.removeprefix(without_salt(text)))

    def override(self, name: str, **variables: Any) -> None:
        """Set role variables of all nodes beside the declaration, in a file NAME; what it said is gone."""
        file = self.folder / "inventories" / self.stack / "group_vars" / "all" / f"{name}.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as opened:
            YAML().dump(variables, opened)

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[str]":
        """Start `./run WORDS`; it ends with this process, also when that is killed."""
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", str(self.folder / "run"), *words],
            cwd=self.folder,
            env=_user_environment() | dict(env or {}),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str, expect: int = 0, env: Mapping[str, str] | None = None) -> str:
        """What `./run WORDS` printed, once it has ended with the status `expect`."""
        return self.finish(self.start(*words, env=env), expect)

    def finish(self, process: "subprocess.Popen[str]", expect: int = 0) -> str:
        """What a started command printed, once it has ended with the status `expect`."""
        said, _ = process.communicate(timeout=PATIENCE_S)
        self.running.remove(process)
        print(said)
        if process.returncode != expect:
            raise AssertionError(
                f"ended with {process.returncode}, not {expect}:\n{said}\n{self._what_failed()}"
            )
        return said

    def _what_failed(self) -> str:
        """What the journals of services that are down say: on another machine there is no second look."""
        ask = "systemctl list-units --failed --plain --no-legend | cut -d' ' -f1 | while read unit; do " \
            'echo "$(hostname): $unit"; journalctl --no-pager --lines 20 --unit "$unit"; done'  # fmt: skip
        asked = [within(container, "sh", "-c", ask) for container in self.instances().values()]
        return "".join(subprocess.run(argv, capture_output=True, text=True).stdout for argv in asked)

    def pulumi_of(self, process: "subprocess.Popen[str]") -> int:
        """The Pulumi CLI that a started `./run up` has come to, not one that it asks something before."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid in processes_of(process.pid, "pulumi") if "up" in words_of(pid)]
            return bool(found)

        wait_for(is_there, "pulumi to start")
        return found[0]

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """`kill -9` of the Pulumi CLI; what it had started has to end by itself."""
        os.kill(self.pulumi_of(process), signal.SIGKILL)
        assert "does not stand as declared" in self.finish(process, expect=1)
        try:
            wait_for(lambda: not at_work(self.folder), "an end of all that Pulumi had started")
        except AssertionError as error:
            pids = ",".join(map(str, at_work(self.folder)))
            left = said("ps", "-o", "pid,ppid,stat,etimes,args", "-p", pids)
            raise AssertionError(f"{error}:\n{left}") from None

    def up(self, *words: str, expect: int = 0) -> str:
        """`./run up` of the stack; its links take a quarter of a minute, and are measured for whom asks."""
        return self.run("up", self.stack, *(words or ("--no-measure",)), expect=expect)

    def bake(self, pool: str) -> str:
        """Build the image that new nodes of a pool start from; its name. Whoever has it built removes it."""
        return image_in(self.run("exec", "causeway", "image", "build", pool, "--stack", self.stack))

    def changes(self) -> dict[str, str]:
        """Name → operation of each resource that `pulumi preview` would change, the stack's outputs apart."""
        preview = f"pulumi preview --json --stack {self.stack}"
        text = self.run(
            "exec", "sh", "-c", f"{preview} 2>.causeway/preview || {{ cat .causeway/preview; exit 1; }}"
        )
        steps = json.loads(text[text.index("{") :])["steps"]
        return {
            step["urn"].rsplit("::", 1)[1]: step["op"]
            for step in steps
            if step["op"] != "same" and "pulumi:pulumi:Stack" not in step["urn"]
        }

    def instances(self) -> dict[str, str]:
        """Node name → container ID of every node of the stack that has ever run, read from podman."""
        return containers(self.stack)

    def measured(self, expect: int = 0) -> dict[str, Any]:
        """What `wan measure` found between tokyo and shanghai."""
        text = self.run("exec", "causeway", "wan", "measure", self.stack, "--json", expect=expect)
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
        return dict(found["tokyo"]["shanghai"])

    def address(self, node: str) -> str:
        """A node's address, from the contract."""
        return str(json.loads((self.files / "contract.json").read_text())["hosts"][node]["address"])

    def on_node(self, node: str, *argv: str) -> str:
        """What a command printed in a node, not by SSH: the nodes' own sshd may be what is tested."""
        return said(*within(f"cw-{self.stack}-{node}", *argv))

    def ssh(self, node: str, *argv: str) -> str:
        """What a command printed in a node, by SSH as a user would: the only way into a virtual machine."""
        patient = f"-oConnectTimeout={ANSWER_S}"
        return said("ssh", "-F", str(self.files / "ssh" / "config"), patient, node, *argv)

    def hang_up(self, *hosts: str) -> None:
        """End the connections that commands share, if there are any: the next command opens its own."""
        config = str(self.files / "ssh" / "config")
        for host in hosts:
            subprocess.run(["ssh", "-F", config, "-O", "exit", host], capture_output=True, timeout=ANSWER_S)

    def configured(self) -> list[set[str]]:
        """The hosts that every run of the roles so far went over, in order; no host for a killed run."""
        recaps = [log.partition("PLAY RECAP")[2] for log in self.logs()]
        return [set(re.findall(r"^(\S+) +: ok=", recap, re.MULTILINE)) for recap in recaps]

    def tasks_run(self) -> set[str]:
        """The tasks of roles, as `role : task`, of the last run."""
        return set(re.findall(r"^TASK \[(\w+ : .*?)\]", self.logs()[-1], re.MULTILINE))

    def logs(self, since: float = 0) -> list[str]:
        """What runs of the roles printed that ended after SINCE (s since 1970), in order; ten are kept."""
        found = [(run.stat().st_mtime, run) for run in self.files.glob("runs/*/artifacts/*/stdout")]
        runs = [run for ended, run in sorted(found) if ended > since]
        return [run.read_text(errors="replace") for run in runs]


def image_in(text: str) -> str:
    """The name of the image that was built, by what `causeway image build` printed."""
    return str(re.findall(r"^image ([0-9a-f]{12}) of the pool", text, re.MULTILINE)[-1])


def said(*argv: str) -> str:
    """What a command printed, stripped; it must succeed."""
    return subprocess.run(argv, check=True, text=True, stdout=subprocess.PIPE, timeout=300).stdout.strip()


def within(container: str, *argv: str) -> list[str]:
    """A command that runs ARGV in a container that runs, as `podman exec` would.

    That starts two podmans for each, a tenth of a second of a core; tests ask nodes thousands of times.
    """
    enter = ("nsenter", "--all", "--wdns=/", "--target", init_of(container))
    return [*enter, "env", "--ignore-environment", *WITHIN, *argv]


def init_of(container: str) -> str:
    """The PID of a container's first process."""
    pid, began = _INITS.get(container, ("0", ""))
    if not began or _began(pid) != began:
        pid = said("podman", "inspect", "--format={{.State.Pid}}", container)
        _INITS[container] = pid, _began(pid)
    return pid


_INITS: dict[str, tuple[str, str]] = {}
"""Container → its PID when it was asked for last, and when that began: the number may be another's by now."""


def _began(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def containers(stack: str) -> dict[str, str]:
    """Node name → container ID of a stack, running or stopped; not those killed before their first start.

    A container that never started holds nothing, so `up` makes it anew instead of adopting it.
    """
    records = json.loads(
        said("podman", "ps", "--all", "--format=json", f"--filter=label=causeway.stack={stack}")
    )
    return {
        record["Labels"]["causeway.node"]: record["Id"]
        for record in records
        if record["State"] not in ("created", "initialized", "configured")
    }


DEBIANS_GPUS = {
    **{"gpus": 4, "gpu_model": "v100-sxm"},
    "gpu_stack": {"driver": "550.163.01", "cuda": "12.4", "source": {"kind": "debian"}},
}
"""What a pool of GPU nodes says to have a stack that Debian has all packages of."""


def region(name: str, cidr: str, timezone: str, pools: Mapping[str, int]) -> dict[str, Any]:
    """A local region; `pools` maps the role of each pool, which is its name as well, to its count."""
    gpu = {"gpus": 8, "gpu_model": "h100-sxm", "nics": 8, "nic_gbps": 400}
    declared = [
        {"name": role, "role": role, "count": count, **(gpu if role == "gpu" else {})}
        for role, count in pools.items()
    ]
    return {
        "name": name,
        "provider": {"kind": "local"},
        "cidr": cidr,
        "timezone": timezone,
        "pools": declared,
    }


def two_regions(checkout: Checkout, **changes: Any) -> dict[str, Any]:
    """Tokyo with a control and a GPU node, shanghai with a control node, and a link; some keys changed."""
    link = {
        "name": "trans-sea",
        "a": "tokyo",
        "b": "shanghai",
        "rtt_ms": 20,
        "bandwidth_mbps": 50,
        "loss_pct": 0.1,
    }
    regions = [
        region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1, "gpu": 1}),
        region("shanghai", checkout.cidr(1), "Asia/Shanghai", {"control": 1}),
    ]
    return {"name": "pacific", "regions": regions, "wan_links": [link], **changes}


@contextmanager
def cut(checkout: Checkout, link: str) -> Iterator[None]:
    """While it lasts, the carrier's line of a link is dead in both directions."""
    if wan.supported_engine() == "netem":
        line = ["ip", "-n", names.carrier_netns(checkout.stack, link), "link", "set", "to-b"]
        broken, mended = [*line, "down"], [*line, "up"]
    else:
        pid = (names.link_dir(checkout.stack, link) / "wire.pid").read_text().strip()
        broken, mended = (["kill", f"-{signal}", pid] for signal in ("STOP", "CONT"))
    said(*broken)
    try:
        yield
    finally:
        said(*mended)


def processes_of(root: int, command: str) -> list[int]:
    """The PIDs below `root` whose command is `command`."""
    found = []
    for pid in descendants(root):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == command:
                found.append(pid)
    return found


def words_of(pid: int) -> list[str]:
    """The words of a process's command; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


@contextmanager
def new_checkout() -> Iterator[Checkout]:
    """A clone with a stack name and a range that nobody uses; nothing of either is left afterwards."""
    PLACES.mkdir(exist_ok=True)
    with _free_place() as number:
        folder = PLACES / str(number)
        checkout = Checkout(folder / "causeway", f"t{number}-{secrets.token_hex(2)}", RANGES[number])
        folder.mkdir()
        (folder / "stacks").write_text(f"{checkout.stack}\n{checkout.stack}-machines\n")
        _clone(checkout.folder)
        try:
            yield checkout
        finally:
            for process in checkout.running:
                process.kill()  # whoever interrupts a test does not wait; what it had made is swept
                process.wait()
            _clear(folder)


def sweep_dead_places() -> list[str]:
    """Sweep what dead runs left at their places; returns a line for each place that was not empty.

    Raises CausewayError, once all others are swept, where something stays at a place.
    """
    PLACES.mkdir(exist_ok=True)
    with _locks() as held:
        swept, stuck = _clear_free(held)
    if stuck:
        raise CausewayError("; ".join(stuck))
    return swept


def _clear_free(held: list[Any]) -> tuple[list[str], list[str]]:
    """A line for each place that is free now, and for each that something stays at: nobody gets that one."""
    swept, stuck = [], []
    for number, file in enumerate(held):
        folder = PLACES / str(number)
        if file is None or not folder.exists():
            continue
        try:
            _clear(folder)
            swept.append(f"clone {folder}, with its stack")
        except (CausewayError, OSError) as error:
            file.close()
            held[number] = None
            stuck.append(f"{folder}: {error}")
    return swept, stuck


@contextmanager
def _free_place() -> Iterator[int]:
    """The number of a place that is ours until the end; places of the dead are swept on the way."""
    with _locks() as held:
        _clear_free(held)
        used = [ip_network(route["dst"]) for route in netns.read(None, "-4", "route", "show", "table", "all")
                if route["dst"][0].isdigit() and not route["dst"].startswith("0.")]  # fmt: skip
        free = (
            n for n, file in enumerate(held) if file is not None and not any(map(RANGES[n].overlaps, used))
        )
        number = next(free, -1)
        assert number >= 0, f"no range of {RANGES[0]} … {RANGES[-1]} is free on this machine"
        ours = held[number]
        held[number] = None
    assert ours is not None
    with ours:
        yield number


@contextmanager
def _locks() -> Iterator[list[Any]]:
    """A file per place: locked where it was free, None where somebody has it. Those left in it are let go."""
    held: list[Any] = []
    with (PLACES / "lock").open("w") as all_of_them:
        fcntl.flock(all_of_them, fcntl.LOCK_EX)
        for number in range(len(RANGES)):
            file = (PLACES / f"{number}.lock").open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                held.append(None)
            else:
                held.append(file)
        try:
            yield held
        finally:
            for file in held:
                if file is not None:
                    file.close()


def at_work(folder: Path) -> list[int]:
    """The PIDs of what was started in a folder or below it, and is not what nodes and links consist of."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            command = (cwd.parent / "comm").read_text().strip()
            if cwd.readlink().is_relative_to(folder) and command not in STANDING:
                found.append(int(cwd.parent.name))
    return found


def _clear(folder: Path) -> None:
    for pid in at_work(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stacks = folder / "stacks"
    for stack in stacks.read_text().split() if stacks.exists() else ():
        sweep.sweep(stack)
    shutil.rmtree(folder, ignore_errors=True)


def _clone(folder: Path) -> None:
    """The working tree as a repository of its own: what git knows, and what it does not ignore."""
    known = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    for name in known.split("\0"):
        source, target = ROOT / name, folder / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a tool's short-lived file
                shutil.copy2(source, target)
    commit(folder)


def commit(folder: Path) -> None:
    """Everything in the clone, as one commit."""
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "--all"], [*who, "commit", "-q", "-m", "as it is"]):
        said("git", "-C", str(folder), *words)


def _user_environment() -> dict[str, str]:
    """This process's environment without what `./run` prepared in it."""
    environment = {key: value for key, value in os.environ.items() if not PREPARED.search(key)}
    ours = (str(ROOT), os.environ.get("CAUSEWAY_CACHE", "\0"))
    path = [entry for entry in environment["PATH"].split(":") if not entry.startswith(ours)]
    return environment | {"PATH": ":".join(path)}
