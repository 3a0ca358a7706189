"""Helpers for the line that describes a node."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.nodes.base import Expr, Interval, Named, SortKey


def sql_text(expr: Expr) -> str:
    return expr.sql().replace("`", "")


def named_text(items: Sequence[Named]) -> str:
    return ", ".join(i.name if i.expr.column == i.name else f"{sql_text(i.expr)} AS {i.name}" for i in items)


def partition_text(partition: Sequence[Expr]) -> str:
    return f" by [{', '.join(sql_text(p) for p in partition)}]" if partition else ""


def order_text(order: Sequence[SortKey]) -> str:
    def one(k: SortKey) -> str:
        nulls = "" if k.nulls_first is not k.desc else " nulls first" if k.nulls_first else " nulls last"
        return f"{sql_text(k.expr)}{' desc' if k.desc else ''}{nulls}"

    return f" order [{', '.join(one(k) for k in order)}]" if order else ""


def keys_text(left: Sequence[Expr], right: Sequence[Expr], null_safe: frozenset[int] = frozenset()) -> str:
    pairs = (
        f"{sql_text(a)} {'<=>' if i in null_safe else '='} {sql_text(b)}"
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )
    return f"on [{', '.join(pairs)}]"


def residual_text(residual: Expr | None) -> str:
    return f" and {sql_text(residual)}" if residual else ""


def arguments_text(func: str, args: Sequence[Expr]) -> str:
    return ", ".join(sql_text(a) for a in args) or ("*" if func == "count" else "")


def interval_text(interval: Interval) -> str:
    if interval.months:
        return f"{interval.months}mo"
    for size, unit in ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")):
        if interval.micros and interval.micros % size == 0:
            return f"{interval.micros // size}{unit}"
    return f"{interval.micros}us"
