"""GPUs' software: one stack for each pool, of versions that fit together."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.declaration.base import Float, Int, Spec, refusal

DRIVER = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,3})?")
CUDA = re.compile(r"[1-9][0-9]\.[0-9]{1,2}")
PROFILE = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb")


def _quoted(value: object) -> object:
    """YAML reads 13.10 as the number 13.1."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal("is a number; a version is a text, in quotes", f'"{value}"')
    return value


def _driver(value: str) -> str:
    if not DRIVER.fullmatch(value):
        raise refusal("is not a driver's version, such as 580.95.05")
    return value


def _cuda(value: str) -> str:
    if not CUDA.fullmatch(value):
        found = re.match(r"[1-9][0-9]\.[0-9]{1,2}", value)
        raise refusal("is not a CUDA release by major and minor, such as 13.0", found[0] if found else None)
    return value


def _profile(value: str) -> str:
    if not PROFILE.fullmatch(value):
        raise refusal("is not a MIG profile, such as 1g.10gb")
    return value


class MigSpec(Spec):
    """How each GPU is divided."""

    what: ClassVar = "the MIG layout"
    profile: Annotated[str, AfterValidator(_profile)]
    """What each part is, such as `1g.10gb`: the share of the processors and of the memory."""
    count: Int = Field(ge=1, le=7)
    """Parts of each GPU."""


class GpuStackSpec(Spec):
    """What runs a pool's GPUs. Versions are exact, and held on the nodes."""

    what: ClassVar = "a GPU stack"
    driver: Annotated[str, BeforeValidator(_quoted), AfterValidator(_driver)]
    """The driver's version, such as `580.95.05`."""
    cuda: Annotated[str, BeforeValidator(_quoted), AfterValidator(_cuda)]
    """The CUDA release that jobs are built with, such as `13.0`."""
    kernel_modules: Literal["auto", "open", "proprietary"] = "auto"
    """Which of NVIDIA's kernel modules; `auto` takes the open ones wherever the GPU has them."""
    mig: MigSpec | None = None
    """Parts of each GPU; unset means whole GPUs."""
    mps: bool = False
    """Whether jobs share a GPU by NVIDIA's Multi-Process Service, which does not keep their faults apart."""
    persistence: bool = True
    """Whether the driver stays loaded between jobs."""
    power_cap_w: Float | None = Field(default=None, gt=0)
    """Watts that each GPU may draw; unset means its own limit."""
