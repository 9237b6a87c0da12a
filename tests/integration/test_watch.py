"""The rules of all capabilities are what Prometheus takes, and say what their tests say they do.

So are the queries of their dashboards; those that no node of the tests can answer do it for made-up series.

promtool is Debian's, of the version that the nodes run; one container from the nodes' image has it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.providers.local import names
from infra.providers.local.containers import discard
from infra.providers.local.image import ensure_image
from tests.repo.dashboards import filled, metrics, questions

PROVES = ("monitoring",)

ROOT = Path(__file__).resolve().parents[2]
WATCHES = sorted(path.parent for path in ROOT.glob("infra/capabilities/*/watch/alerts.yaml"))
LABEL = f"causeway.test=watch-{names.short_hash(str(names.CHECKOUT))}"
"""Not that of another checkout, whose tests may run meanwhile."""
NODE = "tokyo-gateway-0"
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


def promtool(node: str, folder: str, *words: str) -> str:
    """What promtool said, on both outputs; fails with it where promtool does."""
    done = subprocess.run(
        ["podman", "exec", "--workdir", f"{TARGET}/{folder}", node, "promtool", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.parent.name)
def test_prometheus_takes_the_rules(node: str, watch: Path) -> None:
    assert "SUCCESS" in promtool(node, watch.parent.name, "check", "rules", "--lint-fatal", "alerts.yaml")


@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.parent.name)
def test_alerts_fire_and_are_silent_as_their_tests_say(node: str, watch: Path) -> None:
    assert "SUCCESS" in promtool(node, watch.parent.name, "test", "rules", "tests.yaml")


def put(node: str, name: str, content: object, folder: Path) -> None:
    """Write a file into the container's folder of dashboards; JSON is YAML."""
    (folder / name).write_text(json.dumps(content))
    podman("exec", node, "mkdir", "-p", f"{TARGET}/dashboards")
    podman("cp", f"{folder / name}", f"{node}:{TARGET}/dashboards/{name}")


def test_prometheus_understands_every_query_of_every_dashboard(node: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"dashboards:{number}", "expr": filled(query.expr, NODE)}
        for number, (_, _, query) in enumerate(questions())
    ]
    put(node, "rules.yaml", {"groups": [{"name": "dashboards", "rules": rules}]}, tmp_path)
    assert f"{len(rules)} rules found" in promtool(node, "dashboards", "check", "rules", "rules.yaml")


def test_what_no_node_of_the_tests_can_show_is_shown_where_there_are_series(
    node: str, tmp_path: Path
) -> None:
    """Each query from series of its own, of one port, link and GPU, that grow by a million a minute."""
    tests = [
        {
            "name": f"{dashboard.title} {panel.title}: {query.legend}",
            "interval": "15s",
            "input_series": [
                {"series": series(name), "values": "0+250000x60"} for name in sorted(metrics(query.expr))
            ],
            "promql_expr_test": [
                {
                    "expr": f"count({filled(query.expr, NODE)}) > bool 0",
                    "eval_time": "10m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for dashboard, panel, query in questions()
        if query.needs
    ]
    put(node, "rules.yaml", {"groups": []}, tmp_path)
    put(node, "tests.yaml", {"rule_files": ["rules.yaml"], "tests": tests}, tmp_path)
    assert "SUCCESS" in promtool(node, "dashboards", "test", "rules", "tests.yaml")


def series(name: str) -> str:
    """With every label that panels tell things apart by."""
    labels = {
        "region": "tokyo",
        "pool": "gateway",
        "node_role": "gateway",
        "instance": NODE,
        **dict.fromkeys(("device", "link", "direction", "pci", "xid", "action", "chip", "sensor"), "1"),
        **dict.fromkeys(("storage", "pool_id", "name", "gpu", "reason"), "1"),
        "controller": "0",
    }
    return name + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
