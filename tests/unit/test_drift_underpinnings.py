"""What a node starts from, and where its images come from."""

from pathlib import Path

import pytest

from infra.drift.looks import Look
from roles.base.drift import underpinnings
from roles.base.drift.surroundings import SURROUNDING_FILES
from tests.unit.test_drift_repair import plan_for

FILES = underpinnings.UNDERPINNING_FILES
EVERY = [(what, start) for what, starts in FILES.items() for start in starts]


@pytest.mark.parametrize(("what", "start"), EVERY)
def test_no_file_is_listed_under_two_names(what: str, start: str) -> None:
    others = {other for name, other in EVERY if (name, other) != (what, start)}
    others.update(other for starts in SURROUNDING_FILES.values() for other in starts)
    nested = [o for o in others if f"{start}/".startswith(f"{o}/") or f"{o}/".startswith(f"{start}/")]
    assert nested == []


def test_files_that_nobody_brought_are_listed_and_what_is_made_anew_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("policy.json", "own.conf", "shipped.conf", "nvidia.yaml", "calico-kubeconfig"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(underpinnings, "UNDERPINNING_FILES", {"first": (), "images": (str(tmp_path),)})
    monkeypatch.setattr(underpinnings, "MADE_ANEW", (f"{tmp_path}/nvidia.yaml",))
    monkeypatch.setattr(underpinnings, "IN_CONTAINER", str(tmp_path))
    known = "9dd4e461268c8034f5c8564e155c67a6"  # md5 of x, as dpkg keeps it
    monkeypatch.setattr(
        Look, "dpkg", lambda _: f"\n\nConffiles:\n {tmp_path}/shipped.conf {known}\n".encode()
    )
    node = Look("5a17", "seal", [], {"file": [f"{tmp_path}/own.conf"]})
    found = underpinnings.look_at_underpinnings(node, "all", {})
    assert [line.split()[0] for line in found["images"]] == [f"{tmp_path}/policy.json"]
    assert found["first"] == []


def test_what_the_kernel_was_told_is_compared_but_for_which_one_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cmdline"
    file.write_text("BOOT_IMAGE=/vmlinuz-6.1 root=UUID=1 ro quiet initrd=/i\n")
    monkeypatch.setattr(underpinnings, "KERNEL_LINE", str(file))
    monkeypatch.setattr(underpinnings, "IN_CONTAINER", "/nowhere")
    node, start = Look("5a17", "scan", [], {}), "kernel started with "
    before = underpinnings.kernel_line(node)
    assert before == [f"{start}ro", f"{start}quiet"]
    file.write_text("BOOT_IMAGE=/vmlinuz-6.12 root=PARTUUID=2 ro quiet panic=-1\n")
    assert underpinnings.kernel_line(node) == before
    file.write_text("root=UUID=1 ro quiet init=/bin/sh iommu=pt hugepages=4\n")
    told = [f"{start}{word}" for word in ("init=/bin/sh", "iommu=pt", "hugepages=4")]
    assert underpinnings.kernel_line(node) == [*before, *told]
    governed = Look("5a17", "scan", [], {"file": ["/etc/default/grub.d/90-causeway-gpu.cfg"]})
    assert underpinnings.kernel_line(governed) == [*before, told[0]], "a role asked for the others"
    file.write_text("root=/dev/vda\n")
    assert underpinnings.kernel_line(node) == []


def test_added_files_are_moved_away_and_what_the_kernel_was_told_is_named() -> None:
    found = {
        "first": ["/etc/cloud/cloud.cfg.d/99-x.cfg 1", "kernel started with init=/bin/sh"],
        "units": ["/etc/containers/systemd/x.container 1"],
        "images": ["/etc/containers/policy.json 2"],
    }
    plan = plan_for("underpinnings", "all", {what: [] for what in found}, found)
    assert plan.obstacles.added == [lines[0].split()[0] for lines in found.values()]
    assert plan.obstacles.undone == []
    assert [command["argv"] for command in plan.obstacles.commands] == [["systemctl", "daemon-reload"]]
    assert "kernel started with init=/bin/sh" in plan.lines[0]


def test_a_file_that_was_there_before_is_changed_back_by_hand() -> None:
    sealed, more = ["/etc/containers/policy.json 1"], ["/etc/containers/policy.json 2"]
    plan = plan_for("underpinnings", "all", {"images": sealed}, {"images": [*sealed, *more]})
    assert plan.obstacles.added == []
