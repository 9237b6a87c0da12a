"""The state of a standing cluster, as its own monitoring sees it: one trip to each region's server.

What servers answer is text from nodes: numbers are read as numbers, names are shown as one line.
"""

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from infra.capabilities.monitoring.section import MonitoringSection
from infra.errors import BadInputError, CausewayError, one_line, sentence
from infra.ground.contract import Contract
from infra.ground.login import as_root
from infra.ground.sudo import ready
from infra.process import begun

PATIENCE_S = 30
"""A login over the WAN, and a dozen questions to a busy server."""
LONGEST = 200
QUERIES: Mapping[str, str] = {
    "up": 'max by (instance) (up{job="node-exporter"})',
    "drift": "sum by (instance) (causeway_drift_differences) > 0",
    "blind": "causeway_drift_scan_success == 0",
    # A probe that was lost has a duration of 0.
    "path_rtt": 'sum_over_time(probe_icmp_duration_seconds{probe="path",phase="rtt"}[10m])'
    ' / ignoring (phase) sum_over_time(probe_success{probe="path"}[10m])',
    "path_loss": '1 - avg_over_time(probe_success{probe="path"}[10m])',
    "link_up": "causeway_wan_link_up",
    "link_rtt": "causeway_wan_link_rtt_seconds",
    "link_loss": "causeway_wan_link_loss_ratio",
    "cpu": '1 - avg(rate(node_cpu_seconds_total{mode="idle"}[5m]))',
    "unsent": "max(vmagent_remotewrite_pending_data_bytes)",
}
"""What each server is asked."""
HISTORY: Mapping[str, str] = {
    "share of the processors' time": 'region:cpu:busy_ratio{cluster=""}',
    "nodes that answer": 'region:nodes:up{cluster=""}',
    "slowest way to another region, s": 'max(region:path_rtt_seconds{cluster=""})',
}
"""What a page has curves of."""
HISTORY_S, HISTORY_STEP_S = 3 * 3600, 60
ASK = """
import json, ssl, sys, time, urllib.parse, urllib.request
address, queries, history, seconds, step = sys.argv[1], *map(json.loads, sys.argv[2:6])
tls = "/etc/prometheus/tls/"
context = ssl.create_default_context(cafile=tls + "ca.pem")
context.load_cert_chain(tls + "prometheus.pem", tls + "prometheus-key.pem")
def get(path, **words):
    url = "https://" + address + ":9090/api/v1/" + path + "?" + urllib.parse.urlencode(words)
    with urllib.request.urlopen(url, timeout=15, context=context) as answer:
        return json.load(answer)["data"]
found = {name: get("query", query=query)["result"] for name, query in queries.items()}
found["alerts"] = [one for one in get("alerts")["alerts"] if one["state"] == "firing"]
now = time.time()
span = {"start": now - seconds, "end": now, "step": step}
found["history"] = {name: get("query_range", query=text, **span)["result"] for name, text in history.items()}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Alert:
    """One that fires."""

    name: str
    severity: str
    region: str
    instance: str
    summary: str
    command: str
    runbook: str
    since: str
    """ISO 8601."""


@dataclass(frozen=True)
class Way:
    """How another region is reached, in milliseconds and as a share of round trips; None where unknown."""

    region: str
    rtt_ms: float | None
    loss_ratio: float | None
    declared_rtt_ms: float
    declared_loss_ratio: float


@dataclass(frozen=True)
class RegionState:
    """One region, as its own server sees it; with `problem` where that could not be asked."""

    name: str
    server: str
    declared: int
    problem: str | None = None
    gone: tuple[str, ...] = ()
    """Hosts that do not answer, in natural order."""
    drifted: dict[str, int] = field(default_factory=dict)
    """Host → governed things that differ."""
    blind: tuple[str, ...] = ()
    """Hosts whose own look at themselves fails."""
    alerts: tuple[Alert, ...] = ()
    """Those that are told, the gravest first."""
    ways: tuple[Way, ...] = ()
    links: dict[str, bool] = field(default_factory=dict)
    """Link → whether packets came back, as this region's gateways measured."""
    busy: float | None = None
    """Share of the processors' time."""
    hosts: tuple[str, ...] = ()
    """All that are declared, in natural order."""
    history: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """What → (seconds since 1970, value) of the last hours; empty where that was not asked for."""
    unsent_bytes: float | None = None
    """What waits to be sent to the global region."""

    @property
    def up(self) -> int:
        """How many nodes answer."""
        return self.declared - len(self.gone)


def word(state: RegionState) -> str:
    """A region's state in a word or two."""
    if state.problem:
        return "not seen"
    if any(alert.severity == "page" for alert in state.alerts):
        return "act now"
    return "look into" if state.alerts or state.drifted or state.gone else "good"


def monitored(contract: Contract) -> MonitoringSection:
    """What is monitored; BadInputError for a cluster without monitoring."""
    section = contract.section(MonitoringSection)
    if section is None:
        raise BadInputError(
            f"stack {contract.stack} declares no monitoring", hint="declare `monitoring: {kind: prometheus}`"
        )
    return section


def cluster_state(contract: Contract, *, history: bool = False) -> list[RegionState]:
    """All regions, asked side by side. BadInputError for a cluster without monitoring.

    `history`: also the last hours, for curves.
    """
    section = monitored(contract)
    ready(contract, (region.server for region in section.regions.values()))
    asked = [begun(partial(_region, name, contract, section, history)) for name in section.regions]
    return [one.result() for one in asked]


def _region(name: str, contract: Contract, section: MonitoringSection, history: bool) -> RegionState:
    region = section.regions[name]
    hosts = contract.region_hosts(name)
    unknown = [Way(path.region, None, None, path.rtt_ms, path.loss_ratio) for path in region.paths]
    blank = RegionState(name, region.server, len(hosts), ways=tuple(unknown))
    try:
        return _read(_ask(contract, region.server, history), blank, hosts, section)
    except CausewayError as error:
        problem = sentence(f"{region.server} cannot be asked: {error.message}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = sentence(f"{region.server} answers nonsense: {type(error).__name__}: {error}")
    return RegionState(name, region.server, len(hosts), problem=problem, ways=tuple(unknown))


def _ask(contract: Contract, server: str, history: bool) -> dict[str, Any]:
    address = str(contract.hosts[server].address)
    words = (QUERIES, HISTORY if history else {}, HISTORY_S, HISTORY_STEP_S)
    command = shlex.join(["python3", "-", address, *map(json.dumps, words)])
    answer = json.loads(as_root(contract, server, command, stdin=ASK, timeout_s=PATIENCE_S))
    if not isinstance(answer, dict):
        raise ValueError("no mapping")
    return answer


def _read(
    answer: dict[str, Any], blank: RegionState, hosts: tuple[str, ...], section: MonitoringSection
) -> RegionState:
    up = {name for name, value in _by("instance", answer["up"]) if value == 1}
    known = frozenset(hosts)
    rtt, loss = (
        dict(_by("target_region", answer["path_rtt"])),
        dict(_by("target_region", answer["path_loss"])),
    )
    return RegionState(
        name=blank.name,
        server=blank.server,
        declared=blank.declared,
        gone=tuple(host for host in hosts if host not in up),
        drifted={name: int(value) for name, value in _by("instance", answer["drift"]) if name in known},
        blind=tuple(sorted(name for name, _ in _by("instance", answer["blind"]) if name in known)),
        alerts=tuple(
            sorted(
                _alerts(answer["alerts"]), key=lambda one: (one.severity != "page", one.name, one.instance)
            )
        ),
        ways=tuple(
            Way(
                path.region,
                None if (seen := rtt.get(path.region)) is None else round(seen * 1000, 1),
                None if (lost := loss.get(path.region)) is None else round(lost, 4),
                path.rtt_ms,
                path.loss_ratio,
            )
            for path in section.regions[blank.name].paths
        ),
        links={name: value == 1 for name, value in _by("link", answer["link_up"])},
        busy=_one(answer["cpu"]),
        hosts=hosts,
        history={
            name: _curve(answer["history"][name]) for name in HISTORY if name in answer.get("history", {})
        },
        unsent_bytes=_one(answer["unsent"]),
    )


def _by(label: str, result: Any) -> Iterator[tuple[str, float]]:
    """A label's value → the sample, of those that are numbers."""
    for one in result:
        value = float(one["value"][1])
        if math.isfinite(value):
            yield one_line(str(one["metric"].get(label, "")), LONGEST), value


def _curve(result: Any) -> list[tuple[float, float]]:
    """The points of the one series there is."""
    points = ((float(at), float(value)) for at, value in (result[0]["values"] if result else ()))
    return [(at, value) for at, value in points if math.isfinite(at) and math.isfinite(value)]


def _one(result: Any) -> float | None:
    """The one sample there is; None where there is none, or no number: JSON has none for those."""
    return next((value for _, value in _by("", result)), None)


def _alerts(found: Any) -> Iterator[Alert]:
    """Those that somebody is to do something about."""
    for one in found:
        labels, notes = one["labels"], one.get("annotations", {})

        def text(value: object) -> str:
            return one_line(str(value), LONGEST)

        if labels.get("severity") in ("page", "ticket"):
            yield Alert(
                name=text(labels.get("alertname", "")),
                severity=text(labels["severity"]),
                region=text(labels.get("region", "")),
                instance=text(labels.get("instance", "")),
                summary=text(notes.get("summary", "")),
                command=text(notes.get("command", "")),
                runbook=text(notes.get("runbook", "")),
                since=text(one.get("activeAt", "")),
            )
