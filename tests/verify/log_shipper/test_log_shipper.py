"""A node's journal on its way: a line is delivered, none is dropped, no secret lies in the queue."""

import re
import time
import uuid
from typing import Any

import pytest
from testinfra.host import Host

from infra.capabilities.logs.languages import QUERIES, language
from infra.ground.remote import query_url
from tests.verify.support import Expect, VerdictRecorder, ask, run_anew

UNIT = "causeway-log-shipper"
DATA = "/var/lib/causeway-log-shipper"
PATIENCE_S = 60
"""Lines are collected for a second; the rest is a busy node, and a store that has just been restarted."""
pytestmark = pytest.mark.deadline(PATIENCE_S + 20)

FOLDER = "/etc/causeway-logs/shipper"
FIND = """
import json, os, ssl, sys, time, urllib.error, urllib.parse, urllib.request
url, language, mark, node, folder, patience_s = sys.argv[1:7]
authority, login = folder + "/external-ca.pem", folder + "/login.conf"
context = ssl.create_default_context(cafile=authority if os.path.exists(authority) else None)
headers = {}
if os.path.exists(login):
    name, _, value = open(login).read().strip().strip('"').partition(": ")
    headers[name] = value
now = int(time.time())
if language == "logql":
    words = {"query": '{node="%s"} |= "%s"' % (node, mark), "start": str((now - 600) * 10**9)}
else:
    words = {"query": '_time:10m node:="%s" "%s"' % (node, mark)}
asked = urllib.request.Request(url + "?" + urllib.parse.urlencode({**words, "limit": "10"}), headers=headers)
deadline = time.monotonic() + float(patience_s)
found, refused = [], None
while not found and time.monotonic() < deadline:
    time.sleep(1)
    try:
        with urllib.request.urlopen(asked, timeout=20, context=context) as answer:
            said = answer.read().decode()
    except OSError as error:
        if getattr(error, "code", 500) < 500:
            sys.exit(print(json.dumps({"status": error.code})))
        refused = error
        continue
    refused = None
    if language == "logql":
        streams = json.loads(said)["data"]["result"]
        found = [{**one["stream"], "line": value[1]} for one in streams for value in one["values"]]
    else:
        lines = [json.loads(line) for line in said.splitlines()]
        found = [{**line, "line": line.get("_msg", line.get("message"))} for line in lines]
if refused:
    raise refused
print(json.dumps({"status": 200, "lines": found}))
"""
LOG_AND_LOOK = f"""
mark=%s secret=%s
for line in {" ".join(["%s"] * 9)}; do logger -t causeway-verification -- "$line"; done
for _ in $(seq 50); do
  found=$(grep -rhaoF -e "$mark" -e "$secret" {DATA} | sort -u)
  [ -z "$found" ] || {{ echo "$found"; break; }}
  sleep 0.1
done
"""
"""Lines are logged and looked for in one go: what was delivered, later lines are written over."""
NOT_FOR_SENDERS = (401, 403, 404, 405)
"""A store that takes lines from this user, and answers nobody, or not here."""


def counts(host: Host) -> dict[str, float]:
    """Result → lines, and `unreachable`."""
    said = host.run("syslog-ng-ctl stats prometheus --control=/run/causeway-log-shipper/control").stdout
    found = re.findall(r'^syslogng_output_events_total\{.*result="(\w+)"\} (\S+)', said, re.MULTILINE)
    away = re.findall(r"^(syslogng_output_unreachable)\{.*\} (\S+)", said, re.MULTILINE)
    return {name: float(value) for name, value in found + away}


def test_what_is_logged_is_delivered(host: Host) -> None:
    before = counts(host)
    host.run_test("logger -t causeway-verification '%s'", uuid.uuid4().hex)
    deadline = time.monotonic() + PATIENCE_S
    while (now := counts(host))["delivered"] <= before["delivered"] and time.monotonic() < deadline:
        time.sleep(1)
    assert now["delivered"] > before["delivered"]
    assert now["dropped"] == 0
    assert now["syslogng_output_unreachable"] == 0


def test_no_secret_lies_in_the_queue(host: Host) -> None:
    secret, mark = "sesame" + uuid.uuid4().hex, uuid.uuid4().hex
    lines = (
        f"password={secret}",
        f'{{"token": "{secret}"}}',
        f"Authorization: Bearer {secret}",
        f"postgres://me:{secret}@db/x",
        f"X-Consul-Token: {secret}",
        f"-----BEGIN EC PRIVATE KEY----- {secret}",
        f"kubeadm join 10.0.0.1:6443 --token {secret}",
        f'{{"log": "{{\\"password\\": \\"a \\\\\\"{secret}\\"}}"}}',
        mark,
    )
    deadline = time.monotonic() + PATIENCE_S
    while (seen := host.run(LOG_AND_LOOK, mark, secret, *lines).stdout) == "" and time.monotonic() < deadline:
        time.sleep(0.5)
    assert seen == f"{mark}\n", "what is logged comes by the queue, and no secret with it"


def test_a_store_of_the_sites_own_has_the_line(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.log_shipper_url:
        verdict.not_declared("the region's own store has it; log_store's checks find it there")
    url = query_url(expect.log_shipper_url, expect.log_shipper_query_url, QUERIES)
    understood = language(url)
    if understood is None:
        verdict.rendered(
            "lines are taken; neither query_url nor the path of url says where they are asked for"
        )
    mark = uuid.uuid4().hex
    host.run_test("logger -t causeway-verification '%s password=%s'", mark, "sesame-" + mark[:6])
    said: dict[str, Any] = ask(host, FIND, url, understood, mark, expect.host_name, FOLDER, str(PATIENCE_S))
    if said["status"] in NOT_FOR_SENDERS and not expect.log_shipper_query_url:
        verdict.rendered(f"lines are taken; {url} answers {said['status']} to who sends them")
    assert said["status"] == 200
    (line,) = said["lines"]
    assert line["line"] == f"{mark} password=[scrubbed]"
    told = {name: line[name] for name in ("cluster", "region", "node")}
    assert told == {
        "cluster": expect.log_shipper_cluster,
        "region": expect.log_shipper_region,
        "node": expect.host_name,
    }


def test_its_password_is_nobody_elses_to_read(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.log_shipper_username:
        verdict.not_declared("it has none")
    login = host.file(f"{FOLDER}/login.conf")
    assert (login.user, login.group, login.mode) == ("root", "causeway-logs", 0o640)


def test_its_certificate_opens_no_other_service(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.log_shipper_url:
        verdict.not_declared("a store of the site's own knows it by a password, or not at all")
    shown = host.run(
        "openssl x509 -in /etc/causeway-logs/shipper/certificate.pem -noout -ext extendedKeyUsage"
    ).stdout
    assert "TLS Web Client Authentication" in shown
    assert "Server" not in shown


def test_it_tells_of_itself(host: Host, expect: Expect) -> None:
    file = f"{expect.log_shipper_textfile_dir}/causeway_logs.prom"
    said = host.run(f"{run_anew(f'{UNIT}-metrics.service')} && cat {file}; date +%s").stdout
    *lines, now = said.splitlines()
    names = {re.split(r"[{ ]", line)[0] for line in lines}
    assert names >= {
        "syslogng_output_events_total",
        "syslogng_output_unreachable",
        "syslogng_disk_queue_disk_usage_bytes",
        "syslogng_disk_queue_capacity_bytes",
        "causeway_log_shipper_read_timestamp_seconds",
    }
    read = next(line for line in lines if line.startswith("causeway_log_shipper_read"))
    assert 0 <= int(now) - int(read.split()[1]) <= 60


def test_it_comes_back(host: Host) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {UNIT}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]


def test_the_packages_own_daemon_stays_away(host: Host) -> None:
    shown = host.run("systemctl show -P LoadState -P ActiveState syslog-ng.service").stdout.split()
    assert sorted(shown) == ["inactive", "masked"]
