"""How old things are by this node's clock, which may jump.

A clock that jumps ahead, by a hand, a bad battery or a bad server of time, makes everything old at once; one
that was behind has given what was written meanwhile a date long ago. So an age counts from the last jump on.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import NamedTuple

JUMP_S = 3600
"""More than a clock is slewed between two looks, and less than anything is kept that goes by age."""
AWAY_S = 2 * 86_400
"""A machine that was off for longer cannot tell that from a jump. Nobody could use what it holds, either."""


class Clock(NamedTuple):
    """What it says now, and when it last jumped, in seconds since 1970; 0 for never."""

    now: float
    steady_since: float = 0

    def age_s(self, stamp: float) -> float:
        """For how long a time stamp is past at least."""
        return self.now - max(stamp, self.steady_since)


def look(file: Path) -> Clock:
    """The clock, as far as FILE knows of looks before, which is written whole or not at all.

    A file that cannot be read counts as a jump. On a full disk the next look is held against an earlier one.
    """
    running_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    clock = compared(file, time.time(), running_s, boot)
    part = file.with_name(f"{file.name}.part")
    with contextlib.suppress(OSError):
        part.write_text(json.dumps({"running_s": running_s, "boot": boot, **clock._asdict()}))
        part.replace(file)
    return clock


def compared(file: Path, now: float, running_s: float, boot: str) -> Clock:
    """The clock by what FILE has of the look before; `running_s`: seconds since the boot of that identity."""
    try:
        before = json.loads(file.read_text())
        passed_s, steady_since = now - float(before["now"]), float(before["steady_since"])
        least_s, most_s = running_s, running_s + AWAY_S
        if before["boot"] == boot:
            least_s = most_s = running_s - float(before["running_s"])
    except FileNotFoundError:
        return Clock(now)
    except (ValueError, TypeError, KeyError):
        return Clock(now, steady_since=now)
    is_steady = least_s - JUMP_S <= passed_s <= most_s + JUMP_S
    return Clock(now, steady_since if is_steady else now)
