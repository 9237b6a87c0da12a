"""What `./run` does with its words. These tests run inside it, so the machine is set up already."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "run"


def run(
    *words: str, folder: Path = Path("/"), env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [RUN, *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("bogus",), ("exec",), ("up", "a", "--measure", "b")])
def test_words_it_does_not_know_are_bad_input_with_the_usage(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "usage: ./run COMMAND" in done.stderr


def test_up_hands_its_options_on() -> None:
    done = run("up", "--measure", "no-such-stack")
    assert (done.returncode, "no-such-stack" in done.stderr) == (2, True), done.stderr
    done = run("up", "--no-such-option")
    assert (done.returncode, "--no-such-option" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("command", ["up", "down"])
def test_an_empty_name_is_no_stack_and_not_the_default_one(command: str) -> None:
    done = run(command, "")
    assert (done.returncode, "''" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_is_the_one_of_the_package(word: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(word).stdout == run("exec", "causeway", "--version").stdout == f"causeway {version}\n"


def test_help_names_every_command() -> None:
    done = run("help")
    assert done.returncode == 0
    assert all(
        f"  {command} " in done.stdout for command in ("up", "down", "test", "exec", "help", "version")
    )


def test_exec_keeps_arguments_directory_and_exit_status(tmp_path: Path) -> None:
    done = run("exec", "sh", "-c", 'printf "%s|" "$PWD" "$@"; exit 7', "sh", "a b", "", "*", folder=tmp_path)
    assert done.stdout == f"{tmp_path}|a b||*|"
    assert done.returncode == 7


def test_exec_of_a_command_that_is_not_there_says_so() -> None:
    done = run("exec", "no-such-command")
    assert done.returncode == 2
    assert "no-such-command: no such command" in done.stderr


def test_exec_finds_the_project_s_tools_and_not_the_system_s() -> None:
    done = run("exec", "sh", "-c", "for tool in python pulumi causeway molecule; do command -v $tool; done")
    python, pulumi, causeway, molecule = done.stdout.splitlines()
    assert causeway == str(RUN.parent / "toolchain" / "bin" / "causeway")
    assert Path(molecule).parent == Path(python).parent
    assert (Path(python).parent.parent / ".complete").exists()
    assert os.access(pulumi, os.X_OK)


def test_the_environment_tells_pulumi_what_is_installed() -> None:
    done = run("exec", "python", "-m", "pip", "list", "-v", "--format", "json")
    assert "pulumi" in {package["name"] for package in json.loads(done.stdout)}


def test_passphrase_is_the_owner_s_alone_and_the_user_s_own_wins() -> None:
    show = ("exec", "sh", "-c", 'echo "${PULUMI_CONFIG_PASSPHRASE_FILE-none}"')
    path = Path(run(*show, env={"PULUMI_CONFIG_PASSPHRASE_FILE": ""}).stdout.strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text()) >= 40
    users = {"PULUMI_CONFIG_PASSPHRASE_FILE": "/etc/hostname"}
    assert run(*show, env=users).stdout.strip() == "/etc/hostname"


BEGUN = 'CACHE=/nowhere; . "$SETUP"; begin_tool() { echo "$@"; }; begin_tools "$@"'
"""Says which tools would be obtained, and obtains none."""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("up",), ["consul", "victoria-logs"]),
        (("up", "no-such-stack"), []),
        (("test",), ["consul", "victoria-logs"]),
        (("test", "quick"), []),
        (("test", "quick", "molecule-consul-default"), ["consul"]),
        (("test", "integration-existing-wan"), ["consul"]),
        (("test", "existing"), ["consul", "victoria-logs"]),
        (("test", "integration-monitoring"), ["victoria-logs"]),
        (("test", "log_shipper"), ["victoria-logs"]),
        (("test", "integration-stack"), []),
        (("down",), []),
        (("exec", "true"), []),
    ],
)
def test_a_tool_is_obtained_early_only_for_what_needs_it(words: tuple[str, ...], wanted: list[str]) -> None:
    done = subprocess.run(
        ["bash", "-euc", BEGUN, "bash", *words],
        env={**os.environ, "ROOT": str(ROOT), "SETUP": str(ROOT / "toolchain" / "setup.sh")},
        check=True,
        capture_output=True,
        text=True,
    )
    begun = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in begun] == wanted
    for name, _, version, folder in begun:
        assert folder == f"/nowhere/{name}-{version}"
        assert re.fullmatch(r"[0-9.]+", version)


TOOLS = sorted(ROOT.glob("infra/capabilities/*/tools"))


@pytest.mark.parametrize("file", TOOLS, ids=lambda path: path.parent.name)
def test_what_a_capability_says_of_its_tools_is_so(file: Path) -> None:
    for line in filter(lambda line: line and not line.startswith("#"), file.read_text().splitlines()):
        name, minutes, version, pattern = line.split(maxsplit=3)
        assert os.access(ROOT / "toolchain" / f"install-{name}", os.X_OK)
        assert int(minutes) > 0
        where, _, key = version.partition(":")
        assert re.search(rf"^{key}: \S", (ROOT / where).read_text(), re.MULTILINE), line
        assert re.compile(pattern)


@pytest.mark.parametrize(
    "lines", [None, "", "\n# a remark\n\n", "lamp 1 gone.yml:version x", "lamp 1 here:gone x"]
)
def test_what_says_nothing_of_a_tool_stops_nobody(lines: str | None, tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").touch()
    (tmp_path / "here").write_text("version: 1\n")
    (tmp_path / "Pulumi.local.yaml").write_text("x\n")
    room = tmp_path / "infra" / "capabilities" / "one"
    room.mkdir(parents=True)
    if lines is not None:
        (room / "tools").write_text(f"{lines}\nbell 1 here:version x\n")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", BEGUN, "bash", "up"],
        env={**os.environ, "ROOT": str(tmp_path), "SETUP": str(ROOT / "toolchain" / "setup.sh")},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    wanted = "" if lines is None else "bell 1 1 /nowhere/bell-1\n"
    assert (done.stdout, done.stderr) == (wanted, "")


def test_through_sudo_the_agent_is_kept_by_name_and_no_value_stands_on_a_command_line(tmp_path: Path) -> None:
    """Where sudo is asked, what it is asked is enough: the caller's own rights are not the test's to have."""
    folder = tmp_path / "as-nobody"
    folder.mkdir()
    (folder / "run").write_bytes(RUN.read_bytes())
    (folder / "sudo").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for path in (folder / "run", folder / "sudo"):
        path.chmod(0o755)
    for path in (folder, *folder.parents[:3]):  # pytest's folders are closed to others
        path.chmod(path.stat().st_mode | 0o055)
    said = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(folder / "run"), "exec", "true"],
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "SSH_AUTH_SOCK": "/where/it/is",
            "MY_OWN": "1",
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert said == ["--preserve-env=NO_COLOR,SSH_AUTH_SOCK", "--", str(folder / "run"), "exec", "true"]
