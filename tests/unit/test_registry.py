"""A region's registry: who is asked for images in which order, and what goes from it by itself."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import capabilities
from infra.capabilities.containers.section import ContainersSection
from infra.declaration import ClusterSpec
from infra.ground.contract import Contract
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load

PROGRAM = Path(__file__).resolve().parents[2] / "roles/registry/files/causeway_registry.py"
registry = load(PROGRAM)
HUB = {"name": "docker.io", "url": "https://registry-1.docker.io"}
WEST: dict[str, Any] = {
    "name": "images.west",
    "region": "west",
    "pool": "control",
    "push": {"password_secret": "push"},
    "caches": [HUB],
}
EAST: dict[str, Any] = {"name": "images.east", "region": "east", "pool": "control", "caches": [HUB]}
DAY = 86_400.0


def contract(*registries: dict[str, Any], runtime: dict[str, Any] | None = None) -> Contract:
    regions = [
        {
            "name": name,
            "cidr": f"10.8{number}.0.0/16",
            "pools": [
                {"name": "control", "role": "control", "count": 2},
                {"name": "nodes", "role": "storage", "count": 1, "container_runtime": runtime or {}},
            ],
        }
        for number, name in enumerate(("west", "east", "south"))
    ]
    spec = ClusterSpec.model_validate({"name": "c", "regions": regions, "registries": registries})
    return build_contract(spec, make_plan(spec), "s")


def asked(found: Contract, region: str) -> dict[str, list[str]]:
    """Registry → who is asked for its images, in order, by the names of nodes."""
    names = {f"{host.address}:5000": name for name, host in found.hosts.items()}
    entries = role_variables(found)[f"pool_{region}_nodes"]["container_runtime_registries"]

    def readable(place: str) -> str:
        host, _, path = place.partition("/")
        return f"{names.get(host, host)}/{path}".rstrip("/")

    return {
        one["name"]: [readable(place) for place in (*one["mirrors"], one.get("server", one["name"]))]
        for one in entries
    }


def test_the_own_region_is_asked_first_then_the_others_then_the_registry_itself() -> None:
    found = contract(WEST, EAST)
    assert asked(found, "west") == {
        "docker.io": ["west-control-0/docker.io", "east-control-0/docker.io", "docker.io"],
        "images.west": ["west-control-0", "east-control-0/images.west", "west-control-0"],
    }
    assert asked(found, "east") == {
        "docker.io": ["east-control-0/docker.io", "west-control-0/docker.io", "docker.io"],
        "images.west": ["east-control-0/images.west", "west-control-0"],
    }
    assert asked(found, "south")["images.west"] == ["east-control-0/images.west", "west-control-0"]


def test_declared_mirrors_come_after_the_clusters_own() -> None:
    runtime = {
        "registries": [{"name": "docker.io", "mirrors": ["mirror.example.org/hub"], "ca_file": "keys/m"}]
    }
    found = contract(WEST, runtime=runtime)
    assert asked(found, "west")["docker.io"] == [
        "west-control-0/docker.io",
        "mirror.example.org/hub",
        "docker.io",
    ]
    (hub,) = (
        one
        for one in role_variables(found)["pool_west_nodes"]["container_runtime_registries"]
        if one["name"] == "docker.io"
    )
    assert hub["authority"].endswith("/keys/m")


def test_a_registry_keeps_what_other_regions_have_of_their_own_and_nothing_of_those_without() -> None:
    told = capabilities.host_variables(contract(WEST, EAST))
    assert [one["name"] for one in told["east-control-0"]["registry_peers"]] == ["images.west"]
    assert told["west-control-0"]["registry_peers"] == []
    assert "registry_push_username" not in told["east-control-0"]


def test_alerts_know_which_hosts_say_how_a_registry_is() -> None:
    found = contract(WEST, EAST)
    for region in ("west", "east"):
        (one,) = found.need(ContainersSection).declared(found, region)
        assert (one.name, one.value, one.labels) == ("registry", 1, {"instance": f"{region}-control-0"})


def test_secrets_are_read_where_they_are_needed() -> None:
    found = contract(WEST, EAST)
    section = found.need(ContainersSection)
    assert section.secrets() == {"registry-ca": "authority", "given-push": "given"}
    role = capabilities.roles()["registry"]
    assert "given-push" in role.secrets(found, "west-control-0")
    assert "given-push" not in role.secrets(found, "east-control-0")
    assert capabilities.roles()["container_runtime"].secrets(found, "west-nodes-0") == {
        "registry-ca": "authority"
    }
    assert capabilities.roles()["container_runtime"].secrets(contract(), "west-nodes-0") == {}


# What goes


class Store:
    """Images as distribution keeps them, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.images = folder / "images"
        self.top = self.images / "docker" / "registry" / "v2"
        self.collected = folder / "collected"

    def push(self, repository: str, content: dict[str, Any], tag: str = "", age_d: float = 0) -> str:
        """A manifest's digest."""
        raw = json.dumps(content).encode()
        name = hashlib.sha256(raw).hexdigest()
        digest = f"sha256:{name}"
        self._write(self.top / "blobs" / "sha256" / name[:2] / name / "data", raw)
        manifests = self.top / "repositories" / repository / "_manifests"
        self._write(manifests / "revisions" / "sha256" / name / "link", digest.encode())
        if tag:
            current = manifests / "tags" / tag / "current" / "link"
            self._write(current, digest.encode())
            self._write(manifests / "tags" / tag / "index" / "sha256" / name / "link", digest.encode())
            then = registry.time.time() - age_d * DAY
            os.utime(current, (then, then))
        return digest

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def has(self, repository: str) -> set[str]:
        """The digests that can be pulled."""
        folder = self.top / "repositories" / repository / "_manifests" / "revisions" / "sha256"
        return {f"sha256:{one.name}" for one in folder.iterdir() if (one / "link").exists()}

    def tags(self, repository: str) -> set[str]:
        folder = self.top / "repositories" / repository / "_manifests" / "tags"
        return {one.name for one in folder.iterdir()}

    def retain(
        self, monkeypatch: pytest.MonkeyPatch, later_d: float = 0, jump_d: float = 0, **more: Any
    ) -> int:
        """Run it as it will be so many days from now, by a clock that is so many days ahead."""
        now, running_s = registry.time.time(), registry.time.monotonic()

        def collect(*_words: object, **_how: object) -> None:
            self.collected.touch()

        with monkeypatch.context() as patched:
            patched.setattr(registry.time, "time", lambda: now + (later_d + jump_d) * DAY)
            patched.setattr(registry.time, "clock_gettime", lambda _which: running_s + later_d * DAY)
            patched.setattr(registry.subprocess, "run", collect)
            words = {"images": str(self.images), "configuration": "c", "untagged_days": 2, "tagged_days": 0}
            return int(registry.retain(words | more))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_what_lost_its_tag_goes_after_its_days_and_not_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.push("team/app", {"n": 1}, "latest", age_d=400)
    assert store.retain(monkeypatch) == 0
    new = store.push("team/app", {"n": 2}, "latest")
    assert store.retain(monkeypatch) == 0, "its days begin when its tag is lost, however old it is"
    assert store.has("team/app") == {old, new}
    assert store.retain(monkeypatch, later_d=1.9) == 0
    assert store.has("team/app") == {old, new}
    assert store.retain(monkeypatch, later_d=2.1) == 0
    assert store.has("team/app") == {new}
    assert store.collected.exists()


def test_one_that_is_tagged_again_meanwhile_begins_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.push("app", {"n": 1})
    store.retain(monkeypatch)
    store.push("app", {"n": 1}, "v1")
    store.retain(monkeypatch, later_d=1)
    store.push("app", {"n": 2}, "v1")
    store.retain(monkeypatch, later_d=1.5)
    store.retain(monkeypatch, later_d=3)
    assert first in store.has("app")
    store.retain(monkeypatch, later_d=4)
    assert first not in store.has("app")


def test_the_images_of_an_index_and_what_is_about_them_stay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {store.push("app", {"arch": arch}) for arch in ("amd64", "arm64")}
    index = store.push("app", {"manifests": [{"digest": digest} for digest in sorted(parts)]}, "v1")
    signature = store.push("app", {"subject": {"digest": index}})
    alone = store.push("app", {"n": 1})
    for day in (0, 3):
        assert store.retain(monkeypatch, later_d=day) == 0
    assert store.has("app") == {index, signature, *parts}
    assert alone not in store.has("app")


def test_old_tags_go_where_that_is_declared(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.push("app", {"n": 1}, "old", age_d=91)
    store.push("app", {"n": 2}, "new", age_d=89)
    store.retain(monkeypatch)
    assert store.tags("app") == {"old", "new"}
    store.retain(monkeypatch, tagged_days=90)
    assert store.tags("app") == {"new"}


def test_a_clock_that_jumps_makes_nothing_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.push("app", {"n": 1}, "v1")
    bare = store.push("app", {"n": 2})
    store.retain(monkeypatch, tagged_days=90)
    store.retain(monkeypatch, tagged_days=90, later_d=1, jump_d=400)
    store.retain(monkeypatch, tagged_days=90, later_d=2.5, jump_d=400)
    assert (store.tags("app"), bare in store.has("app")) == ({"v1"}, True)
    store.retain(monkeypatch, tagged_days=90, later_d=3.1, jump_d=400)
    assert (store.tags("app"), bare in store.has("app")) == ({"v1"}, False)
    store.retain(monkeypatch, tagged_days=90, later_d=92, jump_d=400)
    assert store.tags("app") == set()


def test_what_cannot_be_read_has_nothing_taken_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    index = store.push("app", {"manifests": []}, "v1").removeprefix("sha256:")
    (store.top / "blobs" / "sha256" / index[:2] / index / "data").write_bytes(b"{")
    alone = store.push("app", {"n": 1})
    for day in (0, 9):
        assert store.retain(monkeypatch, later_d=day) == 1
    assert alone in store.has("app")
    assert not store.collected.exists(), "a blob may be one that it names"
    assert not (store.images / "causeway-retained").exists()


def test_an_empty_registry_is_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.retain(monkeypatch) == 0
    assert (store.images / "causeway-retained").exists()


class KilledError(Exception):
    """As if the power went."""


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.tuples(st.sampled_from(["a", "b/c"]), st.booleans(), st.integers(0, 9)), max_size=8),
    cut=st.integers(0, 12),
)
def test_a_run_that_is_killed_anywhere_leaves_what_is_tagged_and_is_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, shape: list[tuple[str, bool, int]], cut: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    wanted: dict[str, set[str]] = {"a": set(), "b/c": set()}
    for repository, tagged, number in shape:
        digest = store.push(repository, {"n": number}, f"v{number}" if tagged else "")
        if tagged:
            wanted[repository].add(digest)
    left = cut
    remove = shutil.rmtree

    def killed(path: Path) -> None:
        nonlocal left
        if left == 0:
            raise KilledError
        left -= 1
        remove(path)

    with pytest.MonkeyPatch.context() as patched:
        store.retain(patched)
        with patched.context() as inner:
            inner.setattr(registry.shutil, "rmtree", killed)
            with contextlib.suppress(KilledError):
                store.retain(patched, later_d=3)
        for repository, digests in wanted.items():
            assert digests <= (store.has(repository) if _is_there(store, repository) else set())
        assert store.retain(patched, later_d=3) == 0
    for repository, digests in wanted.items():
        assert (store.has(repository) if _is_there(store, repository) else set()) == digests


def _is_there(store: Store, repository: str) -> bool:
    return (store.top / "repositories" / repository / "_manifests" / "revisions").is_dir()


# Who pushes


def line(monkeypatch: pytest.MonkeyPatch, user: str, password: str, authority: Path) -> str:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(password.encode())))
    return str(registry.password(user, authority))


def test_a_password_has_one_line_in_a_stack_and_another_one_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = tmp_path / "authority.pem", tmp_path / "other.pem"
    authority.write_text("one")
    other.write_text("another")
    first = line(monkeypatch, "push", "sesame", authority)
    assert first.startswith("push:$2b$10$")
    assert line(monkeypatch, "push", "sesame\n", authority) == first, "a line's end is none of it"
    hashes = {
        line(monkeypatch, *words).partition(":")[2]
        for words in (
            ("push", "sesame", authority),
            ("push", "sesame2", authority),
            ("other", "sesame", authority),
            ("push", "sesame", other),
        )
    }
    assert len(hashes) == 4
    salts = {text[:28] for text in hashes}
    assert len(salts) == 3, "a salt tells nothing of the password"


def test_metrics_say_who_answers_and_when_it_was_retained(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    told = registry.metrics({"images": str(tmp_path / "images"), "sockets": {"pull": str(tmp_path / "no")}})
    assert 'causeway_registry_up{process="pull"} 0\n' in told
    assert "causeway_registry_retained_timestamp_seconds 0\n" in told
    free = int(told.partition("free_bytes ")[2].partition("\n")[0])
    assert 0 < free <= int(told.partition("size_bytes ")[2].partition("\n")[0])
