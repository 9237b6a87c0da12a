"""The base of every node: who keeps a region's time, and SSH."""

from infra.capabilities.base.rules import AuthorizedKeysAreKeys, LocaleIsKnown
from infra.capabilities.base.section import BaseRegion, BaseSection
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned
from infra.ground.contract import natural
from infra.ground.endpoint import Endpoint, HostSet, Ports
from infra.ground.nodes import pool_key

MAX_TIME_SERVERS = 3
"""Of a region; more agree no better."""
NTP_PORT = 123


class Base(Capability[BaseSection]):
    """Every cluster has it."""

    name = "base"
    uses = ("discovery",)
    rules = (LocaleIsKnown(), AuthorizedKeysAreKeys())

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
            )
        shm = {
            pool_key(region.name, pool.name): pool.shm_gib
            for region in spec.regions
            for pool in region.pools
            if pool.shm_gib is not None
        }
        return BaseSection(authorized_keys=spec.authorized_keys, regions=regions, shm_gib=shm)

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


CAPABILITY = Base()
