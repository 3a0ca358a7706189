"""Top-N, analytic functions and set operations, in the kernel."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.column import Column
from pyspark.sql.types import BooleanType, DataType, FractionalType, StringType
from sqlglot import exp

from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.functions import ANALYTIC
from penstock.plan.shown import shown, window_text
from penstock.spark.aggregates import overflows
from penstock.spark.comparable import check_collated
from penstock.spark.guards import told
from penstock.spark.translate import translated
from penstock.spark.typetext import type_text

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler


_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def _ordered(c: Compiler, n: p.TopN | p.Analytic) -> tuple[DataFrame, dict[str, object]]:
    """The input with partition and order columns computed, and their part of the spec."""
    df = c.node(n.child)
    weight = c.weight(df)
    columns = list(n.child.columns)
    select = [F.col(f"`{x}`") for x in columns]
    exprs: list[p.Expr | str | None] = [None] * len(select)
    select += [F.expr(e.sql()).alias(f"__p{i}") for i, e in enumerate(n.partition)]
    select += [F.expr(k.expr.sql()).alias(f"__o{i}") for i, k in enumerate(n.order)]
    exprs += [told(e) for e in (*n.partition, *(k.expr for k in n.order))]
    select += [F.col("__weight")] if weight else []
    exprs += [None] * (len(select) - len(exprs))
    spec: dict[str, object] = {
        "partition": [f"__p{i}" for i in range(len(n.partition))],
        "order": [{"col": f"__o{i}", "desc": k.desc, "nullsFirst": k.nulls_first} for i, k in enumerate(n.order)],
        "columns": columns,
        "weight": weight,
        "atOnce": n.at_once,
    }
    return c.guards.select(n, df, select, exprs), spec


def _out(n: p.TopN | p.Analytic, df: DataFrame) -> DataFrame:
    return df.select(*(F.col(f"`{x}`") for x in n.columns), *(["__weight"] if n.changelog else []))


def top_n(c: Compiler, n: p.TopN) -> DataFrame:
    df, spec = _ordered(c, n)
    # The kernel partitions and orders by columns of the row; other expressions become additional columns.
    exprs = {f"__p{i}": e for i, e in enumerate(n.partition)} | {f"__o{i}": k.expr for i, k in enumerate(n.order)}
    own = {name: e.column for name, e in exprs.items() if e.column in n.child.columns}
    df = df.drop(*own)
    spec["columns"] = [x for x in df.columns if x != "__weight"]
    spec["partition"] = [own.get(f"__p{i}", f"__p{i}") for i in range(len(n.partition))]
    spec["order"] = [
        {"col": own.get(f"__o{i}", f"__o{i}"), "desc": k.desc, "nullsFirst": k.nulls_first}
        for i, k in enumerate(n.order)
    ]
    spec |= {"limit": n.limit, "offset": n.offset}
    plain = n.rank is None or (n.rank == "row_number" and n.rank_name is None)
    spec["rank"] = None if plain else {"name": n.rank_name or "__rank", "func": n.rank}
    return _out(n, c.kernel("TopN", spec, df))


def analytic(c: Compiler, n: p.Analytic) -> DataFrame:
    df, spec = _ordered(c, n)
    args: list[Column] = []
    exprs: list[p.Expr | str | None] = []
    calls: list[dict[str, object]] = []
    source, known = c.typed(df), shown(n.child)
    parts = [_split(c, w, source) for w in n.calls]
    types = [[f.dataType for f in source.select(*(F.expr(e) for e in values)).schema] for values, _ in parts]
    for i, w in enumerate(n.calls):
        check_collated(f"{w.func}()", types[i])
        values, literals = parts[i]
        names = []
        for j, e in enumerate(values):
            args.append(F.expr(e).alias(f"__a{i}_{j}"))
            names.append(f"__a{i}_{j}")
            exprs.append(window_text(w, known))
        calls.append(
            {
                "name": w.name,
                "func": w.func,
                "args": names,
                "literals": literals,
                "type": type_text(source.select(F.expr(_over(w, n)).alias("t")).schema[0].dataType),
                "frame": None if w.frame is None else asdict(w.frame),
                "ignoreNulls": w.ignore_nulls,
                "fails": window_text(w, known) if overflows(w.func, types[i]) else None,
            }
        )
    spec["calls"] = calls
    if any(call["fails"] for call in calls):
        spec["errors"] = c.guards.spec(known)
    kept = [F.col(f"`{x}`") for x in df.columns]
    df = c.guards.select(n, df, [*kept, *args], [*(None for _ in kept), *exprs], known)
    return _out(n, c.kernel("Analytic", spec, df))


def _split(c: Compiler, w: p.WindowCall, source: DataFrame) -> tuple[list[str], list[object]]:
    """Splits arguments into values of the row and constants (an offset, a default, a count).

    A default that is not a plain constant of the call's type becomes another value of the row.
    """
    function = ANALYTIC.get(w.func)
    cut = function.constants_from if function is not None else None
    if cut is None:
        return [e.sql() for e in w.args], []
    values = [e.sql() for e in w.args[:cut]]
    constants: list[object] = [_count(c, w, e) for e in w.args[cut : cut + 1]]
    for default in w.args[cut + 1 :]:
        kind = source.select(F.expr(values[0])).schema[0].dataType
        if _fits(default.node, kind):
            constants.append(_literal(default.node))
        else:
            values.append(f"CAST({default.sql()} AS {type_text(kind)})")
    return values, constants


def _count(c: Compiler, w: p.WindowCall, e: p.Expr) -> object:
    """The value of an offset or a number of rows."""
    if isinstance(e.node, exp.Literal) and e.node.is_int:
        return _literal(e.node)
    if e.refs:
        raise fail(
            "PSK-1012", f"The number of rows in {w.func}() must be a constant.", hint="Write a number, or join the row."
        )
    with translated():
        (row,) = c.spark.sql(f"SELECT CAST({e.sql()} AS INT)").collect()
    return row[0]


def _fits(node: exp.Expr, kind: DataType) -> bool:
    """Whether the kernel reads a literal as the same value as Spark."""
    inner = node.this if isinstance(node, exp.Neg) else node
    if isinstance(inner, exp.Null):
        return True
    if isinstance(inner, exp.Boolean):
        return isinstance(kind, BooleanType)
    if not isinstance(inner, exp.Literal):
        return False
    if inner.is_string:
        return isinstance(kind, StringType)
    if inner.is_int and kind.typeName() in _BITS:
        return int(inner.name) < 1 << (_BITS[kind.typeName()] - 1)
    # A Python float has at least 15 exact digits.
    exact = inner.name.replace(".", "", 1).isdigit() and len(inner.name) <= 15
    return exact and isinstance(kind, FractionalType if not inner.is_int else (FractionalType, StringType))


def _literal(node: exp.Expr) -> object:
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        assert isinstance(value, (int, float))
        return -value
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if node.is_string:
        return str(node.this)
    return int(node.this) if node.is_int else float(node.this)


def _over(w: p.WindowCall, n: p.Analytic) -> str:
    """The call in the form whose type Spark derives; frames do not change a type."""
    order = ", ".join(f"`__o{i}`" for i in range(len(n.order))) or "1"
    return (
        f"{w.func}({', '.join(e.sql() for e in w.args) or ('*' if w.func == 'count' else '')}) OVER (ORDER BY {order})"
    )


def set_op(c: Compiler, n: p.SetOp) -> DataFrame:
    sides = []
    frames = c.alike(n, [c.node(n.left), c.node(n.right)])
    for side, (child, df) in enumerate(zip((n.left, n.right), frames, strict=True)):
        select = [F.col(f"`{x}`").alias(name) for x, name in zip(child.columns, n.columns, strict=True)]
        weight = F.col("__weight") if "__weight" in df.columns else F.lit(1).cast("bigint").alias("__weight")
        sides.append(df.select(*select, weight, F.lit(side).alias("__side")))
    spec: dict[str, object] = {"kind": n.kind, "columns": list(n.columns), "weight": "__weight", "side": "__side"}
    return c.kernel("SetOp", spec, sides[0].unionAll(sides[1]))
