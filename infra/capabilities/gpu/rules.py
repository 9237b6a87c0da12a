"""GPU stacks: on pools that have such GPUs, of versions that go together, of branches that are maintained."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import ClassVar

from infra.capabilities.gpu.fits import Fit, fit, is_switched, misfits, newest_for, text
from infra.capabilities.gpu.known import (
    BRANCHES,
    DCGM_OF_EXPORTER,
    EXPORTER_RENAMES,
    MODELS,
    Version,
    version,
)
from infra.capabilities.gpu.packages import lacking
from infra.declaration import ClusterSpec, GpuStackSpec
from infra.ground.problem import Problem, Severity, listing, show
from infra.ground.rule import memory_gib, pools

DESCRIBES_FROM = (1, 18, 0)
"""Container Toolkit 1.18.0 brings nvidia-cdi-refresh: NVIDIA, Support for Container Device Interface."""
PAGES_OF_MEMORY = 0.9
"""Share of a node's memory that huge pages may take; a rule of ours: the kernel and jobs need the rest."""
NEAR = timedelta(days=180)
"""A branch that ends within this is told of: an upgrade of a fleet takes months."""


def stacks(spec: ClusterSpec) -> Iterator[tuple[str, str, GpuStackSpec]]:
    """Stacks of pools with GPUs of NVIDIA's: (path of the stack, the GPUs' model, the stack)."""
    for path, _, _, pool in pools(spec):
        model = pool.gpu_model
        if pool.gpu_stack is not None and pool.gpus > 0 and model is not None and model in MODELS:
            yield f"{path}.gpu_stack", model, pool.gpu_stack


class StackHasItsGpus:
    """Only NVIDIA's GPUs have such a stack."""

    id: ClassVar[str] = "gpu-stack-gpus"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Stacks of pools without GPUs, and of GPUs that are another maker's or unknown."""
        for path, _, _, pool in pools(spec):
            if pool.gpu_stack is None:
                continue
            if pool.gpus == 0:
                yield Problem(f"{path}.gpu_stack", f"pool {pool.name} has no GPUs that it could run")
            elif pool.gpu_model is not None and pool.gpu_model not in MODELS:
                model = show(pool.gpu_model)
                message = f"{model} is not a GPU of NVIDIA's that is known here: nothing says what fits it"
                hint = "take gpu_stack out, and install the maker's software yourself"
                yield Problem(f"{path}.gpu_stack", message, hint=hint)


class VersionsFit:
    """Driver, CUDA, GPU and kernel modules go together."""

    id: ClassVar[str] = "gpu-stack-fits"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Each thing that does not, with the nearest that does."""
        for path, model, stack in stacks(spec):
            for one in misfits(model, stack.driver, stack.cuda, stack.kernel_modules):
                value = getattr(stack, one.field)
                message = f"{show(value)} {one.message}"
                yield Problem(f"{path}.{one.field}", message, show(value), suggestion=one.suggestion)


class PartsExist:
    """A GPU can be divided so."""

    id: ClassVar[str] = "gpu-stack-mig"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Profiles that a GPU does not have, and more parts than it has."""
        for path, model, stack in stacks(spec):
            if stack.mig is None:
                continue
            known = MODELS[model].mig
            most = known.get(stack.mig.profile)
            if most is None:
                none = f"{model} cannot be divided" if not known else f"{model} has no such part"
                message = f"{show(stack.mig.profile)}: {none}"
                yield Problem(f"{path}.mig.profile", message, show(stack.mig.profile), listing(tuple(known)))
            elif stack.mig.count > most:
                message = f"a {model} has at most {most} parts of {stack.mig.profile}"
                yield Problem(f"{path}.mig.count", message, show(stack.mig.count), suggestion=str(most))


class SourceHasAll:
    """A repository has what is to come from it."""

    id: ClassVar[str] = "gpu-stack-source"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Parts of a stack that a source does not have for any version."""
        for path, _, _, pool in pools(spec):
            stack, model = pool.gpu_stack, pool.gpu_model
            if stack is None or model is None or model not in MODELS or pool.gpus == 0:
                continue
            for part in lacking(stack, fabric=is_switched(model, pool.gpus)):
                message = f"{show(stack.source.kind)} has no {part}, which pool {pool.name} needs"
                found = show(stack.source.kind)
                yield Problem(f"{path}.gpu_stack.source.kind", message, found, suggestion="nvidia")


class ToolkitDescribesGpus:
    """Engines are told of GPUs by the toolkit itself."""

    id: ClassVar[str] = "gpu-stack-containers"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Versions that write no description when the driver changes or the node boots."""
        for path, _, stack in stacks(spec):
            asked = stack.container_toolkit
            if asked is not None and version(asked) < DESCRIBES_FROM:
                message = f"{show(asked)} describes the GPUs to no engine by itself: the first is 1.18.0"
                yield Problem(f"{path}.container_toolkit", message, show(asked), suggestion="1.18.0")


def _dotted(numbers: Version) -> str:
    """As DCGM writes its versions."""
    return ".".join(map(str, numbers))


class ExporterIsAsked:
    """DCGM's exporter has a DCGM beside it, somebody who asks, and fields that are read."""

    id: ClassVar[str] = "gpu-stack-exporter"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Exporters without either, and of versions whose fields nothing here knows."""
        newest = max(one for one in DCGM_OF_EXPORTER if one < EXPORTER_RENAMES)
        for path, _, stack in stacks(spec):
            if stack.dcgm_exporter is None:
                continue
            where, found = f"{path}.dcgm_exporter", show(stack.dcgm_exporter)
            if stack.dcgm is None:
                message = f"exporter {found} asks DCGM, which the stack does not have"
                yield Problem(where, message, found, hint="declare dcgm")
            if spec.monitoring is None:
                yield Problem(where, f"exporter {found} is asked by nobody: there is no monitoring", found)
            if version(stack.dcgm_exporter) >= EXPORTER_RENAMES:
                message = f"exporter {found} gives fields other names and units than rules here read"
                message += f"; {_dotted(newest)} does not"
                yield Problem(where, message, found, suggestion=_dotted(newest))


class ExporterMatches:
    """DCGM's exporter runs with the DCGM that it was made with."""

    id: ClassVar[str] = "gpu-stack-exporter-pair"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pairs that NVIDIA does not make, as far as they are known."""
        for path, _, stack in stacks(spec):
            if stack.dcgm_exporter is None or stack.dcgm is None:
                continue
            dcgm, made_with = version(stack.dcgm), DCGM_OF_EXPORTER.get(version(stack.dcgm_exporter))
            if made_with is None or made_with[: len(dcgm)] == dcgm:
                continue
            fitting = [one for one, pair in DCGM_OF_EXPORTER.items() if pair[: len(dcgm)] == dcgm]
            message = f"exporter {stack.dcgm_exporter} is made with DCGM {_dotted(made_with)}"
            message += f", and {stack.dcgm} is declared"
            suggestion = _dotted(max(fitting)) if fitting else None
            yield Problem(f"{path}.dcgm_exporter", message, show(stack.dcgm_exporter), suggestion=suggestion)


class CapsLast:
    """A driver that is unloaded between jobs forgets what GPUs were told."""

    id: ClassVar[str] = "gpu-stack-cap"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Power caps without persistence."""
        for path, _, stack in stacks(spec):
            if stack.power_cap_w is not None and not stack.persistence:
                message = "a GPU forgets its power cap when its driver does not stay loaded"
                yield Problem(f"{path}.persistence", message, show(stack.persistence), suggestion="true")


class GpusAreSharedOneWay:
    """Jobs share a GPU in one way."""

    id: ClassVar[str] = "gpu-stack-sharing"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Turns beside the Multi-Process Service."""
        for path, _, stack in stacks(spec):
            if stack.mps and stack.time_slices is not None:
                message = "shares GPUs by turns, and mps by a server: the device plugin takes one of them"
                yield Problem(f"{path}.time_slices", message, show(stack.time_slices))


class HugepagesFit:
    """Huge pages leave memory for everything else."""

    id: ClassVar[str] = "gpu-host-hugepages"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Demands above the memory of a node, where that is declared."""
        for path, region, _, pool in pools(spec):
            memory = memory_gib(spec, region, pool)
            if pool.gpu_stack is None or memory is None:
                continue
            host = pool.gpu_stack.host
            sizes = {"hugepages_2m": 2 / 1024, "hugepages_1g": 1.0}
            asked = {name: (getattr(host, name) or 0) * gib for name, gib in sizes.items()}
            total, most = sum(asked.values()), memory * PAGES_OF_MEMORY
            if total > most:
                field = max(asked, key=lambda name: asked[name])
                room = int((most - (total - asked[field])) / sizes[field])
                message = f"huge pages of {total:g} GiB, and a node has {memory:g} GiB: 90 % of it at most"
                suggestion = str(room) if room > 0 else None
                yield Problem(
                    f"{path}.gpu_stack.host.{field}", message, show(getattr(host, field)), "", suggestion
                )


class FunctionsHavePorts:
    """Virtual functions are made of ports that are known by their names."""

    id: ClassVar[str] = "gpu-host-vfs"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools without fabric NICs, and NICs that nothing names."""
        for path, region, _, pool in pools(spec):
            if pool.gpu_stack is None or pool.gpu_stack.host.sriov_vfs is None:
                continue
            if pool.nics <= 0:
                message = f"pool {pool.name} has no fabric NICs that they could be made of"
                yield Problem(f"{path}.gpu_stack.host.sriov_vfs", message)
            elif region.fabric is None and not pool.nic_names:
                message = f"the NICs of pool {pool.name} have no names"
                yield Problem(f"{path}.gpu_stack.host.sriov_vfs", message, hint="give the pool nic_names")


class ForwardIsKnown:
    """A release that runs by another package is a decision, not a detail."""

    id: ClassVar[str] = "gpu-stack-forward"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Releases of a newer major than the driver's."""
        for path, _, stack in stacks(spec):
            driver, cuda = version(stack.driver), version(stack.cuda)
            if fit(driver, cuda) is Fit.FORWARD:
                package = f"cuda-compat-{cuda[0]}-{cuda[1]}"
                message = f"CUDA {stack.cuda} runs on driver {stack.driver} with {package} only"
                whole = newest_for(driver)
                hint = "see NVIDIA's table for that package, or take a newer driver"
                yield Problem(
                    f"{path}.cuda",
                    message,
                    show(stack.cuda),
                    suggestion=text(whole) if whole else None,
                    hint=hint,
                )


def today() -> date:
    """The day that branches are held against."""
    return date.today()


class BranchIsMaintained:
    """A branch that has ended gets no fix, not even for security."""

    id: ClassVar[str] = "gpu-stack-branch"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Branches that have ended, or end soon."""
        now = today()
        for path, _, stack in stacks(spec):
            branch = BRANCHES.get(version(stack.driver)[0])
            if branch is None or branch.ends > now + NEAR:
                continue
            when = "ended in" if branch.ends < now else "ends in"
            message = f"{branch.designation} branch {version(stack.driver)[0]} {when} {branch.ends:%B %Y}"
            lasting = [
                f"{number} (until {one.ends:%B %Y})"
                for number, one in BRANCHES.items()
                if one.designation == "long-term support" and one.ends > now + NEAR
            ]
            hint = f"long-term support have {', '.join(lasting)}" if lasting else ""
            yield Problem(f"{path}.driver", message, show(stack.driver), hint=hint)


RULES = (
    StackHasItsGpus(),
    VersionsFit(),
    PartsExist(),
    SourceHasAll(),
    ToolkitDescribesGpus(),
    ExporterIsAsked(),
    ExporterMatches(),
    CapsLast(),
    GpusAreSharedOneWay(),
    HugepagesFit(),
    FunctionsHavePorts(),
    ForwardIsKnown(),
    BranchIsMaintained(),
)
