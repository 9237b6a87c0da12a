"""Looks at the machines of a declaration and judges them, before or after anything stands."""

from collections.abc import Collection
from dataclasses import dataclass

from infra.declaration import ClusterSpec
from infra.doctor.judge import grade_of, judge
from infra.doctor.sites import questions
from infra.doctor.trip import Looked, look_at, try_sudo
from infra.doctor.wanted import ports_of, requests_of
from infra.drift.manifest import load_manifest
from infra.drift.trip import TripError
from infra.ground import ssh
from infra.ground.contract import Contract
from infra.ground.identities import identities_of
from infra.ground.machine import Finding, Grade
from infra.ground.sudo import Become
from infra.inventory.roles import roles_of
from infra.planning.contract import build_contract
from infra.planning.plan import Plan, make_plan
from infra.stack import check_stack


@dataclass(frozen=True)
class Examined:
    """One machine. `silent`: why nothing was found there; then there is no finding."""

    host: str
    findings: tuple[Finding, ...] = ()
    silent: str = ""

    @property
    def grade(self) -> Grade:
        """The worst of its findings."""
        return grade_of(self.findings)

    @property
    def is_well(self) -> bool:
        """Whether nothing has to be done about it."""
        return not self.silent and self.grade < Grade.IN_THE_WAY


class Declared:
    """A stack as far as its declaration says it, and the machines in it that somebody has."""

    def __init__(self, spec: ClusterSpec, stack: str) -> None:
        self.spec = spec
        self.plan: Plan = make_plan(spec)
        self.contract: Contract = build_contract(spec, self.plan, check_stack(stack))
        self.host_keys = _host_keys(spec, self.plan)
        """Host → its public key, of machines that somebody has."""

    def machines(self) -> tuple[str, ...]:
        """Their names, in natural order."""
        return tuple(host for host in self.contract.hosts if host in self.host_keys)

    def new_to_a_role(self) -> tuple[str, ...]:
        """Those on which some role was never sealed: of the others `up` knows what is there."""
        identities = identities_of(
            self.contract, {host: {"host_key": key} for host, key in self.host_keys.items()}
        )
        roles, found = roles_of(self.contract), []
        for host in self.machines():
            manifest = load_manifest(self.contract.stack, host)
            known = {} if manifest is None or manifest.renewed(identities[host]) else manifest.roles
            sealed = {role for role, part in known.items() if part.sealed_at is not None}
            if not sealed.issuperset(roles[host]):
                found.append(host)
        return tuple(found)

    def refused(self, hosts: Collection[str]) -> dict[str, str]:
        """Host → why sudo refuses its password, of those of `hosts` that want one."""
        asking = [host for host in hosts if Become.on(self.contract, host).source]
        if not asking:
            return {}
        known = ssh.known_hosts(self.contract, self.host_keys)
        return {host: str(error) for host, error in try_sudo(self.contract, known, asking).items()}

    def examine(self, hosts: Collection[str]) -> list[Examined]:
        """Look at these machines, all at once, and judge what was found."""
        without, with_key = dict[str, str](), []
        for host in hosts:
            region = self.contract.regions[self.contract.region_of(host)]
            if region.ssh_agent or ssh.key_path(region.ssh_private_key_file).exists():
                with_key.append(host)
            else:
                without[host] = _no_key(region.ssh_private_key_file)
        asked = questions(self.contract, self.plan.endpoints, self.plan.destinations)
        found: dict[str, Looked | str] = dict(without)
        known = ssh.known_hosts(self.contract, self.host_keys)
        requests = requests_of(self.contract, tuple(with_key), self.plan.endpoints, asked)
        found |= look_at(self.contract, known, requests)
        roles, ports = roles_of(self.contract), ports_of(self.contract, self.plan.endpoints)
        reports = []
        for host in hosts:
            seen = found[host]
            if isinstance(seen, str | TripError):
                reports.append(Examined(host, silent=str(seen)))
                continue
            judged = judge(self.contract, host, roles[host], ports[host], asked.get(host, []), seen)
            reports.append(Examined(host, tuple(judged)))
        return reports


def _no_key(path: str) -> str:
    return f"there is no key {path} yet: hand out your own (ssh_key_file), or the stack's, which `up` makes"


def _host_keys(spec: ClusterSpec, plan: Plan) -> dict[str, str]:
    return {
        node.name: ssh.key_of_host(region.provider, host)
        for region in spec.regions
        for pool in region.pools
        for node, host in zip(plan.pool_nodes(region.name, pool.name), pool.hosts, strict=False)
    }
