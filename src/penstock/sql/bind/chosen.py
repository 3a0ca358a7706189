"""FETCH FIRST n ROWS WITH TIES, DISTINCT ON, WITH ORDINALITY and generate_series in a one-shot SELECT, which Spark does not have: written out."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.bind.context import Context
from penstock.sql.bind.generators import refuse_series, refuse_view, series
from penstock.sql.bind.limit import amount
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.unwritable import Unwritable
from penstock.sql.functions import name_of
from penstock.sql.trees import bare, with_parts

_OUTER = ("explode", "posexplode", "inline", "variant_explode")
_MOVED = ("from_", "joins", "laterals", "where", "group", "having", "qualify", "windows", "distinct")


def write_out(ctx: Context, tree: exp.Expression) -> None:
    counted = next((n for n in tree.find_all(exp.Lateral) if n.args.get("ordinality")), None)
    if counted is not None:
        raise ctx.fail("PSK-1012", "WITH ORDINALITY is only supported after UNNEST", counted, hint="Use posexplode(…).")
    for lateral in tree.find_all(exp.Lateral):
        refuse_view(ctx, lateral)
        _outer(lateral)
    for unnest in list(tree.find_all(exp.Unnest)):
        if unnest.args.get("offset"):
            _ordinality(ctx, unnest)
    for call in list(tree.find_all(exp.Anonymous)):
        if not isinstance(call.parent, (exp.Table, exp.Lateral)):
            refuse_series(ctx, call)
        elif name_of(call) == "generate_series" or (name_of(call) == "range" and isinstance(call.parent, exp.Lateral)):
            _rows(ctx, call)
    for query in tree.find_all(exp.Query):
        _check_limit(ctx, query)
    for select in reversed(list(tree.find_all(exp.Select))):
        limit, distinct = select.args.get("limit") or exp.Limit(), select.args.get("distinct")
        options = limit.args.get("limit_options")
        if distinct is not None and distinct.args.get("on"):
            _numbered(ctx, select, "row_number", distinct.args["on"].expressions, None)
        elif options is not None and options.args.get("with_ties"):
            if distinct is not None or select.args.get("offset") or not select.args.get("order"):
                raise ctx.fail(
                    "PSK-1012",
                    "WITH TIES needs ORDER BY, and cannot be combined with OFFSET or DISTINCT",
                    limit,
                    hint="Put the DISTINCT into a derived table, or write LIMIT n.",
                )
            _numbered(ctx, select, "rank", [], amount(ctx, limit))


def _outer(lateral: exp.Lateral) -> None:
    """`LEFT JOIN LATERAL explode(a)`: Spark forgets the LEFT, so the generator has it."""
    join, name = lateral.parent, name_of(lateral.this)
    if not isinstance(join, exp.Join) or (join.side or "").upper() != "LEFT" or name not in _OUTER:
        return
    on = join.args.get("on")
    if on is None or (isinstance(bare(on), exp.Boolean) and bare(on).this):
        args = lateral.this.expressions if isinstance(lateral.this, exp.Anonymous) else [lateral.this.this]
        lateral.set("this", exp.Anonymous(this=f"{name}_outer", expressions=args))
        join.set("side", None)
        join.set("on", None)
        join.set("kind", "CROSS")


def _check_limit(ctx: Context, query: exp.Query) -> None:
    """Refuses what would be left out of a LIMIT or FETCH."""
    limit = query.args.get("limit")
    if limit is None:
        return
    amount(ctx, limit)
    options = limit.args.get("limit_options")
    if options is not None and options.args.get("with_ties") and not isinstance(query, exp.Select):
        raise Unwritable("WITH TIES after a set operation")


def _numbered(
    ctx: Context, select: exp.Select, function: str, within: list[exp.Expression], count: exp.Expression | None
) -> None:
    """Numbers the rows of a query below it, and keeps the first ones. Its order is that of columns which it does not return."""
    made = {e.alias.lower(): e.this for e in select.expressions if isinstance(e, exp.Alias)}
    listed = select.args["order"].expressions if select.args.get("order") else []
    order = [_resolved(ctx, select, made, key) for key in listed]
    keys = [_named(ctx, select, made, e) for e in within]
    known = {bare(k).sql() for k in keys}
    if any(bare(o.this).sql() not in known for o in order[: len(keys)]):
        raise ctx.fail(
            "PSK-1012",
            "ORDER BY must begin with the expressions of DISTINCT ON",
            select.args["order"],
            hint="Write SELECT DISTINCT ON (k) … ORDER BY k, ….",
        )
    window = exp.Window(
        this=exp.Anonymous(this=function, expressions=[]),
        partition_by=[k.copy() for k in keys],
        order=exp.Order(expressions=[o.copy() for o in (order or [exp.Ordered(this=k) for k in keys])]),
    )
    extra = [("__chosen", window), *((f"__order{i}", o.this) for i, o in enumerate(order))]
    stars = any(_is_star(e) for e in select.expressions)
    below = exp.Select(**{k: select.args[k] for k in _MOVED if k != "distinct" and select.args.get(k)})
    items = list(select.expressions) if stars else [
        exp.alias_(e.unalias(), f"__c{i}", quoted=True) for i, e in enumerate(select.expressions)
    ]  # fmt: skip
    below.set("expressions", [*items, *(exp.alias_(e.copy(), n, quoted=True) for n, e in extra)])
    outputs: list[exp.Expr] = [
        exp.alias_(exp.column(f"__c{i}", quoted=True), output_name(e), quoted=True)
        for i, e in enumerate(select.expressions)
    ]
    if stars:
        outputs = [exp.Star(except_=[exp.to_identifier(n, quoted=True) for n, _ in extra])]
    for clause in _MOVED:
        select.set(clause, None)
    select.set("expressions", outputs)
    alias = exp.TableAlias(this=exp.to_identifier("__f", quoted=True))
    select.set("from_", exp.From(this=exp.Subquery(this=below, alias=alias)))
    last = count.copy() if count is not None else exp.Literal.number(1)
    select.set("where", exp.Where(this=exp.LTE(this=exp.column("__chosen", quoted=True), expression=last)))
    if order:
        again = [
            exp.Ordered(
                this=exp.column(f"__order{i}", quoted=True),
                desc=o.args.get("desc"),
                nulls_first=o.args.get("nulls_first"),
            )
            for i, o in enumerate(order)
        ]
        select.set("order", exp.Order(expressions=again))
    if count is not None:
        select.set("limit", None)


def _is_star(node: exp.Expression) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _resolved(ctx: Context, select: exp.Select, made: dict[str, exp.Expression], key: exp.Expression) -> exp.Ordered:
    """A term of ORDER BY over the input of the query: without aliases and ordinals of its outputs."""
    core = key.this if isinstance(key, exp.Ordered) else key
    desc = key.args.get("desc") if isinstance(key, exp.Ordered) else None
    first = key.args.get("nulls_first") if isinstance(key, exp.Ordered) else None
    return exp.Ordered(this=_named(ctx, select, made, core), desc=desc, nulls_first=first)


def _named(ctx: Context, select: exp.Select, made: dict[str, exp.Expression], node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.name) <= len(select.expressions):
        if any(_is_star(e) for e in select.expressions):
            raise ctx.fail("PSK-1012", "a number cannot name a column of * here", node, hint="Name the column.")
        found: exp.Expression = select.expressions[int(node.name) - 1].unalias().copy()
        return found
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in made:
        return exp.Paren(this=made[node.name.lower()].copy())
    if isinstance(node, exp.Query):
        return node.copy()
    return with_parts(node.copy(), lambda part: _within(ctx, select, made, part), node)


def _within(ctx: Context, select: exp.Select, made: dict[str, exp.Expression], node: exp.Expression) -> exp.Expression:
    """A part of a term, in which a number is a number."""
    return node.copy() if isinstance(node, exp.Literal) else _named(ctx, select, made, node)


def _rows(ctx: Context, call: exp.Anonymous) -> None:
    """generate_series(…), and range(…) over columns, as rows of an array."""
    name = call.name.lower()
    within = call.parent
    if isinstance(within, (exp.Table, exp.Lateral)):
        alias = within.args.get("alias")
        table = alias.name if isinstance(alias, exp.TableAlias) else ""
        if not isinstance(alias, exp.TableAlias) or not alias.columns:
            column = "id" if name == "range" else table or name
            named = exp.to_identifier(table or name, quoted=True)
            within.set("alias", exp.TableAlias(this=named, columns=[exp.to_identifier(column, quoted=True)]))
    call.replace(exp.Explode(this=series(ctx, name, call, call)))


def _ordinality(ctx: Context, unnest: exp.Unnest) -> None:
    """UNNEST(a) WITH ORDINALITY counts from 1, posexplode from 0."""
    alias, join = unnest.args.get("alias"), unnest.parent
    if not isinstance(join, exp.Join) or (join.side and join.side.upper() == "LEFT") or len(unnest.expressions) != 1:
        raise ctx.fail(
            "PSK-1012",
            "WITH ORDINALITY is supported after a comma or CROSS JOIN, for one array",
            unnest,
            hint="Use LATERAL VIEW [OUTER] posexplode(…), which counts from 0.",
        )
    columns = [c.name for c in alias.columns] if alias is not None else []
    value, number = columns[0] if columns else "col", unnest.args["offset"].name or "ordinality"
    source = exp.Table(
        this=exp.Posexplode(this=unnest.expressions[0].copy()),
        alias=exp.TableAlias(
            this=exp.to_identifier("__p", quoted=True),
            columns=[exp.to_identifier("__n", quoted=True), exp.to_identifier("__v", quoted=True)],
        ),
    )
    counted = exp.Add(this=exp.column("__n", quoted=True), expression=exp.Literal.number(1))
    query = exp.Select(
        expressions=[
            exp.alias_(exp.column("__v", quoted=True), value, quoted=True),
            exp.alias_(counted, number, quoted=True),
        ],
        from_=exp.From(this=source),
    )
    table = exp.TableAlias(this=exp.to_identifier((alias.name if alias is not None else "") or "__u", quoted=True))
    unnest.replace(exp.Lateral(this=exp.Subquery(this=query), alias=table))
