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
from penstock.sql.trees import bare

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
_STRUCT_SHAPE = {
    "window": "window(ts, '1 minute' [, '30 seconds' [, '10 seconds']])",
    "session_window": "session_window(ts, '5 minutes')",
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


def struct_time(ctx: Context, time: exp.Expression) -> exp.Expression:
    """The bound time of window() or session_window(): text and dates are cast, as Spark does."""
    return exp.cast(time, "TIMESTAMP") if type_of(ctx, time) in ("string", "date") else time


def struct_spec(ctx: Context, time: exp.Expression, call: exp.Anonymous) -> WindowSpec:
    """The window of a call of Spark's window() or session_window(), whose durations are text; `time` is bound."""
    name = call.name.lower()
    shape = f"Write {_STRUCT_SHAPE[name]}."
    most = 1 if name == "session_window" else 3
    args = call.expressions[1:]
    if not 1 <= len(args) <= most:
        raise ctx.fail("PSK-2003", f"wrong number of arguments for {name}()", call, hint=shape)
    known = type_of(ctx, time)
    if known not in (None, "timestamp"):
        hint = (
            "Write TUMBLE, HOP or SESSION, which take milliseconds, or timestamp_millis(…)."
            if known == "bigint"
            else None
        )
        hint = "Write CAST(… AS TIMESTAMP) there." if known == "timestamp_ntz" else hint
        raise ctx.fail("PSK-2002", f"the time argument of {name}() has type {known}", call, hint=hint)
    values = []
    for arg in args:
        value = intervals.of_duration(arg)
        if name == "session_window" and isinstance(arg, exp.Literal) and not arg.is_string:
            value = None
        if value is None and name == "session_window" and not isinstance(bare(arg), (exp.Literal, exp.Interval)):
            hint = "Write a gap that is the same for all rows, such as '5 minutes'."
            raise ctx.fail("PSK-2003", "the gap of session_window() must be a constant", arg, hint=hint)
        if value is None:
            raise ctx.fail("PSK-2008", f"the durations of {name}() must be text such as '5 minutes'", arg, hint=shape)
        if value.months:
            raise ctx.fail("PSK-2003", f"{name}() has no months", arg, hint="Write TUMBLE or HOP, which have.")
        values.append(value)
    size, step, offset = (*values, *[Interval()] * 3)[:3] if len(values) != 1 else (values[0], values[0], Interval())
    if size.micros <= 0 or step.micros <= 0:
        raise ctx.fail("PSK-2003", f"the durations of {name}() must be positive", call)
    if step.micros > size.micros or abs(offset.micros) >= step.micros:
        what = "the slide of window() is larger than its size"
        what = what if step.micros > size.micros else "the start of window() must be shorter than its slide"
        raise ctx.fail("PSK-2003", what, call, hint=shape)
    text = time.sql(dialect=DIALECT)
    if name == "session_window":
        return WindowSpec("session", text, size, None, Interval())
    hops = step != size
    return WindowSpec("hop" if hops else "tumble", text, size, step if hops else None, offset)


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
