"""The command line itself: what it takes, and what it answers."""

import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from infra.cli import all_commands, main

ROOT = Path(__file__).parents[2]
DECLARATION = ROOT / "Pulumi.local.yaml"


def causeway(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli", *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    environment["PYTHONDONTWRITEBYTECODE"] = (
        "1"  # which knows of no other place for caches than beside the sources
    )
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def ten_thousand_gpus(tmp_path: Path) -> Path:
    pools = "\n".join(
        f"      - {{name: gpu-{index}, role: gpu, count: {count}, gpus: 8, gpu_model: h100-sxm}}"
        for index, count in enumerate((625, 625))
    )
    path = tmp_path / "large.yaml"
    path.write_text(
        "name: large\nregions:\n  - name: one\n    cidr: 10.81.0.0/16\n    pools:\n"
        "      - {name: control, role: control, count: 3}\n" + pools + "\n"
    )
    return path


def test_ten_thousand_gpus_are_planned(tmp_path: Path) -> None:
    done = causeway("plan", str(ten_thousand_gpus(tmp_path)), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (len(report["nodes"]), report["regions"]["one"]["gpus"]) == (1253, 10_000)


@pytest.mark.parametrize("words", [["check", str(DECLARATION)], ["plan", str(DECLARATION)], ["schema"]])
def test_offline_commands_load_neither_pulumi_nor_ansible(words: list[str]) -> None:
    program = (
        "import sys; from infra.cli import main; "
        f"code = main({words!r}); "
        "loaded = {'pulumi', 'ansible', 'ansible_runner', 'asyncssh', 'jinja2'} & set(sys.modules); "
        "sys.exit(str(loaded) if loaded else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: causeway {name}" in capsys.readouterr().out


def test_help_lists_every_command() -> None:
    done = causeway("--help")
    assert done.returncode == 0
    for name, (_, summary) in all_commands().items():
        assert name in done.stdout
        assert summary in " ".join(done.stdout.split())


def test_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    done = causeway("--version")
    assert (done.returncode, done.stdout) == (0, f"causeway {project['version']}\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), list(all_commands())),
        (("pl",), ["plan"]),
        (("check", "--st"), ["--stack"]),
        (("check", "--stack", ""), ["local"]),
        (("up", "l"), ["local"]),
        (("check", "two"), ["two-regions.yaml"]),
        (("plan", "--switches", "../ex"), ["../examples"]),
        (("switch", ""), ["join"]),
        (("drift", "local", "--re"), ["--region"]),
        (("--completion", ""), ["bash", "zsh"]),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: list[str]) -> None:
    line = (
        'eval "$1"; shift; COMP_WORDS=(causeway "$@"); COMP_CWORD=$#; _shtab_causeway; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line, "bash", bash_script(), *words],
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == offered


@cache
def bash_script() -> str:
    return causeway("--completion", "bash").stdout


def test_zsh_is_told_every_command_and_where_stacks_are() -> None:
    script = causeway("--completion", "zsh").stdout
    assert script.startswith("#compdef causeway\n")
    for name in all_commands():
        assert f"_shtab_causeway_{name}_options" in script
    assert "_causeway_stacks" in script
    assert f"{ROOT}/Pulumi.*.yaml" in script
    assert causeway("--completion", "fish").returncode == 2


@pytest.mark.parametrize("words", [[], ["chek"], ["check", "--jsno"], ["plan", "a.yaml", "b.yaml"]])
def test_wrong_words_are_bad_input(words: list[str]) -> None:
    done = causeway(*words)
    assert done.returncode == 2
    assert "usage: causeway" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["check", "Pulumi.nope.yaml"],
            "Pulumi.nope.yaml: there is no such file. There is Pulumi.local.yaml.",
        ),
        (
            ["check", "--stack", "nope"],
            "Pulumi.nope.yaml: there is no such file. There is Pulumi.local.yaml.",
        ),
        (["check", "."], ".: a directory, not a file. There is Pulumi.local.yaml."),
        (["check", "Pulumi.yaml"], "Pulumi.yaml: this is the project file, not a stack's."),
        (["check", "infra/cli.py/x"], "infra/cli.py/x: cannot be read: Not a directory"),
        (["check", "LICENSE"], "LICENSE: "),
        (["check", "a" * 300], ": cannot be read: File name too long"),
    ],
)
def test_files_that_are_no_declaration(words: list[str], told: str) -> None:
    done = causeway(*words)
    assert (done.returncode, done.stderr) == (2, "")
    assert told in done.stdout


@pytest.mark.parametrize("words", [["check", ""], ["plan", "--stack", "../x"], ["plan", "--stack", ""]])
def test_unusable_arguments_are_bad_input(words: list[str]) -> None:
    done = causeway(*words)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_default_is_the_local_stack_from_anywhere(tmp_path: Path) -> None:
    done = causeway("plan", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (report["cluster"], report["stack"]) == ("pacific", "local")
    assert report == json.loads(causeway("plan", "--json", "--stack", "local").stdout)


def test_output_into_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    path = ten_thousand_gpus(tmp_path)
    line = f"{sys.executable} -m infra.cli plan {path} --json | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("{0\n", "")


def test_warnings_go_beside_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.some.yaml"
    path.write_text(DECLARATION.read_text().replace("loss_pct: 0.2", "loss_pct: 20"))
    done = causeway("plan", str(path), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["stack"] == "some"
    assert done.stderr.startswith("warning: wan_links[0].loss_pct: 20 % loss is very high")


def test_refused_declaration_in_json(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.some.yaml"
    path.write_text(DECLARATION.read_text().replace("gpus: 8", "gpus: 7"))
    done = causeway("plan", str(path), "--json")
    problem = json.loads(done.stdout)["problems"][0]
    assert done.returncode == 2
    assert (problem["path"], problem["line"], problem["rule"]) == ("regions[0].pools[1].gpus", 16, "gpus")
    assert (problem["found"], problem["allowed"], problem["suggestion"]) == ("7", "1, 2, 4, 8, 16", "8")
