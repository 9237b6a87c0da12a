"""Two regions that watch themselves and each other: alerts arrive, a cut link loses nothing.

The tests are one story. While the link between the regions is cut, what each does by itself is tried.
"""

import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from subprocess import CalledProcessError
from typing import Any

import pytest

from tests.integration.checkout import Checkout, commit, cut, two_regions
from tests.patience import wait_for
from tests.repo.dashboards import filled, questions

PROVES = (
    *("monitoring", "node_exporter", "prometheus", "alertmanager", "metrics_service"),
    *("logs", "log_store", "log_shipper"),
)
TOOLS = ("victoria-logs",)
AS_DECLARED = True
"""What is shown and told of drift is as fresh as a user's."""
HEARERS = {"tokyo": "tokyo-gpu-0", "shanghai": "shanghai-control-0"}
"""Region → the node with a receiver of its alerts, and of all others'."""
SERVERS = {"tokyo": "tokyo-control-0", "shanghai": "shanghai-control-0"}
HEARER = """
import http.server, os
class Hearer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said, refused = self.rfile.read(int(self.headers["Content-Length"])), os.path.exists("/run/refuse")
        if not refused:
            with open("/run/heard", "ab") as file:
                file.write(said + b"\\n")
        self.send_response(403 if refused else 200)
        self.end_headers()
http.server.ThreadingHTTPServer(("0.0.0.0", 8099), Hearer).serve_forever()
"""
PART = "hook-4f1c8e"
"""In each receiver's URL: the part that nobody is to read."""
OWN_RULES = {
    "groups": [
        {
            "name": "own",
            "rules": [
                {
                    "alert": "Provoked",
                    "expr": "causeway_provoked > 0",
                    "labels": {"severity": "page"},
                    "annotations": {"summary": "somebody asked for it"},
                }
            ],
        }
    ]
}
TEXTFILES = "/var/lib/prometheus/node-exporter"
ASK = """
import json, ssl, sys, urllib.error, urllib.parse, urllib.request
address, port, path, several = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
tls = "/etc/prometheus/tls/"
context = ssl.create_default_context(cafile=tls + "ca.pem")
context.load_cert_chain(tls + "prometheus.pem", tls + "prometheus-key.pem")
def answer(words):
    url = f"https://{address}:{port}{path}?" + urllib.parse.urlencode(words)
    try:
        with urllib.request.urlopen(url, timeout=20, context=context) as found:
            return json.load(found)
    except urllib.error.HTTPError as error:
        if error.code not in (400, 422):
            raise
        return json.load(error)  # what is wrong with the query
print(json.dumps([answer(words) for words in several]))
"""
IMPOSTOR = """
import http.server, ssl, sys, time
address, says = sys.argv[1:]
pages = {"a web page": b"<html>\\n", "half a page": b"first 1\\nsecond 2\\n<html>\\n", "zeros": bytes(4096)}
class Impostor(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if says == "nothing":
            time.sleep(3600)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(pages[says])
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(*(f"/etc/prometheus/tls/prometheus-node-exporter{end}.pem" for end in ("", "-key")))
server = http.server.ThreadingHTTPServer((address, 9100), Impostor)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
"""Answers in the exporter's place, by its certificate: some page, or nothing, ever."""
DATA = "/var/lib/prometheus/metrics2"
INTERVAL_S = 5
GONE_S = 600
"""Silence counts after five minutes, and is an alert a minute later."""


def declaration(checkout: Checkout) -> dict[str, Any]:
    receivers = [
        {"name": f"hearer-{name}", "kind": "webhook", "url_secret": f"hook-{name}"} for name in HEARERS
    ]
    monitoring = {
        "kind": "prometheus",
        "interval_s": INTERVAL_S,
        "retention": {"time_days": 1},
        "global_region": "tokyo",
        "receivers": receivers,
        "logs": {"kind": "victorialogs", "retention_days": 1, "size_gib": 0.5, "queue_mib": 32},
    }
    return two_regions(checkout, monitoring=monitoring, waves=[["tokyo", "shanghai"]])


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Checkout:
    """A stack with monitoring that stands, its receivers listening."""
    checkout.declare(declaration(checkout))
    checkout.override("rules", prometheus_own_rules=OWN_RULES)
    commit(checkout.folder)
    refused = checkout.run("up", checkout.stack, expect=2)
    assert "monitoring.receivers[0].url_secret: names the secret hook-tokyo" in refused
    assert f"./run exec causeway secret hook-tokyo {checkout.stack}" in refused
    assert not checkout.instances()
    for name, node in HEARERS.items():
        give = f"printf 'http://{node}:8099/{PART}' | causeway secret hook-{name} {checkout.stack}"
        checkout.run("exec", "sh", "-c", give)
    printed = checkout.up()
    assert re.search(r"checks: [1-9]\d* effective.*\b0 failed, 0 unreachable", printed)
    for node in HEARERS.values():
        run(checkout, node, "hearer", HEARER)
    return checkout


def run(stack: Checkout, node: str, unit: str, program: str, *words: str) -> None:
    """Have a program of ours run in a node, as a unit."""
    stack.on_node(node, "sh", "-c", f'printf %s "$1" > /run/{unit}.py', "write", program)
    stack.on_node(node, "systemd-run", f"--unit={unit}", "python3", f"/run/{unit}.py", *words)


def ask(
    stack: Checkout, region: str, texts: Sequence[str], path: str = "/api/v1/query"
) -> list[dict[str, Any]]:
    """What a region's server answers to queries of an instant, asked on its own node."""
    node, several = SERVERS[region], json.dumps([{"query": text} for text in texts])
    where = (stack.address(node), "9090", path)
    found: list[dict[str, Any]] = json.loads(stack.on_node(node, "python3", "-c", ASK, *where, several))
    return found


def named(stack: Checkout, region: str) -> set[tuple[str, str]]:
    """(alert, instance) of all that a region's server has on its mind, also those whose time has not come.

    It is not asked for the series ALERTS: one that cannot write has none.
    """
    (answer,) = ask(stack, region, [""], "/api/v1/alerts")
    labels = [alert["labels"] for alert in answer["data"]["alerts"]]
    return {(one["alertname"], one.get("instance", "")) for one in labels}


def query(stack: Checkout, region: str, text: str) -> list[dict[str, Any]]:
    """Samples of an instant."""
    (answer,) = ask(stack, region, [text])
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def heard(stack: Checkout, at: str) -> list[tuple[str, str, str]]:
    """(alert, region it is about, status) of all that the receiver in a region was told, in order."""
    lines = stack.on_node(HEARERS[at], "sh", "-c", "cat /run/heard 2>/dev/null || true").splitlines()
    return [
        (alert["labels"]["alertname"], alert["labels"].get("region", ""), alert["status"])
        for line in filter(None, lines)
        for alert in json.loads(line)["alerts"]
    ]


def provoke(stack: Checkout, region: str, value: int) -> None:
    """Leave a metric that an alert fires for, or no longer."""
    node = SERVERS[region]
    stack.on_node(node, "sh", "-c", f"echo causeway_provoked {value} > {TEXTFILES}/provoked.prom")


def test_all_regions_are_seen_and_good(stack: Checkout) -> None:
    def state() -> dict[str, Any]:
        text = stack.run("exec", "causeway", "status", stack.stack, "--json")
        found: dict[str, Any] = json.loads(text[text.index("{") :])["regions"]
        return found

    found: dict[str, Any] = {}

    def is_good() -> bool:
        found.update(state())
        up = {name: (one["up"], one["declared"]) for name, one in found.items()}
        return up == {"tokyo": (2, 2), "shanghai": (1, 1)} and all(
            not one["alerts"]
            and one["problem"] is None
            and not one["drifted"]
            and all(way["rtt_ms"] for way in one["ways"])
            for one in found.values()
        )

    with suppress(AssertionError):  # what is wrong then is said below
        wait_for(is_good, "all to be seen and good")
    assert {name: (one["up"], one["declared"]) for name, one in found.items()} == {
        "tokyo": (2, 2),
        "shanghai": (1, 1),
    }
    assert [alert for one in found.values() for alert in one["alerts"]] == []
    rules = stack.on_node(SERVERS["tokyo"], "cat", "/etc/prometheus/causeway-rules/base.yml")
    assert f"causeway drift {stack.stack}" in rules
    assert all(one["problem"] is None and not one["drifted"] for one in found.values())
    (way,) = found["tokyo"]["ways"]
    assert way["declared_rtt_ms"] == 20
    assert way["rtt_ms"] >= 20


def shown(answer: dict[str, Any]) -> bool:
    """Whether a panel has something to show: no number is nothing."""
    return any(math.isfinite(float(one["value"][1])) for one in answer.get("data", {}).get("result", ()))


def empty(stack: Checkout, region: str) -> list[str]:
    """The queries of all dashboards that a region's server has nothing for, or does not understand."""
    asked = [
        (f"{region}: {dashboard.title} {panel.title}: {query.legend}", filled(query.expr, SERVERS[region]))
        for dashboard, panel, query in questions()
        if not query.needs and (dashboard.about != "cluster" or region == "tokyo")
    ]
    answers = ask(stack, region, [expr for _, expr in asked])
    return [
        f"{where}: {answer.get('error', 'no series')}: {expr}"
        for (where, expr), answer in zip(asked, answers, strict=True)
        if not shown(answer)
    ]


def test_every_panel_of_every_dashboard_shows_something(stack: Checkout) -> None:
    """What is measured once a minute comes last; what these nodes cannot have is named, and not asked."""
    for dashboard, panel, query in questions():
        if query.needs:
            print(f"not asked, for want of {query.needs}: {dashboard.title} {panel.title}: {query.legend}")
    with suppress(AssertionError):
        wait_for(lambda: not any(empty(stack, region) for region in SERVERS), "every panel")
    assert [found for region in SERVERS for found in empty(stack, region)] == []


def test_a_second_run_has_nothing_to_do(stack: Checkout) -> None:
    assert stack.changes() == {}
    stack.run("exec", "causeway", "drift", stack.stack)


def test_what_servers_run_with_is_judged_by_what_is_in_their_files(stack: Checkout) -> None:
    node, folder, kept = SERVERS["tokyo"], "/etc/prometheus", "/root/prometheus"
    command = (
        "exec",
        "python",
        "-m",
        "infra.verify.verification",
        "--inventory",
        f"inventories/{stack.stack}",
    )
    files = f"{folder}/causeway.yml {folder}/causeway-alertmanager.yml {folder}/causeway-rules/*.yml"
    stack.on_node(node, "sh", "-ec", f"cp -a {folder} {kept}; touch {files}")
    try:
        assert " 0 failed, 0 unreachable" in stack.run(*command, "--limit", node)
        longer = "sed -i '0,/for: [0-9a-z]*/s//for: 77m/'"
        stack.on_node(node, "sh", "-ec", f"{longer} {folder}/causeway-rules/base.yml")
        stack.on_node(node, "sh", "-ec", f"echo '# words' >>{folder}/causeway-alertmanager.yml")
        found = stack.run(*command, "--limit", node, expect=1)
    finally:
        stack.on_node(node, "sh", "-ec", f"cp -a {kept}/. {folder}/ && rm -r {kept}")
    assert " 2 failed, 0 unreachable" in found
    assert "not loaded as it is written; reload it" in found
    assert "causeway-rules/base.yml" in found
    assert "alertmanager: it runs with what is written: the file is not loaded; reload it" in found


def test_what_receivers_are_told_by_is_nobodys_to_read(stack: Checkout) -> None:
    folders = [stack.files, stack.folder / ".causeway" / "pulumi", stack.folder / ".causeway" / "logs"]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    files += [stack.declaration]
    told = [file for file in files if PART.encode() in file.read_bytes()]
    assert {file.parent for file in told} == {stack.files / "secrets"}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in told)
    assert PART not in stack.run("exec", "ansible-inventory", "-i", f"inventories/{stack.stack}", "--list")
    for node in SERVERS.values():
        shown = stack.on_node(node, "sh", "-c", "stat --format='%a %G' /etc/prometheus/causeway-receivers/*")
        assert set(shown.splitlines()) == {"640 prometheus"}
        assert PART not in stack.on_node(node, "sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '")


def test_a_nodes_own_key_opens_no_other_node(stack: Checkout) -> None:
    tls = "/etc/prometheus/tls"
    key = f"--cert {tls}/prometheus-node-exporter.pem --key {tls}/prometheus-node-exporter-key.pem"
    stranger = f"curl --silent --insecure https://{stack.address('tokyo-gpu-0')}:9100 || echo refused"
    assert stack.on_node("tokyo-gpu-0", "sh", "-c", stranger) == "refused"
    for name, port in (("tokyo-control-0", 9090), ("shanghai-control-0", 9100), ("tokyo-control-0", 9095)):
        url = f"https://{stack.address(name)}:{port}/metrics"
        asked = f"curl --silent --cacert {tls}/ca.pem {key} {url} && echo answered || true"
        assert stack.on_node("tokyo-gpu-0", "sh", "-c", asked) == ""


def test_a_receiver_that_refuses_is_named_in_every_region(stack: Checkout) -> None:
    stack.on_node(HEARERS["tokyo"], "touch", "/run/refuse")
    try:
        for region in SERVERS:
            provoke(stack, region, 1)
        for region, server in SERVERS.items():
            wait_for(
                lambda region=region, server=server: ("NotificationsFail", server) in named(stack, region),  # type: ignore[misc] # bound now
                f"{region} to say that it does not get its messages out",
            )

        def told() -> set[str]:
            return {about for alert, about, _ in heard(stack, "shanghai") if alert == "Provoked"}

        wait_for(lambda: told() == set(SERVERS), "the other receiver to be told")
        assert "Provoked" not in {alert for alert, *_ in heard(stack, "tokyo")}
    finally:
        stack.on_node(HEARERS["tokyo"], "rm", "/run/refuse")


@pytest.fixture(scope="module")
def no_alertmanager(stack: Checkout) -> None:
    """Shanghai's is stopped; the test of what the other region knows of it starts it again."""
    stack.on_node(SERVERS["shanghai"], "systemctl", "stop", "prometheus-alertmanager")


@pytest.mark.usefixtures("no_alertmanager")
def test_an_alertmanager_that_is_gone_is_named_by_its_prometheus(stack: Checkout) -> None:
    wanted = ("AlertmanagerGone", SERVERS["shanghai"])
    wait_for(lambda: wanted in named(stack, "shanghai"), "it to be named")
    assert "AlertmanagerGone" not in {alert for alert, _ in named(stack, "tokyo")}


def logged(stack: Checkout, *words: str) -> list[dict[str, str]]:
    """What `causeway logs` finds."""
    said = stack.run("exec", "causeway", "logs", stack.stack, *words, "--json", "--limit", "1000")
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_a_line_is_found_in_its_region(stack: Checkout) -> None:
    nodes = {"tokyo-gpu-0": "tokyo", "shanghai-control-0": "shanghai"}
    mark = uuid.uuid4().hex
    for node in nodes:
        stack.on_node(node, "logger", "-t", "trial", f"{mark} token={PART}")
    wanted = {(node, region, f"{mark} token=[scrubbed]") for node, region in nodes.items()}

    def found(*words: str) -> set[tuple[str, str, str]]:
        return {(line["node"], line["region"], line["_msg"]) for line in logged(stack, f'"{mark}"', *words)}

    wait_for(lambda: found() == wanted, "both lines, each in its region")
    assert {node for node, *_ in found("--region", "tokyo")} == {"tokyo-gpu-0"}
    assert {node for node, *_ in found("--node", "shanghai-control-0")} == {"shanghai-control-0"}
    (counted,) = logged(stack, f'"{mark}" | stats count() lines', "--region", "tokyo")
    assert counted["lines"] == "1"


def test_a_store_that_is_away_and_a_shipper_that_is_killed_lose_no_line(stack: Checkout) -> None:
    gate, shipper, node = "causeway-log-gate", "causeway-log-shipper", "tokyo-gpu-0"
    mark = uuid.uuid4().hex
    say = f'for i in $(seq $1 $2); do echo "{mark} $i"; done | logger -t trial'
    stack.on_node(SERVERS["tokyo"], "systemctl", "stop", gate)
    try:
        for first, last in ((1, 200), (201, 400)):
            stack.on_node(node, "sh", "-c", say, "say", str(first), str(last))
            stack.on_node(node, "systemctl", "kill", "--signal=KILL", shipper)
        stack.on_node(SERVERS["tokyo"], "systemctl", "kill", "--signal=KILL", "victoria-logs")
    finally:
        stack.on_node(SERVERS["tokyo"], "systemctl", "start", gate)
    well = "curl --silent http://127.0.0.1:9428/health || true"
    wait_for(lambda: stack.on_node(SERVERS["tokyo"], "sh", "-c", well) == "OK", "the store to be back")
    wanted = {f"{mark} {number}" for number in range(1, 401)}
    wait_for(lambda: {line["_msg"] for line in logged(stack, f'"{mark}"')} == wanted, "all lines")


@pytest.mark.usefixtures("no_alertmanager")
def test_without_an_alertmanager_its_region_falls_silent_in_the_other(stack: Checkout) -> None:
    """Its signs of life, one in half a minute, end there: what RegionGone waits five minutes for."""
    silent = 'time() - causeway_deadman_last_seen_timestamp_seconds{from_region="shanghai"} > 45'
    try:
        wait_for(lambda: query(stack, "tokyo", silent), "tokyo to miss a sign")
        dropped = ("NotificationsDropped", SERVERS["shanghai"])
        wait_for(lambda: dropped in named(stack, "shanghai"), "shanghai to say that it tells nobody")
    finally:
        stack.on_node(SERVERS["shanghai"], "systemctl", "start", "prometheus-alertmanager")


def test_an_alert_reaches_its_receivers_and_resolves(stack: Checkout) -> None:
    """Also the one that refused it at first, and from an Alertmanager that was away."""
    for region in SERVERS:
        provoke(stack, region, 1)
    wanted = {(at, region) for at in HEARERS for region in SERVERS}

    def told(status: str) -> set[tuple[str, str]]:
        return {(at, about) for at, about in wanted if ("Provoked", about, status) in heard(stack, at)}

    wait_for(lambda: told("firing") == wanted, "each region's alert to be told to both")
    for region in SERVERS:
        provoke(stack, region, 0)
    wait_for(lambda: told("resolved") == wanted, "each to be told that it is over")


def test_a_nodes_key_for_logs_opens_no_store_and_no_exporter(stack: Checkout) -> None:
    folder = "/etc/causeway-logs/shipper"
    key = f"--cert {folder}/certificate.pem --key {folder}/key.pem --cacert {folder}/store-ca.pem"
    for name, port in (("tokyo-control-0", 9428), ("tokyo-control-0", 9090), ("shanghai-control-0", 9100)):
        url = f"https://{stack.address(name)}:{port}/metrics"
        asked = f"curl --silent {key} {url} && echo answered || true"
        assert stack.on_node("tokyo-gpu-0", "sh", "-c", asked) == ""


@dataclass(frozen=True)
class Cut:
    """The link between the regions, dead since a moment."""

    held: ExitStack
    since: float

    def mend(self) -> None:
        """It carries packets again."""
        self.held.close()


@pytest.fixture(scope="module")
def apart(stack: Checkout) -> Iterator[Cut]:
    """The regions cut off from each other; the last test puts them together again."""
    with ExitStack() as held:
        held.enter_context(cut(stack, "trans-sea"))
        yield Cut(held, time.time())


def test_each_region_alerts_by_itself(stack: Checkout, apart: Cut) -> None:
    before = {at: len(heard(stack, at)) for at in HEARERS}
    for region in SERVERS:
        provoke(stack, region, 1)
    for at in HEARERS:
        wait_for(
            lambda at=at: ("Provoked", at, "firing") in heard(stack, at)[before[at] :],  # type: ignore[misc] # bound now
            f"{at}'s alert in {at}",
        )
    assert time.time() > apart.since


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("service", ["prometheus-alertmanager", "prometheus-node-exporter", "vmagent"])
def test_what_is_killed_comes_back_and_goes_on(stack: Checkout, service: str) -> None:
    node = SERVERS["shanghai"]

    def pid() -> str:
        return stack.on_node(node, "systemctl", "show", "-P", "MainPID", service)

    before = pid()
    stack.on_node(node, "kill", "-9", before)
    wait_for(lambda: pid() not in (before, "0"), f"another {service}")
    down = 'up{job!="probe"} == 0 or absent(up{job="node-exporter"})'
    wait_for(lambda: _asked(stack, "shanghai", down) == [], "every target to be seen")


@pytest.mark.long
@pytest.mark.usefixtures("apart")
def test_a_server_that_is_killed_while_it_writes_misses_the_outage_alone(stack: Checkout) -> None:
    node, looks = SERVERS["shanghai"], 'up{job="node-exporter"}'
    killed = time.time()
    stack.on_node(node, "sh", "-c", "kill -9 $(systemctl show -P MainPID prometheus)")
    wait_for(lambda: _asked(stack, "shanghai", looks), "it to answer")
    back = time.time()
    wait_for(lambda: seen(stack, "shanghai", looks)[-1:] > [back + INTERVAL_S], "it to look again")
    times = [at for at in seen(stack, "shanghai", looks) if at > killed - 60]
    assert times[0] < killed, "what it had seen before is there"
    largest = max(later - earlier for earlier, later in pairwise(times))
    assert largest <= back - killed + 3 * INTERVAL_S, "a look before, one after, and the one under way"


def seen(stack: Checkout, region: str, text: str) -> list[float]:
    """When there was a sample within the last quarter of an hour, in order."""
    found = query(stack, region, f"{text}[15m]")
    return sorted(float(at) for one in found for at, _ in one["values"])


def _asked(stack: Checkout, region: str, text: str) -> Any:
    """The samples; None while the server starts."""
    try:
        return query(stack, region, text)
    except (CalledProcessError, ValueError):
        return None


def targets(stack: Checkout, region: str, text: str) -> set[tuple[str, str]]:
    """(job, instance) of each sample."""
    return {(one["metric"]["job"], one["metric"]["instance"]) for one in query(stack, region, text)}


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    "nonsense",
    [
        {
            ("tokyo", "tokyo-gpu-0"): ("a web page", "NodeGone"),
            ("tokyo", "tokyo-control-0"): ("half a page", "TargetUnreadable"),
            ("shanghai", "shanghai-control-0"): ("nothing", "ExporterSilent"),
        },
        {("tokyo", "tokyo-gpu-0"): ("zeros", "TargetUnreadable")},
    ],
    ids=["down", "empty"],
)
def test_targets_that_answer_nonsense_or_never_are_named_and_harm_no_other(
    stack: Checkout, nonsense: dict[tuple[str, str], tuple[str, str]]
) -> None:
    down = 'up{job!="probe"} == 0'
    try:
        for (_, node), (says, _) in nonsense.items():
            stack.on_node(node, "systemctl", "stop", "prometheus-node-exporter")
            run(stack, node, "impostor", IMPOSTOR, stack.address(node), says)
        for (region, node), (says, alert) in nonsense.items():
            wait_for(
                lambda region=region, wanted=(alert, node): wanted in named(stack, region),  # type: ignore[misc] # bound now
                f"{node}, which answers {says}, to be named",
            )
        for region in SERVERS:
            # Zeros are an empty page.
            wrong = {
                ("node-exporter", node)
                for (at, node), (says, _) in nonsense.items()
                if at == region and says != "zeros"
            }
            wait_for(
                lambda region=region, wrong=wrong: targets(stack, region, down) == wrong,  # type: ignore[misc] # bound now
                f"none but {wrong} to be down in {region}",
            )
    finally:
        for _, node in nonsense:
            stack.on_node(node, "systemctl", "stop", "impostor")
            stack.on_node(node, "systemctl", "start", "prometheus-node-exporter")
    for region in SERVERS:
        wait_for(lambda region=region: query(stack, region, down) == [], "all to be seen again")  # type: ignore[misc] # bound now


@pytest.mark.long
@pytest.mark.usefixtures("apart")
def test_a_node_that_says_too_much_is_cut_off_and_named(stack: Checkout) -> None:
    many = 'for i in $(seq 7000); do echo "causeway_flood{number=\\"$i\\"} 1"; done'
    # Whole or not at all: half of it would not be too much.
    part = f"{TEXTFILES}/flood.part"
    stack.on_node("tokyo-gpu-0", "sh", "-c", f"{{ {many}; }} > {part} && mv {part} {TEXTFILES}/flood.prom")
    try:
        alerts = 'ALERTS{alertname="TargetCutOff",instance="tokyo-gpu-0"}'
        wait_for(lambda: query(stack, "tokyo", alerts), "the node to be named")
        assert query(stack, "tokyo", "causeway_flood") == []
        others = 'up{job="node-exporter",instance!="tokyo-gpu-0"}'
        wait_for(
            lambda: [one["value"][1] for one in query(stack, "tokyo", others)] == ["1"],
            "the other node to be seen",
        )
    finally:
        stack.on_node("tokyo-gpu-0", "rm", f"{TEXTFILES}/flood.prom")
    wait_for(
        lambda: query(stack, "tokyo", 'up{instance="tokyo-gpu-0",job="node-exporter"} == 1'),
        "it to be seen again",
    )


@pytest.fixture
def small_disk(stack: Checkout) -> Iterator[str]:
    """The global region's server with a disk of 24 MB for its data, the node that it is on."""
    node = SERVERS["tokyo"]
    swap = "systemctl stop prometheus; {}; systemctl start prometheus"
    user = "uid=$(id -u prometheus),gid=$(id -g prometheus)"
    stack.on_node(node, "sh", "-ec", swap.format(f"mount -t tmpfs -o size=24m,{user} small {DATA}"))
    yield node
    stack.on_node(node, "sh", "-ec", swap.format(f"umount {DATA}"))


@pytest.mark.long
@pytest.mark.usefixtures("apart")
def test_a_server_whose_disk_is_full_says_so_and_goes_on_once_there_is_room(
    stack: Checkout, small_disk: str
) -> None:
    """Nothing is kept then, not its own counters; afterwards its log is torn until it is restarted."""
    own = 'up{job="prometheus"}'

    def looks() -> list[float]:
        return seen(stack, "tokyo", own) if _asked(stack, "tokyo", own) else []

    wait_for(lambda: len(looks()) > 1, "it to begin on the small disk")
    stack.on_node(small_disk, "sh", "-c", f"cat /dev/zero > {DATA}/filler || true")
    try:
        wanted = ("PrometheusLearnsNothing", small_disk)
        wait_for(lambda: wanted in named(stack, "tokyo"), "it to say that it keeps nothing")
    finally:
        stack.on_node(small_disk, "rm", f"{DATA}/filler")
    room = time.time()
    wait_for(lambda: looks()[-1:] > [room], "it to keep what it sees again")
    wait_for(lambda: ("PrometheusCannotWrite", small_disk) in named(stack, "tokyo"), "what failed to be told")
    wait_for(lambda: wanted not in named(stack, "tokyo"), "what is over to be told no more")
    stack.on_node(small_disk, "systemctl", "restart", "prometheus")  # as the runbook says
    mended = time.time()
    wait_for(lambda: looks()[-1:] > [mended], "it to go on")
    stack.on_node(small_disk, "systemctl", "kill", "--signal=KILL", "prometheus")
    killed = time.time()
    wait_for(lambda: looks()[-1:] > [killed], "it to go on once more")
    assert [at for at in looks() if mended < at < killed], "nothing is lost any more"


def test_a_region_that_is_cut_off_is_one_page(stack: Checkout, apart: Cut) -> None:
    for at, other in (("tokyo", "shanghai"), ("shanghai", "tokyo")):
        wait_for(
            lambda at=at, other=other: ("RegionGone", other, "firing") in heard(stack, at),  # type: ignore[misc] # bound now
            f"{at} to say that {other} is silent",
            GONE_S,
        )
    assert time.time() > apart.since + 300, "a region is not gone before it was silent for a while"


def test_the_global_view_fills_in_afterwards(stack: Checkout, apart: Cut) -> None:
    since, until = apart.since + 10, time.time()

    def known() -> list[float]:
        return seen(stack, "tokyo", 'region:nodes:up{region="shanghai"}')

    assert [at for at in known() if since < at] == [], "it cannot know of it yet"
    apart.mend()

    def gaps() -> list[float]:
        times = [since, *(at for at in known() if since < at < until), until]
        return [later - earlier for earlier, later in pairwise(times)]

    wait_for(lambda: max(gaps()) < 60, "what was recorded meanwhile to be there")
    wait_for(lambda: ("RegionGone", "shanghai", "resolved") in heard(stack, "tokyo"), "the page to end")
