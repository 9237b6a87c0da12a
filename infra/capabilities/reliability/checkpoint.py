"""Checkpoints: the best interval, and what is left of the time. Times in seconds."""

from math import ceil, erf, exp, expm1, inf, sqrt

SECONDS_A_DAY = 86400
LARGE_MEAN = 500
"""Nodes away, above which e^-mean nears the smallest double."""


def mtbf_s(nodes: int, rate: float) -> float:
    """Mean time between failures of NODES nodes that fail RATE times in 1,000 node-days."""
    return inf if nodes * rate == 0 else 1000 * SECONDS_A_DAY / (nodes * rate)


def young_s(cost_s: float, mtbf_s: float) -> float:
    """The interval by Young (1974, CACM 17/9): √(2CM); for C much smaller than M."""
    return sqrt(2 * cost_s * mtbf_s)


def daly_s(cost_s: float, mtbf_s: float) -> float:
    """The interval by Daly (2006, FGCS 22/3, eq. 37), without the checkpoint itself.

    √(2CM) · (1 + ⅓ √(C/2M) + C/18M) − C for C < 2M, else M.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    half = cost_s / (2 * mtbf_s)
    return young_s(cost_s, mtbf_s) * (1 + sqrt(half) / 3 + half / 9) - cost_s


def efficiency(interval_s: float, cost_s: float, restart_s: float, mtbf_s: float) -> float:
    """The share of the time in which a job makes progress that it keeps, from 0 to 1.

    Daly's complete model (eq. 20): t / (M · e^(R/M) · (e^((t+C)/M) − 1)). It takes failures for exponential
    and independent, also during restarts and checkpoints.
    """
    if mtbf_s == inf:
        return 1.0 if interval_s == inf else interval_s / (interval_s + cost_s)
    exponent = (interval_s + cost_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 700:  # e^700 is about the largest double
        return 0.0
    return interval_s / (mtbf_s * exp(restart_s / mtbf_s) * expm1(exponent))


def longest_cost_s(mtbf_s: float) -> float:
    """The longest that a checkpoint may take whose best interval is as long as itself: Daly's t(C) = C."""
    low, high = 0.0, mtbf_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if daly_s(middle, mtbf_s) >= middle else (low, middle)
    return low


def spares_for(mean_away: float, availability: float) -> int:
    """The fewest spares with which at most that many nodes are away with this probability (0 to below 1).

    Nodes away are Poisson distributed about their mean, nodes · rate · repair time, where failures are
    independent and no repair waits for another (M/G/∞).
    """
    low, high = 0, ceil(mean_away + 40 * sqrt(mean_away) + 40)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if enough(middle, mean_away) < availability else (low, middle)
    return low


def enough(spares: int, mean_away: float) -> float:
    """The probability that at most SPARES nodes are away: Poisson, for large means as good as normal."""
    if mean_away > LARGE_MEAN:
        return (1 + erf((spares + 0.5 - mean_away) / sqrt(2 * mean_away))) / 2
    term = total = exp(-mean_away)
    for count in range(1, spares + 1):
        term *= mean_away / count
        total += term
    return min(total, 1.0)
