"""Comparisons of CHAR(n) columns, as Spark makes them: the shorter side is padded if it is a constant or another CHAR column.

Spark knows a CHAR column by the metadata of its attribute, which our operators do not keep. So the padding is written into the expression.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.catalog.declared import char_length
from penstock.sql.bind.context import Context
from penstock.sql.functions import name_of
from penstock.sql.trees import bare

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TEXT = frozenset(
    {
        "concat", "upper", "ucase", "lower", "lcase", "trim", "ltrim", "rtrim", "btrim", "left", "right", "substr",
        "substring", "lpad", "rpad", "replace", "repeat", "chr", "char", "reverse",
    }
)  # fmt: skip
"""Functions of constants that are strings."""
_OTHER = (exp.Boolean, exp.Null, exp.Neg, exp.Interval, exp.Parameter)


def padded(ctx: Context, node: exp.Expression) -> exp.Expression:
    """The comparison with its shorter side padded; any other expression unchanged. The columns are bound."""
    if isinstance(node, _COMPARISONS):
        _pad(ctx, node, [(node, "this"), (node, "expression")])
    elif isinstance(node, exp.In) and _length(ctx, node.this) is not None and _constants(ctx, node.expressions):
        holder = exp.Tuple(expressions=[node.this, *node.expressions])
        sides = [exp.Paren(this=e) for e in holder.expressions]
        _pad(ctx, node, [(s, "this") for s in sides])
        node.set("this", sides[0].this)
        node.set("expressions", [s.this for s in sides[1:]])
    elif isinstance(node, exp.Case) and node.this is not None:
        return _searched(ctx, node)
    elif isinstance(node, exp.Anonymous) and node.name.lower() == "decode" and len(node.expressions) > 2:
        return _decoded(ctx, node)
    elif isinstance(node, exp.Anonymous) and node.name.lower() == "equal_null" and len(node.expressions) == 2:
        left, right = node.expressions
        if any(_length(ctx, e) is not None for e in (left, right)):
            return exp.Paren(this=padded(ctx, exp.NullSafeEQ(this=left, expression=right)))
    return node


def _constants(ctx: Context, values: list[exp.Expression]) -> bool:
    """Whether a list can be all constants: Spark pads none of it otherwise."""
    return bool(values) and all(_length(ctx, v) is None for v in values)


def without_length(ctx: Context, node: exp.Expression) -> exp.Expression:
    """A value that Spark does not know to be of a CHAR column."""
    return exp.cast(node, exp.DataType.Type.TEXT) if _length(ctx, node) is not None else node


def _searched(ctx: Context, node: exp.Case) -> exp.Expression:
    """`CASE c WHEN v THEN …` as `CASE WHEN c = v THEN …`, if one of them is a CHAR column: each comparison has a length of its own."""
    given = [i.this for i in node.args["ifs"]]
    if all(_length(ctx, e) is None for e in (node.this, *given)):
        return node
    for branch, value in zip(node.args["ifs"], given, strict=True):
        branch.set("this", padded(ctx, exp.EQ(this=node.this.copy(), expression=value)))
    node.set("this", None)
    return node


def _decoded(ctx: Context, node: exp.Anonymous) -> exp.Expression:
    """`decode(c, v, r, …, other)` as the CASE that it is in Spark, where NULL equals NULL."""
    value, *rest = node.expressions
    pairs = list(zip(rest[::2], rest[1::2], strict=False))
    if all(_length(ctx, e) is None for e in (value, *(v for v, _ in pairs))):
        return node
    branches = [
        exp.If(this=padded(ctx, exp.NullSafeEQ(this=value.copy(), expression=v)), true=result) for v, result in pairs
    ]
    return exp.Case(ifs=branches, default=rest[-1] if len(rest) % 2 else None)


def _pad(ctx: Context, origin: exp.Expression, places: list[tuple[exp.Expression, str]]) -> None:
    sides = [owner.args[name] for owner, name in places]
    lengths = [_length(ctx, s) for s in sides]
    if all(n is None for n in lengths) or not all(
        n is not None or _is_text(ctx, origin, s) for s, n in zip(sides, lengths, strict=True)
    ):
        return
    # A call's length is known when it is computed; Spark computes it once.
    calls = [s for s, n in zip(sides, lengths, strict=True) if n is None and not isinstance(bare(s), exp.Literal)]
    longest = max(
        n if n is not None else len(bare(s).name) for s, n in zip(sides, lengths, strict=True) if s not in calls
    )
    width: exp.Expression = exp.Literal.number(longest)
    if calls:
        measured = [exp.Anonymous(this="length", expressions=[c.copy()]) for c in calls]
        width = exp.Anonymous(this="greatest", expressions=[width, *measured])
    for (owner, name), side, length in zip(places, sides, lengths, strict=True):
        own = length if length is not None else len(bare(side).name)
        if calls or own < longest:
            owner.set(name, exp.Anonymous(this="rpad", expressions=[side, width.copy()]))


def _length(ctx: Context, node: exp.Expression) -> int | None:
    column = bare(node)
    return char_length(ctx.types.get(column.name)) if isinstance(column, exp.Column) else None


def _is_text(ctx: Context, origin: exp.Expression, node: exp.Expression) -> bool:
    """Whether a side of the comparison is a constant string. Raises PSK-2011 for a constant whose type only Spark knows."""
    value = bare(node)
    if isinstance(value, exp.Literal):
        return value.is_string
    if isinstance(value, _OTHER) or value.find(exp.Column, exp.Query, exp.Parameter) is not None:
        return False
    if isinstance(value, exp.Cast):
        return value.to.this in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR, exp.DataType.Type.CHAR)
    if isinstance(value, exp.DPipe) or (name_of(value) or "").lower() in _TEXT:
        return True
    raise ctx.fail(
        "PSK-2011",
        "a CHAR column is compared with a constant whose type is not obvious",
        origin,
        hint="Write CAST(… AS STRING) around the constant.",
    )
