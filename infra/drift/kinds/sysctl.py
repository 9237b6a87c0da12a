"""sysctl: a setting of the kernel, in force and after the next boot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.drift.kind import Claim, Found, How, Kind, Task, Value, is_text
from infra.drift.kinds.effective import program
from infra.drift.looks import Look
from infra.drift.node import text_of, words_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


def look_at_sysctl(node: Look, key: str, how: How) -> Found:
    """The value in force, and the one that the next boot sets from `how["file"]`."""
    path = setting_path(key)
    found: Found = {"live": words_of("/proc/sys/" + path)}
    if how.get("file"):
        kept = None
        for line in text_of(how["file"], "").splitlines():
            name, equals, value = line.partition("=")
            if equals and setting_path(name.strip().lstrip("-")) == path:
                kept = " ".join(value.split())
        found["kept"] = kept
    return found


def setting_path(key: str) -> str:
    """A sysctl's path below /proc/sys: what separates first separates throughout (sysctl.d(5))."""
    return key if "/" in key.partition(".")[0] else key.translate({ord("."): "/", ord("/"): "."})


# On the controller


def sysctl(task: Task) -> Iterator[Claim]:
    """ansible.posix.sysctl: the file that keeps the value, and the value in force."""
    file = str(task.args.get("sysctl_file") or "/etc/sysctl.conf")
    yield Claim("sysctl", str(task.args["name"]), {}, {"file": file})
    yield Claim("file", file)


class Sysctl(Kind):
    """A setting of the kernel."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """The file, and the value in force where the task sets it."""
        if task.module != "ansible.posix.sysctl" or task.args.get("value") is None:
            return {}
        value = " ".join(str(task.args["value"]).split())
        sets = task.args.get("sysctl_set") in (True, "yes", "true")
        return {"kept": value} | ({"live": value} if sets else {})

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """The value in force: many tasks write the file only."""
        if difference.expected.get("live") is not None:
            found.sysctls[difference.key] = str(difference.expected["live"])


KINDS = (
    Sysctl(
        "sysctl",
        look_at_sysctl,
        {"live": is_text, "kept": is_text},
        modules={"ansible.posix.sysctl": sysctl},
        knows_others=True,
        stands_alone=True,
    ),
    program(  # what the next boot sets, from all files that it reads (sysctl.d(5))
        "sysctl's files",
        "/etc/sysctl",
        {
            "inputs": [
                "/etc/sysctl.conf",
                *(f"/{place}/sysctl.d" for place in ("etc", "run", "usr/local/lib", "usr/lib")),
            ],
            "argv": [],
            "lines": True,
            "shipped": True,
        },
    ),
)
