"""The struct of a window: what Spark's window() and session_window() return, with the fields `start` and `end`.

In a plan it is built from the columns of the bounds wherever it is read, so grouping, joining and closing use these.
"""

from __future__ import annotations

from sqlglot import exp

_MARK = "window_struct"


def window_struct(start: str, end: str, *, nullable: bool = False) -> exp.Expression:
    """The struct of two columns. `nullable`: it is NULL if they are, as behind an outer join."""
    fields = [exp.Literal.string("start"), _column(start), exp.Literal.string("end"), _column(end)]
    made: exp.Expression = exp.Anonymous(this="named_struct", expressions=fields)
    if nullable:
        there = exp.Not(this=exp.Is(this=_column(start), expression=exp.Null()))
        made = exp.Case(ifs=[exp.If(this=there, true=made)])
    made.meta[_MARK] = True
    return made


def bounds(node: exp.Expr) -> tuple[str, str] | None:
    """The columns of the start and the end, if a bound expression is the struct of a window."""
    if _MARK not in node.meta:
        return None
    call = node.find(exp.Anonymous)
    assert call is not None
    return call.expressions[1].name, call.expressions[3].name


def plain(node: exp.Expression) -> exp.Expression:
    """A bound expression in which the struct of a window is compared, taken apart or partitioned by, over the columns of its bounds."""
    if isinstance(node, exp.Dot) and (pair := bounds(node.this)) is not None:
        at = {"start": 0, "end": 1}.get(node.expression.name.lower())
        return node if at is None else _column(pair[at])
    if isinstance(node, exp.EQ) and (left := bounds(node.this)) is not None:
        right = bounds(node.expression)
        if right is not None:
            first, second = (exp.EQ(this=_column(a), expression=_column(b)) for a, b in zip(left, right, strict=True))
            return exp.Paren(this=exp.And(this=first, expression=second))
    if isinstance(node, exp.Window) and node.args.get("partition_by"):
        listed = [(p, bounds(p)) for p in node.args["partition_by"]]
        node.set("partition_by", [e for p, pair in listed for e in (map(_column, pair) if pair else [p])])
    return node


def _column(internal: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=internal, quoted=True))
