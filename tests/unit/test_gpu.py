"""GPU stacks: what NVIDIA's tables say, and what follows from them for every version there may be."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.gpu import rules
from infra.capabilities.gpu.capability import CAPABILITY
from infra.capabilities.gpu.fits import (
    Fit,
    fit,
    is_switched,
    made_with,
    misfits,
    modules_for,
    newest_for,
    text,
)
from infra.capabilities.gpu.known import ARCHITECTURES, BRANCHES, CUDA_COMES_WITH, CUDA_NEEDS, MODELS, version
from infra.checks import check
from infra.declaration import ClusterSpec
from infra.ground.problem import Problem
from infra.ground.rules.pools import GPU_MODELS
from infra.planning.plan import make_plan

DRIVERS = st.tuples(st.integers(450, 640), st.integers(0, 130), st.integers(0, 20))
RELEASES = st.tuples(st.sampled_from(sorted(CUDA_NEEDS)), st.integers(0, 9))
STACK = {"driver": "580.95.05", "cuda": "13.0"}


def declared(stack: dict[str, Any], model: str = "h100-sxm", gpus: int = 8) -> ClusterSpec:
    pool = {"name": "gpu", "role": "gpu", "count": 2, "gpus": gpus, "gpu_model": model, "gpu_stack": stack}
    region = {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": [pool]}
    return ClusterSpec.model_validate({"name": "pacific", "regions": [region]})


def problems(stack: dict[str, Any], model: str = "h100-sxm", gpus: int = 8) -> list[Problem]:
    return [one for one in check(declared(stack, model, gpus)) if one.rule.startswith("gpu-stack")]


@pytest.mark.parametrize(
    ("driver", "cuda", "wanted"),
    [
        ("580.95.05", "13.0", Fit.RUNS),
        ("580.95.05", "12.4", Fit.RUNS),
        ("580.65.06", "13.1", Fit.MINOR),
        ("535.54.03", "12.9", Fit.MINOR),
        ("535.54.03", "12.2", Fit.RUNS),
        ("535.54.03", "12.3", Fit.MINOR),
        ("535.247.01", "13.0", Fit.FORWARD),
        ("525.60.12", "12.0", Fit.FORWARD),
        ("525.60.13", "12.0", Fit.MINOR),
        ("620.10", "11.8", Fit.RUNS),
        ("620.10", "13.4", Fit.MINOR),
        ("440.33", "12.0", Fit.NOT),
    ],
)
def test_a_release_runs_as_the_tables_say(driver: str, cuda: str, wanted: Fit) -> None:
    assert fit(version(driver), version(cuda)) is wanted


@given(driver=DRIVERS, newer=DRIVERS, cuda=RELEASES)
def test_a_newer_driver_never_runs_a_release_worse(driver: Any, newer: Any, cuda: Any) -> None:
    order = list(Fit)
    low, high = sorted((driver, newer))
    assert order.index(fit(high, cuda)) <= order.index(fit(low, cuda))


@given(driver=DRIVERS, cuda=RELEASES, later=RELEASES)
def test_a_newer_release_of_a_major_never_runs_better(driver: Any, cuda: Any, later: Any) -> None:
    if cuda[0] == later[0] and made_with(max(cuda, later)) is not None:
        order = list(Fit)
        low, high = sorted((cuda, later))
        assert order.index(fit(driver, low)) <= order.index(fit(driver, high))


@given(DRIVERS)
def test_what_a_driver_is_offered_runs_on_it(driver: Any) -> None:
    newest = newest_for(driver)
    assert newest is None or fit(driver, newest) is Fit.RUNS


def test_versions_are_numbers() -> None:
    assert version("580.105.08") > version("580.95.05")
    assert text(version("580.95.05")) == "580.95.05"
    assert text(version("570.26")) == "570.26"
    assert fit(version("535.104.05"), (12, 2)) is Fit.RUNS


def test_the_tables_agree_with_each_other() -> None:
    assert set(MODELS) == {name for name in GPU_MODELS if not name.startswith("mi")}
    for release, driver in CUDA_COMES_WITH.items():
        assert driver >= CUDA_NEEDS[release[0]], release
    assert list(CUDA_COMES_WITH.values()) == sorted(CUDA_COMES_WITH.values())
    for name, model in MODELS.items():
        assert model.architecture in ARCHITECTURES, name
        for profile, most in model.mig.items():
            slices = int(profile[0])
            assert slices * most <= 7, f"{name}: {profile} x {most}"


@given(model=st.sampled_from(sorted(MODELS)), driver=DRIVERS, cuda=RELEASES)
def test_what_a_misfit_suggests_for_one_field_is_no_misfit_of_that_kind(
    model: str, driver: Any, cuda: Any
) -> None:
    names = {"driver": text(driver), "cuda": text(cuda), "modules": "auto"}
    for one in misfits(model, **names):
        if one.suggestion is not None:
            mended = {**names, one.field: one.suggestion}
            assert one.message not in {other.message for other in misfits(model, **mended)}


@pytest.mark.parametrize(
    ("model", "stack", "path", "text_"),
    [
        ("b200-sxm", {"driver": "550.163.01", "cuda": "12.8"}, "driver", "570.26 was the first to"),
        ("b200-sxm", {"driver": "580.95.05", "cuda": "12.4"}, "cuda", "CUDA 12.8 was the first to"),
        (
            "b200-sxm",
            {**STACK, "kernel_modules": "proprietary"},
            "kernel_modules",
            "only NVIDIA's open kernel",
        ),
        ("v100-sxm", {"driver": "580.95.05", "cuda": "13.0"}, "cuda", "no longer builds for v100-sxm"),
        ("v100-sxm", {"driver": "595.45.04", "cuda": "12.4"}, "driver", "branch 580 is the last"),
        ("h100-sxm", {"driver": "580.95.05", "cuda": "14.0"}, "cuda", "not known here"),
        ("h100-sxm", {"driver": "440.33.01", "cuda": "12.4"}, "driver", "525.60.13 or newer"),
        ("h100-sxm", {**STACK, "mig": {"profile": "1g.18gb", "count": 7}}, "mig.profile", "no such part"),
        ("h100-sxm", {**STACK, "mig": {"profile": "2g.20gb", "count": 4}}, "mig.count", "at most 3"),
        ("l40s", {**STACK, "mig": {"profile": "1g.10gb", "count": 1}}, "mig.profile", "cannot be divided"),
        *((model, STACK, "", "not a GPU of NVIDIA's that is known") for model in ("mi300x", "rtx-4090")),
    ],
)
def test_what_does_not_go_together_is_refused(
    model: str, stack: dict[str, Any], path: str, text_: str
) -> None:
    found = [one for one in problems(stack, model) if one.severity == "error"]
    assert [one.path for one in found if text_ in one.message] == [
        f"regions[0].pools[0].gpu_stack{'.' if path else ''}{path}"
    ]


def test_a_stack_needs_gpus() -> None:
    spec = declared(STACK)
    pool = spec.regions[0].pools[0].model_copy(update={"gpus": 0, "gpu_model": None})
    bare = spec.model_copy(update={"regions": (spec.regions[0].model_copy(update={"pools": (pool,)}),)})
    assert [one.rule for one in check(bare) if one.rule.startswith("gpu-stack")] == ["gpu-stack-gpus"]


def test_a_release_of_a_newer_major_is_told_with_its_package() -> None:
    (found,) = [
        one for one in problems({"driver": "570.26", "cuda": "13.1"}) if one.rule == "gpu-stack-forward"
    ]
    assert "cuda-compat-13-1" in found.message
    assert found.suggestion == "12.8"
    assert found.severity == "warning"


@pytest.mark.parametrize(
    ("today", "driver", "told"),
    [
        (date(2026, 7, 1), "535.54.03", "ended in June 2026"),
        (date(2026, 6, 30), "535.54.03", "ends in June 2026"),
        (date(2026, 1, 2), "535.54.03", "ends in June 2026"),
        (date(2025, 12, 31), "535.54.03", None),
        (date(2026, 7, 1), "580.95.05", None),
        (date(2026, 7, 1), "550.163.01", None),
    ],
)
def test_a_branch_that_ends_is_told_in_time(
    monkeypatch: pytest.MonkeyPatch, today: date, driver: str, told: str | None
) -> None:
    class Calendar(date):
        @classmethod
        def today(cls) -> "Calendar":
            return cls(today.year, today.month, today.day)

    monkeypatch.setattr(rules, "date", Calendar)
    found = [one for one in problems({"driver": driver, "cuda": "12.2"}) if one.rule == "gpu-stack-branch"]
    assert [told in one.message for one in found if told] == [True] * bool(told)
    assert bool(found) == bool(told)
    assert all("580 (until June 2028)" in one.hint for one in found)


def test_what_is_planned() -> None:
    spec = declared({**STACK, "mig": {"profile": "1g.10gb", "count": 7}})
    (pool,) = make_plan(spec).of(CAPABILITY).pools  # type: ignore[union-attr] # it is declared
    assert (pool.fabric_manager, pool.subnet_manager, pool.kernel_modules) == ("580.95.05", False, "open")
    assert (pool.mig, pool.parts) == ("7 x 1g.10gb", 56)
    assert pool.cuda_runs == "runs"
    assert pool.branch == "long-term support until June 2028"
    assert 580 in BRANCHES


@pytest.mark.parametrize(
    ("model", "gpus", "switched"),
    [
        ("h100-sxm", 8, True),
        ("h100-sxm", 4, False),
        ("h100-pcie", 8, False),
        ("gb200", 4, False),
        ("gb300", 4, False),
        ("h200-sxm", 8, True),
        ("h200-sxm", 4, False),
        ("h200-sxm", 1, False),
        ("h200-nvl", 8, False),
        ("b200-sxm", 8, True),
    ],
)
def test_switches_join_what_needs_a_fabric_manager(model: str, gpus: int, switched: bool) -> None:
    assert is_switched(model, gpus) is switched


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_gpu_has_modules(model: str) -> None:
    assert modules_for(model, "auto") in ("open", "proprietary")
