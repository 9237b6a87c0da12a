"""What Ansible loads of ours in every run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVERY_RUN = sorted(
    str(file.relative_to(ROOT))
    for folder in ("become", "callback", "inventory", "strategy")
    for file in ROOT.glob(f"infra/plugins/{folder}/*.py")
)
LOAD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("plugin", sys.argv[1])
spec.loader.exec_module(module_from_spec(spec))
print(*sorted({"pydantic", "infra.declaration"} & {*sys.modules}))
"""


@pytest.mark.parametrize("plugin", EVERY_RUN)
def test_a_plugin_of_every_run_does_not_load_the_models(plugin: str) -> None:
    """They take a third as long to load as Ansible itself, in each of its processes."""
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, plugin], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    )
    assert loaded.stdout.strip() == ""
