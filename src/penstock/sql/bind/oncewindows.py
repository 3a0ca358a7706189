"""Windows in a one-shot SELECT, written out for Spark. All of them are closed: there are no later rows.

TUMBLE, HOP and CUMULATE generate the windows of each row; SESSION numbers the sessions of each group in the order of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp

from penstock.plan.dialect import DIALECT, Penstock
from penstock.plan.nodes import Interval
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import walk_block
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.windows import WindowSpec, bound_of, window_kind, window_spec
from penstock.sql.rewrite import PARTITION

_VIEW = "__view_"
_BOUNDS = {"start": "__window_start", "end": "__window_end"}
_TIMES = ("timestamp", "bigint")
_REST = ("expressions", "having", "order", "qualify")
"""The clauses that can name the bounds of the window."""


def write_out(ctx: Context, tree: exp.Expression) -> None:
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Anonymous) and window_kind(table.this) is not None:
            _table_function(ctx, table)
    for select in list(tree.find_all(exp.Select)):
        _grouped(ctx, select)


def _grouped(ctx: Context, select: exp.Select) -> None:
    """GROUP BY TUMBLE(…): the bounds become columns, and keys."""
    group = select.args.get("group")
    calls = [e for e in group.expressions if window_kind(e)] if group is not None else []
    if not calls:
        return
    if len({c.sql() for c in calls}) > 1:
        raise ctx.fail("PSK-2003", "GROUP BY has two windows", calls[1])
    assert group is not None
    call, kind = calls[0], window_kind(calls[0])
    assert kind is not None
    if not call.expressions:
        raise ctx.fail("PSK-2003", f"{kind.upper()} needs a time column and an interval", call)
    time = call.expressions[0]
    known = _type(ctx, select, time)
    spec = window_spec(ctx, kind, time, list(call.expressions[1:]), call)
    keys = [e for e in group.expressions if not window_kind(e)]
    if kind == "session":
        group.set("expressions", [*keys, _column("__session")])
        _sessions(ctx, select, spec, known, keys, call)
        bounds = {
            "start": _parsed(_restored("min(`__t`)", known)),
            "end": _parsed(_restored(f"max(`__t`) + {spec.size.micros}L", known)),
        }
    else:
        select.set("laterals", [*(select.args.get("laterals") or []), *_laterals(spec, known)])
        bounds = {name: _column(internal) for name, internal in _BOUNDS.items()}
        group.set("expressions", [*keys, *(b.copy() for b in bounds.values())])
    _name_bounds(select, bounds)


def _name_bounds(select: exp.Select, bounds: dict[str, exp.Expression]) -> None:
    """Replaces window_start, TUMBLE_START(…) and so on."""
    items = []
    for item in select.expressions:
        shown = output_name(item)
        changed = _bounded(item, bounds)
        items.append(
            changed if changed is item or isinstance(changed, exp.Alias) else exp.alias_(changed, shown, quoted=True)
        )
    select.set("expressions", items)
    for key in _REST[1:]:
        part = select.args.get(key)
        if part is not None:
            _bounded(part, bounds)


def _bounded(part: exp.Expression, bounds: dict[str, exp.Expression]) -> exp.Expression:
    for node in list(walk_block(part)):
        name = None
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in ("window_start", "window_end"):
            name = node.name.lower().removeprefix("window_")
        elif isinstance(node, exp.Anonymous) and (found := bound_of(node)) is not None:
            name = found[1]
        if name is not None:
            made = bounds[name].copy()
            if node is part:
                return made
            node.replace(made)
    return part


def _table_function(ctx: Context, table: exp.Table) -> None:
    """FROM TUMBLE(TABLE s, DESCRIPTOR(ts), …): the rows of the table with the bounds of their windows."""
    call, kind = table.this, window_kind(table.this)
    assert kind is not None
    args = list(call.expressions)
    partition = args.pop(1).expressions if len(args) > 1 and args[1].name == PARTITION else []
    shape = f"Write {kind.upper()}(TABLE s, DESCRIPTOR(ts), INTERVAL …)."
    described = len(args) > 2 and (isinstance(args[1], exp.Column) or args[1].name.upper() == "DESCRIPTOR")
    if not described or not isinstance(args[0], exp.Column):
        raise ctx.fail("PSK-2003", f"{kind.upper()} needs a table, a descriptor and intervals", call, hint=shape)
    named = [args[1]] if isinstance(args[1], exp.Column) else args[1].expressions
    if len(named) != 1:
        raise ctx.fail("PSK-2003", "DESCRIPTOR must name one time column", call, hint=shape)
    inner = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Table(this=args[0].this.copy())))
    time = named[0] if isinstance(named[0], exp.Column) else exp.Column(this=named[0])
    known = _type(ctx, inner, time)
    spec = window_spec(ctx, kind, time, args[2:], call)
    if kind == "session":
        _sessions(ctx, inner, spec, known, list(partition), call)
        within = "OVER (PARTITION BY " + ", ".join([*(p.sql(dialect=DIALECT) for p in partition), "`__session`"]) + ")"
        made = {"start": f"min(`__t`) {within}", "end": f"max(`__t`) {within} + {spec.size.micros}L"}
        bounds = {n: _parsed(_restored(t, known)) for n, t in made.items()}
        hidden = [exp.Identifier(this=n) for n in ("__t", "__before", "__session")]
    else:
        inner.set("laterals", _laterals(spec, known))
        bounds = {name: _column(internal) for name, internal in _BOUNDS.items()}
        hidden = [exp.Identifier(this=n) for n in ("__at", *_BOUNDS.values())]
    star = exp.Star(except_=hidden)
    inner.set("expressions", [star, *(exp.alias_(b, f"window_{n}", quoted=True) for n, b in bounds.items())])
    alias = table.args.get("alias") or exp.TableAlias(this=exp.Identifier(this=args[0].name, quoted=True))
    table.replace(exp.Subquery(this=inner, alias=alias))


def _laterals(spec: WindowSpec, known: str) -> list[exp.Expression]:
    """Generates the windows of a row: first their starts (of CUMULATE their ends), then both bounds."""
    calendar = bool(spec.size.months)
    axis = _axis(spec.time, known, calendar)
    size, step, offset = (_length(i, calendar) for i in (spec.size, spec.step or spec.size, spec.offset))
    every = size if spec.kind in ("tumble", "cumulate") else step
    base = f"({axis} - pmod({axis} - {offset}L, {every}L))"
    if spec.kind == "tumble":
        generated, start, end = f"array({base})", "`__at`", f"`__at` + {size}L"
    elif spec.kind == "hop":
        first = f"{base} - (({size}L - ({axis} - {base}) - 1L) div {step}L) * {step}L"
        generated, start, end = f"sequence({first}, {base}, {step}L)", "`__at`", f"`__at` + {size}L"
    else:
        first = f"{base} + (({axis} - {base}) div {step}L + 1L) * {step}L"
        generated, start, end = f"sequence({first}, {base} + {size}L, {step}L)", base, "`__at`"
    if spec.kind == "tumble":
        # An array of NULL has a row; a row without a time is in no window.
        generated = f"CASE WHEN {axis} IS NOT NULL THEN {generated} END"
    s, e = (_restored(_unaxis(b, calendar), known) for b in (start, end))
    return [
        _lateral(f"explode({generated})", "__windows", ["__at"]),
        _lateral(f"inline(array(named_struct('s', {s}, 'e', {e})))", "__bounds", list(_BOUNDS.values())),
    ]


def _sessions(
    ctx: Context, select: exp.Select, spec: WindowSpec, known: str, keys: Sequence[exp.Expression], call: exp.Expression
) -> None:
    """Replaces FROM and WHERE by the same rows with the time (`__t`) and the number of the session of their keys."""
    source = select.args.get("from_")
    item = source.this if source is not None else None
    if item is None:
        raise ctx.fail("PSK-2003", "SESSION needs a table", call)
    if any(isinstance(k, (exp.Literal, exp.Tuple, exp.Cube, exp.Rollup)) for k in keys):
        raise ctx.fail("PSK-1012", "name the keys beside SESSION in a one-shot SELECT", call)
    name = item.alias or item.name or "__s"
    if item.args.get("alias") is None and isinstance(item, exp.Subquery):
        item.set("alias", exp.TableAlias(this=exp.Identifier(this=name, quoted=True)))
    within = _partition(keys)
    several = [k for k in ("joins", "laterals") if select.args.get(k)]
    chosen = _moved(ctx, select, call) if several or item.args.get("joins") else [exp.Star()]
    t = _axis(spec.time, known, False)
    first = exp.Select(
        expressions=[
            *chosen,
            exp.alias_(_parsed(t), "__t", quoted=True),
            exp.alias_(_parsed(f"lag({t}) OVER ({within}ORDER BY {t})"), "__before", quoted=True),
        ],
        from_=exp.From(this=item),
    )
    for part in several:
        first.set(part, select.args[part])
        select.set(part, None)
    there = _parsed(f"{t} IS NOT NULL")
    where = select.args.get("where")
    first.set("where", exp.Where(this=there if where is None else exp.and_(where.this, there)))
    select.set("where", None)
    new = f"CASE WHEN `__t` - `__before` <= {spec.size.micros}L THEN 0 ELSE 1 END"
    number = _parsed(f"sum({new}) OVER ({_partition(keys)}ORDER BY `__t`)")
    alias = exp.TableAlias(this=exp.Identifier(this=name, quoted=True))
    second = exp.Select(
        expressions=[exp.Star(), exp.alias_(number, "__session", quoted=True)],
        from_=exp.From(this=exp.Subquery(this=first, alias=alias.copy())),
    )
    select.set("from_", exp.From(this=exp.Subquery(this=second, alias=alias)))


def _partition(keys: Sequence[exp.Expression]) -> str:
    by = ", ".join(k.sql(dialect=DIALECT) for k in keys)
    return f"PARTITION BY {by} " if by else ""


def _moved(ctx: Context, select: exp.Select, call: exp.Expression) -> list[exp.Expr]:
    """The columns of a join that a SELECT uses, under names that are unique; the SELECT has these in their place."""
    made: dict[str, exp.Expr] = {}
    aliases = {e.alias.lower() for e in select.expressions if isinstance(e, exp.Alias)}
    items = []
    for item in select.expressions:
        items.append(exp.alias_(item, item.name, quoted=True) if isinstance(item, exp.Column) else item)
    select.set("expressions", items)
    for key in (*_REST, "group"):
        part = select.args.get(key)
        for node in [n for p in (part if isinstance(part, list) else [part]) if p is not None for n in p.walk()]:
            if isinstance(node, exp.Query):
                raise ctx.fail("PSK-1012", "a subquery beside SESSION over a join is not supported", call)
            if not isinstance(node, exp.Column) or node.name.lower() in ("window_start", "window_end", "__session"):
                continue
            if not node.table and key != "expressions" and key != "group" and node.name.lower() in aliases:
                continue
            text = node.sql(dialect=DIALECT).lower()
            name = made.setdefault(text, exp.alias_(node.copy(), f"__c{len(made)}", quoted=True)).alias
            node.set("table", None)
            node.set("this", exp.Identifier(this=name, quoted=True))
    return list(made.values())


def _type(ctx: Context, select: exp.Select, time: exp.Expression) -> str:
    """The type of a time: of a cast, or of a column of an object."""
    found: str | None = None
    if isinstance(time, exp.Cast):
        found = str(time.to.sql(dialect=DIALECT)).lower()
    elif isinstance(time, exp.Column):
        source = select.args.get("from_")
        items = [source.this, *(j.this for j in select.args.get("joins") or [])] if source is not None else []
        for item in items:
            if not isinstance(item, exp.Table) or (time.table and time.table.lower() != item.alias_or_name.lower()):
                continue
            info = ctx.catalog.get(item.name.removeprefix(_VIEW))
            column = info.column(time.name) if info is not None else None
            found = column.type if column is not None else found
    if found is None:
        hint = "Write CAST(… AS TIMESTAMP) there."
        raise ctx.fail("PSK-2002", "the type of the time of this window is not known", time, hint=hint)
    if found not in _TIMES:
        raise ctx.fail("PSK-2002", f"the time of a window has type {found}", time)
    return found


def _axis(time: str, known: str, calendar: bool) -> str:
    micros = f"CAST({time} AS BIGINT) * 1000L" if known == "bigint" else f"unix_micros({time})"
    if not calendar:
        return f"({micros})"
    at = f"timestamp_micros({micros})"
    return f"(year({at}) * 12L + month({at}) - 1L)"


def _unaxis(value: str, calendar: bool) -> str:
    if not calendar:
        return value
    return f"unix_micros(make_timestamp(CAST(({value}) div 12 AS INT), CAST(({value}) % 12 + 1 AS INT), 1, 0, 0, 0))"


def _restored(micros: str, known: str) -> str:
    return f"({micros}) div 1000L" if known == "bigint" else f"timestamp_micros({micros})"


def _length(interval: Interval, calendar: bool) -> int:
    return interval.months if calendar else interval.micros


def _lateral(call: str, name: str, columns: Sequence[str]) -> exp.Lateral:
    made = [exp.Identifier(this=c, quoted=True) for c in columns]
    return exp.Lateral(
        this=_parsed(call), view=True, alias=exp.TableAlias(this=exp.Identifier(this=name), columns=made)
    )


def _column(name: str) -> exp.Expression:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _parsed(text: str) -> exp.Expression:
    found = sqlglot.parse_one(text, dialect=Penstock)
    assert isinstance(found, exp.Expression)
    return found
