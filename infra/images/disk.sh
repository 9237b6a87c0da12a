#!/bin/sh
# Runs inside a machine's root and makes a disk of it, with the root's own programs: they are the same wherever the root
# was built. /mnt is the root once more, without what is mounted in it, and /media takes what is made: it has repart.d, and
# in the end disk.raw. SOURCE_DATE_EPOCH is set.
# Arguments: the kernel's options, and what the partitions are called and how large they are (disk.py).
set -eu
options=$1 disk=$2 esp_partition=$3 root_partition=$4 file_system=$5 volume=$6 esp_mib=$7 root_mib=$8 journal_mib=$9
export TZ=UTC MTOOLS_SKIP_CHECK=1 SYSTEMD_RELAX_ESP_CHECKS=1
# What is made on the way lies beside the disk: never in the root, of which it would become a part.
export TMPDIR=/media
esp=/media/esp

# The root is the last partition, and grows. Where the first one is late or broken, the machine still lets somebody in.
mkdir -p /etc/repart.d /boot/efi
printf '[Partition]\nType=root\n' >/etc/repart.d/50-root.conf
cat >/etc/fstab <<FSTAB
PARTUUID=$root_partition / ext4 defaults,errors=remount-ro,x-systemd.growfs 0 1
PARTUUID=$esp_partition /boot/efi vfat umask=0077,nofail,x-systemd.device-timeout=10min 0 2
FSTAB
# Name servers are DHCP's to say, and nobody else's on the network.
mkdir -p /etc/systemd/resolved.conf.d
printf '[Resolve]\nLLMNR=no\nMulticastDNS=no\n' >/etc/systemd/resolved.conf.d/dhcp-only.conf
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf

# Kernels that come later are entered as this one is: by Debian's hooks, under a name that no machine ID is part of.
mkdir -p /etc/kernel "$esp/loader"
mount --bind "$esp" /boot/efi
echo causeway >/etc/kernel/entry-token
echo 'layout=bls' >/etc/kernel/install.conf
echo "root=PARTUUID=$root_partition $options" >/etc/kernel/cmdline
echo 'timeout 3' >"$esp/loader/loader.conf"
bootctl --quiet --esp-path=/boot/efi --no-variables --random-seed=no install
for kernel in /boot/vmlinuz-*; do
  BOOT_ROOT=/boot/efi BOOT_MNT=/boot/efi MACHINE_ID=$(echo "$disk" | tr -d -) \
    kernel-install add "${kernel#*-}" "$kernel"
done

# No time of a file is the build's, nor the last time that somebody read it.
for tree in /mnt "$esp"; do
  find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  find "$tree" -exec touch --no-dereference --time=atime --date="@$SOURCE_DATE_EPOCH" {} +
done

# The table first, and each file system in its place: a copy of it would have no holes.
systemd-repart --definitions=/media/repart.d --empty=create --size=auto --seed="$disk" --offline=yes --dry-run=no \
  --json=short /media/disk.raw >/media/table
set -- $(python3 -c 'import json; print(*(row["offset"] for row in json.load(open("/media/table"))))')

# systemd-repart of Debian 13 would make file systems as well, but ext4 with a hash of directories by chance.
mkfs.vfat --invariant -F 32 -n ESP -i "$volume" --offset $(($1 / 512)) /media/disk.raw $((esp_mib * 1024)) >/media/log
(
  cd "$esp"
  find . -mindepth 1 -type d | LC_ALL=C sort | while read -r path; do mmd -i "/media/disk.raw@@$1" "::$path"; done
  find . -type f | LC_ALL=C sort | while read -r path; do mcopy -m -Q -i "/media/disk.raw@@$1" "$path" "::$path"; done
)
mkfs.ext4 -q -L root -U "$file_system" -E "hash_seed=$file_system,offset=$2" -J size=$journal_mib -m 1 -d /mnt \
  /media/disk.raw "${root_mib}M"
