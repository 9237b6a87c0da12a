"""Nodes of a small stack are asked whether they are good, while one after the other is not. One story.

They have no GPU. One that is told that its eight are real has none of them, as a machine without a driver.
"""

import json
from functools import partial
from typing import Any

import pytest

from tests.integration.checkout import Checkout, commit, region, said
from tests.patience import wait_for

PROVES = ("acceptance",)
EXPECTED = "/etc/causeway/acceptance.json"
GPUS = ("tokyo-gpu-0", "tokyo-gpu-1")


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> None:
    """It stands, and its nodes are looked at by hand alone: what the timer runs is the active tier, too."""
    tokyo = region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1, "gpu": 2})
    checkout.declare({"name": "pacific", "regions": [tokyo], "acceptance": {}})
    commit(checkout.folder)
    checkout.up()
    for node in GPUS:
        checkout.on_node(node, "systemctl", "stop", "causeway-acceptance.timer")
        wait_for(partial(ended, checkout, node), f"{node} to end its own look")


def ended(checkout: Checkout, node: str) -> bool:
    """Whether no look of the timer's goes on."""
    ask = ("sh", "-c", "systemctl is-active causeway-acceptance.service || true")
    return "activating" not in checkout.on_node(node, *ask)


def accept(checkout: Checkout, expect: int) -> dict[str, Any]:
    text = checkout.run("exec", "causeway", "accept", checkout.stack, "--json", expect=expect)
    return dict(json.loads(text[text.index("{") :]))


def look(checkout: Checkout, node: str, tier: str) -> None:
    """As by hand; a bad node's program ends with 3."""
    checkout.on_node(node, "sh", "-c", f"causeway-acceptance {tier} || [ $? = 3 ]")


def take_for_real(checkout: Checkout, node: str, real: bool) -> None:
    old, new = ("true", "false") if real else ("false", "true")
    checkout.on_node(node, "sed", "-i", f's/"simulated": {old}/"simulated": {new}/', EXPECTED)


@pytest.mark.usefixtures("standing")
def test_nodes_without_gpus_say_so_and_are_not_called_good(checkout: Checkout) -> None:
    checks = json.loads((checkout.files / "verification.json").read_text())["checks"]
    about = [one for one in checks if (one["role"], one["name"]) == ("acceptance", "its gpus")]
    assert [one["verdict"] for one in about] == ["unsupported"] * 2
    assert {one["message"] for one in about} == {"no GPU here: they are declared, and simulated"}
    for node in GPUS:
        look(checkout, node, "auto")
    found = accept(checkout, expect=0)
    assert set(found["nodes"]) == set(GPUS)
    assert {one["severity"] for one in found["nodes"].values()} == {"unsupported"}
    text = checkout.run("exec", "causeway", "accept", checkout.stack)
    assert "2 unsupported: tokyo-gpu-0, tokyo-gpu-1\n" in text
    assert "no GPU here: 8 h100-sxm are declared, and simulated" in text


@pytest.mark.usefixtures("standing")
def test_one_that_lacks_its_gpus_may_be_taken_out_and_the_second_is_held(checkout: Checkout) -> None:
    for node in ("tokyo-gpu-1", "tokyo-gpu-0"):
        take_for_real(checkout, node, real=True)
        look(checkout, node, "passive")
        checkout.on_node(node, "sleep", "1")  # they tell seconds
    found = accept(checkout, expect=1)
    assert {one["severity"] for one in found["nodes"].values()} == {"critical"}
    assert found["take_out"] == ["tokyo-gpu-1"], "it was bad first"
    assert [one["node"] for one in found["held"]] == ["tokyo-gpu-0"]


@pytest.mark.usefixtures("standing")
def test_it_returns_by_the_active_tier_only(checkout: Checkout) -> None:
    for node in ("tokyo-gpu-1", "tokyo-gpu-0"):
        take_for_real(checkout, node, real=False)
        look(checkout, node, "passive")
    found = accept(checkout, expect=1)
    assert {one["severity"] for one in found["nodes"].values()} == {"waiting"}
    for node in ("tokyo-gpu-1", "tokyo-gpu-0"):
        look(checkout, node, "active")
    assert accept(checkout, expect=0)["take_out"] == []


@pytest.mark.usefixtures("standing")
def test_one_that_does_not_answer_is_never_good(checkout: Checkout) -> None:
    said("podman", "stop", "--time", "1", f"cw-{checkout.stack}-tokyo-gpu-0")
    found = accept(checkout, expect=1)
    assert found["nodes"]["tokyo-gpu-0"]["severity"] == "unreachable"
    assert found["nodes"]["tokyo-gpu-1"]["severity"] == "unsupported"


@pytest.mark.usefixtures("standing")
def test_what_a_down_leaves_nobody_is_asked_of(checkout: Checkout) -> None:
    checkout.run("down", checkout.stack)
    assert checkout.instances() == {}
