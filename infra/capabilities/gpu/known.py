"""What is known of NVIDIA's GPUs, drivers and CUDA releases, each with its source.

A version that is not listed is no error: it is compared by its numbers with those that are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

Version = tuple[int, ...]
Designation = Literal["long-term support", "production", "new feature"]


def version(text: str) -> Version:
    """`580.95.05` → (580, 95, 5): versions are compared by their numbers, never as texts."""
    return tuple(map(int, text.split(".")))


@dataclass(frozen=True)
class Branch:
    """A line of drivers."""

    designation: Designation
    ends: date
    """The last day of the month that NVIDIA names."""


BRANCHES: Mapping[int, Branch] = {
    535: Branch("long-term support", date(2026, 6, 30)),
    580: Branch("long-term support", date(2028, 6, 30)),
    595: Branch("production", date(2027, 3, 31)),
    610: Branch("new feature", date(2026, 8, 31)),
    620: Branch("long-term support", date(2029, 9, 30)),
}
"""docs.nvidia.com/datacenter/tesla/drivers/{615,620}/supported-drivers-and-cuda-toolkit-versions.html. Of a
branch that is not listed there NVIDIA tells no end of life: new feature branches are short-lived."""

CUDA_NEEDS: Mapping[int, Version] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""CUDA's major release → the oldest driver by minor-version compatibility (CUDA Compatibility, table 1, and
the toolkits' release notes, table 2)."""

CUDA_COMES_WITH: Mapping[Version, Version] = {
    (11, 8): (520, 61, 5),
    (12, 2): (535, 54, 3),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
    (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4),
    (13, 3): (610, 43, 2),
}
"""CUDA release → the driver that it was made together with (the toolkits' release notes, table 3): from that
one on, nothing of it is left out. 13.4 names none."""

DCGM_OF_EXPORTER: Mapping[Version, Version] = {
    (4, 1, 0): (4, 2, 0),
    (4, 1, 1): (4, 2, 3),
    (4, 1, 2): (4, 2, 3),
    (4, 1, 3): (4, 2, 3),
    (4, 2, 0): (4, 2, 3),
    (4, 3, 0): (4, 2, 3),
    (4, 4, 0): (4, 3, 1),
    (4, 4, 1): (4, 3, 1),
    (4, 5, 0): (4, 4, 0),
    (4, 6, 0): (4, 4, 1),
    (4, 7, 0): (4, 4, 2),
    (4, 7, 1): (4, 4, 2),
    (4, 8, 0): (4, 5, 1),
    (4, 8, 1): (4, 5, 2),
    (4, 8, 2): (4, 5, 3),
    (4, 8, 3): (4, 6, 0),
    (4, 8, 4): (4, 6, 1),
}
"""DCGM's exporter → the DCGM that it is made with and to be run with: the tags of NVIDIA/dcgm-exporter; its
release notes of 4.8.3 and 4.8.4."""

EXPORTER_RENAMES = (4, 9)
"""From this exporter on fields have other names and units (its release notes), which no rule here reads."""

FORWARD_FROM = 450
"""The oldest branch that a forward-compatibility package may lie on (CUDA Compatibility, "Forward
Compatibility"); whether a given pair is supported stands in NVIDIA's table for that package."""


@dataclass(frozen=True)
class Architecture:
    """A generation of GPUs."""

    first_cuda: Version
    last_driver: int | None
    """The last branch that knows it; None while all do."""
    last_cuda: int | None
    """The last major CUDA release that builds for it; None while all do."""
    modules: tuple[Literal["open", "proprietary"], ...]
    """Kernel modules that drive it, the better ones first."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "volta": Architecture((9, 0), 580, 12, ("proprietary",)),
    "turing": Architecture((10, 0), None, None, ("open", "proprietary")),
    "ampere": Architecture((11, 0), None, None, ("open", "proprietary")),
    "ada": Architecture((11, 8), None, None, ("open", "proprietary")),
    "hopper": Architecture((11, 8), None, None, ("open", "proprietary")),
    "grace-hopper": Architecture((11, 8), None, None, ("open",)),
    "blackwell": Architecture((12, 8), None, None, ("open",)),
    "blackwell-ultra": Architecture((12, 9), None, None, ("open",)),
}
"""docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html; open modules
from Turing on, and nothing else for Grace and Blackwell (NVIDIA's blog on them, July 2024)."""

A100_40 = {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}
OF_80 = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
OF_94 = {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1}
OF_96 = {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1}
OF_141 = {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}
OF_180 = {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1}
OF_186 = {"1g.23gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.93gb": 2, "4g.93gb": 1, "7g.186gb": 1}
OF_269 = {"1g.34gb": 7, "1g.67gb": 4, "2g.67gb": 3, "3g.135gb": 2, "4g.135gb": 1, "7g.269gb": 1}
OF_278 = {"1g.35gb": 7, "1g.70gb": 4, "2g.70gb": 3, "3g.139gb": 2, "4g.139gb": 1, "7g.278gb": 1}
A30 = {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1}
RTX_PRO = {"1g.24gb": 4, "2g.48gb": 2, "4g.96gb": 1}
"""MIG profile → how many parts a GPU has of it at most: mig-parted bd7160f4,
deployments/systemd/config-default.yaml."""


@dataclass(frozen=True)
class Model:
    """A GPU as it is sold."""

    architecture: str
    mig: Mapping[str, int]
    nvswitch: int = 0
    """Generation of the NVLink by which switches in the machine join its GPUs; 0 where there are none.

    Those of GB200's and GB300's racks are in trays of their own, whose system runs them (NVIDIA, Multi-Node
    NVLink User Guide): on the machines with the GPUs Fabric Manager finds nothing to do, and fails.
    """


MODELS: Mapping[str, Model] = {
    "v100-pcie": Model("volta", {}),
    "v100-sxm": Model("volta", {}),
    "t4": Model("turing", {}),
    "a10": Model("ampere", {}),
    "a30": Model("ampere", A30),
    "a40": Model("ampere", {}),
    "a100-pcie-40gb": Model("ampere", A100_40),
    "a100-pcie-80gb": Model("ampere", OF_80),
    "a100-sxm-40gb": Model("ampere", A100_40, 3),
    "a100-sxm-80gb": Model("ampere", OF_80, 3),
    "a800-sxm": Model("ampere", OF_80, 3),
    "l4": Model("ada", {}),
    "l40": Model("ada", {}),
    "l40s": Model("ada", {}),
    "h100-pcie": Model("hopper", OF_80),
    "h100-nvl": Model("hopper", OF_94),
    "h100-sxm": Model("hopper", OF_80, 4),
    "h800-sxm": Model("hopper", OF_80, 4),
    "h20-sxm": Model("hopper", OF_96, 4),
    "h200-nvl": Model("hopper", OF_141),
    "h200-sxm": Model("hopper", OF_141, 4),
    "gh200": Model("grace-hopper", OF_96),
    "rtx-pro-6000": Model("blackwell", RTX_PRO),
    "b200-sxm": Model("blackwell", OF_180, 5),
    "gb200": Model("blackwell", OF_186),
    "b300-sxm": Model("blackwell-ultra", OF_269, 5),
    "gb300": Model("blackwell-ultra", OF_278),
}
"""Those of `gpu_model` that are NVIDIA's."""
SWITCHED_FROM = {
    **{"a100-sxm-40gb": 8, "a100-sxm-80gb": 8, "a800-sxm": 8},
    **{"h100-sxm": 8, "h800-sxm": 8, "h20-sxm": 8, "h200-sxm": 8},
}
"""Boards of fewer GPUs join them without switches (HGX of four; a part of a board in a virtual machine)."""
NVLINK5 = 5
"""From this generation on Fabric Manager needs `nvlsm` beside it, and ib_umad loaded (CanvOS PR 700)."""

PRODUCTS: Mapping[str, str] = {
    "v100-pcie": r"Tesla V100-PCIE-(16|32)GB",
    "v100-sxm": r"Tesla V100-SXM[23]-(16|32)GB(-LS)?",
    "t4": r"(Tesla|NVIDIA) T4",
    "a10": r"NVIDIA A10",
    "a30": r"NVIDIA A30",
    "a40": r"NVIDIA A40",
    "a100-pcie-40gb": r"NVIDIA A100-PCIE-40GB",
    "a100-pcie-80gb": r"NVIDIA A100(-PCIE-80GB| 80GB PCIe)",
    "a100-sxm-40gb": r"NVIDIA A100-SXM4-40GB",
    "a100-sxm-80gb": r"NVIDIA A100-SXM4-80GB",
    "a800-sxm": r"NVIDIA A800-SXM4-80GB",
    "l4": r"NVIDIA L4",
    "l40": r"NVIDIA L40",
    "l40s": r"NVIDIA L40S",
    "h100-pcie": r"NVIDIA H100 PCIe",
    "h100-nvl": r"NVIDIA H100 NVL",
    "h100-sxm": r"NVIDIA H100 80GB HBM3",
    "h800-sxm": r"NVIDIA H800",
    "h20-sxm": r"NVIDIA H20",
    "h200-nvl": r"NVIDIA H200 NVL",
    "h200-sxm": r"NVIDIA H200",
    "gh200": r"NVIDIA GH200 (96|120|144|480)GB.*",
    "rtx-pro-6000": r"NVIDIA RTX PRO 6000 Blackwell .*",
    "b200-sxm": r"NVIDIA B200",
    "gb200": r"NVIDIA GB200",
    "b300-sxm": r"NVIDIA B300 SXM6 AC",
    "gb300": r"NVIDIA GB300",
}
"""What nvidia-smi calls a model, as a regular expression: the table of supported GPUs in the README of
NVIDIA/open-gpu-kernel-modules (from Turing on); the SXM2 and PCIe boards of Volta as their product names."""
