"""Whether this machine can hold what is declared; asked before anything is created."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_network
from itertools import accumulate
from pathlib import Path
from typing import Any

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import names, netns, node, vms, wan

NODE_MEMORY_MIB = 64
"""What to keep for a node: 27 MiB measured idle (20 nodes, systemd and sshd), the rest for what roles run."""
HOST_MEMORY_MIB = 512
"""What to leave for everything else on the machine."""
MIN_DISK_GIB = 5
INOTIFY_PER_NODE = 6
"""systemd and its services in one node; at the kernel's default of 128, the 25th node dies at start."""
SHORTEST_ROUTE = 8
"""Shorter prefixes are default routes in disguise (a VPN's 0.0.0.0/1): ours is more specific and wins."""


@dataclass(frozen=True)
class Problem:
    """One reason why the stack cannot stand here, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class Requirements:
    """What a stack asks of this machine, over all its local regions."""

    stack: str
    regions: Mapping[str, IPv4Network]
    nodes: int
    """Of every kind."""
    vm_memory_mib: Mapping[str, int] = field(default_factory=dict)
    """Memory of each virtual machine among the nodes, by name."""
    link_mtu_bytes: int = 0
    """The largest MTU among the WAN links between local regions; 0 without such links."""

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> "Requirements":
        """From plain values: stack, cidrs (by region), nodes; optionally vm_memory_mib and link_mtu_bytes."""
        return cls(
            stack=inputs["stack"],
            regions={region: IPv4Network(cidr) for region, cidr in inputs["cidrs"].items()},
            nodes=int(inputs["nodes"]),
            vm_memory_mib={name: int(size) for name, size in inputs.get("vm_memory_mib", {}).items()},
            link_mtu_bytes=int(inputs.get("link_mtu_bytes", 0)),
        )


def require(requirements: Requirements) -> None:
    """Raise one CausewayError that names every problem; nothing when the machine can hold the stack."""
    found = problems(requirements)
    if len(found) == 1:
        raise CausewayError(f"nothing was created: {found[0].message}", found[0].hint)
    if found:
        lines = "".join(f"\n  - {problem.message}\n    → {problem.hint}" for problem in found)
        raise CausewayError(
            f"nothing was created: this machine cannot hold the stack {requirements.stack}, "
            f"for {len(found)} reasons:{lines}"
        )


def problems(requirements: Requirements) -> list[Problem]:
    """Everything that keeps this machine from holding the stack, all at once; changes nothing."""
    if os.geteuid() != 0:
        return [Problem("network namespaces and nodes need root", "run it through `./run`, or with sudo")]
    missing = list(_missing_programs(bool(requirements.vm_memory_mib)))
    if missing:
        return missing
    try:
        info = json.loads(run(["podman", "info", "--format=json"]))
        standing = json.loads(run(["podman", "ps", "--all", "--format=json"]) or "[]")
    except CausewayError as error:
        return [Problem(f"podman does not work: {error.message}", "see what `podman info` says")]
    ours = [c for c in standing if (c.get("Labels") or {}).get("causeway.stack") == requirements.stack]
    containers = requirements.nodes - len(requirements.vm_memory_mib)
    more = max(containers - sum(c["State"] == "running" for c in ours), 0)
    return [
        *_podman_problems(info, more),
        *_kernel_problems(requirements),
        *_memory_problems(requirements, more),
        *_vm_memory_problems(requirements, more),
        *_subnet_problems(requirements),
        *_checkout_problems(requirements.stack, ours),
    ]


def capacity(standing: int = 0) -> int:
    """How many containers this machine's free memory holds, counting `standing` ones that run already."""
    return standing + max(_free_mib() // NODE_MEMORY_MIB, 0)


def _free_mib() -> int:
    """Memory that nodes may take."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) // 1024 - HOST_MEMORY_MIB


def _missing_programs(with_vms: bool) -> Iterator[Problem]:
    programs = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nsenter": "util-linux"}
    programs |= {"podman": "podman"}
    if shutil.which("tc") and shutil.which("unshare") and wan.supported_engine() == "wirefilter":
        programs |= {"vde_switch": "vde2", "wirefilter": "vde2"}
    if with_vms:
        programs |= {vms.PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", "mkfs.ext4": "e2fsprogs"}
    for program, package in programs.items():
        if shutil.which(program) is None:
            yield Problem(
                f"the program `{program}` is missing", f"`./run up` installs it (Debian package {package})"
            )


def _podman_problems(info: Mapping[str, Any], more: int) -> Iterator[Problem]:
    if info["host"]["cgroupVersion"] != "v2":
        yield Problem(
            "podman sees no cgroup v2 tree, which systemd in nodes needs",
            "start the command through `./run exec`: it provides one where the host has a hybrid tree",
        )
    root = info["store"]["graphRoot"]
    free_gib = shutil.disk_usage(root).free / 2**30
    if more and free_gib < MIN_DISK_GIB:
        yield Problem(
            f"{root} has {free_gib:.1f} GiB free, nodes need at least {MIN_DISK_GIB} GiB",
            "make room, or move podman's storage (graphroot in storage.conf)",
        )


def _kernel_problems(requirements: Requirements) -> Iterator[Problem]:
    needed = 32 + INOTIFY_PER_NODE * requirements.nodes
    for key, least in {"fs.inotify.max_user_instances": needed, "fs.inotify.max_user_watches": 65536}.items():
        value = int(Path("/proc/sys/" + key.replace(".", "/")).read_text())
        if value < least:
            yield Problem(
                f"{key} is {value}; {requirements.nodes} nodes need {least}", f"`sysctl -w {key}={least}`"
            )
    if not node.nameservers():
        yield Problem(
            "every name server in /etc/resolv.conf is a loopback address, which nodes cannot reach",
            "name one that the network provides in /etc/resolv.conf",
        )
    wide = requirements.link_mtu_bytes > wan.WIREFILTER_MAX_MTU_BYTES
    if wide and wan.supported_engine() == "wirefilter":
        yield Problem(
            f"a WAN link has an MTU of {requirements.link_mtu_bytes} bytes, but this kernel has no netem and "
            f"the emulator carries {wan.WIREFILTER_MAX_MTU_BYTES}",
            f"declare mtu_bytes: {wan.WIREFILTER_MAX_MTU_BYTES}, or use a kernel with sch_netem",
        )


def _memory_problems(requirements: Requirements, more: int) -> Iterator[Problem]:
    containers = requirements.nodes - len(requirements.vm_memory_mib)
    fits = capacity(containers - more)
    if more and containers > fits:
        yield Problem(
            f"{containers} nodes are declared, and this machine's free memory holds {fits} "
            f"({NODE_MEMORY_MIB} MiB each)",
            "declare fewer nodes, or use a larger machine; `causeway plan` needs none",
        )


def _vm_memory_problems(requirements: Requirements, more: int) -> Iterator[Problem]:
    """Machines that run already have their memory; `more` containers get theirs first."""
    running = vms.running(requirements.stack)
    new = sorted(mib for name, mib in requirements.vm_memory_mib.items() if name not in running)
    free_mib = _free_mib() - more * NODE_MEMORY_MIB
    fit = sum(total <= free_mib for total in accumulate(mib + vms.OVERHEAD_MIB for mib in new))
    if fit < len(new):
        declared = len(requirements.vm_memory_mib)
        yield Problem(
            f"{declared} virtual machines are declared, and this machine's free memory holds "
            f"{declared - len(new) + fit} ({new[-1]} MiB each, and {vms.OVERHEAD_MIB} MiB for QEMU)",
            "declare fewer of them, a smaller vm_memory_mib, or node_kind: container for some pools",
        )


def _subnet_problems(requirements: Requirements) -> Iterator[Problem]:
    """A region's range that something else on this machine is, or routes to."""
    aliases = {name: link.get("ifalias", "") for name, link in netns.links(None).items()}
    own = names.uplink_alias(requirements.stack, "")
    for route in netns.read(None, "-4", "route", "show", "table", "all"):
        device = route.get("dev", "?")
        if route.get("type", "unicast") != "unicast" or not route["dst"][0].isdigit():
            continue
        used = ip_network(route["dst"])
        if used.prefixlen < SHORTEST_ROUTE or aliases.get(device, "").startswith(own):
            continue
        for region, cidr in requirements.regions.items():
            if cidr.overlaps(used):
                alias = aliases.get(device, "").removeprefix("causeway ")
                yield Problem(
                    f"the range {cidr} of the region {region} is in use on this machine: {used} is reached "
                    f"through {device}" + (f" ({alias})" if alias else ""),
                    f"declare another cidr for {region}, or free {used}",
                )


def _checkout_problems(stack: str, containers: list[dict[str, Any]]) -> Iterator[Problem]:
    found = {c["Labels"].get("causeway.checkout", "") for c in containers}
    found |= {note.get("checkout", "") for note in netns.owned(stack).values()}
    for checkout in sorted(found - {"", str(names.CHECKOUT)}):
        yield Problem(
            f"a stack of the same name, {stack}, stands from the checkout {checkout}",
            f"take it down with `{checkout}/run down {stack}`, or give this one another name",
        )
