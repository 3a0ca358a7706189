"""TUMBLE, HOP, CUMULATE and SESSION calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Interval
from penstock.sql import intervals
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import type_of

WindowKind = Literal["tumble", "hop", "cumulate", "session"]
_CALLS: dict[str, WindowKind] = {
    "TUMBLE": "tumble",
    "HOP": "hop",
    "CUMULATE": "cumulate",
    "__SESSION": "session",
    "SESSION": "session",
}
_SHAPE = {
    "tumble": "TUMBLE(ts, size [, offset])",
    "hop": "HOP(ts, slide, size [, offset])",
    "cumulate": "CUMULATE(ts, step, size)",
    "session": "SESSION(ts, gap)",
}
_COUNT = {"tumble": (1, 2), "hop": (2, 3), "cumulate": (2, 2), "session": (1, 1)}


@dataclass(frozen=True)
class WindowSpec:
    """`size` is the gap of a session."""

    kind: WindowKind
    time: str
    size: Interval
    step: Interval | None
    offset: Interval


def window_kind(node: exp.Expression) -> WindowKind | None:
    return _CALLS.get(node.name.upper()) if isinstance(node, exp.Anonymous) else None


def bound_of(node: exp.Expression) -> tuple[WindowKind, str] | None:
    """(kind, `start` or `end`) if the node is TUMBLE_START(…), SESSION_END(…) or similar."""
    if not isinstance(node, exp.Anonymous):
        return None
    head, _, tail = node.name.upper().rpartition("_")
    if tail in ("START", "END") and head in _CALLS:
        return _CALLS[head], tail.lower()
    return None


def window_spec(
    ctx: Context, kind: WindowKind, time: exp.Expression, args: list[exp.Expression], origin: exp.Expression
) -> WindowSpec:
    """Checks and parses the arguments after the time; `time` is bound."""
    low, high = _COUNT[kind]
    if not low <= len(args) <= high:
        raise ctx.fail(
            "PSK-2003", f"wrong number of arguments for {kind.upper()}", origin, hint=f"Write {_SHAPE[kind]}."
        )
    known = type_of(ctx, time)
    if known is not None and known not in ("timestamp", "bigint"):
        raise ctx.fail("PSK-2002", f"the time argument of {kind.upper()} has type {known}", origin)
    values = []
    for arg in args:
        value = intervals.from_node(arg)
        if value is None:
            raise ctx.fail(
                "PSK-2008",
                f"the arguments of {kind.upper()} after the time must be intervals",
                origin,
                hint=f"Write {_SHAPE[kind]}.",
            )
        values.append(value)
    spec = _made(kind, time.sql(dialect=DIALECT), values)
    _check(ctx, spec, known, origin)
    return spec


def _made(kind: WindowKind, time: str, values: list[Interval]) -> WindowSpec:
    zero = Interval()
    if kind in ("tumble", "session"):
        return WindowSpec(kind, time, values[0], None, values[1] if len(values) > 1 else zero)
    return WindowSpec(kind, time, values[1], values[0], values[2] if len(values) > 2 else zero)


def _check(ctx: Context, spec: WindowSpec, known: str | None, origin: exp.Expression) -> None:
    what = "gap" if spec.kind == "session" else "size"
    for name, value in ((what, spec.size), ("step", spec.step)):
        if value is not None and (value.micros < 0 or value.months < 0 or not (value.micros or value.months)):
            raise ctx.fail("PSK-2003", f"the {name} of {spec.kind.upper()} must be positive", origin)
    if known == "bigint" and any(v.micros % 1000 for v in (spec.size, spec.step or spec.size, spec.offset)):
        raise ctx.fail("PSK-2003", "windows over BIGINT time must be whole milliseconds", origin)
    if spec.kind == "session" and spec.size.months:
        raise ctx.fail("PSK-2003", "the gap of SESSION cannot be in months", origin)
    step = spec.step
    if step is None:
        return
    if bool(step.months) != bool(spec.size.months):
        raise ctx.fail("PSK-2003", f"{spec.kind.upper()} mixes months with shorter units", origin)
    small, large = (step.months, spec.size.months) if step.months else (step.micros, spec.size.micros)
    if small > large:
        raise ctx.fail(
            "PSK-2003",
            f"the first interval of {spec.kind.upper()} is larger than the second",
            origin,
            hint=f"Write {_SHAPE[spec.kind]}.",
        )
    if spec.kind == "cumulate" and large % small:
        raise ctx.fail("PSK-2003", "the size of CUMULATE must be a multiple of its step", origin)
