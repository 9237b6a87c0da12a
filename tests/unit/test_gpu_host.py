"""How role `cuda_base` tunes a host, on made-up machines, and how verification reads one."""

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities.gpu import rules, tuning
from infra.capabilities.gpu.handoff import variables
from infra.checks import check
from infra.declaration import ClusterSpec
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load  # it also lets Ansible find the roles' modules

host: Any = importlib.import_module("ansible.module_utils.causeway_gpu_host")
GPU, NIC, PORT, SWITCH, ELSEWHERE = (
    "0000:1b:00.0", "0000:1c:00.0", "0000:16:01.0", "0000:17:00.0", "0000:00:1c.0",
)  # fmt: skip

VFS = "sys/class/net/rail0/device/sriov_numvfs"


class Machine:
    """A machine below a folder: 8 GiB, two CPUs, a GPU and a NIC below one switch, an Intel IOMMU, GRUB."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        patch.setattr(host, "ROOT", root)
        patch.setattr(host.platform, "machine", lambda: "x86_64")
        patch.setattr(host, "run", self.run)
        patch.setattr(host, "put", self.put)
        self.virt, self.broken, self.told = "", "", list[str]()
        self.patch = patch
        pages = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
        files = {
            "proc/meminfo": "MemTotal:        8388608 kB\nHugepagesize:       2048 kB\n",
            "proc/sys/vm/nr_hugepages": "0",
            pages: "0",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda1 quiet",
            "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\n",
            "proc/sys/kernel/random/boot_id": "first",
            "etc/default/grub": "GRUB_CMDLINE_LINUX=\n",
            "usr/sbin/update-grub": "",
            "sys/kernel/iommu_groups/0/type": "DMA-FQ",
            f"acs/{PORT}": "001d",
            f"acs/{SWITCH}": "001d",
            f"acs/{ELSEWHERE}": "001d",
            "mode": "ENABLED(0)  ENABLED(0)",
        }
        for cpu in (0, 1):
            folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
            files[f"{folder}/scaling_governor"] = "schedutil"
            files[f"{folder}/scaling_available_governors"] = "performance schedutil"
            files[f"{folder}/scaling_driver"] = "acpi-cpufreq"
        self.write(files)
        above = f"sys/devices/pci0000:16/{PORT}/{SWITCH}"
        self.device(f"{above}/{GPU}", "0x10de", "0x2330", "0x030200")
        self.device(f"{above}/{NIC}", "0x15b3", "0xa2dc", "0x020000")
        self.write({f"{above}/{NIC}/sriov_totalvfs": "16", f"{above}/{NIC}/sriov_numvfs": "0"})
        for bridge in (PORT, SWITCH, ELSEWHERE):
            (root / "sys/bus/pci/devices" / bridge).mkdir()
        port = root / "sys/class/net/rail0"
        port.mkdir(parents=True)
        (port / "device").symlink_to(root / above / NIC)

    def run(self, *words: str) -> str:
        """What the tools of such a machine say and do."""
        tool, *rest = Path(words[0]).name, *words[1:]
        if tool in self.broken.split():
            raise host.RefusedError(f"{tool}: no space left")
        if tool == "systemd-detect-virt" and rest[0] == f"--{self.virt}":
            return ""
        if tool == "update-grub":
            ours = self.root / host.GRUB_FILE
            self.write({"boot": ours.read_text() if ours.exists() else ""})
            return ""
        if tool == "setpci" and (self.root / "acs" / rest[1]).exists():
            register, _, value = rest[2].partition("=")
            assert register == "ECAP_ACS+0x6.w"
            if value:
                self.told.append(rest[1])
                self.write({f"acs/{rest[1]}": value})
            return self.read(f"acs/{rest[1]}") + "\n"
        if tool == "mstconfig":
            return "" if rest == ["--version"] else self.firmware(rest)
        raise host.RefusedError(f"{tool}: exits 1")

    def put(self, path: str, text: str) -> None:
        """As the kernel takes it: functions come and go all at once (sysfs-bus-pci of its ABI)."""
        if path in self.broken.split():
            raise host.RefusedError(f"/{path}: Operation not permitted")
        if path.endswith("sriov_numvfs") and "0" not in (text, self.read(path)):
            raise host.RefusedError(f"/{path}: Device or resource busy")
        self.write({path: text})

    def firmware(self, words: list[str]) -> str:
        """mstconfig, of the card's mode now and at the next power cycle."""
        if words == ["-d", NIC, "-e", "q", "INTERNAL_CPU_OFFLOAD_ENGINE"]:
            head = "Configurations:              Default         Current         Next Boot"
            return f"{head}\n*        INTERNAL_CPU_OFFLOAD_ENGINE  ENABLED(0)  {self.read('mode')}\n"
        assert words[:4] == ["-y", "-d", NIC, "s"]
        self.told.append(NIC)
        later = {"=1": "DISABLED(1)", "=0": "ENABLED(0)"}[words[4][-2:]]
        self.write({"mode": f"{self.read('mode').split()[0]}  {later}"})
        return ""

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def device(self, path: str, vendor: str, device: str, kind: str) -> None:
        self.write({f"{path}/vendor": vendor, f"{path}/device": device, f"{path}/class": kind})
        link = self.root / "sys/bus/pci/devices" / Path(path).name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / path)

    def read(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def reboot(self, name: str = "next") -> None:
        """What does not outlive a boot is gone; GRUB's words are the kernel's."""
        words = self.root / "boot"
        line = words.read_text().split("GRUB_CMDLINE_LINUX ")[-1].strip('"\n ') if words.exists() else ""
        self.write({"proc/cmdline": f"root=/dev/vda1 {line}", "proc/sys/kernel/random/boot_id": name})
        self.write({VFS: "0"})

    def everything(self) -> dict[str, str]:
        """All files but the tools and what they keep."""
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def wanted(**more: Any) -> dict[str, Any]:
    return {**host.NOTHING, "nics": [["rail0"]], **more}


ALL = {
    **{
        "hugepages_2m": 512,
        "hugepages_1g": 1,
        "governor": "performance",
        "iommu": "passthrough",
        "acs": "off",
    },
    **{"sriov_vfs": 8, "dpu_mode": "nic"},
}


def states(**more: Any) -> dict[str, str]:
    """Setting → its state, after all of it was tried."""
    found, _ = host.bring_all(wanted(**more), dry_run=False)
    return {one.setting: one.state for one in found}


def test_what_can_be_set_now_is_and_the_rest_waits_for_a_boot(machine: Machine) -> None:
    assert states(**ALL) == {
        **dict.fromkeys(("hugepages_2m", "hugepages_1g", "governor", "acs", "sriov_vfs rail0"), "effective"),
        **dict.fromkeys(("iommu", "dpu_mode"), "rendered"),
    }
    assert machine.read(host.PAGES_2M) == "512"
    assert machine.read("sys/class/net/rail0/device/sriov_numvfs") == "8"
    assert machine.read("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor") == "performance"
    assert machine.read(host.SYSCTL_FILE).endswith("vm.nr_hugepages = 512")
    assert "intel_iommu=on iommu=pt hugepagesz=1G hugepages=1" in machine.read("boot")


def test_only_what_stands_above_gpus_and_fabric_nics_loses_its_acs(machine: Machine) -> None:
    states(acs="off")
    assert {name: machine.read(f"acs/{name}") for name in (PORT, SWITCH, ELSEWHERE)} == {
        **{PORT: "0000", SWITCH: "0000"},
        ELSEWHERE: "001d",
    }


def test_a_boot_makes_effective_what_waited_for_it(machine: Machine) -> None:
    states(**ALL)
    machine.reboot()
    machine.write({"mode": "DISABLED(1)  DISABLED(1)"})
    assert set(states(**ALL).values()) == {"effective"}
    assert host.record()["waits"] == {}


def settled(**more: Any) -> list[str]:
    """What the watch over drift is told."""
    return [one.settled for one in host.bring_all(wanted(**more), dry_run=True)[0]]


def test_pages_that_a_boot_brings_are_no_drift_and_those_that_somebody_takes_are(machine: Machine) -> None:
    declared, as_declared = {"hugepages_2m": 512}, ["hugepages_2m as declared"]
    machine.patch.setattr(host, "put", lambda path, _: machine.write({path: "300"}))
    assert states(**declared) == {"hugepages_2m": "rendered"}
    assert settled(**declared) == as_declared
    machine.write({host.PAGES_2M: "0"})
    assert settled(**declared) == [f"hugepages_2m differs: {host.PAGES_2M} is 0, not 512"]
    states(**declared)
    assert settled(**declared) == as_declared, "a run asks for them again"
    machine.reboot()
    machine.write({host.PAGES_2M: "512"})
    assert settled(**declared) == as_declared
    assert states(**declared) == {"hugepages_2m": "effective"}
    machine.write({host.PAGES_2M: "0"})
    assert settled(**declared) == [f"hugepages_2m differs: {host.PAGES_2M} is 0, not 512"]


@pytest.mark.usefixtures("machine")
def test_how_many_pages_there_are_is_said_by_the_check_alone() -> None:
    states(hugepages_2m=512)
    module = load(ROOT / "roles" / "cuda_base" / "library" / "causeway_gpu_host.py")
    host.keep(host.CONFIG_FILE, "{}")
    governs = {(thing["kind"], thing["key"]) for thing in module.governed()}
    assert governs == {
        *(("file", f"/{path}") for path in (host.CONFIG_FILE, host.SYSCTL_FILE)),
        ("check", "causeway-gpu-host settled"),
    }


def test_what_a_boot_did_not_take_is_a_failure_and_no_reason_to_boot_again(machine: Machine) -> None:
    states(iommu="passthrough")
    machine.write({"proc/sys/kernel/random/boot_id": "next"})
    (state,), _ = host.bring_all(wanted(iommu="passthrough"), dry_run=False)
    assert (state.state, state.reboot) == ("failed", False)


def test_the_second_time_nothing_changes_and_a_dry_run_says_the_same(machine: Machine) -> None:
    states(**ALL)
    before, told = machine.everything(), len(machine.told)
    for dry_run in (False, True):
        found, changes = host.bring_all(wanted(**ALL), dry_run=dry_run)
        assert ([one.setting for one in found if one.changed], changes) == ([], [])
        assert {one.settled.rpartition(" as ")[2] for one in found} == {"declared"}
    assert (machine.everything(), len(machine.told)) == (before, told)


def test_a_dry_run_changes_nothing_and_says_what_differs(machine: Machine) -> None:
    before = machine.everything()
    found, changes = host.bring_all(wanted(**ALL), dry_run=True)
    assert {one.state for one in found} == {"differs"}
    assert changes == [f"/{host.SYSCTL_FILE}", f"/{host.GRUB_FILE}"]
    assert machine.everything() == before


OTHER = {"hugepages_2m": 256, "hugepages_1g": 2, "iommu": "on", "sriov_vfs": 4, "dpu_mode": "dpu"}
SOME = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([value, OTHER.get(name, value)]) for name, value in ALL.items()}
)


@settings(max_examples=20, deadline=None)  # each makes a machine of files
@given(first=SOME, second=SOME)
def test_what_is_declared_no_more_is_as_before(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Whatever was declared in between: in the end the machine is as it was, and in between as declared."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        machine = Machine(Path(folder), patch)
        before = machine.everything()
        states(**first)
        machine.reboot()
        assert {name.split()[0] for name in states(**second)} == second.keys()
        for name in first.keys() - second.keys():
            assert name not in str(host.record())
        assert host.main(["restore"]) == 0
        machine.write({"mode": " ".join([machine.read("mode").split()[1]] * 2).replace(" ", "  ")})
        after = {path: text.strip() for path, text in machine.everything().items()}
        for path in ("boot", "proc/cmdline", "proc/sys/kernel/random/boot_id"):
            after.pop(path, None), before.pop(path, None)
        assert after == {path: text.strip() for path, text in before.items()}


GOVERNORS = [f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor" for cpu in (0, 1)]
REFUSES = {
    **{"setpci": "acs", "mstconfig": "dpu_mode", VFS: "sriov_vfs rail0", host.PAGES_2M: "hugepages_2m"},
    **{host.PAGES_1G: "hugepages_1g", GOVERNORS[0]: "governor", GOVERNORS[1]: "governor"},
}


@settings(max_examples=20, deadline=None)
@given(broken=st.sets(st.sampled_from(sorted(REFUSES)), min_size=1), leaving=st.booleans())
def test_what_cannot_be_given_back_holds_up_no_other(broken: set[str], leaving: bool) -> None:
    """Whatever refuses: the rest goes back, the record keeps the refused alone, and they go once they can."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        machine = Machine(Path(folder), patch)
        states(**ALL)
        machine.broken = " ".join(broken)
        found, _ = host.bring_all(wanted(), dry_run=False, leaving=leaving)
        waits = set() if leaving else {"sriov_vfs rail0"}
        failed = {REFUSES[one] for one in broken} - waits
        assert {one.setting for one in found if one.state == "failed"} == failed
        assert all(one.reason.startswith("not given back: ") for one in found if one.state == "failed")
        assert host.record()["before"].keys() == failed | waits
        if "governor" in failed:
            assert host.record()["before"]["governor"].keys() == broken & set(GOVERNORS)
        machine.broken = ""
        assert host.main(["restore"]) == 0
        assert host.record()["before"] == {}
        assert {machine.read(f"acs/{SWITCH}"), machine.read(f"acs/{PORT}")} == {"001d"}
        assert [machine.read(one) for one in GOVERNORS] == ["schedutil", "schedutil"]
        assert [machine.read(one) for one in (host.PAGES_2M, host.PAGES_1G, VFS)] == ["0", "0", "0"]


def test_what_is_declared_is_applied_where_something_else_cannot_be_given_back(machine: Machine) -> None:
    states(acs="off")
    machine.broken = "setpci"
    assert states(governor="performance") == {"acs": "failed", "governor": "effective"}


def test_a_port_that_does_not_get_its_functions_back_is_tried_again(machine: Machine) -> None:
    machine.write({VFS: "4"})
    states(sriov_vfs=8)
    machine.reboot()
    machine.broken = VFS
    (state,), _ = host.bring_all(wanted(), dry_run=False)
    assert (state.state, "not given back: " in state.reason, state.declared) == ("failed", True, False)
    machine.broken = ""
    assert (states(), machine.read(VFS)) == ({}, "4")


def test_a_role_that_leaves_is_told_what_stays(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    states(acs="off", governor="performance", iommu="passthrough")
    machine.broken = "setpci update-grub"
    assert host.main(["restore"]) == host.STAYS
    said = [line for line in capsys.readouterr().out.splitlines() if " failed: " in line]
    assert said == [
        "kernel parameters failed: not given back: update-grub: no space left",
        "acs failed: not given back: setpci: no space left, and 1 more places",
    ]
    assert machine.read(GOVERNORS[0]) == "schedutil"


def test_functions_that_are_declared_no_more_wait_for_the_boot_as_another_number_does(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    states(sriov_vfs=8)
    for changed in (True, False):
        (state,), changes = host.bring_all(wanted(), dry_run=False)
        assert (str(state).partition(":")[0], state.reboot) == ("sriov_vfs rail0 rendered", True)
        assert (state.changed, changes, machine.read(VFS)) == (changed, [], "8")
    (machine.root / "etc/causeway").mkdir(parents=True)
    machine.write({host.CONFIG_FILE: host.json.dumps(wanted())})
    assert host.main(["settled"]) == 0
    assert capsys.readouterr().out == ""
    machine.reboot()
    assert host.bring_all(wanted(), dry_run=False) == ([], ["sriov_vfs rail0"])
    assert not (machine.root / host.RECORD).exists()


def test_functions_that_wait_stay_if_declared_again_and_go_with_the_role(machine: Machine) -> None:
    states(sriov_vfs=8)
    assert states() == {"sriov_vfs rail0": "rendered"}
    assert states(sriov_vfs=8) == {"sriov_vfs rail0": "effective"}
    assert states() == {"sriov_vfs rail0": "rendered"}
    assert host.main(["restore"]) == 0
    assert machine.read(VFS) == "0"


def test_in_a_container_nothing_is_touched(machine: Machine) -> None:
    machine.virt = "container"
    before = machine.everything()
    assert set(states(**ALL).values()) == {"unsupported"}
    assert machine.everything() == before


def test_more_pages_than_there_is_memory_are_refused_before_anything_changes(machine: Machine) -> None:
    before = machine.everything()
    with pytest.raises(host.RefusedError, match=r"8.0 GiB, and the node has 8.0 GiB"):
        states(hugepages_2m=4096, governor="performance")
    assert machine.everything() == before


@pytest.mark.parametrize(
    ("declared", "without", "why"),
    [
        ({"governor": "ondemand"}, {}, "acpi-cpufreq has performance, schedutil only"),
        (
            {"hugepages_2m": 2},
            {"proc/meminfo": "MemTotal: 8388608 kB\nHugepagesize: 524288 kB\n"},
            "of 524288 kB",
        ),
        ({"iommu": "on"}, {"proc/cpuinfo": "vendor_id : CentaurHauls\n"}, "not known"),
        ({"sriov_vfs": 17}, {}, "16 at most"),
    ],
)
def test_what_cannot_be_had_is_said_with_the_reason(
    machine: Machine, declared: dict[str, Any], without: dict[str, str], why: str
) -> None:
    machine.write(without)
    (state,), _ = host.bring_all(wanted(**declared), dry_run=False)
    assert state.state == "unsupported"
    assert why in state.reason
    assert not (machine.root / host.RECORD).exists()


def test_a_virtual_machine_keeps_acs(machine: Machine) -> None:
    machine.virt = "vm"
    assert states(acs="off") == {"acs": "unsupported"}
    assert machine.told == []


def test_without_grub_the_parameters_are_told_and_nothing_is_written(machine: Machine) -> None:
    (machine.root / "usr/sbin/update-grub").unlink()
    (state,), _ = host.bring_all(wanted(iommu="passthrough"), dry_run=False)
    assert (state.state, "intel_iommu=on iommu=pt" in state.reason) == ("unsupported", True)
    assert not (machine.root / host.GRUB_FILE).exists()


def test_grub_that_fails_is_tried_again(machine: Machine) -> None:
    machine.broken = "update-grub"
    with pytest.raises(host.RefusedError, match="no space left"):
        states(iommu="passthrough")
    machine.broken = ""
    assert states(iommu="passthrough") == {"iommu": "rendered"}
    assert "iommu=pt" in machine.read("boot")


def test_virtual_functions_that_are_there_are_not_taken_away(machine: Machine) -> None:
    machine.write({"sys/class/net/rail0/device/sriov_numvfs": "4"})
    assert states(sriov_vfs=8) == {"sriov_vfs rail0": "rendered"}
    assert machine.read("sys/class/net/rail0/device/sriov_numvfs") == "4"
    machine.write({"sys/class/net/rail0/device/sriov_numvfs": "0", "proc/sys/kernel/random/boot_id": "next"})
    assert states(sriov_vfs=8) == {"sriov_vfs rail0": "effective"}


@pytest.mark.usefixtures("machine")
def test_a_port_that_is_not_there_is_a_failure() -> None:
    assert states(sriov_vfs=8, nics=[["rail7"]]) == {"sriov_vfs rail7": "failed"}


@pytest.mark.parametrize(
    ("maker", "wanted_words"),
    [
        (
            "GenuineIntel",
            {
                "passthrough": "intel_iommu=on iommu=pt",
                "on": "intel_iommu=on iommu=nopt",
                "off": "intel_iommu=off",
            },
        ),
        ("AuthenticAMD", {"passthrough": "iommu=pt", "on": "iommu=nopt", "off": "amd_iommu=off"}),
    ],
)
def test_each_processor_has_its_own_words(machine: Machine, maker: str, wanted_words: dict[str, str]) -> None:
    machine.write({"proc/cpuinfo": f"vendor_id\t: {maker}\n"})
    assert {word: " ".join(host.iommu_words(word)) for word in wanted_words} == wanted_words
    machine.patch.setattr(host.platform, "machine", lambda: "aarch64")
    assert host.iommu_words("passthrough") == ["iommu.passthrough=1"]
    with pytest.raises(host.UnsupportedError):
        host.iommu_words("off")


def test_an_iommu_that_the_firmware_has_off_is_unsupported(machine: Machine) -> None:
    (machine.root / "sys/kernel/iommu_groups/0/type").unlink()
    (machine.root / "sys/kernel/iommu_groups/0").rmdir()
    assert states(iommu="passthrough") == {"iommu": "rendered"}
    machine.reboot()
    assert states(iommu="passthrough") == {"iommu": "unsupported"}


def test_a_tool_that_fails_is_quoted_and_one_that_is_missing_is_named() -> None:
    with pytest.raises(host.RefusedError, match="sh: no such thing"):
        host.run("sh", "-c", "echo no such thing >&2; exit 3")
    with pytest.raises(host.RefusedError, match="no-such-tool is not installed"):
        host.run("no-such-tool")
    assert host.run("echo", "said") == "said\n"


# What verification reads

LSPCI = """\
16:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
	Capabilities: [110 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
		ACSCtl:	SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

0001:1b:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
	Capabilities: [60] Express (v2) Endpoint, IntMsgNum 0
"""


def test_acs_is_read_of_lspci() -> None:
    assert tuning.acs(LSPCI) == {
        "0000:16:01.0": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"],
        "0000:17:00.0": [],
    }
    assert tuning.acs("") == {}


@pytest.mark.parametrize(
    ("line", "groups", "works"),
    [
        ("quiet", [], "off"),
        ("iommu=pt", [], "off"),
        ("quiet", ["identity", "identity"], "passthrough"),
        ("iommu=pt", ["DMA-FQ", "DMA"], "on"),
        ("quiet", ["identity", "DMA"], ""),
        ("intel_iommu=on iommu=pt", ["", ""], "passthrough"),
        ("intel_iommu=on", [""], "on"),
    ],
)
def test_how_the_iommu_works_is_read_of_its_groups(line: str, groups: list[str], works: str) -> None:
    assert tuning.iommu(line, groups) == works


def test_a_gpu_far_from_its_nic_is_named() -> None:
    gpus = {f"0000:{number:02x}:00.0": number // 4 for number in range(8)}
    nics = [[f"rail{number}"] for number in range(8)]
    near = {f"rail{number}": number // 4 for number in range(8)}
    assert [pair for pair in tuning.pairs(gpus, nics, near) if pair.gpu_node != pair.port_node] == []
    far = [
        str(pair)
        for pair in tuning.pairs(gpus, nics, {**near, "rail5": 0})
        if pair.port_node != pair.gpu_node
    ]
    assert far == ["GPU 0000:05:00.0 is at NUMA node 1, and its NIC rail5 at 0"]
    assert [pair.port for pair in tuning.pairs(gpus, nics, {}) if not pair.known] == list(near)


@given(gpus=st.integers(0, 16), nics=st.integers(0, 16), planes=st.integers(1, 2))
def test_every_gpu_and_every_port_is_in_a_pair(gpus: int, nics: int, planes: int) -> None:
    addresses = {f"gpu{number}": 0 for number in range(gpus)}
    names = [[f"rail{number}p{plane}" for plane in range(planes)] for number in range(nics)]
    found = list(tuning.pairs(addresses, names, {}))
    assert {pair.gpu for pair in found} == (set(addresses) if nics else set())
    assert {pair.port for pair in found} == ({port for nic in names for port in nic} if gpus else set())


# What is declared


def declared(tune: dict[str, Any], memory_gib: float | None = None, **more: Any) -> ClusterSpec:
    pool = {
        **{"name": "gpu", "role": "gpu", "count": 2, "gpus": 8, "gpu_model": "h100-sxm"},
        "gpu_stack": {"driver": "580.95.05", "cuda": "13.0", "host": tune},
        **more,
    }
    region = {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": [pool]}
    spec: dict[str, Any] = {"name": "pacific", "regions": [region]}
    if memory_gib:
        spec["acceptance"] = {"pools": [{"region": "tokyo", "pool": "gpu", "memory_gib": memory_gib}]}
    return ClusterSpec.model_validate(spec)


def told(spec: ClusterSpec) -> dict[str, Any]:
    (found,) = variables(build_contract(spec, make_plan(spec), "lab"))["cuda_base"].values()
    return {name.removeprefix("cuda_base_"): value for name, value in found.items()}


def test_a_stack_that_says_nothing_of_its_hosts_changes_nothing() -> None:
    assert host.NOTHING.items() <= told(declared({})).items()


def test_hosts_are_told_what_is_declared_with_the_ports_by_nic() -> None:
    tune = {**ALL, "sriov_vfs": 4}
    found = told(declared(tune, nics=2, nic_gbps=400, nic_names=["eth1", "eth2"]))
    assert {**tune, "nics": [["eth1"], ["eth2"]]}.items() <= found.items()


def test_yaml_readers_that_take_off_for_a_truth_value_do_no_harm() -> None:
    found = told(declared({"acs": False, "iommu": True}))
    assert (found["acs"], found["iommu"]) == ("off", "on")


@given(pages_2m=st.integers(1, 1 << 20), pages_1g=st.integers(1, 4096), memory=st.integers(1, 4096))
def test_pages_fit_where_the_node_would_take_them(pages_2m: int, pages_1g: int, memory: int) -> None:
    """The check and the node decide alike."""
    spec = declared({"hugepages_2m": pages_2m, "hugepages_1g": pages_1g}, memory)
    refused = any(problem.rule == rules.HugepagesFit.id for problem in check(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "memory_kib", lambda: memory << 20)
        assert bool(host.too_many_pages(wanted(hugepages_2m=pages_2m, hugepages_1g=pages_1g))) == refused
