"""Merges what a run recorded on a host into the host's manifest: the values that the probe found, checked
against what the tasks reported, without what no task made.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.drift.compared import answered_for
from infra.drift.findings import explain
from infra.drift.journal import Change, noted_changes
from infra.drift.kind import governed_aspects
from infra.drift.kinds import kind_of, known_keys, named_kinds
from infra.drift.manifest import (
    PARTS,
    Entry,
    Manifest,
    RoleManifest,
    UncoveredTask,
    drift_dir,
    keep_text,
    load_manifest,
    manifest_path,
    taken_anew,
)
from infra.drift.trip import TripError
from infra.errors import CausewayError, sentence

Record = Mapping[str, Any]
"""What the callback makes of one role: claims, uncovered, errors; whole, handlers, left_out."""
TasksOf = Callable[[str], Mapping[str, str]]
"""Role → its tasks with a hash of what each depends on."""


def probe_request(salt: str, claims: list[Record], standing: Iterable[Entry]) -> dict[str, Any]:
    """The probe's request that reads every claim's values. STANDING: what stays sealed beside them.

    `kinds` are those of what stays: the probe that a seal keeps on the node is the one that scans bring.
    """
    entries, standing = [], list(standing)
    for claim in claims:
        kind = kind_of(claim["kind"], claim["key"])
        entries.append([claim["kind"], claim["key"], kind.asking(claim), {}])
    known = known_keys((entry.kind, entry.key) for entry in standing)
    kinds = sorted(named_kinds((entry.kind, entry.key) for entry in standing))
    return {"mode": "seal", "salt": salt, "entries": entries, "known": known, "kinds": kinds}


def disagreement(claim: Record, found: Mapping[str, Any]) -> str | None:
    """How what was found contradicts what the task reported, as one sentence; None when it agrees."""
    if "error" in found:
        return f"{claim['kind']} {claim['key']} cannot be read: {sentence(found['error'])}"
    kind = kind_of(claim["kind"], claim["key"])
    over = kind.meaningless(found)
    for aspect, reported in claim["reported"].items():
        if aspect not in over and not kind.holds(aspect, reported, found):
            return (
                f"{claim['kind']} {claim['key']}: task “{claim['task']}” reported {aspect} {reported}, "
                f"found {sentence(str(kind.value(aspect, found)))}: something else changed it during the run"
            )
    return None


def entry_of(stack: str, claim: Record, found: Mapping[str, Any]) -> Entry:
    """A sealed entry: the aspects that count, with the values found."""
    kind = kind_of(claim["kind"], claim["key"])
    over = kind.meaningless(found)
    want = {name: found[name] for name in governed_aspects(kind, claim) if name in found and name not in over}
    how = {key: value for key, value in claim["how"].items() if key != "sha1"}
    if "_inputs" in found:
        how["sealed"] = found["_inputs"]
    if "_packaged" in found:
        how["packaged"] = found["_packaged"]
    text = found.get("_text")
    return Entry(
        kind=claim["kind"],
        key=claim["key"],
        task=claim["task"],
        want=want,
        how=how,
        handler=claim["handler"],
        part=claim.get("part", False),
        text=keep_text(stack, text) if text is not None and "digest" in want else None,
    )


def same_thing(before: Entry, entry: Entry) -> bool:
    """Whether it still is what it was: a file a file, an account there."""
    what = kind_of(entry.kind, entry.key).what_it_is
    return what not in before.want or before.want[what] == entry.want.get(what)


def sealed_elsewhere(stack: str, host: str, entry: Entry) -> bool:
    """Whether another node's manifest has the same value of the same thing."""
    for other in (path.stem for path in drift_dir(stack).glob("*.json") if path.stem != host):
        with suppress(CausewayError):  # another node's broken manifest is that node's failure
            manifest = load_manifest(stack, other)
            entries = (
                known for part in (manifest.roles.values() if manifest else ()) for known in part.entries
            )
            if any((e.kind, e.key, e.want) == (entry.kind, entry.key, entry.want) for e in entries):
                return True
    return False


@dataclass(frozen=True)
class Turn:
    """What a run has to do with a thing that was sealed before. `claims`: those of all its roles."""

    claims: list[Record]
    found: Mapping[str, Any]
    changed: bool
    """Whether a task changed it, of this run or of one before it that was not sealed."""

    def untouched(self) -> set[str]:
        """What none of the tasks that changed the thing can have changed of it."""
        left = [set(claim["untouched"]) for claim in self.claims if claim["changed"]]
        return set.intersection(*left) if left else set()


class HostSeal:
    """Merges what a run recorded on one host into the host's manifest."""

    def __init__(
        self,
        stack: str,
        host: str,
        records: Mapping[str, Record],
        inputs: Mapping[str, str],
        identity: str = "",
        tasks_of: TasksOf = lambda _role: {},
        way_in: str = "",
    ) -> None:
        self.stack, self.host, self.records, self.inputs = stack, host, records, inputs
        self.identity, self.tasks_of, self.way_in = identity, tasks_of, way_in
        self.manifest = load_manifest(stack, host) or Manifest(host=host)
        self.claims = [(role, claim) for role, record in records.items() for claim in record["claims"]]
        self.same: dict[tuple[str, str], list[Record]] = {}
        """Kind and key → the claims of all roles of the run."""
        for _role, claim in self.claims:
            self.same.setdefault((claim["kind"], claim["key"]), []).append(claim)
        self.changed = self._changed()
        self.settled: dict[str, list[Entry]] = {}
        """Key → what this run seals of it."""
        self.disputed: set[tuple[str, str, str]] = set()
        """Role, kind and key of what could not be sealed."""
        self.not_repaired: list[str] = []

    def _changed(self) -> set[tuple[str, str]]:
        """Kind and key of what tasks of the run changed, or of one before it that was not sealed.

        What a task says it governs beside a unit, the unit makes: its restart by a handler changes that too.
        """
        changed = {(claim["kind"], claim["key"]) for _role, claim in self.claims if claim["changed"]}
        changed |= {(kind, key) for _role, kind, key in noted_changes(self.stack, self.host)}
        started = {
            (role, task)
            for role, claim in self.claims
            if claim["kind"] == "unit" and ("unit", claim["key"]) in changed
            for task in claim["tasks"]
        }
        return changed | {
            (claim["kind"], claim["key"])
            for role, claim in self.claims
            if any((role, task) in started for task in claim["stated_by"])
        }

    def is_unsealed(self, change: Change) -> bool:
        """Whether what is noted is of other tasks than those of this run."""
        record = self.records.get(change[0])
        return not (record and record["whole"]) and change[1:] not in self.same

    def request(self) -> dict[str, Any]:
        """What the probe shall read."""
        standing: list[Entry] = []
        for role, part in self.manifest.roles.items():
            record = self.records.get(role)
            if role in self.inputs:
                standing += left_out_of(part, record) if record and record["whole"] else part.entries
        return probe_request(self.manifest.salt, [claim for _role, claim in self.claims], standing)

    def merge(self, answer: Mapping[str, Any]) -> None:
        """Take the probe's answer in. TripError when the probe did not get through."""
        if "hangs" in answer:
            _role, claim = self.claims[answer["hangs"]]
            raise TripError(f"reading {claim['kind']} {claim['key']} hangs", reached=True)
        self._take_machine(answer["machine"])
        sealed: dict[str, list[Entry]] = {role: [] for role in self.records}
        problems: dict[str, list[str]] = {
            role: list(record["errors"]) for role, record in self.records.items()
        }
        pairs = zip(self.claims, answer["values"], strict=True)
        # What files together mean comes last: it counts as far as the files do.
        for (role, claim), found in sorted(pairs, key=lambda pair: _is_sum(pair[0][1])):
            if problem := disagreement(claim, found):
                problems[role].append(problem)
                self.disputed.add((role, claim["kind"], claim["key"]))
                continue
            entry = self._settled(role, claim, found)
            self.settled.setdefault(claim["key"], []).append(entry)
            sealed[role].append(entry.model_copy(update={"tasks": claim["tasks"]}))
        before = self.entries()
        for role, record in self.records.items():
            self._file(role, record, sealed[role], problems[role])
        self._share(sealed)
        self._part_with()
        self._hand_over(before)
        for role, part in self.manifest.roles.items():
            part.declared = role in self.inputs

    def entries(self) -> list[Entry]:
        """All that is sealed of the host."""
        return [entry for part in self.manifest.roles.values() for entry in part.entries]

    def _hand_over(self, before: list[Entry]) -> None:
        """What was known of things that are no entries any more, to what looks at all that is none.

        The task of that look may have been left out of the run.
        """
        standing = self.entries()
        stay = {(entry.kind, entry.key) for entry in standing}
        gone = [entry for entry in before if (entry.kind, entry.key) not in stay]
        for entry in standing if gone else ():
            entry.want = kind_of(entry.kind, entry.key).inherited(self, entry, gone)

    def is_way_in(self, key: str) -> bool:
        """Whether a line has the key by which this stack gets in: nobody else's, wherever it stands."""
        return bool(self.way_in) and self.way_in in key.split()

    def _take_machine(self, machine: str) -> None:
        """Start afresh for a new node under an old name. The node's own word is not enough for that."""
        known = self.manifest
        if not known.sealed or (known.renewed(self.identity) and known.machine != machine):
            self.manifest = Manifest(host=self.host, salt=known.salt, machine=machine)
        elif known.machine and known.machine != machine:
            self.not_repaired.append(
                f"/etc/machine-id is {machine or 'empty'}, expected {known.machine}; if you made the machine "
                f"anew under the host key it had, there is {manifest_path(self.stack, self.host)}: "
                + taken_anew(self.stack, self.host)
            )
        else:
            known.machine = machine
        self.manifest.identity = self.identity or known.identity

    def _settled(self, role: str, claim: Record, found: Mapping[str, Any]) -> Entry:
        """The entry, with what was sealed before wherever it would bless a difference that no task made.

        A file that appeared beside a role's own, a package that somebody downgraded: the run did not change
        it, so it is still drift after the run, also where the role or its variables are new ones.
        """
        kind, at = kind_of(claim["kind"], claim["key"]), (claim["kind"], claim["key"])
        entry = entry_of(self.stack, claim, found)
        before = self.before(role, claim) or kind.known_before(self, role, claim, found)
        if before is None:
            return entry
        return kind.settled(self, before, entry, Turn(self.same[at], found, at in self.changed))

    def own(self, before: Entry, entry: Entry, turn: Turn) -> set[str]:
        """The aspects of a thing for which the tasks of the run answer, changed or not."""
        own = set().union(*(answered_for(claim, before.want, turn.found) for claim in turn.claims))
        if entry.how.get("shared") and sealed_elsewhere(self.stack, self.host, entry):
            own |= set(entry.want)  # what all nodes share, as another one sealed it
        return own | kind_of(entry.kind, entry.key).allowed(entry)

    def accounted(self, before: Entry, entry: Entry, turn: Turn, own: Collection[str] | None = None) -> Entry:
        """The entry: what tasks answer for as found, all else as sealed before.

        OWN: the aspects for which they do without a change. New is what nothing was sealed of: a role that
        governs more than it did.
        """
        own = set(self.own(before, entry, turn) if own is None else own)
        if turn.changed and not kind_of(entry.kind, entry.key).replaced(before, entry):
            own |= {*before.want, *entry.want} - turn.untouched()
        same = same_thing(before, entry)
        if same:
            kept = before.want.keys() & entry.want.keys() - own
            # That a unit is over when it has done its work is the node's own word.
            kept |= {what for what in before.want if what not in entry.want and what in turn.found} - own
        else:
            kept = set() if kind_of(entry.kind, entry.key).what_it_is in own else set(before.want)
        kept = {what for what in kept if entry.want.get(what) != before.want[what]}
        differs = {what: turn.found.get(what) for what in kept if turn.found.get(what) != before.want[what]}
        if differs:
            words = explain(entry.kind, before.want, differs, entry.key)
            self.not_repaired.append(f"{entry.kind} {entry.key}: {words}")
        if kept and not same:
            return entry.model_copy(update={"want": before.want, "how": before.how, "text": before.text})
        update: dict[str, Any] = {"want": entry.want | {what: before.want[what] for what in kept}}
        if "digest" in kept:
            stamp = {"sealed": before.how["sealed"]} if "sealed" in before.how else {}
            how = {key: value for key, value in entry.how.items() if key != "sealed"}
            update |= {"how": how | stamp, "text": before.text}
        return entry.model_copy(update=update)

    def before(self, role: str, claim: Record) -> Entry | None:
        """What was sealed of a claim's thing, as far as the claim goes: by this role, else by others."""
        parts = [self.manifest.roles[role]] if role in self.manifest.roles else []
        parts += [part for name, part in self.manifest.roles.items() if name != role and part.declared]
        at = (claim["kind"], claim["key"])
        known = [entry for part in parts for entry in part.entries if (entry.kind, entry.key) == at]
        kind = kind_of(claim["kind"], claim["key"])
        want: dict[str, Any] = {}
        for entry in reversed(known):
            want |= {what: entry.want[what] for what in governed_aspects(kind, claim) if what in entry.want}
        text = next((entry.text for entry in known if entry.text), None)
        return known[0].model_copy(update={"want": want, "text": text}) if want else None

    def governed(self) -> set[str]:
        """The keys that tasks of this or an earlier run account for."""
        keys = {claim["key"] for _role, claim in self.claims}
        return keys | {entry.key for part in self.manifest.roles.values() for entry in part.entries}

    def contents(self, path: str) -> set[str | None]:
        """The hashes that a file may have by what is sealed of it after this run; None for no file."""
        parts = self.manifest.roles.values()
        entries = [entry for part in parts for entry in part.entries if entry.key == path]
        entries += self.settled.get(path, ())
        found = {entry.want["digest"] for entry in entries if "digest" in entry.want}
        return found | {None for entry in entries if entry.want.get("type") == "absent"}

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
            # What could not be sealed is compared with what it was, until it can be.
            stays = left_out_of(old, record)
            new.entries = [_with_tasks_of(stays, entry) for entry in entries]
            new.entries += [entry for entry in stays if (entry.kind, entry.key) not in recorded]
            known = {(entry.kind, entry.key) for entry in new.entries}
            rest = [entry for entry in kept if (entry.kind, entry.key) not in known]
            still = [
                entry
                for entry in rest
                if (entry.handler and entry.task in record["handlers"])
                or (role, entry.kind, entry.key) in self.disputed
            ]
            new.entries += still
            self.manifest.roles.setdefault(role + PARTS, RoleManifest(sealed_at=_now())).entries += [
                entry for entry in rest if entry.part and entry not in still
            ]
            new.inputs, new.tasks = self.inputs.get(role, ""), dict(self.tasks_of(role))
            new.sealed_at = None if problems else _now()
        else:
            new.entries = [_with_tasks_of(old.entries, entry) for entry in entries] + kept
            new.inputs, new.tasks = old.inputs, old.tasks
            new.sealed_at = None if problems else old.sealed_at
        self.manifest.roles[role] = new

    def _part_with(self) -> None:
        """Keep of what roles make no more what no role governs, once each."""
        roles = self.manifest.roles
        governed = {
            (entry.kind, entry.key)
            for role, part in roles.items()
            if not role.endswith(PARTS)
            for entry in part.entries
        }
        for role in [role for role in roles if role.endswith(PARTS)]:
            left = {(entry.kind, entry.key): entry for entry in roles[role].entries}
            roles[role].entries = [entry for at, entry in left.items() if at not in governed]
            if not roles[role].entries:
                del roles[role]

    def _share(self, sealed: Mapping[str, list[Entry]]) -> None:
        """One truth per thing on a host: what was sealed now replaces what another role sealed of it."""
        fresh = {(entry.kind, entry.key): entry for entries in sealed.values() for entry in entries}
        for role, part in self.manifest.roles.items():
            if role in sealed:
                continue
            for entry in part.entries:
                if (same := fresh.get((entry.kind, entry.key))) and set(same.want) >= set(entry.want):
                    entry.want = {aspect: same.want[aspect] for aspect in entry.want}
                    pinned = {"pinned": True} if entry.how.get("pinned") else {}  # by a task of its own
                    entry.how, entry.text = same.how | pinned, same.text


def left_out_of(part: RoleManifest, record: Record) -> list[Entry]:
    """What tasks govern that a run of the whole role left out, with those tasks alone."""
    left_out = set(record.get("left_out", ()))
    still = ((entry, [task for task in entry.tasks if task in left_out]) for entry in part.entries)
    return [entry.model_copy(update={"tasks": tasks}) for entry, tasks in still if tasks]


def _with_tasks_of(known: Iterable[Entry], entry: Entry) -> Entry:
    """The entry of a run in part; the tasks that did not run govern it as before."""
    for before in known:
        if (before.kind, before.key) == (entry.kind, entry.key):
            tasks = list(dict.fromkeys([*before.tasks, *entry.tasks])) if before.tasks else []
            return entry.model_copy(update={"tasks": tasks})
    return entry


def _is_sum(claim: Record) -> bool:
    return kind_of(claim["kind"], claim["key"]).is_sum


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
