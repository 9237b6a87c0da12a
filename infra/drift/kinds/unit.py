"""unit: state, enablement and files of systemd's units."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, Task, Uncovered, Value, added, is_flag, is_list, is_text
from infra.drift.looks import Look
from infra.drift.node import ask_systemd, bytes_of, text_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "FragmentPath", "DropInPaths",
    "StateChangeTimestamp",
)  # fmt: skip
STOPPED = ("T", "t")
"""States of processes that do not run until somebody lets them (proc_pid_stat(5))."""
SETTLED = {"reloading": "active", "refreshing": "active"}
MOVING = {"activating": 3, "deactivating": 3, "inactive": 0.3}
"""For how long a scan waits for a unit in such a state that is to be active: it may be started again."""
SETTING_UP = ("(", "systemd-executo")
"""How systemd's own processes begin their names that are about to become a unit's program."""
SETTING_UP_S, MOMENT_S = 3, 0.05
"""How long a scan waits for such a process, and how often it looks."""
PACKAGED = ("/usr/lib/systemd/", "/lib/systemd/")
"""Where packages have their units; files elsewhere are a role's, and compared as such, or are strangers."""
AS_PACKAGED = "as its package brought it"
DPKG_INFO = "/var/lib/dpkg/info/"
LIMITS = {
    **{"Max cpu time": "LimitCPU", "Max file size": "LimitFSIZE", "Max data size": "LimitDATA"},
    **{"Max stack size": "LimitSTACK", "Max core file size": "LimitCORE", "Max resident set": "LimitRSS"},
    **{"Max processes": "LimitNPROC", "Max open files": "LimitNOFILE", "Max locked memory": "LimitMEMLOCK"},
    **{"Max address space": "LimitAS", "Max file locks": "LimitLOCKS"},
}
"""What proc_pid_limits(5) calls a limit → what systemd does."""
UNLIMITED = (1 << 64) - 1
AS_SET = "as set"


def unmask(*words: str) -> tuple[str, ...]:
    """The command that unmasks a unit; `words` are systemctl's."""
    return ("sh", "-c", UNMASK, "unmask", *words)


def look_at_unit(node: Look, key: str, how: How) -> Found:
    """A unit's state, enablement and files; all units are asked for at once."""
    units = node.once("units", lambda: settled_units(node))
    found: Found = dict(units[key])
    if found["active"] == node.want.get("active", found["active"]):
        found["_since"] = None  # systemd remembers when the state changed, and nothing else
    if node.mode == "seal" or "halted" in node.want:
        there = processes(found.pop("_group"))
        found["halted"] = sorted({process["name"] for process in there if process["stopped"]})
        found["running"] = running(node, key, there)
    if node.mode != "seal" and "contents" not in node.want:
        return found  # sealed by an older Causeway
    files = [path for path in (found["fragment"], *found["dropins"]) if path and path.startswith(PACKAGED)]
    owners = how.get("sealed") or owners_of(node, files)
    lines = [f"{path} {content_of(node, path, owners.get(path, ''))}" for path in files]
    found.update(contents=sorted(lines), _inputs={path: owners.get(path, "") for path in files})
    return found


def processes(group: str) -> list[dict[str, Any]]:
    """What proc_pid_stat(5) tells of each process of a unit's control group, the oldest first."""
    base = "/sys/fs/cgroup" if os.path.exists("/sys/fs/cgroup/cgroup.procs") else "/sys/fs/cgroup/systemd"
    found = []
    for top, _, names in os.walk(base + group) if group else ():
        frozen = "cgroup.events" in names and "frozen 1" in text_of(top + "/cgroup.events", "")
        for number in text_of(top + "/cgroup.procs", "").split():
            process = told_of(int(number))
            if process:
                process["stopped"] = frozen or process["state"] in STOPPED
                found.append(process)
    return sorted(found, key=lambda process: (process["started"], process["number"]))


def told_of(number: int) -> dict[str, Any] | None:
    """What proc_pid_stat(5) tells of a process; None once it has ended."""
    name, _, rest = text_of(f"/proc/{number}/stat", "").rpartition(")")
    fields = rest.split()
    if not name:
        return None
    told = {"number": number, "name": name.partition("(")[2], "started": int(fields[19])}
    return {**told, "state": fields[0], "nice": fields[16], "policy": fields[38]}


def running(node: Look, unit: str, there: list[dict[str, Any]]) -> list[str]:
    """With what priority, on which CPUs and within which limits a unit's first process runs.

    With `AS_SET` where that is what systemd starts it with. A scan compares with what was sealed, and where
    that differs asks systemd: an update may bring other settings.
    """
    sealed: list[str] = node.want.get("running") or []
    if not there or (node.mode != "seal" and not sealed):
        return sealed
    try:
        lines = lines_of_process(begun(there[0]))
    except OSError:  # it has just ended
        return sealed
    if node.mode != "seal" and lines == [line for line in sealed if line != AS_SET]:
        return sealed
    if not is_set_so(unit, lines):
        return lines
    return [*lines, AS_SET] if node.mode == "seal" else sealed


def begun(process: dict[str, Any]) -> dict[str, Any]:
    """A process once it is the unit's program: systemd may have made it just now, and set nothing yet."""
    until = time.monotonic() + SETTING_UP_S
    while process["name"].startswith(SETTING_UP) and time.monotonic() < until:
        time.sleep(MOMENT_S)
        again = told_of(process["number"])
        if again is None:
            break
        process = again
    return process


def lines_of_process(process: dict[str, Any]) -> list[str]:
    """Its priority, scheduling policy, CPUs, and limits (soft and hard)."""
    cpus = os.sched_getaffinity(process["number"])
    said = "all" if cpus == os.sched_getaffinity(1) else ",".join(map(str, sorted(cpus)))
    lines = [f"nice {process['nice']}", f"policy {process['policy']}", f"cpus {said}"]
    return lines + limit_lines(process["number"])


def limit_lines(number: int) -> list[str]:
    """A process's limits as systemd calls them, soft and hard."""
    rows = [
        (LIMITS.get(row[:25].strip()), row[25:].split())
        for row in text_of(f"/proc/{number}/limits").splitlines()
    ]
    return [f"{name} {words[0]} {words[1]}" for name, words in rows if name]


def is_set_so(unit: str, lines: list[str]) -> bool:
    """Whether systemd starts a service so, as far as it may: in some containers it can raise no limit.

    A program may itself raise a soft limit up to the hard one.
    """
    values, most = values_of(lines), values_of(limit_lines(1))
    asked = [(unit, "Service", "Nice"), (unit, "Service", "CPUSchedulingPolicy")]
    limits = [name for name in values if name.startswith("Limit")]
    asked += [(unit, "Service", f"{name}{soft}") for name in limits for soft in ("Soft", "")]
    nice, policy, *numbers = ask_systemd(asked)
    if [[str(nice)], [str(policy)], ["all"]] != [values["nice"], values["policy"], values["cpus"]]:
        return False
    for name, soft, hard in zip(limits, numbers[::2], numbers[1::2]):
        if None in (soft, hard):
            return False
        has, allowed = [list(map(number_of, of[name])) for of in (values, most)]
        if has[1] not in (hard, min(hard, allowed[1])) or has[0] < min(soft, has[1]):
            return False
    return True


def values_of(lines: list[str]) -> dict[str, list[str]]:
    """What stands behind the first word of each line."""
    return {line.split()[0]: line.split()[1:] for line in lines}


def number_of(text: str) -> int:
    """A limit as systemd tells it."""
    return UNLIMITED if text == "unlimited" else int(text)


def content_of(node: Look, path: str, owner: str) -> str:
    """A packaged file's hash, where it is not as its package brought it: an update is no difference."""
    data = bytes_of(path)
    if is_brought(node, path, data, owner):
        return AS_PACKAGED
    now = owners_of(node, [path]).get(path, "")  # an update may have moved it to another package
    return AS_PACKAGED if now != owner and is_brought(node, path, data, now) else node.digest(data)


def is_brought(node: Look, path: str, data: bytes, owner: str) -> bool:
    """Whether a package brought this content; also by the path it had before /usr was merged."""
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore] # without OpenSSL, which loads slowly

    if not owner or not os.path.exists(DPKG_INFO + owner):
        return False
    known = node.once("owner " + owner, lambda: b"\n" + bytes_of(DPKG_INFO + owner))
    start = b"\n" + md5(data).hexdigest().encode() + b"  "
    return any(start + name.encode() + b"\n" in known for name in (path[1:], path[1:].replace("usr/", "", 1)))


def owners_of(node: Look, paths: list[str]) -> dict[str, str]:
    """Path → the name of dpkg's file with its package's checksums. All are read, once, while it seals."""

    def read() -> dict[str, bytes]:
        names = sorted(name for name in os.listdir(DPKG_INFO) if name.endswith(".md5sums"))
        return {name: bytes_of(DPKG_INFO + name) for name in names}

    found = {}
    for path in paths:
        ends = [b"  " + name.encode() + b"\n" for name in (path[1:], path[1:].replace("usr/", "", 1))]
        for name, sums in node.once("owners", read).items():
            if any(end in sums for end in ends):
                found[path] = name
    return found


def settled_units(node: Look) -> dict[str, Found]:
    """The units as systemd has them; those that are to be active and are on their way, a moment later."""
    wanted = {entry[1]: entry[3].get("active") for entry in node.entries if entry[0] == "unit"}
    found, began = all_units(list(wanted)), time.monotonic()
    while node.mode != "seal":
        took_s, awaited = time.monotonic() - began, [unit for unit in wanted if wanted[unit] == "active"]
        moving = [unit for unit in awaited if took_s < MOVING.get(found[unit]["active"], 0)]
        if not moving:
            break
        time.sleep(MOMENT_S)
        found.update(all_units(moving))
    return found


def all_units(units: list[str]) -> dict[str, Found]:
    """Unit → what systemd says of it; of itself without a name: each connection costs it 1.5 ms."""
    asked = [("", "Manager", "Environment")]
    asked += [(unit, "Unit", name) for unit in units for name in UNIT_PROPERTIES]
    for name in ("Type", "ControlGroup"):
        asked += [(unit, "Service", name) for unit in units if unit.endswith(".service")]
    said = {(unit, name): value for (unit, _, name), value in zip(asked, ask_systemd(asked))}
    found: dict[str, Found] = {"": {"environment": said["", "Environment"]}}
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
            "_group": said.get((unit, "ControlGroup")) or "",
            "_since": changed / 1e6 if changed else None,
        }
    return found


# On the controller

FOLDERS = ("/etc/systemd/", "/run/systemd/")
"""Where somebody puts unit files that are no package's."""
DEFINITIONS = tuple(f"{folder}system/" for folder in FOLDERS)
MEANT = ("contents", "halted", "running")
"""Aspects that are said in other words."""
REINSTALL = (
    *("apt-get", "install", "--reinstall", "--yes", "--quiet", "--no-install-recommends"),
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"),
)
UNMASK = """
for unit; do :; done
of() { systemctl show --property="$1" --value "$unit"; }
names=" $(of Names) "
stopped=
for alias in $(find /etc/systemd/system -maxdepth 1 -type l -lname "*/$unit" -printf '%f '); do
  case $names in *" $alias "*) continue ;; esac
  [ "$(of ActiveState)" != active ] || stopped=$unit
done
[ -z "$stopped" ] || systemctl stop "$stopped"
systemctl unmask "$@"
ended=$?
[ -z "$stopped" ] || systemctl start "$stopped"
exit $ended
"""
"""Unmasks a unit, the last argument. A masked unit may have lost another name that it had (sshd.service of
ssh.service). As it gets it back, systemd 257 may forget that its daemon runs: a second one is started, fails,
and takes away what the first one needs, so that nobody gets in by SSH. Such a daemon is stopped meanwhile."""
RESUME = 'systemctl thaw "$1"; systemctl kill --signal=SIGCONT "$1"'
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
    aspects = ("enabled", "load", "reload_needed", "fragment", "dropins", "contents", "halted", "running")
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
        good = {"reload_needed": False, "halted": []}
        allowed = {what for what, value in good.items() if entry.want.get(what) == value}
        return allowed | {"running"} if AS_SET in (entry.want.get("running") or ()) else allowed

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """Files that no task wrote count for nothing, also where a task changed the unit."""
        if before.want == entry.want:
            return entry
        own = run.own(before, entry, turn)
        entry = _with_sealed_contents(run, before, entry)
        entry = _with_own_files(run, before, entry, turn.changed, own)
        return run.accounted(before, entry, turn, own | {"dropins", "fragment", "contents"})

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A mask, added files, a packaged file that was edited, a definition to be read again."""
        if difference.found.get("load") == "masked":
            runtime = ["--runtime"] * (difference.found.get("enabled") == "masked-runtime")
            found.run(f"unmasked {difference.key}", *unmask(*runtime, difference.key))
            return
        fragment = difference.found.get("fragment")
        paths = added(difference, "dropins") + [fragment] * bool(fragment)
        ours = [str(path) for path in paths if str(path).startswith(FOLDERS)]
        found.added += ours
        edited = [line.split()[0] for line in added(difference, "contents")]
        for package in sorted({_package_of(manifest, difference.key, path) for path in edited} - {""}):
            found.run(f"had {package} installed again, of which files were edited", *REINSTALL, package)
        if difference.found.get("halted"):
            # Before all else: a script that ends daemons (FRR's) waits two minutes for one that is stopped.
            resumed = (f"let {difference.key} run on", "sh", "-c", RESUME, "resume", difference.key)
            found.run(*resumed, first=True)
            found.run(f"had {difference.key} restarted", "systemctl", "restart", difference.key)
        elif difference.found.get("running"):
            found.run(f"had {difference.key} restarted", "systemctl", "restart", difference.key)
        if ours or edited or difference.found.get("reload_needed"):
            found.restart.append(difference.key)

    def reads(self, path: str) -> bool:
        """A task that starts a timer has systemd read the file of the service that it starts, too."""
        return path.startswith(DEFINITIONS)

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """Of packaged files their paths: what is in them says nothing."""
        plain = {aspect: value for aspect, value in found.items() if aspect not in MEANT}
        said = [super().explain(expected, plain)] if plain else []
        if "halted" in found:
            said.append(f"is active, and stopped: {', '.join(found['halted'] or ()) or 'nothing any more'}")
        if "running" in found:
            sealed = set(expected.get("running") or ())
            now = [line for line in found["running"] or () if line not in sealed]
            said.append(f"runs with {', '.join(now) or 'what it is set to'}")
        if "contents" in found:
            sealed = set(expected.get("contents") or ())
            edited = [line.split()[0] for line in found["contents"] or () if line not in sealed]
            said.append(f"edited: {', '.join(edited)}" if edited else "its packaged files are other ones")
        return "; ".join(said)


def _package_of(manifest: Manifest, unit: str, path: str) -> str:
    """The package that brought a unit's file; empty where none is known."""
    parts = (entry for part in manifest.roles.values() for entry in part.entries)
    sums = (
        entry.how.get("sealed", {}).get(path, "")
        for entry in parts
        if (entry.kind, entry.key) == ("unit", unit)
    )
    return str(next(filter(None, sums), "")).removesuffix(".md5sums")


def _with_sealed_contents(run: HostSeal, before: Entry, entry: Entry) -> Entry:
    """The unit with its packaged files as they were sealed: no task writes them, and updates keep them so."""
    if "contents" not in before.want or "contents" not in entry.want:
        return entry
    old, new = (dict(line.split(" ", 1) for line in each.want["contents"]) for each in (before, entry))
    edited = [path for path in new if path in old and new[path] not in (old[path], AS_PACKAGED)]
    if not edited:
        return entry
    run.not_repaired.append(f"{entry.key}: {', '.join(edited)} was edited")
    lines = sorted(f"{path} {old[path] if path in edited else new[path]}" for path in new)
    return entry.model_copy(update={"want": entry.want | {"contents": lines}})


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
            "contents": is_list,
            "halted": is_list,
            "running": is_list,
        },
        modules=dict.fromkeys(
            (f"ansible.builtin.{x}" for x in ("systemd", "systemd_service", "service")), units
        ),
        always=("active", "enabled", "load", "dropins"),
        never_none=("dropins",),
        stands_alone=True,
        knows_others=True,
    ),
)
