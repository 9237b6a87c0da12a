"""A region's server: it sees what is declared, judges it by every rule, and tells who is to know."""

import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from testinfra.host import Host

from infra import capabilities
from infra.capabilities.monitoring.section import QUERIES
from infra.ground.remote import query_url
from tests.verify.loaded import unlike_config, unlike_rules
from tests.verify.monitoring import answer, refuses_strangers
from tests.verify.support import Expect, VerdictRecorder
from tests.verify.support import ask as ask_node

PATIENCE_S = 90
"""A target's first look and a rule's first evaluation come within an interval; a restarted target's next look
after one more, and a connection to another region may take its time."""
TOLD_S = 90
"""What nodes say of themselves comes with a look at them, as late as a target's own."""
SIGNAL_S = 150
"""A sign of life leaves every half a minute; the first one goes through a rule, a group and a repetition."""
pytestmark = pytest.mark.deadline(max(SIGNAL_S, TOLD_S + PATIENCE_S) + 20)
CONFIG, RULES = "/etc/prometheus/causeway.yml", "/etc/prometheus/causeway-rules"
REMOTE_WRITE = "/etc/prometheus/causeway-remote-write"
NOT_FOR_SENDERS = (401, 403, 404, 405)
"""A receiver that takes series from this user, and answers nobody, or not here."""
QUERY = """
import base64, json, os, ssl, sys, time, urllib.error, urllib.request
url, username, folder, patience_s = sys.argv[1:5]
authority = folder + "/ca.pem"
context = ssl.create_default_context(cafile=authority if os.path.exists(authority) else None)
asked = urllib.request.Request(url)
if username:
    known = username + ":" + open(folder + "/password").read().rstrip()
    asked.add_header("Authorization", "Basic " + base64.b64encode(known.encode()).decode())
deadline = time.monotonic() + float(patience_s)
while True:
    try:
        with urllib.request.urlopen(asked, timeout=20, context=context) as answer:
            found = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code < 500 or time.monotonic() > deadline:
            sys.exit(print(json.dumps({"status": error.code, "found": []})))
        found = []
    if found or time.monotonic() > deadline:
        break
    time.sleep(1)
print(json.dumps({"status": 200, "found": found}))
"""


def queried(host: Host, url: str, username: str) -> dict[str, Any]:
    """What the site's own receiver answers, asked until it knows something."""
    said: dict[str, Any] = ask_node(host, QUERY, url, username, REMOTE_WRITE, str(PATIENCE_S))
    return said


def ask(host: Host, expect: Expect, path: str, wanted: str = "", patience_s: float = PATIENCE_S) -> Any:
    """What its API answers."""
    return answer(host, f"https://{expect.prometheus_address}:9090{path}", "prometheus", wanted, patience_s)


def test_no_answer_without_a_certificate(host: Host, expect: Expect) -> None:
    refuses_strangers(host, expect.prometheus_address, 9090)


def test_every_target_is_up(host: Host, expect: Expect) -> None:
    declared = {
        (job["name"], target["host"])
        for job in expect.prometheus_jobs
        for pool in job["pools"]
        for target in pool["targets"]
    }
    absent = {
        (job["name"], instance)
        for job in expect.prometheus_jobs
        if job.get("told_by")
        for (_, _, instance), there in told(host, expect, job).items()
        if not there
    }
    # A server that has just begun has none, of which all are up.
    there = f"len(found['data']['activeTargets']) >= {len(declared)}"
    every = (
        f"{there} and all(one['health'] == 'up' or"
        f" (one['labels']['job'], one['labels']['instance']) in {sorted(absent)}"
        f" for one in found['data']['activeTargets'])"
    )
    targets = ask(host, expect, "/api/v1/targets?state=active", every)["data"]["activeTargets"]
    down = {
        (one["labels"]["job"], one["labels"]["instance"]): one["lastError"]
        for one in targets
        if one["health"] != "up"
    }
    assert {target: error for target, error in down.items() if target not in absent} == {}
    seen = {(one["labels"]["job"], one["labels"]["instance"]) for one in targets}
    assert declared <= seen


def told(host: Host, expect: Expect, job: dict[str, Any]) -> dict[tuple[str, str, str], bool]:
    """Region, pool and name of a job's hosts → whether it says that there is something to ask."""
    count = sum(len(pool["targets"]) for pool in job["pools"])
    all_said = f"len(found['data']['result']) >= {count}"
    found = ask(host, expect, f"/api/v1/query?query={job['told_by']}", all_said, TOLD_S)["data"]["result"]
    return {place(one["metric"]): float(one["value"][1]) == 1 for one in found}


def place(labels: dict[str, str]) -> tuple[str, str, str]:
    return labels["region"], labels["pool"], labels["instance"]


def test_what_bmcs_say_arrives(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    job = next((job for job in expect.prometheus_jobs if job["name"] == "ipmi-exporter"), None)
    if job is None or not job["pools"]:
        verdict.not_declared("no machine that may have a BMC")
    there = {where for where, has_one in told(host, expect, job).items() if has_one}
    if not there:
        verdict.unsupported("no BMC")
    query = "/api/v1/query?query=ipmi_up%7Bcollector=%22ipmi%22%7D"
    up = f"[one['value'][1] for one in found['data']['result']].count('1') >= {len(there)}"
    found = ask(host, expect, query, up)["data"]["result"]
    assert {place(one["metric"]): float(one["value"][1]) for one in found} == dict.fromkeys(there, 1.0)


def test_nothing_is_wrong_with_what_others_leave(host: Host, expect: Expect) -> None:
    found = ask(host, expect, "/api/v1/query?query=node_textfile_scrape_error%20!=%200")
    assert [one["metric"]["instance"] for one in found["data"]["result"]] == []


def test_every_rule_is_evaluated(host: Host, expect: Expect) -> None:
    healthy = "all(rule['health'] == 'ok' for group in found['data']['groups'] for rule in group['rules'])"
    groups = ask(host, expect, "/api/v1/rules", healthy)["data"]["groups"]
    wrong = {
        rule["name"]: rule.get("lastError")
        for group in groups
        for rule in group["rules"]
        if rule["health"] != "ok"
    }
    assert wrong == {}
    declared = ["declared"] * bool(expect.prometheus_declared) + ["own"] * bool(expect.prometheus_own_rules)
    assert {Path(group["file"]).stem for group in groups} == {*expect.prometheus_rules, *declared}
    names = {rule["name"] for group in groups for rule in group["rules"]}
    for name in expect.prometheus_rules:
        written = set(
            re.findall(r"^\s*-? *alert: *(\w+)", capabilities.alerts_of(name).read_text(), re.MULTILINE)
        )
        assert written <= names


def test_it_runs_with_what_is_written(host: Host, expect: Expect) -> None:
    info = ask(host, expect, "/api/v1/status/runtimeinfo")["data"]
    assert info["reloadConfigSuccess"] is True
    assert stale(host, expect, info["lastConfigTime"]) == [], "not loaded as it is written; reload it"
    flags = ask(host, expect, "/api/v1/status/flags")["data"]
    assert flags["storage.tsdb.retention.size"] == size(expect.prometheus_retention_gib)
    days = expect.prometheus_retention_days
    assert flags["storage.tsdb.retention.time"] in (f"{days}d", f"{days // 7}w" if days % 7 == 0 else "")
    assert flags["web.enable-remote-write-receiver"] == str(expect.prometheus_receives).lower()


def stale(host: Host, expect: Expect, loaded_at: str) -> list[str]:
    """What is not loaded as it is written; where no file is newer, nothing."""
    listed = host.check_output(f"find {CONFIG} {RULES} -name '*.yml' -printf '%T@ %p\\n'").splitlines()
    files = {path: int(float(seconds)) for seconds, path in (line.split(maxsplit=1) for line in listed)}
    if max(files.values()) <= int(host.check_output(f"date --date={loaded_at} +%s")):
        return []
    texts = {path: host.file(path).content_string for path in files}
    config = texts.pop(CONFIG)
    asked = partial(ask, host, expect)
    return [*unlike_config(asked, config), *unlike_rules(asked, texts)]


def size(gib: float) -> str:
    """As Prometheus shows it."""
    mib = int(gib * 1024)
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def test_alerts_go_to_the_regions_alertmanagers(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.prometheus_alertmanagers:
        verdict.not_declared("no Alertmanager")
    known = [f"https://{address}:9093/api/v2/alerts" for address in expect.prometheus_alertmanagers]
    found = ask(host, expect, "/api/v1/alertmanagers", "len(found['data']['activeAlertmanagers'])")["data"]
    assert sorted(one["url"] for one in found["activeAlertmanagers"]) == sorted(known)


def test_what_is_recorded_arrives_in_the_global_region(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.prometheus_sends_to or not expect.prometheus_rules:
        verdict.not_declared("nothing is sent")
    query = f"region:nodes:up{{region=%22{expect.prometheus_region}%22}}"
    url = f"https://{expect.prometheus_sends_to}:9090/api/v1/query?query={query}"
    found = answer(host, url, "prometheus", "found and found['data']['result']", PATIENCE_S)
    assert found["data"]["result"], "the global region knows nothing of this one"


def test_what_is_recorded_arrives_at_the_sites_own_receiver(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.prometheus_remote_write_url or not expect.prometheus_rules:
        verdict.not_declared("nothing is sent there")
    number = 2 if expect.prometheus_sends_to else 1
    taken = f'vmagent_remotewrite_requests_total{{url=~"{number}:.*",status_code="2XX"}} > 0'
    found = ask(host, expect, f"/api/v1/query?query={quote(taken)}", "found['data']['result']")
    assert found["data"]["result"], "it has taken nothing"
    declared = expect.prometheus_remote_write_query_url
    url = query_url(expect.prometheus_remote_write_url, declared, QUERIES)
    if not url:
        verdict.rendered("it takes series; neither query_url nor the path of url says where it is asked")
    query = f'region:nodes:up{{cluster="{expect.prometheus_cluster}",region="{expect.prometheus_region}"}}'
    said = queried(host, f"{url}?query={quote(query)}", expect.prometheus_remote_write_username)
    if said["status"] in NOT_FOR_SENDERS and not declared:
        verdict.rendered(f"it takes series; {url} answers {said['status']} to who sends them")
    assert said["status"] == 200
    assert said["found"], "it knows nothing of this region"


def test_what_it_logs_in_by_is_nobody_elses_to_read(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.prometheus_remote_write_username:
        verdict.not_declared("it logs in nowhere")
    password = host.file(f"{REMOTE_WRITE}/password")
    assert (password.user, password.group, password.mode) == ("root", "prometheus", 0o640)


def test_a_region_that_falls_silent_is_noticed(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.prometheus_watched_regions:
        verdict.not_declared("no region is watched from here")
    query = "/api/v1/query?query=time()-causeway_deadman_last_seen_timestamp_seconds"
    live = f"len([one for one in found['data']['result'] if float(one['value'][1]) < {SIGNAL_S}])"
    wanted = f"{live} == {len(expect.prometheus_watched_regions)}"
    found = ask(host, expect, query, wanted, SIGNAL_S)["data"]["result"]
    ages = {one["metric"]["from_region"]: float(one["value"][1]) for one in found}
    assert sorted(ages) == sorted(expect.prometheus_watched_regions)
    assert all(age < SIGNAL_S for age in ages.values()), ages


def test_every_probe_gets_through(host: Host, expect: Expect) -> None:
    # Over a while: one packet in some hundred may be lost.
    query = "/api/v1/query?query=avg_over_time(probe_success%5B10m%5D)"
    got = "all(float(one['value'][1]) > 0 for one in found['data']['result'])"
    found = ask(host, expect, query, got)["data"]["result"]
    failing = [one["metric"] for one in found if float(one["value"][1]) == 0]
    assert failing == []
    seen = {(one["metric"]["probe"], one["metric"].get("target_region")) for one in found}
    peers = {("path", peer["region"]) for peer in expect.prometheus_peers}
    assert peers | {(probe["name"], None) for probe in expect.prometheus_local_probes} <= seen


def test_the_prober_answers_this_node_only(host: Host) -> None:
    shown = host.run("ss --no-header --listening --tcp --numeric 'sport = :9115 or sport = :8429'").stdout
    addresses = {line.split()[3].rpartition(":")[0] for line in shown.splitlines()}
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("unit", ["prometheus", "prometheus-blackbox-exporter"])
def test_it_comes_back(host: Host, unit: str) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {unit}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]


def test_no_other_server_of_the_packages_runs(host: Host) -> None:
    assert host.run("systemctl is-active victoria-metrics.service").stdout.strip() != "active"
