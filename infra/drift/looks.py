"""One look at a node, and what the looks at several kinds of things share.

Travels to the node with `node.py`, `probe.py` and the looks at the kinds that are asked for, as one file.
Python 3.8 or newer, standard library only, and no module that is slow to import: on a clean node the start of
Python is what a scan costs.
"""

from __future__ import annotations

import os

from infra.drift.node import bytes_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than all the looking
    from collections.abc import Callable
    from typing import Any

TEXT_LIMIT_BYTES = 65536
GRACE_S: float = 20
"""So long all of a node's daemons together may take before none is asked a second time: the whole look has
its limit (ANSWER_LIMIT_S of infra/drift/trip.py)."""
LEFT_OVER = (".dpkg-dist", ".dpkg-new", ".dpkg-old", ".dpkg-tmp", ".ucf-dist", ".ucf-new", ".ucf-old")
"""Ends of the names of files that updates leave beside a changed one."""

try:
    from _sha2 import sha256 as sha256  # type: ignore[import-not-found,unused-ignore] # Python 3.12 and newer
except ImportError:
    try:
        from _sha256 import sha256 as sha256  # type: ignore[import-not-found,unused-ignore] # older ones
    except ImportError:
        from hashlib import sha256 as sha256  # the same, by way of OpenSSL: 5 ms to load


class Look:
    """One look at a node: what several entries share is read once."""

    def __init__(
        self, salt: str, mode: str, entries: list[Any], known: dict[str, list[str]] | None = None
    ) -> None:
        self.salt = salt.encode()
        self.mode = mode
        self.entries = entries
        self.known = known or {}
        self.patient = False
        """Whether this is the timer on the node, which asks what no scan has the time for."""
        self.grace_s = GRACE_S
        """What is left of it."""
        self.asks_anew = mode != "scan"
        """Whether nothing counts that the timer was told before."""
        self.want: dict[str, Any] = {}
        """What was sealed of the entry that is looked at; nothing while it is sealed."""
        self.cache: dict[str, tuple[Any, Exception | None]] = {}

    def keys_of(self, kind: str) -> list[str]:
        """The keys of all entries of a kind: those looked at, and those of which the request tells."""
        return [*self.known.get(kind, ()), *(entry[1] for entry in self.entries if entry[0] == kind)]

    def once(self, name: str, read: Callable[[], Any]) -> Any:
        """`read()`, the first time it is asked for under this name; errors are kept as well."""
        if name not in self.cache:
            try:
                self.cache[name] = (read(), None)
            except (OSError, ValueError) as problem:
                self.cache[name] = (None, problem)
        value, error = self.cache[name]
        if error is not None:
            raise error
        return value

    def digest(self, data: bytes) -> str:
        """A salted hash, so that what a short file says cannot be found by trying."""
        return str(sha256(self.salt + data).hexdigest()[:32])

    def table(self, name: str) -> list[list[str]]:
        """`/etc/passwd` and the like as lists of fields."""

        def read() -> list[list[str]]:
            return [line.split(":") for line in text_of("/etc/" + name).splitlines() if ":" in line]

        rows: list[list[str]] = self.once(name, read)
        return rows

    def name_of(self, table: str, number: int) -> str:
        """A user's or group's name; the number where there is none."""
        names = self.once("ids " + table, lambda: {row[2]: row[0] for row in reversed(self.table(table))})
        return str(names.get(str(number), number))

    def dpkg(self) -> bytes:
        """All that dpkg knows of packages, two empty lines before each."""
        data: bytes = self.once("dpkg", lambda: b"\n\n" + bytes_of("/var/lib/dpkg/status"))
        return data


def parent_change(key: str) -> float | None:
    """When the nearest directory above a missing path changed."""
    while key not in ("", "/"):
        key = os.path.dirname(key)
        if os.path.isdir(key):
            return os.stat(key).st_ctime
    return None


def shown_key(line: str) -> str:
    """A line of authorised keys with the key as its fingerprint, as `ssh-keygen -l` prints it."""
    import binascii

    words = line.split()
    for number, word in enumerate(words):
        try:
            raw = binascii.a2b_base64(word + "===") if word.startswith("AAAA") else b""
        except ValueError:
            raw = b""  # no key: sshd passes over the line
        if raw:
            digest = binascii.b2a_base64(sha256(raw).digest(), newline=False).decode()
            words[number] = "SHA256:" + digest.rstrip("=")
    return " ".join(words)
