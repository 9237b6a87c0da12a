"""The passive tier: looks that take seconds, disturb nothing, and are held against the declaration.

What is expected comes with `Expected`, never from what the node happens to have.
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path

from infra.capabilities.acceptance.node import parse, xid
from infra.capabilities.acceptance.node.tools import HangsError, within
from infra.capabilities.acceptance.node.verdict import bad, note, unknown, unsupported, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from infra.capabilities.acceptance.node.tools import Tools
    from infra.capabilities.acceptance.node.verdict import Finding

SMI_LIMIT_S, TOOL_LIMIT_S, LIMIT_S = 60, 20, 90
MEMORY_SHARE = 0.975
"""Of the declared memory Linux keeps about 1.6 % for itself; one module of 32 is 3.1 % (a rule of ours)."""
CLOCK_OUT_S = 1.0
"""From here on a clock is no clock: certificates, logs and leases are wrong by it (a rule of ours)."""
MOST_ERRORS = 100
"""New errors of a link between two looks that are worth a line (a rule of ours)."""
BY_XID = {
    "none": "none",
    "restart_app": "none",
    "reset_gpu": "reset",
    "reboot_node": "reboot",
    "workflow": "drain",
}
"""What an XID asks for, in the words of a verdict: a procedure of several steps begins by draining."""
LINK_COUNTERS = ("rx_crc_errors", "rx_errors", "tx_errors")


class Node:
    """A machine to look at: its tools, its files below `root`, what is declared of it, and what is known."""

    def __init__(
        self, tools: Tools, expected: dict[str, Any], state: dict[str, Any], root: Path = Path("/")
    ) -> None:
        self.tools, self.expected, self.state, self.root = tools, expected, state, root
        self.smi = None  # type: parse.Smi | None
        self.counters = {}  # type: dict[str, int]

    def journal(self) -> str:
        """The kernel's lines of this boot that tell of XIDs: nothing of before is acted on."""
        return str(xid.journal(""))

    def text(self, path: str) -> str | None:
        """A file of the kernel's; None where it is not there, or gives nothing."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The number at the start of such a file."""
        found = re.match(r"-?[0-9]{1,18}", self.text(path) or "")
        return int(found[0]) if found else None

    def names(self, path: str) -> list[str]:
        """What is in a folder of the kernel's."""
        with contextlib.suppress(OSError):
            return sorted(entry.name for entry in (self.root / path).iterdir())
        return []


def found(node: Node) -> list[Finding]:
    """Everything that the passive tier finds."""
    findings = []  # type: list[Finding]
    for look in (gpus, xids, nics, memory, disks, clock):
        findings += guarded(look.__name__, look, node)
    return findings


def guarded(
    what: str, look: Callable[[Node], Iterable[Finding]], node: Node, limit_s: float = LIMIT_S
) -> list[Finding]:
    """A look with a deadline: what it cannot tell is said, and never taken for good. What it found before
    that counts."""
    findings = []  # type: list[Finding]
    try:
        within(limit_s, what, lambda: findings.extend(look(node)))
    except HangsError as error:
        return [*findings, bad("drain", str(error))]
    except Exception as error:  # a tool's nonsense that nobody foresaw is no reason to stop
        return [*findings, unknown(f"{what}: {type(error).__name__}: {error}")]
    return findings


def declared_gpus(node: Node) -> str:
    """`8 h100-sxm`."""
    return f"{node.expected['gpus']} {node.expected['gpu_model']}"


def gpus(node: Node) -> Iterator[Finding]:
    """Number and model, link, memory's errors, and what the driver and the kernel's log ask for."""
    expected = node.expected
    if not expected["gpus"]:
        return
    if expected["simulated"]:
        yield unsupported(f"no GPU here: {declared_gpus(node)} are declared, and simulated")
        return
    if expected["vendor"] != "nvidia":
        yield unknown(
            f"{declared_gpus(node)} are declared, and no check of {expected['vendor']}'s is implemented"
        )
        return
    if not node.tools.has("nvidia-smi"):
        yield bad(
            "drain", f"{declared_gpus(node)} are declared, and there is no nvidia-smi: no driver is installed"
        )
        return
    yield from _smi(node)


def _smi(node: Node) -> Iterator[Finding]:
    """What nvidia-smi tells; the driver that does not answer is a finding of its own."""
    said = ""
    try:
        said = node.tools.run(("nvidia-smi", "-q", "-x"), SMI_LIMIT_S)
        node.smi = parse.Smi(said)
    except HangsError as error:
        yield bad("drain", f"the driver hangs: {error}")
        return
    except ValueError as error:
        if refusal := parse.refusal(said):
            yield bad("drain", f"none of {node.expected['gpus']} declared GPUs answers: {refusal}")
        else:
            yield unknown(f"what nvidia-smi says makes no sense: {error}")
        return
    yield from _number(node, node.smi.gpus)
    for gpu in node.smi.gpus:
        yield from _gpu(node, gpu)


def _number(node: Node, gpus: Sequence[parse.Gpu]) -> Iterator[Finding]:
    wanted = node.expected["gpus"]
    if len(gpus) < wanted:
        yield bad(
            "drain",
            f"{len(gpus)} of {wanted} declared GPUs answer: reboot it, and if one is still missing repair it",
        )
    elif len(gpus) > wanted:
        yield bad("watch", f"{len(gpus)} GPUs answer, and {wanted} are declared")


def is_model(product: str, model: str) -> bool:
    """Whether nvidia-smi's name of a product is that of a declared model, as `h100-sxm`.

    The chip, and its memory where the model names it, stand in the product's name as words; a PCIe card and
    a pair joined by NVLink say so there, a module on a board (SXM) says neither.
    """
    words = re.sub(r"[^a-z0-9]+", " ", product.lower()).split()
    form = {"sxm", "pcie", "nvl"}
    plain = [part for part in model.split("-") if part not in form]
    if not all(part in words for part in plain):
        return False
    told = form.intersection(words)
    meant = form.intersection(model.split("-"))
    return not meant or (not told and meant == {"sxm"}) or meant <= told


def _gpu(node: Node, gpu: parse.Gpu) -> Iterator[Finding]:
    name, model = f"GPU {gpu.pci}", node.expected["gpu_model"]
    if not is_model(gpu.product, model):
        yield bad("drain", f"{name} is a {gpu.product or 'GPU without a name'}, and {model} is declared")
    yield from _memory_of(name, gpu)
    yield from _joined(name, gpu.fabric)
    if gpu.ecc is False:
        yield bad("watch", f"{name}: ECC is off")
    if gpu.width and gpu.width[0] < gpu.width[1]:
        yield bad("drain", f"{name}: PCIe at {gpu.width[0]} of {gpu.width[1]} lanes")
    if gpu.generation and gpu.generation[0] < gpu.generation[1] and gpu.busy:
        # An idle link may rest at a lower one.
        yield bad("watch", f"{name}: PCIe of generation {gpu.generation[0]} instead of {gpu.generation[1]}")
    if gpu.slowed:
        yield bad("watch", f"{name} is slowed down: {', '.join(gpu.slowed)}")


def _memory_of(name: str, gpu: parse.Gpu) -> Iterator[Finding]:
    """What its memory cannot repair, and what waits for a reset."""
    wrong = gpu.uncorrectable
    for is_so, action, what in (
        (gpu.remap_failed, "replace", "its memory has no spare rows left (row remapping failed)"),
        (gpu.unrepairable, "replace", "its memory cannot be repaired"),
        (gpu.sram_exceeded, "repair", "its SRAM has more uncorrectable errors than its maker allows for"),
        (gpu.full_banks, "watch", f"{gpu.full_banks} banks of its memory have no spare row left"),
        (gpu.remap_pending, "watch", "a row is remapped at its next reset"),
        (gpu.repair_pending, "watch", "a part of it is repaired at its next reset"),
        (wrong, "watch", f"{wrong} uncorrectable ECC errors since the driver was loaded"),
    ):
        if is_so:
            yield bad(action, f"{name}: {what}")


def _joined(name: str, fabric: Sequence[str | None]) -> Iterator[Finding]:
    """Whether switches of NVLink join it to the others; where there are none nvidia-smi has no state."""
    state, status, health = fabric
    if state is None or state.lower() == "not supported":
        return
    if state.lower() != "completed" or (status or "Success").lower() != "success":
        told = state if status is None else f"{state}, {status}"
        yield bad("drain", f"{name} is not joined to the others by NVLink ({told}): see nvidia-fabricmanager")
    if health is not None and health.lower() not in ("healthy", "not supported"):
        action = "watch" if health.lower() == "limited capacity" else "drain"
        yield bad(action, f"{name}: its NVLink is not healthy ({health})")


def xids(node: Node) -> Iterator[Finding]:
    """What the driver asks for, and the XIDs of this boot with what is to be done about each GPU.

    The driver's own word, as nvidia-smi has it or XID 154 announced it last, goes before the catalog.
    """
    expected = node.expected
    if not expected["gpus"] or expected["simulated"] or expected["vendor"] != "nvidia":
        return
    answers = {gpu.pci: gpu.recovery for gpu in node.smi.gpus} if node.smi else {}
    for pci, recovery in answers.items():
        if recovery not in (None, "none"):
            yield bad(BY_XID[recovery], f"GPU {pci}: the driver asks for it ({recovery})")
    by_gpu = {}  # type: dict[str, list[tuple[int, str]]]
    for pci, number, asks in events(node):
        by_gpu.setdefault(pci, []).append((number, asks))
    for pci, its in sorted(by_gpu.items()):
        yield _of_gpu(pci, its, answers.get(pci))


def events(node: Node) -> Iterator[tuple[str, int, str]]:
    """XIDs of this boot since the last repair: (GPU, number, what it asks for), in their order."""
    for entry in xid.entries(node.journal()):
        event = xid.event_of(entry)
        if event and not _is_cleared(entry, node.state):
            yield event


def _is_cleared(entry: dict[str, Any], state: dict[str, Any]) -> bool:
    """Whether a line of the journal is of before the last repair. The clock is asked only where nothing else
    tells: one that was ahead then would hide what came after, for as long as it was ahead."""
    at, up_us = (str(entry.get(f"__{name}_TIMESTAMP", "")) for name in ("REALTIME", "MONOTONIC"))
    if state["cleared_boot"] and "_BOOT_ID" in entry and re.fullmatch("[0-9]{1,18}", up_us):
        return bool(entry["_BOOT_ID"] == state["cleared_boot"] and int(up_us) < state["cleared_us"])
    return bool(re.fullmatch("[0-9]{1,18}", at)) and int(at) / 1e6 < state["cleared_at"]


def _of_gpu(pci: str, its: list[tuple[int, str]], recovery: str | None) -> Finding:
    numbers = ", ".join(str(number) for number in sorted({number for number, _ in its}))
    announced = [asks for number, asks in its if number == 154]
    text = f"GPU {pci}: XID {numbers} since the boot"
    driver = recovery if recovery is not None else announced[-1] if announced else None
    if driver is not None:
        action = BY_XID[driver]
        text += f"; the driver asks for {'nothing' if action == 'none' else driver}"
    else:
        action = worst(BY_XID[asks] for _, asks in its)
    if action != "none":
        return bad(action, text)
    harmless = all(BY_XID[asks] == "none" for _, asks in its)
    return note(text) if harmless else bad("watch", text)


def nics(node: Node) -> Iterator[Finding]:
    """Every declared fabric port: a link of the declared speed, all lanes, no new errors."""
    expected = node.expected
    if expected["simulated"] and (expected["nics"] or expected["nic_count"]):
        yield unsupported("no fabric NIC here: speeds of simulated ones are nobody's")
        return
    if not expected["nics"] and expected["nic_count"]:
        yield from _fast_enough(node)
    for nic in expected["nics"]:
        look = partial(_nic, name=nic["name"], gbps=nic["gbps"])
        yield from guarded(f"NIC {nic['name']}", look, node)


def _fast_enough(node: Node) -> Iterator[Finding]:
    """Without a declared fabric their names are not known: so many ports of that speed there have to be."""
    wanted, gbps = node.expected["nic_count"], node.expected["nic_gbps"]
    speeds = [node.number(f"sys/class/net/{name}/speed") or 0 for name in node.names("sys/class/net")]
    there = sum(speed >= gbps * 1000 for speed in speeds)
    if there < wanted:
        yield bad("drain", f"{there} of {wanted} declared NICs have a link of {gbps} Gb/s")


def _nic(node: Node, name: str, gbps: int) -> Iterator[Finding]:
    folder = f"sys/class/net/{name}"
    if node.text(f"{folder}/operstate") is None:
        yield bad("drain", f"NIC {name} is declared, and is not there")
        return
    speed, lanes = node.number(f"{folder}/speed"), None
    if node.tools.has("ethtool"):
        told, lanes, _link = parse.lanes(node.tools.run(("ethtool", name), TOOL_LIMIT_S))
        speed = told if told is not None else speed
    if node.text(f"{folder}/carrier") != "1":
        yield bad("drain", f"NIC {name} has no link")
    elif speed is None or speed <= 0:
        yield unknown(f"NIC {name} does not tell its speed")
    elif speed < gbps * 1000:
        over = f" over {lanes} lanes" if lanes else ""
        yield bad("drain", f"NIC {name} runs at {speed / 1000:g} of {gbps} Gb/s{over}")
    yield from _width(node, name, f"{folder}/device")
    yield from _link_errors(node, name, folder)


def _width(node: Node, name: str, device: str) -> Iterator[Finding]:
    now, most = (node.number(f"{device}/{when}_link_width") for when in ("current", "max"))
    if now and most and now < most:
        yield bad("drain", f"NIC {name}: PCIe at {now} of {most} lanes")
    speeds = [(node.text(f"{device}/{when}_link_speed") or "").split(" ")[0] for when in ("current", "max")]
    if all(re.fullmatch(r"[0-9]{1,3}(\.[0-9])?", speed) for speed in speeds) and float(speeds[0]) < float(
        speeds[1]
    ):
        yield bad("watch", f"NIC {name}: PCIe at {speeds[0]} of {speeds[1]} GT/s a lane")


def _link_errors(node: Node, name: str, folder: str) -> Iterator[Finding]:
    """Since the last look; a counter that went back began anew."""
    for counter in LINK_COUNTERS:
        key, now = f"{name} {counter}", node.number(f"{folder}/statistics/{counter}")
        if now is None:
            continue
        before = node.state["counters"].get(key, now)
        node.counters[key] = now
        if now - before > MOST_ERRORS:
            yield bad("watch", f"NIC {name}: {now - before} more {counter} since the last look")


def memory(node: Node) -> Iterator[Finding]:
    """As much as is declared, but for what Linux keeps for itself."""
    declared = node.expected["memory_gib"]
    if declared is None:
        return
    found = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", node.text("proc/meminfo") or "", re.MULTILINE)
    if not found:
        yield unknown("/proc/meminfo does not tell the size of memory")
        return
    gib = int(found[1]) / (1 << 20)
    if gib < declared * MEMORY_SHARE:
        yield bad("drain", f"{gib:.0f} of {declared:g} GiB of memory are there: a module is missing or off")


def disks(node: Node) -> Iterator[Finding]:
    """NVMe disks: as many as declared, alive, and without a warning of their own."""
    names = [name for name in node.names("sys/class/nvme") if re.fullmatch(r"nvme[0-9]{1,3}", name)]
    declared = node.expected["nvme_disks"]
    if declared is not None and len(names) < declared:
        yield bad("drain", f"{len(names)} of {declared} declared NVMe disks are there")
    for name in names:
        yield from guarded(f"disk {name}", partial(_disk, name=name), node)


def _disk(node: Node, name: str) -> Iterator[Finding]:
    state = node.text(f"sys/class/nvme/{name}/state")
    if state is not None and state != "live":
        yield bad("drain", f"disk {name} is {state[:20]}")
    elif node.expected["nvme_disks"] is not None and node.tools.has("nvme"):
        argv = ("nvme", "smart-log", "-o", "json", f"/dev/{name}")
        warning, errors = parse.smart(node.tools.run(argv, TOOL_LIMIT_S))
        if warning:
            yield bad("repair", f"disk {name} warns of itself (critical warning {warning:#x})")
        elif errors:
            yield bad("watch", f"disk {name}: {errors} media errors")


def clock(node: Node) -> Iterator[Finding]:
    """Synchronised, and no further off than declared."""
    if node.text("run/systemd/container") is not None:
        yield unsupported("the clock of a container is its host's")
        return
    if not node.tools.has("chronyc"):
        yield unknown("there is no chrony to ask how far the clock is off")
        return
    off_s, synchronised = parse.clock(node.tools.run(("chronyc", "-c", "tracking"), TOOL_LIMIT_S))
    if off_s >= CLOCK_OUT_S:
        yield bad("drain", f"the clock is {off_s:.3g} s off")
    elif not synchronised:
        yield bad("watch", "the clock is not synchronised")
    elif off_s * 1000 > node.expected["clock_limit_ms"]:
        yield bad(
            "watch",
            f"the clock is {off_s * 1000:.3g} ms off, {node.expected['clock_limit_ms']:g} are allowed",
        )
