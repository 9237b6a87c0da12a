"""What `base` meets on a machine that somebody has: its name, /etc/hosts, its clock, place and language."""

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address

from infra.capabilities.base.section import BaseRegion, BaseSection
from infra.ground.contract import Contract
from infra.ground.machine import Finding, Look, Machine, adopted, fine, in_the_way
from infra.ground.names import some

HOSTS, LOCALE, TIMESYNCD = "/etc/hosts", "/etc/default/locale", "/etc/systemd/timesyncd.conf"
CHRONY = "/etc/chrony/chrony.conf"
HOW_CHRONY_STARTS = "/etc/default/chrony"
TIME_UNITS = {
    "chrony.service": "chrony",
    "systemd-timesyncd.service": "systemd-timesyncd",
    "ntpsec.service": "ntpsec",
    "ntp.service": "ntp",
    "openntpd.service": "openntpd",
}
OWN_SERVERS = "name its servers in base_ntp_servers"
CLOUD_HOSTS = "manage_etc_hosts: false in /etc/cloud/cloud.cfg.d/99-causeway.cfg"
CLOUD_NAME = "preserve_hostname: true in /etc/cloud/cloud.cfg.d/99-causeway.cfg"


def judge(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """Name, hosts file, time, place, logins, updates."""
    place = _region(contract, host)
    yield from _name(host, place, machine)
    yield from _hosts(contract, host, place, machine)
    yield from _time(place, machine)
    yield from _place(place, machine)
    if place.adopt.passwords == "keep":
        yield adopted("logins", "by password stay as sshd's other files have them")
    if place.adopt.unattended_upgrades == "keep":
        yield adopted("updates", "unattended upgrades stay as they are")


def _region(contract: Contract, host: str) -> BaseRegion:
    return contract.need(BaseSection).regions[contract.region_of(host)]


def _name(host: str, place: BaseRegion, machine: Machine) -> Iterator[Finding]:
    if machine.hostname == host:
        yield fine("host name", host)
        return
    if place.adopt.hostname == "keep":
        yield adopted("host name", "it keeps the one it has", machine.hostname or "none")
        return
    says = "it has another name, and role base gives it the one of the stack"
    do = "see who knows it by its name: a directory, a scheduler, certificates"
    yield in_the_way("host name", says, do, f"{machine.hostname or 'none'} → {host}")
    if machine.keeps_name:
        says = "cloud-init sets the host name back at every boot"
        yield in_the_way("host name", says, CLOUD_NAME)


def _hosts(contract: Contract, host: str, place: BaseRegion, machine: Machine) -> Iterator[Finding]:
    """Whoever has written entries of their own there loses them."""
    if machine.keeps_hosts:
        says = f"cloud-init writes {HOSTS} at every boot"
        yield in_the_way("hosts file", says, CLOUD_HOSTS)
    block = place.adopt.hosts_file == "managed_block"
    if machine.files.get(HOSTS) == "ours" and not block:
        yield fine("hosts file", "ours")
        return
    own = {one.ip for held in machine.interfaces.values() for one in held} | {contract.hosts[host].address}
    foreign = [line for line in machine.lines.get(HOSTS, ()) if _is_somebodys(line, own, machine.hostname)]
    if block:
        foreign = [line for line in foreign if not _is_of_the_block(line, contract)]
    if foreign and block:
        yield adopted("hosts file", f"entries of somebody's stay in {HOSTS}", some(foreign, 2))
        if wrong := [line for line in foreign if _contradicts(line, contract)]:
            says = f"{HOSTS} says other addresses of nodes before the block says theirs"
            yield in_the_way("hosts file", says, "take these lines out", some(wrong, 2))
    elif foreign:
        says = f"{HOSTS} has entries of somebody's, and role base writes it anew"
        yield in_the_way("hosts file", says, "name them in base_hosts_entries", some(foreign, 2))
    else:
        yield fine("hosts file", "says nothing that is not known")


def _is_of_the_block(line: str, contract: Contract) -> bool:
    """Whether a line is one that the block has, by us or somebody."""
    address, *names = line.split()
    return all(name in contract.hosts and str(contract.hosts[name].address) == address for name in names)


def _contradicts(line: str, contract: Contract) -> bool:
    """Whether a line gives a node an address that it has not."""
    address, *names = line.split()
    return any(str(contract.hosts[name].address) != address for name in names if name in contract.hosts)


def _is_somebodys(line: str, own: set[IPv4Address], hostname: str) -> bool:
    """Not the machine's own address and name, nor what every machine has."""
    address, *names = line.split() or [""]
    try:
        known = IPv4Address(address)
    except AddressValueError:
        return ":" in address and not address.startswith(("::1", "fe00:", "ff0", "fe80:"))
    local = known.is_loopback or known in own
    mine = {"localhost", hostname}
    return not (local and all(name.partition(".")[0] in mine or name in mine for name in names))


def _time(place: BaseRegion, machine: Machine) -> Iterator[Finding]:
    """One service sets the clock: chrony, with the servers that the stack names, or what does so already."""
    if place.adopt.time_servers == "keep":
        running = [name for unit, name in TIME_UNITS.items() if machine.runs(unit)]
        if running or "units" in machine.unseen:
            yield adopted("time", f"{some(running) or 'what sets the clock'} stays as it is")
        else:
            do = "start what is to set it, or take time_servers out of adopt"
            yield in_the_way("time", "nothing is seen to set the clock, and nothing of ours will", do)
        return
    for unit, name in TIME_UNITS.items():
        if not machine.runs(unit):
            continue
        if unit == "chrony.service":
            if machine.files.get(CHRONY) == "package":
                yield fine("time", "chrony, as its package brought it")
        elif unit == "systemd-timesyncd.service" and machine.files.get(TIMESYNCD) in (None, "package"):
            yield fine("time", "systemd-timesyncd as it came; chrony takes its place")
        else:
            yield in_the_way("time", f"{name} sets the clock, and chrony would take its place", OWN_SERVERS)


def _place(place: BaseRegion, machine: Machine) -> Iterator[Finding]:
    if place.adopt.timezone == "keep":
        yield adopted("place", f"the time zone stays {machine.zone or 'as it is'}")
    elif machine.zone and machine.zone not in (place.timezone, place.timezone.removeprefix("Etc/")):
        says = f"the time zone is {machine.zone}, and role base makes it {place.timezone}"
        yield in_the_way("place", says, "timezone of the region says another one")
    if place.adopt.locale == "keep":
        yield adopted("place", f"{LOCALE} stays as it is")
    elif machine.files.get(LOCALE) in ("theirs", "ansible"):
        said = [line for line in machine.lines.get(LOCALE, ()) if line.startswith("LANG=")]
        if said and said[0].strip("\"'") != f"LANG={place.locale}":
            says = f"{said[0]} in {LOCALE}, and role base makes it {place.locale}"
            yield in_the_way("place", says, "locale of the region says another one")


def _kept(contract: Contract, host: str) -> tuple[str, ...]:
    keeps = _region(contract, host).adopt.time_servers == "keep"
    return (CHRONY, HOW_CHRONY_STARTS) if keeps else ()


LOOK = Look(
    judge,
    units=tuple(TIME_UNITS),
    texts=(HOSTS, LOCALE, TIMESYNCD),
    holders={"ssh": ("sshd", "systemd"), "ntp": ("chronyd", "ntpd", "systemd-timesyn")},
    replaced={CHRONY: OWN_SERVERS},
    kept=_kept,
)
