"""unit: state, enablement and files of systemd's units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, Task, Uncovered, Value, added, is_flag, is_list, is_text
from infra.drift.looks import Look
from infra.drift.node import ask_systemd

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "FragmentPath", "DropInPaths",
    "StateChangeTimestamp",
)  # fmt: skip
SETTLED = {"reloading": "active", "refreshing": "active"}


def look_at_unit(node: Look, key: str, how: How) -> Found:
    """A unit's state, enablement and files; all units are asked for at once."""
    units = node.once("units", lambda: all_units(node.keys_of("unit")))
    found: Found = dict(units[key])
    if found["active"] == node.want.get("active", found["active"]):
        found["_since"] = None  # systemd remembers when the state changed, and nothing else
    return found


def all_units(units: list[str]) -> dict[str, Found]:
    """Unit → what systemd says of it."""
    asked = [(unit, "Unit", name) for unit in units for name in UNIT_PROPERTIES]
    asked += [(unit, "Service", "Type") for unit in units if unit.endswith(".service")]
    said = {(unit, name): value for (unit, _, name), value in zip(asked, ask_systemd(asked))}
    found = {}
    for unit in units:
        active, changed = said[unit, "ActiveState"], said[unit, "StateChangeTimestamp"]
        found[unit] = {
            "active": SETTLED.get(active, active),
            "enabled": said[unit, "UnitFileState"],
            "load": said[unit, "LoadState"],
            "reload_needed": said[unit, "NeedDaemonReload"],
            "fragment": said[unit, "FragmentPath"],
            "dropins": sorted(said[unit, "DropInPaths"] or ()),
            "_type": said.get((unit, "Type"), ""),
            "_since": changed / 1e6 if changed else None,
        }
    return found


# On the controller

FOLDERS = ("/etc/systemd/", "/run/systemd/")
"""Where somebody puts unit files that are no package's."""
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect")


def units(task: Task) -> Iterator[Claim]:
    """systemd, service: state and enablement. A call without a name only reloads definitions."""
    name, state = task.args.get("name") or task.args.get("service"), task.args.get("state")
    if task.args.get("scope", "system") != "system":
        raise Uncovered
    if not name:
        return
    reported: dict[str, Value] = {}
    if state:
        reported["active"] = "inactive" if state == "stopped" else "active"
    if task.args.get("enabled") is not None:
        reported["enabled"] = bool(task.args["enabled"])
    if task.args.get("masked") is not None:
        reported["masked"] = bool(task.args["masked"])
    aspects = ("enabled", "load", "reload_needed", "fragment", "dropins")
    unit = name if "." in str(name) else f"{name}.service"
    yield Claim("unit", unit, reported, {}, (("active", *aspects) if state else aspects))


class Unit(Kind):
    """A unit of systemd."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """systemd starts and enables nothing that is masked or not there."""
        runs = claim.reported.get("active") == "active" or claim.reported.get("enabled") is True
        return {"load": "loaded"} if runs else {}

    def shown_as(self, what: str) -> str:
        """A mask shows in the load state."""
        return "load" if what == "masked" else what

    def holds(self, what: str, value: Value, found: Mapping[str, Any]) -> bool:
        """Several states are enabled ones."""
        if what == "enabled":
            return bool((found.get("enabled") in ENABLED) == value)
        if what == "masked":
            return bool((found.get("load") == "masked") == value)
        return super().holds(what, value, found)

    def meaningless(self, found: Mapping[str, Any]) -> set[str]:
        """A unit that does one thing is over as soon as it has done it."""
        return {"active"} if found.get("_type") == "oneshot" else set()

    def allowed(self, entry: Entry) -> set[str]:
        """That systemd has read again what there is."""
        return {"reload_needed"} if entry.want.get("reload_needed") is False else set()

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """Files that no task wrote count for nothing, also where a task changed the unit."""
        if before.want == entry.want:
            return entry
        own = run.own(before, entry, turn)
        entry = _with_own_files(run, before, entry, turn.changed, own)
        return run.accounted(before, entry, turn, own | {"dropins", "fragment"})

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A mask, added files, a definition to be read again."""
        if difference.found.get("load") == "masked":
            found.run(f"unmasked {difference.key}", "systemctl", "unmask", difference.key)
            return
        fragment = difference.found.get("fragment")
        paths = added(difference, "dropins") + [fragment] * bool(fragment)
        ours = [str(path) for path in paths if str(path).startswith(FOLDERS)]
        found.added += ours
        if ours or difference.found.get("reload_needed"):
            found.restart.append(difference.key)


def _with_own_files(run: HostSeal, before: Entry, entry: Entry, restarted: bool, own: set[str]) -> Entry:
    """The unit without files that appeared beside or above it and that no task wrote.

    A restart, for whatever reason, loads them too, and forgets those that somebody took away.
    """
    governed = run.governed()
    old, new = set(before.want.get("dropins", ())), set(entry.want.get("dropins", ()))
    strangers = new - old - governed
    lost = set() if restarted else old - new - governed
    kept: dict[str, Any] = {"dropins": sorted(new - strangers | lost)} if strangers or lost else {}
    was, fragment = before.want.get("fragment"), str(entry.want.get("fragment"))
    foreign = fragment not in governed and (fragment.startswith(FOLDERS) or not restarted)
    masked = entry.want.get("load") == "masked" and (restarted or "load" in own)
    if was and fragment != was and foreign and not masked:
        strangers.add(fragment)
        kept["fragment"] = was
    if not kept:
        return entry
    if "active" in before.want:
        kept["active"] = entry.want.get("active", before.want["active"])
    run.not_repaired.append(f"{entry.key} is changed by {', '.join(sorted(strangers | lost))}")
    return entry.model_copy(update={"want": entry.want | kept})


KINDS = (
    Unit(
        "unit",
        look_at_unit,
        {
            "active": is_text,
            "enabled": is_text,
            "load": is_text,
            "reload_needed": is_flag,
            "fragment": is_text,
            "dropins": is_list,
        },
        modules=dict.fromkeys(
            (f"ansible.builtin.{x}" for x in ("systemd", "systemd_service", "service")), units
        ),
        always=("active", "enabled", "load", "dropins"),
        never_none=("dropins",),
        stands_alone=True,
    ),
)
