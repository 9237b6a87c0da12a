"""module: whether a module of the kernel is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator

from infra.drift.kind import Claim, Found, How, Kind, Task, is_flag
from infra.drift.looks import Look


def look_at_module(node: Look, key: str, how: How) -> Found:
    """Whether it is loaded, or built in."""
    return {"loaded": os.path.isdir("/sys/module/" + key.replace("-", "_"))}


# On the controller


def kernel_module(task: Task) -> Iterator[Claim]:
    """modprobe: loaded or not, now and, with `persistent`, after a boot."""
    name, present = str(task.args["name"]), task.args.get("state", "present") == "present"
    yield Claim("module", name, {"loaded": present})
    if task.args.get("persistent") == "present":
        yield Claim("file", f"/etc/modules-load.d/{name}.conf")


KINDS = (
    Kind(
        "module",
        look_at_module,
        {"loaded": is_flag},
        modules={"community.general.modprobe": kernel_module},
    ),
)
