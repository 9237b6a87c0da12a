"""A WAN link between two regions."""

import pulumi

from infra.capabilities.wan.links import tunnel_secret
from infra.capabilities.wan.section import WanSection
from infra.components.cluster import Cluster
from infra.components.region import Region
from infra.components.secret import Secret
from infra.declaration import WanLinkSpec
from infra.ground.contract import Contract
from infra.providers.local.resources import LocalWanLink

PRIMARY_METRIC, BACKUP_METRIC = 1000, 2000


class WanLink(pulumi.ComponentResource):
    """One link. Between local regions it is emulated with its delay, rate and loss; where the machines exist
    already, the carrier's link does, too: its gateways are told where it ends, and hosts how to use it.
    """

    def __init__(
        self,
        name: str,
        spec: WanLinkSpec,
        a: Region,
        b: Region,
        cluster: Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("causeway:wan:Link", name, None, opts)
        self.spec = spec
        self.secrets = self._keys(name, cluster) if spec.kind == "vpn" else []
        self.ensured: list[pulumi.Output[str]] = []
        if a.spec.provider.makes_links and b.spec.provider.makes_links:
            self.ensured = [self._emulate(name, a, b, cluster).ensured]
        self.register_outputs({})

    def _keys(self, name: str, cluster: Cluster) -> list[Secret]:
        """A key for each end of the tunnel between the gateways."""
        ends = [tunnel_secret(name, region) for region in (self.spec.a, self.spec.b)]
        return [Secret(end, "wireguard", cluster.stack, pulumi.ResourceOptions(parent=self)) for end in ends]

    def _emulate(self, name: str, a: Region, b: Region, cluster: Cluster) -> LocalWanLink:
        link = cluster.contract.need(WanSection).links[name]
        sides = {"a": link.a, "b": link.b}
        ends = {side: link.ends[region] for side, region in sides.items()}
        inputs = {
            "stack": cluster.stack,
            "link": name,
            "a": link.a,
            "b": link.b,
            **{f"{side}_address": str(end.address) for side, end in ends.items()},
            **{f"{side}_gateway": end.gateway for side, end in ends.items()},
            **{f"{side}_routes": _routes(cluster.contract, region, name) for side, region in sides.items()},
            "rtt_ms": link.rtt_ms,
            "bandwidth_mbps": link.bandwidth_mbps,
            "loss_pct": link.loss_pct,
            "mtu_bytes": link.handover_mtu_bytes,
        }
        opts = pulumi.ResourceOptions(parent=self, depends_on=[a, b])
        return LocalWanLink(f"{name}-emulation", inputs, opts)


def _routes(contract: Contract, region: str, link: str) -> dict[str, int]:
    """The networks whose path from a region begins with a link, with the metric of its router's route.

    Also those beyond the far region, as long as the path leads over emulated links: every router on it does
    the same, and knows the next one.
    """
    metrics, wan = {}, contract.need(WanSection)
    for route in wan.regions[region].routes:
        for path, metric in ((route.backup_path, BACKUP_METRIC), (route.path, PRIMARY_METRIC)):
            ends = (end for name in path for end in wan.links[name].ends.values())
            if link in path[:1] and all(end.address for end in ends):
                metrics[str(route.cidr)] = metric
    return metrics
