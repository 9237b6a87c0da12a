"""A fabric as a picture (SVG): tiers from the nodes up, rails in colours, planes as cards behind each other.

Large fabrics are drawn by example: of many equal things the first ones and the last, with the number between.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product

from infra.capabilities.fabric.topology import FabricPlan, core_of
from infra.ground.clos import Pod, down_ports, leafs_per_group, nodes_per_group

Point = tuple[float, float]

BOX_W, BOX_H, GAP, GROUP_GAP, POD_GAP = 78, 38, 6, 26, 56
MARGIN, HEADING_H, ROW_H, PADDING, CARD_SHIFT, FOOT_H = 24, 80, 130, 16, 9, 34
MOST_LEAFS = 32
"""More leafs are drawn group by group instead of one by one."""
MOST_GROUPS, MOST_SPINES = 8, 16
MOST_IN_POD = 3
"""Groups and spines of a pod that is one of several."""
MOST_PODS, MOST_CORES = 3, 12
RAIL_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#499894", "#b07aa1", "#9c755f", "#b6992d")
LEAF_COLOUR, SPINE_COLOUR, CORE_COLOUR, NODE_COLOUR = "#5b7a99", "#33475b", "#1b2733", "#e8edf2"
LINE_COLOUR, TEXT_COLOUR = "#8795a3", "#1b2733"
CARD_COLOURS = ("#fafbfc", "#e9edf1")


@dataclass
class _Svg:
    """What is drawn, from the bottom up: cards, lines, boxes with their texts; and the room it takes."""

    cards: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)
    width: float = 0
    height: float = 0

    def card(self, x: float, y: float, right: float, bottom: float, colour: str) -> None:
        self.cards.append(_rect(x, y, right - x, bottom - y, colour, LINE_COLOUR))
        self._grow(right, bottom)

    def box(self, x: float, y: float, width: float, colour: str, *texts: str) -> Point:
        """A box with up to two lines of text; its middle, at its top."""
        ink = TEXT_COLOUR if colour == NODE_COLOUR else "#ffffff"
        self.boxes.append(_rect(x, y, width, BOX_H, colour, "none"))
        for number, text in enumerate(texts):
            middle = y + BOX_H / 2 + 4 + 14 * (number - (len(texts) - 1) / 2)
            self.text(x + width / 2, middle, text, ink, "middle")
        self._grow(x + width, y + BOX_H)
        return x + width / 2, y

    def text(
        self, x: float, y: float, text: str, colour: str = TEXT_COLOUR, anchor: str = "start", size: int = 11
    ) -> None:
        self.boxes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )
        if anchor == "start":
            self._grow(x + 0.62 * size * len(text), y)

    def line(self, start: Point, end: Point, colour: str, width: float) -> None:
        self.lines.append(
            f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" '
            f'stroke="{colour}" stroke-width="{width:g}" stroke-opacity="0.6"/>'
        )

    def _grow(self, right: float, bottom: float) -> None:
        self.width, self.height = max(self.width, right), max(self.height, bottom)

    def render(self) -> str:
        width, height = self.width + MARGIN, self.height + MARGIN
        body = "\n".join(
            [_rect(0, 0, width, height, "#ffffff", "none"), *self.cards, *self.lines, *self.boxes]
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">\n'
            f"{body}\n</svg>\n"
        )


def _rect(x: float, y: float, width: float, height: float, colour: str, edge: str) -> str:
    size = f'width="{width:g}" height="{height:g}" rx="5"'
    return f'<rect x="{x:g}" y="{y:g}" {size} fill="{colour}" stroke="{edge}"/>'


def _sample(numbers: range, most: int) -> list[int | None]:
    """All where they fit; else the first ones, None for those between, and the last."""
    if len(numbers) <= most + 1:
        return list(numbers)
    return [*numbers[: most - 1], None, numbers[-1]]


class _Picture:
    """One fabric, drawn from `top` down."""

    def __init__(self, svg: _Svg, plan: FabricPlan, top: float) -> None:
        self.svg, self.plan, self.top = svg, plan, top
        self.fabric, self.shape = plan.fabric, plan.shape
        self.by_rail = self.fabric.kind == "rail_optimized"
        tiers = ("core", "spine", "leaf")[3 - self.shape.tiers :]
        y = top + HEADING_H + PADDING
        self.y = {row: y + ROW_H * number for number, row in enumerate((*tiers, "node"))}

    def draw(self) -> float:
        """Draw it; where the next may start."""
        self._heading()
        left = MARGIN + PADDING
        right, spines = self._pods(left)
        self._cores(left, right, spines)
        bottom = self.y["node"] + BOX_H + FOOT_H
        planes = self.fabric.planes
        for plane in reversed(range(planes)):
            shift = plane * CARD_SHIFT
            card = (MARGIN + shift, self.top + HEADING_H + shift, right + PADDING + shift, bottom + shift)
            self.svg.card(*card, CARD_COLOURS[plane > 0])
        return bottom + planes * CARD_SHIFT + 2 * MARGIN

    def _heading(self) -> None:
        fabric, counts = self.fabric, self.plan.counts
        title = f"{self.plan.region}: {fabric.kind}, {self.shape.nodes:,} nodes"
        counted = {"cores": counts.cores, "spines": counts.spines, "leafs": counts.leafs}
        switches = ", ".join(f"{number:,} {what}" for what, number in counted.items() if number)
        cables = (
            f"{counts.node_leaf_cables:,} cables to nodes, {counts.leaf_spine_cables:,} to spines, "
            f"{counts.spine_core_cables:,} to cores"
        )
        in_planes = f" in {fabric.planes} planes, of which one is drawn" if fabric.planes > 1 else ""
        lines = (
            f"{switches}{in_planes} · {cables.replace(', 0 to spines', '').replace(', 0 to cores', '')}",
            f"{fabric.link_gbps} Gbit/s · {fabric.radix} ports a switch · {self._ports()}",
        )
        self.svg.text(MARGIN, self.top + 20, title, size=17)
        for number, line in enumerate(lines):
            self.svg.text(MARGIN, self.top + 42 + 18 * number, line, size=12)

    def _ports(self) -> str:
        """How the ports of leafs and spines are used."""
        pod = self.shape.pods[0]
        parts = [f"of a leaf {down_ports(self.fabric)} down"]
        if pod.spines:
            parts.append(f"{self.shape.leaf_up} up, {self.shape.leaf_up // pod.spines} to a spine")
        if self.shape.cores:  # of which only those to drawn cores are seen
            parts.append(f"of a spine {self.shape.spine_down} down, {self.shape.spine_up} up")
        return ", ".join(parts)

    def _pods(self, left: float) -> tuple[float, dict[int, Point]]:
        """Where the last one ends, and the tops of the spines by their numbers."""
        pods, x = self.shape.pods, left
        spines: dict[int, Point] = {}
        for number in _sample(range(len(pods)), MOST_PODS):
            if number is None:
                x = self._gap(x, self.y["leaf"], f"{len(pods) - MOST_PODS} more pods")
            else:
                end, tops = self._pod(x, number, pods[number])
                spines |= tops
                x = end
            x += POD_GAP
        return x - POD_GAP, spines

    def _pod(self, left: float, number: int, pod: Pod) -> tuple[float, dict[int, Point]]:
        per_group, several = leafs_per_group(self.fabric), len(self.shape.pods) > 1
        groups = range(pod.first_leaf // per_group, (pod.first_leaf + pod.leafs - 1) // per_group + 1)
        most = MOST_IN_POD if several else MOST_GROUPS
        x, leafs = left, []
        for group in _sample(groups, most):
            if group is None:
                x = self._gap(x, self.y["leaf"], f"{len(groups) - most} more")
            else:
                x, tops = self._group(x, group)
                leafs += tops
            x += GROUP_GAP
        right = x - GROUP_GAP
        if several:
            self.svg.text(
                (left + right) / 2, self.y["node"] + BOX_H + 22, f"pod {number}", anchor="middle", size=13
            )
        spines = self._row(
            left, right, self.y.get("spine", 0), range(pod.first_spine, pod.first_spine + pod.spines),
            MOST_IN_POD if several else MOST_SPINES, ("spine", SPINE_COLOUR),
        )  # fmt: skip
        for low, high in product(leafs, spines.values()):
            self._join(low, high)
        return right, spines

    def _group(self, left: float, group: int) -> tuple[float, list[Point]]:
        """Its leafs, one by one where there are few, and its nodes."""
        per_group = leafs_per_group(self.fabric)
        first, tops = group * per_group, []
        one_by_one = self.by_rail and self.shape.leafs <= MOST_LEAFS
        x = left
        for rail in range(per_group if one_by_one else 1):
            if one_by_one:
                colour, texts = (
                    RAIL_COLOURS[rail % len(RAIL_COLOURS)],
                    [f"leaf {first + rail}", f"rail {rail}"],
                )
            else:
                colour, texts = LEAF_COLOUR, self._leaf_texts(first, per_group)
            width = BOX_W if one_by_one else 2 * BOX_W
            tops.append(self.svg.box(x, self.y["leaf"], width, colour, *texts))
            x += width + GAP
        right = x - GAP
        self._nodes(left, right, group, tops)
        return right, tops

    def _leaf_texts(self, first: int, count: int) -> list[str]:
        if not self.by_rail:
            return [f"leaf {first}"]
        return [f"leafs {first} – {first + count - 1}", f"rails 0 – {count - 1}"]

    def _nodes(self, left: float, right: float, group: int, leafs: Sequence[Point]) -> None:
        per_group = nodes_per_group(self.fabric)
        names = [name for name, _ in self.plan.nodes[group * per_group : (group + 1) * per_group]]
        width = max(right - left, 2 * BOX_W)
        span = names[0] if len(names) == 1 else f"{names[0]} … {names[-1].rpartition('-')[2]}"
        x = (left + right - width) / 2
        self.svg.box(x, self.y["node"], width, NODE_COLOUR, span, f"{len(names)} of {per_group} nodes")
        for number, (middle, top) in enumerate(leafs):
            colour = RAIL_COLOURS[number % len(RAIL_COLOURS)] if len(leafs) > 1 else LINE_COLOUR
            self.svg.line((middle, top + BOX_H), (middle, self.y["node"]), colour, 3)

    def _row(
        self, left: float, right: float, y: float, numbers: range, most: int, kind: tuple[str, str]
    ) -> dict[int, Point]:
        """Switches of a tier, spread between left and right; their tops by their numbers."""
        shown = _sample(numbers, most)
        step = max((right - left) / max(len(shown), 1), BOX_W + GAP)
        x = (left + right - step * len(shown)) / 2 + (step - BOX_W) / 2
        tops: dict[int, Point] = {}
        for number in shown:
            if number is None:
                self.svg.text(x + BOX_W / 2, y + 24, f"… {len(numbers) - most} …", anchor="middle", size=13)
            else:
                tops[number] = self.svg.box(x, y, BOX_W, kind[1], f"{kind[0]} {number}")
            x += step
        return tops

    def _cores(self, left: float, right: float, spines: dict[int, Point]) -> None:
        if "core" not in self.y:
            return
        numbers = range(self.shape.cores)
        cores = self._row(left, right, self.y["core"], numbers, MOST_CORES, ("core", CORE_COLOUR))
        for spine, low in spines.items():
            joined = {core_of(self.shape, spine, uplink)[0] for uplink in range(self.shape.spine_up)}
            for core in joined & cores.keys():
                self._join(low, cores[core])

    def _join(self, low: Point, high: Point) -> None:
        self.svg.line(low, (high[0], high[1] + BOX_H), LINE_COLOUR, 1)

    def _gap(self, x: float, y: float, said: str) -> float:
        self.svg.text(x + BOX_W / 2, y + 24, f"… {said} …", anchor="middle", size=12)
        return x + BOX_W


def fabrics_svg(fabrics: Iterable[FabricPlan]) -> str:
    """The SVG of some regions' fabrics, below each other."""
    svg, top = _Svg(), float(MARGIN)
    for plan in fabrics:
        top = _Picture(svg, plan, top).draw()
    return svg.render()
