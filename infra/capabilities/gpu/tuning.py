"""How a GPU node's host is tuned, read of what its kernel and tools show, never of what a role wrote."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LISTED = re.compile(r"^([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$")
"""A device in what `lspci -vvv` prints; the domain is left out where it is 0000, unless `-D` is given."""
CONTROL = re.compile(r"^\s+ACSCtl:\s+(.*)$")
NO_NODE = -1
"""What the kernel says of a device where the firmware names no NUMA node."""


def acs(listing: str) -> dict[str, list[str]]:
    """PCI address, with its domain → what ACS does there (`SrcValid`, `ReqRedir` …); of `lspci -vvv`.

    Devices without the capability are left out.
    """
    found: dict[str, list[str]] = {}
    address = ""
    for line in listing.splitlines():
        if device := LISTED.match(line):
            address = device[1] if device[1].count(":") == 2 else f"0000:{device[1]}"
        elif (control := CONTROL.match(line)) and address:
            found[address] = [word[:-1] for word in control[1].split() if word.endswith("+")]
    return found


def iommu(command_line: str, group_types: Sequence[str]) -> str:
    """How the IOMMU works: `passthrough`, `on` or `off`; empty for groups of several kinds.

    `group_types` are the files `/sys/kernel/iommu_groups/*/type` (sysfs-kernel-iommu_groups of Linux's ABI).
    Where a kernel has groups without such files, its command line decides.
    """
    if not group_types:
        return "off"
    kinds = {"passthrough" if kind == "identity" else "on" for kind in group_types if kind}
    if not kinds:
        words = command_line.split()
        return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else "on"
    return kinds.pop() if len(kinds) == 1 else ""


@dataclass(frozen=True)
class Pair:
    """A GPU and the fabric port meant for it, by their NUMA nodes; NO_NODE is an unknown one."""

    gpu: str
    gpu_node: int
    port: str
    port_node: int

    @property
    def known(self) -> bool:
        """Whether the firmware names both nodes."""
        return NO_NODE not in (self.gpu_node, self.port_node)

    def __str__(self) -> str:
        return f"GPU {self.gpu} is at NUMA node {self.gpu_node}, and its NIC {self.port} at {self.port_node}"


def pairs(gpus: Mapping[str, int], nics: Sequence[Sequence[str]], ports: Mapping[str, int]) -> Iterator[Pair]:
    """Each GPU with the ports of its NIC: both in order, evenly, where there are more of one.

    `gpus`: PCI address → NUMA node, in order; `nics`: the ports of each; `ports`: port → NUMA node.
    """
    most = max(len(gpus), len(nics))
    known = list(gpus.items())
    for number in range(most if gpus and nics else 0):
        gpu, node = known[number * len(gpus) // most]
        for port in nics[number * len(nics) // most]:
            yield Pair(gpu, node, port, ports.get(port, NO_NODE))
