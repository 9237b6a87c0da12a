"""The table of drifts: each is made on a live node, found, put down to the right role, repaired, and gone."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from infra.drift.kinds import KINDS
from tests.integration.checkout import Checkout, commit, two_regions
from tests.integration.quiet import LOCKED, NEWER
from tests.patience import wait_for
from tests.seed import SEED

PROVES = ("drift",)
AS_DECLARED = True
"""Nodes watch themselves for drift as often as a user's do, also while they are repaired."""

MANIFEST = "/var/lib/causeway/manifest.json"
A, B, C = "tokyo-gpu-0", "tokyo-control-0", "shanghai-control-0"
DRIFTED = 3
OLDER = (
    "cd /tmp && rm -rf older && apt-get download -q unattended-upgrades && dpkg-deb -R unattended*.deb older"
    " && sed -i 's/^Version: .*/Version: 0.1/' older/DEBIAN/control && dpkg-deb -b older older.deb"
    f" && {LOCKED} dpkg -i --force-downgrade --force-confold older.deb"
)
PURGE = "apt-get -qy -o DPkg::Lock::Timeout=240 purge unattended-upgrades"
NEW_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB stranger"
KEYS, ROOTS_KEYS = "/home/truth/.ssh/authorized_keys", "/root/.ssh/authorized_keys"
USERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqBqDHZ/KXKmhYaL93/jxJxnoSp/pxzjvdkxrVFGUfc night@desk"

FREEZE = """python3 -c 'import fcntl; fcntl.ioctl(open("{}"), 0x40086602, b"\\x10" + bytes(7))'"""
"""Sets the immutable bit; the nodes have no chattr."""

ATTRIBUTE = """python3 -c 'import os, struct; os.setxattr("{{}}", "{}", {})'"""
ACL = ATTRIBUTE.format(
    "system.posix_acl_access",
    'struct.pack("<I" + 5 * "HHI", 2, 1, 6, -1 & 0xffffffff, 2, 4, 65534, 4, 4, -1 & 0xffffffff,'
    " 16, 4, -1 & 0xffffffff, 32, 4, -1 & 0xffffffff)",
)
"""Lets nobody read a file of mode 0644, which keeps that mode; the nodes have no setfacl."""
WRITING_ACL = ACL.replace("2, 4, 65534", "2, 6, 1").replace("16, 4,", "16, 6,")
"""Lets `daemon` write."""
DEFAULT_ACL = ACL.replace("posix_acl_access", "posix_acl_default")
CAPABILITY = ATTRIBUTE.format("security.capability", 'struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)')
"""cap_setuid+ep: who runs it may become root."""

XDP = r"""python3 -c 'if 1:
    import ctypes, os, socket, struct as s
    keep = [ctypes.create_string_buffer(x) for x in (b"\xb7\0\0\0\2\0\0\0\x95\0\0\0\0\0\0\0", b"GPL")]
    told = ctypes.create_string_buffer(s.pack("<IIQQ", 6, 2, *map(ctypes.addressof, keep)) + bytes(80))
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    program = ctypes.CDLL(None).syscall(number, 5, told, 104)
    body = s.pack("BBHiII", 0, 0, 0, socket.if_nametoindex("lo"), 0, 0)
    body += s.pack("HHHHiHHI", 20, 43 | 1 << 15, 8, 1, program, 8, 3, 2)
    link = socket.socket(16, 3, 0)
    link.send(s.pack("IHHII", 16 + len(body), 19, 5, 1, 0) + body)
    raise SystemExit(-s.unpack("i", link.recv(4096)[16:20])[0])'"""
"""An XDP program that lets all packets pass, in front of `lo`: bpf(2), linux/if_link.h."""
LOOK = (
    "systemctl start causeway-drift-watch; rm -rf /run/causeway-drift; systemctl start causeway-drift-watch"
)
"""Has the timer's service look anew: the first waits for a look of its own that began before."""
SURROUNDINGS = (
    *(f"mkdir -p $(dirname {path}) && echo '{text}' > {path} && chmod +x {path}" for path, text in (
        ("/etc/ssh/sshrc", "true"),
        ("/root/.bash_login", "true"),
        ("/etc/update-motd.d/99-stranger", "#!/bin/sh"),
        ("/etc/ld.so.conf.d/00-stranger.conf", "/srv/lib"),
        ("/etc/default/stranger", "SSHD_OPTS=-oPermitRootLogin=yes"),
        ("/etc/apt/sources.list.d/stranger.list", "# deb http://192.0.2.9 x y"),
        ("/etc/apt/preferences.d/stranger", "Explanation: none"),
        ("/etc/apt/trusted.gpg.d/stranger.asc", ""),
        ("/etc/systemd/system-generators/stranger", "#!/bin/sh"),
        ("/etc/udev/rules.d/99-stranger.rules", 'ACTION=="add", RUN+="/bin/true"'),
        ("/etc/modprobe.d/stranger.conf", "blacklist wireguard"),
        ("/etc/modules-load.d/stranger.conf", "nothing"),
        ("/etc/tmpfiles.d/stranger.conf", "f+ /run/stranger 0777"),
        ("/etc/rc.local", "#!/bin/sh"),
        ("/etc/polkit-1/rules.d/49-stranger.rules", "polkit.addRule()"),
        ("/etc/dbus-1/system.d/stranger.conf", "<busconfig/>"),
        ("/etc/dhcp/dhclient-exit-hooks.d/stranger", "true"),
        ("/etc/logrotate.d/stranger", "/var/log/none {}"),
        ("/run/systemd/journald.conf.d/stranger.conf", "[Journal]"),
        ("/var/spool/cron/atjobs/a0000101", "#!/bin/sh"),
        ("/var/spool/cron/crontabs/daemon", "0 0 1 1 * true"),
        ("/var/lib/systemd/linger/daemon", ""),
        ("/root/.config/systemd/user/stranger.service", "[Service]"),
        ("/usr/local/share/ca-certificates/stranger.crt", "none"),
        ("/etc/ssl/certs/stranger.pem", "none"),
        ("/usr/local/sbin/ip", '#!/bin/sh\nexec /usr/bin/ip "$@"'),
        ("/etc/nologin", "not now"),
        ("/etc/ssh/ssh_config.d/99-stranger.conf", "Host stranger"),
        ("/etc/perl/Stranger.pm", "1;"),
        ("/etc/credstore/tmpfiles.extra", "f /etc/stranger"),
        ("/usr/local/lib/udev/rules.d/99-stranger.rules", "# none"),
    )),
    "mkdir -p /srv/lib && cp /usr/lib/*-linux-gnu/libz.so.1 /srv/lib/ && ldconfig /srv/lib",
    "cp /usr/lib/*-linux-gnu/libz.so.1 /usr/local/lib/ && ldconfig",
    "apt-mark hold openssl",
    "dpkg --add-architecture riscv64",
    "echo 'precedence ::ffff:0:0/96 100' >> /etc/gai.conf",
    "echo '-----BEGIN CERTIFICATE-----' >> /etc/ssl/certs/ca-certificates.crt",
    "echo 'tmpfs /etc/cron.d tmpfs ro,noauto 0 0' >> /etc/fstab",
    "dpkg-divert --local --rename --divert /usr/bin/tsort.stranger --add /usr/bin/tsort",
    "update-alternatives --set pager /bin/more",
    "ln -sf /usr/bin/true /etc/alternatives/awk",
    "mkdir -p /etc/systemd/system/sysinit.target.wants"
    " && ln -s /usr/lib/systemd/system/debug-shell.service /etc/systemd/system/sysinit.target.wants/",
    "cd /usr/local/lib && mkdir -p systemd/system/sysinit.target.wants"
    " && ln -s /usr/lib/systemd/system/debug-shell.service systemd/system/sysinit.target.wants/",
    "ln -s /dev/null /etc/systemd/system/logrotate.timer",
    "systemctl set-environment SSLKEYLOGFILE=/tmp/keys",
    "echo 'import os' > /usr/lib/python3/dist-packages/stranger.pth",
)  # fmt: skip
"""Ways to change what every boot, login and program goes by; no role governs any of them."""
UNDERPINNINGS = (
    "/var/lib/cloud/scripts/per-boot/stranger",
    "/etc/cloud/cloud.cfg.d/99-stranger.cfg",
    "/etc/grub.d/99-stranger",
    "/boot/grub/custom.cfg",
    "/etc/NetworkManager/system-connections/stranger.nmconnection",
    "/etc/dhcpcd.exit-hook",
    "/run/systemd/network/00-stranger.network",
    "/etc/apt/mirrors/stranger.list",
    "/etc/needrestart/hook.d/stranger",
    "/etc/ca-certificates/update.d/stranger",
    "/etc/sudo.conf",
    "/usr/local/lib/systemd/journald.conf.d/stranger.conf",
    "/etc/containers/systemd/stranger.volume",
    "/usr/local/lib/systemd/user/stranger.service",
    "/etc/containers/registries.conf.d/stranger.conf",
    "/root/.config/containers/policy.json",
    "/etc/cni/net.d/stranger.conflist",
    "/etc/cdi/stranger.yaml",
)
"""Files that nobody brought, from which a node, its network or its containers start."""

# What is done ({} is the key): node and role → kind, key, command. Every line is another way to drift.
DRIFTS = {
    (A, "base"): (
        ("file", "/etc/hosts", "echo '# changed' >> {}"),
        ("file", "/etc/chrony/chrony.conf", "chmod 0600 {}"),
        ("file", "/etc/default/chrony", "chown daemon {}"),
        ("file", "/etc/truth/plain.conf", "chgrp daemon {}"),
        ("file", "/etc/security/limits.d/90-causeway.conf", "rm {}"),
        ("unit", "chrony.service", "systemctl stop chrony"),
        ("directory", "/etc/systemd/system/chrony.service.d", "rm -r {}"),
        ("link", "/etc/localtime", "ln -sf /usr/share/zoneinfo/UTC {}"),
        ("effective", "systemd's defaults", "truncate -s 0 /etc/systemd/system.conf.d/90-causeway.conf"),
        ("hostname", "hostname", "hostname intruder"),
        ("locale", "ja_JP.UTF-8", "rm /usr/lib/locale/locale-archive"),
        ("file", "/etc/locale.conf", "echo LANG=C > {}"),
        ("effective", "sshd -T", "echo 'MaxSessions 3' > /etc/ssh/sshd_config.d/99-stranger.conf"),
        ("listing", "/etc/profile.d", "touch {}/stranger.sh"),
        ("effective", "apt-config dump",
         "echo 'APT::Periodic::Enable \"0\";' > /etc/apt/apt.conf.d/zz-stranger"),
        ("package", "unattended-upgrades", OLDER),
        ("package", "tzdata", "apt-mark unhold tzdata"),
        ("absent", "/etc/truth/absent", "touch {}"),
        ("link", "/etc/truth/link", "rm {}"),
        ("directory", "/etc/truth", "chmod 0777 {}"),
        ("file", "/etc/truth/line.conf", "sed -i s/2/9/ {}"),
        ("file", "/etc/truth/section.ini", "sed -i s/4/9/ {}"),
        ("file", "/etc/issue", "chmod 4755 {}"),
        ("file", "/etc/profile.d/truth.sh", "rm {}"),
        ("interface", "lo", "ip link set lo mtu 30000"),
        ("mount", "/mnt/truth", "umount {} && sed -i s/size=1m/size=3m/ /etc/fstab"),
        ("user", "truth", "usermod -s /bin/bash -G daemon truth && echo truth:guess | chpasswd"),
        ("user", "truth", "chage --expiredate 40000 --maxdays 9999 truth"),
        ("authorized_keys", KEYS, f"echo '{NEW_KEY}' >> {KEYS}"),
        ("authorized_keys", ROOTS_KEYS, f"sed -i '1i {NEW_KEY}' {{}}"),
        ("authorized_keys", "root", f"echo '{NEW_KEY}' >> {ROOTS_KEYS}2"),
        ("authorized_keys", "truth", f"echo '{NEW_KEY}' >> {KEYS}2"),
        ("unit", "ssh.service",
         "cd /etc/systemd/system && mkdir -p {}.d && echo '[Service]' > {}.d/x.conf"
         " && systemctl daemon-reload"),
        ("unit", "truth.service", "systemctl stop truth && systemctl disable -q truth"),
        ("route", "192.0.2.0/24", "ip route del 192.0.2.0/24"),
        ("file", "/usr/local/lib/truth.bin",
         "touch -r {} /tmp/was && printf y | dd of={} bs=1 seek=4M conv=notrunc && touch -r /tmp/was {}"),
        ("file", "/run/truth.conf", FREEZE),
        ("file", "/srv/truth.conf", "rm -r /srv"),
        ("unit", "chrony.service",
         "cp /usr/lib/systemd/system/{} /etc/systemd/system/ && systemctl daemon-reload"),
        ("sysctl", "net.ipv4.ip_default_ttl", "sysctl -qw net.ipv4.ip_default_ttl=99"),
        ("unit", "apt-daily-upgrade.timer", "systemctl stop {}"),
        ("unit", "apt-daily.timer",
         "mkdir -p /run/systemd/system/{}.d && echo '[Timer]' > /run/systemd/system/{}.d/x.conf"
         " && systemctl daemon-reload"),
    ),
    (A, "tcp_tuning"): (
        ("sysctl", "net.ipv4.tcp_mtu_probing", "sysctl -qw net.ipv4.tcp_mtu_probing=2"),
        ("unit", "causeway-wan-routes.service", "systemctl stop causeway-wan-routes"),
        ("unit", "causeway-wan-routes.service",
         "cd /etc/systemd/system && mkdir -p {}.d && echo '[Service]' > {}.d/x.conf"
         " && systemctl daemon-reload"),
    ),
    (A, "drift_watch"): (
        ("unit", "causeway-drift-watch.timer", "systemctl stop causeway-drift-watch.timer"),
        ("directory", "/var/lib/prometheus/node-exporter", "chmod 0700 {}"),
    ),
    (A, "names"): (
        ("file", "/etc/resolv.conf", "grep -v 127.0.0.1 {} > /tmp/asked; cat /tmp/asked > {}"),
        ("file", "/etc/causeway-names.conf", "sed -i s/8653/8654/ {}"),
        ("unit", "causeway-dns.service", "systemctl disable -q {}"),
    ),
    (A, "roce"): (
        ("check", "causeway-roce check",
         "systemctl stop causeway-roce@rail0 && ip address flush dev rail0"),
        ("unit", "causeway-roce@rail0.service", "systemctl disable -q {}"),
        ("file", "/etc/nccl.conf", "sed -i s/NCCL_IB_TC=.*/NCCL_IB_TC=0/ {}"),
        ("file", "/etc/causeway/roce.json", "sed -i s/9000/1500/ {}"),
    ),
    (B, "base"): (
        ("unit", "chrony.service", "systemctl mask -q --now chrony"),
        ("hostname", "hostname", "echo intruder > /etc/hostname"),
        ("sysctl", "net.ipv4.ip_default_ttl", "sed -i s/65/99/ /etc/sysctl.d/80-truth.conf"),
        ("file", "/etc/truth/line.conf", "mv {} /tmp/ && ln -s /tmp/line.conf {}"),
        ("file", "/etc/truth/block.conf", "rm {} && mkdir {}"),
        ("file", "/etc/truth/plain.conf", "rm {} && mkfifo {}"),
        ("file", "/run/truth.conf", "echo level = 6 > {} && " + FREEZE),
        ("route", "192.0.2.0/24", "ip route replace 192.0.2.0/24 dev lo metric 42 mtu 1400"),
        ("mount", "/mnt/truth", "mount -o remount,noexec,size=2m {}"),
        ("user", "truth", "userdel truth; groupdel truth 2>/dev/null; true"),
        ("group", "truth", "true"),
        ("authorized_keys", KEYS, "truncate -s 0 {}"),
        ("authorized_keys", ROOTS_KEYS, "sed -i /night@desk/d {}"),
        ("package", "unattended-upgrades", PURGE),
        ("package", "chrony", "apt-mark hold chrony"),
        ("interface", "lo", "tc qdisc del dev lo root"),
        ("unit", "truth.service",
         "mkdir -p /etc/systemd/system/truth.service.d && "
         "echo '[Service]' > /etc/systemd/system/truth.service.d/x.conf"),
        ("file", "/etc/systemd/system/truth.service", "echo '# edited' >> {} && systemctl daemon-reload"),
        ("unit", "ssh.service", "echo '# edited' >> /usr/lib/systemd/system/{} && systemctl daemon-reload"),
        ("file", "/etc/default/chrony", ACL),
        ("file", "/usr/local/lib/truth.bin", CAPABILITY),
        ("directory", "/etc/truth", DEFAULT_ACL),
    ),
    (B, "tcp_tuning"): (
        ("file", "/etc/causeway-wan-routes.json", "echo '[]' > {}"),
        ("file", "/usr/local/sbin/causeway-wan-routes", "chmod 4755 {}"),
        ("unit", "causeway-wan-routes.service", "chrt --batch --pid 0 $(systemctl show -P MainPID {})"),
        ("sysctl", "net.ipv4.tcp_mtu_probing",
         "sed -i s/mtu_probing.*/mtu_probing=0/ /etc/sysctl.d/90-causeway-tcp.conf"),
    ),
    (B, "names"): (
        ("name_server", "causeway-names.service", "kill -STOP $(systemctl show -P MainPID {})"),
        ("file", "/usr/local/lib/causeway/causeway_resolv.py", "echo >> {}"),
        ("unit", "causeway-dns.service", "renice -n 15 -p $(systemctl show -P MainPID {})"),
    ),
    (B, "drift_watch"): (
        ("file", "/usr/local/lib/causeway/infra/drift/watch.py", "echo '# lies' >> {}"),
        ("directory", "/var/lib/prometheus/node-exporter", "rm -r {}"),
        ("unit", "causeway-drift-watch.timer", "touch /etc/systemd/system/{}"),
    ),
    (C, "base"): (
        *(("traffic", "all", command) for command in (
            "ip rule add from 192.0.2.0/24 lookup 77 priority 50",
            "ip -6 rule add fwmark 7 lookup 77 priority 51",
            "ip route add blackhole 198.51.100.0/24 table 77",
            "ip route add 198.51.100.64/26 via $(ip -4 route show default | cut -d' ' -f3)",
            "ip route add local 203.0.113.0/24 dev lo",
            "ip route replace $(ip -4 route show default) mtu 600 initcwnd 4",
            "tc qdisc add dev eth0 root handle 7: pfifo",
            "tc qdisc add dev eth0 clsact",
            "ip neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 nud permanent dev eth0",
            "ip neighbour add proxy 192.0.2.10 dev eth0",
            "ip address add 203.0.113.77/32 dev eth0",
            "ip address add 203.0.113.78/32 dev eth0 scope host",
            r"ip address add $(ip -4 route get 198.18.0.1 | sed -n 's/.* src \([^ ]*\).*/\1/p')/30 dev eth0",
            "ip -6 address add 2001:db8::77/128 dev lo",
            "ip xfrm policy add src 203.0.113.0/24 dst 198.51.100.0/24 dir out action block",
            XDP,
        )),
        *(("interfaces", "all", command) for command in (
            "ip link add odd0 type bridge",
            "ip link set dev eth0 txqueuelen 77",
            "ethtool -K eth0 gso off",
            "sysctl -qw net.ipv4.conf.eth0.proxy_arp=1",
            "sysctl -qw net.ipv4.icmp_echo_ignore_all=1",
            "sysctl -qw net.ipv4.tcp_retries1=9",
            "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1",
            "ip link set dev eth0 mtu 1400",
            "ip link set dev eth0 promisc on",
            "ip link set dev eth0 multicast off",
        )),
        *(("surroundings", "all", command) for command in SURROUNDINGS),
        *(("underpinnings", "all", f"mkdir -p $(dirname {file}) && echo '# none' > {file}")
          for file in UNDERPINNINGS),
        *(("programs", "all", f"{command} && {LOOK}") for command in (
            "printf y | dd of=/usr/bin/clear bs=1 seek=9000 conv=notrunc",
            "echo >> /usr/share/perl5/Debian/AdduserCommon.pm",
            "touch /usr/lib/$(uname -m)-linux-gnu/libstranger.so.1",
            "mkdir /usr/lib/python3/dist-packages/stranger",
            "touch /usr/local/lib/causeway/stranger.py",
            "touch /usr/lib/udev/rules.d/99-stranger.rules",
            "mkdir -p /usr/lib/systemd/system/dbus.service.d"
            " && echo '[Unit]' > /usr/lib/systemd/system/dbus.service.d/stranger.conf",
            "mkdir -p /usr/share/containers/systemd && touch /usr/share/containers/systemd/stranger.volume",
            "chmod 0777 /usr/bin/tabs",
            "mkdir -p /usr/lib/systemd/system/multi-user.target.wants"
            " && ln -s ../debug-shell.service /usr/lib/systemd/system/multi-user.target.wants/",
            "rm /usr/bin/tput",
            "chmod a-x /usr/bin/factor",
        )),
        *(("folders", "all", command) for command in (
            "chmod 0777 /usr/local/lib",
            "chown daemon /etc/chrony",
            "rm -rf /etc/security.was && mv /etc/security /etc/security.was"
            " && ln -s security.was /etc/security",
            "cp -p /etc/chrony/chrony.conf /root/same && mount --bind /root/same /etc/chrony/chrony.conf",
            "rm -rf /root/ssh && cp -a /etc/ssh /root/ssh && mount --bind /root/ssh /etc/ssh",
        )),
        *(("rights", "all", command) for command in (
            # Neither is written anew by the rows that change accounts, as /etc/passwd is.
            "chmod 0666 /etc/fstab",
            "chmod 0644 /etc/ssh/ssh_host_rsa_key",
            "chown daemon /usr/bin",
            WRITING_ACL.replace("{}", "/etc/profile"),
            "chmod 0777 /tmp",
        )),
        *(("privilege", "root", command) for command in (
            "useradd --non-unique --uid 0 --gid 0 --no-create-home --shell /bin/sh toor",
            "useradd --create-home eve; usermod --shell /bin/sh eve && gpasswd --add eve sudo",
            "echo root:guess | chpasswd",
            "usermod --gid root games",
            "gpasswd --administrators daemon sudo",
            "gpasswd --add daemon truthd",
            "echo daemon:0:65536 >> /etc/subuid",
            "systemctl stop stranger9.timer 2>/dev/null; systemd-run --on-active=9d --unit=stranger9 true",
            "systemctl set-property dbus.service CPUWeight=50",
            # Of nobody's account they would open nothing.
            "useradd --create-home eve; usermod --shell /bin/sh eve && mkdir -p /home/eve/.ssh"
            f" && echo '{NEW_KEY}' > /home/eve/.ssh/authorized_keys",
            "mkdir -p /etc/sudoers.d && echo 'eve ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/eve",
            "echo 'auth sufficient pam_permit.so' > /etc/pam.d/stranger",
            "mkdir -p /var/spool/cron/crontabs && echo '0 0 1 1 * true' > /var/spool/cron/crontabs/root",
            "printf '[Timer]\nOnBootSec=9d\n' > /etc/systemd/system/stranger.timer",
            ": > /etc/ld.so.preload",
            # The image may be minutes old, and what its packages set up then is theirs.
            "touch --date='1 hour ago' /var/lib/dpkg/info/coreutils.list && "
            "cp /bin/true /usr/local/bin/stranger && chmod 4755 /usr/local/bin/stranger /usr/bin/tac && "
            + LOOK,
        )),
        ("timekeeping", "chrony.service", "chronyc add server 192.0.2.9"),
        ("timekeeping", "chrony.service", "chronyc allow 192.0.2.0/24"),
        # By its address: one whose name is not known yet is offline once it is.
        ("timekeeping", "chrony.service", "chronyc add server 192.0.2.8 && chronyc offline 192.0.2.8"),
        ("group", "truth", "gpasswd --add daemon truth"),
        ("unit", "ssh.service", "systemctl mask -q --runtime {}"),
        ("unit", "truth.service", "prlimit --pid $(systemctl show -P MainPID {}) --nofile=128:256"),
        ("effective", "sysctl's files", "mkdir -p /run/sysctl.d && echo 'a.b = 1' > /run/sysctl.d/0.conf"),
    ),
    (C, "names"): (("stub", "causeway-dns.service", "kill -STOP $(systemctl show -P MainPID {})"),),
    (C, "tcp_tuning"): (
        ("unit", "causeway-wan-routes.service", "kill -STOP $(systemctl show -P MainPID {})"),
    ),
}  # fmt: skip
TABLE = tuple(
    (node, command.replace("{}", key), role, kind, key)
    for (node, role), rows in DRIFTS.items()
    for kind, key, command in rows
)
PARTS = {
    (A, "user", "truth"): {"shell", "groups", "password", "aging"},
    (A, "unit", "truth.service"): {"active", "enabled"},
    (A, "package", "unattended-upgrades"): {"version"},
    (A, "unit", "chrony.service"): {"active", "dropins", "fragment"},
    (A, "unit", "causeway-roce@rail0.service"): {"active", "enabled"},
    (A, "file", "/run/truth.conf"): {"immutable"},
    (B, "unit", "truth.service"): {"dropins"},
    (B, "unit", "chrony.service"): {"active", "enabled", "load"},
    (A, "mount", "/mnt/truth"): {"fstab", "mounted"},
    (A, "unit", "causeway-wan-routes.service"): {"active", "dropins"},
    (B, "mount", "/mnt/truth"): {"mounted"},
    (B, "package", "unattended-upgrades"): {"installed"},
    (B, "unit", "causeway-drift-watch.timer"): {"reload_needed"},
    (C, "traffic", "all"): {
        *("rules", "routes", "metrics", "queues", "addresses", "neighbours", "programs", "policies"),
        *("inner", "proxies"),
    },
    (C, "interfaces", "all"): {"links", "settings"},
    (C, "folders", "all"): {"folders", "mounts"},
    (C, "rights", "all"): {"open", "acls"},
    (C, "programs", "all"): {"edited", "missing", "open", "strange", "settings", "dropins"},
    (C, "underpinnings", "all"): {
        *("first", "network", "called", "plugins", "daemons", "units", "images"),
    },
    (C, "surroundings", "all"): {
        *("logins", "libraries", "names", "packages", "boot", "policy", "hooks", "jobs", "daemons"),
        *("trust", "defaults", "cached", "fstab", "shadowing", "enabled", "environment"),
        *("users", "clients", "modules", "overriding", "choices", "credentials"),
    },
    (C, "privilege", "root"): {
        *("accounts", "members", "keys", "sudo", "pam", "cron", "units", "told", "preloaded", "setuid"),
        *("services", "subordinates"),
    },
    (C, "unit", "causeway-wan-routes.service"): {"halted"},
    (B, "unit", "causeway-dns.service"): {"running"},
    (B, "unit", "causeway-wan-routes.service"): {"running"},
    (C, "unit", "truth.service"): {"running"},
}
"""What of one thing differs, where a line above changes several parts of it."""
ADDED = (
    *((C, "traffic", "all", line) for line in (
        "priority 50 from 192.0.2.0/24 lookup 77",
        "-6 priority 51 from all fwmark 0x7/0xffffffff lookup 77",
        "blackhole 198.51.100.0/24 table 77",
        "198.51.100.64/26 via ",
        "local 203.0.113.0/24 dev lo table 255",
        ": mtu 600 initcwnd 4",
        "qdisc dev eth0 root handle 7: pfifo",
        "qdisc dev eth0 clsact",
        "192.0.2.9 dev eth0 lladdr 02:00:00:00:00:09",
        "'192.0.2.10 dev eth0'",
        "203.0.113.77/32 dev eth0",
        "203.0.113.78/32 dev eth0",
        "/30 dev eth0",
        "2001:db8::77/128 dev lo",
        "src 203.0.113.0/24 dst 198.51.100.0/24 dir out: block",
        "xdp dev lo",
    )),
    *((C, "interfaces", "all", line) for line in (
        "odd0 bridge",
        "eth0 txqueuelen 77",
        "eth0 gso off",
        "net/ipv4/conf/eth0/proxy_arp 1",
        "net/ipv4/icmp_echo_ignore_all 1",
        "net/ipv4/tcp_retries1 9",
        "net/ipv6/conf/eth0/disable_ipv6 1",
        "eth0 mtu 1400",
        "eth0 promisc on",
        "eth0 multicast off",
    )),
    *((C, "folders", "all", line) for line in (
        "/usr/local/lib 0777 root root",
        "/etc/chrony 0755 daemon root",
        "/etc/security is a link of root root to security.was",
        "/etc/chrony/chrony.conf ",
        "/etc/ssh ",
    )),
    *((C, "programs", "all", line) for line in (
        "/usr/bin/clear ncurses-bin.md5sums",
        "/usr/bin/tput ncurses-bin.md5sums",
        "/usr/bin/tabs",
        "/usr/lib/systemd/system/multi-user.target.wants/debug-shell.service",
        "/usr/bin/factor coreutils.md5sums",
        "/usr/share/perl5/Debian/AdduserCommon.pm adduser.md5sums",
        "/libstranger.so.1",
        "/usr/lib/python3/dist-packages/stranger",
        "/usr/local/lib/causeway/stranger.py",
        "/usr/lib/udev/rules.d/99-stranger.rules",
        "/usr/lib/systemd/system/dbus.service.d/stranger.conf",
        "/usr/share/containers/systemd/stranger.volume",
    )),
    *((C, "underpinnings", "all", f"{file} ") for file in UNDERPINNINGS),
    *((C, "surroundings", "all", line) for line in (
        "/etc/ssh/sshrc ",
        "/root/.bash_login ",
        "/etc/update-motd.d/99-stranger ",
        "/etc/ld.so.conf.d/00-stranger.conf ",
        "/usr/lib/python3/dist-packages/stranger.pth ",
        "/etc/default/stranger ",
        "/srv/lib",
        "/etc/apt/sources.list.d/stranger.list ",
        "/etc/apt/preferences.d/stranger ",
        "/etc/apt/trusted.gpg.d/stranger.asc ",
        "/etc/systemd/system-generators/stranger ",
        "/etc/udev/rules.d/99-stranger.rules ",
        "/etc/modprobe.d/stranger.conf ",
        "/etc/modules-load.d/stranger.conf ",
        "/etc/tmpfiles.d/stranger.conf ",
        "/etc/rc.local ",
        "/etc/polkit-1/rules.d/49-stranger.rules ",
        "/etc/dbus-1/system.d/stranger.conf ",
        "/etc/dhcp/dhclient-exit-hooks.d/stranger ",
        "/etc/logrotate.d/stranger ",
        "/run/systemd/journald.conf.d/stranger.conf ",
        "/var/spool/cron/atjobs/a0000101 ",
        "/var/spool/cron/crontabs/daemon ",
        "/var/lib/systemd/linger/daemon ",
        "/root/.config/systemd/user/stranger.service ",
        "/usr/local/share/ca-certificates/stranger.crt ",
        "/etc/ssl/certs/stranger.pem ",
        "/usr/local/sbin/ip ",
        "/etc/nologin ",
        "/etc/ssh/ssh_config.d/99-stranger.conf ",
        "/etc/perl/Stranger.pm ",
        "/etc/credstore/tmpfiles.extra ",
        "/usr/local/lib/udev/rules.d/99-stranger.rules ",
        "/usr/local/lib/libz.so.1 ",
        "hold of openssl",
        "architecture riscv64",
        "/etc/gai.conf ",
        "ca-certificates.crt has 1 more",
        "tmpfs /etc/cron.d tmpfs ro,noauto 0 0",
        "diverted /usr/bin/tsort to /usr/bin/tsort.stranger",
        "alternative pager /bin/more",
        "alternative awk /usr/bin/true",
        "/etc/systemd/system/sysinit.target.wants/debug-shell.service ",
        "/usr/local/lib/systemd/system/sysinit.target.wants/debug-shell.service ",
        "/etc/systemd/system/logrotate.timer ",
        "SSLKEYLOGFILE ",
    )),
    *((C, "rights", "all", line) for line in (
        "/etc/fstab 0666 root root",
        "/etc/ssh/ssh_host_rsa_key 0644 root root",
        "/usr/bin 0755 daemon root",
        "/etc/profile user:1",
        "/tmp 0777 root root",  # noqa: S108 - looked at
    )),
    *((C, "privilege", "root", line) for line in (
        "toor uid 0 shell /bin/sh",
        "eve in group sudo",
        "root has a password ",
        "/home/eve/.ssh/authorized_keys: ",
        "games of group root",
        "daemon lets into group sudo",
        "daemon in group truthd",
        "daemon subuid 0:65536",
        "/run/systemd/transient/stranger9.timer ",
        "/etc/systemd/system.control/dbus.service.d/50-CPUWeight.conf ",
        "/etc/sudoers.d/eve ",
        "/etc/pam.d/stranger ",
        "/var/spool/cron/crontabs/root ",
        "/etc/systemd/system/stranger.timer ",
        "/etc/ld.so.preload ",
        "/usr/local/bin/stranger 4755",
        "/usr/bin/tac 4755",
    )),
    (C, "timekeeping", "chrony.service", "192.0.2.9"),
    (C, "timekeeping", "chrony.service", "only in force: allow 192.0.2.1"),
    (A, "listing", "/etc/profile.d", "stranger.sh"),
    (A, "authorized_keys", ROOTS_KEYS, "stranger"),
    (A, "authorized_keys", KEYS, "stranger"),
    (A, "authorized_keys", "root", f"{ROOTS_KEYS}2"),
    (A, "authorized_keys", "truth", f"{KEYS}2"),
    (A, "effective", "sshd -T", "maxsessions 3"),
    (A, "check", "causeway-roce check", "rail0 address differs"),
)  # fmt: skip
NAMES = [f"{node}: {command[:60]}" for node, command, *_ in TABLE]
Report = dict[str, Any]


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> Checkout:
    """A stack whose base role governs a bit of everything, and whose GPU node has one fabric interface."""
    cluster = two_regions(checkout)
    tokyo = cluster["regions"][0]
    tokyo["locale"] = "ja_JP.UTF-8"
    tokyo["fabric"] = {"kind": "rail_optimized", "radix": 4, "rails": 1, "link_gbps": 400}
    tokyo["pools"][1]["nics"] = 1
    cluster["authorized_keys"] = [USERS_KEY]
    checkout.declare(cluster)
    govern_more(checkout.folder)
    commit(checkout.folder)
    checkout.up()
    return checkout


def govern_more(folder: Path) -> None:
    """Put the tasks of truth_tasks.yml behind those of the clone's base role."""
    tasks = folder / "roles" / "base" / "tasks"
    shutil.copy(Path(__file__).with_name("truth_tasks.yml"), tasks / "truth.yml")
    with (tasks / "main.yml").open("a") as main:
        main.write("- name: The truth\n  ansible.builtin.import_tasks: truth.yml\n")


def scan(checkout: Checkout, expect: int = 0, *words: str) -> dict[str, Report]:
    """Node → report."""
    said = checkout.run("exec", "causeway", "drift", checkout.stack, "--json", *words, expect=expect)
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {report["host"]: report for report in reports}


def found(report: Report) -> set[tuple[str, str, str]]:
    """(role, kind, key) of every difference."""
    return {
        (role, difference["kind"], difference["key"])
        for role, part in report["roles"].items()
        for difference in part["differences"]
    }


def repair(checkout: Checkout, *words: str, expect: int = 0) -> str:
    """What the repair printed."""
    playbook = ["ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}"]
    return checkout.run("exec", *playbook, *words, expect=expect)


def drift(checkout: Checkout, node: str, command: str) -> None:
    """Do one of the table's commands; what it says only if it fails."""
    checkout.on_node(
        node, "sh", "-c", f"{{ {command}; }} >/tmp/said 2>&1 || {{ cat /tmp/said >&2; exit 1; }}"
    )


@pytest.fixture(scope="module")
def before(standing: Checkout) -> dict[str, Report]:
    """The scan after everything was done to the nodes that the table names."""
    assert {report["state"] for report in scan(standing).values()} == {"clean"}
    for node, command, *_ in TABLE:
        drift(standing, node, command)
    return scan(standing, DRIFTED)


@pytest.fixture(scope="module")
def after(standing: Checkout, before: dict[str, Report]) -> dict[str, Report]:
    """The scan after the repair."""
    assert before
    standing.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{standing.stack}",
                 "-e", "repair_remove_added=true")  # fmt: skip
    return scan(standing)


def test_the_table_is_long_enough() -> None:
    assert len({(node, kind, key) for node, _, _, kind, key in TABLE}) >= 40
    assert len({command for _, command, *_ in TABLE}) >= 120


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_it_is_found_and_put_down_to_the_right_role(
    before: dict[str, Report], row: tuple[str, str, str, str, str]
) -> None:
    node, _, *what = row
    assert tuple(what) in found(before[node])


@pytest.mark.parametrize(("node", "kind", "key"), PARTS)
def test_every_part_of_it_is_found(before: dict[str, Report], node: str, kind: str, key: str) -> None:
    differences = [d for role in before[node]["roles"].values() for d in role["differences"]]
    parts = {part for d in differences if (d["kind"], d["key"]) == (kind, key) for part in d["found"]}
    assert parts >= PARTS[node, kind, key]


@pytest.mark.parametrize(("node", "kind", "key", "what"), ADDED)
def test_what_was_added_is_named(
    before: dict[str, Report], node: str, kind: str, key: str, what: str
) -> None:
    differences = [d for role in before[node]["roles"].values() for d in role["differences"]]
    found = next(d["found"] for d in differences if (d["kind"], d["key"]) == (kind, key))
    assert what in str(found)


def test_no_other_node_is_accused(before: dict[str, Report]) -> None:
    assert {name for name, report in before.items() if report["state"] != "clean"} == {A, B, C}


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_it_is_gone_after_the_repair(after: dict[str, Report], row: tuple[str, str, str, str, str]) -> None:
    node, _, *what = row
    assert tuple(what) not in found(after[node])


def test_all_is_clean_after_the_repair(after: dict[str, Report]) -> None:
    assert {report["state"] for report in after.values()} == {"clean"}


def test_what_was_added_is_kept_aside(standing: Checkout, after: dict[str, Report]) -> None:
    assert after
    kept = standing.on_node(A, "find", "/var/lib/causeway/aside", "-type", "f")
    assert "/etc/ssh/sshd_config.d/99-stranger.conf" in kept
    assert "/etc/profile.d/stranger.sh" in kept
    assert standing.on_node(A, "sshd", "-T").find("maxsessions 10") > 0


def test_log_rotation_is_no_drift(standing: Checkout, after: dict[str, Report]) -> None:
    assert after
    for node in (A, B):
        standing.on_node(
            node, "sh", "-c", "journalctl --rotate; logrotate -f /etc/logrotate.conf 2>/dev/null; true"
        )
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_an_update_is_no_drift_and_no_repair_takes_it_back(
    standing: Checkout, after: dict[str, Report]
) -> None:
    assert after
    version = ("dpkg-query", "--show", "--showformat=${Version}", "iproute2")
    drift(standing, A, NEWER)
    assert {report["state"] for report in scan(standing).values()} == {"clean"}
    drift(standing, A, f"echo '# changed' >> /etc/hosts && {PURGE}")
    assert ("base", "package", "iproute2") not in found(scan(standing, DRIFTED)[A])
    text = repair(standing, "-e", "repair_verify=false")
    assert "still differs" not in text, "the seal takes the new version"
    assert standing.on_node(A, *version) == "9:99"
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_a_match_block_is_found_by_every_scan_and_a_converge_does_not_bless_it(
    standing: Checkout, after: dict[str, Report]
) -> None:
    """`sshd -T` tells nothing of it."""
    assert after
    main, included = "/etc/ssh/sshd_config", "/etc/ssh/truth.conf"
    block = "Match Address 10.0.0.0/8\\n  PermitRootLogin yes\\n"
    for file in (main, included):
        drift(standing, A, f"cp -p {main} /root/kept; printf '{block}' >> {file}")
        drift(standing, A, f"grep -q {included} {main} || sed -i '1i Include {included}' {main}")
        for words in ((), ("--thorough",)):
            report = scan(standing, DRIFTED, "--host", A, *words)[A]
            assert found(report) == {("base", "effective", "sshd -T")}
            assert f"{file}: Match Address 10.0.0.0/8" in str(report)
        text = repair(standing, "-e", "repair_verify=false", expect=2)
        assert "Match Address" in text
        drift(standing, A, f"mv /root/kept {main}; rm -f {included}")
        assert {report["state"] for report in scan(standing).values()} == {"clean"}


FIRST = {kind: row for row in reversed(TABLE) for kind in [row[3]] if KINDS[kind].stands_alone}
ALONE = [(row[0], row[1]) for row in TABLE if row in FIRST.values()]
"""The first row of each kind."""


@pytest.mark.long
def test_what_stands_alone_is_repaired_by_its_own_tasks(standing: Checkout, after: dict[str, Report]) -> None:
    """The same once more, without what has whole roles run: tasks are left out, and nothing is forgotten."""
    assert {report["state"] for report in after.values()} == {"clean"}
    for node, command in ALONE:
        drift(standing, node, command)
    reports = scan(standing, DRIFTED)
    kinds = {kind for node in (A, B, C) for role, kind, _ in found(reports[node]) if role == "base"}
    assert all(KINDS[kind].stands_alone for kind in kinds)
    text = repair(standing, "-e", "repair_remove_added=true", "-e", "repair_verify=false")
    assert "base : Write the hosts file" in text
    assert "base : A group" not in text
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


SEEDS = (1, 2)
MORE = int(os.environ.get("CAUSEWAY_RANDOM_DRIFTS", "0"))
"""So many further combinations, by hand; they follow from the seed of the run (`--seed N`)."""
AT_ONCE = 10
UNREAD = "touch /etc/systemd/"
"""How a row begins that comes last: it is none any more once another has systemd read its files. One that has
the timer's service look comes first: others keep that from working."""
ANYWHERE = ("base", "tcp_tuning", "names", "drift_watch")
"""Roles that every node of the stack has."""


def combination(seed: int) -> list[tuple[str, str, str, str, str]]:
    """Ten rows of the table, each on any node that has its role; of one thing on a node only one row."""
    chance = random.Random(seed)  # noqa: S311 - chosen for tests, and the same for the same seed
    rows, taken = list[tuple[str, str, str, str, str]](), set[tuple[str, str]]()
    for node, command, role, kind, key in chance.sample(TABLE, len(TABLE)):
        # A region's locale is that region's; "true" stands for what follows from another row.
        where = chance.choice((A, B, C)) if role in ANYWHERE and kind != "locale" else node
        if (where, key) not in taken and len(rows) < AT_ONCE and command != "true":
            taken.add((where, key))
            rows.append((where, command, role, kind, key))
    return sorted(rows, key=lambda row: row[1].startswith(UNREAD) - row[1].endswith(LOOK))


@pytest.mark.parametrize(
    "seed",
    [
        SEEDS[0],
        *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:]),
        *(SEED * 1000 + number for number in range(MORE)),
    ],
)
def test_any_ten_at_once_are_found_and_gone_after_one_repair(
    standing: Checkout, after: dict[str, Report], seed: int
) -> None:
    assert after
    rows = combination(seed)
    print(f"seed {seed}:", *rows, sep="\n  ")
    for node, command, *_ in rows:
        drift(standing, node, command)
    reports = scan(standing, DRIFTED)
    missed = [(node, *what) for node, _, *what in rows if tuple(what) not in found(reports[node])]
    assert not missed, f"seed {seed}"
    repair(standing, "-e", "repair_remove_added=true", "-e", "repair_verify=false")
    left = {name: found(report) for name, report in scan(standing).items() if report["state"] != "clean"}
    assert not left, f"seed {seed}"


def test_a_repair_that_shuts_the_way_in_is_undone_by_the_node(
    standing: Checkout, after: dict[str, Report]
) -> None:
    """What somebody wrote for sshd has been read by nobody, until a repair has sshd read its files."""
    assert after
    office, ours = (f"/etc/ssh/sshd_config.d/{name}" for name in ("01-office.conf", "00-causeway.conf"))
    drift(standing, B, f"echo AllowUsers office > {office} && echo MaxAuthTries 9 >> {ours}")
    text = repair(standing, "--limit", B, "-e", "base_sshd_trial_s=15", expect=2)
    assert "Come back, or have the node undo it" in text
    undone = ("journalctl", "--quiet", "--unit", "causeway-sshd-undo", "--output", "cat")
    wait_for(lambda: "nobody came back" in standing.on_node(B, *undone), "the node to put its files back")
    assert standing.on_node(B, "sh", "-c", f"test -e {office} && echo there || true") == ""
    report = scan(standing, DRIFTED)[B]
    assert found(report) == {("manifest", "file", MANIFEST)}, "all but the record there is as it was"
    assert report["roles"]["base"]["state"] == "not sealed", "nobody could look at it after the repair"
    assert standing.on_node(B, "sh", "-c", "cat /var/lib/causeway/aside/sshd-*/sshd_config.d/01-office.conf")


def test_a_roll_out_does_not_bless_what_no_task_of_it_made(
    standing: Checkout, after: dict[str, Report]
) -> None:
    """Every role is another one than was sealed; the tasks find what they compare as it should be."""
    assert after
    evil = "usermod -d /tmp/evil truth && echo evil = 1 >> /etc/truth/line.conf"
    drift(standing, A, evil)
    standing.override("more", base_sshd_max_auth_tries=5)
    text = standing.up()
    for line in (
        "user truth: home is /tmp/evil, expected ",
        "file /etc/truth/line.conf: its content differs",
    ):
        assert f"{A}: base: {line}" in text
    reports = scan(standing, DRIFTED)
    assert found(reports[A]) == {("base", "user", "truth"), ("base", "file", "/etc/truth/line.conf")}
    assert {report["state"] for name, report in reports.items() if name != A} == {"clean"}
