"""How a command becomes root on a host: the one place that says it, and that knows a password for sudo.

Three ways: the login is root; sudo asks for nothing; sudo asks for a password. Where that comes from the
declaration says: a secret of the stack, or whoever sits at the terminal, who is asked once. It is kept in
memory that has no name in any file system (memfd_create(2)) and ends with the process that asked. Its
children find it by `CAUSEWAY_SUDO`, which names that memory and holds nothing.

On a host it is the first line of a command's standard input, and stands in no command and no environment. A
shell there takes that line and has sudo try it once, with nothing behind it that sudo could take for a second
guess. Only then has it sudo run the program, on the password, an empty line, and the rest of the input. As
root, lines are thrown away up to the empty one, so that a sudo that asks for nothing after all does not hand
the password to the program. Timestamps are neither used nor made (`-k`).

A password is for many hosts, whose account may be a central one that a few refusals lock. So one host tries
it alone, until one has taken it; and once one has refused it, no other is sent it. What is known of that is
in memory like the passwords' (`CAUSEWAY_SUDO_PROVEN`), so that it holds for all that a command starts, also
Ansible, which forks a process for each task and host. A lock on that memory says whose turn it is.
"""

import fcntl
import getpass
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.errors import HARMFUL, CausewayError, one_line
from infra.ground.contract import Contract
from infra.ground.secrets import GIVEN
from infra.process import run
from infra.stack import secret_file

HANDED = "CAUSEWAY_SUDO"
"""Path of the memory that has the passwords: `{stack: {source: password}}` as JSON."""
PROVEN = "CAUSEWAY_SUDO_PROVEN"
"""Path of the memory that has what is known of them, a JSON object a line; written to at its end only."""
ASKED, SECRET = "asked-", "secret-"
"""What a source begins with; the rest is the user who is asked for, or the secret's name."""
MOST_BYTES = 511
"""PAM_MAX_RESP_SIZE of Linux-PAM is 512, with the zero at the end."""
REFUSED = "causeway: sudo refused"
REFUSED_STATUS = 77
NO_STACK, NO_SECRET = "no stack named", "not found for stack"
"""What Pulumi says of a stack, and of a value of its configuration, that is not there."""
ASKS = "a password is required"
"""What sudo says where it may not ask (`-n`)."""

TRY = 'printf "%s\\n" "$k" | LC_ALL=C sudo -k -S -p "" true'
"""Whether sudo takes the password, of which there is one only."""
SKIP = 'while IFS= read -r l && [ -n "$l" ]; do :; done; exec "$@"'
FEED = '{{ printf "%s\\n\\n" "$k"; exec cat; }} | sudo -k -S -p "" sh -c {skip} sh {command}'
READ = "IFS= read -r k; "
PROMPT = "causeway asks: "
TOOK, FREE, NOT = "took", "free", "refused"
TRIAL = (
    f'{READ}if e=$(printf "%s\\n" "$k" | LC_ALL=C sudo -k -S -p "{PROMPT}" true 2>&1 >/dev/null); then '
    f'e=$(printf "%s\\n" "$e" | grep -v "^sudo: "); if [ -n "$e" ]; then echo {TOOK}; else echo {FREE}; fi; '
    f'else printf "{NOT}\\t%s\\n" "$(printf %s "$e" | head -c 4096 | tr "\\n" "\\t")"; fi'
)
"""The password tried, and one line on what came of it: a sudo that asked for it has shown a prompt."""
BROKEN = re.compile(
    r"must be owned by|no valid sudoers|(syntax|parse) error|do not exist in the|unknown u(id|ser)"
)
"""What sudo says where it asks nobody: that machine's own trouble."""
TRIAL_LIMIT_S = 30
TURN_S = 0.02
"""How often a host looks whether it is its turn."""
_lock = threading.RLock()
_kept: dict[str, dict[str, str]] = {}
_memory: list[int] = []
_proven: list[int] = []


@dataclass
class Proof:
    """What is known of one password: whether a host has taken it, which one has refused it."""

    of: tuple[str, str]
    """Stack and source."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Of the one host that tries it while nobody knows; among processes a lock on the memory is."""
    taken: bool = False
    refused_by: str = ""
    others: str = "no other machine was asked"
    read_at: float = 0.0

    @property
    def known(self) -> bool:
        """Whether nothing is to be tried by one host alone any more."""
        return self.taken or bool(self.refused_by)

    def read(self) -> "Proof":
        """The same with what other processes know; not oftener than hosts look whether it is their turn."""
        now = time.monotonic()
        if now - self.read_at >= TURN_S:
            self.read_at = now
            for line in _told():
                if (line["stack"], line["source"]) == self.of:
                    anew = not line["taken"] and not line["by"]
                    self.taken = line["taken"] or (self.taken and not anew)
                    self.refused_by = line["by"] or ("" if anew else self.refused_by)
                    self.others = line["others"]
        return self

    def tell(self) -> None:
        """Have other processes know it."""
        stack, source = self.of
        line = {"stack": stack, "source": source, "taken": self.taken, "by": self.refused_by}
        with suppress(OSError, KeyError):  # whoever had the memory has ended, or nobody has
            file = os.open(os.environ[PROVEN], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(file, f"{json.dumps({**line, 'others': self.others})}\n".encode())
            finally:
                os.close(file)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether it is our turn, in this process and among all that share the memory."""
        if not self.turn.acquire(blocking=False):
            yield False
            return
        try:
            with _memory_locked() as mine:
                self.read_at = 0.0  # whoever had it before has just said what came of it
                yield mine
        finally:
            self.turn.release()


_proofs: dict[tuple[str, str], Proof] = {}


@dataclass(frozen=True)
class Become:
    """How commands become root on one host."""

    stack: str
    host: str
    user: str
    source: str = ""
    """Where sudo's password comes from; empty where it asks for none."""

    @classmethod
    def on(cls, contract: Contract, host: str) -> "Become":
        """On a host of the contract."""
        region = contract.regions[contract.region_of(host)]
        return cls(contract.stack, host, region.ssh_user, region.sudo_source)

    @property
    def ahead(self) -> str:
        """What goes to the command's standard input before its own. CausewayError where that is not known.

        One that a host has refused is sent to none by this process: another guess may lock the account.
        """
        if not self.source:
            return ""
        if self.proof.refused_by:
            raise CausewayError(
                f"sudo on {self.proof.refused_by} has refused the password of {self.user} before;"
                f" {self.proof.others}"
            )
        return f"{password(self.stack, self.source)}\n"

    @property
    def proof(self) -> Proof:
        """What is known of the password, which other hosts may have, too."""
        of = (self.stack, self.source)
        with _lock:
            return _proofs.setdefault(of, Proof(of)).read()

    @property
    def trial(self) -> str:
        """A shell's words that try the password, for `learn`; any login shell takes them."""
        return f"sh -c {shlex.quote(TRIAL)}"

    def turns(self) -> Generator[bool, None, None]:
        """True: try the password now (`trial`, `learn`). False: another host does, so wait and go on.

        It ends at once where nothing is to be tried. Close it: the others wait for that. Take it only once
        the host answers: they would wait for one that is off.
        """
        while self.source and not self.proof.known:
            with self.proof.alone() as mine:
                if mine:
                    if not self.proof.known:
                        yield True
                    return
            yield False

    def learn(self, said: str) -> str:
        """sudo's complaint, of what a trial said; empty where there is none.

        A host that asks for no password, or whose sudo is not fit for one, tells nothing of it.
        """
        word, _, complaint = said.strip().partition("\t")
        if word == TOOK:
            proof = self.proof
            proof.taken = True
            proof.tell()
        if word != NOT:
            return ""
        complaint = complaint.replace(PROMPT, "").replace("\t", "\n").strip() or "sudo: it said nothing"
        self.note_refusal(complaint)
        return complaint

    def prove(self, ask: Callable[[str, str], str]) -> str:
        """Try the password, unless that is done; sudo's complaint, or nothing.

        `ask`: command and standard input → output. What it raises for a host that does not answer is raised.
        """
        if not self.source or self.proof.known:
            return ""
        ask("true", "")
        with closing(self.turns()) as turns:
            for is_mine in turns:
                if is_mine:
                    return self.learn(ask(self.trial, self.ahead))
                time.sleep(TURN_S)
        return ""

    def command(self, command: str, *, proven: bool = False) -> str:
        """A shell's words, as root; any login shell takes the result.

        `proven`: the password was tried there by whoever calls, and is not tried apart from the command.
        """
        if not self.source:
            return command if self.user == "root" else f"sudo -n {command}"
        begin, attempt, run = self.script(command)
        # Put together there, so that no error that shows the command looks like this one.
        refuse = f'{{ printf "%s refused\\n" "causeway: sudo" >&2; exit {REFUSED_STATUS}; }}'
        first = "" if proven else f"{attempt} >/dev/null || {refuse}; "
        return f"sh -c {shlex.quote(begin + first + run)}"

    def script(self, command: str) -> tuple[str, str, str]:
        """Parts for a script of sh: what comes first, what tells whether sudo lets the user, the command."""
        if self.source:
            return READ, TRY, FEED.format(skip=shlex.quote(SKIP), command=command)
        way = 's=; [ "$(id -u)" -eq 0 ] || s="sudo -n"; '
        return way, "LC_ALL=C $s true </dev/null", f"exec $s {command}"

    def refusal(self, complaint: str) -> str | None:
        """Why sudo did not let the user, of what a command said; None where it is not sudo's doing."""
        if not self.source or REFUSED not in complaint:
            return None
        self.note_refusal(complaint)
        return self.in_words(complaint)

    def note_refusal(self, complaint: str) -> None:
        """Send it to no host any more, if it is the password that this one complained about."""
        if self.source and not self._unfit(complaint) and not (proof := self.proof).refused_by:
            if proof.taken:
                proof.others = "no further machine is asked"
            proof.refused_by = self.host
            proof.tell()

    def in_words(self, complaint: str) -> str:
        """What sudo's complaint (in English) means."""
        if unfit := self._unfit(complaint):
            return unfit
        said = [line for line in re.split(r"\n| / ", complaint) if line.startswith("sudo: ")]
        why = f" ({one_line(said[-1], 120)})" if said else ""
        once = f"sudo there does not take the password of {self.user}; it was tried once{why}"
        return f"{once}; {self.proof.others}" if self.proof.refused_by == self.host else once

    def _unfit(self, complaint: str) -> str:
        """Why no password would do there; empty where it is the password."""
        if "you must have a tty" in complaint:
            return f"sudo there wants a terminal (requiretty), which is not supported: {no_tty(self.user)}"
        if "not in the sudoers" in complaint or "not allowed to" in complaint:
            return f"{self.user} may not run every command by sudo there"
        if "not found" in complaint:
            return "there is no sudo"
        if broken := BROKEN.search(complaint):
            return f"sudo there does not work, and took no password ({broken[0]})"
        return ""


def no_tty(user: str) -> str:
    """The line of sudoers that lets a user do without a terminal."""
    return f"Defaults:{user} !requiretty"


def source_of(user: str, secret: str | None) -> str:
    """Where the password of a user comes from, as the contract has it."""
    return f"{SECRET}{secret}" if secret else f"{ASKED}{user}"


def ready(contract: Contract, hosts: Iterable[str] | None = None) -> None:
    """Have all passwords that these hosts (or all) need: before the first is asked, not among their answers.

    CausewayError where one cannot be had.
    """
    names = contract.regions if hosts is None else {contract.region_of(host) for host in hosts}
    wanted = dict[str, list[str]]()
    for name in names:
        if source := contract.regions[name].sudo_source:
            wanted.setdefault(source, []).append(name)
    get_ready(contract.stack, wanted)


def get_ready(stack: str, wanted: Mapping[str, Iterable[str]]) -> None:
    """The same by sources: source → what it is for."""
    with _lock:
        for source, places in wanted.items():
            if _known(stack, source) is None:
                _keep(stack, source, _obtain(stack, source, places))


def carry_over(before: Contract, now: Contract) -> None:
    """For an `up`, which first asks machines as the last one left them: a region's password is the one now.

    Where sudo asks for none now, any will do. CausewayError where that of a region that leaves is not there.
    """
    for name, region in before.regions.items():
        source = region.sudo_source
        if not source or _known(before.stack, source) is not None:
            continue
        if name not in now.regions:
            get_ready(before.stack, {source: (name,)})
        else:
            new = now.regions[name].sudo_source
            with _lock:
                _keep(before.stack, source, password(now.stack, new) if new else "none")


def password(stack: str, source: str) -> str:
    """A password that was made ready here or by whoever started this; else the stack's file of the secret.

    CausewayError where there is neither: nobody is asked from here.
    """
    found = _known(stack, source)
    if found is None and source.startswith(SECRET):
        found = _from_file(stack, source.removeprefix(SECRET))
    if found is None:
        raise _missing(stack, source)
    return checked(found, source)


def checked(text: str, source: str) -> str:
    """A password as sudo can be given it. CausewayError, which does not repeat it, for one that cannot be."""
    if not text or HARMFUL.search(text) or "\t" in text or "\n" in text or len(text.encode()) > MOST_BYTES:
        raise CausewayError(
            f"the password for sudo ({_name(source)}) is empty, or has characters that no password has",
            hint=f"one line without control characters, at most {MOST_BYTES} bytes",
        )
    return text


def _obtain(stack: str, source: str, places: Iterable[str]) -> str:
    if source.startswith(SECRET):
        return checked(_from_secret(stack, source.removeprefix(SECRET)), source)
    if not sys.stdin.isatty():
        raise _missing(stack, source)
    question = f"password of {source.removeprefix(ASKED)} for sudo ({', '.join(places)}): "
    return checked(getpass.getpass(question), source)


def _from_secret(stack: str, name: str) -> str:
    """As the stack's configuration has it, which is newer than the file that `up` wrote.

    That file will do only where Pulumi does not know the stack: else it may have a password of before.
    """
    try:
        words = ("config", "get", f"causeway:{name}", "--stack", stack, "--non-interactive")
        return run(["pulumi", "-C", str(ROOT), *words]).removesuffix("\n")
    except CausewayError as error:
        if NO_SECRET in error.message:
            raise _missing(stack, f"{SECRET}{name}") from None
        if NO_STACK not in error.message:
            raise
        found = _from_file(stack, name)
        if found is None:
            raise _missing(stack, f"{SECRET}{name}", "Pulumi does not know stack {stack} yet") from None
        return found


def _from_file(stack: str, name: str) -> str | None:
    try:
        return secret_file(stack, f"{GIVEN}{name}").read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _known(stack: str, source: str) -> str | None:
    """What this process has, else one above it: its memory is gone when it has ended."""
    if source in _kept.get(stack, {}):
        return _kept[stack][source]
    try:
        with open(os.environ[HANDED], encoding="utf-8") as memory:  # noqa: PTH123 - a descriptor of another process
            found = json.load(memory)[stack][source]
    except (KeyError, OSError, ValueError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _keep(stack: str, source: str, found: str) -> None:
    """Keep a password, also for what this process starts from now on; nothing is known of it yet."""
    share()
    Proof((stack, source)).tell()
    _kept.setdefault(stack, {})[source] = found
    if not _memory:
        _memory.append(os.memfd_create("causeway-sudo"))
        above = os.environ.get(HANDED)
        os.environ[HANDED] = f"/proc/{os.getpid()}/fd/{_memory[0]}"
        _take_over(above)
    data = json.dumps(_kept).encode()
    os.ftruncate(_memory[0], 0)
    os.pwrite(_memory[0], data, 0)


def share() -> None:
    """Have this process and what it starts from now on know the same of passwords; by the memory of whoever
    started it, where there is one."""
    with _lock:
        if not Path(os.environ.get(PROVEN, "")).is_file():
            _proven.append(os.memfd_create("causeway-sudo-proven"))
            os.environ[PROVEN] = f"/proc/{os.getpid()}/fd/{_proven[-1]}"


def _told() -> list[dict[str, Any]]:
    """What the memory has, the oldest first; nothing where there is none."""
    try:
        return [json.loads(line) for line in Path(os.environ[PROVEN]).read_bytes().splitlines()]
    except (KeyError, OSError, ValueError):
        return []


@contextmanager
def _memory_locked() -> Iterator[bool]:
    """Whether no other process has its turn; the lock ends with a process that is killed."""
    try:
        file = os.open(os.environ[PROVEN], os.O_RDWR | os.O_CLOEXEC)
    except (KeyError, OSError):
        yield True
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        mine = False
    else:
        mine = True
    try:
        yield mine
    finally:
        os.close(file)


def _take_over(above: str | None) -> None:
    """What a process above has as well: children look at one memory only."""
    try:
        with open(above or "", encoding="utf-8") as memory:  # noqa: PTH123 - likewise
            for stack, known in json.load(memory).items():
                for source, found in known.items():
                    _kept.setdefault(stack, {}).setdefault(source, found)
    except (OSError, ValueError, AttributeError):
        return


def _missing(stack: str, source: str, why: str = "stack {stack} has no secret {name} yet") -> CausewayError:
    if source.startswith(SECRET):
        name = source.removeprefix(SECRET)
        return CausewayError(
            f"the password for sudo is not there: {why.format(stack=stack, name=name)}",
            hint=f"./run exec causeway secret {name} {stack}, then ./run up {stack}",
        )
    user = source.removeprefix(ASKED)
    return CausewayError(
        f"sudo wants the password of {user}, and there is no terminal to ask for it",
        hint=f"on a terminal: ./run exec causeway sudo {stack} -- COMMAND; where there is none, declare"
        f" `sudo_password_secret: NAME` beside `ssh_user`, and ./run exec causeway secret NAME {stack}",
    )


def _name(source: str) -> str:
    kind = "the secret" if source.startswith(SECRET) else "of"
    return f"{kind} {source.removeprefix(SECRET).removeprefix(ASKED)}"
