"""The declaration as Pulumi hands it to the program."""

import pulumi

from infra import ROOT
from infra.capabilities import capabilities
from infra.checks import DeclarationError, Source, check_given, check_overrides, parse_spec, require_valid
from infra.declaration import ClusterSpec
from infra.errors import CausewayError
from infra.stack import check_stack


def declared_cluster() -> ClusterSpec:
    """`causeway:cluster` of the selected stack, parsed and checked.

    Raises pulumi.RunError with every problem, one a line, when it cannot be used; warnings are logged.
    """
    source = Source(f"Pulumi.{pulumi.get_stack()}.yaml")
    try:
        check_stack(pulumi.get_stack())  # Pulumi would take `..`
        spec = parse_spec(pulumi.Config("causeway").require_object("cluster"), source)
        warnings = require_valid(spec, source)
        beside = check_overrides(spec, ROOT / "inventories" / pulumi.get_stack())
        beside += check_given(spec, _given(spec), pulumi.get_stack(), source)
        if beside:
            raise DeclarationError(beside)
    except CausewayError as error:
        raise pulumi.RunError(str(error)) from None
    for warning in warnings:
        pulumi.log.warn(str(warning))
    return spec


def _given(spec: ClusterSpec) -> dict[str, object]:
    """Of the secrets that the user gives, those that are there, as the stack's file has them."""
    config = pulumi.Config("causeway")
    names = {name for one in capabilities() for name in one.given(spec).values()}
    return {
        f"causeway:{name}": {"secure": ""} if pulumi.runtime.is_config_secret(f"causeway:{name}") else "plain"
        for name in names
        if config.get_secret(name) is not None
    }
