"""The cabling list: every port once, every switch reached, the same ends seen from both sides."""

import csv
import io
from collections import Counter, defaultdict
from xml.etree import ElementTree as ET

import pytest

from infra.capabilities.fabric import cabling, diagram
from infra.capabilities.fabric.cabling import Switch
from tests.unit.fabrics import SHAPES, shaped


@pytest.mark.parametrize("shape", SHAPES)
def test_no_port_has_two_cables_and_none_is_beyond_the_radix(shape: str) -> None:
    planned = shaped(shape)
    ends = [(link.lower, link.lower_port) for link in cabling.switch_links(planned)]
    ends += [(link.upper, link.upper_port) for link in cabling.switch_links(planned)]
    ends += [
        (Switch("leaf", nic.plane, nic.leaf), nic.port) for _, nics in planned.node_nics() for nic in nics
    ]
    assert max(Counter(ends).values()) == 1
    assert all(0 <= port < planned.fabric.radix for _, port in ends)


@pytest.mark.parametrize("shape", SHAPES)
def test_there_are_as_many_cables_as_counted(shape: str) -> None:
    planned = shaped(shape)
    found = Counter(cable.tier for cable in cabling.cables(planned))
    counts = planned.counts
    assert (found["node-leaf"], found["leaf-spine"], found["spine-core"]) == (
        counts.node_leaf_cables,
        counts.leaf_spine_cables,
        counts.spine_core_cables,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_leaf_reaches_every_other_of_its_plane_upwards_then_downwards(shape: str) -> None:
    planned = shaped(shape)
    above: dict[Switch, set[Switch]] = defaultdict(set)
    below: dict[Switch, set[Switch]] = defaultdict(set)
    for link in cabling.switch_links(planned):
        assert link.lower.plane == link.upper.plane
        above[link.lower].add(link.upper)
        below[link.upper].add(link.lower)
    for plane in range(planned.fabric.planes):
        leafs = {Switch("leaf", plane, number) for number in range(planned.shape.leafs)}
        for leaf in leafs:
            up = climb({leaf}, above)
            assert leafs <= climb(up, below)


def climb(start: set[Switch], edges: dict[Switch, set[Switch]]) -> set[Switch]:
    """Everything that edges lead to."""
    seen, todo = set(start), list(start)
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


@pytest.mark.parametrize("shape", SHAPES)
def test_a_leafs_uplinks_are_spread_evenly_and_cores_are_filled_evenly(shape: str) -> None:
    planned = shaped(shape)
    pairs: Counter[tuple[Switch, Switch]] = Counter()
    on_core: Counter[Switch] = Counter()
    for link in cabling.switch_links(planned):
        pairs[link.lower, link.upper] += link.lower.tier == "leaf"
        on_core[link.upper] += link.upper.tier == "core"
    for pod in planned.shape.pods:
        here = range(pod.first_spine, pod.first_spine + pod.spines)
        spread = {
            count for (_, spine), count in pairs.items() if spine.tier == "spine" and spine.number in here
        }
        assert len(spread) <= 1
    loads = [count for switch, count in on_core.items() if switch.tier == "core"]
    assert not loads or max(loads) - min(loads) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_both_ends_of_a_link_are_in_a_network_of_their_own(shape: str) -> None:
    links = list(cabling.switch_links(shaped(shape)))
    assert all(link.lower_address.network == link.upper_address.network for link in links)
    assert all(link.lower_address != link.upper_address for link in links)
    assert len({link.lower_address.network for link in links}) == len(links)


def test_the_list_is_csv_with_a_line_per_cable() -> None:
    file = io.StringIO()
    cabling.write_csv(cabling.cables(shaped("two planes")), file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert rows[0] == {
        "region": "r", "tier": "node-leaf", "plane": "0", "rail": "0",
        "a": "r-gpu0-0", "a_port": "rail0p0", "a_address": "100.64.0.2/29",
        "b": "r-p0-leaf-0", "b_port": "Ethernet0", "b_address": "100.64.0.1/29", "gbps": "400",
    }  # fmt: skip
    assert {row["rail"] for row in rows if row["tier"] != "node-leaf"} == {""}
    assert len(rows) == len(list(cabling.cables(shaped("two planes"))))


def test_ports_are_counted_from_one_where_no_switch_is_declared() -> None:
    fabric = shaped("two tiers").fabric
    assert cabling.port_name(fabric, 3) == "Ethernet12"
    assert cabling.port_name(fabric.model_copy(update={"switch": None}), 3) == "4"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_picture_is_an_svg_that_names_what_there_is(shape: str) -> None:
    planned = shaped(shape)
    picture = ET.fromstring(diagram.fabrics_svg([planned, planned]))  # noqa: S314 - we made it
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(text == f"r: {planned.fabric.kind}, {planned.shape.nodes} nodes" for text in texts) == 2
    assert any(text.startswith("r-gpu0-0") for text in texts)
    for tier, count in (("leaf", planned.shape.leafs), ("spine", planned.shape.spines)):
        assert not count or any(text.startswith((f"{tier} 0", f"{tier}s 0")) for text in texts)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for box in picture.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height
