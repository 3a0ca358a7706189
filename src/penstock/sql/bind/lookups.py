"""Lookup joins: the right side has one row, or none, for each value of its key."""

from __future__ import annotations

from typing import Literal

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.plan.nodes import LookupJoin, Node, Scan
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import to_expr
from penstock.sql.bind.joins import Conditions


def is_lookup(ctx: Context, node: Node) -> bool:
    """Whether a plan is the scan of a lookup table."""
    return isinstance(node, Scan) and ctx.kinds.get(node.object_id) is Kind.LOOKUP


def current_lookup(
    ctx: Context,
    left: Node,
    right: Node,
    kind: Literal["inner", "left"],
    bound: list[exp.Expression],
    item: exp.Expression,
) -> Node:
    """FOR SYSTEM_TIME AS OF PROCTIME(): a lookup, also in a table that has a key."""
    info = ctx.catalog.get(right.object) if isinstance(right, Scan) else None
    if info is None or info.kind not in (Kind.TABLE, Kind.LOOKUP) or not info.key:
        raise ctx.fail(
            "PSK-3003",
            "FOR SYSTEM_TIME AS OF PROCTIME() needs a table with a PRIMARY KEY, or a lookup table",
            item,
            hint="Join a table that has a key, or name a time of the left side.",
        )
    return lookup(ctx, left, right, kind, bound, item)


def lookup(
    ctx: Context,
    left: Node,
    right: Node,
    kind: Literal["inner", "left"],
    bound: list[exp.Expression],
    item: exp.Expression,
) -> Node:
    """The join of a stream with a lookup table. Raises PSK-3002 or PSK-3003 unless its equalities cover the whole key."""
    c = Conditions(ctx, left, right, "lookup", bound)
    if not c.left_keys:
        raise ctx.fail("PSK-3002", "this lookup has no equality", item)
    if c.null_safe:
        raise ctx.fail("PSK-3003", "<=> is not supported in a lookup", item)
    info = _whole_key(ctx, right, c, item)
    residual = to_expr(ctx, _conj(c.residual)) if c.residual else None
    return LookupJoin(left, right, kind, tuple(c.left_keys), tuple(c.right_keys), residual, info.on_demand)


def _whole_key(ctx: Context, right: Node, c: Conditions, item: exp.Expression) -> ObjectInfo:
    """A lookup finds one row, so its equalities must cover the whole key."""
    assert isinstance(right, Scan)
    info = ctx.catalog.get(right.object)
    assert info is not None
    own = dict(right.fields)
    named = {own[k.column] for k in c.right_keys if k.column in own}
    missing = [k for k in info.key if k not in named]
    if missing:
        raise ctx.fail(
            "PSK-3003",
            f"this lookup has no equality for {', '.join(missing)}: the key of {info.name} is ({', '.join(info.key)})",
            item,
            hint="Compare every column of the key with =, or use a TABLE, whose join returns all matches.",
        )
    return info


def _conj(parts: list[exp.Expression]) -> exp.Expression:
    out = parts[0]
    for p in parts[1:]:
        out = exp.And(this=exp.Paren(this=out), expression=exp.Paren(this=p))
    return out
