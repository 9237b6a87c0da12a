"""Notes which files of the checkout a process reads; Python imports it at its start (tests/declared.py).

For a step that declares what it reads. It knows of Python alone: what another program opens is not seen.
"""

import os
import sys

FILE, CHECKOUT = os.environ.get("CAUSEWAY_OPENED", ""), os.environ.get("CAUSEWAY_CHECKOUT", "")


def _watch() -> None:
    cache = f"{os.environ.get('PYTHONPYCACHEPREFIX') or '/-'}{CHECKOUT}/"
    inside, known = f"{CHECKOUT}/", set[str]()
    # Unbuffered, and each name in one write: several processes append to it.
    out = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - pathlib would follow links
        if path.startswith(cache):  # a module that is compiled already: its source is not opened
            folder, name = os.path.split(path.removeprefix(cache))
            path = f"{inside}{folder}/{name.partition('.')[0]}.py"
        if path.startswith(inside) and path not in known:
            known.add(path)
            os.write(out, os.fsencode(path.removeprefix(inside)) + b"\n")

    sys.addaudithook(note)


if FILE and CHECKOUT:
    _watch()
