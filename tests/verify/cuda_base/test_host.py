"""What GPUs need of their host, as kernel and tools show it; a container has its host's, and sets nothing."""

import json
from typing import Any

import pytest
from testinfra.host import Host

from infra.capabilities.gpu import tuning
from tests.verify.support import Expect, VerdictRecorder, ask

pytestmark = pytest.mark.deadline(60)

PROGRAM = "/usr/local/sbin/causeway-gpu-host"
LOOK = """
import glob, json, os, sys
net = "/sys/class/net/"
def text(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
def each(pattern):
    return {path: text(path) for path in sorted(glob.glob(pattern))}
pci = "/sys/bus/pci/devices/"
gpus = [name for name in sorted(os.listdir(pci)) if text(pci + name + "/vendor") == "0x10de"
        and text(pci + name + "/class").startswith("0x03")] if os.path.isdir(pci) else []
ends = [pci + gpu for gpu in gpus] + [net + port + "/device" for port in sys.argv[1:]]
print(json.dumps({
    "hugepages_2m": text("/proc/sys/vm/nr_hugepages"),
    "hugepages_1g": text("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
    "governor": each("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"),
    "command_line": text("/proc/cmdline"),
    "groups": {name: text(name + "/type") for name in glob.glob("/sys/kernel/iommu_groups/*")},
    "gpus": {name: int(text(pci + name + "/numa_node") or -1) for name in gpus},
    "ports": {port: int(text(net + port + "/device/numa_node") or -1) for port in sys.argv[1:]},
    "functions": {port: text(net + port + "/device/sriov_numvfs") for port in sys.argv[1:]},
    "above": sorted({part for name in ends
                     for part in os.path.realpath(name).split("/")[:-1] if part.count(":") == 2}),
}))
"""
"""What the kernel shows, of the ports that are named, too; the role's own program is not asked."""


@pytest.fixture(name="seen", scope="module")
def _seen(host: Host, expect: Expect) -> dict[str, Any]:
    found: dict[str, Any] = ask(host, LOOK, *(port for nic in expect.cuda_base_nics for port in nic))
    return found


@pytest.fixture(name="states", scope="module")
def _states(host: Host, expect: Expect) -> dict[str, tuple[str, str]]:
    """Setting → state and reason, as the node's program has them of what is declared."""
    told = json.loads(host.file("/etc/causeway/gpu-host.json").content_string)
    assert told == {key: getattr(expect, f"cuda_base_{key}") for key in told}
    lines = host.check_output(f"{PROGRAM} check").splitlines()
    named = {line.split(":")[0].rpartition(" ")[0]: line for line in lines}
    return {
        name: (line.split(":")[0].rpartition(" ")[2], line.partition(": ")[2]) for name, line in named.items()
    }


def settle(states: dict[str, tuple[str, str]], name: str, declared: object, verdict: VerdictRecorder) -> None:
    """End a check of what is not declared, cannot be had, or waits for a boot; else it has to be in force."""
    if declared in (0, "", "keep"):
        assert name not in states
        verdict.not_declared(f"no {name} is declared")
    state, reason = states[name]
    if state == "unsupported":
        verdict.unsupported(reason)
    if state == "rendered":
        verdict.rendered(reason)
    assert state == "effective", reason


@pytest.mark.parametrize("size", ["hugepages_2m", "hugepages_1g"])
def test_huge_pages(
    seen: dict[str, Any],
    states: dict[str, tuple[str, str]],
    expect: Expect,
    verdict: VerdictRecorder,
    size: str,
) -> None:
    wanted = getattr(expect, f"cuda_base_{size}")
    settle(states, size, wanted, verdict)
    assert seen[size] == str(wanted)


def test_every_cpu_has_the_declared_governor(
    seen: dict[str, Any], states: dict[str, tuple[str, str]], expect: Expect, verdict: VerdictRecorder
) -> None:
    settle(states, "governor", expect.cuda_base_governor, verdict)
    assert set(seen["governor"].values()) == {expect.cuda_base_governor}


def test_the_iommu_works_as_declared(
    seen: dict[str, Any], states: dict[str, tuple[str, str]], expect: Expect, verdict: VerdictRecorder
) -> None:
    settle(states, "iommu", expect.cuda_base_iommu, verdict)
    assert tuning.iommu(seen["command_line"], list(seen["groups"].values())) == expect.cuda_base_iommu


def test_gpus_and_nics_reach_each_other_directly(
    host: Host,
    seen: dict[str, Any],
    states: dict[str, tuple[str, str]],
    expect: Expect,
    verdict: VerdictRecorder,
) -> None:
    settle(states, "acs", expect.cuda_base_acs, verdict)
    found = tuning.acs(host.check_output("lspci -D -vvv"))
    assert {one: does for one, does in found.items() if one in seen["above"] and does} == {}


def test_ports_have_the_declared_virtual_functions(
    seen: dict[str, Any], states: dict[str, tuple[str, str]], expect: Expect, verdict: VerdictRecorder
) -> None:
    ports = [port for nic in expect.cuda_base_nics for port in nic]
    wrong = {port: states[f"sriov_vfs {port}"] for port in ports if expect.cuda_base_sriov_vfs}
    assert [port for port, (state, _) in wrong.items() if state in ("differs", "failed")] == []
    if not expect.cuda_base_sriov_vfs:
        verdict.not_declared("no virtual functions are declared")
    for port, (state, _) in wrong.items():
        assert state != "effective" or seen["functions"][port] == str(expect.cuda_base_sriov_vfs), port
    for end in ("unsupported", "rendered"):
        said = "; ".join(f"{port}: {reason}" for port, (state, reason) in wrong.items() if state == end)
        if said:
            getattr(verdict, end)(said)


def test_cards_are_in_the_declared_mode(
    states: dict[str, tuple[str, str]], expect: Expect, verdict: VerdictRecorder
) -> None:
    # Only the firmware's own tool knows, which the program asks.
    settle(states, "dpu_mode", expect.cuda_base_dpu_mode, verdict)


def test_each_gpu_has_its_nic_at_its_own_numa_node(
    seen: dict[str, Any], expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.cuda_base_nics:
        verdict.not_declared("no fabric NICs")
    if not seen["gpus"]:
        verdict.unsupported("no GPU here")
    found = list(tuning.pairs(seen["gpus"], expect.cuda_base_nics, seen["ports"]))
    assert [str(pair) for pair in found if pair.known and pair.gpu_node != pair.port_node] == []
    unknown = [f"{pair.gpu} and {pair.port}" for pair in found if not pair.known]
    if unknown:
        verdict.unsupported(f"the firmware names no NUMA node of {', '.join(unknown)}")


def test_it_is_tuned_again_at_each_boot(host: Host) -> None:
    shown = host.check_output("systemctl show causeway-gpu-host -p UnitFileState -p ActiveState")
    properties = dict(line.split("=", 1) for line in shown.splitlines())
    assert properties["UnitFileState"] == "enabled"
    assert properties["ActiveState"] != "failed"


def test_nothing_of_a_containers_host_is_written(
    host: Host, in_container: bool, verdict: VerdictRecorder
) -> None:
    if not in_container:
        verdict.not_declared("this node has a kernel of its own")
    for path in ("/etc/sysctl.d/90-causeway-gpu.conf", "/etc/default/grub.d/90-causeway-gpu.cfg"):
        assert not host.file(path).exists, f"{path} would be its host's setting"
    assert not host.file("/var/lib/causeway/gpu-host.json").exists
