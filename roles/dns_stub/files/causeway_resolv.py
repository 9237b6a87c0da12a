#!/usr/bin/python3
"""Puts this node's stub first in a resolv.conf, and the domains of our nodes first in its search list.

    causeway_resolv.py FILE DOMAIN…

Says so in a line where it had to change something.

The stub stands there twice: a question that it could not answer at that moment, as while a leader changes, is
asked again, for the next server would say that there is no such name. Of all servers the C library asks the
first three. Servers that are named there stay, for the day the stub does not answer. Domains stay, too, after
ours: one of the site's may have a wildcard, which would answer for a node. Written in place, for it may
be mounted.
"""

import re
import sys
from pathlib import Path

STUB = "nameserver 127.0.0.1"
OURS = re.compile(r"node\.[^.]+\.consul|nodes\.[^.]+\.internal")
"""Domains that an earlier run may have put there."""


def with_stub(text: str, domains: "list[str]") -> str:
    """What is to stand there. Of several search lists the last one counts, as for whoever reads the file."""
    lines = text.splitlines()
    lists = [line.split()[1:] for line in lines if is_search(line)]
    theirs = [domain for domain in (lists[-1] if lists else []) if not OURS.fullmatch(domain)]
    rest = [line for line in lines if line != STUB and not is_search(line)]
    return "\n".join([STUB, STUB, " ".join(["search", *domains, *theirs]), *rest]) + "\n"


def is_search(line: str) -> bool:
    """Whether it says in which domains to look for a bare name."""
    return line.split()[:1] in (["search"], ["domain"])


def main(file: str, *domains: str) -> None:
    """Write only what differs: every program that resolves names reads the file anew after that."""
    path = Path(file)
    had = path.read_text() if path.exists() else ""
    wanted = with_stub(had, list(domains))
    if wanted != had:
        path.write_text(wanted)
        print(f"{file} names the stub first now")


if __name__ == "__main__":
    main(*sys.argv[1:])
