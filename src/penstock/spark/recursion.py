"""WITH RECURSIVE, in the kernel: the union of base rows and the step's other side, and one operator that iterates within an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.shown import shown, text
from penstock.spark.guards import told
from penstock.spark.joins import key_types
from penstock.spark.typetext import type_text

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler

_ROUNDS = 4


def recursive(c: Compiler, n: p.Recursive) -> DataFrame:
    base, other = c.node(n.left), c.node(n.right)
    types = _types(c, n, base, other)
    rows = c.typed(base.select(*(F.col(f"`{x}`").cast(t).alias(name) for x, name, t in _zip(n, types))))
    keys = key_types([rows, other], (n.left_keys, n.right_keys))
    right = [F.col(f"`{x}`") for x in n.right.columns]
    exprs: list[p.Expr | str | None] = [None] * len(right)
    right += [F.expr(k.sql()).cast(t).alias(f"__k{i}") for i, (k, t) in enumerate(zip(n.right_keys, keys, strict=True))]
    exprs += n.right_keys
    weight = [F.col(w) for w in _weight(other)]
    others = c.guards.select(n, other, [*right, *weight], [*exprs, *(None for _ in weight)], shown(n.right))
    spec: dict[str, object] = {
        "columns": list(n.names),
        "types": [type_text(t) for t in types],
        "all": n.everything,
        "maxDepth": n.max_depth,
        "otherColumns": list(n.right.columns),
        "rowKeys": [k.sql() for k in n.left_keys],
        "otherKeys": [f"__k{i}" for i in range(len(keys))],
        "outputs": [e.sql() for e in n.outputs],
        "residual": n.residual.sql() if n.residual is not None else None,
        "baseWeight": c.weight(base),
        "otherWeight": c.weight(other),
    }
    spec |= _failing(c, n, rows, other, keys)
    return c.kernel("Recursion", spec, _base(c, n, base, types), others)


def _base(c: Compiler, n: p.Recursive, base: DataFrame, types: list[DataType]) -> DataFrame:
    """The rows of the base, cast to the types of r."""
    names = shown(n.left)
    select, exprs = [], []
    for x, _, t in _zip(n, types):
        same = base.schema[x].dataType == t
        select.append(F.col(f"`{x}`") if same else F.col(f"`{x}`").cast(t).alias(x))
        exprs.append(None if same else f"CAST({names[x]} AS {type_text(t)})")
    weight = [F.col(w) for w in _weight(base)]
    return c.guards.select(n, base, [*select, *weight], [*exprs, *(None for _ in weight)], names)


def _failing(c: Compiler, n: p.Recursive, rows: DataFrame, other: DataFrame, keys: list[DataType]) -> dict[str, object]:
    """The spec of the error channel, if a step can fail."""
    both = c.spark.createDataFrame([], StructType([*rows.schema.fields, *(other.schema[x] for x in n.right.columns)]))
    made = [F.expr(e.sql()).cast(f.dataType) for e, f in zip(n.outputs, rows.schema.fields, strict=True)]
    made += [F.expr(k.sql()).cast(t) for k, t in zip(n.left_keys, keys, strict=True)]
    made += [F.expr(n.residual.sql())] if n.residual is not None else []
    if not c.guards.fallible(both, [m.alias(f"x{i}") for i, m in enumerate(made)]):
        return {}
    others = shown(n.right)
    plain = {x: x.rpartition("$")[2] for x in n.names}
    names = {x: x.replace("$", ".") if y in others.values() else y for x, y in plain.items()} | others
    exprs = [*n.left_keys, *([n.residual] if n.residual is not None else []), *n.outputs]
    step = ", ".join(text(e, names) for e in exprs if told(e))
    return {"errors": c.guards.spec(names) | {"expression": step}}


def _zip(n: p.Recursive, types: list[DataType]) -> list[tuple[str, str, DataType]]:
    return list(zip(n.left.columns, n.names, types, strict=True))


def _weight(df: DataFrame) -> list[str]:
    return ["__weight"] if "__weight" in df.columns else []


def _types(c: Compiler, n: p.Recursive, base: DataFrame, other: DataFrame) -> list[DataType]:
    """The types of r: the common types of the base and of the step over such rows."""
    types = [base.schema[x].dataType for x in n.left.columns]
    others = [StructField(x, other.schema[x].dataType) for x in n.right.columns]
    for _ in range(_ROUNDS):
        fields = [StructField(x, t) for x, t in zip(n.names, types, strict=True)]
        empty = c.spark.createDataFrame([], StructType([*fields, *others]))
        made = empty.select(
            *(
                F.coalesce(F.lit(None).cast(t), F.expr(e.sql())).alias(f"t{i}")
                for i, (e, t) in enumerate(zip(n.outputs, types, strict=True))
            )
        )
        wider = [f.dataType for f in made.schema]
        if wider == types:
            return types
        types = wider
    raise fail(
        "PSK-1007",
        "The types of a recursive query grow with every step.",
        hint="CAST the columns of its first part and of its step to the types that you want.",
    )
