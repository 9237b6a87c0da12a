"""When the client of a mount is replaced for another key."""

import os
import time
from pathlib import Path

import pytest

from tests.loaded import load

PROGRAM = load(Path(__file__).resolve().parents[2] / "roles/ceph_client/files/causeway_cephfs.py")
UNIT = "causeway-cephfs-train-datasets.service"


@pytest.mark.parametrize(("process", "age_s", "told"), [(True, 3600, 0), (True, -1, 1), (False, -1, 0)])
def test_one_with_an_older_key_is_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process: bool, age_s: int, told: int
) -> None:
    began = PROGRAM.began(os.getpid())
    assert 0 < time.time() - began < 86400
    keyring = tmp_path / "keyring"
    keyring.touch()
    os.utime(keyring, (began - age_s, began - age_s))
    reloads: list[tuple[str, ...]] = []
    monkeypatch.setattr(PROGRAM, "main_process", lambda _unit: os.getpid() if process else 0)
    monkeypatch.setattr(PROGRAM.subprocess, "run", lambda argv, **_: reloads.append(argv))
    PROGRAM.renew(UNIT, keyring)
    assert reloads == [("systemctl", "reload", UNIT)] * told
