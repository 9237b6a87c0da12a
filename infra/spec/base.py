"""The one base of all declarations."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """A declared value: immutable, and a key nobody knows is an error rather than a silent typo.

    Rules that need one field live on the field; rules that need several objects live in
    `infra.checks`, so that all of them can be reported at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
