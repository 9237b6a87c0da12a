"""The base of every node: who keeps a region's time, and SSH."""

from collections.abc import Mapping
from dataclasses import replace

from infra.capabilities.base.rules import (
    AuthorizedKeysAreKeys,
    LocaleIsKnown,
    MirrorsCanBeAsked,
    SudoAsksSomebody,
)
from infra.capabilities.base.section import BaseRegion, BaseSection
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned, SecretKind
from infra.ground.endpoint import Destination, Endpoint, HostSet, Ports
from infra.ground.names import natural
from infra.ground.nodes import pool_key
from infra.ground.remote import destination
from infra.ground.secrets import GIVEN

MAX_TIME_SERVERS = 3
"""Of a region; more agree no better."""
NTP_PORT = 123


class Base(Capability[BaseSection]):
    """Every cluster has it."""

    name = "base"
    uses = ("discovery",)
    rules = (LocaleIsKnown(), AuthorizedKeysAreKeys(), SudoAsksSomebody(), MirrorsCanBeAsked())

    def plan(self, spec: ClusterSpec, planned: Planned) -> BaseSection:
        """The first control nodes of each region keep its time."""
        regions = {}
        for region in spec.regions:
            keepers = region.adopt.time_servers == "replace"
            nodes = planned.region_nodes(region.name) if keepers else ()
            control = [node.name for node in nodes if node.role == "control"]
            regions[region.name] = BaseRegion(
                timezone=region.timezone,
                locale=region.locale,
                time_servers=tuple(sorted(control, key=natural)[:MAX_TIME_SERVERS]),
                adopt=region.adopt,
                mirrors=region.mirrors,
            )
        shm = {
            pool_key(region.name, pool.name): pool.shm_gib
            for region in spec.regions
            for pool in region.pools
            if pool.shm_gib is not None
        }
        secrets = tuple(dict.fromkeys(self.given(spec).values()))
        return BaseSection(
            authorized_keys=spec.authorized_keys, regions=regions, sudo_secrets=secrets, shm_gib=shm
        )

    def secrets(self, plan: BaseSection) -> Mapping[str, SecretKind]:
        """Passwords for sudo: files on the controller, for a run of Ansible's that nobody started by `up`."""
        return {f"{GIVEN}{name}": "given" for name in plan.sudo_secrets}

    def given(self, spec: ClusterSpec) -> Mapping[str, str]:
        """Passwords for sudo."""
        named = {
            f"regions[{index}].provider.sudo_password_secret": region.provider.sudo_password_secret
            for index, region in enumerate(spec.regions)
        }
        return {path: name for path, name in named.items() if name is not None}

    def endpoints(self, plan: BaseSection, planned: Planned) -> tuple[Endpoint, ...]:
        """SSH on every node, by the port that it has, and the time on those that keep it."""
        keepers = tuple(host for region in plan.regions.values() for host in region.time_servers)
        ssh = (
            Endpoint("ssh", on, (Ports.one(port),), "management", check="ssh")
            for port, on in _by_ssh_port(planned).items()
        )
        ntp = Endpoint(
            "ntp", HostSet(hosts=keepers), (Ports.one(NTP_PORT),), "management", ("udp",), check="ntp"
        )
        return (*ssh, ntp) if keepers else tuple(ssh)

    def destinations(self, plan: BaseSection) -> tuple[Destination, ...]:
        """The regions' mirrors; where they are asked by a proxy, that alone."""
        return tuple(
            destination(f"{use}-{name}", url, HostSet(regions=(name,)))
            for name, region in plan.regions.items()
            if region.mirrors is not None
            for use, url in region.mirrors.asked().items()
        )


def _by_ssh_port(planned: Planned) -> dict[int, HostSet]:
    """Port → its nodes: pools as a whole, and hosts by name only where those of one pool differ."""
    found: dict[int, HostSet] = {}
    for key, nodes in planned.by_pool().items():
        ports = dict.fromkeys(node.ssh_port for node in nodes)
        for port in ports:
            known, own = found.get(port, HostSet()), tuple(n.name for n in nodes if n.ssh_port == port)
            found[port] = (
                replace(known, pools=(*known.pools, key))
                if len(ports) == 1
                else replace(known, hosts=(*known.hosts, *own))
            )
    return found


CAPABILITY = Base()
