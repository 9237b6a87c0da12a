"""Names of hosts in a text for people, who read a thousand of them only as ranges."""

import re
from collections.abc import Iterable, Sequence

NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)
SHORTEST = 3
"""What is fewer is named one by one."""
MOST = 12


def natural(name: str) -> list[tuple[int, str]]:
    """By what names are sorted in natural order."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def ranges(names: Iterable[str]) -> list[tuple[str, int]]:
    """Names in natural order as ranges, each with how many names it stands for.

    `gpu-0 gpu-1 gpu-2 gpu-9 login` → `gpu-0…2`, `gpu-9`, `login`; `n-09 n-10 n-11` → `n-09…11`.
    """
    found: list[list[str]] = []
    for name in sorted(set(names), key=lambda name: (natural(name), name)):
        if found and name == _successor(found[-1][-1]):
            found[-1].append(name)
        else:
            found.append([name])
    return [one for run in found for one in _said(run)]


def some(names: Iterable[str], most: int = MOST) -> str:
    """The first ranges of names, and how many names follow."""
    found = ranges(names)
    more = sum(count for _, count in found[most:])
    return ", ".join(text for text, _ in found[:most]) + (f" and {more} more" if more else "")


def _successor(name: str) -> str | None:
    """`gpu-9` → `gpu-10`, `gpu-09` → `gpu-10`; None for a name without a number at its end."""
    parts = NUMBERED.fullmatch(name)
    return parts and f"{parts[1]}{str(int(parts[2]) + 1).zfill(len(parts[2]))}"


def _said(run: Sequence[str]) -> list[tuple[str, int]]:
    if len(run) < SHORTEST:
        return [(name, 1) for name in run]
    prefix = run[0].rstrip("0123456789")
    return [(f"{run[0]}…{run[-1][len(prefix) :]}", len(run))]
