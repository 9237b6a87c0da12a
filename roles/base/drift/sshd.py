"""sshd's settings, as it has them from all its files and those that these include."""

from __future__ import annotations

import os

from infra.drift.kind import Found, How
from infra.drift.kinds.effective import files_below, lines_of, program, settings_of
from infra.drift.looks import Look
from infra.drift.node import bytes_of

SSHD_OWN = "/etc/ssh/sshd_config.d/00-causeway.conf"
SSHD_PASSWORDS = ("passwordauthentication", "kbdinteractiveauthentication", "permitrootlogin")
"""Of what the role's own file says nothing where logins by password are kept as they are."""


def look_at_sshd(node: Look, key: str, how: How) -> Found:
    """What sshd makes of its files."""
    files = sshd_files(node, how)
    found = settings_of(node, how, files)
    own = bytes_of(SSHD_OWN).lower() if SSHD_OWN in files else b"passwordauthentication"
    if b"passwordauthentication" in own:
        return found
    return {
        what: [line for line in value if not line.rpartition(": ")[2].lower().startswith(SSHD_PASSWORDS)]
        if what in ("output", "lines")
        else value
        for what, value in found.items()
    }


def sshd_files(node: Look, how: How) -> dict[str, bytes]:
    """The files at sshd's inputs, and those that they name with one of the `include` keywords."""

    def read() -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        todo = [path for start in how["inputs"] for path in files_below(start)]
        while todo:
            path = todo.pop(0)
            if path not in files:
                files[path] = bytes_of(path)
                words = [word for name in how.get("include", ()) for word in named_in(files[path], name)]
                todo += [found for word in words for found in matching(os.path.join("/etc/ssh", word))]
        return files

    files: dict[str, bytes] = node.once(f"sshd {how['inputs']} {how.get('include')}", read)
    return files


def named_in(data: bytes, keyword: str) -> list[str]:
    """The words behind a keyword of sshd_config(5), wherever it stands."""
    words = []
    for line in lines_of(data):
        line = line.replace('"', "")
        if line[: len(keyword)].lower() == keyword and line[len(keyword) : len(keyword) + 1] in (" ", "="):
            words += line[len(keyword) :].lstrip(" =").split()
    return words


def matching(pattern: str) -> list[str]:
    """The files that a pattern of the shell names."""
    folder, _, name = pattern.rpartition("/")
    first, star, last = name.partition("*")
    paths = [pattern]
    if any(sign in folder + first + last for sign in "*?["):
        from glob import glob  # slow to load, and for the patterns that are in use not needed

        paths = glob(pattern)
    elif star:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        paths = [f"{folder}/{x}" for x in names if x.startswith(first) and x.endswith(last) and x[0] != "."]
    return sorted(path for path in paths if os.path.isfile(path))


# On the controller

FILES: How = {
    "inputs": ["/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"],
    "include": ["include", "trustedusercakeys"],
}
"""Where its settings begin, and the keywords behind which other files are named."""
KINDS = (
    program(
        "sshd -T",
        "/etc/ssh/sshd_config",
        {**FILES, "argv": ["sshd", "-T"], "lines": True, "package": "openssh-server"},
        look=look_at_sshd,
        folders=(r"/etc/ssh/sshd_config\.d",),
    ),
)
