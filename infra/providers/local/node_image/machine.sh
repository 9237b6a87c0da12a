#!/bin/sh
# Runs inside the root of a container node's image and turns it into a machine's: a kernel of its own, and nothing held
# back for the sake of a host. vm_image.py hashes this file, so a change here makes a new image.
# Argument: `vm` for a disk of a virtual machine; for any machine `netboot`, what it boots from the network, or `disk`, what
# it has on a disk of its own.
set -eu
form=$1

# What setup.sh keeps from a container, a machine has to itself.
xargs rm </usr/lib/causeway-node-masks
find /etc/sysctl.d -lname /dev/null -delete
systemctl disable --quiet host-sysctl-guard.service
rm /usr/lib/causeway-node-masks /etc/systemd/system/host-sysctl-guard.service \
  /etc/systemd/system.conf.d/10-container-node.conf \
  /etc/systemd/journald.conf.d/10-container-node.conf

# A machine has a command line and consoles of its own.
for name in debug getty run; do
  rm "/etc/systemd/system-generators/systemd-$name-generator"
done

# The provider names the interfaces and addresses the first one, by credentials that networkd's generator reads.
systemctl enable --quiet systemd-networkd.service

mkdir -p /etc/initramfs-tools/conf.d /etc/initramfs-tools/hooks
if [ "$form" = vm ]; then
  # Only what it takes to find the root file system: unpacking an initramfs of all drivers costs seconds at every boot.
  printf 'MODULES=list\nCOMPRESS=zstd\n' >/etc/initramfs-tools/conf.d/causeway.conf
  printf '%s\n' virtio_pci virtio_blk ext4 >/etc/initramfs-tools/modules
  printf '/dev/vda / ext4 defaults,errors=remount-ro 0 1\n' >/etc/fstab
  # Nor does it take udev, which brings its database of all hardware along and looks at each device once more.
  cat >/etc/initramfs-tools/hooks/without-udev <<'HOOK'
#!/bin/sh
[ "${1-}" = prereqs ] && exit
rm -rf "$DESTDIR"/scripts/init-*/udev "$DESTDIR"/usr/bin/udevadm "$DESTDIR"/usr/lib/udev "$DESTDIR"/etc/udev \
  "$DESTDIR"/usr/lib/*-linux-gnu/systemd
HOOK
  chmod +x /etc/initramfs-tools/hooks/without-udev
  # What is asked for at every boot and no such machine has: wireless networks, a display, a speaker, a mouse, firmware
  # with variables, a chipset's watchdog, clock rates. Where every instruction is emulated, each costs up to a second.
  printf 'blacklist %s\n' cfg80211 drm efi_pstore lpc_ich pcspkr powernow_k8 psmouse \
    >/etc/modprobe.d/causeway-machine.conf
  loader=
else
  # Any machine may have such disks and chips.
  rm -r /etc/systemd/system-generators
  # A machine of one's own keeps systemd's default: nobody's programs outlive their session.
  rm -f /var/lib/systemd/linger/root
  # Any machine's drivers.
  printf 'MODULES=most\nCOMPRESS=zstd\n' >/etc/initramfs-tools/conf.d/causeway.conf
  printf '[Match]\nType=ether\nKind=!*\n[Network]\nDHCP=yes\n' >/etc/systemd/network/90-dhcp.network
  case $form in
    # What fetches a squashfs and puts a file system in memory over it.
    netboot) loader='live-boot live-boot-initramfs-tools busybox' ;;
    # What UEFI starts, what makes the disk and lets the root grow, and who keeps the name servers that DHCP names: from
    # the network a machine gets them in its initrd.
    disk) loader='systemd-boot systemd-repart systemd-resolved e2fsprogs dosfstools mtools' ;;
  esac
fi

export DEBIAN_FRONTEND=noninteractive
install="apt-get install --yes --quiet=2 --no-install-recommends -o Dpkg::Options::=--force-unsafe-io
  linux-image-amd64 initramfs-tools zstd $loader"
# The lists in the image may be older than the mirror.
$install || { apt-get update --quiet=2 && $install; }
rm -f /var/cache/apt/archives/*.deb
# Where every instruction is emulated, working this out anew takes a quarter of a minute in each node.
apt-cache --quiet=2 gencaches
# What mmdebstrap copies from the host; a node gets its own at its first boot.
rm -f /etc/hostname /etc/resolv.conf
