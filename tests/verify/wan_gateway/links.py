"""What the checks of a gateway share: its own links, and what its interfaces and FRR say."""

import ipaddress
import json
import re
from typing import Any

from testinfra.host import Host

from tests.verify.support import Expect

Link = dict[str, Any]


def own_links(expect: Expect) -> list[Link]:
    """The links that end at this gateway."""
    return [link for link in expect.wan_gateway_links if link["gateway"] == expect.wan_gateway_address]


def neighbours(expect: Expect) -> set[str]:
    """With whom this gateway is to speak BGP: the other ends of links, and its region's other gateways."""
    ends = {inner(link, "peer") for link in own_links(expect) if "peer_asn" in link}
    return ends | (set(expect.wan_gateway_members) - {expect.wan_gateway_address})


def inner(link: Link, key: str) -> str:
    """A link's address or peer, inside its tunnel where it has one."""
    return str(link.get("tunnel", link)[key])


def device_of(host: Host, address: str) -> str:
    """The interface that carries an address."""
    found = json.loads(host.run(f"ip -json -4 address show to {address.split('/')[0]}").stdout or "[]")
    names = [str(entry["ifname"]) for entry in found if entry.get("ifname")]
    assert names, f"no interface carries {address}"
    return names[0]


def link_device(host: Host, link: Link) -> str:
    """The interface by which traffic enters a link."""
    return device_of(host, inner(link, "address"))


def some_address(cidr: str) -> str:
    """An address in a network that no node is given."""
    return str(ipaddress.ip_network(cidr)[-2])


def vtysh(host: Host, question: str) -> Any:
    """FRR's answer to `show …`."""
    done = host.run(f"vtysh -c 'show {question} json'")
    assert done.rc == 0, done.stderr or done.stdout
    return json.loads(done.stdout)


def bits(text: str) -> float:
    """A rate as `tc` shows it, such as 47Mbit, in bits per second."""
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)bit", text).groups()  # type: ignore[union-attr] # or it fails
    return int(number) * 1000.0 ** " KMGT".index(unit or " ")
