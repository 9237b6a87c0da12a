"""One SSH trip to each machine, all at once: what to look for goes there, what was found comes back.

The trips need nothing of the stack but its declaration and the key that opens the machines. Nothing is
written there; what sshd, PAM and sudo log of any login is theirs.
"""

import asyncio
import shlex
import time
from collections.abc import Mapping
from typing import Any

from infra import ROOT
from infra.doctor.answer import read
from infra.drift.assembly import OPTIONS, packed_files, with_request
from infra.drift.trip import TripError, Trips, execute, failure_of
from infra.errors import sentence
from infra.ground.contract import Contract
from infra.ground.machine import Machine

FILES = (ROOT / "infra" / "drift" / "node.py", ROOT / "infra" / "doctor" / "look.py")
PYTHON = "/usr/bin/python3"
"""As ansible.cfg has it."""
AT_ONCE = 256
LOOK_LIMIT_S = 30
ANSWER_LIMIT_S = LOOK_LIMIT_S + 10
HOST_LIMIT_S = 75
"""For one machine in all, two attempts to connect included."""
MOST_BYTES = 2 << 20
# Without Python or sudo it says what a shell can. A csh takes it, too: one line, and no exclamation mark.
SHELL = (
    'p={python}; s=; [ "$(id -u)" -eq 0 ] || s="sudo -n"; r=yes; $s true </dev/null >/dev/null 2>&1 || r=no; '
    '[ $r = yes ] && $p -ISc "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1 && '
    "exec $s $p {options}; "
    'printf \'{{"root": "%s", "python": "%s", "host": "%s", "os": "%s"}}\\n\' $r '
    '"$($p -V 2>&1 </dev/null | grep \'^Python\' | tr -dc 0-9.)" "$(uname -n | tr -dc A-Za-z0-9.-)" '
    '"$(cat /etc/os-release 2>/dev/null | head -c 4096 | base64 | tr -d "\\n")"'
)
COMMAND = f"sh -c {shlex.quote(SHELL.format(python=PYTHON, options=OPTIONS))}"
Looked = Machine | TripError


def look_at(
    contract: Contract, known_hosts: str, requests: Mapping[str, Mapping[str, Any]]
) -> dict[str, Looked]:
    """Host → what was found there, or why nothing was. `requests`: host → what is asked of it."""
    return asyncio.run(_all(Trips(contract, known_hosts), requests))


async def _all(trips: Trips, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Looked]:
    found, todo = dict[str, Looked](), iter(requests.items())

    async def work() -> None:
        for host, request in todo:
            seen: list[Machine] = []
            error = await failure_of(_one(trips, host, request, seen), HOST_LIMIT_S)
            found[host] = error or seen[0]

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(requests)))))
    return {host: found[host] for host in requests}


async def _one(trips: Trips, host: str, request: Mapping[str, Any], seen: list[Machine]) -> None:
    async with await trips.open(host) as connection:
        began = time.time()
        data = with_request(packed_files(FILES), request, LOOK_LIMIT_S)
        said, complaint, status = await execute(connection, COMMAND, data, ANSWER_LIMIT_S, MOST_BYTES)
        ended = time.time()
    if not said:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {status}"]
        raise TripError(f"the look did not run: {last[0]}", reached=True)
    try:
        seen.append(read(said, began, ended))
    except ValueError as error:
        raise TripError(f"its answer makes no sense: {sentence(str(error))}", reached=True) from None
