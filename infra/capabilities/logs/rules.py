"""Logs: a store of the site's own that can be sent to."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.logs.languages import QUERIES
from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity
from infra.ground.remote import problems
from infra.ground.rule import Rule


class StoreCanBeSentTo:
    """Lines go to a URL, by a name and a password that nobody else reads."""

    id: ClassVar[str] = "logs-external"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """The URLs and secrets of a store of the site's own."""
        declared = spec.monitoring.logs if spec.monitoring else None
        if declared is not None and declared.kind == "external":
            yield from problems("monitoring.logs", declared, QUERIES)


RULES: tuple[Rule, ...] = (StoreCanBeSentTo(),)
