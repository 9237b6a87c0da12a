"""The tiers that prove a node: minutes (active) or an hour (burn-in), with what is installed there.

DCGM's own diagnosis where there is DCGM, else gpu-burn; nccl-tests within the node; NVMe by fio; a part of
the memory by patterns of our own. GPUs that nothing tried are unknown, and never good.
"""

from __future__ import annotations

import tempfile

from infra.capabilities.acceptance.node import parse
from infra.capabilities.acceptance.node.nccl import Result
from infra.capabilities.acceptance.node.passive import Node, guarded
from infra.capabilities.acceptance.node.verdict import bad, note, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infra.capabilities.acceptance.node.verdict import Finding

MIB = 1 << 20
PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
FIO_SIZE_MIB = 1024


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
        limit_s = max(depth.dcgm_limit_s, depth.burn_s + 300) + 60
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
    burner = next((name for name in ("gpu-burn", "gpu_burn") if node.tools.has(name)), None)
    if burner is None:
        yield unknown("neither DCGM nor gpu-burn is installed: nothing tried the GPUs")
        return
    counted = parse.burnt(node.tools.run((burner, str(depth.burn_s)), depth.burn_s + 300))
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
