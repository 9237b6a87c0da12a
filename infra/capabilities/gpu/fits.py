"""Whether a driver, a CUDA release, a GPU and its kernel modules go together, and what would."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from infra.capabilities.gpu.known import (
    ARCHITECTURES,
    CUDA_COMES_WITH,
    CUDA_NEEDS,
    FORWARD_FROM,
    MODELS,
    SWITCHED_FROM,
    Version,
    version,
)


class Fit(StrEnum):
    """How a CUDA release runs on a driver."""

    RUNS = "runs"
    MINOR = "runs by minor-version compatibility"
    FORWARD = "needs the forward-compatibility package"
    NOT = "does not run"


def text(numbers: Version) -> str:
    """As NVIDIA writes a driver's version: the third number has two digits at least."""
    first, *rest = numbers
    parts = [str(first), *(str(rest[0]) for _ in rest[:1]), *(f"{number:02}" for number in rest[1:])]
    return ".".join(parts)


def made_with(cuda: Version) -> Version | None:
    """The driver from which on nothing of a release is left out.

    Of a release that is not listed, that of the next listed one of the same major; None where there is none.
    """
    later = (release for release in sorted(CUDA_COMES_WITH) if release >= cuda and release[0] == cuda[0])
    found = next(later, None)
    return CUDA_COMES_WITH[found] if found else None


def fit(driver: Version, cuda: Version) -> Fit:
    """The best way in which a release runs on a driver."""
    whole = made_with(cuda)
    if whole is not None and driver >= whole:
        return Fit.RUNS
    if cuda[0] in CUDA_NEEDS and driver >= CUDA_NEEDS[cuda[0]]:
        return Fit.MINOR
    if cuda[0] in CUDA_NEEDS and driver[0] >= FORWARD_FROM:
        return Fit.FORWARD
    return Fit.NOT


def newest_for(driver: Version) -> Version | None:
    """The newest release of which a driver leaves nothing out; None for a driver older than all listed."""
    return max((cuda for cuda in CUDA_COMES_WITH if fit(driver, cuda) is Fit.RUNS), default=None)


def first_driver(model: str) -> Version | None:
    """The driver that came with the first release that knows a GPU, where that is listed."""
    return made_with(ARCHITECTURES[MODELS[model].architecture].first_cuda)


def is_switched(model: str, gpus: int) -> bool:
    """Whether a machine with so many of a GPU joins them by switches, which Fabric Manager runs."""
    return MODELS[model].nvswitch > 0 and gpus >= SWITCHED_FROM.get(model, 1)


def modules_for(model: str, wanted: str) -> Literal["open", "proprietary"] | None:
    """The kernel modules to install; None where the wanted ones do not drive the GPU."""
    known = ARCHITECTURES[MODELS[model].architecture].modules
    return known[0] if wanted == "auto" else next((one for one in known if one == wanted), None)


@dataclass(frozen=True)
class Misfit:
    """Something that does not go together: the field it is told of, why, and what would go."""

    field: str
    message: str
    suggestion: str | None = None


def misfits(model: str, driver: str, cuda: str, modules: str) -> Iterator[Misfit]:
    """Everything about these versions that does not work on this GPU."""
    yield from _cuda_on_driver(version(driver), version(cuda))
    yield from _of_the_gpu(model, version(driver), version(cuda))
    if modules_for(model, modules) is None:
        only = ARCHITECTURES[MODELS[model].architecture].modules[0]
        message = f"does not drive {model}: only NVIDIA's {only} kernel modules do"
        yield Misfit("kernel_modules", message, only)


def _cuda_on_driver(driver: Version, cuda: Version) -> Iterator[Misfit]:
    if cuda[0] not in CUDA_NEEDS:
        known = ", ".join(map(str, CUDA_NEEDS))
        yield Misfit("cuda", f"is of a major release that is not known here (known: {known})")
    elif fit(driver, cuda) is Fit.NOT:
        oldest = text(CUDA_NEEDS[cuda[0]])
        yield Misfit("driver", f"does not run CUDA {text(cuda)}, which needs {oldest} or newer", oldest)


def _of_the_gpu(model: str, driver: Version, cuda: Version) -> Iterator[Misfit]:
    known = ARCHITECTURES[MODELS[model].architecture]
    first = first_driver(model)
    if cuda < known.first_cuda:
        release = text(known.first_cuda)
        yield Misfit("cuda", f"does not know {model}, which CUDA {release} was the first to", release)
    if known.last_cuda is not None and cuda[0] > known.last_cuda:
        message = f"no longer builds for {model}: CUDA {known.last_cuda} was the last that did"
        yield Misfit("cuda", message, text(max(one for one in CUDA_COMES_WITH if one[0] == known.last_cuda)))
    if first is not None and driver < first:
        yield Misfit("driver", f"does not know {model}, which {text(first)} was the first to", text(first))
    if known.last_driver is not None and driver[0] > known.last_driver:
        yield Misfit("driver", f"no longer knows {model}: branch {known.last_driver} is the last that does")
