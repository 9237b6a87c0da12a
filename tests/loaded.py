"""Modules that stand in no package: roles' and playbooks' own, which Ansible finds by itself."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import ansible.module_utils

ROOT = Path(__file__).resolve().parent.parent
UTILS = (ROOT / "playbooks" / "module_utils", *sorted(ROOT.glob("roles/*/module_utils")))
ansible.module_utils.__path__ += map(str, UTILS)  # where Ansible puts them on a node


def load(file: Path) -> ModuleType:
    """A file as a module of its own, under the file's name; as on a node it finds what stands beside it."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module
