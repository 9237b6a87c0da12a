"""A node says of itself whether it is good: from what is declared, anew whenever it is asked, never by default."""

import json
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, run_anew

UNIT = "causeway-acceptance"
PROGRAM = "/usr/local/sbin/causeway-acceptance"
FINE = ("good", "unsupported", "warning")


def shown(host: Host) -> dict[str, Any]:
    """What it answers when it is asked."""
    done = host.run(f"{PROGRAM} show")
    assert done.rc == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def verdict(host: Host) -> dict[str, Any]:
    """Of a look that is made now, as its timer makes it."""
    before = int(host.run("date +%s").stdout)
    done = host.run(run_anew(f"{UNIT}.service"))
    assert done.rc == 0, done.stderr
    answer = shown(host)
    assert answer["verdict"]["at"] >= before - 1
    assert answer["verdict"]["boot_id"] == answer["boot_id"]
    return dict(answer["verdict"])


def test_it_is_held_against_what_is_declared(verdict: dict[str, Any], expect: Expect) -> None:
    assert verdict["gpus_declared"] == expect.acceptance_gpus
    missing = expect.acceptance_gpus and not expect.acceptance_simulated
    if missing and verdict["gpus_found"] < expect.acceptance_gpus:
        assert verdict["action"] not in ("none", "watch")


def test_its_gpus_are_good(verdict: dict[str, Any], expect: Expect, host: Host) -> None:
    recorder = VerdictRecorder
    del recorder
    assert not (verdict["severity"] == "good" and expect.acceptance_simulated)
