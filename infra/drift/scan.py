"""Compares every node with its manifest: one SSH trip each, many at once, results as they come.

A node that is down, hangs or has no Python is named, and the others go on. Nothing is gathered: memory does
not grow with the number of nodes.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from infra.drift.findings import MANIFEST_ROLE, Difference, HostReport, RoleReport, moment, text_diff
from infra.drift.inputs import role_inputs
from infra.drift.journal import noted_changes, with_changes
from infra.drift.kinds import known_keys
from infra.drift.manifest import NODE_COPY, PARTS, Entry, Manifest, RoleManifest, kept_text, load_manifest
from infra.drift.owed import in_words, owed
from infra.drift.probe import entries_of, request_of
from infra.drift.trip import TripError, Trips, failure_of
from infra.errors import BadInputError
from infra.ground import sudo
from infra.ground.contract import Contract, load_contract
from infra.ground.identities import load_identities
from infra.stack import contract_file

T = TypeVar("T")
AT_ONCE = 48
HOST_LIMIT_S = 100


def scan_stack(
    stack: str,
    hosts: Iterable[str] | None = None,
    *,
    roles: Sequence[str] = (),
    at_once: int = AT_ONCE,
    thorough: bool = False,
    anew: bool = False,
) -> Iterator[HostReport]:
    """Scan hosts of a stack (all without `hosts`), only some `roles` if given; reports come when ready.

    A `thorough` scan also reads the large files whose size and times are those they were sealed with. With
    `anew`, for what acts on what it finds, no answer that a node's timer was given counts.
    Raises CausewayError for a stack that does not stand, BadInputError for a host or role it does not have.
    """
    contract = load_contract(contract_file(stack))
    names = list(contract.hosts) if hosts is None else list(hosts)
    inputs = role_inputs(contract, load_identities(stack))
    _require(contract, names, roles, {role for of_host in inputs.values() for role in of_host})
    sudo.ready(contract, names)
    scanner = Scanner(contract, inputs, roles, "thorough" if thorough else "scan", anew)
    yield from _beside(_scan(scanner, names, at_once))


def _beside(reports: AsyncGenerator[HostReport, None]) -> Generator[HostReport, None, None]:
    """The reports, made in a thread: while whoever reads them pauses (`less`), no node's time runs out."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def following() -> HostReport | None:
        return await anext(reports, None)

    def answer_of(coroutine: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()  # interrupted: what it awaits ends with it
            raise

    try:
        while (report := answer_of(following())) is not None:
            yield report
    finally:
        answer_of(_closed(reports))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _closed(reports: AsyncGenerator[HostReport, None]) -> None:
    while True:
        try:
            return await reports.aclose()
        except RuntimeError:  # after an interrupt it is still on its way to its end
            await asyncio.sleep(0.01)


async def _scan(scanner: "Scanner", names: list[str], at_once: int) -> AsyncGenerator[HostReport, None]:
    """Workers take hosts from a list and put reports into a queue that holds only a few."""
    todo, done = iter(names), asyncio.Queue[HostReport](maxsize=at_once)

    async def work() -> None:
        for name in todo:
            await done.put(await scanner.host(name))

    workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(names)))]
    try:
        for _ in names:
            yield await done.get()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class Scanner:
    """Scans one host at a time, as often as asked."""

    def __init__(
        self,
        contract: Contract,
        inputs: Mapping[str, Mapping[str, str]],
        roles: Sequence[str] = (),
        mode: str = "scan",
        anew: bool = False,
    ) -> None:
        self.contract, self.inputs, self.roles = contract, inputs, roles
        self.mode, self.anew = mode, anew
        self.trips, self.identities = Trips(contract), load_identities(contract.stack)

    async def host(self, name: str) -> HostReport:
        """One host's report; whatever goes wrong is in it."""
        started = time.monotonic()
        report = HostReport(name, self.contract.region_of(name), "clean")
        if error := await failure_of(self._scan(report), HOST_LIMIT_S):
            report.state, report.message = "failed" if error.reached else "unreachable", str(error)
        report.took_s = time.monotonic() - started
        return report

    async def _scan(self, report: HostReport) -> None:
        manifest = load_manifest(self.contract.stack, report.host) or Manifest(host=report.host)
        plain = manifest.model_dump(mode="json")
        pairs = self._pairs(report.host, manifest, plain)
        self._roles(report, manifest)
        connection = await self.trips.open(report.host)
        async with connection:
            request = {**request_of(plain, pairs, self.mode, known_to(manifest)), "anew": self.anew}
            answer = await self.trips.ask(connection, report.host, request)
        await self._take(report, manifest, pairs, answer)

    def _pairs(
        self, host: str, manifest: Manifest, plain: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        """What to compare, and the node's copy of the manifest as the last of it."""
        wanted = set(self.inputs[host]).intersection(self.roles or self.inputs[host])
        pairs = [pair for pair in entries_of(plain) if pair[0] in wanted]
        if manifest.sealed:
            data = manifest.salt.encode() + manifest.node_copy()
            want = {"type": "file", "mode": "0600", "digest": hashlib.sha256(data).hexdigest()[:32]}
            copy = {"kind": "file", "key": NODE_COPY, "task": "the last seal", "want": want, "how": {}}
            pairs.append((MANIFEST_ROLE, copy))
        return pairs

    def _roles(self, report: HostReport, manifest: Manifest) -> None:
        """Each role the host should have: sealed, stale, or not sealed."""
        due = owed(self.contract.stack, report.host)
        for role, inputs in self.inputs[report.host].items():
            if self.roles and role not in self.roles:
                continue
            part = manifest.roles.get(role)
            if part is None or part.sealed_at is None:
                notes = part.problems if part and part.problems else ["no converge of this role was sealed"]
                report.roles[role] = RoleReport("not sealed", notes=notes, ran=part is not None)
            elif role in due:
                report.roles[role] = RoleReport("not sealed", notes=[in_words(due[role])])
            elif part.inputs != inputs:
                why = "what it depends on changed since: its files, its variables, its secrets or the machine"
                report.roles[role] = RoleReport("stale", notes=[why], sealed_at=part.sealed_at)
            else:
                report.roles[role] = RoleReport("clean", sealed_at=part.sealed_at)
            if part is not None:
                report.roles[role].uncovered = [task.task for task in part.uncovered]
        known = with_changes(manifest, noted_changes(self.contract.stack, report.host))
        given_up = known.roles.keys() - self.inputs[report.host].keys()
        for role in sorted(given_up.intersection(self.roles or given_up)):
            report.roles[role] = RoleReport("orphaned", notes=[what_it_left(role, known.roles[role])])

    async def _take(
        self,
        report: HostReport,
        manifest: Manifest,
        pairs: list[tuple[str, dict[str, Any]]],
        answer: Mapping[str, Any],
    ) -> None:
        if "hangs" in answer:
            entry = pairs[answer["hangs"]][1]
            raise TripError(f"reading {entry['kind']} {entry['key']} hangs", reached=True)
        if manifest.machine and answer.get("machine") != manifest.machine:
            self._another_machine(report, manifest, answer.get("machine"))
        for number, found in answer["values"]:
            role, entry = pairs[number]
            difference = self._difference(role, Entry.model_validate(entry), found)
            await asyncio.sleep(0)  # a node of which much differs does not hold up the others
            part = report.roles.setdefault(role, RoleReport("drift"))
            part.differences.append(difference)
            if part.state == "clean":
                part.state = "drift"
        if report.differences:
            report.state = "drift"
        elif report.unsettled_roles:
            report.state = (
                "stale" if all(r.state != "not sealed" for r in report.roles.values()) else "not sealed"
            )

    def _another_machine(self, report: HostReport, manifest: Manifest, machine: Any) -> None:
        """A machine that was made anew has nothing to be compared with; one that only says so differs."""
        if manifest.renewed(self.identities.get(report.host, "")):
            raise TripError("it was made anew since it was sealed: ./run up configures it", reached=True)
        expected, found = {"id": manifest.machine}, {"id": machine}
        report.roles[MANIFEST_ROLE] = RoleReport(
            "drift",
            [Difference(MANIFEST_ROLE, "the last seal", "machine", "/etc/machine-id", expected, found)],
        )

    def _difference(self, role: str, entry: Entry, found: Mapping[str, Any]) -> Difference:
        differs = found["found"]
        sealed = kept_text(self.contract.stack, entry.text) if entry.text else None
        text = found.get("text")
        return Difference(
            role=role,
            task=entry.task,
            kind=entry.kind,
            key=entry.key,
            expected={aspect: entry.want.get(aspect) for aspect in differs if aspect != "error"},
            found=differs,
            since=moment(found.get("since")),
            diff=text_diff(entry.key, sealed, text) if sealed is not None and text is not None else None,
        )


def known_to(manifest: Manifest) -> dict[str, list[str]]:
    """Kind → keys that its look has to know, of whichever role that is not orphaned, scanned or not."""
    parts = (part for part in manifest.roles.values() if part.declared)
    return known_keys((entry.kind, entry.key) for part in parts for entry in part.entries)


def what_it_left(role: str, part: RoleManifest) -> str:
    """In words, what a role made that is no longer declared, or that makes it no more; whether it is still
    there was not looked at."""
    keys = {kind: [entry.key for entry in part.entries if entry.kind == kind] for kind in ("unit", "file")}
    units = f"the units {', '.join(keys['unit'])}" if keys["unit"] else "no unit"
    why = "made no more" if role.endswith(PARTS) else "no longer declared"
    return f"{why}; it left {units} and {len(keys['file'])} files"


def _require(contract: Contract, hosts: list[str], roles: Sequence[str], known: set[str]) -> None:
    unknown = [name for name in hosts if name not in contract.hosts]
    if unknown:
        raise BadInputError(
            f"no host of stack {contract.stack}: {', '.join(unknown[:10])}",
            hint=f"its hosts: {', '.join(list(contract.hosts)[:10])}",
        )
    unknown = [role for role in roles if role not in known]
    if unknown:
        raise BadInputError(
            f"no role of this stack: {', '.join(unknown)}", hint=f"its roles: {', '.join(sorted(known))}"
        )
