"""Runs in the builder at the end, by its own Python: refuses an image with what only one machine may know.

leaks.py ROOT    names the files below ROOT that hold a secret, and ends with status 1 where there are any

The programs of packages have test keys and examples among them, so what is looked at is where programs keep
what is theirs.
"""

import re
import stat
import sys
from pathlib import Path

PLACES = ("etc", "home", "opt", "root", "srv", "usr/local", "var")
LISTS = "var/lib/apt/lists"
MOST_BYTES = 1024**2
"""Keys and settings are small; what is larger is a program or its data."""
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
IN_URL = re.compile(rb"^(?!\s*(?:#|//)).*\b[a-z]+://[^\s/@\"']+:[^\s/@\"']+@", re.MULTILINE)
"""A user with a password, as for a proxy or a mirror."""
HASH = re.compile(rb"^[^:]+:[^:*!]", re.MULTILINE)
ANSWER = re.compile(rb"^Value: *\S", re.MULTILINE)
LOGIN = re.compile(rb"^\s*(?!#)\S.*\bpassword\b", re.MULTILINE)
HOLD = (
    ("etc/shadow", HASH, "a password"),
    ("etc/shadow-", HASH, "a password"),
    ("etc/gshadow", HASH, "a password"),
    ("var/cache/debconf/passwords.dat", ANSWER, "an answer to a package's question for a password"),
    ("etc/apt/auth.conf", LOGIN, "a login"),
    ("etc/apt/auth.conf.d/*", LOGIN, "a login"),
    ("root/.netrc", LOGIN, "a login"),
    ("home/*/.netrc", LOGIN, "a login"),
    ("root/.ssh/*", re.compile(rb"."), "who logs in here, or from here"),
    ("etc/ssh/ssh_host_*", re.compile(rb"."), "a machine's own key"),
    ("etc/machine-id", re.compile(rb"^[0-9a-f]{32}"), "a machine's own name"),
    ("var/lib/dbus/machine-id", re.compile(rb"^[0-9a-f]{32}"), "a machine's own name"),
)
"""What these files must not have."""


def leaks(root: Path) -> "dict[str, str]":
    """File → what it holds that has no place in an image."""
    found = dict[str, str]()
    for pattern, secret, what in HOLD:
        for file in sorted(root.glob(pattern)):
            if secret.search(content(file)):
                found[f"/{file.relative_to(root)}"] = what
    for place in PLACES:
        for file in sorted((root / place).rglob("*")):
            if not file.is_relative_to(root / LISTS) and (what := kept_in(content(file))):
                found.setdefault(f"/{file.relative_to(root)}", what)
    return found


def kept_in(text: bytes) -> str:
    """What a program keeps in a file that nobody else may know; "" where nothing is."""
    if PRIVATE_KEY.search(text):
        return "a private key"
    return "a password, in a URL" if b"\0" not in text and IN_URL.search(text) else ""


def content(file: Path) -> bytes:
    """Of a small file; nothing of a link, whose file is looked at where it lies, or of anything else."""
    known = file.lstat()
    return file.read_bytes() if stat.S_ISREG(known.st_mode) and known.st_size <= MOST_BYTES else b""


if __name__ == "__main__":
    if told := [f"{path} holds {what}" for path, what in leaks(Path(sys.argv[1])).items()]:
        sys.exit("; ".join(told))
