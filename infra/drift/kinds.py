"""What each Ansible module makes true, as claims: the table from modules to kinds of facts.

A claim names a kind, a key and what the task itself reported. Which values hold is not decided here: the
probe reads them when the claim is sealed. A kind's `explain` says a difference in a sentence.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infra.drift.looks import shown_key

Value = Any
"""A JSON value: what the probe reports of one aspect."""


@dataclass(frozen=True)
class Task:
    """A finished task on one host: resolved module name, final arguments, result."""

    name: str
    module: str
    args: Mapping[str, Any]
    result: Mapping[str, Any]
    changed: bool = False
    handler: bool = False


@dataclass(frozen=True)
class Claim:
    """Something a task made true. `reported`: aspect → value that the task itself gave."""

    kind: str
    key: str
    reported: Mapping[str, Value] = field(default_factory=dict)
    how: Mapping[str, Value] = field(default_factory=dict)
    """What the probe must know beyond the key."""
    aspects: tuple[str, ...] | None = None
    """Restricts what is compared to these; None for all that the kind has."""


class Uncovered(Exception):  # noqa: N818 - not an error: the answer that no record can say this
    """The module is known, but what this call of it did cannot be told from its result."""


Recorder = Callable[[Task], Iterator[Claim]]
OWNERSHIP = ("mode", "owner", "group")
UNIT_FOLDERS = ("/etc/systemd/", "/run/systemd/")
"""Where somebody puts unit files that are no package's."""


def _path(task: Task) -> str:
    path = (
        task.result.get("dest") or task.result.get("path") or task.args.get("dest") or task.args.get("path")
    )
    if not path:
        raise Uncovered
    return posixpath.normpath(str(path))


def _owned(task: Task) -> dict[str, Value]:
    return {aspect: task.result[aspect] for aspect in OWNERSHIP if task.result.get(aspect)}


def content(task: Task) -> Iterator[Claim]:
    """A file whose text the task decides, wholly or in part."""
    path, result = _path(task), task.result
    if result.get("state") == "directory" or (result.get("src") and task.args.get("src", "").endswith("/")):
        raise Uncovered  # a whole tree: its files are not in the result
    if task.args.get("state") == "absent" and task.module.endswith("deb822_repository"):
        yield Claim("absent", path)
        return
    reported = _owned(task)
    if checksum := result.get("checksum"):
        reported["sha1"] = str(checksum)
    yield Claim("file", path, reported)
    asked = posixpath.normpath(str(task.args.get("dest") or task.args.get("path") or path))
    if asked != path and not path.startswith(asked + "/"):
        yield Claim("link", asked)  # written through a link, as with /etc/default/locale


def file_state(task: Task) -> Iterator[Claim]:
    """`file`: directories, links, absent things; the attributes of a file somebody else writes."""
    path, state = _path(task), task.result.get("state") or task.args.get("state") or "file"
    if state == "absent":
        yield Claim("absent", path)
    elif state == "link":
        target = task.result.get("src") or task.args.get("src")
        yield Claim("link", path, {"target": target} if target else {})
    elif state == "directory":
        if task.args.get("recurse"):
            raise Uncovered
        yield Claim("directory", path, _owned(task))
    else:
        yield Claim("file", path, _owned(task), {"content": False}, ("type", *OWNERSHIP))


def packages(task: Task) -> Iterator[Claim]:
    """apt, package: what is installed. A path, a pattern or an upgrade of everything says too little."""
    names = task.args.get("name") or task.args.get("package") or task.args.get("pkg") or []
    names = [names] if isinstance(names, str) else names
    if task.args.get("deb") or task.args.get("upgrade") not in (None, False, "no"):
        raise Uncovered
    installed = task.args.get("state", "present") not in ("absent", "removed")
    for name in names:
        text = str(name)
        name = re.split(r"[=<>/]", text)[0]
        if "*" in name:
            raise Uncovered
        pinned = {"pinned": True} if installed and text.removeprefix(name).startswith("=") else {}
        yield Claim("package", name, {"installed": installed}, pinned)


def selections(task: Task) -> Iterator[Claim]:
    """dpkg_selections: a hold, or none."""
    yield Claim("package", str(task.args["name"]), {"hold": task.args.get("selection") == "hold"})


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


def sysctl(task: Task) -> Iterator[Claim]:
    """ansible.posix.sysctl: the file that keeps the value, and the value in force."""
    file = str(task.args.get("sysctl_file") or "/etc/sysctl.conf")
    yield Claim("sysctl", str(task.args["name"]), {}, {"file": file})
    yield Claim("file", file)


def kernel_module(task: Task) -> Iterator[Claim]:
    """modprobe: loaded or not, now and, with `persistent`, after a boot."""
    name, present = str(task.args["name"]), task.args.get("state", "present") == "present"
    yield Claim("module", name, {"loaded": present})
    if task.args.get("persistent") == "present":
        yield Claim("file", f"/etc/modules-load.d/{name}.conf")


def mounts(task: Task) -> Iterator[Claim]:
    """ansible.posix.mount: the line in fstab and what is mounted."""
    yield Claim("mount", posixpath.normpath(str(task.args.get("path") or task.args["name"])))


def user(task: Task) -> Iterator[Claim]:
    """user: the account."""
    yield Claim("user", str(task.args["name"]), {"exists": task.args.get("state", "present") == "present"})


def group(task: Task) -> Iterator[Claim]:
    """group: the group and its members."""
    yield Claim("group", str(task.args["name"]), {"exists": task.args.get("state", "present") == "present"})


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
    yield Claim("file", path, {}, {"content": False}, ("type", *OWNERSHIP))
    if account:
        yield Claim("authorized_keys", str(account))  # in other files that sshd reads


def hostname(task: Task) -> Iterator[Claim]:
    """hostname: in force, and in /etc/hostname."""
    yield Claim("hostname", "hostname", {"live": str(task.args["name"])})


def timezone(_task: Task) -> Iterator[Claim]:
    """community.general.timezone: where /etc/localtime leads."""
    yield Claim("link", "/etc/localtime")


def locales(task: Task) -> Iterator[Claim]:
    """community.general.locale_gen: generated locales, and the list they are generated from."""
    present = task.args.get("state", "present") == "present"
    names = task.args["name"]
    for name in [names] if isinstance(names, str) else names:
        yield Claim("locale", str(name), {"available": present})
    yield Claim("file", "/etc/locale.gen")


def _all(recorder: Recorder, *modules: str) -> dict[str, Recorder]:
    return dict.fromkeys(modules, recorder)


MODULES: Mapping[str, Recorder] = {
    **_all(content, *(f"ansible.builtin.{name}" for name in (
        "copy", "template", "lineinfile", "blockinfile", "replace", "get_url", "assemble",
        "deb822_repository"))),
    **_all(content, "community.general.ini_file", "community.general.xml"),
    **_all(file_state, "ansible.builtin.file"),
    **_all(packages, "ansible.builtin.apt", "ansible.builtin.package"),
    **_all(selections, "ansible.builtin.dpkg_selections"),
    **_all(units, *(f"ansible.builtin.{name}" for name in ("systemd", "systemd_service", "service"))),
    **_all(sysctl, "ansible.posix.sysctl"),
    **_all(kernel_module, "community.general.modprobe"),
    **_all(mounts, "ansible.posix.mount"),
    **_all(user, "ansible.builtin.user"),
    **_all(group, "ansible.builtin.group"),
    **_all(authorized_key, "ansible.posix.authorized_key"),
    **_all(hostname, "ansible.builtin.hostname"),
    **_all(timezone, "community.general.timezone"),
    **_all(locales, "community.general.locale_gen"),
}  # fmt: skip
"""Resolved module name → what records it. Anything else governs what its result says under `governs`."""

COMMANDS = frozenset(f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script", "expect"))
"""Anything may come of these: reads when the task says `changed_when: false`, uncovered otherwise."""

NEUTRAL = {
    f"ansible.builtin.{name}"
    for name in (
        *("add_host", "assert", "async_status", "debug", "fail", "fetch", "find", "gather_facts", "getent"),
        *("group_by", "import_playbook", "import_role", "import_tasks", "include_role", "include_tasks"),
        *("include_vars", "meta", "package_facts", "pause", "ping", "service_facts", "set_fact", "set_stats"),
        *("setup", "slurp", "stat", "tempfile", "uri", "validate_argument_spec", "wait_for"),
        "wait_for_connection",
    )
}
"""Nothing on the node is different after these."""

ASPECTS: Mapping[str, tuple[str, ...]] = {
    "file": ("type", "digest", *OWNERSHIP, "immutable"),
    "directory": ("type", *OWNERSHIP),
    "link": ("type", "target"),
    "absent": ("type",),
    "listing": ("names",),
    "effective": ("output", "lines"),
    "package": ("installed", "version", "hold"),
    "unit": ("active", "enabled", "load", "reload_needed", "fragment", "dropins"),
    "sysctl": ("live", "kept"),
    "sysfs": ("value",),
    "check": ("output",),
    "module": ("loaded",),
    "mount": ("fstab", "mounted"),
    "interface": ("mtu_bytes", "up", "qdisc"),
    "route": ("route",),
    "nft": ("rules",),
    "user": ("exists", "uid", "gid", "home", "shell", "groups", "password"),
    "group": ("exists", "gid", "members"),
    "authorized_keys": ("keys",),
    "hostname": ("live", "kept"),
    "locale": ("available",),
}
"""Kind → what of it is sealed and compared. The probe has a function for each."""

# A directory whose meaning is the sum of its files.
LISTED = re.compile(
    r"/etc/(ssh/sshd_config\.d|sysctl\.d|security/limits\.d|apt/(apt\.conf|preferences|sources\.list)\.d|cron\.d"
    r"|modprobe\.d|modules-load\.d|sudoers\.d|systemd/system\.conf\.d|systemd/system/[^/]+\.d|profile\.d"
    r"|udev/rules\.d|systemd/network|tmpfiles\.d|logrotate\.d)"
)
EFFECTIVE: Mapping[str, Mapping[str, Value]] = {
    "/etc/ssh/sshd_config": {
        "key": "sshd -T",
        "inputs": ["/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"],
        "argv": ["sshd", "-T"],
        "lines": True,
        "include": ["include", "trustedusercakeys"],
        "package": "openssh-server",
    },
    "/etc/apt/apt.conf": {
        "key": "apt-config dump",
        "inputs": ["/etc/apt/apt.conf", "/etc/apt/apt.conf.d"],
        "argv": ["apt-config", "dump"],
        "package": "apt",
    },
    "/etc/chrony/": {
        "key": "chronyd -p",
        "inputs": ["/etc/chrony/chrony.conf", "/etc/chrony/conf.d", "/etc/chrony/sources.d"],
        "argv": ["chronyd", "-p", "-f", "/etc/chrony/chrony.conf"],
        "package": "chrony",
    },
    "/etc/systemd/system.conf": {
        "key": "systemd's defaults",
        "inputs": [
            "/etc/systemd/system.conf",
            "/etc/systemd/system.conf.d",
            "/usr/lib/systemd/system.conf.d",
        ],
        "argv": ["systemctl", "show"],
        "keep": ["Default"],
        "lines": True,
        "package": "systemd",
    },
}
"""Path prefix → the program that says what all files together mean, and the package that brings it.

`lines`: it does not say all of it; `include`: keywords behind which other files are named.
"""


def derived(claim: Claim) -> Iterator[Claim]:
    """The claim, and those that follow from where its file lies: the directory, the effective settings."""
    if claim.kind == "authorized_keys":
        names = () if claim.key.startswith("/") else ("inputs", "include")
        sshd = {name: EFFECTIVE["/etc/ssh/sshd_config"][name] for name in names}
        claim = replace(claim, how={"own": [], "taken": [], **sshd, **claim.how})
    yield claim
    if claim.kind not in ("file", "link", "absent"):
        return
    folder = posixpath.dirname(claim.key)
    if LISTED.fullmatch(folder):
        yield Claim("listing", folder)
    for prefix, command in EFFECTIVE.items():
        if claim.key.startswith(prefix):
            yield Claim("effective", command["key"], {}, {k: v for k, v in command.items() if k != "key"})


def claims_of(task: Task, declared: list[Mapping[str, Any]]) -> Iterator[Claim]:
    """All claims of a task. `declared`: what the task's `causeway_governs` says on top.

    Raises Uncovered when the task changes the node and nothing says what it governs.
    """
    stated = [*declared, *task.result.get("governs", ())]
    for item in stated:
        if item["kind"] not in ASPECTS:
            raise ValueError(f"governs: {item['kind']!r} is not one of {', '.join(ASPECTS)}")
        reported = {str(k): v for k, v in (item.get("want") or {}).items()}
        yield from derived(Claim(item["kind"], str(item["key"]), reported, item.get("how") or {}))
    if recorder := MODULES.get(task.module):
        for claim in recorder(task):
            yield from derived(claim)
    elif not stated and task.module not in NEUTRAL:
        raise Uncovered
