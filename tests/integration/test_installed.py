"""What `pip install <checkout>` gives: the commands that need no stack, for a user without rights, offline.

The package is built and installed by a user who may do nothing else, into an empty environment. Then the
checkout that it came from is taken away, and so is the network.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.cli import all_commands

ROOT = Path(__file__).resolve().parents[2]
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups")
SYSTEMS_PYTHON = "/usr/bin/python3"
INSTALL_LIMIT_S, LIMIT_S = 300, 60
DECLARATIONS = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("examples/*.yaml"), *ROOT.glob("Pulumi.*.yaml"))
)
OFFLINE = {"check", "init", "plan", "schema", "switch"}
"""What works without a checkout; every other command says what it needs."""


def words_for(name: str) -> list[str]:
    """What makes a command go as far as it can."""
    return [name, "--help"] if name in OFFLINE else [name]


def run_as_nobody(
    words: list[str], folder: Path, *, limit_s: float = LIMIT_S, network: bool = False
) -> "subprocess.CompletedProcess[str]":
    alone = () if network else ("unshare", "--net")
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run(
        [*alone, *AS_NOBODY, *words],
        cwd=folder,
        env={**kept, "HOME": str(folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )


def copy_checkout(folder: Path) -> None:
    """The checkout as git would hand it out, with what is not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder of nobody's: `venv` with the package, `here` with the declarations, and no checkout."""
    # Not pytest's: those are closed to others.
    with tempfile.TemporaryDirectory(prefix="causeway-installed-", dir="/var/tmp") as name:
        folder = Path(name)
        copy_checkout(folder / "checkout")
        for declaration in DECLARATIONS:
            (folder / "here" / declaration).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / declaration, folder / "here" / declaration)
        subprocess.run(
            ["chown", "-R", f"{NOBODY.pw_uid}:{NOBODY.pw_gid}", folder], check=True, timeout=LIMIT_S
        )
        pip = str(folder / "venv" / "bin" / "pip")
        venv = [SYSTEMS_PYTHON, "-m", "venv", str(folder / "venv")]
        made = run_as_nobody(venv, folder, limit_s=INSTALL_LIMIT_S)
        assert made.returncode == 0, made.stderr
        asked = [pip, "download", "--no-deps", "--quiet", "--dest", str(folder / "asked"), "hatchling"]
        if (index := run_as_nobody(asked, folder, limit_s=INSTALL_LIMIT_S, network=True)).returncode:
            # No wheel of the build system or of pydantic comes with the checkout or with ./run's environment.
            pytest.skip(f"no package index answers, which pip needs: {index.stderr.strip()[-200:]}")
        install = [pip, "install", "--quiet", str(folder / "checkout")]
        done = run_as_nobody(install, folder, limit_s=INSTALL_LIMIT_S, network=True)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(folder / "checkout")
        yield folder


def installed(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_as_nobody([str(place / "venv" / "bin" / "causeway"), *words], place / "here")


def of_the_checkout(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "infra.cli", *words],
        cwd=place / "here",
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize(
    "words",
    [
        *(["check", name] for name in DECLARATIONS),
        ["check", *DECLARATIONS],
        *(["plan", name] for name in DECLARATIONS),
        *(["plan", name, "--json"] for name in DECLARATIONS),
        ["check"],
        ["schema"],
        ["--version"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_it_says_what_the_checkout_says(place: Path, words: list[str]) -> None:
    theirs, ours = installed(place, *words), of_the_checkout(place, *words)
    assert (ours.returncode, theirs.returncode) == (0, 0), theirs.stderr
    said = theirs.stdout.replace("Pulumi.local.yaml", "") if words == ["check"] else theirs.stdout
    meant = ours.stdout.replace(str(ROOT / "Pulumi.local.yaml"), "") if words == ["check"] else ours.stdout
    assert said == meant
    assert len(theirs.stdout) > 10


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_works_or_says_in_a_sentence_what_it_needs(place: Path, name: str) -> None:
    done = installed(place, *words_for(name))
    if name in OFFLINE:
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert (done.returncode, done.stdout) == (1, "")
    sentence, hint = done.stderr.splitlines()
    assert sentence.startswith(f"`causeway {name}` works on a stack, for which a checkout is needed")
    assert hint.endswith(f"./run exec causeway {name}")


def test_nothing_of_a_stack_came_along(place: Path) -> None:
    listed = run_as_nobody([str(place / "venv" / "bin" / "pip"), "list", "--format=freeze"], place)
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert "causeway" in names
    assert not names & {"pulumi", "ansible", "ansible-core", "ansible-runner", "asyncssh", "mitogen"}
