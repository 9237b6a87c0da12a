"""The JSON Schema of a declaration, by which editors complete, explain and underline.

It is made from the models, so it knows keys, types and the range of a single field. What only the rules know
is said in the descriptions; `causeway check` has the last word.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from infra import ROOT
from infra.checks.load import CONFIG_KEY
from infra.checks.reference import LIMITS_OF_RULES, unit
from infra.declaration import ClusterSpec
from infra.declaration.described import described
from infra.declaration.places import places

FILE = ROOT / "docs" / "declaration.schema.json"
"""A copy of it, for the line in a declaration that names its schema."""

Schema = dict[str, Any]
ADDRESS = r"\d{1,3}(\.\d{1,3}){3}"
PATTERNS = {
    "ipv4": f"^{ADDRESS}$",
    "ipv4network": rf"^{ADDRESS}/\d{{1,2}}$",
    "ipv4interface": rf"^{ADDRESS}/\d{{1,2}}$",
}
"""For pydantic's formats, which JSON Schema does not have or takes for a hint only."""
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Limits that pydantic leaves in its own words where a field may also be unset."""


class _Untitled(GenerateJsonSchema):
    """A key is its own title."""

    schema_dialect = "https://json-schema.org/draft/2020-12/schema"

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def declaration_schema() -> Schema:
    """The schema of a whole `Pulumi.<stack>.yaml`, and of a file that holds the bare declaration."""
    cluster = ClusterSpec.model_json_schema(schema_generator=_Untitled)
    models: dict[str, Schema] = {**cluster.pop("$defs"), ClusterSpec.__name__: cluster}
    for model in places().values():
        for name in model.model_fields:
            properties = models[model.__name__]["properties"]
            said = {**properties[name], "description": _description(model, name)}
            properties[name] = dict(sorted(said.items()))  # as pydantic has all others
    for schema in _schemas(models):
        _mend(schema)
    declared = {"$ref": f"#/$defs/{ClusterSpec.__name__}"}
    config = {"type": "object", "properties": {CONFIG_KEY: declared}, "required": [CONFIG_KEY]}
    return {
        "$schema": _Untitled.schema_dialect,
        "title": "A declaration for Causeway",
        "description": "A Pulumi.<stack>.yaml, or a file that holds the bare declaration.",
        "type": "object",
        "properties": {"config": {"description": f"The stack's settings; {CONFIG_KEY} is the declaration."}},
        "if": {"anyOf": [{"required": ["config"]}, {"required": ["encryptionsalt"]}]},
        "then": {"properties": {"config": config}, "required": ["config"]},
        "else": declared,
        "$defs": models,
    }


def _description(model: type[BaseModel], name: str) -> str:
    """What a field means, its unit, and what the rules allow."""
    parts = [" ".join(described(model, name).split())]
    if named := unit(name):
        parts.append(f"Unit: {named}.")
    if limits := LIMITS_OF_RULES.get((model, name)):
        parts.append(f"Allowed: {limits}.")
    return " ".join(parts)


def _mend(schema: Schema) -> None:
    """Say in JSON Schema's words what pydantic says in its own, or in OpenAPI's."""
    if isinstance(kind := schema.get("format"), str) and kind in PATTERNS:
        schema["pattern"] = PATTERNS[schema.pop("format")]
    for word, meant in BOUNDS.items():
        if isinstance(schema.get(word), int | float):
            schema[meant] = schema.pop(word)
    if "oneOf" in schema and "discriminator" in schema:  # the key that chooses has a default in one of them
        schema["required"] = [schema.pop("discriminator")["propertyName"]]
    if schema.get("default", ...) is None:  # editors would write it down
        del schema["default"]


def _schemas(value: Any) -> Iterator[Schema]:
    """Every mapping in a schema."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _schemas(item)
