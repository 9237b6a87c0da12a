"""What the tests of whole stacks share."""

from collections.abc import Iterator

import pytest

from tests.integration.checkout import Checkout, new_checkout


@pytest.fixture(scope="module")
def checkout() -> Iterator[Checkout]:
    """A clone of the working tree for one file's tests, swept before and after."""
    with new_checkout() as made:
        yield made
