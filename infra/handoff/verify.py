"""Runs the verification of tests/verify against an inventory, and says what is proven.

    python -m infra.handoff.verify --inventory inventories/local [--limit PATTERN] [--json]

The same tests prove container nodes under molecule and real nodes over SSH. A check is *effective* (proven
by behaviour), *rendered* (a file says so, nothing more), *unsupported* (cannot be had on this node),
*failed*, or its host is *unreachable*. Only the first counts as proof; no proof at all is a failure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from infra import ROOT
from infra.errors import CausewayError, ExitCode
from infra.handoff.contract import stack_dir
from infra.handoff.expectations import Expectation, Expectations, parse
from infra.handoff.ssh import CONNECT_TIMEOUT_S, config_text

HOST_TIMEOUT_S = 300
"""Longest a process may take per host it looks at."""
CONNECTIONS_AT_ONCE = 32


class Verdict(StrEnum):
    """What a check shows."""

    EFFECTIVE = "effective"
    RENDERED = "rendered"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Check:
    """One check on one host. `role` is empty where no role's check could run."""

    host: str
    role: str
    name: str
    verdict: Verdict
    message: str = ""


@dataclass(frozen=True)
class VerificationResult:
    """All checks of a run, in host order."""

    checks: tuple[Check, ...] = field(default=())

    def counts(self) -> dict[Verdict, int]:
        """Number of checks by verdict, every verdict present."""
        found = Counter(check.verdict for check in self.checks)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def failed(self) -> bool:
        """Whether anything failed, did not answer, or nothing at all was proven."""
        counts = self.counts()
        return bool(counts[Verdict.FAILED] or counts[Verdict.UNREACHABLE] or not counts[Verdict.EFFECTIVE])

    def report(self) -> str:
        """One line of counts, then one for everything that is no proof; hosts with the same are together."""
        counts = self.counts()
        lines = [", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
        together: dict[tuple[Verdict, str, str, str], list[str]] = {}
        for check in self.checks:
            if check.verdict is not Verdict.EFFECTIVE:
                key = (check.verdict, check.role, check.name, check.message)
                together.setdefault(key, []).append(check.host)
        for verdict in reversed(Verdict):
            for (found, role, name, message), hosts in together.items():
                if found is verdict:
                    what = ": ".join(part for part in (role, name, message) if part)
                    lines.append(f"{verdict:<11} {_names(hosts)}: {what}")
        if not counts[Verdict.EFFECTIVE]:
            lines.append("nothing was proven: no check of tests/verify ran, or none passed")
        return "\n".join(lines)


def _names(hosts: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(hosts) - shown} more" if len(hosts) > shown else ""
    return ", ".join(hosts[:shown]) + more


def verify(
    inventory: str | Path,
    limit: str | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
    report_file: Path | None = None,
) -> VerificationResult:
    """Verify the hosts of an inventory (a folder or file) that match `limit`, Ansible's host pattern.

    Writes the result as JSON to `report_file`; without one to the stack's folder, where the inventory names a
    stack. CausewayError when the inventory cannot be read. Hosts that do not answer are checks of their own.
    """
    expectations = _expectations(str(inventory), limit)
    with tempfile.TemporaryDirectory(prefix="causeway-verify-") as folder:
        result = _run(expectations, Path(folder), on_progress)
    stacks = {host.stack for host in expectations.hosts if host.stack}
    if report_file is None and len(stacks) == 1:
        report_file = ROOT / stack_dir(stacks.pop()) / "verification.json"
    if report_file:
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.write_text(dump(result))
    return result


def dump(result: VerificationResult) -> str:
    """A result as JSON: `{"counts": {verdict: n}, "checks": [{host, role, name, verdict, message}]}`."""
    return json.dumps(
        {"counts": result.counts(), "checks": [asdict(check) for check in result.checks]}, indent=1
    )


def read_result(stack: str) -> VerificationResult:
    """The last verification of a stack; an empty one when there was none."""
    path = ROOT / stack_dir(stack) / "verification.json"
    checks = json.loads(path.read_text())["checks"] if path.exists() else []
    return VerificationResult(tuple(_check(data) for data in checks))


def _expectations(inventory: str, limit: str | None) -> Expectations:
    command = [
        sys.executable,
        "-m",
        "infra.handoff.expectations",
        "--inventory",
        str(Path(inventory).absolute()),
    ]
    environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")} | os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *(["--limit", limit] if limit else [])],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cause = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise CausewayError(
            f"the inventory {inventory} cannot be read: {cause}",
            hint=f"ansible-inventory -i {inventory} --list shows more",
        )
    return parse(done.stdout)


def _run(expectations: Expectations, folder: Path, on_progress: Callable[[str], None]) -> VerificationResult:
    ssh_config = folder / "ssh_config"
    reached = {host.host: host.ssh_options for host in expectations.hosts if host.connection == "ssh"}
    ssh_config.write_text(config_text(reached, folder / "%C"))
    (folder / "expectations.json").write_text(expectations.dump())
    with ThreadPoolExecutor(CONNECTIONS_AT_ONCE) as pool:
        problems = list(pool.map(lambda host: _connect(host, ssh_config), expectations.hosts))
    pairs = list(zip(expectations.hosts, problems, strict=True))
    checks = [
        Check(host.host, "", "", Verdict.UNREACHABLE, problem)
        for host, problem in pairs
        if problem is not None
    ]
    answering = [host for host, problem in pairs if problem is None and host.features]
    on_progress(f"verification: {len(answering)} of {len(pairs)} hosts answer")
    done = 0
    shares = list(_shares(answering))
    with ThreadPoolExecutor(max(len(shares), 1)) as pool:
        jobs = pool.map(lambda item: _pytest(item[1], folder, item[0]), enumerate(shares))
        for share, found in zip(shares, jobs, strict=True):
            checks += found
            done += len(share)
            on_progress(f"verification: {done} of {len(answering)} hosts looked at")
    for host in answering:
        if host.connection == "ssh":
            _ssh(ssh_config, "-O", "exit", host.host)
    order = {host.host: number for number, host in enumerate(expectations.hosts)}
    return VerificationResult(tuple(sorted(checks, key=lambda check: order[check.host])))


def _ssh(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ssh", "-F", str(config), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=6 * CONNECT_TIMEOUT_S,
    )


def _connect(host: Expectation, ssh_config: Path) -> str | None:
    """Open the connection that the checks will share; what is wrong when the host does not answer."""
    try:
        if host.connection == "ssh":
            done = _ssh(ssh_config, host.host, "true")
        else:
            command = ["podman", "exec", host.address, "true"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired as error:
        return f"no answer within {error.timeout:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _shares(hosts: Sequence[Expectation]) -> Iterator[list[Expectation]]:
    """Hosts with the same features, divided so that a few processes a core work side by side."""
    workers = 2 * (os.cpu_count() or 1)
    for features in dict.fromkeys(host.features for host in hosts):
        alike = [host for host in hosts if host.features == features]
        for start in range(min(workers, len(alike))):
            yield alike[start::workers]


def _pytest(hosts: Sequence[Expectation], folder: Path, number: int) -> list[Check]:
    """One pytest process over some hosts with the same features."""
    results = folder / f"results-{number}.jsonl"
    command = [sys.executable, "-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider"]
    command += [
        f"--hosts={','.join(host.hostspec for host in hosts)}",
        f"--ssh-config={folder / 'ssh_config'}",
    ]
    command += [str(ROOT / "tests" / "verify" / feature) for feature in hosts[0].features]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "CAUSEWAY_EXPECTATIONS": str(folder / "expectations.json"),
        "CAUSEWAY_RESULTS": str(results),
    }
    problem = f"no answer within {HOST_TIMEOUT_S * len(hosts)} s"
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=HOST_TIMEOUT_S * len(hosts),
        )
        problem = "pytest ran no check: " + (done.stdout + done.stderr).strip()[-500:]
    except subprocess.TimeoutExpired:
        pass
    lines = results.read_text().splitlines() if results.exists() else []
    checks = [_check(json.loads(line)) for line in lines]
    missing = [
        Check(host.host, feature, "", Verdict.FAILED, problem)
        for host in hosts
        for feature in host.features
        if not any(check.host == host.host and check.role == feature for check in checks)
    ]
    return checks + missing


def _check(data: dict[str, str]) -> Check:
    return Check(data["host"], data["role"], data["name"], Verdict(data["verdict"]), data["message"])


def main() -> int:
    """Verify, print the report, exit 0 or 1; 2 for an inventory that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.handoff.verify")
    parser.add_argument("--inventory", required=True, help="folder or file, as for ansible-playbook -i")
    parser.add_argument("--limit", help="host pattern, as for ansible-playbook --limit")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.add_argument("--report", type=Path, help="file to write the checks to, as JSON")
    arguments = parser.parse_args()
    progress = (
        (lambda line: print(line, file=sys.stderr, flush=True)) if sys.stderr.isatty() else lambda _: None
    )
    try:
        result = verify(
            arguments.inventory, arguments.limit, on_progress=progress, report_file=arguments.report
        )
    except CausewayError as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    print(dump(result) if arguments.json else result.report())
    return ExitCode.FAILED if result.failed else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
