"""The curves behind the numbers, as a fragment of a page: inline SVG, no script, no other file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from math import inf, log10

from infra.capabilities.reliability.outlook import Outlook, gains
from infra.capabilities.reliability.simulation import spread

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 260, 56, 40, 12
POINTS = 80
RUNS, DAYS = 200, 30


def fragment(outlook: Outlook) -> str:
    """Efficiency against the interval, goodput against spares, and what one more unit brings."""
    job = outlook.job
    parts = [f"<h2>Reliability</h2><p>By {escape(job.rates.source)}.</p>"]
    if job.mtbf_s != inf:
        best = job.interval_s
        intervals = [best / 20 * 400 ** (number / POINTS) for number in range(POINTS + 1)]
        parts.append(
            _figure(
                "Efficiency against the interval between checkpoints",
                "minutes between checkpoints",
                [one / 60 for one in intervals],
                [replace(job, declared_interval_s=one).efficiency for one in intervals],
                best / 60,
                logarithmic=True,
            )
        )
    needed = job.spares_needed(outlook.availability)
    spares = list(range(2 * max(needed, job.spares, 2) + 1))
    parts.append(
        _figure(
            "Goodput against spares",
            "spares",
            [float(one) for one in spares],
            [replace(job, spares=one).goodput for one in spares],
            float(job.spares),
        )
    )
    seen = spread(job, DAYS, RUNS, 1)
    parts.append(
        f"<p>Simulated, {RUNS} times {DAYS} days: goodput {seen.p50:.1%} in the middle,"
        f" {seen.p5:.1%} in the worst run of twenty, {seen.p95:.1%} in the best.</p>"
    )
    rows = "".join(
        f"<tr><td>{escape(what)}</td><td>{100 * gain:+.2f}</td></tr>"
        for what, gain in sorted(gains(outlook).items(), key=lambda item: -item[1])
    )
    parts.append(f"<table><caption>What one more brings, in points of goodput</caption>{rows}</table>")
    return "\n".join(parts)


def _figure(
    title: str,
    across: str,
    xs: Sequence[float],
    ys: Sequence[float],
    mark: float,
    *,
    logarithmic: bool = False,
) -> str:
    scale: Callable[[float], float] = log10 if logarithmic else float
    low, high = scale(xs[0]), scale(xs[-1])

    def x_of(value: float) -> float:
        return LEFT + (scale(value) - low) / (high - low) * (WIDTH - LEFT - 12)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - value * (HEIGHT - BOTTOM - TOP)

    line = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in zip(xs, ys, strict=True))
    nearest = min(range(len(xs)), key=lambda number: abs(xs[number] - mark))
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y_of(share):.1f}" y2="{y_of(share):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y_of(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    )
    ticks = "".join(
        f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.3g}</text>'
        for x in (xs[0], xs[len(xs) // 4], xs[len(xs) // 2], xs[3 * len(xs) // 4], xs[-1])
    )
    told = f"{ys[nearest]:.1%} at {mark:.3g} {across}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}: {told}")}">'
        f"<title>{escape(title)}</title>{grid}{ticks}"
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{escape(across)}</text>'
        f'<polyline points="{line}"/>'
        f'<circle cx="{x_of(mark):.1f}" cy="{y_of(ys[nearest]):.1f}" r="4"/>'
        f"</svg><figcaption>{escape(title)}: {escape(told)}</figcaption></figure>"
    )
