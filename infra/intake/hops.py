"""Jump hosts as a list names them: OpenSSH's ProxyJump, and an inventory's arguments for ssh."""

import getopt
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from infra.intake.machine import word

HOP = re.compile(r"(?:ssh://)?(?:([^@\s]+)@)?(\[[^]\s]+]|[^:@\s[\]]+)(?::([0-9]{1,5}))?/?")
OPTIONS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"
"""Of ssh(1), as getopt(3) has them."""
KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)", re.DOTALL)
WITHOUT_A_HOST, HERE, USERS_OWN = "none", ("%h:%p", "[%h]:%p"), "%r"
NO_FILES = ("/dev/null", "none")
SAY = "a column or variable ssh_jump, or --jump, says it: [USER@]HOST[:PORT],…, the first one first"


@dataclass(frozen=True)
class Hop:
    """A jump host. Empty: the region's own user, port 22, and a host key that is not known yet."""

    address: str
    user: str = ""
    port: str = ""
    key: str = ""

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.user and f'{self.user}@'}{address}{self.port and f':{self.port}'}"


def hops(text: str) -> list[Hop]:
    """The jump hosts of `[USER@]HOST[:PORT],…`, the first one first. ValueError for what is none."""
    if text.strip().lower() in ("", WITHOUT_A_HOST):
        return []
    return [_hop(part.strip()) for part in text.split(",")]


def _hop(text: str) -> Hop:
    found = HOP.fullmatch(text)
    if found is None:
        raise ValueError(f"{word(text) or 'nothing'} is no jump host such as ada@bastion.example.org:2222")
    return Hop(found[2].strip("[]"), "" if found[1] == USERS_OWN else found[1] or "", found[3] or "")


@dataclass(frozen=True)
class Said:
    """What arguments for ssh say of the way: jump hosts, and the keys that these are shown."""

    hops: Sequence[Hop] = ()
    key_files: Sequence[str] = ()


def of_arguments(text: str) -> Said:
    """What `ansible_ssh_common_args` and the like say. ValueError for a way that cannot be declared."""
    options, rest = getopt.getopt(shlex.split(text), OPTIONS)
    if rest:
        raise ValueError(f"{word(rest[0])} is no option of ssh")
    return _way(options)


def _way(options: Sequence[tuple[str, str]]) -> Said:
    """Of several the first one holds, as with OpenSSH."""
    for keyword, value in _keywords(options):
        if keyword == "config" and value not in NO_FILES:
            raise ValueError(f"ssh is to read {word(value)}, where nobody looks for jump hosts here: {SAY}")
        if keyword == "proxyjump":
            return Said(hops(value))
        if keyword == "proxycommand":
            return Said() if value.lower() == WITHOUT_A_HOST else _of_command(value)
    return Said()


def _keywords(options: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for flag, value in options:
        if flag in ("-J", "-F"):
            yield ("proxyjump" if flag == "-J" else "config"), value
        elif flag == "-o":
            if (found := KEYWORD.fullmatch(value)) is None:
                raise ValueError(f"-o {word(value)} sets nothing")
            yield found[1].lower(), found[2].strip().strip('"')


def _of_command(command: str) -> Said:
    """Of a ProxyCommand that is `ssh -W %h:%p HOST`, which ProxyJump is as well."""
    program, *words = shlex.split(command) or [""]
    try:
        options, rest = getopt.gnu_getopt(words, OPTIONS)
    except getopt.GetoptError as error:
        raise ValueError(f"the ProxyCommand {word(command)}: {error}") from None
    flags = dict(reversed(options))
    if PurePath(program).name != "ssh" or flags.get("-W") not in HERE or len(rest) != 1:
        raise ValueError(f"the ProxyCommand {word(command)} is not `ssh -W %h:%p HOST`: {SAY}")
    before, last = _way(options), _hop(rest[0])
    user = last.user or flags.get("-l", "").removeprefix(USERS_OWN)
    keys = [value for flag, value in options if flag == "-i"]
    return Said(
        [*before.hops, Hop(last.address, user, last.port or flags.get("-p", ""))], [*before.key_files, *keys]
    )
