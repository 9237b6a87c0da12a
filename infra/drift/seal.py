"""Seals what a run recorded: reads the values from the nodes, checks them against what the tasks reported,
and keeps them as manifests on the controller and on the node.
"""

import asyncio
import posixpath
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from infra import ROOT
from infra.drift.compared import SHOWN_BY, answered_for, holds
from infra.drift.findings import explain
from infra.drift.inputs import role_inputs
from infra.drift.journal import Change, keep_changes, noted_changes
from infra.drift.kinds import ASPECTS, UNIT_FOLDERS
from infra.drift.looks import LEFT_OVER, at_least, left_over
from infra.drift.manifest import (
    NODE_COPY,
    Entry,
    Manifest,
    RoleManifest,
    UncoveredTask,
    drift_dir,
    keep_text,
    load_manifest,
    manifest_path,
    save_manifest,
    taken_anew,
)
from infra.drift.trip import TripError, Trips, execute, failure_of
from infra.errors import CausewayError, one_line, sentence, why
from infra.ground.contract import load_contract
from infra.ground.identities import load_identities
from infra.stack import stack_dir

SUMS = ("listing", "effective")
"""Kinds that say what several files are together."""
WHAT_IT_IS = frozenset(("type", "exists", "installed"))
"""Aspects with which all others change: a file or a link, an account or none."""
AT_ONCE = 32
STORE_TIMEOUT_S = 20
LIMIT_S = 600
HOST_LIMIT_S = 90
Record = Mapping[str, Any]
"""What `infra.drift.record.as_json` makes of one role: claims, uncovered, errors, whole, handlers."""


def probe_request(manifest: Manifest, claims: list[Record], replaced: Collection[str] = ()) -> dict[str, Any]:
    """The probe's request that reads every claim's values. REPLACED: roles of which nothing else stays."""
    entries = []
    for claim in claims:
        how = dict(claim["how"]) | ({"sha1": True} if "sha1" in claim["reported"] else {})
        entries.append([claim["kind"], claim["key"], how, {}])
    kept = [entry for role, part in manifest.roles.items() if role not in replaced for entry in part.entries]
    known = [entry.key for entry in kept if entry.kind == "authorized_keys"]
    return {"mode": "seal", "salt": manifest.salt, "entries": entries, "key_files": known}


def disagreement(claim: Record, found: Mapping[str, Any]) -> str | None:
    """How what was found contradicts what the task reported, as one sentence; None when it agrees."""
    if "error" in found:
        return f"{claim['kind']} {claim['key']} cannot be read: {sentence(found['error'])}"
    for aspect, reported in claim["reported"].items():
        if claim["kind"] == "unit" and aspect == "active" and found.get("_type") == "oneshot":
            continue  # over as soon as it has done its work
        if not holds(claim["kind"], aspect, reported, found):
            have = found.get("_sha1" if aspect == "sha1" else SHOWN_BY.get(aspect, aspect))
            return (
                f"{claim['kind']} {claim['key']}: task “{claim['task']}” reported {aspect} {reported}, "
                f"found {sentence(str(have))}: something else changed it during the run"
            )
    return None


def governed_aspects(claim: Record) -> list[str]:
    """What of the thing the tasks of the run govern."""
    return list(claim["aspects"] or ASPECTS[claim["kind"]])


def entry_of(stack: str, claim: Record, found: Mapping[str, Any]) -> Entry:
    """A sealed entry: the aspects that count, with the values found."""
    aspects = governed_aspects(claim)
    if found.get("type") in ("absent", "special") or found.get("exists") is False:
        aspects = [aspect for aspect in aspects if aspect in found]
    if found.get("_type") == "oneshot":
        aspects = [aspect for aspect in aspects if aspect != "active"]
    want = {aspect: found[aspect] for aspect in aspects if aspect in found}
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
        text=keep_text(stack, text) if text is not None and "digest" in want else None,
    )


def replaced(before: Entry, entry: Entry) -> bool:
    """Whether what was a file is none: a task that edits one may follow a link that somebody put there."""
    return entry.kind == "file" and before.want.get("type") == "file" != entry.want.get("type")


def same_thing(before: Entry, entry: Entry) -> bool:
    """Whether it still is what it was: a file a file, an account there."""
    return all(before.want[what] == entry.want.get(what) for what in WHAT_IT_IS & before.want.keys())


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


def updated(before: Entry, entry: Entry) -> bool:
    """Whether a package is newer by an update: that needs no task to account for it, where nothing holds it.

    Of a version that a task names, the task has seen to it that it is this one.
    """
    now, then = (str(sealed.want.get("version") or "") for sealed in (entry, before))
    is_another = entry.want.get("installed") and now != then
    return bool(is_another and not before.want.get("hold") and at_least(now, then))


def changed_inputs(before: Entry, entry: Entry) -> set[str]:
    """The files of a program that are not as sealed, and that no update of a package brought."""
    files, known = entry.how.get("sealed", {}), before.how.get("sealed", {})
    if "include" not in before.how:  # sealed before included files were looked at
        files = {path: digest for path, digest in files.items() if path in known or is_below(path, entry)}
    updated = set(before.how.get("packaged", ())) & set(entry.how.get("packaged", ()))
    changed = {path for path in {*files, *known} if files.get(path) != known.get(path)}
    return {path for path in changed - updated if path.startswith("/") and not path.endswith(LEFT_OVER)}


def is_below(path: str, entry: Entry) -> bool:
    """Whether a file is at or below one of a program's own places."""
    return any(f"{path}/".startswith(f"{start}/") for start in entry.how["inputs"])


class HostSeal:
    """Merges what a run recorded on one host into the host's manifest."""

    def __init__(
        self,
        stack: str,
        host: str,
        records: Mapping[str, Record],
        inputs: Mapping[str, str],
        identity: str = "",
    ) -> None:
        self.stack, self.host, self.records, self.inputs = stack, host, records, inputs
        self.identity = identity
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

    def unsealed_changes(self) -> set[Change]:
        """What is noted of other tasks than those of this run."""
        whole = {role for role, record in self.records.items() if record["whole"]}
        noted = noted_changes(self.stack, self.host)
        return {change for change in noted if change[0] not in whole and change[1:] not in self.same}

    def request(self) -> dict[str, Any]:
        """What the probe shall read."""
        done = {role for role, record in self.records.items() if record["whole"]}
        given_up = self.manifest.roles.keys() - self.inputs.keys()
        return probe_request(self.manifest, [claim for _role, claim in self.claims], done | given_up)

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
        for (role, claim), found in sorted(pairs, key=lambda pair: pair[0][1]["kind"] in SUMS):
            if problem := disagreement(claim, found):
                problems[role].append(problem)
                self.disputed.add((role, claim["kind"], claim["key"]))
                continue
            entry = self._settled(role, claim, found)
            self.settled.setdefault(claim["key"], []).append(entry)
            sealed[role].append(entry.model_copy(update={"tasks": claim["tasks"]}))
        for role, record in self.records.items():
            self._file(role, record, sealed[role], problems[role])
        self._share(sealed)
        for role, part in self.manifest.roles.items():
            part.declared = role in self.inputs

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
        entry = entry_of(self.stack, claim, found)
        before = self._before(role, claim) or self._before_of_account(role, claim, found)
        if before is None:
            return entry
        if entry.kind == "authorized_keys":
            return self._own_keys(before, entry)
        if before.want == entry.want:
            return entry
        if entry.kind in SUMS:
            return self._only_governed(before, entry)
        claims = self.same[claim["kind"], claim["key"]]
        changed = (claim["kind"], claim["key"]) in self.changed
        own = set().union(*(answered_for(same, before.want, found) for same in claims)) | self._allowed(entry)
        if entry.kind == "package" and not self._pinned(entry) and updated(before, entry):
            return self._own_hold(before, claims, entry)
        if entry.kind == "group":
            own |= self._by_accounts(before, entry)
        if entry.kind == "unit":
            entry = self._own_unit_files(before, entry, changed, own)
            own |= {"dropins", "fragment"}
        if changed and not replaced(before, entry):
            if entry.kind == "package":
                return self._own_hold(before, claims, entry)
            own |= {*before.want, *entry.want} - self._untouched(claims)
        return self._accounted(before, entry, found, own)

    def _by_accounts(self, before: Entry, entry: Entry) -> set[str]:
        """A group's members, where tasks changed the accounts that joined or left it."""
        others = set(before.want.get("members") or ()) ^ set(entry.want.get("members") or ())
        return {"members"} if all(("user", name) in self.changed for name in others) else set()

    def _untouched(self, claims: list[Record]) -> set[str]:
        """What none of the tasks that changed a thing can have changed of it."""
        left = [set(claim["untouched"]) for claim in claims if claim["changed"]]
        return set.intersection(*left) if left else set()

    def _accounted(self, before: Entry, entry: Entry, found: Mapping[str, Any], own: set[str]) -> Entry:
        """The entry that no task changed: its own aspects as found, the others as sealed before.

        New is what nothing was sealed of: a role that governs more than it did.
        """
        if not same_thing(before, entry):
            kept = set() if own & WHAT_IT_IS else set(before.want)
        else:
            kept = before.want.keys() & entry.want.keys() - own
            # That a unit is over when it has done its work is the node's own word.
            kept |= {what for what in before.want if what not in entry.want and what in found} - own
        kept = {what for what in kept if entry.want.get(what) != before.want[what]}
        differs = {what: found.get(what) for what in kept if found.get(what) != before.want[what]}
        if differs:
            self._left(entry, before.want, differs)
        if kept and not same_thing(before, entry):
            return entry.model_copy(update={"want": before.want, "how": before.how, "text": before.text})
        update: dict[str, Any] = {"want": entry.want | {what: before.want[what] for what in kept}}
        if "digest" in kept:
            stamp = {"sealed": before.how["sealed"]} if "sealed" in before.how else {}
            how = {key: value for key, value in entry.how.items() if key != "sealed"}
            update |= {"how": how | stamp, "text": before.text}
        return entry.model_copy(update=update)

    def _allowed(self, entry: Entry) -> set[str]:
        """Aspects whose new value counts whoever set it.

        What all nodes share, as another one sealed it; that systemd has read again what there is.
        """
        if entry.how.get("shared") and sealed_elsewhere(self.stack, self.host, entry):
            return set(entry.want)
        return {"reload_needed"} if entry.want.get("reload_needed") is False else set()

    def _left(self, entry: Entry, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Note what still differs after the run, by name."""
        self.not_repaired.append(f"{entry.kind} {entry.key}: {explain(entry.kind, expected, found)}")

    def _before(self, role: str, claim: Record) -> Entry | None:
        """What was sealed of a claim's thing, as far as the claim goes: by this role, else by others."""
        parts = [self.manifest.roles[role]] if role in self.manifest.roles else []
        parts += [part for name, part in self.manifest.roles.items() if name != role and part.declared]
        at = (claim["kind"], claim["key"])
        known = [entry for part in parts for entry in part.entries if (entry.kind, entry.key) == at]
        want: dict[str, Any] = {}
        for entry in reversed(known):
            want |= {what: entry.want[what] for what in governed_aspects(claim) if what in entry.want}
        text = next((entry.text for entry in known if entry.text), None)
        return known[0].model_copy(update={"want": want, "text": text}) if want else None

    def _before_of_account(self, role: str, claim: Record, found: Mapping[str, Any]) -> Entry | None:
        """What was sealed of a file of keys while it was its account's, and no entry of its own.

        A key that is gone from there is not missed.
        """
        if claim["kind"] != "authorized_keys" or not (account := claim["how"].get("account")):
            return None
        if (known := self._before(role, {**claim, "key": account, "aspects": None})) is None:
            return None
        keys = [key for key in found["keys"] if f"{claim['key']}: {key}" in known.want["keys"]]
        return known.model_copy(update={"want": {"keys": keys}, "how": {}})

    def _governed(self) -> set[str]:
        """The keys that tasks of this or an earlier run account for."""
        keys = {claim["key"] for _role, claim in self.claims}
        return keys | {entry.key for part in self.manifest.roles.values() for entry in part.entries}

    def _pinned(self, entry: Entry) -> bool:
        """Whether a task that had no turn in this run names the package's version."""
        ran = {role for role, record in self.records.items() if record["whole"]}
        ran |= {
            role for role, claim in self.claims if (claim["kind"], claim["key"]) == (entry.kind, entry.key)
        }
        parts = (part for role, part in self.manifest.roles.items() if role not in ran and part.declared)
        at = (entry.kind, entry.key)
        return any(
            old.how.get("pinned") for part in parts for old in part.entries if (old.kind, old.key) == at
        )

    def _contents(self, path: str) -> set[str | None]:
        """The hashes that a file may have by what is sealed of it after this run; None for no file."""
        parts = self.manifest.roles.values()
        entries = [entry for part in parts for entry in part.entries if entry.key == path]
        entries += self.settled.get(path, ())
        found = {entry.want["digest"] for entry in entries if "digest" in entry.want}
        return found | {None for entry in entries if entry.want.get("type") == "absent"}

    def _own_unit_files(self, before: Entry, entry: Entry, restarted: bool, own: set[str]) -> Entry:
        """The unit without files that appeared beside or above it and that no task wrote.

        A restart, for whatever reason, loads them too, and forgets those that somebody took away.
        """
        governed = self._governed()
        old, new = set(before.want.get("dropins", ())), set(entry.want.get("dropins", ()))
        strangers = new - old - governed
        lost = set() if restarted else old - new - governed
        kept: dict[str, Any] = {"dropins": sorted(new - strangers | lost)} if strangers or lost else {}
        was, fragment = before.want.get("fragment"), str(entry.want.get("fragment"))
        foreign = fragment not in governed and (fragment.startswith(UNIT_FOLDERS) or not restarted)
        masked = entry.want.get("load") == "masked" and (restarted or "load" in own)
        if was and fragment != was and foreign and not masked:
            strangers.add(fragment)
            kept["fragment"] = was
        if not kept:
            return entry
        if "active" in before.want:
            kept["active"] = entry.want.get("active", before.want["active"])
        self.not_repaired.append(f"{entry.key} is changed by {', '.join(sorted(strangers | lost))}")
        return entry.model_copy(update={"want": entry.want | kept})

    def _own_hold(self, before: Entry, claims: list[Record], entry: Entry) -> Entry:
        """The package with the hold it had, unless a task sets it: the task installed another package."""
        hold = before.want.get("hold")
        if any("hold" in claim["reported"] for claim in claims) or entry.want.get("hold") == hold:
            return entry
        self.not_repaired.append(f"{entry.key} is {'no longer ' if hold else ''}held")
        return entry.model_copy(update={"want": entry.want | {"hold": hold}})

    def _only_governed(self, before: Entry, entry: Entry) -> Entry:
        """A directory's new listing and a program's new settings count as far as tasks account for them."""
        governed = self._governed()
        if entry.kind == "listing":
            old, new = set(before.want["names"] or ()), set(entry.want["names"] or ())
            old = {name for name in old if not name.endswith(left_over(entry.key))}
            strangers = {n for n in new - old if posixpath.join(entry.key, n) not in governed}
            lost = {n for n in old - new if posixpath.join(entry.key, n) not in governed}
            if strangers or lost:
                self.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
            return entry.model_copy(update={"want": {"names": sorted((new - strangers) | lost)}})
        files, changed = entry.how.get("sealed", {}), changed_inputs(before, entry)
        foreign = {path for path in changed if files.get(path) not in self._contents(path)}
        if not foreign:
            return entry
        self.not_repaired.append(f"{entry.kind} {entry.key} ({', '.join(sorted(foreign))})")
        return before

    def _own_keys(self, before: Entry, entry: Entry) -> Entry:
        """New keys count where a task put them there; a task's key of old, as long as a task wants it.

        Of an account those count as well that were known in a file that is no entry of its own any more, and
        none is missed: no task put it there.
        """
        old, new, own = set(before.want["keys"]), set(entry.want["keys"]), set(entry.how["own"])
        given_up = set(before.how.get("own", ())) - own
        if account := not entry.key.startswith("/"):
            old |= self._keys_in_files()
        strangers = (new - old - own) | (new & given_up)
        lost = set() if account else old - new - given_up - set(entry.how["taken"])
        if strangers or lost:
            self.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
        return entry.model_copy(update={"want": {"keys": sorted((new - strangers) | lost)}})

    def _keys_in_files(self) -> set[str]:
        """The keys in files that were sealed as entries of their own, as an account shows them; no task's."""
        entries = [entry for part in self.manifest.roles.values() for entry in part.entries]
        files = [entry for entry in entries if entry.kind == "authorized_keys" and entry.key.startswith("/")]
        known = ((file, key) for file in files for key in file.want["keys"])
        return {f"{file.key}: {key}" for file, key in known if key not in file.how.get("own", ())}

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
            new.entries = entries + [
                entry
                for entry in kept
                if (entry.handler and entry.task in record["handlers"])
                or (role, entry.kind, entry.key) in self.disputed
            ]
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
                    pinned = {"pinned": True} if entry.how.get("pinned") else {}  # by a task of its own
                    entry.how, entry.text = same.how | pinned, same.text


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
    keep_changes(seal.stack, seal.host, seal.unsealed_changes())


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
    trips, inputs, identities = Trips(contract), role_inputs(contract), load_identities(stack)
    gate = asyncio.Semaphore(AT_ONCE)
    problems: list[str] = []
    deadline = time.monotonic() + LIMIT_S

    async def one(host: str, records: Mapping[str, Record]) -> None:
        async with gate:
            try:
                seal = HostSeal(stack, host, records, inputs[host], identities.get(host, ""))
                left_s = deadline - time.monotonic()
                error: TripError | None = TripError(f"its turn had not come after {LIMIT_S} s", reached=False)
                if left_s > 0:
                    error = await failure_of(seal_host(trips, seal), min(HOST_LIMIT_S, left_s))
                if error:
                    mark_unsealed(seal, str(error))
                problems.extend(map(one_line, _problems(seal, error)))
            except Exception as error:  # its manifest on the controller cannot be read or written
                problems.append(f"{host}: not sealed: {why(error)}")

    # What tasks on other nodes may have made is sealed after it was sealed there.
    known = {host: records for host, records in hosts.items() if host in inputs}
    last = [host for host, records in known.items() if any(map(waits_for_others, records.values()))]
    for part in ([host for host in known if host not in last], last):
        await asyncio.gather(*(one(host, known[host]) for host in part))
    return problems


def waits_for_others(record: Record) -> bool:
    """Whether something of it is shared by all nodes, and was not changed here."""
    return any(claim["how"].get("shared") and not claim["changed"] for claim in record["claims"])


def _problems(seal: HostSeal, error: TripError | None) -> Iterator[str]:
    if error:
        yield f"{seal.host}: not sealed: {error}"
        return
    for role in seal.records:
        yield from (f"{seal.host}: {role}: {line}" for line in seal.manifest.roles[role].problems)
    left = "still differs, no task of this run changes it back"
    yield from (f"{seal.host}: {left}: {sentence(line)}" for line in dict.fromkeys(seal.not_repaired))


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
