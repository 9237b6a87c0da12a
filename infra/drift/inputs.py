"""What a role's work on a host depends on, as one hash.

A roll-out runs a role where it changed since the role was last taken; a scan calls the role stale where it
changed since it was sealed.
"""

import configparser
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from infra import PACKAGE, ROOT, capabilities
from infra.cached import Cached
from infra.drift.assembly import probe_source
from infra.files import given_files, tree_hash, tree_state, value_hash
from infra.ground import secrets
from infra.ground.contract import Contract
from infra.ground.groups import group_name
from infra.inventory.groups import group_hosts, inventory_data
from infra.inventory.overrides import Overrides, overrides
from infra.inventory.roles import role_hosts, role_order, roles_within, shared_within
from infra.inventory.steps import read_yaml
from infra.stack import secret_file

Fingerprint = Callable[[str, str], str]
"""Name and kind of a secret → its fingerprint."""
COMPUTED: Mapping[str, Callable[[], str]] = {
    "causeway_probe": probe_source,
    "causeway_watch": lambda: "".join(
        capabilities.alerts_of(name).read_text() for name in capabilities.with_watch()
    ),
    # Their source: making them takes Grafana's packages, for which no scan waits.
    "causeway_dashboards": lambda: tree_hash(
        "infra/capabilities/monitoring/grafana.py",
        "infra/ground/dashboard.py",
        *capabilities.dashboard_sources(),
    ),
}
"""Lookup plugins of roles that answer with something of ours → what that is today."""
LOGIN = "ansible_user"
"""The login user. No role says that it has it, for it is Ansible's: an input of those that read it."""
READ_FROM = ("tasks", "handlers", "templates", "defaults", "vars")
"""Folders of a role in which a variable is read by its name."""
SOURCES = Cached("sources")
READ_OF_ALL = ("roles", "playbooks", "ansible.cfg", "infra")
"""Where all lies that `sources_of` reads, and what it is itself."""
LOADED_NS = time.time_ns()
"""Since then this process has the code that it has, whatever the files say by now."""
FROM_A_NODE = "from a node"
"""Instead of a node's secret's fingerprint: a roll-out knows what is in it only once its role has run."""


def role_inputs(
    contract: Contract, identities: Mapping[str, str], fingerprint: Fingerprint | None = None
) -> dict[str, dict[str, str]]:
    """Host → role → hash over all that the role's work there depends on.

    The files of the role and of the roles that it uses; what their modules import beside them; its play;
    Ansible's settings; its variables by name, the declaration's and the user's; which machine the host is;
    what the role reads of others; its secrets (read from the stack's files without `fingerprint`). Variables
    given on a command line are not part of it.
    Of a node's secret only whether the controller has it: where it was lost, roles that name it are stale.
    """
    return Inputs(contract, identities, fingerprint).all()


class Inputs:
    """What roles depend on, of one contract."""

    def __init__(
        self, contract: Contract, identities: Mapping[str, str], fingerprint: Fingerprint | None = None
    ) -> None:
        self.contract, self.identities = contract, identities
        self.fingerprint = fingerprint or cache(lambda name, kind: _fingerprint(contract.stack, name, kind))
        self.seen = Seen(contract, overrides(contract.stack))
        self._common: dict[str, str] = {}
        self._read: dict[str, dict[str, str]] = {}
        # A role's files are read once for all hosts, and no change of them meanwhile parts hosts.
        self.sources = cache(sources_now())

    def all(self) -> dict[str, dict[str, str]]:
        """Host → role → hash."""
        found: dict[str, dict[str, str]] = {name: {} for name in self.contract.hosts}
        for role in role_order():
            for name in role_hosts(self.contract, role):
                found[name][role] = self.of(name, role)
        return found

    def of(self, host: str, role: str) -> str:
        """One hash over all that the role's work on the host depends on."""
        sources = self.sources(role)
        variables = self.seen.variables(host, sources.variables)
        return value_hash([sources.digest, variables, self.beside_files(host, role)])

    def beside_files(self, host: str, role: str) -> str:
        """What is neither in the role's files nor in its variables: other hosts, secrets, the machine."""
        kinds = capabilities.roles()[role].secrets(self.contract, host)
        keys = {secret: self.fingerprint(secret, kind) for secret, kind in kinds.items()}
        return value_hash(
            [self._of_role(role), self._of_others(host, role), self.identities.get(host, ""), keys]
        )

    def _of_role(self, role: str) -> str:
        if role not in self._common:
            ours = capabilities.roles()[role]
            section = self.contract.sections.get(capabilities.owners()[role])
            copied = given_files(*ours.files(self.contract))
            self._common[role] = value_hash([getattr(section, "version", None), copied])
        return self._common[role]

    def _of_others(self, host: str, role: str) -> str:
        """What the role reads there of other hosts; empty where it reads none."""
        if role not in self._read:
            ours = capabilities.roles()[role]
            readers = self.contract.members(ours.readers(self.contract)) if ours.reads else ()
            read = value_hash(ours.reads(self.contract)) if ours.reads and readers else ""
            self._read[role] = dict.fromkeys(readers, read)
        return self._read[role].get(host, "")


def _fingerprint(stack: str, name: str, kind: str) -> str:
    """As the controller's files have it; empty where they are gone, which makes its roles stale."""
    if kind == "node":
        return FROM_A_NODE if secret_file(stack, name).exists() else ""
    parts = secrets.read(secret_file(stack, name), kind)
    return secrets.fingerprint(parts) if parts else ""


@dataclass(frozen=True)
class Sources:
    """What a role consists of, whatever the host: one hash, and the variables that it has."""

    digest: str
    beside: str
    """Of that, what is none of the roles' files."""
    variables: frozenset[str]


def sources_now() -> Callable[[str], Sources]:
    """Role → its sources, as they are now: read again only where a file was touched since somebody read them.

    Reading them is most of what a scan of a few nodes costs the controller.
    """
    state = tree_state(*{*(ROOT / path for path in READ_OF_ALL), PACKAGE}, until_ns=LOADED_NS)
    if not state:
        return sources_of

    def known(role: str) -> Sources:
        name = value_hash([state, sys.version, role])
        digest, beside, variables = json.loads(SOURCES.known_text(name, lambda: _noted(sources_of(role))))
        return Sources(digest, beside, frozenset(variables))

    return known


def _noted(sources: Sources) -> str:
    return json.dumps([sources.digest, sources.beside, sorted(sources.variables)])


def sources_of(role: str) -> Sources:
    """A role's own, with all roles that it uses."""
    used = roles_within(role, ROOT)
    computed = {
        plugin.stem: COMPUTED[plugin.stem]()
        for each in used
        for plugin in (ROOT / "roles" / each).glob("lookup_plugins/*.py")
        if plugin.stem in COMPUTED
    }
    shared = [tree_hash(file) for file in shared_within(role, ROOT)]
    beside = value_hash([role, _play(role), _settings(), computed, *shared])
    digest = value_hash([tree_hash(*(f"roles/{each}" for each in used)), beside])
    variables = frozenset(name for each in used for name in options(each))
    return Sources(digest, beside, variables | ({LOGIN} if any(map(_reads_login, used)) else set()))


def _reads_login(role: str) -> bool:
    """Whether a role's own files name the login user."""
    folders = (ROOT / "roles" / role / folder for folder in READ_FROM)
    files = (file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file())
    return any(LOGIN.encode() in file.read_bytes() for file in files)


def options(role: str) -> list[str]:
    """The variables that a role says it has, whichever of its entry points takes them."""
    specs = read_yaml(ROOT / "roles" / role / "meta" / "argument_specs.yml") or {}
    return [name for entry in specs.get("argument_specs", {}).values() for name in entry.get("options", {})]


def _play(role: str) -> Any:
    """The play that runs a role."""
    plays = read_yaml(ROOT / "playbooks" / "roles.yml") or []
    return [play for play in plays if any(entry.get("role") == role for entry in play["roles"])]


def _settings() -> dict[str, dict[str, str]]:
    """Ansible's, without their comments."""
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "ansible.cfg")
    return {name: dict(parser[name]) for name in parser.sections()}


class Seen:
    """What Ansible lets a host see of variables, by their names."""

    def __init__(self, contract: Contract, beside: Overrides) -> None:
        self.contract, self.beside = contract, beside
        self.data: dict[str, Any] = inventory_data(contract, ROOT)
        self.own = self.data["_meta"]["hostvars"]
        self.known = {*self.data, *self.own} - {"_meta"}
        self._groups: dict[str, set[str]] = {}
        self._shared: dict[tuple[str, frozenset[str]], str] = {}
        self._hashes: dict[str, dict[str, str]] = {}
        self._named = frozenset(file.of for file in beside.files)
        self._users: dict[tuple[frozenset[str], frozenset[str]], str] = {}

    def variables(self, host: str, names: frozenset[str]) -> list[str]:
        """Its own address, and its variables, its groups' and the user's, each value hashed once."""
        own = self.own[host]
        hashes = self._hashes.get(host)
        if hashes is None:
            hashes = self._hashes[host] = {name: value_hash(value) for name, value in own.items()}
        given = [f"{name} {hashes[name]}" for name in sorted(names & own.keys())]
        return [str(own["ansible_host"]), *given, self._of_pool(host, names), self._user(host, names)]

    def _of_pool(self, host: str, names: frozenset[str]) -> str:
        key = self.contract.hosts[host].pool
        if (known := self._shared.get((key, names))) is None:
            groups = ("all", group_name("region", self.contract.pools[key].region), group_name("pool", key))
            shared: dict[str, Any] = {}
            for group in groups:
                variables = self.data.get(group, {}).get("vars", {})
                shared |= {name: value for name, value in variables.items() if name in names}
            known = self._shared[key, names] = value_hash(shared)
        return known

    def _user(self, host: str, names: frozenset[str]) -> str:
        groups = self._named.intersection(self._groups_of(host)) if self._named else self._named
        if (known := self._users.get((groups, names))) is None:
            known = self._users[groups, names] = self.beside.of(names, groups, self.known)
        return known

    def _groups_of(self, host: str) -> set[str]:
        if not self._groups:
            for group in self.data.keys() - {"_meta"}:
                for name in group_hosts(self.data, [group]):
                    self._groups.setdefault(name, {name, "all"}).add(group)
        return self._groups[host]
