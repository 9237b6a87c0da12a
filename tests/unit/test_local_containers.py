"""Container nodes: what podman's own faults must not spoil."""

from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.providers.local import containers


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A podman that refuses as often as the file says, as it does after a `podman run` that was killed."""
    left = tmp_path / "left"
    podman = tmp_path / "podman"
    podman.write_text(
        f'#!/bin/sh\nn=$(cat {left})\n[ "$n" -gt 0 ] || exit 0\n'
        f"echo $((n - 1)) > {left}\necho shm: device or resource busy >&2\nexit 125\n"
    )
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return left


def test_what_podman_removes_at_the_second_try_only_is_removed(busy: Path) -> None:
    busy.write_text("1")
    containers.discard("cw-s-a-0")
    assert busy.read_text().strip() == "0"


def test_what_podman_never_removes_is_said(busy: Path) -> None:
    busy.write_text("100")
    with pytest.raises(CausewayError, match="resource busy"):
        containers.discard("cw-s-a-0")
