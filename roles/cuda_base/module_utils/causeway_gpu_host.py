#!/usr/bin/python3
"""What GPUs need of their host: huge pages, CPU governor, IOMMU, ACS, virtual functions, a BlueField's mode.

The one implementation. The role's module imports it, and the node runs it:

    causeway-gpu-host check      one line per setting: effective, rendered, unsupported, differs, failed
    causeway-gpu-host settled    the same, where effective and rendered are one word: as declared
    causeway-gpu-host apply      what does not outlive a boot; causeway-gpu-host.service runs it
    causeway-gpu-host restore    what was before the first of all this, where that is known

*Rendered* is what is written and waits for a boot, *unsupported* what this node cannot have, with the reason.
In a container all of it is its host's, and is never touched. What stood before a setting was first changed is
kept in RECORD, so that a setting that is declared no more goes back. One that does not is *failed*, holds no
other up, and stays in RECORD.

Standard library only. Sources: kernel-parameters.txt and hugetlbpage.rst of Linux, sysfs-bus-pci and
sysfs-devices-system-cpu of its ABI, the PCI section of NCCL's troubleshooting, NVIDIA's BlueField modes of
operation.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path("/")
"""Where /proc, /sys, /etc and /var are; another one in tests."""
CONFIG_FILE = "etc/causeway/gpu-host.json"
RECORD = "var/lib/causeway/gpu-host.json"
SYSCTL_FILE = "etc/sysctl.d/90-causeway-gpu.conf"
GRUB_FILE = "etc/default/grub.d/90-causeway-gpu.cfg"
PAGES_2M, PAGES_1G = "proc/sys/vm/nr_hugepages", "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
MOST_OF_MEMORY = 0.9
"""Share of a node's memory that huge pages may take; a rule of ours: kernel and jobs need the rest."""
ACS_CONTROL = "ECAP_ACS+0x6.w"
"""The control register of the capability, as setpci(8) names it."""
NVIDIA, MELLANOX, BLUEFIELD3 = "0x10de", "0x15b3", "0xa2dc"
OFFLOAD = "INTERNAL_CPU_OFFLOAD_ENGINE"
DPU_MODES = {"dpu": "ENABLED(0)", "nic": "DISABLED(1)"}
STAYS = 3
"""Exit status of `restore` where something stays: it is named, and the role leaves (tasks/leave.yml)."""
CONTAINER = "a container has its host's"

Config = dict[str, Any]
"""As NOTHING, with NICs by their ports: [["rail0"], ["rail1"]]. 0, empty and `keep` change nothing."""
NOTHING: Config = {
    **{"hugepages_2m": 0, "hugepages_1g": 0, "sriov_vfs": 0},
    **{"governor": "", "iommu": "", "acs": "keep", "dpu_mode": "", "nics": []},
}
Values = dict[str, str]
"""What is set where: a file below ROOT, a PCI address, or a word, and its value."""


class RefusedError(Exception):
    """What a tool or the kernel does not take, in its own words."""


class UnsupportedError(Exception):
    """This node cannot have it; the text says why."""


def run(*command: str) -> str:
    """A command's output; RefusedError with what it said where it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RefusedError(f"{command[0]} is not installed") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exits {done.returncode}"]
        raise RefusedError(f"{command[0]}: {said[-1]}")
    return done.stdout


def text_of(path: Path | str, default: str = "") -> str:
    """A file's text, stripped; the default where it cannot be read."""
    try:
        return (ROOT / path).read_text().strip()
    except OSError:
        return default


def put(path: Path | str, text: str) -> None:
    """Write a file of the kernel; RefusedError where it takes no such value."""
    try:
        (ROOT / path).write_text(text)
    except OSError as error:
        raise RefusedError(f"/{path}: {error.strerror}") from error


def keep(path: str, text: str) -> bool:
    """Write a file of ours whole, or remove it where it has nothing to say; whether that changed anything."""
    there = ROOT / path
    if text_of(path) == text.strip():
        return False
    if not text:
        there.unlink()
        return True
    there.parent.mkdir(parents=True, exist_ok=True)
    part = there.with_suffix(".part")  # neither GRUB nor systemd-sysctl reads it
    part.write_text(text)
    part.chmod(0o644)
    part.replace(there)
    return True


def record() -> dict[str, Any]:
    """`before`: setting → place → value. `waits`: setting → what waits, in which boot, and what there was."""
    try:
        found: dict[str, Any] = json.loads(text_of(RECORD))
    except ValueError:
        found = {}
    return {"before": found.get("before", {}), "waits": found.get("waits", {})}


def remember(known: dict[str, Any]) -> None:
    """Keep the record; none where there is nothing to bring back."""
    keep(RECORD, json.dumps(known, indent=2, sort_keys=True) + "\n" if any(known.values()) else "")


def boot() -> str:
    """The present boot, as the kernel numbers it."""
    return text_of("proc/sys/kernel/random/boot_id")


def detected(kind: str) -> bool:
    """Whether this is a container, or a virtual machine (`vm`)."""
    try:
        run("systemd-detect-virt", f"--{kind}", "--quiet")
    except RefusedError:
        return False
    return True


# What the node has


def pci_devices() -> Iterator[Path]:
    """The folders of all PCI devices, by address."""
    yield from sorted((ROOT / "sys/bus/pci/devices").glob("*"))


def gpus() -> list[Path]:
    """NVIDIA's display controllers (PCI class 03), by address."""
    ours = (device for device in pci_devices() if text_of(device / "vendor") == NVIDIA)
    return [device for device in ours if text_of(device / "class").startswith("0x03")]


def ports(config: Config) -> list[str]:
    """The fabric ports, NIC by NIC."""
    return [port for nic in config["nics"] for port in nic]


def bridges(config: Config) -> list[str]:
    """PCI addresses of what stands between GPUs or fabric NICs and the root complex, the roots among them.

    No other bridge is touched: ACS of what is handed to a virtual machine keeps it apart.
    """
    ends = [device.resolve() for device in gpus()]
    ends += [(ROOT / "sys/class/net" / port / "device").resolve() for port in ports(config)]
    found = {part for end in ends for part in end.parts[:-1] if re.fullmatch(r"\w{4,}:\w\w:\w\w\.\w", part)}
    return sorted(found)


def memory_kib() -> int:
    """The node's memory."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", text_of("proc/meminfo"), re.MULTILINE)
    return int(found[1]) if found else 0


def too_many_pages(config: Config) -> str:
    """Why the node has no room for so many huge pages; empty where it has."""
    asked, there = config["hugepages_2m"] * 2048 + config["hugepages_1g"] * (1 << 20), memory_kib()
    if not asked or asked <= there * MOST_OF_MEMORY:
        return ""
    gib = 1 << 20
    return f"huge pages of {asked / gib:.1f} GiB, and the node has {there / gib:.1f} GiB: 90 % of it at most"


# The kernel's command line, of which GRUB keeps ours


def iommu_words(wanted: str) -> list[str]:
    """The parameters that set the IOMMU; UnsupportedError for a processor whose words are not known."""
    machine, processor = platform.machine(), text_of("proc/cpuinfo")
    if machine == "aarch64":
        if wanted == "off":
            raise UnsupportedError("the kernel has no parameter that turns an Arm processor's SMMU off")
        return [f"iommu.passthrough={int(wanted == 'passthrough')}"]
    maker = {"GenuineIntel": "intel_iommu", "AuthenticAMD": "amd_iommu"}
    found = re.search(r"^vendor_id\s*:\s*(\S+)", processor, re.MULTILINE)
    name = maker.get(found[1]) if found else None
    if machine != "x86_64" or name is None:
        raise UnsupportedError(f"the parameters of this processor's IOMMU ({machine}) are not known")
    if wanted == "off":
        return [f"{name}=off"]
    on = [f"{name}=on"] if name == "intel_iommu" else []  # AMD's is on unless it is turned off
    return [*on, f"iommu={'pt' if wanted == 'passthrough' else 'nopt'}"]


def boot_words(config: Config) -> list[str]:
    """All parameters that the next boot has to have."""
    words: list[str] = []
    if config["iommu"]:
        with suppress(UnsupportedError):  # its setting says so
            words += iommu_words(config["iommu"])
    if config["hugepages_1g"] and (ROOT / PAGES_1G).exists():
        words += ["hugepagesz=1G", f"hugepages={config['hugepages_1g']}"]
    return words


def has_grub() -> bool:
    """Whether this node boots by a GRUB whose configuration is made from /etc/default."""
    return (ROOT / "etc/default/grub").exists() and (ROOT / "usr/sbin/update-grub").exists()


def grub_text(words: list[str]) -> str:
    """What adds parameters to those of /etc/default/grub; nothing for none."""
    if not words:
        return ""
    head = "# Made by Causeway (role cuda_base); update-grub reads it.\n"
    return f'{head}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n'


def set_grub(words: list[str]) -> bool:
    """Have the next boots take these parameters; whether that changed anything."""
    was = text_of(GRUB_FILE)
    changed = keep(GRUB_FILE, grub_text(words))
    try:
        if changed:
            run(str(ROOT / "usr/sbin/update-grub"))
    except RefusedError:
        keep(GRUB_FILE, was and f"{was}\n")  # so that the next run tries again
        raise
    return changed


# Settings


@dataclass(frozen=True)
class Setting:
    """One setting. `read` gives what stands where; UnsupportedError where there is none of it."""

    name: str
    read: Callable[[], Values]
    wanted: Callable[[Values], Values]
    """What shall stand where, given where something stands."""
    write: Callable[[Values], None]
    """Brings places to their values, as far as that is possible at once; RefusedError for one not taken."""
    waits: Callable[[Values], str] = lambda _: ""
    """What the rest waits for, given what stands now; empty where nothing more is to come."""
    by_reboot: bool = True
    """Whether a reboot of the node is what it waits for."""
    lost: Callable[[Values, Values], bool] = lambda _was, _now: False
    """Whether of what could be had before that boot somebody took something away since."""


@dataclass(frozen=True)
class State:
    """How a setting stands: effective, rendered, unsupported, failed; in a dry run differs, too."""

    setting: str
    state: str
    reason: str = ""
    changed: bool = False
    reboot: bool = False
    """Whether it is rendered, and a reboot of the node would make it effective."""
    declared: bool = True
    """False for one that is declared no more and goes back."""

    def __str__(self) -> str:
        return f"{self.setting} {self.state}" + (f": {self.reason}" if self.reason else "")

    @property
    def settled(self) -> str:
        """The line that stays the same over the boot that makes it effective."""
        return f"{self.setting} as declared" if self.state in ("effective", "rendered") else str(self)


def write_files(values: Values) -> None:
    """Each file below ROOT gets its value."""
    for path, value in values.items():
        put(path, value)


def pages(name: str, path: str, wanted: int, lack: Callable[[], str], later: Callable[[], bool]) -> Setting:
    """Huge pages of one size. The kernel gives as many as it finds room for, and more at the next boot."""

    def read() -> Values:
        if why := lack():
            raise UnsupportedError(why)
        return {path: text_of(path)}

    def waits(found: Values) -> str:
        return f"room was found for {found[path]} of {wanted}: the next boot has all" if later() else ""

    def lost(was: Values, now: Values) -> bool:
        return int(now[path] or 0) < int(was.get(path) or 0)

    return Setting(name, read, lambda _: {path: str(wanted)}, write_files, waits, lost=lost)


def lack_of_2m() -> str:
    """Why vm.nr_hugepages does not count pages of 2 MiB."""
    found = re.search(r"^Hugepagesize:\s+(\d+) kB", text_of("proc/meminfo"), re.MULTILINE)
    if not found:
        return "this kernel has no huge pages"
    return "" if found[1] == "2048" else f"the kernel's own huge pages are of {found[1]} kB"


def lack_of_1g() -> str:
    """Why there are no pages of 1 GiB."""
    return "" if (ROOT / PAGES_1G).exists() else "this processor has no pages of 1 GiB"


def governor(wanted: str) -> Setting:
    """The governor of every CPU."""

    def read() -> Values:
        folders = sorted((ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
        if not folders:
            raise UnsupportedError("no cpufreq here: firmware or hypervisor sets the clock")
        offered = text_of(folders[0] / "scaling_available_governors").split()
        if wanted not in offered:
            raise UnsupportedError(f"{text_of(folders[0] / 'scaling_driver')} has {', '.join(offered)} only")
        files = [folder / "scaling_governor" for folder in folders]
        return {str(file.relative_to(ROOT)): text_of(file) for file in files}

    return Setting("governor", read, lambda found: dict.fromkeys(found, wanted), write_files)


def iommu(wanted: str) -> Setting:
    """The kernel's parameters of this boot, and whether the IOMMU has the devices."""

    def read() -> Values:
        words = iommu_words(wanted)
        there = text_of("proc/cmdline").split()
        groups = any((ROOT / "sys/kernel/iommu_groups").glob("*"))
        if set(words) <= set(there) and not groups and wanted != "off":
            raise UnsupportedError("the kernel drives no IOMMU: the firmware has it off, or there is none")
        if not set(words) <= set(there) and not has_grub():
            raise UnsupportedError(f"there is no GRUB here: give the kernel {' '.join(words)} yourself")
        found = {word: str(word in there) for word in words}
        return {**found, "groups": str(groups)} if wanted == "off" else found

    def all_there(found: Values) -> Values:
        return {word: str(word != "groups") for word in found}

    def waits(found: Values) -> str:
        words = [word for word, there in found.items() if there == "False" and word != "groups"]
        return f"the next boot has {' '.join(words)}" if words else ""

    return Setting("iommu", read, all_there, lambda _: None, waits)


def acs(config: Config) -> Setting:
    """ACS of the bridges above GPUs and fabric NICs: it sends their traffic by the processor."""

    def read() -> Values:
        if detected("vm"):
            raise UnsupportedError("a virtual machine needs ACS")
        found = {}
        for address in bridges(config):
            try:
                found[address] = run("setpci", "-s", address, ACS_CONTROL).strip()
            except RefusedError as refused:
                if "not installed" in str(refused):
                    raise UnsupportedError(str(refused)) from refused
        if not found:
            raise UnsupportedError("no bridge above a GPU or a fabric NIC has ACS")
        return found

    return Setting("acs", read, lambda found: dict.fromkeys(found, "0000"), write_acs)


def write_acs(values: Values) -> None:
    """Give bridges their control words."""
    for address, value in values.items():
        run("setpci", "-s", address, f"{ACS_CONTROL}={value}")


def functions(port: str, wanted: int) -> Setting:
    """Virtual functions of one port. Their number changes only by way of none, and jobs may have some."""
    folder = f"sys/class/net/{port}/device"
    file = f"{folder}/sriov_numvfs"

    def read() -> Values:
        if not (ROOT / "sys/class/net" / port).exists():
            raise RefusedError("the interface is not there")
        most = text_of(f"{folder}/sriov_totalvfs", "0")
        if int(most) < wanted:
            raise UnsupportedError(
                f"the port has {most} at most (NVIDIA's: SRIOV_EN, NUM_OF_VFS of the firmware)"
            )
        return {file: text_of(file)}

    def write(values: Values) -> None:
        if text_of(file) == "0":
            put(file, values[file])

    def waits(found: Values) -> str:
        return f"{found[file]} are there, and may be in use: the next boot makes {wanted}"

    return Setting(f"sriov_vfs {port}", read, lambda _: {file: str(wanted)}, write, waits)


def write_functions(values: Values) -> None:
    """Give ports another number of functions, whoever uses those that are there."""
    for file, number in values.items():
        put(file, "0")
        if number != "0":
            put(file, number)


def firmware_tool() -> str:
    """NVIDIA's tool, or the free one of mstflint."""
    for tool in ("mlxconfig", "mstconfig"):
        try:
            run(tool, "--version")
        except RefusedError:
            continue
        return tool
    raise UnsupportedError("neither mlxconfig nor mstconfig is installed")


def mode_of(printed: str) -> tuple[str, str]:
    """A card's mode as it is, and at the next boot, of what the tool says of OFFLOAD.

    `* INTERNAL_CPU_OFFLOAD_ENGINE  ENABLED(0)  ENABLED(0)  DISABLED(1)`: default, current, next boot.
    """
    found = re.search(rf"{OFFLOAD}\s+\S+\s+(\w+\(\d\))\s+(\w+\(\d\))", printed)
    if not found:
        raise RefusedError(f"the firmware's tool says nothing of {OFFLOAD}")
    return found[1], found[2]


def dpu_mode(wanted: str) -> Setting:
    """Whether BlueField-3 cards have their ports to themselves, or are plain NICs of this host."""

    def cards() -> list[str]:
        ours = (device for device in pci_devices() if text_of(device / "vendor") == MELLANOX)
        return [one.name for one in ours if text_of(one / "device") == BLUEFIELD3 and one.name.endswith(".0")]

    def asked(which: int) -> Values:
        tool = firmware_tool()
        return {card: mode_of(run(tool, "-d", card, "-e", "q", OFFLOAD))[which] for card in cards()}

    def read() -> Values:
        if not cards():
            raise UnsupportedError("no BlueField-3 here")
        return asked(0)

    def write(values: Values) -> None:
        later = asked(1)
        write_modes({card: mode for card, mode in values.items() if later[card] != mode})

    def waits(_: Values) -> str:
        if set(asked(1).values()) != {DPU_MODES[wanted]}:
            return ""
        return "the firmware takes it when the machine is switched off and on (ipmitool chassis power cycle)"

    every = DPU_MODES[wanted]
    return Setting("dpu_mode", read, lambda found: dict.fromkeys(found, every), write, waits, by_reboot=False)


def write_modes(values: Values) -> None:
    """Have the firmware of cards start in another mode."""
    for card, mode in values.items():
        run(firmware_tool(), "-y", "-d", card, "s", f"{OFFLOAD}={mode[-2]}")


WAYS_BACK: dict[str, tuple[str, Callable[[Values], None]]] = {
    "acs": ("sys/bus/pci/devices/", write_acs),
    "dpu_mode": ("sys/bus/pci/devices/", write_modes),
    "sriov_vfs": ("", write_functions),
    "iommu": ("", lambda _: None),  # its parameters are gone with GRUB's file
}
"""Setting → the folder of its places, and what writes them; of all others these are files below ROOT."""


def settings(config: Config) -> list[Setting]:
    """All that are declared."""
    found = []
    if config["hugepages_2m"]:
        found.append(pages("hugepages_2m", PAGES_2M, config["hugepages_2m"], lack_of_2m, lambda: True))
    if config["hugepages_1g"]:
        found.append(pages("hugepages_1g", PAGES_1G, config["hugepages_1g"], lack_of_1g, has_grub))
    if config["governor"]:
        found.append(governor(config["governor"]))
    if config["iommu"]:
        found.append(iommu(config["iommu"]))
    if config["acs"] == "off":
        found.append(acs(config))
    if config["sriov_vfs"]:
        found += [functions(port, config["sriov_vfs"]) for port in ports(config)]
    if config["dpu_mode"]:
        found.append(dpu_mode(config["dpu_mode"]))
    return found


# All of it


def bring(setting: Setting, known: dict[str, Any], dry_run: bool) -> State:
    """Look at one setting and, unless it is a dry run, make it so; `known` is the record, kept up to date."""
    name, before, written = setting.name, known["before"], known["waits"]
    try:
        found = was = setting.read()
        wanted = setting.wanted(found)
        waited = written.get(name, {}) if written.get(name, {}).get("wanted") == wanted else {}
        if found != wanted and not dry_run:
            before[name] = {**found, **before.get(name, {})}
            setting.write({place: value for place, value in wanted.items() if found[place] != value})
            found = setting.read()
        if found == wanted:
            if not dry_run:
                written.pop(name, None)
            return State(name, "effective", changed=found != was)
        if dry_run and (not waited or setting.lost(waited.get("had", {}), found)):
            return State(name, "differs", differing(found, wanted), changed=True)
        if not (why := setting.waits(found)):
            return State(name, "failed", differing(found, wanted))
        if waited and setting.by_reboot and waited["boot"] != boot():
            why = f"was written before this boot, and yet {differing(found, wanted)}"
            return State(name, "failed", why)
        if not dry_run:
            written[name] = {"boot": boot(), **waited, "wanted": wanted, "had": found}
        return State(name, "rendered", why, changed=found != was or not waited, reboot=setting.by_reboot)
    except UnsupportedError as lack:
        return State(name, "unsupported", str(lack))
    except RefusedError as refused:
        return State(name, "failed", str(refused))


def differing(found: Values, wanted: Values) -> str:
    """The first place that differs, and how many do."""
    places = [place for place, value in wanted.items() if found[place] != value]
    more = f", and {len(places) - 1} more places" if len(places) > 1 else ""
    return f"{places[0]} is {found[places[0]]}, not {wanted[places[0]]}{more}"


def bring_back(known: dict[str, Any], declared: set[str], leaving: bool, dry_run: bool) -> list[State]:
    """Give back what settings had that are declared no more, where it still is, each for itself.

    Only what was given back is *effective*, and out of `known`; *rendered* waits for a boot, and the next run
    tries again what is *failed*.
    """
    gone = sorted(set(known["before"]) - declared)
    found = [give_back(name, known, leaving, dry_run) for name in gone]
    if not dry_run:
        for state in found:
            if state.state == "effective":
                del known["before"][state.setting]
                known["waits"].pop(state.setting, None)
    return found


def give_back(name: str, known: dict[str, Any], leaving: bool, dry_run: bool) -> State:
    """Give back one setting; of places that do not take it `known` keeps what they had."""
    kind, _, port = name.partition(" ")
    folder, write = WAYS_BACK.get(kind, ("", write_files))
    before = known["before"][name].items()
    values = {place: value for place, value in before if (ROOT / f"{folder}{place}").exists()}
    if kind == "sriov_vfs" and values and not leaving:  # jobs may have functions, as with another number
        (number,) = values.values()
        state = bring(functions(port, int(number)), known, dry_run)
        lost = state.state in ("failed", "unsupported")
        return not_given_back(name, [state.reason]) if lost else replace(state, declared=False)
    refusals: dict[str, str] = {}
    for place, value in () if dry_run else values.items():
        try:
            write({place: value})
        except (RefusedError, UnsupportedError) as refused:
            refusals[place] = str(refused)
    if not refusals:
        return State(name, "effective", changed=True, declared=False)
    known["before"][name] = {place: values[place] for place in refusals}
    known["waits"].pop(name, None)
    return not_given_back(name, list(refusals.values()))


def not_given_back(name: str, reasons: list[str]) -> State:
    """A setting that stays as we set it, with the first of the reasons."""
    more = f", and {len(reasons) - 1} more places" if len(reasons) > 1 else ""
    return State(name, "failed", f"not given back: {reasons[0]}{more}", declared=False)


def sysctl_text(config: Config) -> str:
    """What the next boot reads of the pages of 2 MiB."""
    if not config["hugepages_2m"] or lack_of_2m():
        return ""
    return f"# Made by Causeway (role cuda_base).\nvm.nr_hugepages = {config['hugepages_2m']}\n"


def write_for_boot(sysctl: str, words: list[str], left: list[State] | None) -> list[str]:
    """The files that the next boot reads; which changed. GRUB's refusal goes to `left` where there is one."""
    changes = [f"/{SYSCTL_FILE}"] if keep(SYSCTL_FILE, sysctl) else []
    try:
        return changes + ([f"/{GRUB_FILE}"] if set_grub(words) else [])
    except RefusedError as refused:
        if left is None:
            raise
        left.append(not_given_back("kernel parameters", [str(refused)]))
        return changes


def bring_all(config: Config, dry_run: bool, leaving: bool = False) -> tuple[list[State], list[str]]:
    """Every setting, with its state; and what else changed, in words.

    What is declared no more has a state as long as it is not given back. `leaving` waits for no boot, and
    goes on where GRUB fails. RefusedError where it fails otherwise, and, before anything is changed, where
    the node has no room for the pages.
    """
    wanted = settings(config)
    if detected("container"):
        return [State(setting.name, "unsupported", f"{CONTAINER} settings") for setting in wanted], []
    if why := too_many_pages(config):
        raise RefusedError(why)
    known, changes, left = record(), [], list[State]()
    names = {setting.name for setting in wanted}
    words = boot_words(config) if has_grub() else []
    if dry_run:
        files = {SYSCTL_FILE: sysctl_text(config), GRUB_FILE: grub_text(words)}
        changes += [f"/{path}" for path, text in files.items() if text_of(path) != text.strip()]
    try:
        if not dry_run:
            changes += write_for_boot(sysctl_text(config), words, left if leaving else None)
        gone = bring_back(known, names, leaving, dry_run)
        changes += [state.setting for state in gone if state.state == "effective"]
        left += [state for state in gone if state.state != "effective"]
        states = [bring(setting, known, dry_run) for setting in wanted]
    finally:
        if not dry_run:
            remember(known)
    return left + states, changes


def load_config() -> Config:
    """The settings the role left."""
    config: Config = json.loads((ROOT / CONFIG_FILE).read_text())
    return config


def main(words: list[str]) -> int:
    """The program; 1 where a setting failed, STAYS where one could not be given back for good."""
    if words in (["check"], ["settled"]):
        states, _ = bring_all(load_config(), dry_run=True)
        for state in states:
            if words == ["check"]:
                print(state)
            elif state.declared:  # the rest has no line any more once it is given back
                print(state.settled)
        return 0
    if words in (["apply"], ["restore"]):
        leaving = words == ["restore"]
        states, changes = bring_all(NOTHING if leaving else load_config(), dry_run=False, leaving=leaving)
        for line in (*changes, *states):
            print(line)
        failed = any(state.state == "failed" for state in states)
        return (STAYS if leaving else 1) if failed else 0
    print("usage: causeway-gpu-host check | settled | apply | restore", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
