"""locale: whether a locale is generated."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from infra.drift.kind import Claim, Found, How, Kind, Task, is_flag
from infra.drift.looks import Look


def look_at_locale(node: Look, key: str, how: How) -> Found:
    """Whether it is in the archive of locales, or a directory of its own."""
    name, dot, code = key.partition(".")
    plain = name + dot + code.lower().replace("-", "")
    built = node.once("locales", built_locales)
    return {"available": plain in built or os.path.isdir("/usr/lib/locale/" + plain)}


def built_locales() -> set[str]:
    """The names in the archive of generated locales."""
    if not os.path.exists("/usr/lib/locale/locale-archive"):
        return set()
    with open("/usr/lib/locale/locale-archive", "rb") as handle:
        head = [int.from_bytes(handle.read(4), sys.byteorder) for _ in range(8)]
        handle.seek(head[5])  # struct locarhead of glibc: offset and length of its string table
        return set(handle.read(head[6]).decode("ascii", "replace").split("\0"))


# On the controller


def locales(task: Task) -> Iterator[Claim]:
    """community.general.locale_gen: generated locales, and the list they are generated from."""
    present = task.args.get("state", "present") == "present"
    names = task.args["name"]
    for name in [names] if isinstance(names, str) else names:
        yield Claim("locale", str(name), {"available": present})
    yield Claim("file", "/etc/locale.gen")


KINDS = (
    Kind(
        "locale",
        look_at_locale,
        {"available": is_flag},
        modules={"community.general.locale_gen": locales},
        stands_alone=True,
    ),
)
