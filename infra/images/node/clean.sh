#!/bin/sh
# Runs in the builder after the roles: takes away what no image may hold, what differs from build to build, and what
# is a node's own to have. SOURCE_DATE_EPOCH is set. Arguments: the units that roles enable themselves.
set -eu

# A service comes up with the settings that its role gives it, and not before.
for unit in "$@"; do
  [ ! -e "/usr/lib/systemd/system/$unit" ] || systemctl disable --quiet "$unit"
done
rm -f /usr/sbin/policy-rc.d

# Logs, and what programs remember of their own runs.
find /var/log -type f \( -path '/var/log/apt/*' -o -name '*.log' -o -name 'fontconfig.log' \) -delete
find /var/log -type f -exec sh -c ': >"$1"' empty {} \;
rm -f /var/cache/ldconfig/aux-cache /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old \
  /var/lib/apt/extended_states.old /var/lib/apt/periodic/* /var/lib/systemd/random-seed
rm -rf /root/.ansible /root/.cache /tmp/..?* /tmp/.[!.]* /tmp/* /var/tmp/* /run/* 2>/dev/null || true

# The day on which a password was last changed is the day of the build.
day=$((SOURCE_DATE_EPOCH / 86400))
for file in /etc/shadow /etc/shadow-; do
  [ ! -e "$file" ] || sed -i "s/^\([^:]*:[^:]*\):[0-9]*:/\1:$day:/" "$file"
done

# Keys and names are made where they are used, at a node's first boot.
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub /etc/ssl/private/ssl-cert-snakeoil.key \
  /etc/ssl/certs/ssl-cert-snakeoil.pem /var/lib/dbus/machine-id /root/.ssh/* /var/lib/systemd/credential.secret \
  /etc/nvme/hostid /etc/nvme/hostnqn /etc/iscsi/initiatorname.iscsi
: >/etc/machine-id
