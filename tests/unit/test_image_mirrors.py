"""A region's mirrors while an image is built: who is asked, that nothing of them stays, and what differs."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infra.images import mirrors
from infra.images.recipe import recipe_of
from infra.providers.local import image
from tests.unit.test_images import contract

POOL = "tokyo-gpu"
MIRROR, SAFE = "http://mirror.example:8080/debian", "https://safe.example/updates"
ARCHIVES = {image.ARCHIVE: MIRROR, image.SECURITY: SAFE}
PARTS = ("InRelease", "main_binary-amd64_Packages")


@pytest.fixture(autouse=True)
def _node_s_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the programs in the builder import of Debian's."""

    def uri_to_filename(url: str) -> str:
        return url.partition("://")[2].replace("_", "%5f").replace("/", "_")

    packages = ModuleType("apt_pkg")
    vars(packages)["uri_to_filename"] = uri_to_filename
    monkeypatch.setitem(sys.modules, "apt_pkg", packages)
    monkeypatch.setitem(sys.modules, "apt", ModuleType("apt"))


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with the files of a node image in the test's own folder."""
    program = importlib.import_module("infra.images.node.mirror")
    for name in ("SOURCES", "LISTS", "CONF", "OWN", "AUTHORITY"):
        monkeypatch.setattr(program, name, tmp_path / name)
    (tmp_path / "SOURCES").write_text("\n\n".join(image.sources("trixie")) + "\n")
    (tmp_path / "LISTS").mkdir()
    for suite in (
        "debian_dists_trixie",
        "debian_dists_trixie-updates",
        "debian-security_dists_trixie-security",
    ):
        for part in PARTS:
            (tmp_path / "LISTS" / f"deb.debian.org_{suite}_{part}").write_text(f"{suite} {part}")
    return program


def as_it_is(folder: Path) -> dict[str, str]:
    found = {file.name: file.read_text() for file in (folder / "LISTS").iterdir()}
    return found | {name: (folder / name).read_text() for name in ("SOURCES",)}


def test_the_lists_stay_and_are_the_mirrors_for_a_while(apt: Any, tmp_path: Path) -> None:
    before = as_it_is(tmp_path)
    apt.use(ARCHIVES, "conf;\n", "authority\n")
    meanwhile = as_it_is(tmp_path)
    assert "debian.org" not in meanwhile["SOURCES"] + "".join(meanwhile)
    assert meanwhile["SOURCES"].split("\n\n")[0] == f"deb {MIRROR} trixie main"
    assert meanwhile["SOURCES"].split("\n\n")[2] == f"deb {SAFE} trixie-security main\n"
    assert meanwhile["mirror.example:8080_debian_dists_trixie_InRelease"] == "debian_dists_trixie InRelease"
    assert (tmp_path / "CONF").read_text() == "conf;\n"
    apt.back()
    assert as_it_is(tmp_path) == before
    assert not (tmp_path / "CONF").exists()


def test_without_mirrors_a_proxy_alone_leaves_the_lists_alone(apt: Any, tmp_path: Path) -> None:
    before = as_it_is(tmp_path)
    apt.use({}, "conf;\n", "")
    assert as_it_is(tmp_path) == before
    apt.back()
    assert as_it_is(tmp_path) == before


def test_lists_of_another_source_at_the_same_mirror_stay_its_own(apt: Any, tmp_path: Path) -> None:
    """A GPU stack's, with another part of the same release, by which apt on a node holds its packages."""
    apt.use(ARCHIVES, "", "")
    theirs = "mirror.example:8080_debian_dists_trixie_"
    (tmp_path / "LISTS" / f"{theirs}non-free_binary-amd64_Packages").write_text("theirs")
    (tmp_path / "LISTS" / f"{theirs}InRelease").write_text("newer")
    apt.back()
    now = as_it_is(tmp_path)
    assert now[f"{theirs}InRelease"] == now["deb.debian.org_debian_dists_trixie_InRelease"] == "newer"
    assert now[f"{theirs}non-free_binary-amd64_Packages"] == "theirs"
    assert f"{theirs}main_binary-amd64_Packages" not in now


def declared(**more: Any) -> dict[str, Any]:
    return mirrors.asked(contract(mirrors=more), POOL)


def test_what_is_declared_for_packages_is_asked(tmp_path: Path) -> None:
    assert mirrors.asked(contract(), POOL) == {}
    assert declared(artefacts="http://mirror.example/programs") == {}
    assert declared(packages=f"{MIRROR}/")["archives"] == {
        image.ARCHIVE: MIRROR,
        image.SECURITY: f"{MIRROR}-security",
    }
    assert declared(packages=MIRROR, security=SAFE)["archives"] == ARCHIVES
    only = declared(proxy="http://proxy.example:3128")
    assert only["archives"] == {}
    assert only["conf"].splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::Proxy "http://proxy.example:3128";',
    ]
    authority = tmp_path / "authority.pem"
    authority.write_text("a certificate\n")
    signed = declared(packages=MIRROR, security=SAFE, ca_file=str(authority))
    assert signed["conf"] == f'Acquire::https::safe.example::CaInfo "{mirrors.AUTHORITY}";\n'
    assert signed["authority"] == "a certificate\n"


def test_who_sends_packages_is_not_part_of_an_image() -> None:
    """They have one checksum, whoever sends them."""
    plain = recipe_of(contract(), POOL)
    assert (
        recipe_of(contract(mirrors={"packages": MIRROR, "proxy": "http://proxy:1"}), POOL).name == plain.name
    )


@dataclass(order=True)
class Version:
    """Of a package, as python-apt has it."""

    version: str
    known: str | None
    origins: tuple[str, ...] = ("archive",)

    @property
    def sha256(self) -> str:
        """KeyError where no list names it any more."""
        if self.known is None:
            raise KeyError("SHA256")
        return self.known


@pytest.mark.parametrize(
    ("now", "skewed"),
    [
        (Version("1", "a"), False),
        (Version("2", "b"), False),
        (Version("2", None), False),
        (Version("2", "other"), True),
        (Version("3", "c"), True),
    ],
)
def test_what_is_not_as_the_lists_had_it_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    now: Any,
    skewed: bool,
) -> None:
    program = importlib.import_module("infra.images.node.packages")
    monkeypatch.setattr(program, "PINS", tmp_path / "pins.json")
    monkeypatch.setattr(program, "ARCHIVES", tmp_path)
    listed = [Version("2", "b"), Version("1", "a")]
    program.check([SimpleNamespace(fullname="chrony", versions=listed, installed=None)])
    new = SimpleNamespace(fullname="nvidia-smi", versions=[], installed=Version("550", "x"))
    program.skew([SimpleNamespace(fullname="chrony", versions=[], installed=now), new])
    rows = [{"name": "chrony", "version": now.version, "listed": "2"}] if skewed else []
    assert capsys.readouterr().out == program.json.dumps(rows)
