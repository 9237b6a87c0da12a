"""What both programs ask Ceph by: commands to its monitors, and files that are written whole."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/ceph/causeway.json")
ADMIN = ("client.admin", "/etc/ceph/ceph.client.admin.keyring")
PATIENCE_S = 60
"""For a quorum, and for each command: a monitor that just started needs a second, a busy one more."""


class RefusedError(Exception):
    """Something that cannot be done, and what to do about it; with the status of the program that said so."""

    status = 0


class NotYetError(RefusedError):
    """The answer is not known at this moment, and will be."""


class OtherKeyError(RefusedError):
    """The cluster has another key of this identity, or does not know it."""


class Cluster:
    """A connection to the monitors in one identity's name."""

    def __init__(self, entity: str, keyring: str) -> None:
        import rados

        patience = {name: str(PATIENCE_S) for name in ("client_mount_timeout", "rados_mon_op_timeout")}
        conf = {"keyring": keyring, **patience}
        self._rados = rados.Rados(name=entity, conffile="/etc/ceph/ceph.conf", conf=conf)
        try:
            self._rados.connect()
        except rados.Error as error:
            kind = OtherKeyError if error.errno in (errno.EACCES, errno.EPERM) else RefusedError
            raise kind(
                f"the monitors do not answer {entity} ({error}): is there a majority, and is the key theirs?"
            ) from error

    def __call__(self, prefix: str, inbuf: bytes = b"", **fields: Any) -> Any:
        """The monitors' answer to a command, parsed where it is JSON; RefusedError with Ceph's own words."""
        return self._told(self._rados.mon_command, prefix, inbuf, fields)

    def mgr(self, prefix: str, **fields: Any) -> Any:
        """The active manager's answer: it knows what OSDs hold."""
        return self._told(self._rados.mgr_command, prefix, b"", fields)

    def _told(self, ask: Callable[..., Any], prefix: str, inbuf: bytes, fields: dict[str, Any]) -> Any:
        status, answer, said = ask(json.dumps({"prefix": prefix, "format": "json", **fields}), inbuf)
        if status:
            kind = NotYetError if status == -errno.EAGAIN else RefusedError
            raise kind(f"ceph {prefix}: {said or os.strerror(-status)}")
        try:
            return json.loads(answer)
        except ValueError:
            return answer.decode()

    def io(self, pool: str) -> Any:
        """A handle of a pool, for librbd."""
        return self._rados.open_ioctx(pool)

    def close(self) -> None:
        """Leave the cluster; without it a process ends with a warning of librados."""
        self._rados.shutdown()


@contextmanager
def cluster(entity: str = ADMIN[0], keyring: str = ADMIN[1]) -> Iterator[Cluster]:
    """A connection that ends."""
    found = Cluster(entity, keyring)
    try:
        yield found
    finally:
        found.close()


def run(*argv: str, stdin: str = "") -> str:
    """What a program prints; RefusedError with what it complained of."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word"]
        refused = RefusedError(f"{' '.join(argv[:3])} ended with {done.returncode}: {complaint[0]}")
        refused.status = done.returncode
        raise refused
    return done.stdout


def wait(what: str, ready: Callable[[], bool], patience_s: int = PATIENCE_S) -> None:
    """Ask until something is so; RefusedError when it is not in time."""
    deadline = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > deadline:
            raise RefusedError(f"{what} after {patience_s} s")
        time.sleep(0.5)


def settings() -> dict[str, Any]:
    """What role `ceph` left for the programs."""
    found: dict[str, Any] = json.loads(SETTINGS.read_text())
    return found


def entities(path: Path) -> dict[str, dict[str, Any]]:
    """A keyring: entity → `key`, and `caps` by daemon."""
    found: dict[str, dict[str, Any]] = {}
    current: dict[str, Any] = {}
    for line in map(str.strip, path.read_text().splitlines()):
        name, _, value = (part.strip() for part in line.partition("="))
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), {"key": "", "caps": {}})
        elif name == "key":
            current["key"] = value
        elif name.startswith("caps "):
            current["caps"][name[5:].strip()] = value.strip('"')
    return found
