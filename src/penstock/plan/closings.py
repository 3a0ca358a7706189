"""The times at which a query that emits only closed windows can emit."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan import nodes as p


@dataclass(frozen=True)
class Closing:
    """Watermarks at which windows close, in Unix milliseconds: `first_ms` and every `step_ms` before and after it."""

    step_ms: int
    first_ms: int


def closings(query: p.Query) -> frozenset[Closing]:
    """The watermarks before which a query emits nothing, except for late rows; empty if it can emit at other times."""
    gates = _gates(query.root) if query.emit.kind != "every" else None
    found = {_closing(window, gate) for gate in gates or () for window in _windows(gate)}
    if not gates or None in found or not all(_windows(gate) for gate in gates):
        return frozenset()
    return frozenset(c for c in found if c is not None)


def _gates(node: p.Node) -> list[p.Aggregate | p.Extremes] | None:
    """The operators that hold all rows back until their windows close; None if any rows bypass them."""
    closes = isinstance(node, p.Aggregate) and node.mode is p.EmitMode.CLOSE and node.session is None
    if closes or isinstance(node, p.Extremes):
        assert isinstance(node, (p.Aggregate, p.Extremes))
        return [node]
    gates: list[p.Aggregate | p.Extremes] = []
    for child in node.children:
        below = _gates(child)
        if below is None:
            return None
        gates += below
    return gates or None


def _windows(gate: p.Node) -> list[p.WindowAssign]:
    return [n for n in gate.walk() if isinstance(n, p.WindowAssign)]


def _closing(window: p.WindowAssign, gate: p.Aggregate | p.Extremes) -> Closing | None:
    """None for calendar months, and for windows that do not end at whole milliseconds."""
    step = window.step or window.size
    if step.months or window.size.months or window.offset.months:
        return None
    first = window.offset.micros + window.size.micros
    if step.micros % 1000 or first % 1000:
        return None
    step_ms = step.micros // 1000
    return Closing(step_ms, (first // 1000 + gate.lateness_ms) % step_ms)
