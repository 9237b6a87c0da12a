"""A Grafana lets in who has the password, reaches all that it shows, and has every dashboard.

Written, not tried: no Grafana could be had where this was made.
"""

from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, ask

FOLDER = "/etc/grafana/causeway"
PATIENCE_S = 60
"""It makes its database at its first start."""
pytestmark = pytest.mark.deadline(PATIENCE_S + 30)
ASK = f"""
import base64, json, ssl, sys, time, urllib.error, urllib.request
base, name, patience_s, *paths = sys.argv[1:]
context = ssl.create_default_context(cafile="{FOLDER}/authority.pem")
headers = {{}}
if name:
    password = open("{FOLDER}/admin-password").read().strip()
    headers["Authorization"] = "Basic " + base64.b64encode(f"{{name}}:{{password}}".encode()).decode()
def answer(path):
    deadline = time.monotonic() + float(patience_s)
    while True:
        try:
            request = urllib.request.Request(base + path, headers=headers)
            with urllib.request.urlopen(request, timeout=20, context=context) as found:
                return {{"status": found.status, "said": json.load(found)}}
        except OSError as error:
            if getattr(error, "code", 500) < 500:
                return {{"status": error.code, "said": None}}
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
print(json.dumps([answer(path) for path in paths]))
"""
"""Answers to several questions, asked by TLS as a browser would; the password stays on the node."""


def answers(host: Host, expect: Expect, paths: list[str], name: str = "admin") -> list[dict[str, Any]]:
    """Status and JSON of each, in order; asked without a password where there is no name."""
    base = f"https://{expect.grafana_address}:{expect.grafana_port}"
    found: list[dict[str, Any]] = ask(host, ASK, base, name, str(PATIENCE_S), *paths)
    return found


def test_it_is_well_and_tells_strangers_nothing_else(host: Host, expect: Expect) -> None:
    health, search, sources = answers(host, expect, ["/api/health", "/api/search", "/api/datasources"], "")
    assert health["said"]["database"] == "ok"
    assert (search["status"], sources["status"]) == (401, 401)


def test_it_listens_where_it_is_declared_only(host: Host, expect: Expect) -> None:
    shown = host.run(f"ss --no-header --listening --tcp --numeric 'sport = :{expect.grafana_port}'").stdout
    found = [line.split()[3] for line in shown.splitlines()]
    assert found == [f"{expect.grafana_address}:{expect.grafana_port}"]


def test_it_reaches_all_that_it_shows(host: Host, expect: Expect) -> None:
    wanted = {one["uid"] for one in (*expect.grafana_servers, *expect.grafana_log_stores)}
    (listed,) = answers(host, expect, ["/api/datasources"])
    assert {one["uid"] for one in listed["said"]} >= wanted
    uids = sorted(wanted)
    healths = answers(host, expect, [f"/api/datasources/uid/{uid}/health" for uid in uids])
    found = {uid: one["status"] for uid, one in zip(uids, healths, strict=True)}
    assert found == dict.fromkeys(uids, 200)


def test_it_has_every_dashboard(host: Host, expect: Expect) -> None:
    shown = host.run(f"ls {FOLDER}/dashboards").stdout.split()
    (found,) = answers(host, expect, ["/api/search?type=dash-db&tag=causeway"])
    assert {f"{one['uid']}.json" for one in found["said"]} == set(shown)


def test_secrets_are_its_own_to_read(host: Host) -> None:
    for name in ("key.pem", "admin-password", "secret-key"):
        file = host.file(f"{FOLDER}/{name}")
        assert (file.user, file.group, file.mode) == ("root", "grafana", 0o640), name


def test_it_comes_back(host: Host) -> None:
    shown = host.run(
        "systemctl show -P Restart -P UnitFileState -P ActiveState grafana-server"
    ).stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]
