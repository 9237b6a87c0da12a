"""A machine that somebody has: what a look at it found, and what a capability makes of that.

A capability says in its module `doctor` (`LOOK`, of the class below) what it would meet on such a machine.
The looks travel together, and the answer is nobody's word: texts are one line each, and lists have an end.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from infra.errors import one_line
from infra.ground.contract import Contract

WORD_CHARS = 200
MOST = 1024
"""Of anything of which a machine may name many."""


class Grade(IntEnum):
    """What a finding means for the machine, the worst last."""

    FINE = 0
    ADOPTED = 1
    """It is there, and stays as it is."""
    IN_THE_WAY = 2
    """It would be replaced, or conflicts with what is declared."""
    IMPOSSIBLE = 3
    """What is declared cannot work there."""

    @property
    def words(self) -> str:
        """As people read it."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, order=True)
class Finding:
    """One thing about a machine. `about`: a word for it; `do`: what helps, where something has to be done.

    `own` is what only this machine would say so: machines that differ in nothing else are told together.
    """

    grade: Grade
    about: str
    says: str
    do: str = ""
    own: str = field(default="", compare=False)

    @property
    def words(self) -> str:
        """What it says of this machine."""
        return f"{self.says}: {self.own}" if self.own else self.says


def fine(about: str, says: str) -> Finding:
    """Nothing has to be done."""
    return Finding(Grade.FINE, about, says)


def adopted(about: str, says: str, own: str = "") -> Finding:
    """It is somebody's, and stays."""
    return Finding(Grade.ADOPTED, about, says, own=own)


def stays(unit: str) -> Finding:
    """A service of somebody's that no role of the machine's sets up."""
    return adopted("services", f"{unit} runs, and stays as it is")


def in_the_way(about: str, says: str, do: str, own: str = "") -> Finding:
    """It is somebody's, and would not stay or not work."""
    return Finding(Grade.IN_THE_WAY, about, says, do, own)


def impossible(about: str, says: str, do: str) -> Finding:
    """Nothing can be done there before somebody has done something."""
    return Finding(Grade.IMPOSSIBLE, about, says, do)


def _word(value: object) -> object:
    return one_line(value, WORD_CHARS) if isinstance(value, str) else value


def _interfaces(value: object) -> object:
    """Those that are IPv4 addresses with their prefix; a machine has others, too."""
    if not isinstance(value, list):
        return value
    found = []
    for text in value[:MOST]:
        try:
            found.append(IPv4Interface(text) if isinstance(text, str) else None)
        except ValueError:
            continue
    return [one for one in found if one]


Word = Annotated[str, BeforeValidator(_word)]
Lines = Annotated[tuple[Word, ...], Field(max_length=MOST)]


class Answered(BaseModel):
    """Whatever a machine says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, defer_build=True)


class Unit(Answered):
    """A unit of systemd's that is there."""

    active: bool
    enabled: bool
    ours: bool


class Listener(Answered):
    """A port that is taken. `unit` and `program` are empty where nobody could be named."""

    protocol: Literal["tcp", "udp"]
    port: int = Field(ge=0, le=65535)
    loopback: bool = True
    """Whether it has the port on 127.0.0.1, there alone or on all addresses."""
    program: Word = ""
    unit: Word = ""
    ours: bool = False


class Machine(Answered):
    """What one look found. What could not be looked at is in `unseen`, with the reason."""

    os_id: Word = ""
    os_like: Word = ""
    os_codename: Word = ""
    os_name: Word = ""
    python: Word = ""
    """Its version; empty where there is none."""
    root: bool = False
    """Whether the login is root, or becomes root in the way that is declared."""
    sudo: Annotated[str, Field(max_length=1 << 13)] = ""
    """What sudo said where it did not let the login become root."""
    systemd: bool = False
    hostname: Word = ""
    clock_s: float = Field(default=0, ge=-1e11, le=1e12, allow_inf_nan=False)
    offset_s: float = 0.0
    """By how much its clock is ahead of the controller's, if that is more than the trip explains."""
    memory_mib: int = Field(default=0, ge=0, le=1 << 40)
    disk_mib: dict[Word, Annotated[int, Field(ge=0, le=1 << 60)]] = Field(default={}, max_length=MOST)
    """Folder → what is free there."""
    disk_files: dict[Word, Annotated[int, Field(ge=0, lt=1 << 64)]] = Field(default={}, max_length=MOST)
    """Folder → how many files more may be made there, where a file system has an end of that."""
    read_only: Lines = ()
    """Folders of which the file system is mounted so."""
    interfaces: dict[Word, Annotated[tuple[IPv4Interface, ...], BeforeValidator(_interfaces)]] = Field(
        default={}, max_length=MOST
    )
    wireguard: Lines = ()
    """Interfaces that are tunnels."""
    default_route: Word = ""
    network: Word = ""
    """What sets the interfaces up, in words."""
    resolver: Word = ""
    """What writes /etc/resolv.conf; empty where nobody does."""
    keeps_hosts: bool = False
    """Whether cloud-init writes /etc/hosts at every boot."""
    keeps_name: bool = False
    """Whether cloud-init sets the host name at every boot."""
    zone: Word = ""
    units: dict[Word, Unit] = Field(default={}, max_length=MOST)
    files: dict[Word, Literal["ours", "ansible", "package", "theirs"]] = Field(default={}, max_length=MOST)
    """Of those looked for that are there, whose they are; `ansible`: some run of it, which may be ours."""
    lines: dict[Word, Lines] = Field(default={}, max_length=MOST)
    """Of files of somebody's, those lines that say something."""
    listening: tuple[Listener, ...] = Field(default=(), max_length=MOST)
    selinux: Word = ""
    firewall: Lines = ()
    """Chains of nftables that drop what no rule of theirs lets in."""
    tables: Lines = ()
    """Tables of nftables."""
    ufw: bool = False
    begun: Lines = ()
    """Roles that have run there, or begun to."""
    asked: dict[Word, Lines] = Field(default={}, max_length=MOST)
    """Role that has begun → services that were asked for before it might set them up; else all were."""
    obstacles: dict[Word, Lines] = Field(default={}, max_length=MOST)
    """Role → what the role's own look has found in its way."""
    closed: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), max_length=MOST)
    """Numbers of the ports of other sites that gave no answer."""
    unseen: dict[Word, Word] = Field(default={}, max_length=MOST)

    def runs(self, unit: str) -> Unit | None:
        """A unit that runs and is somebody's."""
        found = self.units.get(unit)
        return found if found and found.active and not found.ours else None

    def home_of(self, address: IPv4Address) -> tuple[str, IPv4Interface] | None:
        """The interface that has an address, and the address with its prefix."""
        found = ((name, one) for name, held in self.interfaces.items() for one in held)
        return next(((name, one) for name, one in found if one.ip == address), None)


@dataclass(frozen=True)
class Program:
    """A role's own look at what is in its way: Python 3.8, prints `{"obstacles": [sentences]}`."""

    file: Path
    argument: str


def _no_program(_contract: Contract, _host: str) -> Mapping[str, Program]:
    return {}


def _none(_machine: Machine) -> Iterable[str]:
    return ()


def _nothing(_contract: Contract, _host: str) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Look:
    """What a capability looks for on a machine that takes one of its roles."""

    judge: Callable[[Contract, str, Machine], Iterable[Finding]]
    """Contract, host, what was found there → what that means."""
    units: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Patterns of files of which every one counts, written by a role of ours or not."""
    texts: tuple[str, ...] = ()
    """Files of which the lines are needed, too."""
    programs: Callable[[Contract, str], Mapping[str, Program]] = _no_program
    """Role → its own look; it answers for all files that the role writes."""
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Endpoint → programs that may have its port: the role takes them over."""
    freed: Mapping[str, str] = field(default_factory=dict)
    """Endpoint → what helps where its port is taken, if no other port does."""
    unopened: Callable[[Machine], Iterable[str]] = _none
    """Endpoints that the roles do not open on such a machine."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """File that a role writes → how what it says now is kept."""
    kept: Callable[[Contract, str], Iterable[str]] = _nothing
    """Files that a role writes elsewhere, and not on this machine."""
    tunnels: Callable[[Contract, str], Iterable[str]] = _nothing
    """Interfaces of WireGuard that are a role's own there."""
