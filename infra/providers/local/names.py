"""The names of everything the provider `local` makes: namespaces, interfaces, containers, labels, paths.

All of them follow from the declaration, so that a second run finds what the first one made. Interface names
hold 15 characters at most; where a full name does not fit, a hash stands in and the alias tells the rest.
"""

from hashlib import sha256
from pathlib import Path

from infra import ROOT
from infra.ground import addresses
from infra.stack import check_stack

RUN_DIR = Path("/run/causeway")
VM_DIR = Path("/var/lib/causeway/vms")
"""Disks of virtual machines: they outlive a boot of the host, as containers do."""
NETNS_DIR = Path("/run/netns")
CHECKOUT = ROOT

UPLINK_NETWORK = addresses.UPLINK_NETWORK

BRIDGE = "br0"
LEAF_MTU_BYTES = 9216
"""What the ports of leafs take; the hosts' MTU is theirs to set."""
ROUTER_UPLINK = "up0"
NODE_INTERFACE = "eth0"
UPLINK_PREFIX = "cwu"
NFT_TABLE = "causeway"

LABEL = "causeway."
"""Prefix of every container label: stack, region, pool, node, address, urn, checkout, definition."""


def short_hash(*words: str) -> str:
    """8 hex digits that stand for these words; the separator keeps ("a-b", "c") and ("a", "b-c") apart."""
    return sha256("\0".join(words).encode()).hexdigest()[:8]


def router_netns(stack: str, region: str) -> str:
    """The network namespace of a region's router and bridge."""
    return f"cw-{stack}-{region}"


def carrier_netns(stack: str, link: str) -> str:
    """The network namespace in which netem shapes a WAN link; no region or node is called so."""
    return f"cw-{stack}_{link}"


def node(stack: str, name: str) -> str:
    """The name of a node's container and of its network namespace."""
    return f"cw-{stack}-{name}"


def netns_path(netns: str) -> Path:
    """Where a named network namespace is mounted."""
    return NETNS_DIR / netns


def host_uplink(stack: str, region: str) -> str:
    """The host's end of the cable to a region's router."""
    return UPLINK_PREFIX + short_hash(stack, region)


def uplink_alias(stack: str, region: str) -> str:
    """What `ip link` shows beside the host's end, and by which a stack recognises its own."""
    return f"causeway stack={stack} region={region}"


def bridge_port(stack: str, *words: str) -> str:
    """A node's port on its region's bridge or, with a fabric port's name, on a leaf."""
    return "n" + short_hash(stack, *words)


def leaf_bridge(region: str, leaf: str) -> str:
    """The bridge that stands for a leaf of the fabric: `tokyo-leaf-3` → `leaf-3`."""
    return leaf.removeprefix(f"{region}-")


def link_interface(link: str) -> str:
    """A WAN link's interface; it has the same name at both ends, and people meet it on gateway nodes."""
    return addresses.link_device("wan", link)


def mac(*words: str) -> str:
    """A locally administered MAC address, the same on every run, so that no ARP cache goes stale."""
    digest = sha256("\0".join(words).encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def stack_dir(stack: str) -> Path:
    """What the host remembers of a stack while it stands."""
    return RUN_DIR / "stacks" / check_stack(stack)


def netns_marker(stack: str, netns: str) -> Path:
    """The note, written before a namespace is made, that says whose it is.

    Names alone cannot tell: stack `a-b` with region `c` and stack `a` with region `b-c` give the same.
    """
    return stack_dir(stack) / "netns" / netns


def link_dir(stack: str, link: str) -> Path:
    """Process ids and sockets of a WAN link."""
    return _short_enough(stack_dir(stack) / "links" / link, stack)


def vms_dir(stack: str) -> Path:
    """Where the virtual machines of a stack have their folders."""
    return VM_DIR / check_stack(stack)


def vm_dir(stack: str, node_name: str) -> Path:
    """Disk, keys, console and monitor of a virtual machine."""
    return _short_enough(vms_dir(stack) / node_name, stack)


def _short_enough(folder: Path, stack: str) -> Path:
    """The folder, its name hashed where the paths of sockets in it would grow too long."""
    return folder if len(str(folder)) <= 80 else folder.with_name(short_hash(stack, folder.name))


def prune(folder: Path) -> None:
    """Remove a folder of a stack and those above it, as far as they are empty."""
    while folder.parent.is_relative_to(RUN_DIR / "stacks"):
        try:
            folder.rmdir()
        except OSError:  # something else still lies in it, or it is gone: either way nothing is left to do
            if folder.exists():
                return
        folder = folder.parent
