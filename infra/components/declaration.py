"""The declaration as Pulumi hands it to the program."""

import pulumi

from infra import ROOT
from infra.checks import DeclarationError, Source, check_overrides, parse_spec, require_valid
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
        overridden = check_overrides(spec, ROOT / "inventories" / pulumi.get_stack())
        if overridden:
            raise DeclarationError(overridden)
    except CausewayError as error:
        raise pulumi.RunError(str(error)) from None
    for warning in warnings:
        pulumi.log.warn(str(warning))
    return spec
