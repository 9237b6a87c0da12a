"""Reads what tools say of a node. A tool may say anything: ValueError tells what makes no sense.

Written from the tools' documented fields; tests/unit/acceptance/README.md says which.
"""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_GPUS = 64
NONE_OF = ("", "N/A", "[N/A]", "Requested functionality has been deprecated")
RECOVERY = {
    "none": "none",
    "reset": "reset_gpu",
    "gpu reset": "reset_gpu",
    "reboot": "reboot_node",
    "drain p2p": "workflow",
    "drain and reset": "reset_gpu",
}
"""`gpu_recovery_action` of nvidia-smi → what it asks for, in the words of causeway_xid.py."""


READINGS = {
    "temperature_celsius": (1, ["temperature/gpu_temp"]),
    "memory_temperature_celsius": (1, ["temperature/memory_temp"]),
    "power_watts": (1, ["*power_readings/instant_power_draw", "*power_readings/power_draw"]),
    "power_limit_watts": (1, ["*power_readings/current_power_limit", "*power_readings/power_limit"]),
    "busy_ratio": (0.01, ["utilization/gpu_util"]),
    "memory_used_bytes": (1 << 20, ["fb_memory_usage/used"]),
    "memory_bytes": (1 << 20, ["fb_memory_usage/total"]),
    "sm_clock_hertz": (1e6, ["clocks/sm_clock"]),
    "pcie_replays_total": (1, ["pci/replay_counter"]),
}  # type: dict[str, tuple[float, list[str]]]
"""Metric → what one unit of the tool's is, and where it stands; the first that says a number counts."""

MPS_SERVER = "nvidia-cuda-mps-server"
"""It stays where it has served one job; its clients are listed beside it."""
SPEEDS = {
    "memory_gbs": "GB/s of its memory",
    "tensor_tflops": "TFLOP/s of its tensor cores",
    "fp32_tflops": "TFLOP/s in single precision",
    "to_host_gbs": "GB/s to the host",
    "from_host_gbs": "GB/s from the host",
}
"""Speeds that cuda.py measures, in words."""


END = "</nvidia_smi_log>"


class Gpu:
    """One GPU as nvidia-smi has it; None for what it does not tell."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.pci = pci_of(element.get("id", ""))
        self.readings = dict(_readings(element))
        self.product = _text(element, "product_name") or ""
        self.recovery = _recovery(element)
        self.width = _pair(element, "link_widths", "link_width")
        self.generation = _pair(element, "pcie_gen", "link_gen")
        self.ecc = _flag(element, "ecc_mode/current_ecc")
        self.uncorrectable = _uncorrectable(element)
        self.remap_pending = _flag(element, "remapped_rows/remapped_row_pending")
        self.remap_failed = _flag(element, "remapped_rows/remapped_row_failure")
        self.full_banks = _count(element, "remapped_rows/row_remapper_histogram/row_remapper_histogram_none")
        self.unrepairable = _flag(element, "ecc_errors/unrepairable_memory")
        self.sram_exceeded = _flag(element, "ecc_errors/aggregate/sram_threshold_exceeded")
        self.repair_pending = any(
            _flag(element, f"ecc_errors/{part}_repair_pending") for part in ("channel", "tpc")
        )
        self.divided = _flag(element, "mig_mode/current_mig")
        self.fabric = [_text(element, f"fabric/{path}") for path in ("state", "status", "health/summary")]
        self.slowed = _slowed(element)
        self.slowed_s = dict(_slowed_s(element))
        names = [_text(one, "process_name") or "" for one in element.iterfind("processes/process_info")]
        self.busy = sum(name.rpartition("/")[2] != MPS_SERVER for name in names)


def refusal(text: str) -> str:
    """What nvidia-smi says in place of a log: `No devices were found`, or that it has no driver.

    Empty where it began a log, or says nothing.
    """
    return "" if "<" in text else " ".join(text.split())[:200]


class Smi:
    """`nvidia-smi -q -x`: the driver's version and every GPU.

    What it says before and after the log is left out: of a GPU that is lost, which the log then has not, or
    whose infoROM is damaged.
    """

    def __init__(self, text: str) -> None:
        text = text[max(text.find("<?xml"), 0) :]
        text = text[: text.find(END) + len(END)] if END in text else text
        # expat expands entities; what a driver writes has none of its own.
        if "<!ENTITY" in text:
            raise ValueError("it declares entities")
        try:
            root = ElementTree.fromstring(text)  # noqa: S314 - no entity is declared, and its length is held
        except (ElementTree.ParseError, ValueError, RecursionError) as error:
            raise ValueError(f"it is no XML: {error}")  # noqa: B904 - one cause is enough
        if root.tag != "nvidia_smi_log":
            raise ValueError(f"it is no log of nvidia-smi's but {root.tag[:40]}")
        self.driver = _text(root, "driver_version") or ""
        elements = root.findall("gpu")
        if len(elements) > MOST_GPUS:
            raise ValueError(f"it has {len(elements)} GPUs")
        self.gpus = [Gpu(element) for element in elements]


def pci_of(text: str) -> str:
    """`00000000:1B:00.0` → `0000:1b:00`, as the kernel's log has it. ValueError where it is none."""
    found = re.fullmatch(
        r"(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?", text.lower()
    )
    if found is None:
        raise ValueError(f"{text[:40]!r} is no PCI address")
    return ":".join(found.groups())


def _text(element: ElementTree.Element, path: str) -> str | None:
    found = element.find(path)
    text = (found.text or "").strip() if found is not None else ""
    return None if text in NONE_OF else text


def _flag(element: ElementTree.Element, path: str) -> bool | None:
    text = (_text(element, path) or "").lower()
    return {"yes": True, "enabled": True, "active": True, "no": False, "disabled": False}.get(text)


def _recovery(element: ElementTree.Element) -> str | None:
    """What the driver asks for; None where it does not know the question, `workflow` for a new answer."""
    text = _text(element, "gpu_recovery_action")
    return None if text is None else RECOVERY.get(text.lower(), "workflow")


def _pair(element: ElementTree.Element, folder: str, name: str) -> tuple[int, int] | None:
    """(now, at most) of the PCIe link: lanes, or its generation."""
    path = f"pci/pci_gpu_link_info/{folder}"
    words = [_text(element, f"{path}/{when}_{name}") or "" for when in ("current", "max")]
    numbers = [re.fullmatch(r"([0-9]{1,3})x?", word) for word in words]
    return (int(numbers[0][1]), int(numbers[1][1])) if numbers[0] and numbers[1] else None


def _readings(element: ElementTree.Element) -> Iterator[tuple[str, float]]:
    """Every number that it tells: `71.86 W`, `0 %`, `81559 MiB`."""
    for name, (unit, paths) in READINGS.items():
        # Since driver 530 the GPU's own readings stand in gpu_power_readings, before in power_readings.
        places = [path.replace("*", prefix) for path in paths for prefix in ("gpu_", "")]
        texts = [_text(element, place) or "" for place in places]
        found = [re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(?: [A-Za-z%]{1,5})?$", text) for text in texts]
        numbers = [float(one[1]) for one in found if one]
        if numbers:
            yield name, numbers[0] * unit


def _uncorrectable(element: ElementTree.Element) -> int:
    """ECC errors since the driver was loaded that could not be corrected, of all kinds of memory."""
    counters = element.findall("ecc_errors/volatile/*")
    texts = [part.text or "" for part in counters if "uncorrectable" in part.tag]
    return sum(int(text) for text in texts if re.fullmatch(r"[0-9]{1,12}", text.strip()))


def _slowed(element: ElementTree.Element) -> list[str]:
    """Why it runs slower than it could, of those reasons that are none of its load's."""
    reasons = [*element.findall("clocks_event_reasons/*"), *element.findall("clocks_throttle_reasons/*")]
    told = [
        re.sub(r"^clocks_(event|throttle)_reason_", "", one.tag) for one in reasons if one.text == "Active"
    ]
    return [name for name in told if name.startswith(("hw_", "sw_thermal"))]


def _slowed_s(element: ElementTree.Element) -> Iterator[tuple[str, float]]:
    """Reason, as `_slowed` names it → seconds since the driver was loaded; older drivers tell none."""
    for one in element.findall("clocks_event_reasons_counters/*"):
        found = re.match(r"([0-9]{1,18}) us$", (one.text or "").strip())
        name = one.tag.replace("clocks_event_reasons_counters_", "").replace("_therm_", "_thermal_")
        if found:
            yield name.replace("power_brake", "power_brake_slowdown"), int(found[1]) / 1e6


def _count(element: ElementTree.Element, path: str) -> int:
    """The number at the start of a text, as in `0 bank(s)`; 0 where there is none."""
    found = re.match(r"[0-9]{1,9}\b", _text(element, path) or "")
    return int(found[0]) if found else 0


def tried(text: str) -> tuple[str, list[dict[str, Any]]]:
    """What cuda.py prints → why nothing was tried, and every GPU: `pci`, `error`, `wrong`, and its speeds."""
    try:
        answer = json.loads(text)
        why, gpus = answer["error"], [dict(one) for one in answer["gpus"]]
        for one in gpus:
            one["pci"], one["error"] = pci_of(one["pci"]), str(one["error"])
            one["wrong"] = {str(what): int(number) for what, number in one["wrong"].items()}
            one.update({speed: float(one.get(speed, 0)) for speed in SPEEDS})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise ValueError("it is no answer of cuda.py's")  # noqa: B904
    return str(why), gpus


def diagnosed(text: str) -> dict[str, list[str]]:
    """`dcgmi diag -j` → how each test ended (`pass`, `fail`, `warn`, `skip`), and its warnings.

    {"pass": [name …], "fail": ["name: warning" …] …}, of DCGM 3 ("DCGM GPU Diagnostic") and 4 ("DCGM
    Diagnostic"), whose tests have a summary.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON")  # noqa: B904
    found = {}  # type: dict[str, list[str]]
    for name, result in _results(answer):
        status = str(result.get("status", "")).lower()
        if status not in ("pass", "fail", "warn", "skip", "notrun", "not run"):
            raise ValueError(f"{name} ended with {status[:40]!r}")
        words = name if status == "pass" else ": ".join([name, *_warnings(result)][:2])
        found.setdefault(status.replace("notrun", "skip").replace("not run", "skip"), []).append(words)
    if not found:
        raise ValueError("it tells of no test")
    return found


def _results(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every result of every test: (name, result). DCGM 4 has a summary beside those of each GPU."""
    top = answer if isinstance(answer, dict) else {}
    run = top.get("DCGM Diagnostic") or top.get("DCGM GPU Diagnostic")
    for category in _dicts(run.get("test_categories") if isinstance(run, dict) else None):
        for test in _dicts(category.get("tests")):
            name = str(test.get("name", "a test"))[:80]
            summary = test.get("test_summary")
            for result in [*_dicts(test.get("results")), *_dicts([summary])]:
                yield name, result


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _warnings(result: dict[str, Any]) -> list[str]:
    """DCGM 3 has texts, DCGM 4 objects with one."""
    said = result.get("warnings", [])
    parts = said if isinstance(said, list) else [said]
    texts = [part.get("warning", "") if isinstance(part, dict) else part for part in parts]
    return [str(text)[:200] for text in texts if text]


def burnt(text: str) -> dict[int, bool]:
    """The last lines of gpu-burn, `GPU 0: OK` or `GPU 0: FAULTY` → GPU → whether it counted right."""
    found = {int(number): word == "OK" for number, word in re.findall(r"GPU ([0-9]{1,2}): (OK|FAULTY)", text)}
    if not found:
        raise ValueError("it tells of no GPU")
    return found


def clock(text: str) -> tuple[float, bool]:
    """`chronyc -c tracking` → (seconds that the clock is off, whether it is synchronised)."""
    words = text.strip().split("\n")[-1].split(",")
    try:
        return abs(float(words[4])), words[13] != "Not synchronised"
    except (ValueError, IndexError):
        raise ValueError("it is no line of chronyc's")  # noqa: B904


def lanes(text: str) -> tuple[int | None, int | None, bool | None]:
    """`ethtool PORT` → (Mb/s, lanes, whether it has a link)."""
    speed = re.search(r"^\s*Speed: ([0-9]{1,9})Mb/s", text, re.MULTILINE)
    width = re.search(r"^\s*Lanes: ([0-9]{1,3})", text, re.MULTILINE)
    link = re.search(r"^\s*Link detected: (yes|no)", text, re.MULTILINE)
    if not link:
        raise ValueError("it tells of no link")
    return (
        int(speed[1]) if speed else None,
        int(width[1]) if width else None,
        link[1] == "yes",
    )


def smart(text: str) -> tuple[int, int]:
    """`nvme smart-log -o json` → (critical warning, media errors)."""
    try:
        answer = json.loads(text)
        warning = answer["critical_warning"]
        value = warning.get("value", 0) if isinstance(warning, dict) else warning
        return int(value), int(answer["media_errors"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise ValueError("it is no log of a disk's health")  # noqa: B904


def fio(text: str) -> tuple[int, float]:
    """`fio --output-format=json` of one job that reads → (errors, MB/s)."""
    try:
        job = json.loads(text[text.index("{") :])["jobs"][0]
        return int(job["error"]), float(job["read"]["bw_bytes"]) / 1e6
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError):
        raise ValueError("it is no result of fio's")  # noqa: B904
