"""Network namespaces, addresses and routes, through iproute2.

Reading goes through `ip -j`, changes through one `ip -batch` per namespace: a process per change would cost
more than the change.
"""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import names

Record = dict[str, Any]
"""One object of `ip -j`'s answer."""


@contextmanager
def locked() -> Iterator[None]:
    """One change of the host's shared network at a time, over all processes and threads of this machine."""
    names.RUN_DIR.mkdir(parents=True, exist_ok=True)
    with (names.RUN_DIR / "network.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def exists(netns: str) -> bool:
    """Whether the namespace is really there: after a reboot only its file may be."""
    try:
        # All namespaces live in one kernel file system; a leftover file lies on another device.
        return names.netns_path(netns).stat().st_dev == Path("/proc/self/ns/net").stat().st_dev
    except FileNotFoundError:
        return False


def owner(netns: str) -> Record | None:
    """What the note of a namespace says: stack, kind, region, pool, node; None when nobody wrote one."""
    for marker in (names.RUN_DIR / "stacks").glob(f"*/netns/{netns}"):
        return {**_read_marker(marker), "stack": marker.parents[1].name}
    return None


def owned(stack: str) -> dict[str, Record]:
    """Every namespace a stack has made or was about to make, with its note."""
    folder = names.netns_marker(stack, "x").parent
    return {path.name: _read_marker(path) for path in sorted(folder.glob("*"))}


def _read_marker(path: Path) -> Record:
    try:
        note = json.loads(path.read_text())
    except (OSError, ValueError):  # killed while writing: the name alone still says that it is ours
        return {}
    return note if isinstance(note, dict) else {}


def add(stack: str, netns: str, note: Record) -> None:
    """Make a namespace of this stack unless it is there. Raises CausewayError when another stack owns it."""
    holder = owner(netns)
    if holder is not None and holder["stack"] != stack:
        raise CausewayError(
            f"the name {netns} is taken by the stack {holder['stack']}", "rename one of the two stacks"
        )
    marker = names.netns_marker(stack, netns)
    if holder is None and exists(netns):
        raise CausewayError(
            f"a network namespace {netns} stands that Causeway has not made",
            f"remove it with `ip netns del {netns}`, or rename the stack",
        )
    marker.parent.mkdir(parents=True, exist_ok=True)
    if not marker.exists():
        marker.write_text(json.dumps({**note, "checkout": str(names.CHECKOUT)}))
    if not exists(netns):
        names.netns_path(netns).unlink(missing_ok=True)
        run(["ip", "netns", "add", netns])
        batch(netns, ["link set lo up"])


def delete(stack: str, netns: str) -> None:
    """Remove a namespace of this stack with every interface in it; nothing happens when it is gone."""
    marker = names.netns_marker(stack, netns)
    if not marker.exists():
        return
    if exists(netns):
        run(["ip", "netns", "del", netns])
    names.netns_path(netns).unlink(missing_ok=True)
    marker.unlink()
    names.prune(marker.parent)


def inside(netns: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in the namespace's network, and in nothing else of it."""
    return ["nsenter", f"--net={names.netns_path(netns)}", "--", *argv]


def batch(netns: str | None, lines: Sequence[str]) -> None:
    """Apply `ip` commands in order, in a namespace or (None) on the host; stops at the first that fails."""
    if lines:
        run(
            ["ip", *_at(netns), "-batch", "-"],
            stdin="\n".join(lines) + "\n",
            hint="asked for: " + "; ".join(lines),
        )


def read(netns: str | None, *words: str) -> list[Record]:
    """What `ip -j` answers, e.g. `read(None, "-4", "route", "show")`."""
    answer = run(["ip", *_at(netns), "-j", *words])
    return [entry for entry in json.loads(answer or "[]") if entry]


def links(netns: str | None) -> dict[str, Record]:
    """The interfaces by name, each with its addresses (`addr_info`) and its kind."""
    return {entry["ifname"]: entry for entry in read(netns, "-d", "addr", "show")}


def addresses(link: Record) -> list[str]:
    """The IPv4 addresses of an interface as "address/prefix"."""
    return [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["family"] == "inet"]


def set_addresses(link: Record | None, device: str, wanted: str) -> list[str]:
    """The batch lines that leave an interface with this one IPv4 address."""
    present = addresses(link) if link else []
    lines = [f"addr del {address} dev {device}" for address in present if address != wanted]
    return lines if wanted in present else [*lines, f"addr add {wanted} dev {device}"]


def sysctl(netns: str | None, key: str, value: str) -> None:
    """Set a kernel parameter of a namespace's network, when it is not that already."""
    path = "/proc/sys/" + key.replace(".", "/")
    script = '[ "$(cat "$1")" = "$2" ] || echo "$2" > "$1"'
    argv = ["sh", "-c", script, "sh", path, value]
    run(argv if netns is None else inside(netns, argv), hint=f"set {key} = {value}")


def _at(netns: str | None) -> list[str]:
    return [] if netns is None else ["-n", netns]
