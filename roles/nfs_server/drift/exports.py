"""exported: what the kernel's NFS server exports, beside what its files say; and what these files say.

`exportfs` can be told more than they do, and reads all of them: somebody's own are known from the seal.
"""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.effective import program, program_files
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, Live, in_force
from infra.drift.looks import Look
from infra.drift.node import text_of

ETAB = "/var/lib/nfs/etab"
"""What is exported, as exportfs(8) keeps it for the server."""
EXPORTS, MORE_EXPORTS = "/etc/exports", "/etc/exports.d"
EXPORT_OPTIONS = (
    *("ro", "rw", "sync", "async", "secure", "insecure", "crossmnt", "nocrossmnt", "hide", "nohide"),
    *("root_squash", "no_root_squash", "all_squash", "no_all_squash", "subtree_check", "no_subtree_check"),
)
EXPORT_VALUES = (
    *("sec=", "xprtsec=", "fsid=", "anonuid=", "anongid=", "mp=", "mountpoint=", "refer=", "replicas="),
)
"""Options of exports(5) that say who may what; a newer version may print more, which nobody has set."""
NOT_EXPORTED = "only in its files: "


def look_at_exported(node: Look, key: str, how: How) -> Found:
    """All that is in force, and what is not of what the files say."""

    def read() -> list[str]:
        now = exported(text_of(ETAB, ""))
        missing = [pair for pair in exports_in_files(node) if pair not in now]
        return [
            *(f"{NOT_EXPORTED}{path} {client}" for path, client in missing),
            *(f"in force: {path} {who}({now[path, who]})" for path, who in now),
        ]

    def is_whole(lines: list[str]) -> bool:
        """A server that starts again exports nothing for a moment."""
        missing = {line for line in lines if line.startswith(NOT_EXPORTED)}
        return missing <= set(node.want.get("differs") or ())

    return in_force(node, read, is_whole)


def exported(etab: str) -> dict[tuple[str, str], str]:
    """Path and client → the options in force that count."""
    found = {}
    for line in etab.splitlines():
        path, tab, rest = line.partition("\t")
        client, _, options = rest.rpartition("(")
        words = options.rstrip(")").split(",")
        if tab:
            found[path, client] = ",".join(
                word for word in words if word in EXPORT_OPTIONS or word.startswith(EXPORT_VALUES)
            )
    return found


def exports_in_files(node: Look) -> list[tuple[str, str]]:
    """Path and client of all that the files export (exports(5)): only names with this end are read."""
    files = program_files(node, {"inputs": [EXPORTS, MORE_EXPORTS]})
    texts = [
        data.decode("utf-8", "replace")
        for path, data in files.items()
        if path == EXPORTS or (path.endswith(".exports") and "/." not in path)
    ]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    return [pair for line in lines for pair in exports_of(line.partition("#")[0].strip())]


def exports_of(line: str) -> list[tuple[str, str]]:
    """Path and clients of one line; all the world where it names none."""
    if line[:1] == '"':
        path, _, rest = line[1:].partition('"')
    else:
        path, _, rest = line.replace("\t", " ").partition(" ")
    clients = [word.partition("(")[0] or "*" for word in rest.split() if word[0] != "-"]
    return [(path.replace(" ", "\\040"), client) for client in clients or ["*"]] if path else []


# On the controller

KINDS = (
    # What its unit reloads is `exportfs -r`: all that its files say, and nothing else.
    Live("exported", look_at_exported, LIVE_ASPECTS, **LIVE, unit="nfs-server.service", again="reload"),
    program("exports", EXPORTS, {"inputs": [EXPORTS, MORE_EXPORTS], "argv": [], "lines": True}),
)
