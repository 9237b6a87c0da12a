"""What tasks changed and nothing has sealed yet, noted while a playbook runs.

A run may be killed, or its seal may not reach the node. The next run changes nothing of that any more, and
would take our own work for somebody else's.
"""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from infra.drift.manifest import Entry, Manifest, RoleManifest, drift_dir, load_manifest

Change = tuple[str, str, str]
"""Role, kind and key."""


def journal_path(stack: str, host: str) -> Path:
    """A host's journal; there is none where everything was sealed."""
    return drift_dir(stack) / f"{host}.changed"


def note_changes(stack: str, host: str, changes: Collection[Change]) -> None:
    """Append what a task has just changed."""
    path = journal_path(stack, host)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a") as file:
        # Begins a line of its own also behind one that was cut off.
        file.write("\n" + "".join(json.dumps(change) + "\n" for change in changes))


def noted_changes(stack: str, host: str) -> set[Change]:
    """What was changed since it was last sealed. A line that a kill cut off is passed over."""
    try:
        lines = journal_path(stack, host).read_text().split("\n")[:-1]
    except FileNotFoundError:
        return set()
    changes = set()
    for line in filter(None, lines):
        with suppress(ValueError):
            role, kind, key = json.loads(line)
            changes.add((role, kind, key))
    return changes


def record_of(stack: str, host: str) -> Manifest | None:
    """A host's manifest, with what was changed and is not sealed: of a role that was killed, all there is.

    None where no role came. CausewayError for a manifest that cannot be read.
    """
    manifest, noted = load_manifest(stack, host), noted_changes(stack, host)
    return with_changes(manifest or Manifest(host=host), noted) if noted else manifest


def with_changes(manifest: Manifest, noted: Collection[Change]) -> Manifest:
    """A manifest with what is noted and not sealed, as entries without a value."""
    roles = dict(manifest.roles)
    sealed = {(role, entry.kind, entry.key) for role, part in roles.items() for entry in part.entries}
    for role, kind, key in sorted({*noted} - sealed):
        part, entry = roles.get(role, RoleManifest()), Entry(kind=kind, key=key, task="", want={})
        roles[role] = part.model_copy(update={"entries": [*part.entries, entry]})
    return manifest.model_copy(update={"roles": roles})


def forget_changes(stack: str, host: str, roles: Collection[str]) -> None:
    """Drop what is noted of roles that have left a host."""
    keep_changes(stack, host, {change for change in noted_changes(stack, host) if change[0] not in roles})


def keep_changes(stack: str, host: str, left: Collection[Change]) -> None:
    """Keep what is still not sealed."""
    path = journal_path(stack, host)
    path.unlink(missing_ok=True)
    if left:
        note_changes(stack, host, left)
