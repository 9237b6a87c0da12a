"""What no image may hold is found where it lies, and what packages bring is not taken for it."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from infra import ROOT
from infra.images.node.leaks import leaks

PROGRAM = ROOT / "infra" / "images" / "node" / "leaks.py"
KEY = "-----BEGIN {}PRIVATE KEY-----\nAAAA\n"  # gitleaks:allow
PROXY = "http://me:hidden@proxy.example:3128"


def plant(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/ssl/private/own.key", KEY.format("")),
        ("var/lib/service/tls.pem", f"-----BEGIN CERTIFICATE-----\n{KEY.format('RSA ')}"),
        ("home/me/.ssh/id_ed25519", KEY.format("OPENSSH ")),
        ("opt/program/key.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n"),
        ("etc/ssh/ssh_host_ecdsa_key.pub", "ecdsa-sha2-nistp256 AAAA\n"),
        ("root/.ssh/authorized_keys", "ssh-ed25519 AAAA\n"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("etc/shadow", "daemon:*:1:::::: \nroot:$y$j9T$x$y:1::::::\n"),
        ("var/cache/debconf/passwords.dat", "Name: a/password\nValue: hidden\n"),
        ("etc/apt/auth.conf.d/mirror.conf", "machine mirror.example login me password hidden\n"),
        ("etc/apt/apt.conf.d/99proxy", f'Acquire::http::Proxy "{PROXY}";\n'),
        ("etc/environment", f"https_proxy={PROXY}\n"),
        ("var/log/install", f"asked {PROXY}/debian\n"),
    ],
)
def test_a_secret_is_found_and_not_told(tmp_path: Path, path: str, text: str) -> None:
    plant(tmp_path, path, text)
    assert [*leaks(tmp_path)] == [f"/{path}"]
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"/{path} holds ")
    assert "hidden" not in done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("usr/lib/python3/test/key.pem", KEY.format("")),
        ("usr/share/doc/apt/examples/auth.conf", "machine a login b password c\n"),
        ("etc/ssl/certs/authority.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n"),
        ("etc/machine-id", ""),
        ("etc/machine-id", "uninitialized\n"),
        ("etc/shadow", "root:*:1::::::\nsync:!:1::::::\nme:!*:1::::::\nyou::1::::::\n"),
        ("var/cache/debconf/passwords.dat", "Name: a/password\nTemplate: b\nValue:\nOwners: c\n"),
        ("etc/apt/apt.conf.d/99proxy", f'# "{PROXY}"\nAcquire::http::Proxy "http://proxy.example:3128";\n'),
        ("etc/fstab", "host:/path /mnt nfs me@host\n"),
        ("var/lib/apt/lists/a_Packages", f"Description: {PROXY}\n"),
    ],
)
def test_what_packages_bring_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    plant(tmp_path, path, text)
    monkeypatch.setattr(sys, "argv", ["leaks.py", str(tmp_path)])
    runpy.run_path(str(PROGRAM), run_name="__main__")


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """A link to a file of the machine that looks: what counts is in the image."""
    secret = plant(tmp_path, "elsewhere/key", KEY.format(""))
    (tmp_path / "image" / "etc").mkdir(parents=True)
    (tmp_path / "image" / "etc" / "key").symlink_to(secret)
    (tmp_path / "image" / "etc" / "gone").symlink_to("nowhere")
    assert leaks(tmp_path / "image") == {}
