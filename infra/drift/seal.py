"""Seals what a run recorded: reads the values from the nodes, checks them against what the tasks reported,
and keeps them as manifests on the controller and on the node.
"""

import asyncio
import posixpath
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from infra import ROOT
from infra.drift.inputs import role_inputs
from infra.drift.kinds import ASPECTS, UNIT_FOLDERS
from infra.drift.manifest import (
    NODE_COPY,
    Entry,
    Manifest,
    RoleManifest,
    UncoveredTask,
    keep_text,
    load_manifest,
    save_manifest,
)
from infra.drift.trip import TripError, Trips, execute, failure_of
from infra.errors import CausewayError, one_line, sentence, why
from infra.handoff.contract import load_contract, stack_dir

AT_ONCE = 32
STORE_TIMEOUT_S = 20
LIMIT_S = 600
HOST_LIMIT_S = 90
Record = Mapping[str, Any]
"""What `infra.drift.record.as_json` makes of one role: claims, uncovered, errors, whole, handlers."""


def probe_request(manifest: Manifest, claims: list[Record]) -> dict[str, Any]:
    """The probe's request that reads every claim's values."""
    entries = []
    for claim in claims:
        how = dict(claim["how"]) | ({"sha1": True} if "sha1" in claim["reported"] else {})
        entries.append([claim["kind"], claim["key"], how, {}])
    return {"mode": "seal", "salt": manifest.salt, "entries": entries}


def disagreement(claim: Record, found: Mapping[str, Any]) -> str | None:
    """How what was found contradicts what the task reported, as one sentence; None when it agrees."""
    if "error" in found:
        return f"{claim['kind']} {claim['key']} cannot be read: {sentence(found['error'])}"
    for aspect, reported in claim["reported"].items():
        have = found.get("_sha1") if aspect == "sha1" else found.get(aspect)
        if claim["kind"] == "unit":
            if aspect == "active" and found.get("_type") == "oneshot":
                continue  # over as soon as it has done its work
            if aspect == "enabled":
                have = found["enabled"] in ("enabled", "enabled-runtime", "static", "alias", "indirect")
            elif aspect == "masked":
                have = found["load"] == "masked"
        if have != reported:
            return (
                f"{claim['kind']} {claim['key']}: task “{claim['task']}” reported {aspect} {reported}, "
                f"found {sentence(str(have))}: something else changed it during the run"
            )
    return None


def entry_of(stack: str, claim: Record, found: Mapping[str, Any]) -> Entry:
    """A sealed entry: the aspects that count, with the values found."""
    aspects = claim["aspects"] or ASPECTS[claim["kind"]]
    if found.get("type") in ("absent", "special") or found.get("exists") is False:
        aspects = [aspect for aspect in aspects if aspect in found]
    if found.get("_type") == "oneshot":
        aspects = [aspect for aspect in aspects if aspect != "active"]
    want = {aspect: found[aspect] for aspect in aspects if aspect in found}
    how = {key: value for key, value in claim["how"].items() if key != "sha1"}
    if "_inputs" in found:
        how["sealed"] = found["_inputs"]
    text = found.get("_text")
    return Entry(
        kind=claim["kind"],
        key=claim["key"],
        task=claim["task"],
        want=want,
        how=how,
        handler=claim["handler"],
        text=keep_text(stack, text) if text is not None and "digest" in want else None,
    )


def replaced(before: Entry, entry: Entry) -> bool:
    """Whether what was a file is none: a task that edits one may follow a link that somebody put there."""
    return entry.kind == "file" and before.want.get("type") == "file" != entry.want.get("type")


class HostSeal:
    """Merges what a run recorded on one host into the host's manifest."""

    def __init__(
        self, stack: str, host: str, records: Mapping[str, Record], inputs: Mapping[str, str]
    ) -> None:
        self.stack, self.host, self.records, self.inputs = stack, host, records, inputs
        self.manifest = load_manifest(stack, host) or Manifest(host=host)
        self.claims = [(role, claim) for role, record in records.items() for claim in record["claims"]]
        self.not_repaired: list[str] = []

    def request(self) -> dict[str, Any]:
        """What the probe shall read."""
        return probe_request(self.manifest, [claim for _role, claim in self.claims])

    def merge(self, answer: Mapping[str, Any]) -> None:
        """Take the probe's answer in. TripError when the probe did not get through."""
        if "hangs" in answer:
            _role, claim = self.claims[answer["hangs"]]
            raise TripError(f"reading {claim['kind']} {claim['key']} hangs", reached=True)
        if self.manifest.machine != answer["machine"]:  # a new node under an old name
            self.manifest = Manifest(host=self.host, salt=self.manifest.salt, machine=answer["machine"])
        sealed: dict[str, list[Entry]] = {role: [] for role in self.records}
        problems: dict[str, list[str]] = {
            role: list(record["errors"]) for role, record in self.records.items()
        }
        for (role, claim), found in zip(self.claims, answer["values"], strict=True):
            if problem := disagreement(claim, found):
                problems[role].append(problem)
                continue
            entry = self._settled(role, claim, entry_of(self.stack, claim, found))
            sealed[role].append(entry.model_copy(update={"tasks": claim["tasks"]}))
        for role, record in self.records.items():
            self._file(role, record, sealed[role], problems[role])
        self._share(sealed)
        for role, part in self.manifest.roles.items():
            part.declared = role in self.inputs

    def _settled(self, role: str, claim: Record, entry: Entry) -> Entry:
        """The entry, unless it would bless a difference that no task made: then the one sealed before.

        A file that appeared beside a role's own, a package that somebody downgraded: the run did not change
        it, so it is still drift after the run.
        """
        before = self._before(role, entry)
        if before is not None and entry.kind == "authorized_keys":
            return self._own_keys(before, entry)
        if before is None or before.want == entry.want:
            return entry
        if entry.kind == "unit":
            entry = self._own_unit_files(before, entry)
        if entry.kind in ("listing", "effective"):
            return self._only_governed(before, entry)
        accounted = claim["changed"] or self.manifest.roles[role].inputs != self.inputs.get(role)
        if accounted and not replaced(before, entry):
            return self._own_hold(before, claim, entry) if entry.kind == "package" else entry
        self.not_repaired.append(f"{entry.kind} {entry.key}")
        return before

    def _before(self, role: str, entry: Entry) -> Entry | None:
        known = self.manifest.roles.get(role)
        for old in known.entries if known else ():
            if (old.kind, old.key) == (entry.kind, entry.key):
                return old
        return None

    def _governed(self) -> set[str]:
        """The keys that tasks of this or an earlier run account for."""
        keys = {claim["key"] for _role, claim in self.claims}
        return keys | {entry.key for part in self.manifest.roles.values() for entry in part.entries}

    def _own_unit_files(self, before: Entry, entry: Entry) -> Entry:
        """The unit without files that appeared beside or above it and that no task wrote.

        A restart, for whatever reason, loads them too.
        """
        old, new = set(before.want.get("dropins", ())), set(entry.want.get("dropins", ()))
        strangers = new - old - self._governed()
        own: dict[str, Any] = {"dropins": sorted(new - strangers)} if strangers else {}
        was, fragment = before.want.get("fragment"), str(entry.want.get("fragment"))
        foreign = fragment.startswith(UNIT_FOLDERS) and fragment not in self._governed()
        if was and fragment != was and foreign and entry.want["load"] != "masked":
            strangers.add(fragment)
            own["fragment"] = was
        if not strangers:
            return entry
        self.not_repaired.append(f"{entry.key} is changed by {', '.join(sorted(strangers))}")
        return entry.model_copy(update={"want": entry.want | own})

    def _own_hold(self, before: Entry, claim: Record, entry: Entry) -> Entry:
        """The package with the hold it had, unless a task sets it: the task installed another package."""
        hold = before.want.get("hold")
        if "hold" in claim["reported"] or entry.want.get("hold") == hold:
            return entry
        self.not_repaired.append(f"{entry.key} is {'no longer ' if hold else ''}held")
        return entry.model_copy(update={"want": entry.want | {"hold": hold}})

    def _only_governed(self, before: Entry, entry: Entry) -> Entry:
        """A directory's new listing and a program's new settings count as far as tasks account for them."""
        governed = self._governed()
        if entry.kind == "listing":
            old, new = set(before.want["names"] or ()), set(entry.want["names"] or ())
            strangers = {n for n in new - old if posixpath.join(entry.key, n) not in governed}
            lost = {n for n in old - new if posixpath.join(entry.key, n) not in governed}
            if strangers or lost:
                self.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
            return entry.model_copy(update={"want": {"names": sorted((new - strangers) | lost)}})
        files, known = entry.how.get("sealed", {}), before.how.get("sealed", {})
        foreign = [p for p in {*files, *known} if files.get(p) != known.get(p) and p not in governed]
        if not foreign:
            return entry
        self.not_repaired.append(f"{entry.kind} {entry.key} ({', '.join(sorted(foreign))})")
        return before

    def _own_keys(self, before: Entry, entry: Entry) -> Entry:
        """New keys count where a task put them there; a task's key of old, as long as a task wants it."""
        old, new, own = set(before.want["keys"]), set(entry.want["keys"]), set(entry.how["own"])
        given_up = set(before.how.get("own", ())) - own
        strangers = (new - old - own) | (new & given_up)
        lost = old - new - given_up - set(entry.how["taken"])
        if strangers or lost:
            self.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
        return entry.model_copy(update={"want": {"keys": sorted((new - strangers) | lost)}})

    def _file(self, role: str, record: Record, entries: list[Entry], problems: list[str]) -> None:
        """Replace the role's part where the run covered the whole role, else complete it."""
        old = self.manifest.roles.get(role, RoleManifest())
        recorded = {(entry.kind, entry.key) for entry in entries}
        kept = [entry for entry in old.entries if (entry.kind, entry.key) not in recorded]
        uncovered = {task.task: task for task in old.uncovered} if not record["whole"] else {}
        uncovered |= {
            name: UncoveredTask(task=name, module=module) for name, module in record["uncovered"].items()
        }
        new = RoleManifest(uncovered=list(uncovered.values()), problems=problems)
        if record["whole"]:
            new.entries = entries + [e for e in kept if e.handler and e.task in record["handlers"]]
            new.inputs = self.inputs.get(role, "")
            new.sealed_at = None if problems else _now()
        else:
            new.entries = [_with_tasks_of(old, entry) for entry in entries] + kept
            new.inputs = old.inputs
            new.sealed_at = None if problems else old.sealed_at
        self.manifest.roles[role] = new

    def _share(self, sealed: Mapping[str, list[Entry]]) -> None:
        """One truth per thing on a host: what was sealed now replaces what another role sealed of it."""
        fresh = {(entry.kind, entry.key): entry for entries in sealed.values() for entry in entries}
        for role, part in self.manifest.roles.items():
            if role in sealed:
                continue
            for entry in part.entries:
                if (same := fresh.get((entry.kind, entry.key))) and set(same.want) >= set(entry.want):
                    entry.want = {aspect: same.want[aspect] for aspect in entry.want}
                    entry.how, entry.text = same.how, same.text


def _with_tasks_of(old: RoleManifest, entry: Entry) -> Entry:
    """The entry of a run in part; the tasks that did not run govern it as before."""
    for before in old.entries:
        if (before.kind, before.key) == (entry.kind, entry.key):
            tasks = list(dict.fromkeys([*before.tasks, *entry.tasks])) if before.tasks else []
            return entry.model_copy(update={"tasks": tasks})
    return entry


async def seal_host(trips: Trips, seal: HostSeal) -> None:
    """One trip: read, merge, leave the copy on the node. TripError when any of it fails."""
    connection = await trips.open(seal.host)
    async with connection:
        answer = await trips.ask(connection, seal.host, seal.request())
        try:
            seal.merge(answer)
        except Exception:  # not to keep what was merged half
            seal.manifest = load_manifest(seal.stack, seal.host) or Manifest(host=seal.host)
            raise
        await store_copy(trips, connection, seal.host, seal.manifest)
    save_manifest(seal.stack, seal.manifest)


async def store_copy(trips: Trips, connection: Any, host: str, manifest: Manifest) -> None:
    """Write the node's copy of its manifest, whole or not at all, for root only."""
    folder, part = posixpath.dirname(NODE_COPY), f"{NODE_COPY}.part"
    steps = f"umask 077 && mkdir -p {folder} && cat > {part} && mv {part} {NODE_COPY}"
    command = trips.as_root(host, f"sh -c '{steps}'")
    _, complaint, status = await execute(connection, command, manifest.node_copy(), STORE_TIMEOUT_S)
    if status != 0:
        raise TripError(f"cannot write {NODE_COPY}: {complaint.decode(errors='replace').strip()}", True)


async def seal_all(stack: str, hosts: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """Seal many hosts at once; the problems, one line each."""
    contract = load_contract(ROOT / stack_dir(stack) / "contract.json")
    trips, inputs = Trips(contract), role_inputs(contract)
    gate = asyncio.Semaphore(AT_ONCE)
    problems: list[str] = []
    deadline = time.monotonic() + LIMIT_S

    async def one(host: str, records: Mapping[str, Record]) -> None:
        async with gate:
            try:
                seal = HostSeal(stack, host, records, inputs[host])
                left_s = deadline - time.monotonic()
                error: TripError | None = TripError(f"its turn had not come after {LIMIT_S} s", reached=False)
                if left_s > 0:
                    error = await failure_of(seal_host(trips, seal), min(HOST_LIMIT_S, left_s))
                if error:
                    mark_unsealed(seal, str(error))
                problems.extend(map(one_line, _problems(seal, error)))
            except Exception as error:  # its manifest on the controller cannot be read or written
                problems.append(f"{host}: not sealed: {why(error)}")

    await asyncio.gather(*(one(host, records) for host, records in hosts.items() if host in inputs))
    return problems


def _problems(seal: HostSeal, error: TripError | None) -> Iterator[str]:
    if error:
        yield f"{seal.host}: not sealed: {error}"
        return
    for role in seal.records:
        yield from (f"{seal.host}: {role}: {line}" for line in seal.manifest.roles[role].problems)
    left = "still differs, no task of this run changes it back"
    yield from (f"{seal.host}: {left}: {line}" for line in seal.not_repaired)


def mark_unsealed(seal: HostSeal, why: str) -> None:
    """A seal that failed leaves the roles of the run as not sealed, which the scan says."""
    for role in seal.records:
        part = seal.manifest.roles.setdefault(role, RoleManifest())
        part.sealed_at, part.problems = None, [why]
    save_manifest(seal.stack, seal.manifest)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def seal_run(stack: str, hosts: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """Seal what a run recorded of HOSTS; the problems, one line each."""
    try:
        return asyncio.run(seal_all(stack, hosts))
    except CausewayError as error:
        return [str(error)]
