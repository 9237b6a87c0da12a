"""What the fields of a declaration mean: the docstring below each, read where somebody asks.

pydantic would read the sources of all models whenever they are loaded: a quarter of what that takes.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel


def described(model: type[BaseModel], name: str) -> str:
    """What a field means; empty where nothing says so, or where there is no such field."""
    field = model.model_fields.get(name)
    if field is None:
        return ""
    if field.description:
        return field.description
    owner = next(one for one in model.__mro__ if name in inspect.get_annotations(one))
    return _docstrings(owner.__module__).get(owner.__qualname__, {}).get(name, "")


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Class → field → docstring."""
    source = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return {node.name: _fields(node) for node in classes}


def _fields(node: ast.ClassDef) -> Mapping[str, str]:
    found = {}
    for field, below in pairwise(node.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found
