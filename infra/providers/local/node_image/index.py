"""Runs inside the new root of a node's image, by its own Python: cuts apt's lists to some packages.

index.py NAME…    keeps these, what is installed, and all that they depend on

The first `apt update` takes what was cut away and fetches all of it: apt itself would not, for to it a list
that is there is a list of the release that it belongs to. Who asks for a package that no list names any more
has to update, as on a machine whose lists are old.
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

LISTS = Path("/var/lib/apt/lists")
MARK = Path("/var/lib/apt/lists-are-cut")
HOOK = Path("/etc/apt/apt.conf.d/90node-image-lists")
UPDATE = f"[ ! -e {MARK} ] || rm -f {LISTS}/*_Packages {MARK}"
NEEDS = ("Depends", "Pre-Depends")
LIMIT_S = 60
"""For dpkg to tell what is installed: it takes milliseconds."""


def stanzas() -> "Iterator[tuple[Path, str]]":
    """Each package of each list."""
    for path in sorted(LISTS.glob("*_Packages")):
        for stanza in path.read_text().split("\n\n"):
            if stanza.strip():
                yield path, stanza


def fields(stanza: str) -> "dict[str, str]":
    """A stanza's fields of one line, by name."""
    return dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")


def named(relation: str) -> "list[str]":
    """The packages in a relation, alternatives among them, without versions and architectures."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", relation)


def reached(wanted: "list[str]") -> "set[str]":
    """What is kept: `wanted` and all that is needed by it; of what is provided, all that provide it."""
    needs, provided = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for _, stanza in stanzas():
        known = fields(stanza)
        name = known["Package"]
        needs[name].update(each for key in NEEDS for each in named(known.get(key, "")))
        for each in named(known.get("Provides", "")):
            provided[each].add(name)
    found, todo = set[str](), set(wanted)
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= (needs.get(name, set()) | provided.get(name, set())) - found
    return found


def main(wanted: "list[str]") -> None:
    """Rewrite the lists, and leave what takes them away with the next update."""
    query = ["dpkg-query", "--show", "--showformat=${Package}\\n"]
    installed = subprocess.run(query, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    kept = reached([*wanted, *installed.stdout.split()])
    lists = defaultdict[Path, list[str]](list)
    for path, stanza in stanzas():
        rows = lists[path]
        if fields(stanza)["Package"] in kept:
            rows.append(stanza.strip("\n") + "\n")
    for path, rows in lists.items():
        path.write_text("\n".join(rows))
    MARK.touch()
    HOOK.write_text(f'APT::Update::Pre-Invoke {{ "{UPDATE}"; }};\n')


if __name__ == "__main__":
    main(sys.argv[1:])
