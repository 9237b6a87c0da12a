"""What NCCL has to reach: published floors, and the formula for nodes and NICs that nobody published.

All are bus bandwidth of all_reduce, in GB/s: `busbw = algbw · 2(n−1)/n` for n GPUs (nccl-tests,
doc/PERFORMANCE.md). A flat share below a data sheet's number would pass nodes that are bad.
"""

from collections.abc import Mapping
from dataclasses import dataclass

GPUS = 8
"""Published floors are of nodes with so many."""
OCI, AZURE = "oracle-quickstart/oci-hpc", "Azure/azurehpc-health-checks"


@dataclass(frozen=True)
class Published:
    """A floor by which an operator accepts nodes of 8 GPUs; `several` where more nodes have another."""

    gbs: float
    source: str
    several: float | None = None


PUBLISHED: Mapping[str, tuple[Published, ...]] = {
    "a100-sxm-40gb": (Published(185, OCI), Published(228, AZURE)),
    "a100-sxm-80gb": (Published(185, OCI), Published(228, AZURE)),
    "h100-sxm": (Published(440, OCI), Published(460, AZURE)),
    "h200-sxm": (Published(440, OCI), Published(431, AZURE)),
    "b200-sxm": (Published(440, OCI),),
    "b300-sxm": (Published(800, OCI, several=700),),
    "mi300x": (Published(310, OCI), Published(350, AZURE)),
}
"""Model → floors. Of two the lower one counts: a node that an operator takes is no bad node."""
SHARE_OF_TWO, SHARE_OF_MORE = 0.9, 0.85
"""Of the NICs' rate, for two nodes whose NVLink does not bind, and from three on (a rule of ours)."""
SIZES = (2, 4, 8, 16)
"""Nodes that are tried together, each size once the one before has passed."""


def single(model: str, gpus: int) -> float | None:
    """The floor within one node; None where none is published for such a node."""
    known = PUBLISHED.get(model)
    return min(one.gbs for one in known) if known and gpus == GPUS else None


def floor(model: str, gpus: int, nic_gbps: float, nodes: int) -> float | None:
    """The floor for some nodes of `gpus` GPUs, whose NICs have `nic_gbps` together on each node.

    None where there is no telling: one node of which nothing is published, or several without NICs.

    With B the NICs' rate of a node in GB/s and n GPUs, two nodes may reach 2B(n−1)/n: each half of a ring
    crosses once, so NVLink may bind, and the floor within a node is asked for where the NICs allow it with
    that margin; else 0.9·B, as for A100s with B about the same as their NVLink's floor. From three nodes on
    a ring or a tree carries about B: 0.85·B, or what is published, never more than within a node.
    """
    within = single(model, gpus)
    if nodes == 1:
        return within
    if nic_gbps <= 0:
        return None
    rate = nic_gbps / 8
    several = [one.several for one in PUBLISHED.get(model, ()) if one.several]
    if several and gpus == GPUS and rate >= max(several):
        return min(several)
    if nodes == 2:
        binds = within is not None and SHARE_OF_TWO * rate >= within / two_bound(gpus)
        wanted = within if binds and not model.startswith("a100") else SHARE_OF_TWO * rate
    else:
        wanted = SHARE_OF_MORE * rate
    return wanted if within is None or wanted is None else min(wanted, within)


def two_bound(gpus: int) -> float:
    """How many times its NICs' rate two nodes may reach: 2(n−1)/n of all n GPUs."""
    number = 2 * gpus
    return 2 * (number - 1) / number


def all_to_all_bound(gpus: int, nic_gbs: float, nodes: int) -> float:
    """The most of bus bandwidth in GB/s a GPU of all_to_all, whose own NIC has `nic_gbs`: b(n−1)/(n−g).

    A bound and no floor: nobody published one.
    """
    number = gpus * nodes
    return nic_gbs * (number - 1) / (number - gpus)
