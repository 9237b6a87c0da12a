"""One SSH trip to each machine, all at once: what to look for goes there, what was found comes back.

The trips need nothing of the stack but its declaration and the key that opens the machines. Nothing is
written there; what sshd, PAM and sudo log of any login is theirs.
"""

import asyncio
import shlex
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from infra import ROOT
from infra.doctor.answer import read
from infra.drift.assembly import OPTIONS, packed_files, with_request
from infra.drift.trip import TripError, Trips, execute, failure_of, nonsense
from infra.ground.contract import Contract
from infra.ground.machine import Machine
from infra.ground.sudo import Become, ready

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
    "{begin}p={python}; r=yes; e=$({attempt} 2>&1 >/dev/null) || r=no; "
    '[ $r = yes ] && $p -ISc "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1 && '
    "{{ {look}; exit; }}; "
    'printf \'{{"root": "%s", "python": "%s", "host": "%s", "os": "%s", "sudo": "%s"}}\\n\' $r '
    '"$($p -V 2>&1 </dev/null | grep \'^Python\' | tr -dc 0-9.)" "$(uname -n | tr -dc A-Za-z0-9.-)" '
    '"$(cat /etc/os-release 2>/dev/null | head -c 4096 | base64 | tr -d "\\n")" '
    '"$(printf %s "$e" | head -c 4096 | base64 | tr -d "\\n")"'
)
Looked = Machine | TripError


def command(becoming: Become) -> str:
    """The look as one command for any login shell."""
    begin, attempt, look = becoming.script(f"$p {OPTIONS}")
    return f"sh -c {shlex.quote(SHELL.format(begin=begin, python=PYTHON, attempt=attempt, look=look))}"


def look_at(
    contract: Contract, known_hosts: str, requests: Mapping[str, Mapping[str, Any]]
) -> dict[str, Looked]:
    """Host → what was found there, or why nothing was. `requests`: host → what is asked of it."""
    ready(contract, requests)
    return asyncio.run(_all(Trips(contract, known_hosts), requests))


def try_sudo(contract: Contract, known_hosts: str, hosts: Collection[str]) -> dict[str, TripError]:
    """Host → why its sudo does not take the password, which is tried once; not those that do not answer.

    Nor those that are not asked any more, once one has refused it.
    """
    ready(contract, hosts)
    return asyncio.run(_try_all(Trips(contract, known_hosts), hosts))


async def _try_all(trips: Trips, hosts: Collection[str]) -> dict[str, TripError]:
    refused, gate = dict[str, TripError](), asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> None:
        async with gate:
            error = await failure_of(_try(trips, host), HOST_LIMIT_S)
        if error and error.reached:
            refused[host] = error

    await asyncio.gather(*map(one, hosts))
    return {host: refused[host] for host in hosts if host in refused}


async def _try(trips: Trips, host: str) -> None:
    becoming = trips.becoming(host)
    async with await trips.open(host) as connection:
        await trips.require_sudo(connection, host)
        if becoming.proof.refused_by:
            return
        command, data = becoming.command("echo"), becoming.ahead.encode()
        said, complaint, status = await execute(connection, command, data, ANSWER_LIMIT_S, MOST_BYTES)
    if not said:
        raise TripError(trips.cause(host, complaint) or f"exit status {status}", reached=True)


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
        becoming = trips.becoming(host)
        complaint_of_sudo = await trips.prove(connection, host)
        if complaint_of_sudo:  # what can be seen without root is looked at, and sudo given no second guess
            becoming = replace(becoming, source="")
        began = time.time()
        data = becoming.ahead.encode() + with_request(packed_files(FILES), request, LOOK_LIMIT_S)
        said, complaint, status = await execute(
            connection, command(becoming), data, ANSWER_LIMIT_S, MOST_BYTES
        )
        ended = time.time()
    if not said:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {status}"]
        raise TripError(f"the look did not run: {last[0]}", reached=True)
    try:
        machine = read(said, began, ended)
        if not machine.root:
            becoming.note_refusal(machine.sudo)
        seen.append(machine.model_copy(update={"sudo": complaint_of_sudo}) if complaint_of_sudo else machine)
    except ValueError as error:
        raise nonsense("its answer", said, error) from None
