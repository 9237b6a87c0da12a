"""The ways to priorities and markings that no machine of ours has, against stand-ins for the tools.

The stand-ins print what the real tools print (iproute2's dcb_*.c, mlnx_qos of MLNX_OFED), keep what they are
told in a file, and count how often they were told something.
"""

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CODE = Path(__file__).resolve().parents[2] / "roles/roce/module_utils/causeway_roce_host.py"
CONFIG = {
    "interfaces": [{"name": "rail0"}],
    **{"management_address": "192.0.2.1", "mtu_bytes": 9000, "soft_device": False, "bandwidth_pct": 50},
    **{"dscp": 26, "priority": 3, "cnp_dscp": 48, "cnp_priority": 6},
}
TOOL = """#!{python} -IS
import json, sys
words = sys.argv[1:]
with open("{state}") as file:
    state = json.load(file)

def pairs(words):
    return [tuple(word.split(":")) for word in words]

def dcb(table, verb, words):
    if verb == "show" and table in state:
        return json.dumps(state[table])
    if table not in state:
        sys.exit("Attribute read: Operation not supported")
    state["calls"] += 1
    if table == "pfc":
        state["pfc"]["prio_pfc"] = [value == "on" for _, value in pairs(words[1:])]
    if table == "app" and verb != "replace":
        named = [[int(code), int(priority)] for code, priority in pairs(words[1:])]
        rest = [one for one in state["app"]["dscp_prio"] if one not in named]
        state["app"]["dscp_prio"] = sorted(rest + (named if verb == "add" else []))
    elif table == "app":
        new = [[int(code), int(priority)] for code, priority in pairs(words[1:])]
        old = [one for one in state["app"]["dscp_prio"] if one[0] not in [code for code, _ in new]]
        state["app"]["dscp_prio"] = sorted(old + new)
    if table == "apptrust":
        state["apptrust"]["order"] = words[1:]
    if table == "ets":
        while words:
            name = words.pop(0).replace("-", "_")
            while words and ":" in words[0]:
                index, value = words.pop(0).split(":")
                state["ets"][name][int(index)] = int(value) if value.isdigit() else value

def mlnx_qos(words):
    qos = state["mlnx"]
    if "--help" in words:
        return ""
    state["calls"] += len(words) > 2
    if "--pfc" in words:
        qos["pfc"] = words[-1].split(",")
    if "--trust" in words:
        qos["trust"] = words[-1]
    if "--dscp2prio" in words:
        verb, code, priority = words[-1].split(",")
        qos["map"] = {{p: [c for c in codes if c != int(code)] for p, codes in qos["map"].items()}}
        if verb == "set":
            qos["map"].setdefault(priority, []).append(int(code))
    codes = {{p: "".join("%02d," % code for code in codes) for p, codes in qos["map"].items()}}
    rows = ["\\tprio:" + p + " dscp:" + text for p, text in codes.items()]
    return "\\n".join([
        "DCBX mode: OS controlled", "Priority trust state: " + qos["trust"], "dscp2prio mapping:", *rows,
        "PFC configuration:", "\\tpriority    0   1   2   3   4   5   6   7",
        "\\tenabled     " + "   ".join(qos["pfc"]) + "   ", "\\tbuffer      0   0   0   1   0   0   0   0"])

if sys.argv[0].endswith("/dcb"):
    _, table, verb, _, device, *rest = words
    answer = dcb(table, verb, rest)
else:
    answer = mlnx_qos(words)
with open("{state}", "w") as file:
    json.dump(state, file)
print(answer or "")
"""


@pytest.fixture
def roce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, on a machine with the interface rail0 and no other tool than those of `install`."""
    spec = importlib.util.spec_from_file_location("causeway_roce_host", CODE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "causeway_roce_host", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SYS_NET", tmp_path / "net")
    monkeypatch.setattr(module, "BEFORE", tmp_path / "before")
    monkeypatch.setattr(module, "CONFIGFS_RDMA", tmp_path / "configfs")
    monkeypatch.setattr(module, "DEBUGFS_MLX5", tmp_path / "debugfs")
    (tmp_path / "net/rail0").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return module


def install(folder: Path, *tools: str, **tables: Any) -> None:
    (folder / "state").write_text(json.dumps({"calls": 0, **tables}))
    for tool in tools:
        path = folder / "bin" / tool
        path.write_text(TOOL.format(python=sys.executable, state=folder / "state"))
        path.chmod(0o755)


def without_processes(roce: ModuleType, folder: Path) -> None:
    """Have a tool's stand-in run here: a Python for each of some hundred questions takes most of the time."""

    def run(command: Sequence[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        tool, *words = command
        code, said = compile((folder / "bin" / tool).read_text(), tool, "exec"), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setattr(sys, "argv", [str(folder / "bin" / tool), *words])
            try:
                exec(code, {})  # noqa: S102 - the text above
            except SystemExit as refused:
                return subprocess.CompletedProcess(command, 1, "", f"{refused}\n")
        return subprocess.CompletedProcess(command, 0, said.getvalue(), "")

    vars(roce)["subprocess"] = SimpleNamespace(run=run)


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state").read_text())
    return found


def device(folder: Path, driver: str) -> None:
    """rail0 is a PCI device of this driver."""
    card = folder / "pci" / "0000:41:00.0"
    (folder / "drivers" / driver).mkdir(parents=True)
    card.mkdir(parents=True)
    (card / "driver").symlink_to(folder / "drivers" / driver)
    (folder / "net/rail0/device").symlink_to(card)


def dcb_tables() -> dict[str, Any]:
    """A device as it comes: nothing lossless, everything in class 0, one entry that contradicts ours."""
    return {
        "pfc": {"pfc_cap": 8, "prio_pfc": [False] * 8},
        "app": {"dscp_prio": [[26, 0], [26, 2], [10, 1]]},
        "ets": {"prio_tc": [0] * 8, "tc_tsa": ["strict"] * 8, "tc_bw": [0] * 8},
    }


def bring(roce: ModuleType, dry_run: bool = False) -> dict[str, tuple[str, bool]]:
    """Setting → its state and whether it changed."""
    settings = roce.priority_settings("rail0", CONFIG)
    states = [roce.bring("rail0", setting, {}, CONFIG, dry_run=dry_run) for setting in settings]
    return {one.setting: (one.state, one.changed) for one in states}


def restore(roce: ModuleType) -> dict[str, str]:
    """Setting → how it was given back."""
    return {one.setting: one.state for one in roce.restore_interface("rail0", CONFIG)}


def every(word: str, changed: bool) -> dict[str, tuple[str, bool]]:
    return dict.fromkeys(("dscp", "trust", "pfc", "ets"), (word, changed))


def test_dcb_sets_everything_once(roce: ModuleType, tmp_path: Path) -> None:
    install(tmp_path, "dcb", **dcb_tables(), apptrust={"order": ["pcp"]})
    assert bring(roce, dry_run=True) == every("differs", changed=True)
    assert state(tmp_path)["calls"] == 0
    assert bring(roce) == every("effective", changed=True)
    told = state(tmp_path)
    assert told["pfc"]["prio_pfc"] == [priority == 3 for priority in range(8)]
    assert told["app"]["dscp_prio"] == [[10, 1], [26, 3], [48, 6]]
    assert told["apptrust"]["order"] == ["dscp"]
    assert told["ets"]["prio_tc"] == [0, 0, 0, 3, 0, 0, 6, 0]
    assert told["ets"]["tc_bw"] == [50, 0, 0, 50, 0, 0, 0, 0]
    assert told["ets"]["tc_tsa"] == ["ets", "strict", "strict", "ets"] + ["strict"] * 4
    assert bring(roce) == every("effective", changed=False)
    assert state(tmp_path)["calls"] == told["calls"]


def test_trust_follows_from_the_map_where_a_driver_has_no_order(roce: ModuleType, tmp_path: Path) -> None:
    install(tmp_path, "dcb", **dcb_tables())
    assert bring(roce)["trust"] == ("effective", False)


codes = st.lists(st.tuples(st.sampled_from((10, 26, 48)), st.integers(0, 7)), unique=True, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(
    entries=codes, lossless=st.lists(st.booleans(), min_size=8, max_size=8), order=st.none() | st.just("pcp")
)
def test_what_a_device_had_comes_back(
    roce: ModuleType, tmp_path: Path, entries: list[tuple[int, int]], lossless: list[bool], order: str | None
) -> None:
    tables = dcb_tables()
    tables["app"]["dscp_prio"] = sorted(map(list, entries))
    tables["pfc"]["prio_pfc"] = lossless
    if order:
        tables["apptrust"] = {"order": [order]}
    install(tmp_path, "dcb", **tables)
    without_processes(roce, tmp_path)
    bring(roce)
    bring(roce)  # what is kept is what was there before the first time
    assert state(tmp_path)["app"] != tables["app"] or entries
    assert set(restore(roce).values()) <= {"restored"}
    assert {table: state(tmp_path)[table] for table in tables} == tables
    assert not (tmp_path / "before/rail0").exists()
    assert restore(roce) == {}


def test_what_a_card_with_mlnx_qos_had_comes_back(roce: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "mlx5_core")
    mlnx = {"trust": "pcp", "pfc": ["0"] * 8, "map": {"0": [0, 26], "1": [10]}}
    install(tmp_path, "dcb", "mlnx_qos", ets=dcb_tables()["ets"], mlnx=mlnx)
    bring(roce)
    assert state(tmp_path)["mlnx"] != mlnx
    assert restore(roce) == dict.fromkeys(("ets", "pfc", "trust", "dscp"), "restored")
    found = state(tmp_path)["mlnx"]
    assert (found["trust"], found["pfc"]) == (mlnx["trust"], mlnx["pfc"])
    assert {priority: sorted(held) for priority, held in found["map"].items() if held} == mlnx["map"]


def test_what_is_refused_is_named_and_kept(roce: ModuleType, tmp_path: Path) -> None:
    install(tmp_path, "dcb", **dcb_tables())
    bring(roce)
    install(tmp_path, "dcb", **{table: rows for table, rows in state(tmp_path).items() if table != "ets"})
    assert restore(roce) == {"ets": "failed", **dict.fromkeys(("pfc", "dscp"), "restored")}
    assert set(roce.kept_of("rail0")["before"]) == {"ets"}


def test_a_device_without_dcb_says_so_in_its_tools_words(roce: ModuleType, tmp_path: Path) -> None:
    install(tmp_path, "dcb")
    assert bring(roce) == every("unsupported", changed=False)
    lack = roce.bring("rail0", next(roce.priority_settings("rail0", CONFIG)), {}, CONFIG, dry_run=False)
    assert str(lack) == "rail0 dscp unsupported: dcb: Attribute read: Operation not supported"


def test_a_missing_tool_is_named(roce: ModuleType) -> None:
    lack = roce.bring("rail0", next(roce.priority_settings("rail0", CONFIG)), {}, CONFIG, dry_run=False)
    assert str(lack) == "rail0 dscp unsupported: dcb is not installed"


def test_mlnx_qos_is_taken_where_card_and_tool_are_there(roce: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "mlx5_core")
    qos = {"pfc": ["0"] * 8, "trust": "pcp", "map": {"0": [48], "3": [24, 26], "6": [49]}}
    install(tmp_path, "dcb", "mlnx_qos", ets=dcb_tables()["ets"], mlnx=qos)
    assert bring(roce) == every("effective", changed=True)
    told = state(tmp_path)["mlnx"]
    assert told == {
        "pfc": list("00010000"),
        "trust": "dscp",
        "map": {"0": [], "3": [24, 26], "6": [49, 48]},
    }
    assert bring(roce) == every("effective", changed=False)


@pytest.mark.parametrize(("driver", "tools"), [("bnxt_en", ("dcb", "mlnx_qos")), ("mlx5_core", ("dcb",))])
def test_dcb_is_taken_otherwise(
    roce: ModuleType, tmp_path: Path, driver: str, tools: tuple[str, ...]
) -> None:
    device(tmp_path, driver)
    install(tmp_path, *tools, mlnx={})
    assert type(roce.priorities_of("rail0")) is roce.Dcb


def marking(roce: ModuleType) -> Any:
    settings = {setting.name: setting for setting in roce.rdma_settings("rail0", CONFIG)}
    return roce.bring("rail0", settings["ecn"], {}, CONFIG, dry_run=False)


def test_marking_by_sysfs(roce: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "mlx5_core")
    ecn = tmp_path / "net/rail0/ecn"
    values = {"roce_np/enable/3": "0", "roce_rp/enable/3": "1", "roce_np/cnp_dscp": "0"}
    for name, value in {**values, "roce_np/cnp_802p_prio": "6"}.items():
        (ecn / name).parent.mkdir(parents=True, exist_ok=True)
        (ecn / name).write_text(f"{value}\n")
    assert marking(roce).changed
    assert (ecn / "roce_np/enable/3").read_text() == "1"
    assert (ecn / "roce_np/cnp_dscp").read_text() == "48"
    assert not marking(roce).changed


def test_marking_by_debugfs(roce: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "mlx5_core")
    files = tmp_path / "debugfs/0000:41:00.0/cc_params"
    files.mkdir(parents=True)
    for name in ("np_cnp_dscp", "np_cnp_prio"):
        (files / name).write_text("0\n")
    assert marking(roce).changed
    assert [(files / name).read_text() for name in ("np_cnp_dscp", "np_cnp_prio")] == ["48", "6"]
    assert not marking(roce).changed


def test_a_driver_without_marking_is_named(roce: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "virtio_net")
    assert str(marking(roce)) == "rail0 ecn unsupported: driver virtio_net has no settings for ECN and CNP"


def test_what_was_refused_is_no_change_to_come(roce: ModuleType) -> None:
    def refuse(_wanted: object) -> None:
        raise roce.RefusedError("ethtool: Operation not permitted")

    known: dict[str, str] = {}
    setting = roce.Setting("pause", False, lambda: True, refuse)
    assert roce.bring("rail0", setting, known, CONFIG, dry_run=True).state == "differs"
    assert roce.bring("rail0", setting, known, CONFIG, dry_run=False).state == "unsupported"
    assert str(roce.bring("rail0", setting, known, CONFIG, dry_run=True)) == (
        "rail0 pause unsupported: ethtool: Operation not permitted"
    )


def test_what_was_taken_and_is_not_so_has_failed(roce: ModuleType) -> None:
    setting = roce.Setting("pfc", 1, lambda: 0, lambda _wanted: None)
    assert str(roce.bring("rail0", setting, {}, CONFIG, dry_run=False)) == (
        "rail0 pfc failed: was taken, and yet is 0, not 1"
    )


@pytest.mark.parametrize(("priority", "shares"), [(3, {0: 30, 3: 70}), (0, {0: 100})])
def test_shares_make_a_hundred(roce: ModuleType, priority: int, shares: dict[int, int]) -> None:
    tables = roce.ets_tables({**CONFIG, "priority": priority, "bandwidth_pct": 70})
    assert {index: share for index, share in enumerate(tables["tc_bw"]) if share} == shares
