"""Where the chance of generated tests begins: the same in every run, and another by hand (`--seed N`)."""

import os

NAME = "CAUSEWAY_TEST_SEED"
SEED = int(os.environ.get(NAME, "81"))


def environment(chosen: int | None) -> dict[str, str]:
    """What a run's steps begin with; only a chosen seed makes hypothesis leave its fixed examples."""
    if chosen is None:
        return {NAME: str(SEED)}
    options = {"HYPOTHESIS_PROFILE": "fresh", "PYTEST_ADDOPTS": f"--hypothesis-seed={chosen}"}
    return {NAME: str(chosen), **options}
