"""What tasks changed and nothing has sealed yet, noted while a playbook runs.

A run may be killed, or its seal may not reach the node. The next run changes nothing of that any more, and
would take our own work for somebody else's. What a task tried and failed at is noted apart: it may be changed
or not, so no seal goes by it, but with its role it leaves.
"""

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from infra.drift.manifest import Entry, Manifest, RoleManifest, drift_dir, load_manifest
from infra.files import write_private

Change = tuple[str, str, str]
"""Role, kind and key."""
TRIED = "tried"


def journal_path(stack: str, host: str) -> Path:
    """A host's journal; there is none where everything was sealed."""
    return drift_dir(stack) / f"{host}.changed"


def note_changes(stack: str, host: str, changes: Collection[Change], *, tried: bool = False) -> None:
    """Append what a task has just changed, or TRIED to."""
    path = journal_path(stack, host)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a") as file:
        # Begins a line of its own also behind one that was cut off.
        file.write("\n" + "".join(_line(change, tried) for change in changes))


def _line(change: Change, tried: bool) -> str:
    return json.dumps([*change, TRIED] if tried else change) + "\n"


def noted_changes(stack: str, host: str) -> set[Change]:
    """What was changed since it was last sealed."""
    return {change for change, tried in _noted(stack, host).items() if not tried}


def _noted(stack: str, host: str) -> dict[Change, bool]:
    """What was changed or tried → whether it was tried only. A line that a kill cut off is passed over."""
    try:
        lines = journal_path(stack, host).read_text().split("\n")[:-1]
    except FileNotFoundError:
        return {}
    noted: dict[Change, bool] = {}
    for line in filter(None, lines):
        with suppress(ValueError):
            role, kind, key, *more = json.loads(line)
            noted[role, kind, key] = more == [TRIED] and noted.get((role, kind, key), True)
    return noted


def record_of(stack: str, host: str) -> Manifest | None:
    """A host's manifest, with what is noted and not sealed: all there is of a role that failed or was killed.

    None where no role came. CausewayError for a manifest that cannot be read.
    """
    manifest, noted = load_manifest(stack, host), _noted(stack, host)
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
    keep_changes(stack, host, lambda change: change[0] not in roles)


def keep_changes(stack: str, host: str, is_left: Callable[[Change], bool]) -> None:
    """Keep what is still not sealed."""
    left = {change: tried for change, tried in _noted(stack, host).items() if is_left(change)}
    if left:
        write_private(journal_path(stack, host), "".join(_line(*noted) for noted in left.items()))
    else:
        journal_path(stack, host).unlink(missing_ok=True)
