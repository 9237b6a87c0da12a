"""What the role consul makes on the controller: tokens."""

from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest

from tests.loaded import load

CODE = Path(__file__).resolve().parents[2] / "roles" / "consul" / "filter_plugins" / "causeway_consul.py"


@pytest.fixture(scope="module")
def filters() -> ModuleType:
    return load(CODE)


def test_a_token_is_a_uuid_of_its_secret_and_its_purpose(filters: ModuleType) -> None:
    one, same = (filters.consul_token(seed, "tokyo-gpu") for seed in ("c2VjcmV0\n", "c2VjcmV0"))
    assert one == same
    assert UUID(one).version == 4
    others = {
        filters.consul_token("c2VjcmV0", "tokyo-control"),
        filters.consul_token("b3RoZXI=", "tokyo-gpu"),
    }
    assert one not in others
    assert len(others) == 2
    token = filters.consul_tokens("c2VjcmV0", ["tokyo-gpu"])["tokyo-gpu"]
    assert token["secret"] == one != token["accessor"]
