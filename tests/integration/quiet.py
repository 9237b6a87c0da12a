"""What happens on nodes anyway, and no scan is to take for drift."""

import random
from collections.abc import Iterator, Sequence

from tests.integration.checkout import Checkout

LOCKED = """DPKG_FRONTEND_LOCKED=1 python3 -c 'import fcntl, subprocess, sys
lock = open("/var/lib/dpkg/lock-frontend", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
sys.exit(subprocess.call(sys.argv[1:]))'"""
"""Has a dpkg wait for apt's daily run, which may be at work: it fails by itself where another has it."""
NEWER = (
    "cd /tmp && rm -rf newer && apt-get download -q iproute2 && dpkg-deb -R iproute2*.deb newer"
    " && sed -i 's/^Version: .*/Version: 9:99/' newer/DEBIAN/control && dpkg-deb -b newer newer.deb"
    f" && {LOCKED} dpkg -i --force-confold newer.deb"
)
"""An update, as unattended upgrades make one."""
SERVICES = (
    "systemctl list-units --type=service --state=running --plain --no-legend | cut -d ' ' -f 1"
    " | grep -v -e dbus -e user@ -e getty | sort | awk -v n=$1 '{unit[NR] = $0} END {print unit[1 + n % NR]}'"
)
"""One of those that run, by the number that a command is given."""
ON_NODES = {
    "a service starts again": f"unit=$({SERVICES}); echo $unit; systemctl restart $unit",
    "a service reloads": f"unit=$({SERVICES}); echo $unit; systemctl reload-or-restart $unit",
    "systemd reads its files": "systemctl daemon-reload",
    "systemd begins anew": "systemctl daemon-reexec",
    "logs rotate": "journalctl --rotate; logrotate -f /etc/logrotate.conf",
    "an update of a package": f"[ $(dpkg-query -Wf '${{Version}}' iproute2) = 9:99 ] || {{ {NEWER}; }}",
    "apt's lists": "apt-get -q update",
    "apt's daily timers": "systemctl start apt-daily.service apt-daily-upgrade.service dpkg-db-backup",
    "what is temporary goes": "systemctl start systemd-tmpfiles-clean.service",
    "a lease is renewed": (
        "ip -4 -o addr show eth0 | while read -r _ _ _ address _; do"
        " ip addr change $address dev eth0 valid_lft 3600 preferred_lft 3000; done"
    ),
    "an address that never ends": (
        "ip -4 -o addr show eth0 | while read -r _ _ _ address _; do"
        " ip addr change $address dev eth0 valid_lft forever preferred_lft forever; done"
    ),
    "neighbours are asked anew": "ip neighbour flush all; ip route flush cache",
    "the clock is looked at": "chronyc -a burst 1/2; chronyc -a makestep; true",
    # Of units systemd could not tell whether it has read what they say now.
    "files get another time": (
        "find /etc -newer /etc/machine-id -type f -not -path '/etc/systemd/*' -exec touch -c {} +"
    ),
    "the linker's cache": "ldconfig",
    "programs are compiled": "find /usr/local -name '*.py' -exec python3 -m py_compile {} + ; true",
    "somebody logs in": "su - root -c 'echo ls >> ~/.bash_history; id >/dev/null'; true",
    "memory is short": "sync; python3 -c 'x = bytearray(300 << 20)'",
    "a core is busy": "timeout 3 sh -c 'while :; do :; done'; true",
    "Consul's leader moves": "! [ -e /etc/consul.d ] || systemctl restart consul",
    "FRR forgets its neighbours": "! command -v vtysh || vtysh -c 'clear bgp *'",
    "a monitor of Ceph's goes": "! ls /etc/ceph/*.conf >/dev/null 2>&1 || systemctl restart 'ceph-mon@*'",
    "the watch looks itself": "systemctl start causeway-drift-watch.service",
}
"""What → the shell command that has it happen on a node, of whatever role."""
NUMBERS = 1000
LONG = ("apt's daily timers",)
"""What takes a quarter of a minute."""


def once(nodes: Sequence[str], seed: int) -> Iterator[tuple[str, str, int]]:
    """What, on which node, and a number: each once, but for what takes long, in any order on any node."""
    chance = random.Random(seed)  # noqa: S311 - chosen for tests, and the same for the same seed
    for what in chance.sample(sorted(ON_NODES), len(ON_NODES)):
        if what not in LONG:
            yield what, chance.choice(nodes), chance.randrange(NUMBERS)


def happens(stack: Checkout, what: str, node: str, number: int) -> str:
    """Have it happen; what it said. The number says which one, where there are several."""
    return stack.on_node(node, "sh", "-c", ON_NODES[what], "sh", str(number))
