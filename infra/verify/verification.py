"""Runs the verification of tests/verify against an inventory, and says what came of it.

    python -m infra.verify.verification --inventory DIR [--limit PATTERN] [--experiments] [--json]

The same tests verify container nodes under molecule and real nodes over SSH.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from infra import ROOT
from infra.errors import CausewayError, ExitCode
from infra.files import write_file
from infra.ground.contract import load_contract
from infra.ground.login import hop_at_fault
from infra.ground.ssh import CONNECT_TIMEOUT_S, config_text
from infra.ground.sudo import get_ready
from infra.stack import contract_file
from infra.verify.due import Roles
from infra.verify.expectations import Expectation, Expectations, parse
from infra.verify.verdicts import Check, Verdict, VerificationResult, kept_file, read_result

INVENTORY_LIMIT_S = 1800
"""Of 12,500 hosts on a slow machine; 150 s of CPU time were seen."""
HOST_TIMEOUT_S = 300
"""Longest a process may take per host it looks at."""
END_LIMIT_S = 60
PARENT_LOOK_S = 1
"""For a process that is told to look at nothing, and may be collecting still."""
CONNECTIONS_AT_ONCE = 32
ATTEMPTS = "2"
"""There may be no way to a host for a moment, as while a link fails over."""
ANSWER_LIMIT_S = 3 * CONNECT_TIMEOUT_S
"""For a login and the cheapest command: a busy node takes its time, one that hangs takes all of it."""
Progress = Callable[[str], None]


def verify(
    inventory: str | Path,
    limit: str | None = None,
    *,
    on_progress: Progress = lambda _: None,
    report_file: Path | None = None,
    experiments: bool | None = None,
) -> VerificationResult:
    """Verify the hosts of an inventory (a folder or file) that match `limit`, Ansible's host pattern.

    Checks that alter a node for a moment run on nodes for trials; `experiments` says otherwise.

    Writes the result as JSON to `report_file`; without one to the stack's folder, where the inventory names a
    stack. CausewayError when the inventory cannot be read. Hosts that do not answer are checks of their own.
    """
    expectations = _read_expectations(inventory, limit)
    if experiments is not None:
        expectations = expectations.with_experiments(experiments)
    with Checking(expectations) as checking:
        result = checking.look(on_progress=on_progress)
    write_result(result, expectations, report_file, whole=limit is None)
    return result


def verify_stack(
    stack: str,
    choose: Callable[[Roles, VerificationResult], Roles],
    on_progress: Progress = lambda _: None,
) -> VerificationResult:
    """Verify some roles of a stack's nodes; of all others stands what was found last.

    `choose` gets the roles of each host, and what is known of them, and returns those to look at. Writes the
    whole result to the stack's folder. CausewayError when the inventory cannot be read.
    """
    expectations = _read_expectations(ROOT / "inventories" / stack, None)
    declared = {host.host: host.features for host in expectations.hosts}
    kept = read_result(stack).of(declared)
    some = expectations.only(choose(declared, kept))
    if len(some.hosts) < len(expectations.hosts):
        counts = f"{len(some.hosts)} of {len(expectations.hosts)} hosts"
        on_progress(f"verification: {counts}, where something changed and a witness of each pool")
    with Checking(some) as checking:
        result = checking.look(on_progress=on_progress).over(kept)
    write_file(kept_file(stack), result.dump())
    return result


def write_result(
    result: VerificationResult, expectations: Expectations, file: Path | None = None, *, whole: bool
) -> None:
    """Write a result to a file, or to the stack's folder; one of a part of a stack leaves the rest there."""
    stacks = {host.stack for host in expectations.hosts if host.stack}
    if file is None and len(stacks) == 1:
        stack = stacks.pop()
        file = kept_file(stack)
        result = result if whole else result.over(read_result(stack))
    if file:
        write_file(file, result.dump())


def verify_when_told(commands: Iterator[str]) -> VerificationResult | None:
    """Be ready to look, then look when told: a repair starts this while its roles still run.

    The first command are expectations, as `Expectations.dump` has them; the second is `[host, …]`, those of
    them to look at. Without a second there is no result.
    """
    if not (expected := next(commands, "")):
        return None
    expectations = parse(expected)
    with Checking(expectations) as checking:
        if not (told := next(commands, "")):
            return None
        result = checking.look(json.loads(told))
    write_result(result, expectations, whole=False)
    return result


def _told_by(parent: int) -> Iterator[str]:
    """The lines of standard input, for as long as the process that started this one lives.

    A worker of an Ansible that was killed has the other end of the pipe, too, and may hang for ever.
    """
    data = b""
    while True:
        *lines, data = data.split(b"\n")
        yield from (line.decode() for line in lines)
        ready, _, _ = select.select([0], [], [], PARENT_LOOK_S)
        if os.getppid() != parent:
            return
        if ready:
            if not (more := os.read(0, 1 << 16)):
                yield from filter(None, [data.decode()])
                return
            data += more


def _read_expectations(inventory: str | Path, limit: str | None) -> Expectations:
    """What is expected of the hosts that match a limit, by Ansible's own reading of the inventory."""
    command = [
        sys.executable,
        "-m",
        "infra.verify.expectations",
        "--inventory",
        str(Path(inventory).absolute()),
    ]
    environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")} | os.environ | {"PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [*command, *(["--limit", limit] if limit else [])],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=INVENTORY_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise CausewayError(
            f"the inventory {inventory} was not read within {INVENTORY_LIMIT_S} s",
            hint=f"ansible-inventory -i {inventory} --list does the same",
        ) from None
    if done.returncode:
        cause = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise CausewayError(
            f"the inventory {inventory} cannot be read: {cause}",
            hint=f"ansible-inventory -i {inventory} --list shows more",
        )
    return parse(done.stdout)


class Checking:
    """Everything that looking at hosts needs, before it is wanted: connections, and processes that wait."""

    def __init__(self, expectations: Expectations) -> None:
        self.expectations = expectations
        self._folder = tempfile.TemporaryDirectory(prefix="causeway-verify-")
        self._ssh_config = Path(self._folder.name) / "ssh_config"
        self._processes: list[CheckProcess] = []
        self._connecting = ThreadPoolExecutor(CONNECTIONS_AT_ONCE)
        self._contract = cache(lambda stack: load_contract(contract_file(stack)))
        self._problems: dict[str, Future[str | None]] = {}
        """Host → why it does not answer, or None, once that is known."""

    def __enter__(self) -> "Checking":
        """Open a connection to every host, while pytest starts and collects."""
        for host in self.expectations.hosts:
            if host.sudo_source:
                get_ready(host.stack or "", {host.sudo_source: (host.stack or "",)})
        folder, hosts = Path(self._folder.name), self.expectations.hosts
        reached = {host.host: host.ssh_options for host in hosts if host.connection == "ssh"}
        self._ssh_config.write_text(config_text(reached, folder / "%C", ConnectionAttempts=ATTEMPTS))
        (folder / "expectations.json").write_text(self.expectations.dump())
        parts = _parts([host for host in hosts if host.features])
        self._processes = [CheckProcess(hosts, folder, number) for number, hosts in enumerate(parts)]
        self._problems = {host.host: self._connecting.submit(self._problem, host) for host in hosts}
        return self

    def __exit__(self, *_error: object) -> None:
        """End the processes that wait still, close the connections."""
        for process in self._processes:
            process.end()
        self._connecting.shutdown(cancel_futures=True)
        for host in self.expectations.hosts:
            connected = self._problems.get(host.host)
            if (
                host.connection == "ssh"
                and connected
                and not connected.cancelled()
                and not connected.result()
            ):
                with suppress(subprocess.TimeoutExpired):  # it ends by itself after ControlPersist
                    _ssh(self._ssh_config, "-O", "exit", host.host)
        self._folder.cleanup()

    def _problem(self, host: Expectation) -> str | None:
        """Why a host does not answer, or None: of one behind jump hosts, which of them does not lead on."""
        problem = _connect(host, self._ssh_config)
        if problem and host.stack and "ProxyCommand" in host.ssh_options:
            with suppress(CausewayError):  # an inventory of somebody's own may have no contract
                return hop_at_fault(self._contract(host.stack), host.host) or problem
        return problem

    def look(
        self, hosts: Collection[str] | None = None, on_progress: Progress = lambda _: None
    ) -> VerificationResult:
        """Run the checks on some hosts, or on all; once. Each begins when it answers, whoever else does."""
        wanted = [host for host in self.expectations.hosts if hosts is None or host.host in hosts]
        names = {self._problems[host.host]: host.host for host in wanted}
        process_of = {host.host: process for process in self._processes for host in process.hosts}
        checks, answering = [], set()
        for connected in as_completed(names):
            if problem := connected.result():
                checks.append(Check(names[connected], "", "", Verdict.UNREACHABLE, problem))
            elif process := process_of.get(names[connected]):
                process.tell(names[connected])
                answering.add(names[connected])
        on_progress(f"verification: {len(answering)} of {len(wanted)} hosts answer")
        done = 0
        with ThreadPoolExecutor(max(len(self._processes), 1)) as pool:
            for number, found in pool.map(CheckProcess.checks, self._processes):
                checks += found
                done += number
                on_progress(f"verification: {done} of {len(answering)} hosts looked at")
        order = {host.host: number for number, host in enumerate(wanted)}
        in_order = tuple(sorted(checks, key=lambda check: order[check.host]))
        return VerificationResult(in_order, datetime.now(UTC))


def _ssh(config: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ssh", "-F", str(config), *words],
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=ANSWER_LIMIT_S,
    )


def _connect(host: Expectation, ssh_config: Path) -> str | None:
    """Open the connection that the checks will share; what is wrong when the host does not answer.

    A password for sudo is tried here, and by no check before.
    """
    becoming = host.becoming

    def ask(command: str, stdin: str) -> str:
        done = _ssh(ssh_config, host.host, command, stdin=stdin)
        if done.returncode:
            raise CausewayError(_last_words(done))
        return done.stdout

    try:
        if host.connection == "ssh":
            if complaint := becoming.prove(ask):
                return becoming.in_words(complaint)
            command = becoming.command("true") if becoming.source else "true"
            done = _ssh(ssh_config, host.host, command, stdin=becoming.ahead)
        else:
            done = subprocess.run(
                ["podman", "exec", host.address, "true"],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=ANSWER_LIMIT_S,
            )
    except subprocess.TimeoutExpired as error:
        return f"no answer within {error.timeout:g} s"
    except CausewayError as error:
        return error.message
    if done.returncode == 0:
        return None
    if refusal := becoming.refusal(done.stderr):
        return refusal
    return _last_words(done)


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _parts(hosts: Sequence[Expectation]) -> Iterator[Sequence[Expectation]]:
    """The hosts, divided so that one process a core collects checks, however their roles differ."""
    workers = min(os.cpu_count() or 1, len(hosts))
    for start in range(workers):
        yield hosts[start::workers]


class CheckProcess:
    """One pytest process over some hosts, each with its roles' checks: it collects, then waits to be told.

    Of every host it makes a process of its own (tests/verify/side_by_side.py).
    """

    def __init__(self, hosts: Sequence[Expectation], folder: Path, number: int) -> None:
        self.hosts = hosts
        self._results = folder / f"results-{number}.jsonl"
        command = [sys.executable, "-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider"]
        command += [
            f"--hosts={','.join(host.hostspec for host in hosts)}",
            f"--ssh-config={folder / 'ssh_config'}",
        ]
        features = dict.fromkeys(feature for host in hosts for feature in host.features)
        command += [str(ROOT / "tests" / "verify" / feature) for feature in features]
        told, tell = os.pipe()
        environment = {
            "PYTHONPATH": str(ROOT),
            "CAUSEWAY_EXPECTATIONS": str(folder / "expectations.json"),
            "CAUSEWAY_RESULTS": str(self._results),
            "CAUSEWAY_TOLD": str(told),
        }
        self._process = subprocess.Popen(  # deadline: in `_run` and `end`
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(told,),
            process_group=0,  # to be ended with all of its own
        )
        os.close(told)
        self._tell = os.fdopen(tell, "w")
        self._told: list[Expectation] = []

    def tell(self, name: str) -> None:
        """Have it look at one of its hosts."""
        self._told += [host for host in self.hosts if host.host == name]
        with suppress(BrokenPipeError):  # it may have ended already: what it said tells why
            print(json.dumps(name), file=self._tell, flush=True)

    def checks(self) -> tuple[int, list[Check]]:
        """How many hosts it was told, and what it found on them, once it is through."""
        limit_s = HOST_TIMEOUT_S * len(self._told)
        problem = f"no answer within {limit_s} s"
        self._let_go()
        if self._told:
            try:
                said = self._process.communicate(timeout=limit_s)[0].strip()
                problem = "pytest ran no check: " + said[-500:]
            except subprocess.TimeoutExpired:
                self._kill()
        checks = list(_read_checks(self._results))
        looked_at = {(check.host, check.role) for check in checks}
        missing = [
            Check(host.host, feature, "", Verdict.FAILED, problem)
            for host in self._told
            for feature in host.features
            if not looked_at & {(host.host, feature), (host.host, "")}
        ]
        return len(self._told), checks + missing

    def _let_go(self) -> None:
        """It is told of no further host."""
        with suppress(BrokenPipeError):
            self._tell.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let the process go: one that was told nothing runs no check."""
        self._let_go()
        if self._told and self._process.poll() is None:  # nobody waits for what it finds any more
            self._kill()
        try:
            self._process.communicate(timeout=END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.communicate()  # deadline: it was killed


def _read_checks(results: Path) -> Iterator[Check]:
    """The checks of which pytest has written the whole line: it may have been killed in one."""
    for line in results.read_text().splitlines() if results.exists() else ():
        with suppress(ValueError):
            yield Check.of(json.loads(line))


def main() -> int:
    """Verify, print the report, exit 0 or 1; 2 for an inventory that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.verify.verification")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--inventory", help="folder or file, as for ansible-playbook -i")
    source.add_argument(
        "--stand-by", metavar="PID", type=int, help="what the repair PID starts; see verify_when_told"
    )
    parser.add_argument("--limit", help="host pattern, as for ansible-playbook --limit")
    parser.add_argument(
        "--experiments",
        action=argparse.BooleanOptionalAction,
        help="run checks that alter a node for a moment (default: on nodes that nobody works on)",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.add_argument("--report", type=Path, help="file to write the checks to, as JSON")
    arguments = parser.parse_args()
    try:
        told_by = arguments.stand_by
        result = _verify(arguments) if told_by is None else verify_when_told(_told_by(told_by))
    except CausewayError as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    if result is None:
        return ExitCode.OK
    print(result.dump() if arguments.json else result.report())
    return ExitCode.FAILED if result.failed else ExitCode.OK


def _verify(arguments: argparse.Namespace) -> VerificationResult:
    progress = _say if sys.stderr.isatty() else lambda _: None
    return verify(
        arguments.inventory,
        arguments.limit,
        on_progress=progress,
        report_file=arguments.report,
        experiments=arguments.experiments,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
