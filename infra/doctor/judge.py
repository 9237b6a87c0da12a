"""What was found on a machine, judged by what is declared. Pure: a finding is the same for the same answer.

Here stands what concerns every machine; what concerns one capability stands in its `doctor.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch

from infra.doctor.sites import Question, unanswered
from infra.doctor.wanted import COMMON_UNITS, Port, looks_of, services_of
from infra.ground.contract import Contract
from infra.ground.machine import (
    Finding,
    Grade,
    Listener,
    Look,
    Machine,
    adopted,
    fine,
    impossible,
    in_the_way,
    stays,
)
from infra.ground.names import some
from infra.ground.sudo import ASKS, Become
from infra.inventory.roles import platforms, services_of_others
from infra.inventory.writes import written_by

OLDEST_PYTHON = (3, 8)
LITTLE_MIB, TOO_LITTLE_MIB = 2048, 512
"""Free on a disk, for packages, apt's lists and logs: round numbers, not measured."""
TOO_FEW_FILES = 1000
"""Of those that may still be made on a disk: as many are in a few packages, another round number."""
LITTLE_MEMORY_MIB = 900
"""A machine of 1 GiB shows a little more than that; a round number, too."""
CLOCK_STEP_S = 1.0
"""From here on chrony steps the clock (`base_ntp_makestep_threshold_s`)."""
MOST_FINDINGS = 100
"""Of one machine, which may say whatever it likes."""
NOT_SEEN = "see what keeps it from answering there, and look again"
Ports = Sequence[Port]


def judge(
    contract: Contract,
    host: str,
    roles: Sequence[str],
    ports: Ports,
    asked: list[Question],
    machine: Machine,
) -> list[Finding]:
    """All findings on one machine, the worst first. `ports`: what is to listen there; `asked`: of others."""
    found = [*_system(roles, machine), *_access(contract, host, machine)]
    if not any(one.grade == Grade.IMPOSSIBLE and one.about in ("Python", "sudo") for one in found):
        looks = looks_of(roles)
        found += [
            *_room(machine),
            *_network(contract, host, ports, machine),
            *_security(machine),
            *_files(contract, host, roles, looks, machine),
            *_ports(looks, ports, machine),
            *_services(contract, host, roles, machine),
            *_stays(contract, host, roles, looks, machine),
            *_own_looks(machine),
            *unanswered(asked, machine),
        ]
        for look in looks.values():
            found += look.judge(contract, host, machine)
        found += [
            in_the_way("not seen", f"{about}: {why}", NOT_SEEN) for about, why in machine.unseen.items()
        ]
    return sorted(dict.fromkeys(found), key=lambda one: -one.grade)[:MOST_FINDINGS]


def _system(roles: Sequence[str], machine: Machine) -> Iterator[Finding]:
    """Whether the roles are written for what runs there."""
    name = machine.os_name or machine.os_id or "an unknown system"
    if "debian" not in (machine.os_id, *machine.os_like.split()):
        yield impossible("OS", f"{name}: roles need Debian or Ubuntu", "install one of them")
        return
    untried = [role for role in roles if (machine.os_id, machine.os_codename) not in platforms(role)]
    if not untried:
        yield fine("OS", name)
        return
    known = sorted({codename for role in untried for _, codename in platforms(role)})
    yield in_the_way(
        "OS",
        f"{name}: roles are written for {', '.join(known)}, and were never tried on it",
        "try it on one machine first",
    )


def _access(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """Python, root and systemd."""
    becoming = Become.on(contract, host)
    if machine.root:
        yield fine("sudo", f"{becoming.user}, with a password" if becoming.source else becoming.user)
    else:
        yield impossible("sudo", *_refused(becoming, machine.sudo))
    version = tuple(int(part) for part in machine.python.split(".")[:2] if part.isdecimal())
    if not version:
        yield impossible("Python", "there is no /usr/bin/python3", "apt-get install python3")
    elif version < OLDEST_PYTHON:
        says = f"/usr/bin/python3 is {machine.python}, and 3.8 is the oldest that will do"
        yield impossible("Python", says, "install a newer release of the system")
    else:
        yield fine("Python", machine.python)
    if machine.root and version >= OLDEST_PYTHON and not machine.systemd:
        yield impossible("systemd", "systemd does not run there", "roles need it as the first process")


def _refused(becoming: Become, complaint: str) -> tuple[str, str]:
    """Why the login does not become root, and what to do."""
    user = becoming.user
    if becoming.source:
        return becoming.in_words(complaint), f"/etc/sudoers.d/: {user} ALL=(ALL) ALL; or give the right one"
    free = f"/etc/sudoers.d/: {user} ALL=(ALL) NOPASSWD: ALL"
    if ASKS in complaint:
        return f"sudo asks {user} for a password", f"declare `sudo: password` beside `ssh_user`; or {free}"
    return f"{user} does not become root without a password", free


def _room(machine: Machine) -> Iterator[Finding]:
    for folder in machine.read_only:
        says, do = f"{folder} is mounted read-only", "see why (dmesg names a disk that fails), and remount it"
        yield impossible("disk", says, do)
    for folder, files in machine.disk_files.items():
        if files < TOO_FEW_FILES and folder not in machine.read_only:
            says = f"there are inodes for less than {TOO_FEW_FILES:,} files more in {folder}"
            yield impossible("disk", says, "remove files there (df -i shows it)")
    for folder, free in machine.disk_mib.items():
        if free < TOO_LITTLE_MIB:
            yield impossible(
                "disk", f"less than {TOO_LITTLE_MIB} MiB are free in {folder}", "make room there"
            )
        elif free < LITTLE_MIB:
            yield in_the_way(
                "disk", f"less than {LITTLE_MIB >> 10} GiB are free in {folder}", "make room there"
            )
        else:
            yield fine("disk", f"{free >> 10} GiB free in {folder}")
    if "room" in machine.unseen:
        return
    if machine.memory_mib < LITTLE_MEMORY_MIB:
        do = "give it 1 GiB or more"
        yield in_the_way("memory", "it is short", do, f"{machine.memory_mib} MiB in all")
    else:
        yield fine("memory", f"{machine.memory_mib >> 10} GiB")
    if abs(machine.offset_s) >= CLOCK_STEP_S:
        way = "ahead of" if machine.offset_s > 0 else "behind"
        yield in_the_way(
            "clock",
            f"it is {way} the controller's",
            "set it: chrony would step it, and certificates may not hold until then",
            f"by {_duration(abs(machine.offset_s))}",
        )
    else:
        yield fine("clock", "as the controller's")


def _duration(seconds: float) -> str:
    """Roughly, for people."""
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"


def _network(contract: Contract, host: str, ports: Ports, machine: Machine) -> Iterator[Finding]:
    """The declared address, other regions' networks, the way out."""
    if "network" in machine.unseen:
        return
    address, region = contract.hosts[host].address, contract.region_of(host)
    if home := machine.home_of(address):
        yield fine("address", f"{home[1]} on {home[0]}")
    else:
        says = "no interface has the declared address"
        services = sorted({one.name for one in ports if not one.loopback} - {"ssh", "ntp"})
        if services:
            do = f"declare the address that it has itself: {some(services, 4)} are to listen there"
            yield impossible("address", says, do)
        else:
            yield in_the_way("address", says, "declare the address that it has itself")
    yield from _twice(contract, host, machine)
    for name, held in machine.interfaces.items():
        for one in held:
            for other, declared in contract.regions.items():
                if other != region and one.network.overlaps(declared.cidr) and one.ip != address:
                    yield in_the_way(
                        "networks",
                        f"{name} has {one.network}, which overlaps region {other} ({declared.cidr})",
                        "give it another range: what is for that region would stay on this machine",
                    )
    if machine.default_route:
        yield fine("default route", machine.default_route)
    else:
        says = "there is no default route"
        yield in_the_way("default route", says, "roles install packages: a mirror has to be in reach")
    if machine.network:
        yield fine("interfaces", f"set up by {machine.network}")


def _twice(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """Addresses of other hosts: two of them are one machine, or two machines have one address."""
    networks = [region.cidr for region in contract.regions.values()]
    held = {one.ip: name for name, all_of_it in machine.interfaces.items() for one in all_of_it}
    near = {ip: name for ip, name in held.items() if any(ip in network for network in networks)}
    if near.keys() <= {contract.hosts[host].address}:
        return  # nearly always; the hosts of a large cluster are many
    for other, known in contract.hosts.items():
        if other != host and known.address in near:
            says = f"{near[known.address]} has {known.address}, the declared address of {other}"
            do = "declare each machine once, by one of its addresses, and give no address to two machines"
            yield impossible("address", says, do)


def _security(machine: Machine) -> Iterator[Finding]:
    """Firewalls and SELinux: no role sets any."""
    do = "let in what `causeway doctor --ports` lists; no role does it"
    if machine.selinux == "enforcing":
        says = "SELinux is enforcing, and roles set no contexts"
        yield in_the_way("SELinux", says, "setenforce 0 for a trial, and look at what it logs")
    if machine.runs("firewalld.service"):
        yield in_the_way("firewall", "firewalld runs", do)
    if machine.ufw:
        yield in_the_way("firewall", "ufw is on", do)
    for chain in machine.firewall:
        yield in_the_way("firewall", f"nftables drops in {chain} what no rule lets in", do)
    foreign = [table for table in machine.tables if "causeway" not in table]
    if foreign and not machine.firewall:
        yield adopted("nftables", f"tables of others stay: {some(foreign, 4)}")


def _files(
    contract: Contract, host: str, roles: Sequence[str], looks: Mapping[str, Look], machine: Machine
) -> Iterator[Finding]:
    """What roles would write over; a role with a look of its own refuses instead, and says so itself."""
    refusing = {role for look in looks.values() for role in look.programs(contract, host)}
    judged = {path for look in looks.values() for path in (*look.texts, *look.kept(contract, host))}
    advice = {path: text for look in looks.values() for path, text in look.replaced.items()}
    for role in roles:
        for path in sorted(written_by(role).files - judged):
            whose = machine.files.get(path)
            if whose not in ("theirs", "ansible") or role in refusing:
                continue
            words = "somebody's" if whose == "theirs" else "of a run of Ansible's, ours or somebody's"
            do = advice.get(path, f"keep a copy; roles/{role}/README.md says what can be set")
            yield in_the_way("files", f"{path} is {words}, and role {role} would replace it", do)


def _ports(looks: Mapping[str, Look], ports: Ports, machine: Machine) -> Iterator[Finding]:
    """What is taken that something of ours is to have."""
    may = {name: set(programs) for look in looks.values() for name, programs in look.holders.items()}
    freed = {name: text for look in looks.values() for name, text in look.freed.items()}
    unopened = {name for look in looks.values() for name in look.unopened(machine)}
    opened = [port for port in ports if port.name not in unopened]
    for one in machine.listening:
        wanting = [port for port in opened if _meets(port, one)]
        names = [port.name for port in wanting]
        if not wanting or one.ours or any(one.program in may.get(name, ()) for name in names):
            continue
        where = " on 127.0.0.1" if all(port.loopback for port in wanting) else ""
        says = (
            f"{one.protocol.upper()} port {one.port}{where}, for {some(names, 3)}, is taken by {_holder(one)}"
        )
        do = next((freed[name] for name in names if name in freed), "stop it there, or give it another port")
        yield in_the_way("ports", says, do)


def _meets(port: Port, one: Listener) -> bool:
    """Whether what listens has a port that something of ours is to have."""
    near = one.loopback or not port.loopback
    return near and one.protocol == port.protocol and port.first <= one.port <= port.last


def _services(contract: Contract, host: str, roles: Sequence[str], machine: Machine) -> Iterator[Finding]:
    """Services of somebody's that a role would set up as its own."""
    pool = contract.hosts[host].pool
    refused = services_of_others(contract, pool)
    for role, patterns in services_of(contract, roles, pool).items():
        known = machine.asked.get(role, patterns) if role in machine.begun else ()
        new = [each for each in patterns if each not in known]
        names = [name for name in machine.units if any(fnmatch(name, each) for each in new)]
        running = sorted(name for name in names if machine.runs(name))
        if not running:
            continue
        says = f"{some(running, 4)} of somebody's runs, and role {role} would set it up anew"
        if role not in refused:
            yield in_the_way(role, says, "nothing: the declaration says so (take_over)")
            continue
        do = f"move it elsewhere, or have it taken over: `take_over: [{role}]` in the region's provider"
        yield impossible(role, says, do)


def _stays(
    contract: Contract, host: str, roles: Sequence[str], looks: Mapping[str, Look], machine: Machine
) -> Iterator[Finding]:
    """What is known elsewhere, runs here, and is no business of this machine's roles."""
    taken = services_of(contract, roles, contract.hosts[host].pool)
    concerned = {*(unit for look in looks.values() for unit in look.units), *COMMON_UNITS}
    patterns = [each for services in taken.values() for each in services] + sorted(concerned)
    for name in sorted(machine.units):
        if machine.runs(name) and not any(fnmatch(name, each) for each in patterns):
            yield stays(name)
    own = {one for look in looks.values() for one in look.tunnels(contract, host)}
    for tunnel in machine.wireguard:
        if tunnel not in own:
            yield adopted("WireGuard", f"tunnel {tunnel} stays")


def _holder(one: Listener) -> str:
    if one.unit and one.program:
        return f"{one.program} ({one.unit})"
    return one.unit or one.program or "an unknown program"


def _own_looks(machine: Machine) -> Iterator[Finding]:
    """What roles' own looks have found: they refuse such a machine as a whole."""
    for role, obstacles in machine.obstacles.items():
        for text in obstacles:
            yield impossible(role, text, "move it out of the way (keep a copy), or declare another machine")


def grade_of(found: Iterable[Finding]) -> Grade:
    """The worst of some findings."""
    return max((one.grade for one in found), default=Grade.FINE)
