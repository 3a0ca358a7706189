"""WITH RECURSIVE, in the kernel: base rows and the step's other side united, one operator that iterates within an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.spark.joins import key_types

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler

_ROUNDS = 4


def recursive(c: Compiler, n: p.Recursive) -> DataFrame:
    base, other = c.node(n.left), c.node(n.right)
    types = _types(c, n, base, other)
    rows = c.typed(base.select(*(F.col(f"`{x}`").cast(t).alias(name) for x, name, t in _zip(n, types))))
    keys = key_types([rows, other], (n.left_keys, n.right_keys))
    right = [F.col(f"`{x}`") for x in n.right.columns]
    right += [F.expr(k.sql()).cast(t).alias(f"__k{i}") for i, (k, t) in enumerate(zip(n.right_keys, keys, strict=True))]
    spec: dict[str, object] = {
        "columns": list(n.names),
        "types": [t.simpleString() for t in types],
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
    left = base.select(*(F.col(f"`{x}`") for x in n.left.columns), *_weight(base))
    return c.kernel("Recursion", spec, left, other.select(*right, *_weight(other)))


def _zip(n: p.Recursive, types: list[DataType]) -> list[tuple[str, str, DataType]]:
    return list(zip(n.left.columns, n.names, types, strict=True))


def _weight(df: DataFrame) -> list[str]:
    return ["__weight"] if "__weight" in df.columns else []


def _types(c: Compiler, n: p.Recursive, base: DataFrame, other: DataFrame) -> list[DataType]:
    """The types of r: those into which both the base and what the step makes of such rows fit."""
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
        hint="CAST the columns of its first part, and those of its step, to the types that you want.",
    )
