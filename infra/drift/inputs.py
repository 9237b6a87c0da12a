"""What a role's work on a host depends on, as one hash.

A roll-out runs a role where it changed since the role was last taken; a scan calls the role stale where it
changed since it was sealed.
"""

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import ROOT, capabilities
from infra.drift.assembly import probe_source
from infra.files import tree_hash, value_hash
from infra.ground import secrets
from infra.ground.contract import Contract
from infra.ground.groups import group_name
from infra.inventory.groups import group_hosts, inventory_data
from infra.inventory.overrides import Overrides, overrides
from infra.inventory.roles import role_hosts, role_order, roles_within
from infra.stack import secret_file

Fingerprint = Callable[[str, str], str]
"""Name and kind of a secret → its fingerprint."""
COMPUTED: Mapping[str, Callable[[], str]] = {
    "causeway_probe": probe_source,
    "causeway_watch": lambda: "".join(
        capabilities.alerts_of(name).read_text() for name in capabilities.with_watch()
    ),
}
"""Lookup plugins of roles that answer with something of ours → what that is today."""
FROM_A_NODE = "from a node"
"""Instead of a node's secret's fingerprint: a roll-out knows what is in it only once its role has run."""


def role_inputs(
    contract: Contract, identities: Mapping[str, str], fingerprint: Fingerprint | None = None
) -> dict[str, dict[str, str]]:
    """Host → role → hash over all that the role's work there depends on.

    The files of the role and of the roles that it uses; its play; Ansible's settings; its variables by name,
    the declaration's and the user's; which machine the host is; what the role reads of others; its secrets
    (read from the stack's files without `fingerprint`). Variables given on a command line are not part of it.
    Of a node's secret only whether the controller has it: where it was lost, roles that name it are stale.
    """
    known, owners = capabilities.roles(), capabilities.owners()
    seen = _Seen(contract, overrides(contract.stack))
    fingerprint = fingerprint or cache(lambda name, kind: _fingerprint(contract.stack, name, kind))
    inputs: dict[str, dict[str, str]] = {name: {} for name in contract.hosts}
    for role in role_order():
        ours, sources = known[role], sources_of(role)
        version = getattr(contract.sections.get(owners[role]), "version", None)
        common = value_hash([sources.digest, version, ours.reads and ours.reads(contract)])
        for name in role_hosts(contract, role):
            own = [identities.get(name, ""), seen.variables(name, sources.variables)]
            kinds = ours.secrets(contract, name)
            keys = {secret: fingerprint(secret, kind) for secret, kind in kinds.items()}
            inputs[name][role] = value_hash([common, *own, keys])
    return inputs


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
    variables: frozenset[str]


def sources_of(role: str) -> Sources:
    """A role's own, with all roles that it uses."""
    used = roles_within(role, ROOT)
    computed = {
        plugin.stem: COMPUTED[plugin.stem]()
        for each in used
        for plugin in (ROOT / "roles" / each).glob("lookup_plugins/*.py")
        if plugin.stem in COMPUTED
    }
    parts = [role, tree_hash(*(f"roles/{each}" for each in used)), _play(role), _settings(), computed]
    return Sources(value_hash(parts), frozenset(name for each in used for name in options(each)))


def options(role: str) -> list[str]:
    """The variables that a role says it has, whichever of its entry points takes them."""
    specs = _yaml(ROOT / "roles" / role / "meta" / "argument_specs.yml") or {}
    return [name for entry in specs.get("argument_specs", {}).values() for name in entry.get("options", {})]


def _play(role: str) -> Any:
    """The play that runs a role."""
    plays = _yaml(ROOT / "playbooks" / "roles.yml") or []
    return [play for play in plays if any(entry.get("role") == role for entry in play["roles"])]


def _settings() -> dict[str, dict[str, str]]:
    """Ansible's, without their comments."""
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "ansible.cfg")
    return {name: dict(parser[name]) for name in parser.sections()}


def _yaml(path: Path) -> Any:
    """A file of ours; None where there is none."""
    return _parsed(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _parsed(path: Path, _changed_ns: int) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


class _Seen:
    """What Ansible lets a host see of variables, by their names."""

    def __init__(self, contract: Contract, beside: Overrides) -> None:
        self.contract, self.beside = contract, beside
        self.data: dict[str, Any] = inventory_data(contract, ROOT)
        self.own = self.data["_meta"]["hostvars"]
        self.known = {*self.data, *self.own} - {"_meta"}
        self._groups: dict[str, set[str]] = {}
        self._shared: dict[tuple[str, frozenset[str]], str] = {}

    def variables(self, host: str, names: frozenset[str]) -> list[Any]:
        """Its own address, its variables, its groups' and the user's."""
        own = self.own[host]
        given = {name: value for name, value in own.items() if name in names}
        return [own["ansible_host"], given, self._of_pool(host, names), self._user(host, names)]

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
        groups = self._groups_of(host) if self.beside.files else ()
        return self.beside.of(names, groups, self.known)

    def _groups_of(self, host: str) -> set[str]:
        if not self._groups:
            for group in self.data.keys() - {"_meta"}:
                for name in group_hosts(self.data, [group]):
                    self._groups.setdefault(name, {name, "all"}).add(group)
        return self._groups[host]
