"""Signatures of images: whose they are, what they are over, and what becomes of a changed byte."""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import image, signing

ON_DISK = settings(
    deadline=timedelta(seconds=10),  # each example starts a program
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.delenv(signing.GIVEN, raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A signed file."""
    path = tmp_path / "manifest.json"
    path.write_text('{"root": 1}\n')
    signing.sign(path)
    return path


def new_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True, timeout=60
    )
    return path


@ON_DISK
@given(said=TEXTS, changed=TEXTS)
def test_a_signature_is_over_every_byte(tmp_path: Path, said: str, changed: str) -> None:
    path = tmp_path / "any"
    path.write_text(said)
    signing.sign(path)
    assert signing.is_signed(path)
    path.write_text(changed)
    assert signing.is_signed(path) == (said == changed)


def test_a_key_without_its_public_half_stays_and_gets_it_back(manifest: Path) -> None:
    key, public = signing.key_file().read_text(), signing.public_file().read_text()
    signing.public_file().unlink()
    signing.sign(manifest)
    assert (signing.key_file().read_text(), signing.public_file().read_text()) == (key, public)
    signing.public_file().unlink()
    signing.key_file().write_text(key[:90])
    with pytest.raises(CausewayError, match="ssh-keygen"):
        signing.sign(manifest)
    assert signing.key_file().read_text() == key[:90], "whatever it is, somebody may need it"
    assert not list(signing.key_file().parent.glob(".key-*"))


def test_what_has_no_signature_is_not_signed(manifest: Path) -> None:
    Path(f"{manifest}{signing.SUFFIX}").unlink()
    assert not signing.is_signed(manifest)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"\xff\xfe")])
def test_what_is_gone_or_no_text_is_not_signed(manifest: Path, harm: Any) -> None:
    harm(manifest)
    assert not signing.is_signed(manifest)


def test_what_is_no_signature_is_none(manifest: Path) -> None:
    Path(f"{manifest}{signing.SUFFIX}").write_text("-----BEGIN SSH SIGNATURE-----\n")
    assert not signing.is_signed(manifest)


def test_another_key_s_signature_counts_for_nothing(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(signing.GIVEN, str(new_key(tmp_path / "other")))
    assert not signing.is_signed(manifest)
    signing.sign(manifest)
    assert signing.is_signed(manifest)
    monkeypatch.delenv(signing.GIVEN)
    assert not signing.is_signed(manifest)


def test_a_signature_for_another_purpose_counts_for_nothing(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "NAMESPACE", "git")
    signing.sign(manifest)
    monkeypatch.undo()
    monkeypatch.setattr(image, "images_dir", lambda: manifest.parent)
    assert not signing.is_signed(manifest)


def test_one_process_asks_once_about_what_stays_the_same(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def noted(argv: Sequence[str], **more: Any) -> str:
        asked.append(argv)
        return run(argv, **more)

    monkeypatch.setattr(signing, "run", noted)
    with ThreadPoolExecutor(4) as pools:
        assert all(pools.map(signing.is_signed, [manifest] * 8))
    assert len(asked) == 1
    said = manifest.read_text()
    manifest.write_text(f"{said} ")
    assert not signing.is_signed(manifest)
    manifest.write_text(said)
    assert signing.is_signed(manifest)
    assert len(asked) == 2


def test_the_machine_s_key_is_made_once_and_only_its_owner_reads_it(manifest: Path) -> None:
    key = signing.key_file()
    before = key.read_bytes()
    signing.sign(manifest)
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (before, 0o600)


def test_a_key_whose_making_was_cut_short_is_made_anew(manifest: Path) -> None:
    signing.public_file().unlink()
    assert not signing.is_signed(manifest)
    signing.sign(manifest)
    assert signing.is_signed(manifest)


def test_a_given_key_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.GIVEN, str(tmp_path / "none"))
    with pytest.raises(CausewayError, match=f"there is no {tmp_path}/none"):
        signing.require_working_key()


def test_a_key_with_a_passphrase_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.GIVEN, str(new_key(tmp_path / "locked", "secret")))
    with pytest.raises(CausewayError) as caught:
        signing.require_working_key()
    assert "agent" in caught.value.hint
    assert "secret" not in str(caught.value)
