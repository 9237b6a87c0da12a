"""GPUs as metrics, each minute, from nvidia-smi: what graphs and alerts need where nobody asks DCGM."""

from __future__ import annotations

from infra.capabilities.acceptance.node import parse
from infra.capabilities.acceptance.node.tools import HangsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from infra.capabilities.acceptance.node.tools import Tools

LIMIT_S = 40
HELP = {
    "answers": "1: the driver told of its GPUs.",
    "read_timestamp_seconds": "When it was last asked.",
    "declared": "GPUs that the node is declared to have.",
    "found": "GPUs that the driver tells of.",
    "temperature_celsius": "Temperature of the GPU.",
    "memory_temperature_celsius": "Temperature of its memory.",
    "power_watts": "What its board draws.",
    "power_limit_watts": "What its board may draw.",
    "busy_ratio": "Share of the time in which a kernel ran on it, 0 to 1.",
    "memory_used_bytes": "Its memory in use.",
    "memory_bytes": "Its memory.",
    "sm_clock_hertz": "Clock of its streaming multiprocessors.",
    "pcie_replays_total": "PCIe packets that were sent again.",
    "ecc_uncorrected_total": "Uncorrectable ECC errors since the driver was loaded.",
    "row_remap_pending": "1: a row of its memory is remapped at the next reset.",
    "row_remap_failed": "1: no spare row is left.",
    "slowed": "1: it runs slower than it could, and its load is not the reason.",
    "slowed_seconds_total": "Seconds since the driver was loaded in which it ran slower for a reason.",
    "pcie_lanes": "Lanes of its PCIe link.",
    "pcie_lanes_most": "Lanes that its PCIe link could have.",
}


def told(tools: Tools, expected: dict[str, Any], now: float) -> str:
    """What there is to tell, in Prometheus' text format. Of simulated GPUs, and of other makers', nothing."""
    if not expected["gpus"] or expected["simulated"] or expected["vendor"] != "nvidia":
        return ""
    smi = _asked(tools)
    values = [("answers", "", int(smi is not None)), ("read_timestamp_seconds", "", int(now))]
    values.append(("declared", "", expected["gpus"]))
    if smi:
        values.append(("found", "", len(smi.gpus)))
        for number, gpu in enumerate(smi.gpus):
            values += _values(f'gpu="{number}",pci="{gpu.pci}"', gpu)
    return "\n".join(_lines(values)) + "\n"


def _asked(tools: Tools) -> parse.Smi | None:
    """What nvidia-smi says; None where it is not there, hangs, or makes no sense."""
    try:
        return parse.Smi(tools.run(("nvidia-smi", "-q", "-x"), LIMIT_S))
    except (OSError, ValueError, HangsError):
        return None


def _values(labels: str, gpu: parse.Gpu) -> Iterator[tuple[str, str, Any]]:
    """(metric, labels, value) of one GPU."""
    yield from ((name, labels, value) for name, value in gpu.readings.items())
    yield "ecc_uncorrected_total", labels, gpu.uncorrectable
    for name, flag in (("pending", gpu.remap_pending), ("failed", gpu.remap_failed)):
        if flag is not None:
            yield f"row_remap_{name}", labels, int(flag)
    for reason in gpu.slowed:
        yield "slowed", f'{labels},reason="{reason}"', 1
    for reason, seconds in gpu.slowed_s.items():
        yield "slowed_seconds_total", f'{labels},reason="{reason}"', seconds
    if gpu.width:
        yield "pcie_lanes", labels, gpu.width[0]
        yield "pcie_lanes_most", labels, gpu.width[1]


def _lines(values: list[tuple[str, str, Any]]) -> Iterator[str]:
    for metric, meaning in HELP.items():
        its = [(labels, value) for name, labels, value in values if name == metric]
        if its:
            name, kind = f"causeway_gpu_{metric}", "counter" if metric.endswith("_total") else "gauge"
            yield from (f"# HELP {name} {meaning}", f"# TYPE {name} {kind}")
            yield from (f"{name}{{{labels}}} {value:.15g}".replace("{}", "") for labels, value in its)
