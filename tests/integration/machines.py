"""Machines nobody of a stack has made, for the provider `existing`: containers of another stack."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infra.providers.local import image, names, network, nodes, sweep
from tests.integration.checkout import Checkout, said, within
from tests.patience import wait_for


@dataclass(frozen=True)
class Machines:
    """The machines, and the key that opens them."""

    stack: str
    key: Path
    states: Mapping[str, nodes.NodeState]
    """By name: `<region>-<number>`."""

    def container(self, name: str) -> str:
        return names.node(self.stack, name)

    def on(self, name: str, *argv: str) -> str:
        """What a command printed on a machine."""
        return said(*within(self.container(name), *argv))

    def sshd(self, name: str, text: str, file: str = "00-getting-in") -> None:
        """Have a machine's sshd say this, or nothing of its own any more."""
        self._sshd_anew(name, f"printf '%s\\n' \"$1\" >/etc/ssh/sshd_config.d/{file}.conf && sshd -t", text)

    @contextmanager
    def no_forwarding(self, name: str) -> Iterator[None]:
        """While it lasts, a machine lets everybody in and leads nobody on."""
        self.sshd(name, "AllowTcpForwarding no", "00-forwarding")
        try:
            yield
        finally:
            self._sshd_anew(name, "rm /etc/ssh/sshd_config.d/00-forwarding.conf")

    def _sshd_anew(self, name: str, change: str, *words: str) -> None:
        """Change sshd's files, and come back when it goes by them: systemd tells it, and does not wait."""
        before = self._listening(name)
        self.on(name, "sh", "-ec", f"{change} && systemctl reload ssh", "sshd", *words)
        wait_for(lambda: self._listening(name) not in ("", before), f"sshd of {name} to listen anew")

    def _listening(self, name: str) -> str:
        """The number of the socket that a machine's sshd listens on: each start of it has another."""
        return self.on(name, "sh", "-c", "ss -4Hltne 'sport = :22' | grep -o 'ino:[0-9]*' || true")

    def pool(self, role: str, *machines: str, **host_keys: str) -> dict[str, Any]:
        """A pool of machines; a machine by its name (`_` for `-`) may be declared with another host key."""
        hosts = [
            {
                "address": str(self.states[name].address),
                "host_key": host_keys.get(name.replace("-", "_"), self.states[name].host_key),
            }
            for name in machines
        ]
        return {"name": role, "role": role, "count": len(hosts), "hosts": hosts}

    def region(self, name: str, cidr: str, *pools: dict[str, Any], **provider: Any) -> dict[str, Any]:
        """A region of such pools; `provider` are further keys of it."""
        access = {"kind": "existing", "ssh_key_file": str(self.key), **provider}
        return {
            "name": name,
            "provider": access,
            "cidr": cidr,
            "timezone": "Asia/Tokyo",
            "pools": list(pools),
        }


@contextmanager
def standing(
    checkout: Checkout, counts: Mapping[str, int], suites: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Machines]:
    """Machines in rooms without a path between them; room number i has the range `checkout.cidr(i)`.

    `suites`: machine → the release of Debian that it has, where it is not the one that nodes have.
    """
    stack = f"{checkout.stack}-machines"
    key = checkout.folder.parent / "key"
    said("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    states: dict[str, nodes.NodeState] = {}
    try:
        for index, (room, count) in enumerate(counts.items()):
            home = network.RegionNetwork(stack, room, IPv4Network(checkout.cidr(index)), 1500)
            network.ensure(home, [])
            desired = [
                _machine(home, number, key, suites.get(f"{room}-{number}", image.SUITE))
                for number in range(count)
            ]
            made = nodes.reconcile(stack, room, "row", desired, print)
            states |= {state.name: state for state in made}
        found = Machines(stack, key, states)
        for name in states:  # a machine's own file; podman's is mounted there and cannot be replaced
            found.on(name, "umount", "/etc/hostname")
        yield found
    finally:
        sweep.sweep(stack)


def _machine(home: network.RegionNetwork, number: int, key: Path, suite: str) -> nodes.Node:
    return nodes.Node(
        stack=home.stack,
        region=home.region,
        pool="row",
        name=f"{home.region}-{number}",
        address=home.cidr[256 + number],
        gateway=home.gateway.ip,
        prefixlen=home.cidr.prefixlen,
        mtu_bytes=home.mtu_bytes,
        image=image.ensure_image(print, suite),
        public_key=key.with_suffix(".pub").read_text(),
        urn="urn:pulumi:machines::test",
        shm_gib=None,
    )
