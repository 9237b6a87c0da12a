"""Users of object storage: as declared after one run, and barred once they are declared no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra import ROOT
from tests.loaded import load

FOLDER = ROOT / "roles/ceph/files/causeway_ceph"
UNSET = {"enabled": False, "check_on_raw": False, "max_size": -1, "max_size_kb": 0, "max_objects": -1}


class Gateways:
    """What `radosgw-admin` keeps and prints, as far as the role asks (RGWQuotaInfo in Ceph's src/rgw)."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}

    def __call__(self, *words: str, stdin: str = "") -> str:
        what = words[:2]
        if what == ("user", "list"):
            return json.dumps(list(self.users))
        if what == ("user", "create"):
            self.users[words[3]] = {"keys": [], "suspended": 0, "user_quota": dict(UNSET)}
        elif what == ("user", "suspend"):
            self.users[words[3]]["suspended"] = 1
        elif what == ("metadata", "put"):
            self.users[words[2].partition(":")[2]] = json.loads(stdin)["data"]
        else:
            data = self.users[words[2].partition(":")[2]]
            quota = data["user_quota"]
            quota["max_size_kb"] = (quota["max_size"] + 1023) // 1024
            return json.dumps({"key": words[2], "data": data})
        return ""

    def open_to(self) -> dict[str, int]:
        """Who may come in, and what they may hold in bytes; -1 for anything."""
        there = {name: data for name, data in self.users.items() if not data["suspended"]}
        return {name: data["user_quota"]["max_size"] for name, data in there.items()}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    found = load(FOLDER / "cluster.py")
    monkeypatch.setattr(found, "USERS", tmp_path / "users.json")
    monkeypatch.setattr(found.shutil, "which", lambda _name: "/usr/bin/radosgw-admin")
    return found


def converged(cluster: Any, gateways: Gateways, quotas: dict[str, int]) -> list[str]:
    """What a run changes where these users are declared, with what they may hold in bytes; 0 for anything."""
    cluster.s3 = gateways
    one = {"access_key": "x", "secret_key": "a/b+c="}
    cluster.USERS.write_text(
        json.dumps({name: {**one, "quota_bytes": size} for name, size in quotas.items()})
    )
    wanted = cluster.Wanted(lambda *_, **__: [{"pool_name": cluster.USERS_AT[0]}], {})
    wanted.users()
    return list(wanted.changes)


@given(st.lists(st.floats(0.001, 1e6) | st.just(0.0), min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_second_run_changes_no_quota(cluster: Any, quotas_gib: list[float]) -> None:
    """Whatever is declared in GiB: Ceph says it in KiB as well, and rounds that."""
    gateways = Gateways()
    quotas = {f"export.{number}": int(gib * 1024**3) for number, gib in enumerate(quotas_gib)}
    assert converged(cluster, gateways, quotas)
    assert converged(cluster, gateways, quotas) == []
    assert gateways.open_to() == {name: size or -1 for name, size in quotas.items()}


def test_who_is_declared_no_more_is_barred_also_the_last_one(cluster: Any) -> None:
    gateways = Gateways()
    gateways("user", "create", "--uid", "somebodys")
    converged(cluster, gateways, {"export.a": 0, "export.b": 0})
    assert converged(cluster, gateways, {"export.a": 0}) == ["user export.b barred"]
    assert converged(cluster, gateways, {}) == ["user export.a barred"]
    assert converged(cluster, gateways, {}) == []
    assert gateways.open_to() == {"somebodys": -1}
    converged(cluster, gateways, {"export.a": 0})
    assert gateways.open_to() == {"somebodys": -1, "export.a": -1}


def test_where_there_were_never_any_nothing_is_asked(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "s3", None)
    for text in (None, "{}"):
        if text:
            cluster.USERS.write_text(text)
        wanted = cluster.Wanted(lambda *_, **__: [], {})
        wanted.users()
        assert wanted.changes == []
