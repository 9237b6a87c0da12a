"""What a capability is: the questions that checks, planning, inventory and Pulumi ask each of them.

A capability is a package below `infra/capabilities/`:

    capability.py   CAPABILITY, an object of a class below
    section.py      SECTION, its model in the contract, where it has one (infra/ground/contract.py)
    handoff.py      ROLES; variables(contract) → role → group → variables, and host_variables(contract)
                    → host → variables, where its roles need some (infra/capabilities/__init__.py)
    doctor.py       LOOK: what it would meet on machines that somebody has (infra/ground/machine.py)
    resources.py    build(stack, spec, plan, opts): its resources of Pulumi's, where it has some
    commands.py     COMMAND, SUMMARY, add_arguments, run: its command, where it has one (infra/cli.py)
    tools           programs that no package brings, a line each (toolchain/setup.sh)
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from infra.declaration import ClusterSpec
from infra.declaration.base import Spec
from infra.ground.contract import Contract, Section
from infra.ground.endpoint import EVERYONE, Destination, Endpoint, HostSet
from infra.ground.nodes import Nodes
from infra.ground.rule import Rule

P = TypeVar("P")
S = TypeVar("S", bound=Section)
MadeSecret = Literal["random", "cephx", "authority", "wireguard"]
"""What Causeway can make; see `infra.ground.secrets`."""
SecretKind = MadeSecret | Literal["node", "given"]
"""`given`: the user sets it in the stack's configuration. `node`: a service makes it on a node, and its role
keeps it on the controller by `causeway_keep_secret`."""
Limits = Mapping[tuple[type[Spec], str], str]
"""Model and field → what the rules allow there, in words: for the reference and for editors."""


def _nothing(_contract: Contract, _host: str) -> Mapping[str, SecretKind]:
    return {}


def asked_for(_spec: ClusterSpec) -> str:
    """Why most roles cannot be left out of a pool."""
    return "others of what is declared ask for it: take out what declares it"


def part_of(key: str) -> Callable[[ClusterSpec], str]:
    """Why a role cannot be left out that comes with a key of the declaration."""
    return lambda _spec: f"it comes with `{key}`; take that out instead"


def for_itself(_spec: ClusterSpec) -> str:
    """Nothing else asks for it."""
    return ""


def _everyone(_contract: Contract) -> HostSet:
    return EVERYONE


def _no_files(_contract: Contract) -> Iterable[str | None]:
    return ()


def always(*services: str) -> Callable[[Contract, str], Iterable[str]]:
    """The same services on every pool."""
    return lambda _contract, _pool: services


def _no_services(_contract: Contract, _pool: str) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Role:
    """A role of Ansible's that the capability brings, and the hosts that take it.

    On each of them it runs again when something changed that its work there depends on: its files, its
    variables, and what is said here (infra/drift/inputs.py).
    """

    name: str
    hosts: Callable[[Contract], HostSet]
    secrets: Callable[[Contract, str], Mapping[str, SecretKind]] = _nothing
    """Name → kind of those that it reads for a host."""
    leaves: str = ""
    """What is lost when it leaves a host: then it leaves with the user's consent only. Empty: nothing is."""
    takers: Callable[[Contract, str], Collection[str]] | None = None
    """Of a role that holds data: host → the hosts on which its `tasks/drain.yml` has others take over what
    that host holds. Where none of them stays, the host is taken away with the user's consent only."""
    reads: Callable[[Contract], Any] | None = None
    """What it reads of other hosts' variables, as a JSON value; None for a role that reads its own only."""
    readers: Callable[[Contract], HostSet] = _everyone
    """The hosts on which it does so."""
    instead_of: tuple[str, ...] = ()
    """Roles in whose place it comes: not on a host that one of them may not leave yet."""
    files: Callable[[Contract], Iterable[str | None]] = _no_files
    """Files on this machine that the declaration names and the role copies: what is in them counts."""
    services: Callable[[Contract, str], Iterable[str]] = _no_services
    """Services of others' packages that it sets up on a pool's hosts, as patterns of units.

    Where somebody's runs, the role does not come unless `take_over` of the machines' provider names it.
    """
    needed: Callable[[ClusterSpec], str] = asked_for
    """Why no pool may leave it out, for the end of a sentence; empty where one may."""

    @property
    def may_take_over(self) -> bool:
        """Whether there are services that it may find on a machine, and set up anew."""
        return self.services is not _no_services


@dataclass(frozen=True)
class RegionReport:
    """A capability in one region's part of `causeway plan`; `data` joins what else is said of the region."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """A capability in `causeway plan`, for people and for programs. A text ends without a line break."""

    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Joins the plan's JSON at its top."""
    regions: Mapping[str, RegionReport] = field(default_factory=dict)
    page: Callable[[], str] | None = None
    """Makes its part of the page of `causeway plan --html`: a fragment without script or other files."""


@dataclass(frozen=True)
class Planned(Nodes):
    """What is planned already when a capability plans: all nodes, and what it needs or uses."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    """Capability → what it has planned."""
    endpoints: tuple[Endpoint, ...] = ()
    """Of all capabilities; empty before `finish`."""

    def section(self, model: type[S]) -> S | None:
        """What another capability has planned; None where it is not declared."""
        found = self.sections.get(model.capability)
        return found if isinstance(found, model) else None


class Capability(Generic[P]):
    """P is what it plans: its section of the contract, or more. Everything but the name may stay as it is."""

    name: ClassVar[str]
    """Also the name of its package."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Capabilities that have to be declared where this one is; their sections are planned before."""
    uses: ClassVar[tuple[str, ...]] = ()
    """Capabilities whose sections are planned before, and are read where they are declared."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """On the declaration."""
    limits: ClassVar[Limits] = {}

    def plan(self, spec: ClusterSpec, planned: Planned) -> P | None:
        """What it comes to; None where it is not declared. Called once all rules hold."""
        return None

    def section(self, plan: P) -> Section | None:
        """What the inventory, roles and checks read of it: nothing is in a contract for its own sake."""
        return plan if isinstance(plan, Section) else None

    def endpoints(self, plan: P, planned: Planned) -> tuple[Endpoint, ...]:
        """What listens on hosts for it."""
        return ()

    def destinations(self, plan: P) -> tuple[Destination, ...]:
        """What hosts send to that is outside of the cluster."""
        return ()

    def finish(self, plan: P, planned: Planned) -> P:
        """The plan once the endpoints of all capabilities are known."""
        return plan

    def secrets(self, plan: P) -> Mapping[str, SecretKind]:
        """Name → kind of the secrets that all regions share; each is a resource, and one capability's."""
        return {}

    def given(self, spec: ClusterSpec) -> Mapping[str, str]:
        """Path in the declaration → name of the secret of kind `given` that stands there."""
        return {}

    def resources(self, plan: P) -> Mapping[str, int]:
        """How many other resources it makes, by what they are for."""
        return {}

    def report(self, plan: P) -> Report | None:
        """What `causeway plan` says of it."""
        return None
