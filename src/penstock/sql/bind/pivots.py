"""PIVOT and UNPIVOT: written out as aggregates and as a generator, with the names and NULLs that Spark gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlglot import exp

from penstock.catalog.declared import char_length, without_lengths
from penstock.plan.dialect import DIALECT
from penstock.plan.functions import OfNothing
from penstock.sql.bind.context import Context
from penstock.sql.bind.naming import output_name
from penstock.sql.functions import called_aggregate, name_of

_INNER = "__pivoted"
_MADE = "__unpivoted"
_ALIKE = (
    ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    ("date", "timestamp", "timestamp_ntz"),
)
"""Types between which UNPIVOT converts."""
Columns = Sequence[tuple[str, str | None]]
"""The names and, if they are known, types of columns."""


def written_out(ctx: Context, node: exp.Expression, columns_of: Callable[[exp.Expression], Columns]) -> exp.Subquery:
    """A derived table in place of an item of FROM with PIVOT or UNPIVOT. `columns_of` tells the columns of an item without, and their types."""
    base = node.copy()
    pivots = list(base.args["pivots"])
    base.set("pivots", None)
    base.set("joins", None)
    for pivot in pivots:
        select = _select(ctx, base, pivot, columns_of(base))
        base = exp.Subquery(this=select, alias=pivot.args.get("alias"))
    assert isinstance(base, exp.Subquery)
    return base


def _select(ctx: Context, base: exp.Expression, pivot: exp.Pivot, columns: Columns) -> exp.Select:
    names, types = [n for n, _ in columns], {n.lower(): t for n, t in columns}
    twice = next((n for i, n in enumerate(names) if n.lower() in {m.lower() for m in names[:i]}), None)
    if twice is not None:
        raise ctx.fail(
            "PSK-1005", f"{twice} is two columns of what is pivoted", pivot, hint="Select one of them first."
        )
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or fields[0].args.get("query"):
        raise ctx.fail("PSK-1012", "PIVOT needs one FOR … IN (values)", pivot)
    if base.args.get("alias") is None and isinstance(base, exp.Subquery):
        base.set("alias", exp.TableAlias(this=exp.Identifier(this=_INNER)))
    if pivot.args.get("unpivot"):
        return _unpivot(ctx, base, pivot, fields[0], names, types)
    return _pivot(ctx, base, pivot, fields[0], names, types)


def _pivot(
    ctx: Context,
    base: exp.Expression,
    pivot: exp.Pivot,
    field: exp.In,
    names: Sequence[str],
    types: Mapping[str, str | None],
) -> exp.Select:
    """For each value an aggregate over its rows. The other columns are the group."""
    by = list(field.this.expressions) if isinstance(field.this, exp.Tuple) else [field.this]
    aggregates = list(pivot.expressions)
    used = {c.name.lower() for e in (*by, *aggregates) for c in e.find_all(exp.Column)}
    keys = [n for n in names if n.lower() not in used]
    absent = _absent_is_null(ctx, aggregates, types)
    items: list[exp.Expr] = [_column(n) for n in keys]
    for value in field.expressions:
        inner = value.this if isinstance(value, exp.PivotAlias) else value
        parts = list(inner.expressions) if isinstance(inner, exp.Tuple) else [inner]
        if len(parts) != len(by):
            raise ctx.fail("PSK-1016", f"{len(parts)} values are given for {len(by)} columns of PIVOT", value)
        label = value.args["alias"].name if isinstance(value, exp.PivotAlias) else _label(ctx, inner)
        # Spark does not pad the values to the length of a CHAR column here.
        here = exp.and_(
            *(exp.NullSafeEQ(this=_text(c, types), expression=v.copy()) for c, v in zip(by, parts, strict=True))
        )
        for given in aggregates:
            call = given.this if isinstance(given, exp.Alias) else given
            made = call.copy().transform(partial(_over, ctx, here))
            if absent:
                some = exp.GT(this=_filtered(exp.Count(this=exp.Star()), here), expression=exp.Literal.number(0))
                made = exp.Case(ifs=[exp.If(this=some, true=made)])
            name = label if len(aggregates) == 1 else f"{label}_{_named(given)}"
            items.append(exp.alias_(made, name, quoted=True))
    select = exp.Select(expressions=items, from_=exp.From(this=base))
    if keys:
        select.set("group", exp.Group(expressions=[_column(n) for n in keys]))
    return select


def _text(column: exp.Expr, types: Mapping[str, str | None]) -> exp.Expr:
    if isinstance(column, exp.Column) and char_length(types.get(column.name.lower())) is not None:
        return exp.cast(column.copy(), exp.DataType.Type.TEXT)
    return column.copy()


def _absent_is_null(ctx: Context, aggregates: Sequence[exp.Expression], types: Mapping[str, str | None]) -> bool:
    """Whether a value without rows has NULL, also for a count.

    Spark aggregates each value first if all results are numbers or booleans, and then has nothing for such a value. Otherwise it aggregates no rows: a count
    is 0, an array is empty.
    """
    calls = [a.this if isinstance(a, exp.Alias) else a for a in aggregates]
    plain = [c.this if isinstance(c, exp.Filter) else c for c in calls]
    kinds = [_is_number(c, types) for c in plain]
    if all(kinds):
        return True
    first = next((c for c in plain if (called := called_aggregate(c)) is not None and called.edge), None)
    if first is not None:
        hint = "Use min or max; or write an aggregate with FILTER for each column."
        raise ctx.fail("PSK-1012", f"{name_of(first)} in a PIVOT of other types than numbers", first, hint=hint)
    never_null = (OfNothing.ZERO, OfNothing.EMPTY)
    counts = any((called := called_aggregate(c)) is not None and called.of_nothing in never_null for c in plain)
    if False in kinds or not counts:
        return False
    unknown = plain[kinds.index(None)]
    hint = "Cast its argument: max(CAST(x AS STRING))."
    raise ctx.fail(
        "PSK-1012", "whether this PIVOT counts 0 or NULL depends on a type that is not known", unknown, hint=hint
    )


def _is_number(call: exp.Expression, types: Mapping[str, str | None]) -> bool | None:
    """Whether an aggregate returns a number or a boolean; None if that is not known."""
    called = called_aggregate(call)
    arguments = [a for a in call.iter_expressions() if not isinstance(a, (exp.Order, exp.Boolean))]
    argument = _of_number(arguments[0], types) if arguments else None
    return None if called is None else called.result.is_number(argument)


def _of_number(argument: exp.Expr, types: Mapping[str, str | None]) -> bool | None:
    if isinstance(argument, exp.Cast):
        return argument.to.sql(dialect=DIALECT).lower().partition("(")[0] in (*_ALIKE[0], "boolean")
    known = types.get(argument.name.lower()) if isinstance(argument, exp.Column) else None
    return None if known is None else known.partition("(")[0] in (*_ALIKE[0], "boolean")


def _named(call: exp.Expression) -> str:
    """The name of an aggregate in those of its columns."""
    if isinstance(call, exp.Filter):
        return f"{output_name(call.this)} FILTER (WHERE {output_name(call.expression.this)})"
    return output_name(call)


def _over(ctx: Context, here: exp.Expr, node: exp.Expr) -> exp.Expr:
    """An aggregate restricted to the rows of a value."""
    parent = node.parent
    if isinstance(node, exp.Filter):
        node.args["expression"].set("this", exp.and_(node.args["expression"].this, here.copy()))
        return node
    if isinstance(node, exp.Window):
        raise ctx.fail("PSK-1019", "an analytic function is not an aggregate", node)
    inside = isinstance(parent, (exp.Filter, exp.WithinGroup))
    if inside or not (isinstance(node, exp.WithinGroup) or _aggregates(node)):
        return node
    return _filtered(node, here)


def _aggregates(node: exp.Expr) -> bool:
    from penstock.sql.bind.aggregates import is_aggregate

    return isinstance(node, exp.Expression) and is_aggregate(node)


def _filtered(call: exp.Expr, here: exp.Expr) -> exp.Filter:
    return exp.Filter(this=call, expression=exp.Where(this=here.copy()))


def _label(ctx: Context, value: exp.Expression) -> str:
    """The name that Spark gives to the column of a value: the value as text."""
    if isinstance(value, exp.Tuple):
        return "{" + ", ".join(_label(ctx, v) for v in value.expressions) + "}"
    if isinstance(value, exp.Literal):
        return str(value.name)
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
        return f"-{value.this.name}"
    if isinstance(value, exp.Boolean):
        return str(value.this).lower()
    if isinstance(value, exp.Null):
        return "null"
    raise ctx.fail("PSK-1012", "this value of PIVOT needs a name", value, hint="Write IN (value AS name, …).")


def _unpivot(
    ctx: Context,
    base: exp.Expression,
    pivot: exp.Pivot,
    field: exp.In,
    names: Sequence[str],
    types: Mapping[str, str | None],
) -> exp.Select:
    """For each row one for each entry of IN: its name, and the values of its columns. The other columns are kept."""
    outputs = [n for e in pivot.expressions for n in (e.expressions if isinstance(e, exp.Tuple) else [e])]
    entries: list[tuple[str, list[exp.Expression]]] = []
    used: set[str] = set()
    for entry in field.expressions:
        inner = entry.this if isinstance(entry, exp.PivotAlias) else entry
        columns = list(inner.expressions) if isinstance(inner, exp.Tuple) else [inner]
        if any(not isinstance(c, exp.Column) for c in columns):
            raise ctx.fail("PSK-1012", "UNPIVOT takes columns", entry, hint="Compute them in a derived table first.")
        if len(columns) != len(outputs):
            raise ctx.fail("PSK-1016", f"{len(columns)} columns are given for {len(outputs)} of UNPIVOT", entry)
        used |= {c.name.lower() for c in columns}
        label = entry.args["alias"].name if isinstance(entry, exp.PivotAlias) else "_".join(c.name for c in columns)
        entries.append((label, columns))
    made_of = _converted if _known(ctx, entries, types) else _stacked
    wanted = [exp.Identifier(this=f"{_MADE}_{i}", quoted=True) for i in range(len(outputs) + 1)]
    shown = [field.this.name, *(o.name for o in outputs)]
    kept = [n for n in names if n.lower() not in used]
    lateral = exp.Lateral(
        this=made_of(entries),
        view=True,
        alias=exp.TableAlias(this=exp.Identifier(this=_MADE), columns=wanted),
    )
    made = [exp.Column(this=w.copy()) for w in wanted]
    items = [_column(n) for n in kept] + [exp.alias_(m, n, quoted=True) for m, n in zip(made, shown, strict=True)]
    select = exp.Select(expressions=items, from_=exp.From(this=base), laterals=[lateral])
    if not pivot.args.get("include_nulls"):
        none = exp.and_(*(exp.Is(this=m.copy(), expression=exp.Null()) for m in made[1:]))
        select.set("where", exp.Where(this=exp.Not(this=exp.Paren(this=none))))
    return select


def _known(ctx: Context, entries: Sequence[tuple[str, list[exp.Expression]]], types: Mapping[str, str | None]) -> bool:
    """Whether the types of all values are known. Raises PSK-1007 if those of one output cannot be converted to each other."""
    known = True
    for values in zip(*(columns for _, columns in entries), strict=True):
        found = [without_lengths(t) if (t := types.get(c.name.lower())) is not None else None for c in values]
        if any(t is None for t in found):
            known = False
            continue
        families = {next((i for i, f in enumerate(_ALIKE) if str(t).partition("(")[0] in f), t) for t in found}
        if len(families) > 1:
            shown = ", ".join(f"{c.name} {t}" for c, t in zip(values, found, strict=True))
            raise ctx.fail(
                "PSK-1007", f"UNPIVOT of columns of different types: {shown}", values[-1], hint="Cast them to one type."
            )
    return known


def _converted(entries: Sequence[tuple[str, list[exp.Expression]]]) -> exp.Expression:
    """inline(array(named_struct(…), …)), which converts values to their common type."""
    structs = []
    for label, columns in entries:
        cells: list[exp.Expression] = [exp.Literal.string("n"), exp.Literal.string(label)]
        for i, c in enumerate(columns):
            cells += [exp.Literal.string(f"v{i}"), c.copy()]
        structs.append(exp.Anonymous(this="named_struct", expressions=cells))
    return exp.Inline(this=exp.Array(expressions=structs))


def _stacked(entries: Sequence[tuple[str, list[exp.Expression]]]) -> exp.Expression:
    """stack(n, …), for which Spark requires equal types: the array above would also turn numbers into text."""
    cells = [e for label, columns in entries for e in (exp.Literal.string(label), *(c.copy() for c in columns))]
    return exp.Anonymous(this="stack", expressions=[exp.Literal.number(len(entries)), *cells])


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))
