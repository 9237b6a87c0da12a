"""Runs a playbook against a stack, tells how far it is, and says what became of each host."""

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner

from infra import ROOT
from infra.converge.progress import HostResult, Progress, Tracker
from infra.errors import BadInputError, CausewayError
from infra.ground import sudo
from infra.ground.contract import load_contract
from infra.inventory.groups import group_hosts, inventory_data
from infra.stack import contract_file

__all__ = ["HostResult", "Progress", "Rehearsal", "RunResult", "run_playbook"]

RUNS_KEPT = 10
REPORTED_HOSTS = 20
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, 0700
PRIVATE = "causeway-run-"
POLL_S = 1
END_GRACE_S = 5.0
ERROR_LINES = 12
Rehearsal = Callable[[str, str, Mapping[str, Any]], None]
"""Told host, task and result of what would change, or fails."""
_PATTERN = re.compile(r"[*?!&~@:,\[\]]")


@dataclass(frozen=True)
class RunResult:
    """What became of every host of a run. `log` is what `ansible-playbook` printed.

    PLAYS: the names of those that began. Where all hosts of one fail, none after it does, for no host.
    """

    hosts: dict[str, HostResult]
    log: Path
    elapsed_s: float
    plays: frozenset[str] = frozenset()

    @property
    def failed(self) -> tuple[str, ...]:
        """The hosts that failed or could not be reached; empty, hence false, when all went well."""
        return tuple(name for name, host in self.hosts.items() if host.state != "ok")

    def report(self) -> str:
        """Each failed host with its task, its message and its log; one line when there is none."""
        if not self.failed:
            changed = sum(host.changed > 0 for host in self.hosts.values())
            return f"{len(self.hosts)} hosts ok, {changed} changed"
        lines = [f"{len(self.failed)} of {len(self.hosts)} hosts failed:"]
        for name in self.failed[:REPORTED_HOSTS]:
            host = self.hosts[name]
            lines.append(f"  {name} {host.state} at “{host.task}”: {host.message}")
            lines.append(f"    log: {_shown(host.log or self.log)}")
        if len(self.failed) > REPORTED_HOSTS:
            lines.append(f"  … and {len(self.failed) - REPORTED_HOSTS} more in {_shown(self.log)}")
        return "\n".join(lines)


def run_playbook(
    playbook: str,
    *,
    stack: str,
    run_dir: Path,
    on_progress: Callable[[Progress], None],
    limit: Sequence[str] | None = None,
    tags: Mapping[str, Sequence[str]] | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    forks: int = 25,
    inventory: Path | None = None,
    rehearsal: Rehearsal | None = None,
) -> RunResult:
    """Run `playbook` (relative to the checkout) on a stack's hosts, or on those that `limit` names.

    One failed host does not stop the others. `run_dir` keeps the last ten runs under `artifacts/`.
    `inventory` defaults to `inventories/<stack>`; of another one, and with `rehearsal`, `limit` names hosts,
    and the stack need not have them yet. `tags` are options such as `--tags` with their names. No string of
    `extra_vars` is taken for a template. With `rehearsal` nothing is changed, and no failure ends anything.
    Raises CausewayError for what no host is to blame for: a playbook that does not parse, an inventory that
    is not there, no host matched, an interrupt.
    """
    standing = inventory is None
    inventory = inventory or ROOT / "inventories" / stack
    _require(playbook, inventory, stack)
    if not rehearsal:  # that has looked at its hosts by a contract of its own
        _get_passwords(stack)
    started = time.monotonic()
    artifacts = run_dir.absolute() / "artifacts" / f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    targets = set(limit or ()) if rehearsal or not standing else _targets(stack, limit)
    tracker = Tracker(targets, artifacts / "hosts", on_progress, on_change=rehearsal)
    tracker.log_dir.mkdir(mode=0o700, parents=True)
    settings = _settings(playbook, inventory, artifacts, forks)
    with _private_folder() as private, _interrupt() as interrupted:
        words = [*_arguments(private, limit, extra_vars), *_tags(tags or {})]
        settings["cmdline"] = shlex.join([*words, *(("--check", "--diff") if rehearsal else ())])
        rc = _execute(settings, tracker, interrupted, private)
    log = artifacts / "stdout"
    if interrupted.is_set():
        raise CausewayError(
            f"interrupted; of {len(tracker.targets) or '?'} hosts {tracker.failed_hosts} had failed",
            hint=f"start it again: what is done stays done (log: {_shown(log)})",
        )
    hosts = _hosts(tracker, rc, log, playbook)
    return RunResult(hosts, log, time.monotonic() - started, frozenset(tracker.plays))


def _execute(settings: dict[str, Any], tracker: Tracker, interrupted: threading.Event, private: Path) -> int:
    """Run Ansible to its end and return its exit status; nothing that it started is left behind."""
    try:
        runner = ansible_runner.interface.init_runner(
            **settings,
            envvars=_environment(private) | ({"CAUSEWAY_REHEARSAL": "1"} if tracker.on_change else {}),
            event_handler=tracker.handle,
            status_handler=_forget_environment,
            cancel_callback=lambda: _poll(tracker, interrupted, private),
        )
        _start_with_parent(runner)
        runner.run()
    finally:
        _end_processes(private)
    return -1 if runner.rc is None else int(runner.rc)  # None: a signal has ended it


def _require(playbook: str, inventory: Path, stack: str) -> None:
    if not (ROOT / playbook).is_file():
        raise BadInputError(f"no playbook {playbook}", hint="a path relative to the checkout is expected")
    if not inventory.exists():
        raise CausewayError(f"no inventory for stack {stack}: {inventory}", hint="./run up makes it")


def _get_passwords(stack: str) -> None:
    """What sudo asks for, before Ansible starts, whose output nobody could answer."""
    path = contract_file(stack)
    if path.is_file():
        sudo.ready(load_contract(path))


def _targets(stack: str, limit: Sequence[str] | None) -> set[str]:
    """The hosts a run is meant for, from the contract; empty where there is none to ask."""
    path = contract_file(stack)
    if not path.is_file():
        return set()
    inventory = inventory_data(load_contract(path), ROOT)
    if limit is None:
        return set(inventory["_meta"]["hostvars"])
    if any(_PATTERN.search(name) for name in limit):
        return set()  # Ansible's own patterns are Ansible's to read
    unknown = [name for name in limit if name not in inventory and name not in inventory["_meta"]["hostvars"]]
    if unknown:
        raise BadInputError(
            f"neither a host nor a group of stack {stack}: {', '.join(unknown[:REPORTED_HOSTS])}",
            hint=f"ansible-inventory -i inventories/{stack} --graph lists both",
        )
    return group_hosts(inventory, limit)


def _settings(playbook: str, inventory: Path, artifacts: Path, forks: int) -> dict[str, Any]:
    """Arguments of ansible-runner that keep it quiet, in the checkout, and from leaving files behind."""
    return {
        "private_data_dir": str(artifacts.parent.parent),
        "project_dir": str(ROOT),
        "artifact_dir": str(artifacts.parent),
        "ident": artifacts.name,
        "rotate_artifacts": RUNS_KEPT,
        "playbook": str(ROOT / playbook),
        "inventory": str(inventory.absolute()),
        "forks": forks,
        "quiet": True,
        "suppress_env_files": True,
        "fact_cache_type": "as ansible.cfg says",  # the default would keep every fact as an artifact
        "settings": {"pexpect_timeout": POLL_S},
    }


def _environment(private: Path) -> dict[str, str]:
    """What Ansible gets on top of this process's environment.

    Connections are shared within this run only, so ending them disturbs nobody.
    """
    return {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        # ansible-runner names its own folder of callbacks, which would hide the one in ansible.cfg.
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "infra" / "plugins" / "callback"),
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner switches it off where nobody says so
        "ANSIBLE_FORCE_COLOR": "False",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private),
        "LC_ALL": "C.UTF-8",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A folder (0700) for what must not outlive the run, in memory. Also ends what killed runs have left."""
    base = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    for left in base.glob(f"{PRIVATE}*"):
        if not Path("/proc", left.name.removeprefix(PRIVATE).partition("-")[0]).exists():
            _end_processes(left)
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PRIVATE}{os.getpid()}-", dir=base) as name:
        yield Path(name)


def _arguments(private: Path, limit: Sequence[str] | None, extra_vars: Mapping[str, Any] | None) -> list[str]:
    """Arguments by file: variables may be secret, and a limit of 10,000 hosts is too long for a command."""
    arguments: list[str] = []
    if limit is not None:
        (private / "limit").write_text("\n".join(limit) + "\n")
        arguments += ["--limit", f"@{private / 'limit'}"]
    if extra_vars:
        (private / "variables").write_text(json.dumps(literal(dict(extra_vars))))
        arguments += ["--extra-vars", f"@{private / 'variables'}"]
    return arguments


def _tags(tags: Mapping[str, Sequence[str]]) -> list[str]:
    return [word for option, names in tags.items() if names for word in (option, ",".join(names))]


def literal(value: Any) -> Any:
    """A value in which no string is a template, which Ansible takes those of a file for otherwise."""
    if isinstance(value, str):
        return {"__ansible_unsafe": value}
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, list | tuple) else value


def _forget_environment(_status: Mapping[str, Any], runner_config: Any) -> None:
    """Delete the file in which ansible-runner records the environment, which may hold credentials."""
    (Path(runner_config.artifact_dir) / "command").unlink(missing_ok=True)


def _start_with_parent(runner: ansible_runner.Runner) -> None:
    """Let Ansible end with this process, also when that is killed, and keep Pulumi's secrets from it.

    A module at work on this machine outlives an Ansible that ends so; the next run ends it.
    """
    config = runner.config
    config.env = {name: value for name, value in config.env.items() if not name.startswith("PULUMI_")}
    if setpriv := shutil.which("setpriv"):
        config.command = [setpriv, "--pdeathsig", "TERM", *config.command]


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. Only the main thread may, and only it needs to, listen."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: event.set()) for number in signals]
    try:
        yield event
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _poll(tracker: Tracker, interrupted: threading.Event, private: Path) -> bool:
    """Called about every second: whether to stop. Stopping starts here, since ansible-runner would
    kill Ansible alone, whose workers have process groups of their own."""
    tracker.tick()
    if interrupted.is_set():
        _end_processes(private)
    return interrupted.is_set()


def _end_processes(private: Path) -> None:
    """End every process that a run started: Ansible, its workers, ssh and its shared connections."""
    started = time.monotonic()
    while (pids := _processes(private)) and (waited_s := time.monotonic() - started) < 2 * END_GRACE_S:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited_s < END_GRACE_S else signal.SIGKILL)
        time.sleep(POLL_S / 10)


def _processes(private: Path) -> list[int]:
    """Processes that know a run's private folder, wherever they were reparented to.

    All of them have it in the environment, but for ssh's shared connections, whose title takes that place.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile, or another user's
            known = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if bytes(private) in known:
                found.append(int(folder.name))
    return found


def _hosts(tracker: Tracker, rc: int, log: Path, playbook: str) -> dict[str, HostResult]:
    """The hosts' results; CausewayError where the run failed and no host is to blame."""
    hosts = tracker.hosts or {}
    if rc == 0 and not hosts:
        raise CausewayError(f"{playbook} matched no host", hint=f"see {_shown(log)}")
    if rc != 0 and all(host.state == "ok" for host in hosts.values()):
        raise CausewayError(f"{playbook} could not run: {_cause(log)}", hint=f"see {_shown(log)}")
    return hosts


def _cause(log: Path) -> str:
    """What Ansible printed from its first error on; the last lines where it named none."""
    lines = [line.rstrip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if line.startswith(("[ERROR]", "ERROR"))), None)
    chosen = lines[-ERROR_LINES:] if first is None else lines[first : first + ERROR_LINES]
    return "\n  ".join(chosen).removeprefix("[ERROR]: ") or "it printed nothing"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
