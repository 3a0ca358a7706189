"""Writes a bound plan back as SQL, to check the result of binding and the passes without running a job."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan import nodes as p


def plan_sql(query: p.Query) -> str:
    """A SELECT that means what the plan says, over the objects that it scans."""
    names = ", ".join(f"`{c}` AS `{n}`" for c, n in zip(query.root.columns, query.names, strict=True))
    return f"SELECT {names} FROM {_source(query.root)}"


def _source(node: p.Node) -> str:
    return f"({_sql(node)}) AS x"


def _columns(names: Sequence[str], table: str = "") -> str:
    return ", ".join(f"{table}`{n}`" for n in names)


def _order(keys: Sequence[p.SortKey]) -> str:
    return ", ".join(
        f"{k.expr.sql()}{' DESC' if k.desc else ''} NULLS {'FIRST' if k.nulls_first else 'LAST'}" for k in keys
    )


def _over(partition: Sequence[p.Expr], order: Sequence[p.SortKey], frame: str = "") -> str:
    by = f"PARTITION BY {', '.join(e.sql() for e in partition)} " if partition else ""
    return f"OVER ({by}{'ORDER BY ' + _order(order) if order else ''}{frame})"


def _sql(n: p.Node) -> str:
    match n:
        case p.Scan():
            return f"SELECT {', '.join(f'{source} AS `{name}`' for name, source in n.fields)} FROM {n.object}"
        case p.Values():
            return " UNION ALL ".join(
                f"SELECT {', '.join(f'{e.sql()} AS `{c}`' for c, e in zip(n.names, row, strict=True))}"
                for row in n.rows
            )
        case p.Filter():
            return f"SELECT * FROM {_source(n.child)} WHERE {n.predicate.sql()}"
        case p.Project():
            return f"SELECT {', '.join(f'{i.expr.sql()} AS `{i.name}`' for i in n.items)} FROM {_source(n.child)}"
        case p.Generate():
            outer = " OUTER" if n.outer else ""
            return (
                f"SELECT * FROM {_source(n.child)} LATERAL VIEW{outer} {n.generator.sql()} g AS {_columns(n.outputs)}"
            )
        case p.Union():
            return " UNION ALL ".join(f"SELECT * FROM {_source(_named(i, n.columns))}" for i in n.inputs)
        case p.SetOp():
            left, right = (f"SELECT * FROM {_source(_named(i, n.columns))}" for i in (n.left, n.right))
            return f"{left} {n.kind.upper()} {right}"
        case p.Distinct():
            return f"SELECT DISTINCT * FROM {_source(n.child)}"
        case p.Aggregate():
            return _aggregate(n)
        case p.Analytic():
            return f"SELECT *, {', '.join(f'{_call(n, w)} AS `{w.name}`' for w in n.calls)} FROM {_source(n.child)}"
        case p.TopN():
            return _top(n)
        case p.Join():
            return _join(n)
    raise NotImplementedError(type(n).__name__)


def _named(node: p.Node, names: Sequence[str]) -> p.Node:
    return p.Project(node, tuple(p.Named(n, p.col(c)) for n, c in zip(names, node.columns, strict=True)))


def _aggregate(n: p.Aggregate) -> str:
    calls = []
    for a in n.aggs:
        args = ", ".join(e.sql() for e in a.args)
        if a.func in ("percentile", "percentile_disc"):
            name = "percentile_cont" if a.func == "percentile" else a.func
            text = f"{name}({a.args[1].sql()}) WITHIN GROUP (ORDER BY {a.args[0].sql()})"
        else:
            text = f"{a.func}({'DISTINCT ' if a.distinct else ''}{args or '*'})"
            text += f" WITHIN GROUP (ORDER BY {_order(a.order)})" if a.order else ""
        calls.append(text + (f" FILTER (WHERE {a.filter.sql()})" if a.filter else "") + f" AS `{a.name}`")
    # The keys are columns first: a constant in GROUP BY would be taken for the number of a column.
    inner = ", ".join(f"{k.expr.sql()} AS `__k{i}`" for i, k in enumerate(n.keys))
    keys = [f"`__k{i}` AS `{k.name}`" for i, k in enumerate(n.keys)]
    group = f" GROUP BY {', '.join(f'`__k{i}`' for i in range(len(n.keys)))}" if n.keys else ""
    source = f"(SELECT *{', ' + inner if inner else ''} FROM {_source(n.child)}) AS y"
    return f"SELECT {', '.join([*keys, *calls]) or '1 AS one'} FROM {source}{group}"


def _call(n: p.Analytic, w: p.WindowCall) -> str:
    args = ", ".join(e.sql() for e in w.args) or ("*" if w.func == "count" else "")
    ignore = " IGNORE NULLS" if w.ignore_nulls else ""
    frame = (
        f" {w.frame.unit} BETWEEN {_edge(w.frame.start, 'PRECEDING')} AND {_edge(w.frame.end, 'FOLLOWING')}"
        f"{f' EXCLUDE {w.frame.exclude}' if w.frame.exclude else ''}"
        if w.frame
        else ""
    )
    return f"{w.func}({args}){ignore} {_over(n.partition, n.order, frame)}"


def _edge(value: int | float | None, side: str) -> str:
    if value is None:
        return f"UNBOUNDED {side}"
    if value == 0:
        return "CURRENT ROW"
    return f"{abs(value)} {'PRECEDING' if value < 0 else 'FOLLOWING'}"


def _top(n: p.TopN) -> str:
    rank = n.rank or "row_number"
    order = [*n.order, *(p.SortKey(p.col(c)) for c in n.child.columns)] if rank == "row_number" else n.order
    last = "" if n.limit is None else f" AND `__rank` <= {n.offset + n.limit}"
    shown = _columns(n.child.columns) + (f", `__rank` AS `{n.rank_name}`" if n.rank_name else "")
    inner = f"SELECT *, {rank}() {_over(n.partition, order)} AS `__rank` FROM {_source(n.child)}"
    return f"SELECT {shown} FROM ({inner}) AS y WHERE `__rank` > {n.offset}{last}"


def _join(n: p.Join) -> str:
    left = f"(SELECT *{_keys(n.left_keys, 'l')} FROM {_source(n.left)}) AS a"
    right = f"(SELECT *{_keys(n.right_keys, 'r')} FROM {_source(n.right)}) AS b"
    parts = [f"`__l{i}` {'<=>' if i in n.null_safe else '='} `__r{i}`" for i in range(len(n.left_keys))]
    if n.residual is not None:
        parts.append(f"({n.residual.sql()})")
    if n.mark is not None:
        match = f"EXISTS (SELECT 1 FROM {right} WHERE {' AND '.join(parts)})"
        return f"SELECT {_columns(n.left.columns)}, {match} AS `{n.mark}` FROM {left}"
    kind = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(n.kind, n.kind.upper())
    return f"SELECT {_columns(n.columns)} FROM {left} {kind} JOIN {right} ON {' AND '.join(parts)}"


def _keys(keys: Sequence[p.Expr], side: str) -> str:
    return "".join(f", {k.sql()} AS `__{side}{i}`" for i, k in enumerate(keys))
