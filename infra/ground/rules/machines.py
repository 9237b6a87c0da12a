"""Machines you already have: that they are listed completely and can be reached safely."""

import base64
import binascii
import re
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import ClassVar

from infra.declaration import ClusterSpec, ExistingHost, ExistingProvider, RegionSpec
from infra.declaration.base import is_line
from infra.ground.problem import Problem, Severity
from infra.ground.rule import pools

KEY_TYPES = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa",
)  # fmt: skip


def _hosts(spec: ClusterSpec) -> Iterator[tuple[str, RegionSpec, ExistingHost]]:
    for path, region, _, pool in pools(spec):
        for index, host in enumerate(pool.hosts):
            yield f"{path}.hosts[{index}]", region, host


def _keys(spec: ClusterSpec) -> Iterator[tuple[str, str | None, str]]:
    """(path, host key, how to get it) of each machine that needs one, each jump host and each authority."""
    signed = set()
    for index, region in enumerate(spec.regions):
        if not isinstance(region.provider, ExistingProvider):
            continue
        path = f"regions[{index}].provider"
        for number, jump in enumerate(region.provider.ssh_jump):
            get_one = f"get it with: ssh-keyscan -p {jump.ssh_port} -t ed25519 {jump.address}"
            yield f"{path}.ssh_jump[{number}].host_key", jump.host_key, get_one
        if region.provider.ssh_host_ca is not None:
            signed.add(region.name)
            yield (
                f"{path}.ssh_host_ca",
                region.provider.ssh_host_ca,
                "take the line of the authority's .pub file",
            )
    for path, region, host in _hosts(spec):
        if host.host_key is not None or region.name not in signed:
            get_one = f"get it with: ssh-keyscan -p {host.ssh_port} -t ed25519 {host.address}"
            yield f"{path}.host_key", host.host_key, get_one


class HostsMatchTheProvider:
    """`existing` lists its machines, `local` makes them."""

    id: ClassVar[str] = "hosts"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools whose hosts are too few or too many, and hosts where nodes are made."""
        for path, region, _, pool in pools(spec):
            number = len(pool.hosts)
            if region.provider.makes_nodes and number:
                kind = region.provider.kind
                message = f"{number} hosts in region {region.name}, whose provider {kind} makes its nodes"
                hint = "take hosts out, or give the region provider: {kind: existing}"
                yield Problem(f"{path}.hosts", message, str(number), hint=hint)
            elif not region.provider.makes_nodes and number != pool.count > 0:
                message = f"{number} hosts are listed, but count is {pool.count}"
                hint = "list one entry with address and host_key per node"
                yield Problem(f"{path}.hosts", message, str(number), str(pool.count), hint=hint)


class AddressesAreUnique:
    """One machine is one node, over all regions."""

    id: ClassVar[str] = "address-unique"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Addresses that an earlier host has."""
        first: dict[IPv4Address, str] = {}
        for path, _, host in _hosts(spec):
            earlier = first.setdefault(host.address, path)
            if earlier != path:
                message = f"{host.address} is already the address of {earlier}"
                yield Problem(f"{path}.address", message, str(host.address))


class AddressesAreInTheRegion:
    """Routes and firewall rules follow the region's range."""

    id: ClassVar[str] = "address-range"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Addresses outside their region's range, and those that no machine can have."""
        for path, region, host in _hosts(spec):
            cidr, address = region.cidr, host.address
            if address not in cidr:
                message = f"{address} is outside region {region.name}'s {cidr}"
                yield Problem(f"{path}.address", message, str(address), str(cidr))
            elif cidr.prefixlen < 31 and address in (cidr.network_address, cidr.broadcast_address):
                what = "network" if address == cidr.network_address else "broadcast"
                message = f"{address} is the {what} address of {cidr}"
                yield Problem(f"{path}.address", message, str(address), f"hosts of {cidr}")


class HostKeysAreKeys:
    """Connections are only ever made to the machine that holds this key."""

    id: ClassVar[str] = "host-key"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Keys of machines, jump hosts and authorities that are missing or not a line `type base64`."""
        for path, key, get_one in _keys(spec):
            found = self._complaint(key, get_one)
            if found is not None:
                yield Problem(path, found[0], allowed="<type> <base64>", hint=found[1])

    @staticmethod
    def _complaint(key: str | None, get_one: str) -> tuple[str, str] | None:
        """(what is wrong, what to do); the value itself is not repeated, it may be a private key."""
        if key is None:
            return "is missing", get_one
        words = key.split()
        if "PRIVATE KEY" in key:
            return "a private key", "replace that key, it has been shown; the public one is meant"
        if not is_line(key):
            return "several lines, or a character that cannot be seen", get_one
        if re.match(r"(SHA256|MD5):", key):
            return "a fingerprint, not a key", get_one
        if len(words) > 2 and words[0] not in KEY_TYPES and words[1] in KEY_TYPES:
            return "a line of known_hosts", "leave out the host name before the key's type"
        if not words or words[0] not in KEY_TYPES:
            return f"not a host key; it starts with {', '.join(KEY_TYPES)}", get_one
        if len(words) < 2 or not holds_type(words[1], words[0]):
            return f"the part after {words[0]} is not such a key (cut off?)", get_one
        return None


def holds_type(encoded: str, key_type: str) -> bool:
    """Whether the base64 part starts with its own type, as RFC 4253, section 6.6, has it, and goes on."""
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return False
    name = key_type.encode()
    return raw.startswith(len(name).to_bytes(4, "big") + name) and len(raw) >= len(name) + 4 + 32
