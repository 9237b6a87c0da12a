"""The rules of all capabilities are what Prometheus takes, and say what their tests say they do.

promtool is Debian's, of the version that the nodes run; one container from the nodes' image has it.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.providers.local.containers import discard
from infra.providers.local.image import ensure_image

PROVES = ("monitoring",)

ROOT = Path(__file__).resolve().parents[2]
WATCHES = sorted(path.parent for path in ROOT.glob("infra/capabilities/*/watch/alerts.yaml"))
LABEL = "causeway.test=watch"
TARGET = "/var/tmp/watch"  # noqa: S108 - in the container
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends promtool"
UPDATE = "apt-get update"


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout.strip()


def remove_all() -> None:
    discard(*podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split())


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    """A container that has promtool, and the folders of all capabilities below TARGET."""
    remove_all()  # what a run that was killed left behind
    try:
        # Nobody waits for its boot: promtool reads files.
        made = podman(
            *("run", "--detach", "--systemd=always", "--privileged", "--label", LABEL),
            ensure_image(print),
        )
        podman("exec", made, "sh", "-ec", f"{INSTALL} || {{ {UPDATE}; {INSTALL}; }}")
        for watch in WATCHES:
            place = f"{TARGET}/{watch.parent.name}"
            podman("exec", made, "mkdir", "-p", place)
            podman("cp", f"{watch}/.", f"{made}:{place}")
        yield made
    finally:
        remove_all()


def promtool(node: str, watch: Path, *words: str) -> str:
    """What promtool said, on both outputs; fails with it where promtool does."""
    place = f"{TARGET}/{watch.parent.name}"
    done = subprocess.run(
        ["podman", "exec", "--workdir", place, node, "promtool", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.parent.name)
def test_prometheus_takes_the_rules(node: str, watch: Path) -> None:
    assert "SUCCESS" in promtool(node, watch, "check", "rules", "--lint-fatal", "alerts.yaml")


@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.parent.name)
def test_alerts_fire_and_are_silent_as_their_tests_say(node: str, watch: Path) -> None:
    assert "SUCCESS" in promtool(node, watch, "test", "rules", "tests.yaml")
