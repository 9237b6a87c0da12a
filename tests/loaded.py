"""Modules that stand in no package: roles' and playbooks' own, which Ansible finds by itself."""

import importlib.util
from pathlib import Path
from types import ModuleType

import ansible.module_utils

ROOT = Path(__file__).resolve().parent.parent
UTILS = (ROOT / "playbooks" / "module_utils", *sorted(ROOT.glob("roles/*/module_utils")))
ansible.module_utils.__path__ += map(str, UTILS)  # where Ansible puts them on a node


def load(file: Path) -> ModuleType:
    """A file as a module of its own, under the file's name."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
