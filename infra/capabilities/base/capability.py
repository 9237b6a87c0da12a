"""The base of every node: who keeps a region's time, and SSH."""

from collections.abc import Mapping

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
        """SSH on every node, by the port of its pool's first, and the time on those that keep it."""
        ports: dict[int, list[str]] = {}
        for key, nodes in planned.by_pool().items():
            ports.setdefault(nodes[0].ssh_port, []).append(key)
        keepers = tuple(host for region in plan.regions.values() for host in region.time_servers)
        ssh = (
            Endpoint("ssh", HostSet(pools=tuple(pools)), (Ports.one(port),), "management", check="ssh")
            for port, pools in ports.items()
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


CAPABILITY = Base()
