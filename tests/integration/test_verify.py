"""What counts as proof, and that silence never does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra import ROOT
from infra.errors import CausewayError
from infra.verify.expectations import Expectation, Expectations, ssh_options
from infra.verify.verdicts import Check, Verdict, VerificationResult
from infra.verify.verification import CheckProcess, _read_expectations, verify

PROVES = ("verification",)

CLOSED_PORT = 1


def check(verdict: Verdict, host: str = "n1", message: str = "") -> Check:
    return Check(host, "base", "chrony answers", verdict, message)


def inventory(folder: Path, text: str) -> Path:
    """An inventory of Ansible's own kind; the folder's configuration knows no plugin of ours."""
    (folder / "hosts.ini").write_text(text)
    return folder / "hosts.ini"


@pytest.mark.parametrize(
    ("verdicts", "failed"),
    [
        ([], True),
        ([Verdict.RENDERED, Verdict.UNSUPPORTED], True),
        ([Verdict.EFFECTIVE, Verdict.RENDERED, Verdict.UNSUPPORTED], False),
        ([Verdict.EFFECTIVE, Verdict.FAILED], True),
        ([Verdict.EFFECTIVE, Verdict.UNREACHABLE], True),
    ],
)
def test_only_effective_checks_are_proof(verdicts: list[Verdict], failed: bool) -> None:
    assert VerificationResult(tuple(map(check, verdicts))).failed is failed


def test_hosts_with_the_same_finding_share_a_line() -> None:
    found = [check(Verdict.FAILED, f"n{number}", "no answer") for number in range(1, 6)]
    other = check(Verdict.UNSUPPORTED, "n1", "not here")
    report = VerificationResult((*found, check(Verdict.EFFECTIVE), other)).report().splitlines()
    assert report == [
        "1 effective, 0 rendered, 1 unsupported, 0 left out, 5 failed, 0 unreachable",
        "unsupported n1: base: chrony answers: not here",
        "failed      n1, n2, n3 and 2 more: base: chrony answers: no answer",
    ], "what failed comes last"


def test_host_keys_are_checked_whatever_the_inventory_says() -> None:
    options = ssh_options(
        {
            "inventory_hostname": "n1",
            "ansible_host": "10.0.0.1",
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o 'UserKnownHostsFile=/a b/known'",
        }
    )
    assert options == {
        "HostName": "10.0.0.1",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": "/a b/known",
    }


def test_an_inventory_without_features_proves_nothing(tmp_path: Path) -> None:
    result = verify(inventory(tmp_path, "[feature_base]\n"))
    assert result.failed
    assert "nothing was verified" in result.report()


def test_a_silent_host_is_named_and_written_down(tmp_path: Path) -> None:
    hosts = f"[feature_base]\nn1 ansible_host=127.0.0.1 ansible_port={CLOSED_PORT}\n"
    report_file = tmp_path / "report" / "verification.json"
    result = verify(inventory(tmp_path, hosts), report_file=report_file)
    assert [(found.host, found.verdict) for found in result.checks] == [("n1", Verdict.UNREACHABLE)]
    assert "refused" in result.checks[0].message
    written = json.loads(report_file.read_text())
    assert written["counts"]["unreachable"] == 1
    assert written["checks"][0]["host"] == "n1"


def test_an_unreadable_inventory_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(CausewayError, match="cannot be read"):
        verify(inventory(tmp_path, "[feature_base\n"))


def test_a_result_of_a_part_leaves_the_rest_as_it_was_found() -> None:
    def found(host: str, role: str, verdict: Verdict = Verdict.EFFECTIVE) -> Check:
        return Check(host, role, "a check", verdict)

    before = VerificationResult(
        (found("n1", "base"), found("n1", "roce"), found("n2", "base"), found("n3", "", Verdict.UNREACHABLE))
    )
    part = VerificationResult(
        (found("n1", "roce", Verdict.FAILED), found("n2", "", Verdict.UNREACHABLE), found("n3", "base"))
    )
    assert part.over(before).checks == (found("n1", "base"), *part.checks)


EXPECTED = Expectations(
    tuple(
        Expectation(
            host=name,
            features=("base", "drift_watch"),
            variables={},
            connection="ssh",
            address="127.0.0.1",
            ssh_options={"HostName": "127.0.0.1", "Port": str(CLOSED_PORT)},
            become=False,
            stack=None,
        )
        for name in ("n1", "n2")
    ),
    {},
)


def looked_at(folder: Path, experiments: bool) -> dict[str, Verdict]:
    """What became of the checks of one role on a host that no connection leads to."""
    expected = EXPECTED.only({"n1": ["drift_watch"], "n2": []}).with_experiments(experiments)
    (folder / "ssh_config").write_text(f"Host n1\n  HostName 127.0.0.1\n  Port {CLOSED_PORT}\n")
    (folder / "expectations.json").write_text(expected.dump())
    hosts = [host for host in expected.hosts if host.features]
    process = CheckProcess(hosts, folder, 0)
    process.tell("n1")
    _, checks = process.checks()
    return {found.name: found.verdict for found in checks}


def test_an_experiment_is_left_out_before_anything_is_asked_of_the_node(tmp_path: Path) -> None:
    found = looked_at(tmp_path, experiments=False)
    assert found.pop("a difference shows and goes") is Verdict.LEFT_OUT
    assert set(found.values()) == {Verdict.FAILED}


def test_an_experiment_runs_where_it_may(tmp_path: Path) -> None:
    assert set(looked_at(tmp_path, experiments=True).values()) == {Verdict.FAILED}


SAID = {"causeway_for_trials=True": True, "causeway_for_trials=False": False, "": False}


@pytest.mark.parametrize("said", SAID)
def test_experiments_are_for_nodes_that_nobody_works_on(tmp_path: Path, said: str) -> None:
    file = inventory(tmp_path, f"[feature_base]\nn1 ansible_host=127.0.0.1 {said}\n")
    assert [host.experiments for host in _read_expectations(file, None).hosts] == [SAID[said]]


def test_a_helpers_checks_run_where_its_own_test_has_a_group_for_it(tmp_path: Path) -> None:
    (host,) = _read_expectations(inventory(tmp_path, "[feature_pki]\nn1 pki_mode=0440\n"), None).hosts
    assert host.features == ("pki",)
    assert (host.variables["pki_mode"], host.variables["pki_days"]) == ("0440", 365)


def test_only_the_roles_that_are_named_are_expected() -> None:
    left = EXPECTED.only({"n1": ["base", "roce"], "n2": []})
    assert [host.features for host in left.hosts] == [("base",), ()]


def told_to_stand_by(*lines: str) -> str:
    """What the verification says that a repair has ready, told so much and no more."""
    done = subprocess.run(
        [sys.executable, "-m", "infra.verify.verification", "--stand-by", str(os.getpid()), "--json"],
        cwd=ROOT,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_standing_by_it_looks_at_the_hosts_that_it_is_told() -> None:
    said = json.loads(told_to_stand_by(EXPECTED.dump(), '["n2"]'))
    assert [check["host"] for check in said["checks"]] == ["n2"]


@pytest.mark.parametrize("lines", [(), (EXPECTED.dump(),)], ids=["told nothing", "told to be ready"])
def test_standing_by_it_ends_where_nobody_tells_it_to_look(lines: tuple[str, ...]) -> None:
    assert told_to_stand_by(*lines) == ""


def test_the_checks_of_nodes_leave_other_tests_alone() -> None:
    """`pytest` over everything loads their conftest too, and nobody tells it which nodes to look at."""
    words = ["tests/verify", "tests/unit/test_tcp_routes.py", "--collect-only", "--quiet"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    named = [line for line in done.stdout.splitlines() if "::" in line]
    assert named
    assert all(line.startswith("tests/unit/") for line in named), "nodes are for verify.py to look at"
