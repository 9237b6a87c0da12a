"""What nvidia-smi reports of a node's GPUs, held against the declaration: never against what the node has."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

QUERY = (
    "nvidia-smi --format=csv,noheader,nounits "
    "--query-gpu=name,driver_version,persistence_mode,power.limit,mig.mode.current"
)
"""Fields as `nvidia-smi --help-query-gpu` has them."""
PART = re.compile(r"^\s+MIG (\S+)\s+Device", re.MULTILINE)
"""A part of a GPU in what `nvidia-smi --list-gpus` prints."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; of what it cannot tell None."""

    name: str
    driver: str
    persistence: bool | None
    power_limit_w: float | None
    divided: bool | None


def gpus(answer: str) -> list[Gpu]:
    """The GPUs in an answer to `QUERY`. ValueError for a line of another form."""
    found = []
    for line in filter(str.strip, answer.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5:
            raise ValueError(f"nvidia-smi said of a GPU: {line.strip()[:200]}")
        name, driver, persistence, limit, mode = fields
        watts = float(limit) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit) else None
        found.append(Gpu(name, driver, _is_on(persistence), watts, _is_on(mode)))
    return found


def _is_on(word: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(word)


def differences(found: list[Gpu], count: int, product: str, driver: str) -> Iterator[str]:
    """How the GPUs of a node are others than declared; `product` as of `known.PRODUCTS`, empty for any."""
    if len(found) != count:
        yield f"{len(found)} GPUs, and {count} are declared"
    for number, gpu in enumerate(found):
        if product and not re.fullmatch(product, gpu.name):
            yield f"GPU {number} is a {gpu.name}, which is not {product}"
        if gpu.driver != driver:
            yield f"GPU {number} has driver {gpu.driver}, and {driver} is declared"
