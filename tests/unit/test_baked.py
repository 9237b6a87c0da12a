"""Baked images beside podman: who may remove them, what killed runs left, and whether one is whole."""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from infra.commands import image as command
from infra.errors import BadInputError
from infra.files import checksum
from infra.images import build
from infra.providers.local import baked, containers, image, names, nodes, resources, root, signing
from infra.providers.local.baked import Baked, DamagedError

NAME, OTHER = "0123456789ab", "ba9876543210"
DATE = 1_700_000_000


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What podman was asked, instead of a real one that has nothing; the images' folder is the test's."""
    commands: list[Sequence[str]] = []

    def run(argv: Sequence[str], **_: Any) -> str:
        commands.append(argv[1:])
        return ""

    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.setattr(names, "VM_DIR", tmp_path / "vms")
    monkeypatch.setattr(names, "RUN_DIR", tmp_path / "run")
    monkeypatch.delenv(signing.GIVEN, raising=False)
    monkeypatch.setattr(baked, "run", run)
    return commands


def folder_of(name: str) -> Path:
    """A folder beside the images, with a file in it."""
    path = baked.folders() / name
    path.mkdir()
    (path / baked.FILES).touch()
    return path


def killed_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to remove an image, and be killed before podman's copy is gone."""
    folder_of(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(baked, "_remove_rest", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            baked.remove(NAME)


def test_a_killed_removal_is_finished_and_half_made_things_go(
    asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_removal(monkeypatch)
    kept = folder_of(OTHER)
    folder_of(f".{OTHER}{baked.PART}")
    assert len(list(baked.folders().iterdir())) == 3
    with baked.locked(print):
        assert {path.name for path in baked.folders().iterdir()} == {kept.name, "lock"}
    assert ["rmi", "--ignore", baked.tag_of(NAME)] in asked


def test_an_image_that_was_built_anew_stays(
    asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_removal(monkeypatch)
    again = folder_of(NAME)
    monkeypatch.setattr(baked, "users", lambda _: ["local-tokyo-gpu-0"])
    with baked.locked(print):
        assert {path.name for path in baked.folders().iterdir()} == {again.name, "lock"}
    assert not any(command[0] == "rmi" for command in asked)


@pytest.mark.usefixtures("asked")
def test_forms_that_machines_stand_on_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that podman lost and that is built anew; killed anywhere, the disks' ground is there."""
    form = folder_of(NAME) / "vm-1" / "root.ext4"
    form.parent.mkdir()
    form.touch()
    monkeypatch.setattr(signing, "sign", lambda file: Path(f"{file}{signing.SUFFIX}").touch())
    known = tmp_path / "known"
    for files in ("ab", "c"):
        known.mkdir(exist_ok=True)
        for name in (*files, baked.MANIFEST):
            (known / name).write_text(files)
        seen = list[bool]()
        monkeypatch.setattr(Path, "rename", lambda *_, seen=seen: seen.append(False))
        baked.keep(NAME, tmp_path / "root.tar", known)
        assert form.exists()
        assert seen == []
    assert (baked.folder(NAME) / baked.MANIFEST).read_text() == "c"


@pytest.mark.usefixtures("asked")
def test_what_a_node_is_made_from_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    killed_removal(monkeypatch)
    monkeypatch.setattr(baked, "users", lambda _: ["local-tokyo-gpu-0"])
    with baked.locked(print):
        assert (baked.folders() / f".{NAME}{baked.GONE}").exists()


@pytest.mark.usefixtures("asked")
def test_an_image_from_which_something_is_being_made_is_not_removed() -> None:
    folder_of(NAME)
    with baked.in_use(NAME, OTHER), baked.in_use(NAME):
        with pytest.raises(BadInputError, match=f"something is being made from image {NAME}"):
            baked.remove(NAME)
        assert baked.folder(NAME).exists()
    baked.remove(NAME)
    assert not baked.folder(NAME).exists()


def pool_of(**more: Any) -> dict[str, Any]:
    """What the resource of a pool with one node is given."""
    return {
        **{"stack": "lab", "region": "tokyo", "pool": "gpu", "cidr": "10.81.0.0/16", "mtu_bytes": 1500},
        **{"gateway": "10.81.0.1", "image": image.image_tag(), "public_key": "key", "urn": "urn"},
        **{"shm_gib": None, "nodes": {"tokyo-gpu-0": "10.81.32.0"}, "baked": NAME, **more},
    }


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("made_from", [{}, {"tokyo-gpu-0": baked.tag_of(OTHER)}])
def test_nobody_removes_an_image_while_up_makes_nodes(
    monkeypatch: pytest.MonkeyPatch, made_from: dict[str, str]
) -> None:
    """Neither that of new nodes nor those of nodes that stand: one of these may have to be made anew."""
    monkeypatch.setattr(containers, "images", lambda *_: made_from)
    refused = list[str]()

    def reconcile(*_: Any) -> list[nodes.NodeState]:
        for name in (NAME, OTHER):
            folder_of(name)
            try:
                baked.remove(name)
            except BadInputError:
                refused.append(name)
        return [nodes.NodeState("tokyo-gpu-0", IPv4Address("10.81.32.0"), "1", "key", running=True)]

    monkeypatch.setattr(nodes, "reconcile", reconcile)
    resources.NodePoolLifecycle().ensure(pool_of(), {})
    assert refused == [NAME, *([OTHER] if made_from else [])]


@pytest.mark.parametrize(
    ("made_from", "name"),
    [
        (baked.tag_of(NAME), NAME),
        (f"/a:b/baked/{NAME}/vm-0123456789ab", NAME),
        ("localhost/causeway-node:0123456789ab", None),
        ("/cache/images/vm-0123456789ab", None),
        ("", None),
    ],
)
def test_a_baked_image_is_known_by_what_a_node_was_made_from(made_from: str, name: str | None) -> None:
    assert baked.name_in(made_from) == name


class Podman:
    """A podman that several caches share: containers and images with their labels."""

    def __init__(self) -> None:
        self.labels: dict[str, set[str]] = {}
        self.gone: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> str:
        asked = {word.partition("--filter=label=")[2] for word in argv if "--filter=label=" in word}
        if argv[1] in ("ps", "images"):
            found = [one for one, labels in self.labels.items() if asked <= labels]
            return "\n".join(found if asked else [])
        if argv[1] == "rmi":
            self.gone.append(argv[-1])
        return ""


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Podman:
    """In place of the machine's."""
    made = Podman()
    for module in (baked, build):
        monkeypatch.setattr(module, "run", made.run)
    monkeypatch.setattr(containers, "discard", lambda *names: made.gone.extend(names))
    return made


@pytest.mark.usefixtures("asked")
def test_a_killed_build_is_cleared_by_its_own_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, podman: Podman
) -> None:
    """A container of another cache may be one that somebody builds in, and an image of it may be in use."""
    labels = dict[str, str]()
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        monkeypatch.setattr(image, "images_dir", lambda place=place: tmp_path / place)
        labels[place] = baked.own()
        builder = f"builder-{place}", {f"{build.BUILDER_LABEL}", baked.own()}
        half = baked.tag_of(f"{place * 12}"), {baked.own()}
        podman.labels |= dict([builder, half])
    assert labels["a"] != labels["b"]
    with build._only_build(print):
        assert podman.gone == [baked.tag_of("b" * 12), "builder-b"]


@pytest.mark.usefixtures("asked")
def test_what_is_no_image_is_in_nobody_s_way(capsys: pytest.CaptureFixture[str]) -> None:
    (baked.folders() / NAME).write_text("a file of somebody's")
    (folder_of(OTHER) / baked.MANIFEST).mkdir()
    assert baked.stored() == []
    assert baked.find(NAME) is None
    assert [name for name, _ in baked.no_use()] == [OTHER]
    command._list(argparse.Namespace(json=False))
    assert f"{OTHER} is no whole image any more" in capsys.readouterr().out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("missing", sorted(baked.NAMED_IN_IT))
def test_a_manifest_that_lacks_something_is_none(missing: str) -> None:
    manifest: dict[str, Any] = dict.fromkeys(baked.NAMED_IN_IT - {missing, "root"}, "x")
    (folder_of(NAME) / baked.MANIFEST).write_text(
        json.dumps(manifest | ({} if missing == "root" else {"root": {"sha256": "1"}}))
    )
    assert baked._read(NAME, {baked.tag_of(NAME): "1"}) is None
    (baked.folder(NAME) / baked.MANIFEST).write_text(
        json.dumps(manifest | {missing: "x", "root": {"sha256": "1"}})
    )
    assert baked._read(NAME, {baked.tag_of(NAME): "1"})


@pytest.mark.usefixtures("asked")
def test_prune_goes_on_past_what_it_may_not_remove(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NAME, OTHER):
        folder_of(name)
    with baked.in_use(NAME):
        command._prune(argparse.Namespace(days=0))
    assert [path.name for path in baked.folders().iterdir()] == [NAME]
    assert f"image {NAME} stays: something is being made from" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["-1", "nan", "soon", ""])
def test_days_are_a_number_from_nought_up(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no number of days"):
        command._days(text)


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Sequence[str]]) -> Path:
    """The tree of an image that is kept, as podman has it."""
    assert asked == []
    tree, folder = tmp_path / "tree", folder_of(NAME)
    tree.mkdir()
    (tree / "kept").write_text("x")
    (tree / "kept").chmod(0o644)
    tar = tmp_path / "root.tar"
    root.pack(tree, tar, DATE)
    (folder / baked.FILES).write_text("".join(f"{line}\n" for line in root.listing(tar)))
    beside = {baked.FILES: checksum(folder / baked.FILES)}
    manifest = {"source_date": DATE, "root": {"sha256": checksum(tar)}, "beside": beside, "pool": "tokyo-gpu"}
    (folder / baked.MANIFEST).write_text(json.dumps(manifest))
    signing.sign(folder / baked.MANIFEST)

    @contextmanager
    def mounted(_: str) -> Iterator[Path]:
        yield tree

    monkeypatch.setattr(baked, "_mounted", mounted)
    return tree


def kept() -> Baked:
    return Baked(NAME, json.loads((baked.folder(NAME) / baked.MANIFEST).read_text()), 0.0, signed=True)


def test_an_image_is_held_against_what_was_signed_as_nodes_would_find_it(whole: Path) -> None:
    baked.require_whole(kept())
    (whole / "kept").chmod(0o4755)
    (whole / "added").write_text("")
    with pytest.raises(DamagedError, match=r"as it was signed: .*added.*only in what is there, .*kept.*mode"):
        baked.require_whole(kept())


def test_a_manifest_that_was_changed_since_it_was_read_is_found(whole: Path) -> None:
    one = kept()
    (baked.folder(NAME) / baked.MANIFEST).write_text("{}")
    with pytest.raises(DamagedError, match="not signed"):
        baked.require_whole(one)
    assert whole.exists()


def test_new_nodes_start_from_the_plain_image_where_the_baked_one_is_damaged(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "_READ", set[str]())
    monkeypatch.setattr(containers, "images", lambda *_: {})
    monkeypatch.setattr(baked, "stored", lambda: [kept()])
    (node,) = resources._from_images(pool_of())
    assert node.image == baked.tag_of(NAME)
    (whole / "kept").write_text("y")
    (node,) = resources._from_images(pool_of())
    assert node.image == baked.tag_of(NAME), "it is read once in a run"
    resources._READ.clear()
    (node,) = resources._from_images(pool_of())
    assert node.image == image.image_tag()
    assert "start from the plain image: the root of image 0123456789ab is not as" in capsys.readouterr().out
