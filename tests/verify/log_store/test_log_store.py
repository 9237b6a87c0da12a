"""A region's logs: lines are found under their node's name, secrets are blank, senders read nothing."""

import uuid

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, ask
from tests.verify.support import knock as knock_at

SHIPPER = "/etc/causeway-logs/shipper"
STORE = "/etc/causeway-logs/store"
PATIENCE_S = 60
"""The shipper collects for a second, the store shows a line after another; the rest is a busy node."""
pytestmark = pytest.mark.deadline(PATIENCE_S + 20)

FIND = """
import json, sys, time, urllib.error, urllib.parse, urllib.request
url, query, patience_s = sys.argv[1:4]
deadline = time.monotonic() + float(patience_s)
while True:
    asked = urllib.parse.urlencode({"query": query, "limit": "10"}).encode()
    try:
        with urllib.request.urlopen(url, asked, timeout=20) as answer:
            found = [json.loads(line) for line in answer.read().decode().splitlines()]
    except OSError as error:
        if getattr(error, "code", 500) < 500 or time.monotonic() > deadline:
            raise
        found = []
    if found or time.monotonic() > deadline:
        print(json.dumps(found))
        break
    time.sleep(1)
"""


def knock(host: Host, url: str, certificate: str = "", key: str = "", body: str = "") -> dict[str, object]:
    """What the store says to somebody: a status, or why the connection was refused."""
    return knock_at(host, f"{STORE}/authority.pem", url, certificate, key, body)


def stored(host: Host, expect: Expect, query: str) -> list[dict[str, str]]:
    """The lines that a query finds, asked until there are some."""
    url = f"http://127.0.0.1:{expect.log_store_port}/select/logsql/query"
    found: list[dict[str, str]] = ask(host, FIND, url, query, str(PATIENCE_S))
    return found


@pytest.fixture(name="ports")
def _ports(expect: Expect) -> list[str]:
    return [
        f"https://{expect.log_store_address}:{port}"
        for port in (expect.log_store_port, expect.log_store_intake_port)
    ]


def test_no_answer_without_a_certificate(host: Host, ports: list[str]) -> None:
    for port in ports:
        found = knock(host, f"{port}/select/logsql/query?query=*")
        assert "CERTIFICATE_REQUIRED" in str(found.get("refused", "")).upper().replace(" ", "_"), found


def test_it_listens_where_it_should(host: Host, expect: Expect) -> None:
    wanted = {
        expect.log_store_port: {"127.0.0.1", expect.log_store_address},
        expect.log_store_intake_port: {expect.log_store_address},
    }
    for port, addresses in wanted.items():
        shown = host.run(f"ss --no-header --listening --tcp --numeric 'sport = :{port}'").stdout.splitlines()
        assert {line.split()[3] for line in shown} == {f"{address}:{port}" for address in addresses}


def test_who_may_send_reads_nothing(host: Host, ports: list[str]) -> None:
    questions, intake = ports
    own = (f"{SHIPPER}/certificate.pem", f"{SHIPPER}/key.pem")
    assert "refused" in knock(host, f"{questions}/select/logsql/query?query=*", *own)
    assert knock(host, f"{intake}/select/logsql/query?query=*", *own) == {"status": 403}
    assert knock(host, f"{intake}/metrics", *own) == {"status": 403}


def test_a_line_is_found_under_the_nodes_name_and_without_its_secret(host: Host, expect: Expect) -> None:
    mark = uuid.uuid4().hex
    host.run_test("logger -t causeway-verification '%s password=%s'", mark, "sesame-" + mark[:6])
    (line,) = stored(host, expect, f'_time:10m "{mark}"')
    assert line["node"] == expect.host_name
    assert line["_msg"] == f"{mark} password=[scrubbed]"


def test_nobody_writes_in_anothers_name(host: Host, expect: Expect, ports: list[str]) -> None:
    mark = uuid.uuid4().hex
    body = f'{{"time":"0","message":"{mark}","node":"somebody-else","unit":"verification"}}'
    said = knock(
        host,
        f"{ports[1]}/insert/jsonline?extra_fields=node=somebody-else",
        f"{SHIPPER}/certificate.pem",
        f"{SHIPPER}/key.pem",
        body,
    )
    assert said["status"] == 200
    (line,) = stored(host, expect, f'_time:10m "{mark}"')
    assert line["node"] == expect.host_name


def test_it_keeps_what_is_declared(host: Host, expect: Expect) -> None:
    shown = host.run("tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID victoria-logs)/cmdline").stdout
    assert f"-retentionPeriod={expect.log_store_retention_days}d" in shown.split()
    size = int(float(expect.log_store_size_gib) * 1024)
    assert f"-retention.maxDiskSpaceUsageBytes={size}MiB" in shown.split()


@pytest.mark.parametrize("unit", ["victoria-logs", "causeway-log-gate"])
def test_it_comes_back(host: Host, unit: str) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {unit}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]
