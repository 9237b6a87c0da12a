"""The curves behind the numbers, as a fragment of a page: inline SVG, no script, no other file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from math import inf, log10

from infra.capabilities.reliability.outlook import Outlook, gains
from infra.capabilities.reliability.simulation import spread
from infra.ground.page import table

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 640, 264, 56, 24, 44, 12
POINTS = 80
RUNS, DAYS = 200, 30


def fragment(outlook: Outlook, lines: Sequence[str]) -> str:
    """The plan's lines, efficiency against the interval, goodput against spares, and tables."""
    job = outlook.job
    told = "".join(f"<li>{escape(line.strip())}</li>" for line in lines[1:])
    parts = [f"<h2>{escape(lines[0])}</h2><ul>{told}</ul>"]
    if job.mtbf_s != inf:
        marks = {"planned": job.interval_s / 60, "the best by Daly": job.daly_s / 60}
        middle = job.daly_s / 60
        low, high = min(middle / 20, marks["planned"]), max(middle * 20, marks["planned"])
        intervals = [low * (high / low) ** (number / POINTS) for number in range(POINTS + 1)]
        parts.append(
            _figure(
                "Efficiency against the interval between checkpoints",
                "minutes between checkpoints",
                intervals,
                lambda minutes: replace(job, declared_interval_s=60 * minutes).efficiency,
                marks if job.declared_interval_s is not None else {"the best by Daly": middle},
                logarithmic=True,
            )
        )
    needed = job.spares_needed(outlook.availability)
    spares = list(range(2 * max(needed, job.spares, 2) + 1))
    parts.append(
        _figure(
            "Goodput against spares",
            "spares",
            spares,
            lambda number: replace(job, spares=int(number)).goodput,
            {"planned": job.spares, "the target needs": needed},
        )
    )
    seen = spread(job, DAYS, RUNS, 1)
    parts.append(
        f"<p>Simulated, {RUNS} times {DAYS} days: goodput {seen.p50:.1%} in the middle,"
        f" {seen.p5:.1%} in the worst run of twenty, {seen.p95:.1%} in the best.</p>"
    )
    best = sorted(gains(outlook).items(), key=lambda item: -item[1])
    bought = [(what, f"{100 * gain:+.2f}") for what, gain in best]
    parts.append(table("What one more brings, in points of goodput", ("", "points"), bought))
    pools = [
        (one.pool, f"{one.nodes:,}", f"{one.mean_away:.2f}", str(one.spares_needed)) for one in outlook.pools
    ]
    parts.append(table("Spares of each pool by itself", ("pool", "nodes", "away", "spares"), pools))
    return "\n".join(parts)


def _figure(
    title: str,
    across: str,
    xs: Sequence[float],
    height: Callable[[float], float],
    marks: Mapping[str, float],
    *,
    logarithmic: bool = False,
) -> str:
    scale: Callable[[float], float] = log10 if logarithmic else float
    low, high = scale(xs[0]), scale(xs[-1])

    def x_of(value: float) -> float:
        return LEFT + (scale(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - value * (HEIGHT - BOTTOM - TOP)

    line = " ".join(f"{x_of(x):.1f},{y_of(height(x)):.1f}" for x in xs)
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(share):.1f}" y2="{y_of(share):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y_of(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    )
    ticks = "".join(
        f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{x:.3g}</text>'
        for x in (xs[0], xs[len(xs) // 4], xs[len(xs) // 2], xs[3 * len(xs) // 4], xs[-1])
    )
    told = "; ".join(f"{name}: {height(mark):.1%} at {mark:.3g} {across}" for name, mark in marks.items())
    circles = "".join(
        f'<circle cx="{x_of(mark):.1f}" cy="{y_of(height(mark)):.1f}" r="4">'
        f"<title>{escape(name)}</title></circle>"
        for name, mark in marks.items()
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}: {told}")}">'
        f"<title>{escape(title)}</title>{grid}{ticks}"
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{escape(across)}</text>'
        f'<polyline points="{line}"/>'
        f"{circles}"
        f"</svg><figcaption>{escape(title)}: {escape(told)}</figcaption></figure>"
    )
