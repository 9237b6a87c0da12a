"""What a drift scan costs beside what else would look at the same nodes, in one run; judges nothing.

Side by side: the scan of everything, the same through the command, `ansible-playbook --check` of site.yml,
the same under Mitogen, `pyinfra --dry` for the files the roles wrote, and a bare login (asyncssh, OpenSSH)
with as many connections at once. Then CPU and memory of the controller with 125, 500 and 1,250 sessions to
the nodes there are, and the repair of one node among all beside that role's tasks on it. pyinfra is installed
into a throw-away folder.

Usage: ./run exec python tests/bench/bench_drift.py [--stack STACK] [--part PART]… [--sessions N]… [--json F]
Without a stack of this checkout that stands and is clean, one of 20 nodes is stood up in a checkout of its
own, and taken down.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from infra import ROOT
from infra.drift.manifest import drift_dir, kept_text, load_manifest
from infra.drift.scan import AT_ONCE, scan_stack
from infra.drift.trip import Trips
from infra.ground.contract import Contract, load_contract
from infra.ground.ssh import ssh_config_file
from infra.stack import contract_file, stack_dir
from tests.integration.checkout import Checkout, new_checkout, region

NODES = 20
SESSIONS = (125, 500, 1250)
RUNS = 7
REPAIRS = 3
FORKS = 50
PYINFRA = "pyinfra==3.10.0"
CHANGED_FILES = {
    "base": "/etc/security/limits.d/90-causeway.conf",
    "tcp_tuning": "/etc/sysctl.d/90-causeway-tcp.conf",
    "consul": "/etc/default/consul",
    "drift_watch": "/etc/systemd/system/causeway-drift-watch.service",
}
"""Role → one of its files; of a node of any pool."""
ALONE, ALONE_PROVEN = "role alone", "role alone, then verify.yml"
PRINTED, PRINTED_UNPROVEN = "repair as the scan prints it", "the same without its proof"
ALL = "repair, all nodes scanned first"
PARTS = ("logins_and_scans", "commands", "memory", "ansible", "pyinfra", "repair")
"""Methods of Bench, in the order in which they run."""
WAYS = (PRINTED, PRINTED_UNPROVEN, ALL)
RATIOS = (
    ("scan", "login (asyncssh)"),
    ("scan", "login (OpenSSH)"),
    ("causeway drift", "login (OpenSSH)"),
    *((f"{role}: {way}", f"{role}: {ALONE}") for role in CHANGED_FILES for way in WAYS),
    *((f"{role}: {PRINTED}", f"{role}: {ALONE_PROVEN}") for role in CHANGED_FILES),
)


@dataclass
class Figures:
    """Everything measured; seconds of wall clock, unless the name says otherwise."""

    nodes: int
    entries: int
    """Sealed facts that a scan compares, over all nodes."""
    files: int
    """Files that pyinfra compares, over all nodes."""
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_ms_per_node: dict[str, float] = field(default_factory=dict)
    """CPU time of the controller."""
    peak_mib: dict[str, float] = field(default_factory=dict)
    """Resident memory of the whole command, by number of sessions."""


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class Bench:
    """The measurements on one standing stack."""

    def __init__(self, stack: str, folder: Path, sessions: Sequence[int]) -> None:
        self.stack, self.folder, self.sessions = stack, folder, sorted(sessions)
        self.contract = load_contract(contract_file(stack))
        self.hosts = list(self.contract.hosts)
        manifests = [manifest for host in self.hosts if (manifest := load_manifest(stack, host))]
        entries = [
            entry for manifest in manifests for role in manifest.roles.values() for entry in role.entries
        ]
        self.figures = Figures(len(self.hosts), len(entries), 0)

    def measure(self, parts: Collection[str]) -> Figures:
        """Measure; the quick ones several times in turn, so that a busy machine is unfair to none."""
        self.require_clean()
        for part in PARTS:
            if part in parts:
                getattr(self, part)()
        return self.figures

    def require_clean(self) -> None:
        """A node that differs costs more than one that does not."""
        states = {report.host: report.state for report in scan_stack(self.stack)}
        if unclean := {host: state for host, state in states.items() if state != "clean"}:
            raise SystemExit(f"not clean: {unclean}; ./run up {self.stack}")

    def logins_and_scans(self) -> None:
        """In this process, so that only the trips count: the middle one of several, best left out."""
        tried: dict[str, Callable[[], object]] = {
            "login (asyncssh)": lambda: asyncio.run(logins(self.contract)),
            "scan": lambda: list(scan_stack(self.stack)),
        }
        walls: dict[str, list[float]] = {name: [] for name in tried}
        cpus: dict[str, list[float]] = {name: [] for name in tried}
        for _ in range(RUNS):
            for name, act in tried.items():
                wall, cpu = time.monotonic(), time.process_time()
                act()
                walls[name].append(time.monotonic() - wall)
                cpus[name].append(time.process_time() - cpu)
        for name in tried:
            self.note(name, statistics.median(walls[name]), statistics.median(cpus[name]))

    def commands(self) -> None:
        """As a user starts them, start of Python included."""
        config = ["-F", str(ssh_config_file(self.stack)), "-o", "ControlMaster=no", "-o", "ControlPath=none"]
        ssh = ["xargs", "-P", str(AT_ONCE), "-I{}", "ssh", *config, "{}", "true"]
        names = "\n".join(self.hosts)
        drift = ["causeway", "drift", self.stack]
        openssh = [run(ssh, self.folder, stdin=names) for _ in range(RUNS)]
        scans = [run(drift, self.folder) for _ in range(RUNS)]
        self.middle("login (OpenSSH)", openssh)
        self.middle("causeway drift", scans)

    def middle(self, name: str, costs: list[Cost]) -> None:
        """Take the median of several runs."""
        wall_s = statistics.median(cost.wall_s for cost in costs)
        self.note(name, wall_s, statistics.median(cost.cpu_s for cost in costs))

    def note(self, name: str, wall_s: float, cpu_s: float, nodes: int | None = None) -> None:
        """Keep a figure of all nodes, or of another number, and say it at once: the whole takes minutes."""
        self.figures.seconds[name] = wall_s
        self.figures.cpu_ms_per_node[name] = cpu_s / (nodes or len(self.hosts)) * 1000
        print(f"{name}: {wall_s:.2f} s", file=sys.stderr, flush=True)

    def memory(self) -> None:
        """The command's peak by the number of sessions to the nodes there are, and the CPU of one more."""
        costs = {number: self.many(number) for number in self.sessions}
        (few, least), (many, most) = min(costs.items()), max(costs.items())
        if many > few:
            self.figures.cpu_ms_per_node["one more session"] = (
                (most.cpu_s - least.cpu_s) / (many - few) * 1000
            )

    def many(self, number: int) -> Cost:
        """One scan with so many sessions; each has to get through and find nothing."""
        with many_sessions(self.stack, self.contract, number) as other:
            cost = run(["causeway", "drift", other, "--json"], self.folder, allowed=(0, 3))
        lines = (self.folder / "said").read_text().splitlines()
        reports = [json.loads(line) for line in lines if line.startswith("{")]
        sound = [r for r in reports if r["state"] in ("clean", "stale") and not any_difference(r)]
        if len(sound) != number:
            raise SystemExit(f"{number - len(sound)} of {number} sessions found something or failed")
        self.figures.peak_mib[str(number)] = cost.peak_mib
        self.note(f"causeway drift, {number} sessions", cost.wall_s, cost.cpu_s, number)
        return cost

    def ansible(self) -> None:
        """Check mode, with Ansible's own strategy and with Mitogen's."""
        check = ["ansible-playbook", "playbooks/site.yml", "--check", *self.inventory(), "-f", str(FORKS)]
        self.once("ansible-playbook --check", check, {"ANSIBLE_STRATEGY": "linear"})
        self.once("the same under Mitogen", check)

    def pyinfra(self) -> None:
        """A dry run over every file of which the sealed text is known."""
        place = self.folder / "pyinfra"
        run([sys.executable, "-m", "venv", str(place)], self.folder)
        run([str(place / "bin" / "pip"), "install", "-q", PYINFRA], self.folder)
        self.figures.files = write_pyinfra(self.stack, self.contract, self.folder)
        words = [str(place / "bin" / "pyinfra"), "inventory.py", "deploy.py", "--dry"]
        self.once("pyinfra --dry, files only", words, {"PYTHONPATH": ""}, cwd=self.folder)
        if "Detected changes" not in (self.folder / "said").read_text():
            raise SystemExit("pyinfra did not compare")

    def repair(self) -> None:
        """One drifted node among all, beside its role's own playbook on that node, in turn.

        All of them seal what they did; a repair also looks at the node before and after, and proves the role.
        """
        host = self.hosts[-1]
        for role, file in CHANGED_FILES.items():
            limits, unproven = ["--limit", host, "--tags", role], ["-e", "repair_verify=false"]
            alone = [f"playbooks/{role}.yml", "--limit", host]
            tried = {
                ALONE: alone,
                ALONE_PROVEN: [*alone[:1], "playbooks/verify.yml", *alone[1:]],
                PRINTED: ["playbooks/repair.yml", *limits],
                PRINTED_UNPROVEN: ["playbooks/repair.yml", *limits, *unproven],
                ALL: ["playbooks/repair.yml"],
            }
            costs: dict[str, list[Cost]] = {name: [] for name in tried}
            for _ in range(REPAIRS):
                for name, words in tried.items():
                    self.change(host, file)
                    costs[name].append(run(["ansible-playbook", *words, *self.inventory()], self.folder))
            for name, several in costs.items():
                self.middle(f"{role}: {name}", several)
        self.require_clean()

    def change(self, host: str, file: str) -> None:
        """Make a governed file differ."""
        where = ["-F", str(ssh_config_file(self.stack)), host]
        run(["ssh", *where, f"echo '# changed' >> {file}"], self.folder)

    def inventory(self) -> list[str]:
        """What every playbook is started with."""
        return ["-i", f"inventories/{self.stack}"]

    def once(
        self, name: str, argv: list[str], environment: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        """Measure a command that takes long."""
        cost = run(argv, self.folder, environment, cwd=cwd)
        self.note(name, cost.wall_s, cost.cpu_s)


async def logins(contract: Contract) -> None:
    """Log in to every node and run `true`, as many at once as a scan does."""
    trips, gate = Trips(contract), asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> None:
        async with gate, await trips.open(host) as connection:
            await connection.run("true", check=True)

    await asyncio.gather(*(one(host) for host in contract.hosts))


def run(
    argv: list[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    stdin: str = "",
    cwd: Path = ROOT,
    allowed: tuple[int, ...] = (0,),
) -> Cost:
    """Run a command, what it says in FOLDER/said, and count it and its children. SystemExit when it fails."""
    (folder / "stdin").write_text(stdin)
    with (folder / "stdin").open() as source, (folder / "said").open("w") as said:
        started = time.monotonic()
        process = subprocess.Popen(
            argv, cwd=cwd, env=os.environ | dict(environment or {}), stdin=source, stdout=said, stderr=said
        )
        peaks = [0.0]
        threading.Thread(target=watch_memory, args=(process.pid, peaks), daemon=True).start()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in allowed:
        end = (folder / "said").read_text()[-3000:]
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}:\n{end}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, max(peaks))


def watch_memory(pid: int, peaks: list[float]) -> None:
    """Note a process's peak in MiB until it is gone; `ru_maxrss` counts what we ourselves hold."""
    with suppress(OSError, IndexError):
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            peaks.append(int(status.split("VmHWM:")[1].split()[0]) / 1024)
            time.sleep(0.05)


def any_difference(report: Mapping[str, dict[str, dict[str, object]]]) -> bool:
    """Whether a node's report names one."""
    return any(role["differences"] for role in report["roles"].values())


@contextmanager
def many_sessions(stack: str, contract: Contract, sessions: int) -> Iterator[str]:
    """A stack of as many hosts as sessions: those there are, others at their addresses; gone afterwards."""
    other, names = f"{stack}-many", list(contract.hosts)
    real = {
        **dict(zip(names, names, strict=True)),
        **{f"session-{n}": names[n % len(names)] for n in range(sessions)},
    }
    real = dict(list(real.items())[:sessions])
    hosts = {name: contract.hosts[node] for name, node in real.items()}
    folder, manifests = ROOT / stack_dir(other), drift_dir(other)
    manifests.mkdir(parents=True)
    try:
        many = contract.model_copy(update={"stack": other, "hosts": hosts})
        (folder / "contract.json").write_text(many.model_dump_json())
        for name, node in real.items():
            (manifests / f"{name}.json").symlink_to(drift_dir(stack) / f"{node}.json")
        yield other
    finally:
        for path in [*manifests.iterdir(), folder / "contract.json"]:
            path.unlink(missing_ok=True)
        manifests.rmdir()
        folder.rmdir()


def write_pyinfra(stack: str, contract: Contract, folder: Path) -> int:
    """An inventory and a deploy that says of every sealed file what the role says; how many files."""
    wanted: dict[str, list[tuple[str, str, str, str, str]]] = {}
    for name in contract.hosts:
        manifest = load_manifest(stack, name)
        for role in manifest.roles.values() if manifest else ():
            for entry in role.entries:
                if entry.kind == "file" and entry.text and (text := kept_text(stack, entry.text)) is not None:
                    source = folder / entry.text
                    source.write_text(text)
                    owner = (entry.want["owner"], entry.want["group"], entry.want["mode"].lstrip("0"))
                    wanted.setdefault(name, []).append((str(source), entry.key, *owner))
    nodes = []
    for name, host in contract.hosts.items():
        node = contract.regions[contract.region_of(name)]
        data = {
            "ssh_hostname": str(host.address),
            "ssh_port": host.ssh_port,
            "ssh_user": node.ssh_user,
            "ssh_key": str(ROOT / node.ssh_private_key_file),
            "ssh_known_hosts_file": str(ROOT / contract.known_hosts_file),
            "ssh_strict_host_key_checking": "yes",
        }
        nodes.append((name, data))
    (folder / "inventory.py").write_text(f"nodes = {nodes!r}\n")
    (folder / "deploy.py").write_text(
        f"from pyinfra import host\nfrom pyinfra.operations import files\nWANTED = {wanted!r}\n"
        "for src, dest, user, group, mode in WANTED[host.name]:\n"
        "    files.put(name=dest, src=src, dest=dest, user=user, group=group, mode=mode)\n"
    )
    return sum(map(len, wanted.values()))


def table(figures: Figures) -> Iterator[str]:
    """The figures for people: each beside the scan of the same kind."""
    yield f"{figures.nodes} nodes, {figures.entries} sealed facts; {figures.files} files for pyinfra"
    yield f"{'':46}{'wall':>9}{'CPU/node':>11}{'beside the scan':>18}"
    for name, wall_s in figures.seconds.items():
        cpu = figures.cpu_ms_per_node.get(name)
        shown = f"{cpu:8.1f} ms" if cpu is not None else ""
        own = "scan" not in figures.seconds or (name.startswith(("scan", "causeway")) or ":" in name)
        ratio = "" if own else f"{wall_s / figures.seconds['scan']:16.2f} ×"
        yield f"{name:46}{wall_s:7.2f} s{shown:>11}{ratio:>18}"
    for one, other in RATIOS:
        if {one, other} <= set(figures.seconds):
            yield f"{one} / {other}: {figures.seconds[one] / figures.seconds[other]:.2f}"
    for name, cpu in figures.cpu_ms_per_node.items():
        if name not in figures.seconds:
            yield f"CPU of the controller, {name}: {cpu:.1f} ms"
    for number, mib in figures.peak_mib.items():
        yield f"peak memory, {number} sessions: {mib:.1f} MiB"


def stand_up(checkout: Checkout) -> None:
    """Two regions with a link between their gateways and a datacenter each: the default stack's roles."""
    half = NODES // 2
    link = {"name": "link", "a": "east", "b": "west", "rtt_ms": 20, "bandwidth_mbps": 100, "loss_pct": 0.1}
    regions = [
        region(name, checkout.cidr(number), "Etc/UTC", {"control": 1, "gateway": 1, "gpu": half - 2})
        for number, name in enumerate(("east", "west"))
    ]
    cluster = {"name": "bench", "regions": regions, "wan_links": [link], "waves": [["east", "west"]]}
    checkout.declare({**cluster, "discovery": {"kind": "consul"}})
    checkout.up()


def main() -> None:
    """Measure on the stack that is given, or on one that is stood up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", help="a stack of this checkout that stands and is clean")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this; may be given several times"
    )
    parser.add_argument("--sessions", action="append", type=int, help=f"instead of {SESSIONS}")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    if arguments.stack is None:
        with new_checkout() as checkout:
            stand_up(checkout)
            words = [*sys.argv[1:], "--stack", checkout.stack]
            words += ["--json", str(arguments.json.absolute())] if arguments.json else []
            checkout.run("exec", "python", "tests/bench/bench_drift.py", *words)
        return
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.stack, Path(folder), arguments.sessions or SESSIONS)
        figures = bench.measure(arguments.part or PARTS)
    print("\n".join(table(figures)))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(figures), indent=1))


if __name__ == "__main__":
    main()
