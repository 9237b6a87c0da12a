"""Jinja's templates as Python has compiled them, kept for Ansible's other processes and for the next run.

Ansible compiles each template and each condition anew wherever it meets it, in a process of its own for each
task and host: a fifteenth of the controller's CPU in a run that changes nothing. What comes of it depends on
the text, on how Jinja was told to read it, and on the versions of what reads it.
"""

import marshal
import sys
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import ansible
import jinja2
from ansible._internal._datatag._tags import Origin, VaultedValue
from ansible._internal._templating import _jinja_bits
from jinja2 import nodes
from jinja2.environment import TemplateExpression

from infra.cached import Cached, may_last, name_of

VERSIONS = (ansible.__version__, jinja2.__version__, sys.version)
ENCRYPTED = b"$ANSIBLE_VAULT"
KEPT = Cached("templates", 20_000)

_known: dict[str, CodeType] = {}
"""What this process, or one that it was forked from, has met."""


class Name(NamedTuple):
    """What a compiled template is known by, and whether it may stand on disk."""

    digest: str
    lasting: bool


_expression: ContextVar[Name | None] = ContextVar("expression", default=None)
"""The expression that is being compiled: Jinja makes a template of its syntax tree."""


def use() -> None:
    """Have Ansible's Jinja look here first."""
    environment = _jinja_bits.AnsibleEnvironment
    if not hasattr(environment.compile, "__wrapped__"):  # Ansible may load a plugin twice
        environment.compile = _looked_up(environment.compile)
        environment.compile_expression = _noted(environment.compile_expression)
        KEPT.throw_away()


def _looked_up(compile_: Any) -> Any:
    def compiled(environment: Any, source: Any, *named: Any, **options: Any) -> Any:
        if isinstance(source, nodes.Template):
            name = _expression.get()
        else:  # one that is named was included: its name and file go into what is compiled
            name = None if any(named) or options else name_for(environment, "template", source)
        code = find(name) if name else None
        if code is None:
            code = compile_(environment, source, *named, **options)
            if name:
                keep(name, code)
        return code

    compiled.__wrapped__ = compile_  # type: ignore[attr-defined]
    return compiled


def _noted(compile_expression: Any) -> Any:
    def compiled(environment: Any, source: str, undefined_to_none: bool = True) -> Any:
        name = name_for(environment, "expression", source)
        if code := find(name):
            variables = environment.make_globals(None)
            template = environment.template_class.from_code(environment, code, variables)
            return TemplateExpression(template, undefined_to_none)
        token = _expression.set(name)
        try:
            return compile_expression(environment, source, undefined_to_none)
        finally:
            _expression.reset(token)

    return compiled


def name_for(environment: Any, kind: str, source: str) -> Name:
    """The name of what comes of a text that Jinja reads as this environment is set."""
    context = _jinja_bits._TemplateCompileContext.current(optional=True)
    overrides = [getattr(environment, field) for field in _jinja_bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
    embedded = _jinja_bits._TemplateConfig.allow_embedded_templates
    escape = context and context.escape_backslashes
    digest = name_of(VERSIONS, kind, overrides, embedded, escape, str(source))
    return Name(digest, lasting=_may_last(source))


def _may_last(source: str) -> bool:
    """Whether a text stands in the clear in a file of ours: no secret of it comes to stand on disk here."""
    origin = Origin.get_tag(source)
    if not origin or not origin.path or VaultedValue.is_tagged_on(source):
        return False
    return may_last(origin.path) and _is_in_the_clear(origin.path)


@cache
def _is_in_the_clear(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(ENCRYPTED)) != ENCRYPTED
    except OSError:
        return False


def find(name: Name) -> CodeType | None:
    """What is kept by this name."""
    code = _known.get(name.digest)
    if code is None and name.lasting and (content := KEPT.find(name.digest)):
        code = _known[name.digest] = marshal.loads(content)  # noqa: S302 - our own, as Python's own caches are
    return code


def keep(name: Name, code: CodeType) -> None:
    """Keep it in this process, and for all others where it may last."""
    _known[name.digest] = code
    if name.lasting:
        KEPT.keep(name.digest, marshal.dumps(code))
