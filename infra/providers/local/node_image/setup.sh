#!/bin/sh
# Runs inside the freshly installed root of a node's image and turns it into a container node.
# image.py hashes this file, so a change here makes a new image.
set -eu

# Units that act on hardware or on the kernel. A container shares both with the host: a node must not trigger the
# host's devices, load its modules, empty its pstore or open its consoles.
systemctl mask --quiet \
  dev-hugepages.mount proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
  sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
  console-getty.service container-getty@.service getty-static.service getty.target getty@.service \
  serial-getty@.service fstrim.timer kmod-static-nodes.service systemd-binfmt.service systemd-firstboot.service \
  systemd-journald-audit.socket systemd-modules-load.service systemd-pstore.service systemd-remount-fs.service \
  systemd-udev-settle.service systemd-udev-trigger.service systemd-udevd-control.socket \
  systemd-udevd-kernel.socket systemd-udevd.service nvmefc-boot-connections.service nvmf-autoconnect.service
# The provider gives a node its address, and podman its resolv.conf.
systemctl mask --quiet systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service \
  systemd-resolved.service
# A virtual machine's image takes these away again, and leaves what roles have masked in a baked one.
find /etc/systemd/system -maxdepth 1 -lname /dev/null >/usr/lib/causeway-node-masks

# Whoever enables a unit or adds one has systemd run all generators anew, a dozen times in a converge. These ask a kernel's
# command line, disks and chips that a node has not, and are a third of what that costs.
mkdir -p /etc/systemd/system-generators
for name in debug getty gpt-auto hibernate-resume run ssh system-update tpm2; do
  ln -s /dev/null "/etc/systemd/system-generators/systemd-$name-generator"
done

# Settings below /proc/sys are the host's, except those of the node's own network namespace. Read-only, a role finds
# out that the kernel will not take one; writable, it would change the host without anybody noticing.
cat >/etc/systemd/system/host-sysctl-guard.service <<'UNIT'
[Unit]
Description=Keep the host's kernel settings from being changed by this container
DefaultDependencies=no
Before=systemd-sysctl.service sysinit.target
ConditionVirtualization=container

[Service]
Type=oneshot
RemainAfterExit=yes
ExecCondition=/bin/sh -c '! findmnt --noheadings /proc/sys/net'
ExecStart=/bin/mount --bind /proc/sys /proc/sys
ExecStart=/bin/mount --bind /proc/sys/net /proc/sys/net
ExecStart=/bin/mount --options remount,bind,ro /proc/sys

[Install]
WantedBy=sysinit.target
UNIT
systemctl enable --quiet host-sysctl-guard.service

# The clock is the host's as well: without the capability chronyd measures, and leaves the clock to the host.
mkdir -p /etc/systemd/system.conf.d /etc/systemd/journald.conf.d
cat >/etc/systemd/system.conf.d/10-container-node.conf <<'CONF'
[Manager]
CapabilityBoundingSet=~CAP_SYS_TIME CAP_SYS_MODULE CAP_SYS_RAWIO
CONF
# The kernel's log tells about the host; a node's journal tells about the node.
cat >/etc/systemd/journald.conf.d/10-container-node.conf <<'CONF'
[Journal]
ReadKMsg=no
SystemMaxUse=64M
CONF

# Vendor settings that are the host's to choose.
for name in 10-coredump-debian.conf 50-pid-max.conf; do
  ln -s /dev/null "/etc/sysctl.d/$name"
done

# A timer that is overdue runs at boot, holds dpkg's lock and stands in the way of the first converge.
for timer in apt-daily apt-daily-upgrade dpkg-db-backup logrotate; do
  mkdir -p "/etc/systemd/system/$timer.timer.d"
  printf '[Timer]\nPersistent=false\n' >"/etc/systemd/system/$timer.timer.d/not-at-boot.conf"
done

# It waits for a shutdown, to let an upgrade end before. Nodes here end by the host's word, and its start reads all that
# apt knows: 0.7 s of a core at each boot.
systemctl disable --quiet unattended-upgrades.service

# Who logs in while no other session of root's is open has root's user manager started, and ended again afterwards:
# three times the CPU of the login itself, in every node of a host. Here it stays.
install -d /var/lib/systemd/linger
touch /var/lib/systemd/linger/root

# Keys only. A role may say more, in a file that sorts later.
cat >/etc/ssh/sshd_config.d/10-node-image.conf <<'CONF'
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
CONF
install -d -m 0700 /root/.ssh

# What has to differ between nodes is made at a node's first boot. Debian's unit asks for systemd's own idea of a first
# boot, which would also reset every unit to its preset; the missing key is the better question.
# Before Debian 13 there is none: the package makes keys when it is installed.
if [ ! -e /usr/lib/systemd/system/sshd-keygen.service ]; then
  cat >/etc/systemd/system/sshd-keygen.service <<'UNIT'
[Unit]
Description=Make the host keys that are missing
Before=ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=ssh.service
UNIT
  systemctl enable --quiet sshd-keygen.service
fi
mkdir -p /etc/systemd/system/sshd-keygen.service.d
cat >/etc/systemd/system/sshd-keygen.service.d/missing-keys.conf <<'CONF'
[Unit]
ConditionFirstBoot=
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
CONF
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /etc/hostname

# dpkg has done all that systemd does at the first boot after an update (the linker's cache, the journal's catalogue).
touch --date="@$SOURCE_DATE_EPOCH" /etc/.updated /var/.updated

# Working out what the lists say takes each node a second of a core. apt asks for the very times of its files, and the
# image has none that is younger than its build's beginning.
rm -f /var/cache/apt/archives/*.deb
find /etc/apt /var/lib/apt /var/lib/dpkg -newermt "@$SOURCE_DATE_EPOCH" \
  -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
apt-cache --quiet=2 gencaches
