"""A driver comes to one node of each pool first; where it fails there the rest of the pool keeps its own.

The role's own tasks, in real Ansible; its module is a stand-in, which fails on the nodes that a test names.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"packages": {"type": "dict"}, "driver": {}, "patterns": {"type": "list"}})
node, = module.params["patterns"]
with open(os.environ["LOG"], "a") as log:
    log.write(node + "\\n")
if node in os.environ["BROKEN"].split():
    module.fail_json(msg="rolled back")
module.exit_json(changed=False, gpus=0, reboot="")
"""
POOLS = {"pool_tokyo_gpu": ["t0", "t1", "t2"], "pool_osaka_gpu": ["o0", "o1"]}
ALL = {name for names in POOLS.values() for name in names}


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    """The role's tasks on five nodes of two pools."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "library").mkdir()
        (folder / "library/causeway_cuda_base.py").write_text(MODULE)
        tasks = ROOT / "roles/cuda_base/tasks/packages.yml"
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "cuda_base_driver": "580.95.05",
            "cuda_base_pool": "{{ group_names | first }}",
            "cuda_base_packages": {},
            "cuda_base_kernel_packages": {},
            "cuda_base_patterns": ["{{ inventory_hostname }}"],
        }
        play = {
            "hosts": "all",
            "gather_facts": False,
            "vars_files": [str(ROOT / "roles/cuda_base/vars/main.yml")],
            "tasks": [{"ansible.builtin.import_tasks": str(tasks)}],
        }
        (folder / "play.yml").write_text(json.dumps([play]))
        groups = {pool: {"hosts": dict.fromkeys(names)} for pool, names in POOLS.items()}
        inventory = {"all": {"vars": variables, "children": groups}}
        (folder / "hosts.json").write_text(json.dumps(inventory))

    def __call__(self, *options: str, broken: str = "") -> str:
        self.log.write_text("")
        done = subprocess.run(
            ["ansible-playbook", "-i", "hosts.json", *options, "play.yml"],
            env=os.environ
            | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STRATEGY": "linear", "BROKEN": broken}
            | {"ANSIBLE_LIBRARY": str(self.folder / "library"), "LOG": str(self.log)},
            cwd=self.folder, text=True, check=False, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert (done.returncode != 0) == bool(broken), done.stdout
        return done.stdout

    @property
    def took(self) -> list[str]:
        """The nodes on which the module ran, in their order."""
        return self.log.read_text().split()


def test_one_node_of_each_pool_goes_first_and_one_that_breaks_later_stops_itself(run: Run) -> None:
    run(broken="t1")
    assert set(run.took[:2]) == {"t0", "o0"}
    assert set(run.took[2:]) == ALL


def test_where_it_fails_there_its_pool_keeps_what_it_has(run: Run) -> None:
    said = run("--limit", "!t0", broken="t1")
    assert set(run.took) == {"t1", "o0", "o1"}
    assert "[t2]: FAILED!" in said
    assert (
        "driver 580.95.05 did not come on t1, which goes first of its pool: nothing was changed here" in said
    )
