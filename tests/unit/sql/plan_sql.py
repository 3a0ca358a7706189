"""A bound plan as DuckDB SQL, operator by operator: what it means, without Spark."""

from __future__ import annotations

from penstock.plan import nodes as p


def duckdb_sql(n: p.Node) -> str:
    match n:
        case p.Scan():
            return f"SELECT {', '.join(f'{_q(c)} AS {_q(i)}' for i, c in n.fields)} FROM {_q(n.object)}"
        case p.Values():
            rows = ", ".join(f"({', '.join(_e(e) for e in r)})" for r in n.rows)
            return f"SELECT * FROM (VALUES {rows}) v({_names(n.names)})"
        case p.Filter():
            return f"SELECT * FROM {_in(n.child)} WHERE {_e(n.predicate)}"
        case p.Project():
            return f"SELECT {', '.join(f'{_e(i.expr)} AS {_q(i.name)}' for i in n.items)} FROM {_in(n.child)}"
        case p.Distinct():
            return f"SELECT DISTINCT * FROM {_in(n.child)}"
        case p.Union():
            parts = [f"SELECT {_names(c.columns)} FROM {_in(c)}" for c in n.inputs]
            return f"SELECT * FROM ({' UNION ALL '.join(parts)}) u({_names(n.columns)})"
        case p.SetOp():
            left, right = (f"SELECT {_names(c.columns)} FROM {_in(c)}" for c in n.children)
            return f"SELECT * FROM ({left} {n.kind.upper()} {right}) u({_names(n.columns)})"
        case p.Aggregate():
            keys = [f"{_e(k.expr)} AS {_q(k.name)}" for k in n.keys]
            calls = [f"{_call(a)} AS {_q(a.name)}" for a in n.aggs]
            group = f" GROUP BY {', '.join(_e(k.expr) for k in n.keys)}" if n.keys else ""
            return f"SELECT {', '.join([*keys, *calls])} FROM {_in(n.child)}{group}"
        case p.TopN():
            number = f"row_number() OVER ({_over(n.partition, n.order)})"
            last = n.offset + n.limit if n.limit is not None else 1 << 40
            return f"SELECT * FROM {_in(n.child)} QUALIFY {number} BETWEEN {n.offset + 1} AND {last}"
        case p.Analytic():
            calls = [
                f"{c.func}({', '.join(map(_e, c.args)) or '*'}) OVER ({_over(n.partition, n.order)}) AS {_q(c.name)}"
                for c in n.calls
            ]
            return f"SELECT *, {', '.join(calls)} FROM {_in(n.child)}"
        case p.Join():
            return _join(n)
        case p.Recursive():
            keys = [f"{_e(a)} = {_e(b)}" for a, b in zip(n.left_keys, n.right_keys, strict=True)]
            on = " AND ".join([*keys, *([f"({_e(n.residual)})"] if n.residual else [])])
            made = ", ".join(_e(e) for e in n.outputs)
            kind = "UNION ALL" if n.everything else "UNION"
            return (
                f"WITH RECURSIVE rec({_names(n.names)}) AS (SELECT * FROM {_in(n.left)} {kind} "
                f"SELECT {made} FROM rec JOIN {_in(n.right, 'o')} ON {on}) SELECT * FROM rec"
            )
    raise AssertionError(type(n).__name__)


def _join(n: p.Join) -> str:
    pairs = enumerate(zip(n.left_keys, n.right_keys, strict=True))
    on = [f"{_e(a)} {'IS NOT DISTINCT FROM' if i in n.null_safe else '='} {_e(b)}" for i, (a, b) in pairs]
    on += [f"({_e(n.residual)})"] if n.residual else []
    left, right, both = _in(n.left, "l"), _in(n.right, "r"), " AND ".join(on)
    exists = f"EXISTS (SELECT 1 FROM {right} WHERE {both})"
    match n.kind:
        case "semi":
            return f"SELECT * FROM {left} WHERE {exists}"
        case "anti":
            return f"SELECT * FROM {left} WHERE NOT {exists}"
        case "mark":
            return f"SELECT *, {exists} AS {_q(n.mark or '')} FROM {left}"
    return f"SELECT * FROM {left} {n.kind.upper()} JOIN {right} ON {both}"


def _in(n: p.Node, alias: str = "q") -> str:
    return f"({duckdb_sql(n)}) {alias}"


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(_q, names))


def _e(e: p.Expr) -> str:
    if e.column is not None:
        return _q(e.column)
    return e.node.sql(dialect="duckdb", identify=True)


def _call(a: p.AggCall) -> str:
    args = ", ".join(map(_e, a.args)) or "*"
    where = f" FILTER (WHERE {_e(a.filter)})" if a.filter else ""
    return f"{a.func}({'DISTINCT ' if a.distinct else ''}{args}){where}"


def _over(partition: tuple[p.Expr, ...], order: tuple[p.SortKey, ...]) -> str:
    by = f"PARTITION BY {', '.join(map(_e, partition))} " if partition else ""
    keys = [f"{_e(k.expr)}{' DESC' if k.desc else ''} NULLS {'FIRST' if k.nulls_first else 'LAST'}" for k in order]
    return by + (f"ORDER BY {', '.join(keys)}" if keys else "")
