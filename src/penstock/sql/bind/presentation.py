"""The order of a view: a one-shot SELECT from it that has no ORDER BY presents the rows in that order."""

from __future__ import annotations

from sqlglot import exp

from penstock.catalog.objects import ObjectInfo
from penstock.sql.bind.exprs import walk_block
from penstock.sql.functions import called_aggregate, generator_name
from penstock.sql.parser import parse_expression
from penstock.sql.tokens import Script

_PLAIN = frozenset({"expressions", "from_", "where", "limit", "offset", "kind"})


def present(select: exp.Select, info: ObjectInfo) -> None:
    """Adds the order of the view to a SELECT of its rows: no grouping, no DISTINCT, no join. Its table has an alias."""
    if not info.order or any(v and k not in _PLAIN for k, v in select.args.items()):
        return
    table = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(table, exp.Table) or any(v and k not in ("this", "alias") for k, v in table.args.items()):
        return
    alias = table.args["alias"]
    if alias.columns or any(_reshapes(n) for e in select.expressions for n in walk_block(e)):
        return
    terms: list[exp.Expression] = []
    for term in info.order:
        script = Script(term.expression)
        node = parse_expression(script, script.tokenize(), "the order of a view")
        for column in list(node.find_all(exp.Column)):
            # Qualified, because an output may have the name of another column.
            column.set("table", exp.Identifier(this=alias.name, quoted=True))
        terms.append(exp.Ordered(this=node, desc=term.desc, nulls_first=term.nulls_first))
    select.set("order", exp.Order(expressions=terms))


def _reshapes(node: exp.Expression) -> bool:
    """Whether the rows of the result are not those of the view."""
    windowed = isinstance(node.parent, (exp.Window, exp.Filter, exp.IgnoreNulls))
    return generator_name(node) is not None or (called_aggregate(node) is not None and not windowed)
