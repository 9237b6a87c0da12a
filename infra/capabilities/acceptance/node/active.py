"""The tiers that prove a node: minutes (active) or an hour (burn-in), with what is installed there.

DCGM's own diagnosis where there is DCGM, else cuda.py, which needs the driver alone, and gpu-burn where it
is; nccl-tests within the node; NVMe by fio; a part of the memory by patterns of our own. GPUs that nothing
tried are unknown, and never good.
"""

from __future__ import annotations

import tempfile
from statistics import median

from infra.capabilities.acceptance.node import parse
from infra.capabilities.acceptance.node.nccl import Result
from infra.capabilities.acceptance.node.passive import Node, guarded
from infra.capabilities.acceptance.node.verdict import bad, note, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from infra.capabilities.acceptance.node.verdict import Finding

MIB = 1 << 20
PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
FIO_SIZE_MIB = 1024
OWN = "infra.capabilities.acceptance.node.cuda"
OWN_BESIDE_S = 20
"""Where gpu-burn goes on for the tier's time, ours only looks at what that leaves out: memory and copies."""
OF_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""PCIe's generation → GB/s of one lane in one direction, by its rate and encoding."""
LINK_SHARE = 0.5
"""Of what the link carries a copy reaches 0.8 and more where nothing is wrong (a rule of ours)."""
SLOW_SHARE = 0.8
"""Of the middle one of a node's GPUs: the same work takes all of them the same time (a rule of ours)."""
COMPARED = ("memory_gbs", "tensor_tflops", "fp32_tflops")


class Depth:
    """How far a tier goes: DCGM's level, and s or MiB of each check of our own."""

    def __init__(self, dcgm: int, dcgm_limit_s: int, burn_s: int, memory_mib: int, fio_s: int) -> None:
        self.dcgm, self.dcgm_limit_s = dcgm, dcgm_limit_s
        self.burn_s, self.memory_mib, self.fio_s = burn_s, memory_mib, fio_s


ACTIVE = Depth(2, 900, 60, 256, 15)
BURN_IN = Depth(3, 5400, 3600, 4096, 300)
REPAIRED = Depth(4, 10800, 600, 1024, 60)
"""`dcgmi diag` 2 to join, 3 to burn in, 4 after a repair."""


def found(node: Node, depth: Depth) -> list[Finding]:
    """Everything that a proving tier finds beside the passive one."""
    findings = []  # type: list[Finding]
    if node.expected["gpus"] and not node.expected["simulated"]:
        limit_s = max(depth.dcgm_limit_s, depth.burn_s + 600) + 60
        findings += guarded("the GPUs' diagnosis", lambda each: _gpus(each, depth), node, limit_s)
        findings += guarded("NCCL within the node", _nccl, node, 900)
    findings += guarded("memory", lambda each: _memory(each, depth), node, 60 + depth.memory_mib)
    findings += guarded("NVMe", lambda each: _fio(each, depth), node, depth.fio_s + 120)
    return findings


def _gpus(node: Node, depth: Depth) -> Iterator[Finding]:
    if node.tools.has("dcgmi"):
        said = node.tools.run(("dcgmi", "diag", "-r", str(depth.dcgm), "-j"), depth.dcgm_limit_s)
        yield from _diagnosis(parse.diagnosed(said[max(said.find("{"), 0) :]))
        return
    if node.smi and any(gpu.divided for gpu in node.smi.gpus):
        yield unknown("nothing tried the GPUs: they are divided (MIG), and only DCGM tries parts of them")
        return
    burner = next((name for name in ("gpu-burn", "gpu_burn") if node.tools.has(name)), None)
    yield from _own(node, depth.burn_s if burner is None else min(depth.burn_s, OWN_BESIDE_S))
    if burner is not None:
        yield from _burnt(node, burner, depth.burn_s)


def _own(node: Node, seconds: int) -> Iterator[Finding]:
    """cuda.py, a process of its own: what hangs there is killed."""
    said = node.tools.run(("python3", "-sB", "-m", OWN, str(seconds)), seconds + 240)
    why, gpus = parse.tried(said)
    if why:
        yield unknown(f"nothing tried the GPUs: there is no DCGM, and {why}")
        return
    if len(gpus) < node.expected["gpus"]:
        yield bad("drain", f"CUDA has {len(gpus)} of {node.expected['gpus']} declared GPUs")
    links = {gpu.pci: gpu for gpu in node.smi.gpus} if node.smi else {}
    for gpu in gpus:
        name = f"GPU {gpu['pci']}"
        for what, number in gpu["wrong"].items():
            if number:
                yield bad("repair", f"{name}: {number} {what} are wrong")
        if gpu["error"]:
            yield bad("drain", f"{name} does not work: {gpu['error']}")
            continue
        yield from _slow(name, gpu, [one for one in gpus if not one["error"]])
        if gpu["pci"] in links:
            yield from _narrow(name, gpu, links[gpu["pci"]])


def _slow(name: str, gpu: dict[str, Any], gpus: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Its speeds, and whether the other GPUs of the node are faster."""
    told = [f"{gpu[speed]:g} {words}" for speed, words in parse.SPEEDS.items() if gpu[speed]]
    if told:
        yield note(f"{name}: {', '.join(told)}")
    for speed in COMPARED:
        middle = median(one[speed] for one in gpus)
        if gpu[speed] < SLOW_SHARE * middle:
            yield bad(
                "watch", f"{name}: {gpu[speed]:g} of {middle:g} {parse.SPEEDS[speed]}, which others have"
            )


def _narrow(name: str, gpu: dict[str, Any], seen: parse.Gpu) -> Iterator[Finding]:
    """Whether copies are much slower than its link."""
    if not seen.width or not seen.generation:
        return
    carries = seen.width[0] * OF_LANE_GBS.get(seen.generation[1], 0.0)
    for speed in ("to_host_gbs", "from_host_gbs"):
        if gpu[speed] < LINK_SHARE * carries:
            yield bad(
                "watch", f"{name}: {gpu[speed]:g} {parse.SPEEDS[speed]}, and its link carries {carries:.3g}"
            )


def _burnt(node: Node, burner: str, seconds: int) -> Iterator[Finding]:
    counted = parse.burnt(node.tools.run((burner, str(seconds)), seconds + 300, at_home=True))
    wrong = [str(number) for number, right in sorted(counted.items()) if not right]
    if wrong:
        yield bad("repair", f"gpu-burn: GPU {', '.join(wrong)} counts wrong")
    if len(counted) < node.expected["gpus"]:
        yield bad("drain", f"gpu-burn tried {len(counted)} of {node.expected['gpus']} declared GPUs")


def _diagnosis(ended: dict[str, list[str]]) -> Iterator[Finding]:
    for text in sorted(set(ended.get("fail", ()))):
        yield bad("repair", f"DCGM: {text}")
    for text in sorted(set(ended.get("warn", ()))):
        yield bad("watch", f"DCGM: {text}")
    if not ended.get("pass"):
        yield unknown("DCGM passed no test")
    elif ended.get("skip"):
        yield note(f"DCGM left out {', '.join(sorted(set(ended['skip'])))}")


def _nccl(node: Node) -> Iterator[Finding]:
    floor = node.expected["floor_gbs"]
    if floor is None or node.expected["gpus"] < 2 or not node.tools.has("all_reduce_perf"):
        return
    argv = ("all_reduce_perf", "-b", "1G", "-e", "8G", "-f", "2", "-g", str(node.expected["gpus"]))
    run = Result(node.tools.run(argv, 600))
    if not run.right:
        yield bad("repair", "NCCL within the node: wrong numbers")
    elif run.bus_gbs < floor:
        yield bad("repair", f"NCCL within the node: {run.bus_gbs:g} GB/s, at least {floor:g} are asked for")


def _memory(node: Node, depth: Depth) -> Iterator[Finding]:
    """Writes patterns into a part of the memory, and reads them back: a look, and no memtest."""
    del node
    for pattern in PATTERNS:
        wanted = bytes([pattern]) * MIB
        blocks = [bytearray(wanted) for _ in range(depth.memory_mib)]
        wrong = sum(block != wanted for block in blocks)
        if wrong:
            yield bad("repair", f"memory: {wrong} MiB do not keep what is written to them ({pattern:#04x})")


def _fio(node: Node, depth: Depth) -> Iterator[Finding]:
    if not node.expected["nvme_disks"] or not node.tools.has("fio"):
        return
    with tempfile.TemporaryDirectory(dir=node.root / "var/tmp") as folder:
        argv = _fio_words(folder, depth)
        errors, mbps = parse.fio(node.tools.run(argv, depth.fio_s + 90))
    floor = node.expected["nvme_read_mbps"]
    if errors:
        yield bad("repair", f"NVMe: fio ended with error {errors}")
    elif floor is not None and mbps < floor:
        yield bad("watch", f"NVMe: {mbps:.0f} MB/s are read, at least {floor:g} are asked for")


def _fio_words(folder: str, depth: Depth) -> Sequence[str]:
    return (
        "fio", "--name=acceptance", f"--directory={folder}", f"--size={FIO_SIZE_MIB}M", "--rw=read",
        "--bs=1M", "--direct=1", "--iodepth=16", "--ioengine=libaio", "--time_based",
        f"--runtime={depth.fio_s}",
        "--output-format=json",
    )  # fmt: skip
