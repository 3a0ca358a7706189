"""Converts user data to a table of an object's schema. Either all rows fit, or the error names the row and the column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.check import Unfit, check_memory, check_values
from penstock.catalog.convert import Misfit, array
from penstock.catalog.declared import Unsuitable, declared, fitted
from penstock.catalog.variant import Convert, writer
from penstock.errors import PenstockError, fail

_UNFIT = (Misfit, pa.ArrowException, TypeError, ValueError, ArithmeticError, RecursionError)
_MISSING = object()


def coerce(data: object, schema: pa.Schema, defaults: Mapping[str, object] | None = None) -> pa.Table:
    """Converts `data` to a table of exactly `schema`.

    `data` is a list of dicts (or one dict), a list of tuples in column order, an Arrow table, batch or reader, a pandas or polars
    frame, or anything with `__arrow_c_stream__`. Column names are case-insensitive. A missing column gets its value from
    `defaults` (a value, or a function without arguments that returns one), otherwise NULL.
    Only lossless conversions are made. A timestamp can be a datetime, an ISO 8601 string, or an integer of Unix milliseconds.

    Raises PSK-1004 for an unknown column and PSK-5003, naming row and column, for a value that does not fit. Every returned row
    can be stored: text is UTF-8, times are in the years 1 to 9999, map keys are unique. Values of VARCHAR(n) and CHAR(n)
    are truncated and padded; PSK-2009 if a value is too long.
    """
    return _declared(_coerced(data, schema, defaults or {}))


def _coerced(data: object, schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    if isinstance(data, Mapping):
        return _from_rows([data], schema, defaults)
    if isinstance(data, list):
        return _from_rows(data, schema, defaults)
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return _from_arrow(data, schema, defaults)
    if isinstance(data, pa.RecordBatchReader):
        return _from_arrow(_read(data.read_all), schema, defaults)
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return _from_pandas(data, schema, defaults)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _from_arrow(_read(lambda: pa.table(data)), schema, defaults)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return _from_rows(list(data), schema, defaults)
    raise fail(
        "PSK-0009", f"Cannot read rows from {type(data).__name__}.", hint="Pass dicts, tuples, Arrow, pandas or polars."
    )


def _declared(table: pa.Table) -> pa.Table:
    """The table with values in stored form, for column types that Arrow lacks."""
    for i, f in enumerate(table.schema):
        kind = declared(f)
        if kind is None:
            continue
        try:
            column = fitted(table.column(i), kind)
            if pa.types.is_nested(f.type):
                # Two keys of a map may become equal.
                check_values(column)
        except Unsuitable as why:
            raise fail(why.code, f"Row {why.at + 1}, column {f.name!r}: {why.reason}.") from None
        except Unfit as why:
            raise _unfit(why.row, f, why.reason) from None
        table = table.set_column(i, f, column)
    return table


def _read(read: Callable[[], pa.Table]) -> pa.Table:
    try:
        return read()
    except (pa.ArrowException, TypeError, ValueError) as why:
        raise fail("PSK-5003", f"The rows cannot be read as Arrow: {why}.") from why


def _from_rows(rows: Sequence[Any], schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    if not rows:
        return schema.empty_table()
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping) and not isinstance(row, (tuple, list)):
            raise fail("PSK-5003", f"Row {i + 1} is {type(row).__name__}, not a dict or a tuple.")
    if isinstance(rows[0], Mapping):
        return _from_dicts(rows, schema, defaults)
    width = len(schema)
    for i, row in enumerate(rows):
        if isinstance(row, Mapping) or len(row) != width:
            what = "a dict among tuples" if isinstance(row, Mapping) else f"{len(row)} values for {width} columns"
            raise fail("PSK-5003", f"Row {i + 1} has {what}.")
    columns = [_column(list(values), f) for values, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _from_dicts(rows: Sequence[Any], schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    names = schema.names
    known = set(names)
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise fail("PSK-5003", f"Row {i + 1} is a tuple among dicts.")
        if not known.issuperset(row):
            rows = [_renamed(r, names) for r in rows]
            break
    columns = []
    for f in schema:
        values = [r.get(f.name, _MISSING) for r in rows]
        if any(v is _MISSING for v in values):
            fill = _default(defaults, f.name)
            values = [fill() if v is _MISSING else v for v in values]
        columns.append(_column(values, f))
    return pa.Table.from_arrays(columns, schema=schema)


def _renamed(row: Any, names: list[str]) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise fail("PSK-5003", "A row is a tuple among dicts.")
    out: dict[str, Any] = {}
    for name, value in row.items():
        target = resolve(str(name), names)
        if target in out:
            raise fail("PSK-1014", f"Column {target!r} is given twice.")
        out[target] = value
    return out


def resolve(name: str, names: Sequence[str]) -> str:
    """Finds the column `name` in `names`, ignoring case. Raises PSK-1004 if there is none."""
    if name in names:
        return name
    folded = {n.lower(): n for n in names}
    if name.lower() in folded:
        return folded[name.lower()]
    near = get_close_matches(name.lower(), folded, n=1)
    hint = f"Did you mean {folded[near[0]]!r}?" if near else f"The columns are {', '.join(names)}."
    raise fail("PSK-1004", f"There is no column {name!r}.", hint=hint)


def _default(defaults: Mapping[str, object], name: str) -> Callable[[], object]:
    value = defaults.get(name)
    return value if callable(value) else lambda: value


def _column(values: list[Any], f: pa.Field) -> pa.Array:
    kind = declared(f)
    encode = writer(kind) if kind is not None else None
    try:
        out = array(values if encode is None else [encode(v) for v in values], f.type)
    except _UNFIT:
        raise _misfit(values, f, encode) from None
    # `convert` only returns values that can be stored.
    _check_nulls(out, f)
    return out


def _misfit(values: list[Any], f: pa.Field, encode: Convert | None) -> PenstockError:
    for i, value in enumerate(values):
        try:
            array([value if encode is None else encode(value)], f.type)
        except _UNFIT as why:
            return _unfit(i, f, str(why))
    return fail("PSK-5003", f"Column {f.name!r} does not fit {f.type}.")


def _unfit(row: int, f: pa.Field, why: str) -> PenstockError:
    return fail("PSK-5003", f"Row {row + 1}, column {f.name!r} ({f.type}): {why.rstrip('.')}.")


def _check(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> None:
    """Rejects values of the right type that cannot be stored."""
    _check_nulls(values, f)
    try:
        check_values(values)
    except Unfit as why:
        raise _unfit(why.row, f, why.reason) from None


def _check_nulls(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> None:
    if not f.nullable and values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise _unfit(row, f, "NULL in a NOT NULL column")


def _from_pandas(frame: Any, schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for i, name in enumerate(frame.columns):
        series = frame.iloc[:, i]
        f = schema.field(resolve(str(name), schema.names))
        kind = declared(f)
        try:
            if kind is not None and writer(kind) is not None:
                raise pa.ArrowInvalid("a VARIANT may be anything")
            arrays.append(pa.Array.from_pandas(series))
        except _UNFIT:
            # Mixed Python objects have no Arrow type of their own, but may fit the target type.
            arrays.append(_column([None if v is not v else v for v in series.tolist()], f))
    return _from_arrow(pa.table(arrays, names=[str(c) for c in frame.columns]), schema, defaults)


def _from_arrow(data: pa.Table | pa.RecordBatch, schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    given: dict[str, pa.Array | pa.ChunkedArray] = {}
    for i, name in enumerate(data.schema.names):
        target = resolve(name, schema.names)
        if target in given:
            raise fail("PSK-1014", f"Column {target!r} is given twice.")
        given[target] = data.column(i)
        try:
            check_memory(given[target])
        except Unfit as why:
            raise _unfit(why.row, schema.field(target), why.reason) from None
    if data.schema.equals(schema):
        for f in schema:
            _check(given[f.name], f)
        return pa.Table.from_arrays([given[f.name] for f in schema], schema=schema)
    columns = []
    for f in schema:
        if f.name in given:
            out = _cast(given[f.name], f)
            _check(out, f)
        else:
            out = _filled(defaults, f, data.num_rows)
            _check_nulls(out, f)
        columns.append(out)
    return pa.Table.from_arrays(columns, schema=schema)


def _filled(defaults: Mapping[str, object], f: pa.Field, rows: int) -> pa.Array:
    """A column that the rows lack."""
    if f.name not in defaults:
        return pa.nulls(rows, f.type)
    value = defaults[f.name]
    if callable(value):
        return _column([value() for _ in range(rows)], f)
    return _column([value], f).take(pa.repeat(pa.scalar(0, pa.int64()), rows))


def _cast(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> pa.Array | pa.ChunkedArray:
    if values.type.equals(f.type):
        return values
    try:
        values = _plain(values)
        source = values.type
        if source.equals(f.type):
            return values
        if pa.types.is_timestamp(f.type) and pa.types.is_integer(source):
            return values.cast(pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(f.type)
        if _castable(source, f.type):
            return values.cast(f.type)
    except _UNFIT:
        # The slow path finds the bad row, or a conversion that Arrow's cast lacks.
        return _one_by_one(values, f)
    return _one_by_one(values, f)


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Decodes dictionary, run-end and extension arrays."""
    t = pa.types
    while True:
        kind = values.type
        if isinstance(kind, pa.BaseExtensionType):
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            values = pa.chunked_array([c.storage for c in chunks], kind.storage_type)
        elif t.is_dictionary(kind):
            values = values.cast(kind.value_type)
        elif t.is_run_end_encoded(kind):
            values = pc.run_end_decode(values)
        else:
            return values


def _one_by_one(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> pa.Array:
    """Converts value by value in Python; `convert` gives the reason if one does not fit."""
    t, source = pa.types, values.type
    times = (t.is_duration(source) and t.is_duration(f.type)) or (t.is_time(source) and t.is_time(f.type))
    foreign = t.is_interval(source) or t.is_duration(source) or t.is_time(source) or t.is_union(source)
    if foreign and not times and len(values):
        raise _unfit(0, f, f"the Arrow type {source} is not supported")
    found = []
    for i, value in enumerate(values):
        try:
            found.append(value.as_py())
        except _UNFIT as why:
            raise _unfit(i, f, str(why)) from None
    return _column(found, f)


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """True if Arrow's safe cast has the same semantics as `convert.array` for these types."""
    t = pa.types
    if t.is_null(source) or source.equals(target):
        return True
    if t.is_dictionary(source):
        return _castable(source.value_type, target)
    if t.is_integer(source):
        return bool(t.is_integer(target) or t.is_floating(target))
    if t.is_floating(source):
        return bool(t.is_float64(target) or t.is_integer(target))
    if t.is_string(target):
        return bool(t.is_large_string(source) or t.is_string_view(source))
    if t.is_binary(target):
        return bool(t.is_large_binary(source) or t.is_binary_view(source) or t.is_fixed_size_binary(source))
    if t.is_timestamp(target):
        return bool(t.is_timestamp(source))
    if t.is_date(target):
        return bool(t.is_date(source))
    if t.is_time(target):
        return bool(t.is_time(source))
    if t.is_duration(target):
        return bool(t.is_duration(source))
    if t.is_decimal(target):
        return bool(t.is_decimal(source))
    if t.is_map(target):
        return bool(
            t.is_map(source)
            and _castable(source.key_type, target.key_type)
            and _castable(source.item_type, target.item_type)
        )
    if t.is_list(target):
        listlike = t.is_list(source) or t.is_large_list(source) or t.is_fixed_size_list(source)
        return bool(listlike and _castable(source.value_type, target.value_type))
    if t.is_struct(target):
        if not t.is_struct(source) or source.num_fields != target.num_fields:
            return False
        pairs = zip(source, target, strict=True)
        return all(a.name == b.name and _castable(a.type, b.type) for a, b in pairs)
    return False
