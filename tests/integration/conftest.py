"""What the tests of whole stacks share."""

from collections.abc import Iterator

import pytest

from tests.integration.checkout import Checkout, new_checkout

SELDOM_S = 900
"""Between two looks of a node for drift. Nobody reads what a test's node finds of itself, and a look a minute
on every node of all stacks is a noticeable part of what a test run has of the machine."""


@pytest.fixture(scope="module")
def checkout(request: pytest.FixtureRequest) -> Iterator[Checkout]:
    """A clone of the working tree for one file's tests, swept before and after."""
    with new_checkout() as made:
        if not is_as_declared(request.module):
            look_seldom(made)
        yield made


def is_as_declared(module: object) -> bool:
    """Whether a file's tests take their stack with nothing beside the declaration (`AS_DECLARED = True`)."""
    return bool(getattr(module, "AS_DECLARED", False))


def look_seldom(made: Checkout) -> None:
    """Have nodes look for drift every now and then; scans are the controller's, and see the same."""
    made.override("seldom", drift_watch_interval_s=SELDOM_S)
