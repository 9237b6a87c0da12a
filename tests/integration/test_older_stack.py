"""A stack that an older version has made lives on: today's code takes it over and takes it down."""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra import ROOT
from infra.providers.local import sweep
from tests.integration.checkout import Checkout, commit, region, said

pytestmark = pytest.mark.long
PROVES = ("local",)
AS_DECLARED = True
"""The clone is the older version's for a while, and what it is given beside would come and go."""

OLDER = "7ec3ff2"
"""The oldest version whose stacks are still taken over; it moves with each release."""
NODES = {"tokyo-control-0", "shanghai-control-0"}


def git(checkout: Checkout, *words: str) -> str:
    return said("git", "-C", str(checkout.folder), *words)


def put_older(folder: Path) -> None:
    """The older version's files in a folder. It runs with today's packages: the promise is about stacks."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", OLDER], check=True, stdout=subprocess.PIPE, timeout=60
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True, timeout=60)
    shutil.copy(ROOT / "requirements.lock", folder)


@pytest.fixture(scope="module")
def older(checkout: Checkout) -> dict[str, str]:
    """Two regions that the older version has made, and today's files in its place: the nodes' instances."""
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", f"{OLDER}^{{commit}}"], check=False)
    if known.returncode:
        pytest.skip(f"the history of this checkout does not reach back to {OLDER}")
    today = git(checkout, "rev-parse", "HEAD")
    git(checkout, "rm", "-rq", ".")
    put_older(checkout.folder)
    commit(checkout.folder)
    link = {"name": "trans-sea", "a": "tokyo", "b": "shanghai", "rtt_ms": 20, "bandwidth_mbps": 50}
    regions = [
        region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1}),
        region("shanghai", checkout.cidr(1), "Asia/Shanghai", {"control": 1}),
    ]
    waves = [["tokyo", "shanghai"]]
    checkout.declare({"name": "pacific", "regions": regions, "wan_links": [link], "waves": waves})
    checkout.run("up", checkout.stack)  # the older version knows no options
    git(checkout, "checkout", "-q", today)
    return checkout.instances()


def test_up_takes_it_over_and_makes_nothing_anew(checkout: Checkout, older: dict[str, str]) -> None:
    assert older.keys() == NODES
    assert "0 failed, 0 unreachable" in checkout.up()
    assert checkout.instances() == older
    assert checkout.changes() == {}


@pytest.mark.usefixtures("older")
def test_drift_is_found_and_repaired(checkout: Checkout) -> None:
    scan = ["exec", "causeway", "drift", checkout.stack]
    assert "2 clean" in checkout.run(*scan)
    checkout.on_node("tokyo-control-0", "chmod", "0600", "/etc/chrony/chrony.conf")
    assert "mode is 0600, expected 0644" in checkout.run(*scan, expect=3)
    checkout.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    assert "2 clean" in checkout.run(*scan)


@pytest.mark.usefixtures("older")
def test_down_leaves_nothing(checkout: Checkout) -> None:
    checkout.run("down", checkout.stack)
    assert sweep.leftovers(checkout.stack) == []
