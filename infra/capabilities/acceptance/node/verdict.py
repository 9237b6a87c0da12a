"""What is to be done with a node, from what was found on it: pure.

What is kept between runs (`State`) makes joining earned: a node that was taken out, or never was in, returns
by the active tier only; one that was taken out again and again stays out until somebody says it is repaired.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

ACTIONS = ("none", "watch", "drain", "reset", "reboot", "repair", "replace")
"""From the lightest: what is later includes what is before. From `drain` on no job may start."""
OUT = ACTIONS[2:]
SEVERITIES = ("good", "unsupported", "warning", "unknown", "waiting", "critical")
"""`unsupported`: there is no GPU here. `unknown`: a question has no answer. `waiting`: not accepted yet."""
PROVING = ("active", "burn-in")
"""Tiers by which a node is accepted."""
FLAPS, FLAP_WINDOW_S = 3, 7 * 86400
"""Taken out so often within a week is no accident (a rule of ours)."""
MOST_REASONS = 40


class Finding:
    """One thing that was found: what it says, and what it asks for.

    `kind`: `bad` asks for `action`; `note` is worth a line; `unknown` and `unsupported` as the severities.
    """

    def __init__(self, kind: str, text: str, action: str = "none") -> None:
        self.kind, self.action = kind, action
        self.text = " ".join(text.split())[:300]


def bad(action: str, text: str) -> Finding:
    """It is not as it should be."""
    return Finding("bad", text, action)


def note(text: str) -> Finding:
    """It asks for nothing."""
    return Finding("note", text)


def unknown(text: str) -> Finding:
    """There is no telling: never good, and no reason to take a node out by itself."""
    return Finding("unknown", text, "watch")


def unsupported(text: str) -> Finding:
    """This node cannot have it."""
    return Finding("unsupported", text)


def new_state() -> dict[str, Any]:
    """Of a node that was never looked at."""
    return {
        "accepted": False,
        "taken_out": [],
        "cleared_at": 0.0,
        "cleared_boot": "",
        "cleared_us": 0,
        "active_at": 0.0,
        "active_boot": "",
        "refused": "",
        "since": 0.0,
        "action": "",
        "counters": {},
    }


def read_state(value: Any) -> dict[str, Any]:
    """A state as it was kept; every part that is not of its type is as of a new node."""
    state = new_state()
    if isinstance(value, dict):
        for key, plain in state.items():
            kept = value.get(key)
            if type(kept) is type(plain) or (isinstance(plain, float) and type(kept) is int):
                state[key] = kept
    state["taken_out"] = [at for at in state["taken_out"] if type(at) in (int, float)]
    state["counters"] = {key: n for key, n in state["counters"].items() if type(n) is int}
    return state


def worst(actions: Iterable[str]) -> str:
    """The one that goes furthest."""
    return ACTIONS[max((ACTIONS.index(action) for action in actions), default=0)]


def repaired(state: dict[str, Any], now: float, boot: str = "", up_us: int = 0) -> dict[str, Any]:
    """Somebody says that it is: what was before is forgotten, and it has to be accepted.

    `boot` and `up_us` say when that is in the journal's way, whatever the clock does: the boot's id, and the
    microseconds since then.
    """
    cleared = {"cleared_at": now, "cleared_boot": boot.replace("-", ""), "cleared_us": up_us}
    return dict(state, accepted=False, taken_out=[], active_at=0.0, **cleared)


def decided(
    findings: Sequence[Finding], state: dict[str, Any], tier: str, boot: str, now: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The verdict, and the state after it. `now`: seconds since 1970; `boot`: the kernel's boot id."""
    outs = state["taken_out"]
    if len(outs) < FLAPS:  # so many are forgotten by `repaired` only
        outs = [at for at in outs if 0 <= now - at <= FLAP_WINDOW_S]
    state = dict(state, taken_out=outs)
    findings = list(findings)
    action = worst(one.action for one in findings)
    if action in OUT and state["accepted"]:
        state.update(accepted=False, taken_out=[*state["taken_out"], now])
    flaps = len(state["taken_out"])
    if flaps >= FLAPS:
        findings.append(
            bad("repair", f"it was taken out {flaps} times within a week: see what it has in common")
        )
        action = worst([action, "repair"])
    knows = not any(one.kind == "unknown" for one in findings)
    if tier in PROVING:
        state.update(active_at=now, active_boot=boot)
        if action not in OUT and knows:
            state["accepted"] = True
        state["refused"] = "" if state["accepted"] else _gravest(findings)
    waits = not state["accepted"] and action not in OUT
    if waits:
        why = f", and last said: {state['refused']}" if state["refused"] else ""
        findings.append(bad("drain", f"it is not accepted: the active tier has not passed{why}"))
        action = "drain"
    if action != state["action"]:
        state.update(action=action, since=now)
    return _verdict(findings, state, tier, boot, now, waits), state


def _gravest(findings: Sequence[Finding]) -> str:
    """The text of the finding that kept it from being accepted."""
    return max(findings, key=lambda one: ACTIONS.index(one.action)).text


def _verdict(
    findings: list[Finding], state: dict[str, Any], tier: str, boot: str, now: float, waits: bool
) -> dict[str, Any]:
    findings = sorted(findings, key=lambda one: -ACTIONS.index(one.action))
    asking = [one.text for one in findings if one.kind in ("bad", "unknown", "unsupported")]
    return {
        "version": 1,
        "severity": _severity(findings, state["action"], waits),
        "action": state["action"],
        "reasons": asking[:MOST_REASONS],
        "notes": [one.text for one in findings if one.kind == "note"][:MOST_REASONS],
        "since": int(state["since"]),
        "boot_id": boot,
        "at": int(now),
        "tier": tier,
        "accepted": state["accepted"],
    }


def _severity(findings: list[Finding], action: str, waits: bool) -> str:
    kinds = {one.kind for one in findings}
    if waits:
        return "waiting"
    if action in OUT:
        return "critical"
    if "unknown" in kinds:
        return "unknown"
    if "bad" in kinds:
        return "warning"
    return "unsupported" if "unsupported" in kinds else "good"


def metrics(verdict: dict[str, Any], found: dict[str, int]) -> str:
    """In Prometheus' text format; `found` has further gauges, as `gpus`."""
    labels = '{severity="%s",action="%s"}' % (verdict["severity"], verdict["action"])
    values = [
        ("verdict", "What is to be done with this node: the one series is 1.", f"{labels} 1"),
        (
            "accepted",
            "1: the active tier passed, and nothing took the node out since.",
            f" {int(verdict['accepted'])}",
        ),
        ("verdict_timestamp_seconds", "When the node last looked.", f" {verdict['at']}"),
        ("verdict_since_timestamp_seconds", "Since when the action is the same.", f" {verdict['since']}"),
    ]
    values += [(f"{name}_found", f"{name}, as they were found.", f" {found[name]}") for name in sorted(found)]
    lines = []
    for name, meaning, value in values:
        metric = f"causeway_acceptance_{name}"
        lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} gauge", metric + value]
    return "\n".join(lines) + "\n"
