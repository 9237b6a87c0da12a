"""A GPU node's driver stack: the declared versions, which nothing moves; as many GPUs as are declared."""

import re
from typing import Any

import pytest
from testinfra.host import Host

from infra.capabilities.gpu import reported
from tests.verify.support import Expect, VerdictRecorder, ask

pytestmark = pytest.mark.deadline(240)

NO_GPU = "no GPU here"
COUNT = (
    "for device in /sys/bus/pci/devices/*; do "
    "read -r vendor < $device/vendor; read -r class < $device/class; "
    'case "$vendor $class" in "0x10de 0x03"*) echo gpu;; esac; done 2>/dev/null | wc -l'
)
"""GPUs of NVIDIA's on the PCI bus, whether or not a driver knows them."""
LOAD = """
import ctypes, json
version = ctypes.c_int()
library = ctypes.CDLL("libcuda.so.1")
status = library.cuDriverGetVersion(ctypes.byref(version))
print(json.dumps({"status": status, "cuda": [version.value // 1000, version.value % 1000 // 10]}))
"""
"""CUDA's own library, as a job loads it; the newest release that it runs (CUDA Driver API: 1000 times the
major number and 10 times the minor one)."""


@pytest.fixture(name="packages")
def _packages(expect: Expect, in_container: bool) -> dict[str, str]:
    """The declared packages of this node."""
    kernel = {} if in_container else expect.cuda_base_kernel_packages
    return {**expect.cuda_base_packages, **kernel}


@pytest.fixture(name="there")
def _there(host: Host) -> int:
    """How many GPUs the bus has."""
    return int(host.check_output(COUNT))


@pytest.fixture(name="found")
def _found(host: Host, expect: Expect, there: int, verdict: VerdictRecorder) -> list[reported.Gpu]:
    """The GPUs; the check ends where there can be none."""
    if not there and (expect.cuda_base_gpus_simulated or not expect.cuda_base_gpus):
        verdict.unsupported(NO_GPU)
    assert there, f"{NO_GPU}, and {expect.cuda_base_gpus} are declared"
    return reported.gpus(host.check_output(reported.QUERY))


def installed(host: Host) -> dict[str, tuple[str, str]]:
    """Package → what dpkg is to do with it, and its version."""
    form = "${Package} ${db:Status-Want} ${db:Status-Status} ${Version}\\n"
    rows = (
        line.split() for line in host.check_output("dpkg-query --show --showformat %s", form).splitlines()
    )
    return {name: (want, version) for name, want, status, version in rows if status == "installed"}


def upstream(version: str) -> str:
    """Without epoch and revision."""
    return version.partition(":")[2].rpartition("-")[0] if ":" in version else version.rpartition("-")[0]


def of_the_driver(host: Host, driver: str) -> dict[str, tuple[str, str]]:
    """Installed packages that have the driver's version, as `installed` has them."""
    return {name: one for name, one in installed(host).items() if upstream(one[1]) == driver}


def moved(printed: str) -> set[str]:
    """The packages that a simulated run of apt would install, or remove."""
    return {line.split()[1] for line in printed.splitlines() if line.startswith(("Inst ", "Remv "))}


def rendered_without(gpus: int, verdict: VerdictRecorder, what: str) -> None:
    if not gpus:
        verdict.rendered(f"{what}; {NO_GPU}")


def test_declared_versions_are_installed_and_held(
    host: Host, expect: Expect, packages: dict[str, str]
) -> None:
    found = installed(host)
    for name, version in packages.items():
        assert name in found, f"{name} is not installed"
        want, there = found[name]
        fits = not version or re.match(re.escape(version) + r"(?![0-9])", upstream(there))
        assert fits, f"{name} is {there}, and {version} is declared"
        assert want == "hold", f"{name} is not held"
    loose = [
        name for name, (want, _) in of_the_driver(host, expect.cuda_base_driver).items() if want != "hold"
    ]
    assert loose == []


def test_fabric_manager_has_exactly_the_drivers_version(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.cuda_base_fabric_manager:
        assert not [name for name in installed(host) if "fabricmanager" in name]
        verdict.not_declared("no switches join the GPUs")
    (version,) = [one for name, (_, one) in installed(host).items() if "nvidia-fabricmanager" in name]
    assert upstream(version) == expect.cuda_base_driver


def test_no_upgrade_moves_them(host: Host, packages: dict[str, str]) -> None:
    # Pinned as well as held: either alone has to be enough.
    for words in ("dist-upgrade", "--ignore-hold dist-upgrade"):
        done = host.run(f"LC_ALL=C apt-get --simulate {words}")
        assert moved(done.stdout) & set(packages) == set(), f"apt-get {words}"


def test_no_metapackage_moves_them(host: Host, expect: Expect, packages: dict[str, str]) -> None:
    for name in expect.cuda_base_metapackages:
        done = host.run(f"LC_ALL=C apt-get --simulate install {name}")
        assert "Unable to locate" not in done.stderr, f"apt does not know {name}"
        assert moved(done.stdout) & set(packages) == set(), name


def test_the_declared_versions_are_apts_own_choice(host: Host, packages: dict[str, str]) -> None:
    printed = host.check_output("LC_ALL=C apt-cache policy " + " ".join(packages))
    chosen = re.findall(r"^(\S+):\n  Installed: (\S+)\n  Candidate: (\S+)", printed, re.MULTILINE)
    assert {name for name, _, _ in chosen} == set(packages)
    assert [row for row in chosen if row[1] != row[2]] == []


def test_the_repository_is_signed_by_its_own_key(host: Host, expect: Expect) -> None:
    # TRUSTED is what came of looking at the signature, unless somebody said it beforehand.
    form = "$(REPO_URI) $(TRUSTED) $(SIGNED_BY)"
    rows = [
        line.split(" ") for line in host.check_output("apt-get indextargets --format %s", form).splitlines()
    ]
    ours = [row[1:] for row in rows if row[0].rstrip("/") == expect.cuda_base_source_url.rstrip("/")]
    assert ["yes", expect.cuda_base_source_keyring] in ours, (
        "apt reads nothing of it that this key has signed"
    )
    said = host.run(
        "grep -riE '(trusted|allow-insecure) *[:=]' /etc/apt/sources.list /etc/apt/sources.list.d"
    )
    assert said.stdout == ""


def test_the_driver_loads(host: Host, expect: Expect) -> None:
    first = host.check_output("nvidia-smi --help").splitlines()[0]
    assert re.search(r"v([0-9.]+)", first)[1] == expect.cuda_base_driver  # type: ignore[index] # None fails, too
    if "libcuda1" in expect.cuda_base_packages or "nvidia-driver-cuda" in expect.cuda_base_packages:
        said = ask(host, LOAD)
        assert said["status"] == 0
        assert said["cuda"] >= [11, 0]


def test_the_kernel_has_the_drivers_modules(
    host: Host, expect: Expect, in_container: bool, there: int, verdict: VerdictRecorder
) -> None:
    if not expect.cuda_base_kernel_packages:
        verdict.not_declared("no kernel modules are declared")
    if in_container:
        verdict.unsupported("a container has its host's kernel, and no modules of its own")
    assert host.check_output("modinfo --field version nvidia") == expect.cuda_base_driver
    assert "blacklist nouveau" in host.check_output("modprobe --showconfig")
    assert not host.file("/sys/module/nouveau").exists
    rendered_without(there, verdict, "the modules are built for this kernel")
    loaded = host.file("/sys/module/nvidia/version").content_string.strip()
    assert loaded == expect.cuda_base_driver, f"{loaded} is loaded until the node starts anew"
    if expect.cuda_base_subnet_manager:
        assert host.file("/sys/module/ib_umad").exists


def test_gpus_are_those_that_are_declared(expect: Expect, found: list[reported.Gpu]) -> None:
    told = reported.differences(
        found, expect.cuda_base_gpus, expect.cuda_base_gpu_product, expect.cuda_base_driver
    )
    assert list(told) == []


def unit_is(host: Host, unit: str, wanted: bool) -> dict[str, Any]:
    """Hold a unit's enablement against the declaration; its properties."""
    shown = host.check_output(f"systemctl show {unit} -p UnitFileState -p ActiveState -p ConditionResult")
    properties = dict(line.split("=", 1) for line in shown.splitlines())
    assert (properties["UnitFileState"] == "enabled") == wanted, f"{unit}: {properties}"
    assert properties["ActiveState"] != "failed"
    return properties


def test_the_driver_stays_loaded_between_jobs(
    host: Host, expect: Expect, there: int, verdict: VerdictRecorder
) -> None:
    unit_is(host, "nvidia-persistenced", expect.cuda_base_persistence)
    rendered_without(there, verdict, "the service is enabled as declared, and waits for a GPU")
    modes = {gpu.persistence for gpu in reported.gpus(host.check_output(reported.QUERY))}
    assert modes == {expect.cuda_base_persistence}


@pytest.mark.parametrize(
    ("variable", "unit"),
    [
        ("fabric_manager", "nvidia-fabricmanager"),
        ("dcgm", "nvidia-dcgm"),
        ("mps", "causeway-mps"),
    ],
)
def test_what_is_declared_runs(
    host: Host, expect: Expect, there: int, verdict: VerdictRecorder, variable: str, unit: str
) -> None:
    if not getattr(expect, f"cuda_base_{variable}"):
        assert host.run(f"systemctl is-active --quiet {unit}").rc != 0
        verdict.not_declared(f"{unit} is not declared")
    properties = unit_is(host, unit, True)
    rendered_without(there, verdict, f"{unit} is enabled, and waits for a GPU")
    assert properties["ActiveState"] == "active"


def test_gpus_draw_no_more_than_is_declared(
    host: Host, expect: Expect, there: int, verdict: VerdictRecorder
) -> None:
    unit_is(host, "causeway-gpu", True)
    if not expect.cuda_base_power_cap_w:
        verdict.not_declared("no power cap is declared")
    rendered_without(there, verdict, "the unit that sets it at each boot is enabled")
    limits = {gpu.power_limit_w for gpu in reported.gpus(host.check_output(reported.QUERY))}
    assert limits == {expect.cuda_base_power_cap_w}


def test_gpus_are_divided_as_declared(
    host: Host, expect: Expect, there: int, verdict: VerdictRecorder
) -> None:
    if not there and not expect.cuda_base_mig_count:
        verdict.not_declared("no parts are declared")
    rendered_without(there, verdict, "the unit that divides them at each boot is enabled")
    parts = reported.PART.findall(host.check_output("nvidia-smi --list-gpus"))
    assert parts == [expect.cuda_base_mig_profile] * (expect.cuda_base_mig_count * there)


def test_pods_take_turns_as_declared(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    file = host.file("/etc/causeway/nvidia-device-plugin.yaml")
    assert file.exists == bool(expect.cuda_base_time_slices)
    if not expect.cuda_base_time_slices:
        verdict.not_declared("no turns are declared")
    verdict.rendered("Kubernetes' device plugin is to read it, which nothing here installs")


def test_none_of_it_failed(host: Host) -> None:
    failed = host.check_output("systemctl list-units --failed --plain --no-legend --full")
    assert [unit for unit in failed.split() if "nvidia" in unit or "causeway-" in unit] == []
