"""Z-sets as Arrow tables: rows with an integer column `__weight`."""

from __future__ import annotations

import threading

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import fail
from penstock.serve.layout import WEIGHT, quote
from penstock.serve.physical import logical, physical

_opening = threading.Lock()
_base: duckdb.DuckDBPyConnection | None = None
# Arrow's grouping takes at least half a millisecond, however few rows there are.
_FEW = 8
_SOME = 256
_NAN = object()
_SMALL_BYTES = 1 << 18
"""Rows of up to this size are copied into one chunk."""


def consolidate(table: pa.Table, *, distinct: bool = False) -> pa.Table:
    """The same Z-set with distinct rows, no zero weights, retractions first and `__weight` as the last column.

    NULL equals NULL, NaN equals NaN and 0.0 equals -0.0 (see `canonical`). A table without weights has weight 1 everywhere. `distinct`
    promises that no two rows are equal, and saves the grouping.
    """
    table = canonical(weighted(table))
    if not distinct and table.num_rows > 1:
        few = _grouped_in_python(table) if table.num_rows <= _FEW else None
        if few is not None:
            return few
        if not any(all_differ(table[f.name]) for f in table.schema if f.name != WEIGHT):
            table = _grouped(table)
    return retractions_first(_without_zeros(table))


def all_differ(column: pa.ChunkedArray) -> bool:
    """True if no two values of an integer column are equal. It takes a tenth of the time of grouping, and usually none if two are equal."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    numbers = column.to_numpy()
    return _ascends(np.sort(numbers[:_SOME])) and _ascends(np.sort(numbers))


def _ascends(numbers: np.typing.NDArray[np.integer[np.typing.NBitBase]]) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def canonical(table: pa.Table) -> pa.Table:
    """Normalises floats so that equal values have equal bytes: zero is positive, and there is one NaN.

    Changelogs need this: an operator finds a retracted row by its bytes, and which of two equal rows represents both depends on their
    order of arrival.
    """
    for i, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
            chunks = [_positive(chunk) for chunk in table.column(i).chunks]
            table = table.set_column(i, field, pa.chunked_array(chunks, field.type))
    return table


def _positive(array: pa.Array) -> pa.Array:
    """The array with every float normalised, at any nesting depth."""
    kind = array.type
    if pa.types.is_floating(kind):
        sums = pc.add(array, pa.scalar(0.0, kind))
        return pc.if_else(pc.is_nan(sums), pa.scalar(float("nan"), kind), sums)
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [_positive(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = [_positive(array.keys), _positive(array.items)]
        values = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    elif pa.types.is_list(kind):
        values = _positive(array.values)
    else:
        return array
    validity_and_offsets = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), validity_and_offsets, array.null_count, array.offset, [values])


def weighted(table: pa.Table) -> pa.Table:
    """The table with `__weight` as its last column."""
    names = table.column_names
    if WEIGHT not in names:
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        return table.append_column(pa.field(WEIGHT, pa.int64()), ones)
    if names[-1] != WEIGHT:
        return table.select([n for n in names if n != WEIGHT] + [WEIGHT])
    return table


def assertions(table: pa.Table) -> pa.Table:
    """The rows with positive weight, repeated by their weight, without the weight column."""
    if WEIGHT not in table.column_names:
        return table
    weights = table[WEIGHT]
    rows = table.drop_columns([WEIGHT])
    if table.num_rows == 0:
        return rows
    if pc.min(weights).as_py() == pc.max(weights).as_py() == 1:
        return rows
    times = weights.to_pylist()
    return rows.take(pa.array([i for i, w in enumerate(times) for _ in range(w)], pa.int64()))


def inserted(table: pa.Table) -> pa.Table:
    """Like `assertions`, for a table that must not contain retractions."""
    if WEIGHT in table.column_names and table.num_rows and pc.min(table[WEIGHT]).as_py() < 0:
        raise fail("PSK-8001", "An append-only stream contains a retraction.")
    return assertions(table)


def negated(table: pa.Table) -> pa.Table:
    table = weighted(table)
    return table.set_column(table.num_columns - 1, WEIGHT, pc.negate(table[WEIGHT]))


def retractions_first(table: pa.Table) -> pa.Table:
    """The same rows, those with negative weights first, otherwise in the same order. Few rows are copied into one chunk, which costs less than later work on many chunks."""
    if table.num_rows == 0:
        return table
    if table.get_total_buffer_size() <= _SMALL_BYTES:
        asserts = table[WEIGHT].to_numpy() > 0
        if table[WEIGHT].num_chunks == 1 and (asserts.all() or not asserts.any()):
            return table
        return table.take(pa.array(np.argsort(asserts, kind="stable")))
    retracts = pc.less(table[WEIGHT], 0)
    if not pc.any(retracts).as_py():
        return table
    return pa.concat_tables([table.filter(retracts), table.filter(pc.invert(retracts))])


def _without_zeros(table: pa.Table) -> pa.Table:
    zero = table[WEIGHT].to_numpy() == 0
    return table.filter(pa.array(~zero)) if zero.any() else table


def _grouped(table: pa.Table) -> pa.Table:
    columns = [n for n in table.column_names if n != WEIGHT]
    if not columns:
        return pa.table({WEIGHT: pa.array([pc.sum(table[WEIGHT]).as_py()], pa.int64())})
    if not any(pa.types.is_nested(table.schema.field(n).type) for n in columns):
        summed = table.group_by(columns, use_threads=False).aggregate([(WEIGHT, "sum")])
        return summed.rename_columns([*columns, WEIGHT]).cast(table.schema)
    return _grouped_by_duckdb(table, columns)


def _grouped_in_python(table: pa.Table) -> pa.Table | None:
    """The distinct rows, retractions first; None if Python cannot compare them."""
    columns = table.columns[:-1]
    if not columns or any(pa.types.is_nested(c.type) or pa.types.is_time(c.type) for c in columns):
        return None  # Python's times have no nanoseconds.
    try:
        rows = list(zip(*(c.to_pylist() for c in columns), strict=True))
    except (ValueError, OverflowError):
        return None  # Python cannot represent the time.
    first: dict[tuple[object, ...], int] = {}
    weights: dict[int, int] = {}
    for i, (row, weight) in enumerate(zip(rows, table[WEIGHT].to_pylist(), strict=True)):
        at = first.setdefault(tuple(_NAN if v != v else v for v in row), i)
        weights[at] = weights.get(at, 0) + weight
    kept = [i for i, w in weights.items() if w < 0] + [i for i, w in weights.items() if w > 0]
    sums = pa.array([weights[i] for i in kept], pa.int64())
    taken = table.take(pa.array(kept, pa.int64()))
    return taken.set_column(taken.num_columns - 1, table.schema.field(WEIGHT), sums)


def _grouped_by_duckdb(table: pa.Table, columns: list[str]) -> pa.Table:
    keys = ", ".join(quote(n) for n in columns)
    try:
        # A cursor is never reused, because it may have been interrupted.
        with _cursor() as con:
            con.register("zset", physical(table))
            text = f"SELECT {keys}, sum({WEIGHT})::BIGINT AS {WEIGHT} FROM zset GROUP BY {keys}"
            return logical(con.sql(text).to_arrow_table(), table.schema)
    except duckdb.OutOfMemoryException as why:
        raise fail("PSK-7009", f"Changes could not be added up: {why}") from why
    except duckdb.Error as why:
        raise fail("PSK-8001", f"Changes could not be added up: {why}") from why


def _cursor() -> duckdb.DuckDBPyConnection:
    """A cursor of one DuckDB for all threads. A cursor costs microseconds; a DuckDB costs 20 ms and has its own threads."""
    global _base
    with _opening:
        if _base is None:
            opened = duckdb.connect(":memory:", config={"python_enable_replacements": False})
            opened.execute("SET GLOBAL TimeZone = 'UTC'")
            _base = opened
        return _base.cursor()
