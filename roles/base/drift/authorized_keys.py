"""authorized_keys: the public keys that open an account, in one file or wherever sshd looks for them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, Task, Uncovered, added, is_list
from infra.drift.looks import Look, shown_key
from infra.drift.node import text_of
from roles.base.drift.sshd import FILES, named_in, sshd_files

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles


def look_at_authorized_keys(node: Look, key: str, how: How) -> Found:
    """The public keys that open an account, each as its line with the fingerprint in the key's place.

    The key is a file, or an account: then all files count that sshd reads for it and that are no entry of
    their own. A key that is gone from one of these is no difference, for no task put it there.
    """
    if key.startswith("/"):
        since = os.stat(key).st_ctime if os.path.exists(key) else None
        return {"keys": sorted(keys_in(key)), "_since": since}
    files = key_files_of(node, key, how)
    keys = {f"{path}: {line}" for path in files for line in keys_in(path)}
    since = max((os.stat(path).st_ctime for path in files), default=None)
    return {"keys": sorted(keys.union(node.want.get("keys") or ())), "_since": since}


def keys_in(path: str) -> list[str]:
    """A file's keys, or names of principals."""
    lines = [line.strip() for line in text_of(path, "").splitlines()]
    return [shown_key(line) for line in lines if line and not line.startswith("#")]


def key_files_of(node: Look, account: str, how: How) -> list[str]:
    """Where sshd looks for an account's keys: what its settings say, in whatever `Match` block."""
    named = [".ssh/authorized_keys", ".ssh/authorized_keys2"]
    for data in sshd_files(node, how).values():
        named += named_in(data, "authorizedkeysfile") + named_in(data, "authorizedprincipalsfile")
    files: dict[str, None] = {}
    for row in node.table("passwd"):
        for pattern in named if row[0] == account else ():
            parts = pattern.split("%%")
            for sign, value in (("%h", row[5]), ("%u", account), ("%U", row[2])):
                parts = [part.replace(sign, value) for part in parts]
            files[os.path.normpath(os.path.join(row[5], "%".join(parts)))] = None
    own = node.keys_of("authorized_keys")
    return [path for path in files if path not in own and os.path.isfile(path)]


# On the controller

OWNERSHIP = ("type", "mode", "owner", "group")


def authorized_key(task: Task) -> Iterator[Claim]:
    """ansible.posix.authorized_key: all keys of the file, so that an added one shows; which are its own."""
    path = task.result.get("keyfile") or task.args.get("path")
    if not path:
        raise Uncovered
    path, meant = posixpath.normpath(str(path)), "taken" if task.args.get("state") == "absent" else "own"
    keys = [shown_key(line) for line in str(task.args.get("key") or "").splitlines()]
    account = task.args.get("user")
    whose = {"account": str(account)} if account else {}
    yield Claim("authorized_keys", path, {}, {"own": [], "taken": [], meant: keys} | whose)
    yield Claim("file", path, {}, {"content": False}, OWNERSHIP)
    if account:
        yield Claim("authorized_keys", str(account))  # in other files that sshd reads


class AuthorizedKeys(Kind):
    """The keys of a file or an account."""

    def completed(self, claim: Claim) -> Claim:
        """Which keys are tasks' own; of an account, where sshd's settings are."""
        files = {} if claim.key.startswith("/") else FILES
        return replace(claim, how={"own": [], "taken": [], **files, **claim.how})

    def known_before(
        self, run: HostSeal, role: str, claim: Mapping[str, Any], found: Mapping[str, Any]
    ) -> Entry | None:
        """What was sealed of a file of keys while it was its account's, and no entry of its own.

        A key that is gone from there is not missed.
        """
        if not (account := claim["how"].get("account")):
            return None
        if (known := run.before(role, {**claim, "key": account, "aspects": None})) is None:
            return None
        keys = [key for key in found["keys"] if f"{claim['key']}: {key}" in known.want["keys"]]
        return known.model_copy(update={"want": {"keys": keys}, "how": {}})

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """New keys count where a task put them there; a task's key of old, as long as a task wants it.

        Of an account those count as well that were known in a file that is no entry of its own any more, and
        none is missed: no task put it there.
        """
        old, new, own = set(before.want["keys"]), set(entry.want["keys"]), set(entry.how["own"])
        given_up = set(before.how.get("own", ())) - own
        if account := not entry.key.startswith("/"):
            old |= keys_in_files(run, run.entries())
        strangers = {key for key in (new - old - own) | (new & given_up) if not run.is_way_in(key)}
        lost = set() if account else old - new - given_up - set(entry.how["taken"])
        if strangers or lost:
            run.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
        return entry.model_copy(update={"want": {"keys": sorted((new - strangers) | lost)}})

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Keys that somebody added."""
        for line in added(difference, "keys"):
            path, key = difference.key, line
            if not path.startswith("/"):
                path, _, key = line.partition(": ")
            found.added_keys.setdefault(path, []).append(key)


def key_files(entries: list[Entry]) -> list[Entry]:
    """The files of keys that are entries of their own."""
    return [entry for entry in entries if entry.kind == "authorized_keys" and entry.key.startswith("/")]


def keys_in_files(run: HostSeal, entries: list[Entry]) -> set[str]:
    """The keys that were sealed in such files, as an account shows them. Of tasks' own the way in alone."""
    known = ((file, key) for file in key_files(entries) for key in file.want["keys"])
    return {
        f"{file.key}: {key}"
        for file, key in known
        if key not in file.how.get("own", ()) or run.is_way_in(key)
    }


KINDS = (
    AuthorizedKeys(
        "authorized_keys",
        look_at_authorized_keys,
        {"keys": is_list},
        modules={"ansible.posix.authorized_key": authorized_key},
        always=("keys",),
        never_none=("keys",),
        list_aspect="keys",
        stands_alone=True,
        gathered=("own", "taken"),
        knows_others=True,
    ),
)
