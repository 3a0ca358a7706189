"""The part of SQL that Spark and DuckDB read alike."""

from __future__ import annotations

from sqlglot import exp

from penstock.catalog.objects import ObjectInfo
from penstock.sql.trees import bare

_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_PLAIN = (
    exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Identifier, exp.Column, exp.Star, exp.Literal, exp.Boolean, exp.Null, exp.Alias,
    exp.And, exp.Or, exp.Not, exp.In, exp.Is, exp.Between, exp.Add, exp.Sub, exp.Mul, exp.Paren, exp.Neg, exp.Count, exp.Sum, exp.Min, exp.Max,
    exp.Avg, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
)  # fmt: skip
_CLAUSES = frozenset({"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "kind"})
# DuckDB's time to plan grows with the third power of a chain of operators, and it refuses one of 1,000.
_MOST_OPERATORS = 200
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def duckdb_text(tree: exp.Expression, info: ObjectInfo) -> str | None:
    """The same query for DuckDB, or None if it uses anything on which the two might differ, or is too large for it."""
    if not isinstance(tree, exp.Select) or any(v and k not in _CLAUSES for k, v in tree.args.items()):
        return None
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table):
        return None
    types = {c.name.lower(): c.type for c in info.columns}
    operators = 0
    for node in tree.walk():
        operators += isinstance(node, exp.Binary)
        if operators > _MOST_OPERATORS or type(node) not in _PLAIN:
            return None
        if not _agrees(node, types, source.this.alias.lower()):
            return None
    return _translated(tree, types).sql(dialect="duckdb", identify=True)


def _agrees(node: exp.Expr, types: dict[str, str], alias: str) -> bool:
    if isinstance(node, exp.Column):
        return isinstance(node.this, exp.Star) or (
            len(node.parts) == 1 or (len(node.parts) == 2 and node.table.lower() == alias)
        )
    if isinstance(node, exp.Star):
        return not any(node.args.values())
    if isinstance(node, (exp.Table, exp.TableAlias)):
        return not any(v for k, v in node.args.items() if k not in ("this", "alias"))
    if isinstance(node, exp.Group):
        return not any(v for k, v in node.args.items() if k != "expressions")
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        return _kind(node.this, types) == _kind(node.expression, types) == "number" and not any(
            _fraction(x) for x in (node.this, node.expression)
        )
    if isinstance(node, exp.Neg):
        return _kind(node.this, types) == "number"
    if isinstance(node, _COMPARISONS):
        return _same(types, node.this, node.expression)
    if isinstance(node, exp.Between):
        return _same(types, node.this, node.args["low"], node.args["high"]) and not node.args.get("symmetric")
    if isinstance(node, exp.In):
        return bool(node.expressions) and not node.args.get("query") and _same(types, node.this, *node.expressions)
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Null)
    if isinstance(node, (exp.Sum, exp.Avg)):
        return isinstance(node.this, exp.Column) and types.get(node.this.name.lower()) in _NUMBERS
    if isinstance(node, (exp.Min, exp.Max)):
        return isinstance(node.this, exp.Column) and not node.expressions and _kind(node.this, types) is not None
    if isinstance(node, exp.Count):
        return isinstance(node.this, (exp.Star, exp.Column, exp.Literal)) and not node.expressions
    if isinstance(node, (exp.Limit, exp.Offset)):
        return isinstance(node.expression, exp.Literal) and node.expression.is_int
    return True


def _kind(node: exp.Expr, types: dict[str, str]) -> str | None:
    """number, string, boolean, or the name of another scalar type; None where it is not known."""
    node = bare(node)
    if isinstance(node, exp.Column):
        t = types.get(node.name.lower())
        return "number" if t in _NUMBERS else t if t in ("string", "boolean", "timestamp", "date") else None
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else "number"
    if isinstance(node, exp.Boolean):
        return "boolean"
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Count, exp.Sum, exp.Avg)):
        return "number"
    if isinstance(node, (exp.Min, exp.Max)):
        return _kind(node.this, types)
    return None


def _same(types: dict[str, str], *nodes: exp.Expression) -> bool:
    kinds = {_kind(n, types) for n in nodes}
    return len(kinds) == 1 and None not in kinds


def _fraction(node: exp.Expression) -> bool:
    inner = bare(node)
    return isinstance(inner, exp.Literal) and not inner.is_int


def _translated(tree: exp.Select, types: dict[str, str]) -> exp.Expression:
    """Spark's result types and its place for NULLs, made explicit."""

    def change(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Sum) and types.get(node.this.name.lower()) in _WHOLE:
            return exp.cast(node, exp.DataType.build("BIGINT"))
        if isinstance(node, exp.Ordered):
            desc = bool(node.args.get("desc"))
            first = node.args.get("nulls_first")
            return exp.Ordered(this=node.this, desc=desc, nulls_first=(not desc) if first is None else bool(first))
        return node

    return tree.copy().transform(change)
