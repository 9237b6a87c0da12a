"""What a node is, thing by thing, asked of its own tools: to hold one moment against another."""

from collections.abc import Callable, Iterable
from functools import partial

ASK = r"""
find /etc /usr/local /opt /srv -xdev -printf '%p %y %m %U %G %l\n'
find /etc /usr/local /opt /srv -xdev -type f -exec sha256sum {} +
dpkg-query --show --showformat 'package ${Package} ${Version} ${db:Status-Abbrev}\n'
systemctl list-unit-files --no-legend --no-pager --plain | while read -r unit state rest; do
  echo "unit file $unit $state"; done
systemctl list-units --type=service,timer --state=active --no-legend --no-pager --plain | cut -d' ' -f1 |
  sed 's/^/active /'
sysctl --all --pattern '^(net\.(ipv4\.tcp|core)|vm)\.' 2>/dev/null
cut -d: -f1,7 /etc/passwd | sed 's/^/account /'
hostname
nft list tables
ip -4 route
"""
DATA = r"""
find /var/lib /var/log /var/cache /var/spool /home /mnt -mindepth 1 -maxdepth 1 -type d -printf 'data %p\n'
cut -d' ' -f5 /proc/self/mountinfo | sed 's/^/mount /'
ls /sys/class/net | sed 's/^/interface /'
"""
"""What stays while the data of a role does."""
ACCOUNTS = (
    *("_chrony", "_rpc", "_victoria-metrics", "ceph", "dnsmasq", "docker-registry", "frr", "nvpd"),
    *("statd", "uuidd"),
)
"""Those that packages make, and leave behind on purpose: they may own files."""
OF_THEIR_OWN = (
    *("/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/mtab"),
    *("/etc/subuid", "/etc/subgid", "/etc/.pwd.lock", "/etc/machine-id"),
    *(
        "unit file session-",
        "active user",
        "active session",
        "active systemd-",
        "active apt-",
        "active dpkg-",
        "active logrotate",
    ),
    *("active fstrim", "active e2scrub", "active getty", "active console-getty", "net.ipv4.tcp_fastopen_key"),
    *("vm.stat_refresh", "data /var/lib/causeway", "data /var/log/journal", "mount /run/user"),
    "data /var/lib/libuuid",
    *(f"account {name}:" for name in ACCOUNTS),
)
"""What changes by itself, or is left by Debian's packages on purpose."""


def photograph(run: Callable[[str], str], more: str = "") -> set[str]:
    """One line for each thing. RUN: runs a script on the node, and says what it printed."""
    lines = [line for line in run(ASK + more).splitlines() if line.strip()]
    return {line for line in lines if not any(own in line for own in OF_THEIR_OWN)}


def photographs(on: Callable[..., str], nodes: Iterable[str]) -> dict[str, set[str]]:
    """Node → what it is. ON: runs a command on a node, and says what it printed."""
    return {node: photograph(partial(on, node, "sh", "-c")) for node in nodes}
