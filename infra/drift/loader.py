"""Runs the probe on a node, compiled already where a seal has kept it so: compiling takes a third of a look.

Travels before the probe and its request, as the first of what `assembly.PYTHON` reads.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

MOST = 4
"""So many compiled probes stay: another Causeway or another set of roles has another."""


def serve(request: dict[str, Any], limit_s: float, packed: bytes, folder: str) -> None:
    """Answer the request by the probe, its source compressed. Without a folder nothing is kept.

    Only what changes a node anyway keeps something there: a scan reads.
    """
    path = f"{folder}/probe-{zlib.crc32(packed):08x}-{len(packed)}-{sys.hexversion:x}"
    code = kept(path) if folder else None
    if code is None:
        code = compile(zlib.decompress(packed), "<probe>", "exec")
        if folder and request["mode"] == "seal":
            keep(path, code)
    names: dict[str, Any] = {"__name__": "<probe>"}
    exec(code, names)  # noqa: S102 - as the first of what travels is run
    names["serve"](request, limit_s)


def kept(path: str) -> CodeType | None:
    """What was compiled before; None where it is not there, not whole, or somebody else's."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            data = file.read()
        whole = data[:4] == checksum(data[4:])
        code: CodeType | None = marshal.loads(data[4:]) if whole else None  # noqa: S302 - root wrote it
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return code


def keep(path: str, code: CodeType) -> None:
    """For the next look, in the place of the oldest; a node that has no room for it does without."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        data = marshal.dumps(code)
        with open(path + ".part", "wb") as file:
            file.write(checksum(data) + data)
        os.replace(path + ".part", path)
        there = [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith("probe-")]
        for old in sorted(there, key=os.path.getmtime)[:-MOST]:
            os.unlink(old)
    except OSError:
        return  # the next look compiles it once more


def checksum(data: bytes) -> bytes:
    """Four bytes that tell a whole file from a part of one."""
    return zlib.crc32(data).to_bytes(4, "big")
