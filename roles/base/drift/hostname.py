"""hostname: the node's name, in force and after the next boot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.drift.kind import Claim, Found, How, Kind, Task, Value, is_text
from infra.drift.looks import Look
from infra.drift.node import text_of, words_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


def look_at_hostname(node: Look, key: str, how: How) -> Found:
    """The name in force and the one the next boot sets."""
    return {"live": words_of("/proc/sys/kernel/hostname"), "kept": text_of("/etc/hostname", "").strip()}


# On the controller


def hostname(task: Task) -> Iterator[Claim]:
    """hostname: in force, and in /etc/hostname."""
    yield Claim("hostname", "hostname", {"live": str(task.args["name"])})


class Hostname(Kind):
    """The node's name."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """The file as well."""
        return {} if task.args.get("name") is None else {"kept": str(task.args["name"])}

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A file that says another name: a mounted one cannot be replaced."""
        found.hostname = str(difference.expected.get("kept") or "")


KINDS = (
    Hostname(
        "hostname",
        look_at_hostname,
        {"live": is_text, "kept": is_text},
        modules={"ansible.builtin.hostname": hostname},
        stands_alone=True,
    ),
)
