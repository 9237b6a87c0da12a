"""What the real Pulumi CLI does with our resources when one is replaced, or an input of it is gone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STACK = "rotation"
MARKS = ("T0P-of-the-receivers-address", "T1P-of-the-receivers-address")
"""Long, and with a character that base64 has not: ciphertext holds any three letters now and then."""
GIVEN = f"https://example.org/{MARKS[0]}"
CHANGED = f"{MARKS[1]} 'odd' \"$x\" {{{{ y }}}} \\n é\nsecond line\r\nthird"
PROGRAM = """
import os
import here
import pulumi
from infra.components.secret import Secret
from infra.providers.lifecycle import Managed

opts = pulumi.ResourceOptions()
secret = Secret("tunnel", "wireguard", "rotation", opts)
pulumi.export("fingerprint", secret.fingerprint)
Secret("given-hook", "given", "rotation", opts, pulumi.Config("causeway").require_secret("hook"))
shelf = Managed(here.Shelf, "shelf", {"place": "left", "leafs": os.environ.get("LEAFS")}, opts)
Managed(here.Proof, "proof", {"stands_since": pulumi.Output.all(shelf.ensured).apply(str)}, opts)
"""
HERE = '''
"""A resource that stands as long as its file does; secrets in this folder and not in the checkout."""
from pathlib import Path
from infra import stack
from infra.components import secret
from infra.providers.lifecycle import Lifecycle

FOLDER = Path(__file__).parent
stack.ROOT = secret.ROOT = FOLDER

class Shelf(Lifecycle):
    outputs = ("held",)
    replace_on = ("place",)
    def identity(self, inputs):
        return inputs["place"]
    def ensure(self, inputs, known):
        (FOLDER / "shelf").write_text(str(inputs.get("leafs")))
        return {"held": inputs.get("leafs") or "none"}
    def observe(self, properties):
        text = (FOLDER / "shelf").read_text()
        return [] if text == str(properties.get("leafs")) else [f"it holds {text}"]
    def remove(self, properties):
        (FOLDER / "shelf").unlink()

class Proof(Lifecycle):
    def identity(self, inputs):
        return "proof"
    def ensure(self, inputs, known):
        with (FOLDER / "proofs").open("a") as file:
            print((FOLDER / "shelf").read_text(), file=file)
        return {}
    def remove(self, properties):
        pass
'''


class Project:
    """A small program of its own, with a backend in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "Pulumi.yaml").write_text("name: replacement\nruntime: python\n")
        (folder / "__main__.py").write_text(PROGRAM)
        (folder / "here.py").write_text(HERE)
        # The secrets' folder has to be told to Pulumi's provider processes as well.
        (folder / "sitecustomize.py").write_text("import here")
        (folder / "state").mkdir()
        self.pulumi("stack", "init", STACK)
        self.give(GIVEN)

    def give(self, value: str) -> None:
        """What `causeway secret hook` does."""
        self.pulumi("config", "set", "--secret", "causeway:hook", "--stack", STACK, stdin=value)

    def pulumi(self, *words: str, stdin: str = "", **environment: str) -> str:
        settings = {
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "of no worth",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_HOME": str(self.folder / "home"),
            "PYTHONPATH": f"{ROOT}:{self.folder}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.folder,
            env=os.environ | settings | environment,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        said = done.stdout.decode()
        assert done.returncode == 0, said
        return said

    def up(self, *words: str, **environment: str) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", STACK, *words, **environment)

    def resources(self) -> dict[str, dict[str, Any]]:
        """Name → what the state holds of it."""
        found = json.loads(self.pulumi("stack", "export", "--stack", STACK, "--show-secrets"))
        return {r["urn"].rsplit("::", 1)[1]: r for r in found["deployment"]["resources"]}

    def secret_file(self, name: str) -> Path:
        return self.folder / ".causeway" / "stacks" / STACK / "secrets" / name

    def files(self) -> dict[str, str]:
        """The made secret's files."""
        folder = self.secret_file("tunnel").parent
        return {path.name: path.read_text() for path in folder.glob("tunnel*")} if folder.exists() else {}

    def proofs(self) -> list[str]:
        """What every proof so far has seen."""
        return (self.folder / "proofs").read_text().split()

    def shelf(self) -> str | None:
        path = self.folder / "shelf"
        return path.read_text() if path.exists() else None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("project"))
    made.up(LEAFS="two")
    return made


def test_a_key_that_is_replaced_is_another_one_and_its_files_are_there(project: Project) -> None:
    """docs/operations.md, "Another key for a tunnel"."""
    before, state = project.files(), project.resources()["tunnel"]
    assert set(before) == {"tunnel", "tunnel.pub"}
    project.up("--replace", state["urn"], LEAFS="two")
    after, replaced = project.files(), project.resources()["tunnel"]
    assert set(after) == set(before)
    assert after["tunnel"] != before["tunnel"]
    assert replaced["outputs"]["fingerprint"] != state["outputs"]["fingerprint"]


def test_what_is_replaced_stands_afterwards(project: Project) -> None:
    project.up("--replace", project.resources()["shelf"]["urn"], LEAFS="two")
    assert project.shelf() == "two"


def test_what_is_repaired_is_proven_in_the_same_update_and_nothing_else_is(project: Project) -> None:
    before = project.proofs()
    project.up("--refresh", LEAFS="two")
    assert project.proofs() == before, "nothing had to be done"
    (project.folder / "shelf").write_text("one")
    project.up("--refresh", LEAFS="two")
    assert project.proofs() == [*before, "two"]
    assert project.shelf() == "two"
    project.up(LEAFS="three")
    assert project.proofs() == [*before, "two", "three"]
    project.up(LEAFS="two")


def test_an_input_that_is_gone_reaches_the_resource(project: Project) -> None:
    assert project.resources()["shelf"]["outputs"]["held"] == "two"
    project.up()
    assert project.shelf() == "None"
    shelf = project.resources()["shelf"]
    assert shelf["outputs"]["held"] == "none"
    assert "leafs" not in shelf["inputs"]
    assert "5 unchanged" in project.up(), "the stack itself is the fifth"


def test_a_given_secret_follows_the_configuration_and_is_nowhere_in_plain_text(project: Project) -> None:
    file, before = project.secret_file("given-hook"), project.resources()["given-hook"]
    assert file.read_bytes().decode() == GIVEN
    assert file.stat().st_mode & 0o777 == 0o600
    project.give(CHANGED)
    preview = project.pulumi("preview", "--diff", "--stack", STACK, LEAFS="two")
    assert "given-hook" in preview
    said = [preview, project.up("--diff", LEAFS="two")]
    after = project.resources()["given-hook"]
    assert file.read_bytes().decode() == CHANGED
    assert file.stat().st_mode & 0o777 == 0o600
    assert after["outputs"]["fingerprint"] != before["outputs"]["fingerprint"]
    assert after["created"] == before["created"], "it is not replaced"
    said.append(project.pulumi("stack", "export", "--stack", STACK))
    kept = [path for path in (project.folder / "state").rglob("*") if path.is_file()]
    said += [path.read_bytes().decode(errors="replace") for path in (*kept, *project.folder.glob("Pulumi.*"))]
    assert [text for text in said if any(mark in text for mark in MARKS)] == []


def test_a_given_secret_with_odd_characters_is_no_drift(project: Project) -> None:
    project.give(CHANGED)
    project.up("--refresh", LEAFS="two")
    before = project.resources()["given-hook"]["outputs"]["ensured"]
    project.secret_file("given-hook").unlink()
    project.up("--refresh", LEAFS="two")
    after = project.resources()["given-hook"]["outputs"]
    assert project.secret_file("given-hook").read_bytes().decode() == CHANGED
    assert after["drift"] == []
    assert after["ensured"] == before
