"""A plan as a tree of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.plan.nodes import (
    AggCall,
    Aggregate,
    Analytic,
    AsofJoin,
    Distinct,
    Expr,
    Extremes,
    Filter,
    Generate,
    Interval,
    Join,
    LookupJoin,
    Named,
    Node,
    ProbeJoin,
    Project,
    Query,
    Recursive,
    Scan,
    SetOp,
    SortKey,
    TemporalFilter,
    TemporalJoin,
    TopN,
    Union,
    Values,
    WindowAssign,
    WindowCall,
    WindowFrame,
)
from penstock.plan.repeats import repeats
from penstock.plan.room import with_room


def explain(query: Query, note: Callable[[Node], str] | None = None) -> str:
    """The tree, root first. `note` returns text to append to a node's line, such as its execution path and state.

    A subplan that is computed once and used in several places has a number, and is shown in full only at the first one.
    """
    return with_room(lambda: _explain(query, note))


def _explain(query: Query, note: Callable[[Node], str] | None) -> str:
    every = f" {interval_text(query.emit.every)}" if query.emit.every else ""
    order = f" order [{', '.join(map(str, query.order))}]" if query.order else ""
    lines = [f"Output [{', '.join(query.names)}] emit {query.emit.kind}{every}{order}"]
    _tree(query.root, "", True, lines, note, repeats(query.root), set())
    return "\n".join(lines)


def _tree(
    node: Node,
    indent: str,
    last: bool,
    lines: list[str],
    note: Callable[[Node], str] | None,
    places: Mapping[int, int],
    shown: set[int],
) -> None:
    branch = "└─ " if last else "├─ "
    part = places.get(id(node))
    if part in shown:
        lines.append(f"{indent}{branch}Part {part} again → [{', '.join(node.columns)}]{' ±' if node.changelog else ''}")
        return
    name = ""
    if part is not None:
        shown.add(part)
        name = f"Part {part}: "
    extra = note(node) if note is not None else ""
    lines.append(f"{indent}{branch}{name}{describe(node)}{'  ' + extra if extra else ''}")
    deeper = indent + ("   " if last else "│  ")
    for i, child in enumerate(node.children):
        _tree(child, deeper, i == len(node.children) - 1, lines, note, places, shown)


def describe(node: Node) -> str:
    """One line: the operator and its arguments, and `±` if rows can be retracted."""
    return f"{_line(node)}{' ±' if node.changelog else ''}"


def _line(node: Node) -> str:
    match node:
        case Scan():
            times = (
                f" time [{', '.join(t.column + (f' -{t.lag_ms}ms' if t.lag_ms else '') for t in node.times)}]"
                if node.times
                else ""
            )
            return f"Scan {node.object} [{', '.join(i for i, _ in node.fields)}]{times}"
        case Values():
            return f"Values {len(node.rows)} row{'s' if len(node.rows) != 1 else ''} [{', '.join(node.names)}]"
        case Filter():
            return f"Filter {_sql(node.predicate)}"
        case Project():
            return f"Project [{_named(node.items)}]"
        case Generate():
            return f"Generate {_sql(node.generator)} → [{', '.join(node.outputs)}]{' outer' if node.outer else ''}"
        case WindowAssign():
            step = f", {interval_text(node.step)}" if node.step else ""
            offset = f", offset {interval_text(node.offset)}" if node.offset != Interval() else ""
            return f"Window {node.kind}({_sql(node.time)}{step}, {interval_text(node.size)}{offset}) → [{node.start}, {node.end}]"
        case Aggregate():
            return _aggregate(node)
        case Extremes():
            most = "least" if node.least else "greatest"
            late = f" lateness {node.lateness_ms}ms" if node.lateness_ms else ""
            return f"Extremes {most} {_sql(node.value)} by [{', '.join(node.keys)}] closes at {node.window_end}{late}"
        case Distinct():
            return "Distinct"
        case TemporalFilter():
            enter = f"{_sql(node.enter_ms)} ≤ " if node.enter_ms else ""
            leave = f" < {_sql(node.exit_ms)}" if node.exit_ms else ""
            return f"TemporalFilter {enter}now{leave}"
        case Union():
            return "Union all"
        case SetOp():
            return node.kind.capitalize()
        case Recursive():
            residual = f" and {_sql(node.residual)}" if node.residual else ""
            made = ", ".join(_sql(e) for e in node.outputs)
            kind = "union all" if node.everything else "union"
            keys = _keys(node.left_keys, node.right_keys)
            return f"Recursive {kind} [{', '.join(node.names)}] step {keys}{residual} → [{made}] depth ≤ {node.max_depth}, one partition"
        case TopN():
            rank = f" {node.rank}" + (f" → {node.rank_name}" if node.rank_name else "") if node.rank else ""
            offset = f" offset {node.offset}" if node.offset else ""
            return f"TopN{_by(node.partition)}{_order(node.order)} limit {node.limit}{offset}{rank}"
        case Analytic():
            return f"Analytic [{', '.join(_call(c) for c in node.calls)}]{_by(node.partition)}{_order(node.order)}"
        case Join():
            return _join(node)
        case LookupJoin():
            residual = f" and {_sql(node.residual)}" if node.residual else ""
            how = " on demand" if node.on_demand else ""
            return f"LookupJoin {node.kind}{how} {_keys(node.left_keys, node.right_keys)}{residual}"
        case AsofJoin():
            tolerance = f" within {node.tolerance_ms}ms" if node.tolerance_ms is not None else ""
            how = f"{node.direction}{' strict' if node.strict else ''}({_sql(node.left_time)}, {_sql(node.right_time)}){tolerance}"
            return (
                f"AsofJoin {node.kind} {_keys(node.left_keys, node.right_keys)} {how}{' eager' if node.eager else ''}"
            )
        case TemporalJoin():
            times = f"({_sql(node.left_time)}, {_sql(node.right_time)})"
            return f"TemporalJoin {node.kind} {_keys(node.left_keys, node.right_keys)} as of {times}"
        case ProbeJoin():
            times = f"({_sql(node.left_time)}, {_sql(node.right_time)})"
            offsets = ", ".join(f"{o}ms" for o in node.offsets[:8]) + (", …" if len(node.offsets) > 8 else "")
            return f"ProbeJoin {_keys(node.left_keys, node.right_keys)} at {times} + [{offsets}]"
    return type(node).__name__


def _sql(expr: Expr) -> str:
    return expr.sql().replace("`", "")


def _named(items: Sequence[Named]) -> str:
    return ", ".join(i.name if i.expr.column == i.name else f"{_sql(i.expr)} AS {i.name}" for i in items)


def _aggregate(node: Aggregate) -> str:
    parts = [f"Aggregate [{', '.join(_agg(a) for a in node.aggs)}]"]
    if node.keys:
        parts.append(f"by [{_named(node.keys)}]")
    if node.session:
        parts.append(
            f"session({_sql(node.session.time)}, {interval_text(node.session.gap)}) → [{node.session.start}, {node.session.end}]"
        )
    if node.window_end:
        parts.append(f"closes at {node.window_end}")
    if node.lateness_ms:
        parts.append(f"lateness {node.lateness_ms}ms")
    if node.late_to:
        parts.append(f"late to {node.late_to}")
    parts.append(node.mode.value)
    return " ".join(parts)


def _agg(call: AggCall) -> str:
    args = ", ".join(_sql(a) for a in call.args) or ("*" if call.func == "count" else "")
    order = _order(call.order)
    text = f"{call.func}({'DISTINCT ' if call.distinct else ''}{args}{order})"
    if call.ignore_nulls:
        text += " ignore nulls"
    if call.filter:
        text += f" filter ({_sql(call.filter)})"
    return f"{text} AS {call.name}"


def _call(call: WindowCall) -> str:
    args = ", ".join(_sql(a) for a in call.args) or ("*" if call.func == "count" else "")
    frame = f" {_frame(call.frame)}" if call.frame else ""
    return f"{call.func}({args}){' ignore nulls' if call.ignore_nulls else ''}{frame} AS {call.name}"


def _frame(frame: WindowFrame) -> str:
    def edge(value: int | float | None, unbounded: str) -> str:
        return unbounded if value is None else "0" if value == 0 else f"{value:+}"

    return f"{frame.unit}[{edge(frame.start, '-∞')}..{edge(frame.end, '+∞')}]"


def _by(partition: Sequence[Expr]) -> str:
    return f" by [{', '.join(_sql(p) for p in partition)}]" if partition else ""


def _order(order: Sequence[SortKey]) -> str:
    def one(k: SortKey) -> str:
        nulls = "" if k.nulls_first is not k.desc else " nulls first" if k.nulls_first else " nulls last"
        return f"{_sql(k.expr)}{' desc' if k.desc else ''}{nulls}"

    return f" order [{', '.join(one(k) for k in order)}]" if order else ""


def _keys(left: Sequence[Expr], right: Sequence[Expr], null_safe: frozenset[int] = frozenset()) -> str:
    pairs = (
        f"{_sql(a)} {'<=>' if i in null_safe else '='} {_sql(b)}"
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )
    return f"on [{', '.join(pairs)}]"


def _join(node: Join) -> str:
    text = f"Join {node.kind} {_keys(node.left_keys, node.right_keys, node.null_safe)}"
    if node.time_bound:
        b = node.time_bound
        text += f" within {_sql(b.right_time)} - {_sql(b.left_time)} in [{b.lower_ms}ms, {b.upper_ms}ms]"
    text += f" and {_sql(node.residual)}" if node.residual else ""
    text += f" forgets after {interval_text(Interval(micros=node.ttl_ms * 1000))}" if node.ttl_ms else ""
    return text + (f" → {node.mark}" if node.mark else "")


def interval_text(interval: Interval) -> str:
    if interval.months:
        return f"{interval.months}mo"
    for size, unit in ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")):
        if interval.micros and interval.micros % size == 0:
            return f"{interval.micros // size}{unit}"
    return f"{interval.micros}us"
