"""When the client of a mount is replaced for another key."""

import os
import time
from pathlib import Path

import pytest

from tests.loaded import load

PROGRAM = load(Path(__file__).resolve().parents[2] / "roles/ceph_client/files/causeway_cephfs.py")
UNIT = "causeway-cephfs-train-datasets.service"


@pytest.mark.parametrize(
    ("process", "age_s", "older"), [(True, 3600, False), (True, -1, True), (False, -1, False)]
)
def test_one_with_an_older_key_is_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process: bool, age_s: int, older: bool
) -> None:
    began = PROGRAM.began(os.getpid())
    assert 0 < time.time() - began < 86400
    keyring = tmp_path / "keyring"
    keyring.touch()
    os.utime(keyring, (began - age_s, began - age_s))
    monkeypatch.setattr(PROGRAM, "STAGING", tmp_path / "staging")
    monkeypatch.setattr(PROGRAM, "main_process", lambda _unit: os.getpid() if process else 0)
    for _ in range(2):
        assert PROGRAM.is_older(UNIT, keyring) == older


def test_a_clock_that_was_set_back_has_no_client_replaced_at_each_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyring, client, ahead = tmp_path / "keyring", [4], time.time() + 3600
    monkeypatch.setattr(PROGRAM, "STAGING", tmp_path / "staging")
    monkeypatch.setattr(PROGRAM, "main_process", lambda _unit: client[-1])
    monkeypatch.setattr(PROGRAM, "ticks_of", lambda process: process * 100)

    def written(text: str) -> None:
        keyring.write_text(text)
        os.utime(keyring, (ahead, ahead))

    written("one key")
    assert PROGRAM.is_older(UNIT, keyring)
    assert PROGRAM.is_older(UNIT, keyring), "nobody has replaced it yet"
    client.append(5)
    assert not PROGRAM.is_older(UNIT, keyring), "it came after the key"
    written("another key")
    assert PROGRAM.is_older(UNIT, keyring)
    client.append(6)
    assert not PROGRAM.is_older(UNIT, keyring)
