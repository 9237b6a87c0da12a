"""What the services of a stack read as they start, and whether a scan sees that it changed.

What decides what a service does is found by watching it, not from memory: strace follows a node's systemd and
all that it starts, through the directories whose names they go through and the files that they open.
"""

import json
import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.integration.checkout import Checkout, init_of
from tests.patience import wait_for

MANIFEST = "/var/lib/causeway/manifest.json"
CALLS = "trace=open,openat,openat2,getdents64"
WENT_THROUGH = re.compile(r"^\d+ +getdents64\(\d+<(/[^>]*)>")
OPENED = re.compile(r'^\d+ +open(?:at2?)?\((?:AT_FDCWD<[^>]*>, )?"(/[^"]*)", (?!.*O_(?:PATH|DIRECTORY))')
SETTINGS = ("/etc/", "/usr/", "/root/", "/opt/")
"""The rest is data, of the kernel, of services and of people."""
PASSED_OVER = {
    "/etc/frr/vtysh.conf": "what FRR does is compared with its file, however it was told",
    "/etc/group": "a line counts by the members of mighty groups",
    "/etc/ld.so.cache": "no text",
    "/etc/localtime": "a link",
    "/etc/machine-id": "another one is another machine",
    "/etc/mtab": "the kernel's",
    "/etc/os-release": "says which system it is, and sets nothing",
    "/etc/passwd": "a line counts by its account",
    "/etc/shadow": "a line counts by its account",
    "/etc/ssh/ssh_host_": "another key is another machine",
    "/etc/ssl/certs/ca-certificates.crt": "a line counts by its certificate",
    "/usr/local/bin": "what goes before a package's program counts",
    "/usr/local/sbin": "what goes before a package's program counts",
    "/usr/share": "packages' data: neither code nor settings",
}
"""How paths begin of which a stray line or file says nothing, and why."""
LINES = {
    "/etc/apt/": 'Causeway::Stray "1";',
    "/etc/host.conf": "multi on",
    "/etc/hosts": "192.0.2.77 causeway-stray",
    "/etc/pam.d/": "session optional pam_permit.so",
    "/etc/services": "causeway-stray 1/tcp",
    "/etc/ssh/sshd_config": "MaxSessions 9",
}
"""What others read meanwhile has to be sound: how its path begins, and the line."""
LINE = "causeway_stray 1"
CODE = (".py", ".pm", ".so")
WATCH = ("causeway-drift-watch.timer", "causeway-drift-watch.service")
"""A look for drift reads everything."""
TIMERS = ("systemctl", "list-units", "--type=timer", "--state=active", "--plain", "--no-legend")
RESTART_S = 120
DETACHED_S = 30
"""For strace to let go of all that it follows: a moment, where it can."""
KEPT = "/root/causeway-kept"


@dataclass
class Read:
    """What was read of a node: directories as a whole, and files by their names."""

    folders: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def services(checkout: Checkout, nodes: list[str]) -> dict[str, list[str]]:
    """Node → services that roles govern and that run, and all timers; each on the first node that has it."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        roles = json.loads(checkout.on_node(node, "cat", MANIFEST))["roles"].values()
        units = {
            entry["key"]
            for role in roles
            for entry in role["entries"]
            if entry["kind"] == "unit" and entry["want"].get("active") == "active"
        }
        units |= set(timers(checkout, node))
        seen = {unit for others in found.values() for unit in others}
        found[node] = sorted(filter(is_tried, units - seen))
    return found


def timers(checkout: Checkout, node: str) -> list[str]:
    """The timers that are active on a node, also the system's own."""
    return [line.split()[0] for line in checkout.on_node(node, *TIMERS).splitlines()]


def is_tried(unit: str) -> bool:
    """Services, and timers but those of apt, which would bring other packages."""
    return unit not in WATCH and not unit.startswith("apt-") and unit.endswith((".service", ".timer"))


def restart(checkout: Checkout, node: str, units: list[str]) -> None:
    """Restart units one after the other; a timer's service runs once."""
    for unit in units:
        service, word = unit.replace(".timer", ".service"), "start" if unit.endswith(".timer") else "restart"
        command = f"systemctl reset-failed {service}; timeout {RESTART_S} systemctl {word} {service}"
        checkout.on_node(node, "sh", "-c", f"{command} || echo {service} ends with $?")


@contextmanager
def without_timers(checkout: Checkout, node: str) -> Iterator[None]:
    """While it lasts, nothing runs by a node's clock: what that reads would be taken for a service's."""
    stopped = timers(checkout, node)
    checkout.on_node(node, "systemctl", "stop", *stopped, WATCH[1])
    services = " ".join(unit.replace(".timer", ".service") for unit in stopped)
    states = ("sh", "-c", f"systemctl is-active {services} || true")
    try:
        wait_for(lambda: "activating" not in checkout.on_node(node, *states), "what timers began to end")
        yield
    finally:
        checkout.on_node(node, "systemctl", "start", *stopped)


def read_while(checkout: Checkout, node: str, act: Callable[[], object], log: Path) -> Read:
    """What systemd and all that it starts read meanwhile on a container node."""
    pid = init_of(f"cw-{checkout.stack}-{node}")
    argv = ("strace", "-f", "-y", "-z", "-s", "4096", "-e", CALLS, "-o", str(log), "-p", pid)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr
        attached = tracer.stderr.readline()
        try:
            assert "attached" in attached, attached
            act()
        finally:
            tracer.terminate()
            try:
                tracer.wait(DETACHED_S)
            except subprocess.TimeoutExpired:
                # It waits for a process that waits for a child that it holds: the kernel lets both go.
                tracer.kill()
            tracer.stderr.read()
    found = Read()
    for line in log.read_text(errors="replace").splitlines():
        for pattern, paths in ((WENT_THROUGH, found.folders), (OPENED, found.files)):
            if match := pattern.match(line):
                paths.add(os.path.normpath(match[1]))
    found.files -= found.folders
    return found


@dataclass
class Changed:
    """What was changed on a node behind everybody's back."""

    checkout: Checkout
    node: str
    strays: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)

    def change(self, read: Read) -> None:
        """Add a file to each directory that was read as a whole, and a line to each file of settings."""
        for folder in sorted(filter(counts, read.folders)):
            names = self.checkout.on_node(self.node, "ls", "-A", folder).splitlines()
            self.strays.append(stray_in(folder, names, len(self.strays)))
        self.edited = sorted(path for path in read.files if counts(path) and path.startswith("/etc/"))
        copies = [f"cp -p --parents {path} {KEPT}" for path in self.edited]
        lines = [f"echo {shlex.quote(line_for(path))} >>{path}" for path in (*self.strays, *self.edited)]
        self.on(f"mkdir -p {KEPT}", *copies, *lines)

    def undo(self) -> None:
        """Bring all of it back."""
        back = [f"cp -p {KEPT}{path} {path}" for path in self.edited]
        self.on(f"rm -f {' '.join(self.strays)}", *back, f"rm -rf {KEPT}")

    def missed(self, report: str) -> list[str]:
        """What the report of a scan does not name."""
        names = {path: PurePosixPath(path).name for path in self.strays} | {
            path: path for path in self.edited
        }
        return [path for path, name in names.items() if name not in report]

    def on(self, *commands: str) -> None:
        self.checkout.on_node(self.node, "sh", "-ec", "\n".join(commands))


def counts(path: str) -> bool:
    """Whether somebody could change what services do by this path."""
    return path.startswith(SETTINGS) and not path.startswith(tuple(PASSED_OVER))


def stray_in(folder: str, names: list[str], number: int) -> str:
    """A file that a service would take along, by the way others there are named."""
    ends = Counter(PurePosixPath(name).suffix for name in names)
    wanted = CODE if folder.startswith("/usr/") else [*ends, ".conf"]
    return f"{folder}/causeway_stray_{number}_{max(wanted, key=lambda end: ends[end])}"


def line_for(path: str) -> str:
    return next((line for start, line in LINES.items() if path.startswith(start)), LINE)
