"""A node to be accepted, whose tools print what a test says; acceptance/README.md says what from."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.capabilities.acceptance.node.passive import Node, found
from infra.capabilities.acceptance.node.tools import HangsError, Tools
from infra.capabilities.acceptance.node.verdict import decided, new_state

BOOT = "11111111-2222-3333-4444-555555555555"
NOW = 1_800_000_000.0
SYNCHRONISED = "A29FC801,10.0.0.1,3,1795500000.0,{},0,0,0,0,0,0,0,16,{}\n"
EXPECTED: dict[str, Any] = {
    "node": "tokyo-gpu-0",
    "gpus": 8,
    "gpu_model": "h100-sxm",
    "vendor": "nvidia",
    "simulated": False,
    "nics": [],
    "nic_count": 0,
    "nic_gbps": 0,
    "memory_gib": None,
    "nvme_disks": None,
    "nvme_read_mbps": None,
    "floor_gbs": 440.0,
    "clock_limit_ms": 10.0,
    "metrics_dir": "/nowhere",
}


def pci(number: int) -> str:
    """As the kernel's log has it."""
    return f"0000:{16 + number:02x}:00"


def gpu(number: int, **told: str) -> str:
    """One `gpu` of nvidia-smi's; `told` replaces what stands in a tag."""
    values = {
        "product_name": "NVIDIA H100 80GB HBM3",
        "gpu_recovery_action": "None",
        "current_ecc": "Enabled",
        "sram_uncorrectable_parity": "0",
        "dram_uncorrectable": "0",
        "remapped_row_pending": "No",
        "remapped_row_failure": "No",
        "current_link_gen": "5",
        "current_link_width": "16x",
        "clocks_event_reason_hw_thermal_slowdown": "Not Active",
        "clocks_event_reason_sw_power_cap": "Active",
        "processes": "",
        "gpu_temp": "41 C",
        "memory_temp": "N/A",
        "instant_power_draw": "612.50 W",
        "gpu_util": "37 %",
        "used": "1024 MiB",
        "replay_counter": "3",
        "unrepairable_memory": "No",
        "channel_repair_pending": "No",
        "tpc_repair_pending": "No",
        "sram_threshold_exceeded": "No",
        "row_remapper_histogram_none": "0 bank(s)",
        "current_mig": "Disabled",
        "state": "Completed",
        "status": "Success",
        "summary": "Healthy",
    } | told

    def tags(*names: str) -> str:
        return "".join(f"<{name}>{values[name]}</{name}>" for name in names)

    return (
        f'<gpu id="0000{pci(number).upper()}.0">{tags("product_name", "gpu_recovery_action")}'
        f"<mig_mode>{tags('current_mig')}</mig_mode>"
        f"<ecc_mode>{tags('current_ecc')}</ecc_mode><ecc_errors><volatile>"
        f"{tags('sram_uncorrectable_parity', 'dram_uncorrectable')}</volatile><aggregate>"
        f"{tags('sram_threshold_exceeded')}</aggregate>"
        f"{tags('unrepairable_memory', 'channel_repair_pending', 'tpc_repair_pending')}</ecc_errors>"
        f"<remapped_rows>{tags('remapped_row_pending', 'remapped_row_failure')}<row_remapper_histogram>"
        f"{tags('row_remapper_histogram_none')}</row_remapper_histogram></remapped_rows>"
        f"<fabric>{tags('state', 'status')}<health>{tags('summary')}</health></fabric>"
        f"<pci>{tags('replay_counter')}<pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen>"
        f"{tags('current_link_gen')}</pcie_gen><link_widths><max_link_width>16x</max_link_width>"
        f"{tags('current_link_width')}</link_widths></pci_gpu_link_info></pci><clocks_event_reasons>"
        f"{tags('clocks_event_reason_hw_thermal_slowdown', 'clocks_event_reason_sw_power_cap')}"
        f"</clocks_event_reasons>{tags('processes')}"
        f"<temperature>{tags('gpu_temp', 'memory_temp')}</temperature><utilization>{tags('gpu_util')}"
        f"</utilization><gpu_power_readings>{tags('instant_power_draw')}</gpu_power_readings>"
        f"<fb_memory_usage>{tags('used')}</fb_memory_usage></gpu>"
    )


def smi(gpus: Iterable[str]) -> str:
    """`nvidia-smi -q -x`."""
    body = "".join(gpus)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<driver_version>580.95.05</driver_version>{body}</nvidia_smi_log>\n"
    )


def all_gpus(**told: Mapping[str, str]) -> str:
    """Eight, of which `g3={tag: text}` has something of its own."""
    return smi(gpu(number, **told.get(f"g{number}", {})) for number in range(8))


def xid_line(number: int, on: int = 3, rest: str = "pid=1, name=python", at: float = NOW - 60) -> str:
    """A line of the journal."""
    entry = {
        "__CURSOR": f"s={number};{at}",
        "__REALTIME_TIMESTAMP": str(int(at * 1e6)),
        "MESSAGE": f"NVRM: Xid (PCI:{pci(on).upper()}): {number}, {rest}",
    }
    return json.dumps(entry)


def announced(action: int, on: int = 3, at: float = NOW - 50) -> str:
    """XID 154, by which a driver says what it asks for."""
    rest = f"GPU recovery action changed from 0x0 (None) to {action:#x} (words)"
    return xid_line(154, on, rest, at)


def nccl(hosts: Sequence[str], bus_gbs: float, wrong: str = "0", gpus: int = 8) -> str:
    """all_reduce_perf's, of hosts with eight GPUs each."""
    ranks = [
        f"#  Rank {node * gpus + device:2} Group  0 Pid {4000 + node} on {host} device {device} [0x1b]"
        for node, host in enumerate(hosts)
        for device in range(gpus)
    ]
    rows = [
        f"{size:12} {size // 4:13} float sum -1 " + " ".join([f"{time:8} {alg} {bus:7} {wrong:>6}"] * 2)
        for size, time, alg, bus in (
            (8, "21.5", "0.00", "0.00"),
            (1 << 30, "4300.1", "200.00", f"{bus_gbs:.2f}"),
            (1 << 33, "34000", "199.00", f"{bus_gbs - 1:.2f}"),
        )
    ]
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
    return "\n".join(
        ["# nThread 1 nGpus 1 minBytes 8", *ranks, "#", head, *rows, "# Out of bounds values : 0 OK"]
    )


def tried(gpus: int = 8, error: str = "", **told: Mapping[str, Any]) -> str:
    """cuda.py's, of GPUs that are good; `g3={key: value}` has something of its own."""
    good = {"error": "", "memory_gbs": 2638.2, "to_host_gbs": 54.7, "from_host_gbs": 54.5}
    good |= {"tensor_tflops": 661.2, "fp32_tflops": 60.6}
    wrong = {"words of memory": 0, "sums": 0}
    each = [
        {"pci": f"{pci(n).upper()}.0", "wrong": wrong, **good, **told.get(f"g{n}", {})} for n in range(gpus)
    ]
    return json.dumps({"error": error, "gpus": each})


NO_CUDA = tried(0, error="the driver's libcuda.so.1 is not here")


class FakeTools(Tools):
    """Tool → what it prints; a tool that is not there is not installed, one whose answer is None hangs."""

    def __init__(self, said: Mapping[str, str | None]) -> None:
        self.said, self.ran = said, list[tuple[str, ...]]()

    def has(self, name: str) -> bool:
        return name in self.said

    def run(self, argv: Sequence[str], limit_s: float, at_home: bool = False) -> str:
        del at_home
        self.ran.append(tuple(argv))
        said = self.said[argv[0]]
        if said is None:
            raise HangsError(f"{argv[0]} does not answer within {limit_s:g} s")
        return said


class FakeNode(Node):
    """With a journal of the test's."""

    lines: Sequence[str] = ()

    def journal(self) -> str:
        return "\n".join(self.lines)


def node(
    root: Path,
    *,
    expected: Mapping[str, Any] = {},
    said: Mapping[str, str | None] = {},
    lines: Sequence[str] = (),
    state: Mapping[str, Any] = {},
) -> FakeNode:
    """One with eight good GPUs, but for what is said."""
    tools = FakeTools(
        {"nvidia-smi": all_gpus(), "chronyc": SYNCHRONISED.format(0.00002, "Normal"), "python3": NO_CUDA}
        | dict(said)
    )
    made = FakeNode(tools, EXPECTED | dict(expected), new_state() | dict(state), root)
    made.lines = lines
    return made


def accepted(**more: Any) -> dict[str, Any]:
    """The state of a node that is in."""
    return new_state() | {"accepted": True, "action": "none"} | more


def verdict_of(made: FakeNode, tier: str = "passive", now: float = NOW, boot: str = BOOT) -> dict[str, Any]:
    """The verdict of a look; the state goes on."""
    verdict, made.state = decided(found(made), made.state, tier, boot, now)
    return verdict
