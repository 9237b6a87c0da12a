"""The inventory of a stack whose contract is only in Pulumi's state: on a second controller, or in CI."""

import json
import os
import subprocess
from pathlib import Path

from infra.checks.load import load_spec
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

PROVES = ("inventory",)

ROOT = Path(__file__).resolve().parents[2]
STACK = "inventory-output-test"
"""No file of such a stack is in the checkout."""


def run(*command: str, env: dict[str, str], cwd: Path, stdin: str = "") -> str:
    answer = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=env, cwd=cwd, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def environment(backend: Path) -> dict[str, str]:
    backend.mkdir()
    passphrase = backend.parent / "passphrase"
    passphrase.write_text("only for this test\n")
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "PYTHONPATH"))
    }
    return own | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
    }


def test_the_plugin_reads_the_stack_output_where_the_file_is_missing(tmp_path: Path) -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml")
    contract = build_contract(spec, make_plan(spec), STACK)
    env = environment(tmp_path / "backend")
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    run("pulumi", "stack", "init", STACK, env=env, cwd=project)
    state = json.loads(run("pulumi", "stack", "export", env=env, cwd=project))
    kind = "pulumi:pulumi:Stack"
    urn = f"urn:pulumi:{STACK}::causeway::{kind}::causeway-{STACK}"
    outputs = {"contract": contract.model_dump(mode="json", exclude_none=True)}
    state["deployment"]["resources"] = [{"urn": urn, "custom": False, "type": kind, "outputs": outputs}]
    run("pulumi", "stack", "import", env=env, cwd=project, stdin=json.dumps(state))

    source = tmp_path / "causeway.yml"
    source.write_text(f"plugin: causeway\nstack: {STACK}\n")
    listed = json.loads(run("ansible-inventory", "-i", str(source), "--list", env=env, cwd=tmp_path))
    hosts = listed["_meta"]["hostvars"]
    assert {name: host["ansible_host"] for name, host in hosts.items()} == {
        name: {"__ansible_unsafe": str(host.address)} for name, host in contract.hosts.items()
    }
