"""A WAN link between two regions."""

import pulumi

from infra.components.cluster import Cluster
from infra.components.region import Region
from infra.providers.local.resources import LocalWanLink
from infra.spec import WanLinkSpec


class WanLink(pulumi.ComponentResource):
    """One road. Between local regions it is emulated with its delay, rate and loss; where the machines exist
    already, the carrier's link does, too, and only the hosts' settings follow from it.
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
        if a.spec.provider.kind == b.spec.provider.kind == "local":
            self._emulate(name, a, b, cluster)
        self.register_outputs({})

    def _emulate(self, name: str, a: Region, b: Region, cluster: Cluster) -> None:
        link = cluster.contract.links[name]
        ends = {"a": link.ends[link.a], "b": link.ends[link.b]}
        inputs = {
            "stack": cluster.stack,
            "link": name,
            "a": link.a,
            "b": link.b,
            **{f"{side}_address": str(end.address) for side, end in ends.items()},
            **{f"{side}_gateway": end.gateway for side, end in ends.items()},
            "a_cidr": str(a.spec.cidr),
            "b_cidr": str(b.spec.cidr),
            "rtt_ms": link.rtt_ms,
            "bandwidth_mbps": link.bandwidth_mbps,
            "loss_pct": link.loss_pct,
            "mtu_bytes": link.handover_mtu_bytes,
        }
        LocalWanLink(f"{name}-emulation", inputs, pulumi.ResourceOptions(parent=self, depends_on=[a, b]))
