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
PROGRAM = """
import os
import here
import pulumi
from infra.components.secret import Secret
from infra.providers.lifecycle import Managed

opts = pulumi.ResourceOptions()
secret = Secret("tunnel", "wireguard", "rotation", opts)
pulumi.export("fingerprint", secret.fingerprint)
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

    def pulumi(self, *words: str, **environment: str) -> str:
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
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def up(self, *words: str, **environment: str) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", STACK, *words, **environment)

    def resources(self) -> dict[str, dict[str, Any]]:
        """Name → what the state holds of it."""
        found = json.loads(self.pulumi("stack", "export", "--stack", STACK, "--show-secrets"))
        return {r["urn"].rsplit("::", 1)[1]: r for r in found["deployment"]["resources"]}

    def files(self) -> dict[str, str]:
        """The secret's files."""
        folder = self.folder / ".causeway" / "stacks" / STACK / "secrets"
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}

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
    assert "4 unchanged" in project.up(), "the stack itself is the fourth"
