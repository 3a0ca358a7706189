"""Rejects Arrow values that the log, Spark or the view store cannot hold.

Arrow memory from outside may contain anything. It is checked completely before any row is stored, except for types that
need no check.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Years 1 to 9999, the range of Python's datetime: readers may ask for rows as Python values.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_MICRO, LAST_MICRO = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
OUT_OF_RANGE = "is outside the years 1 to 9999"
# Most types are recognised by their id; nested types must be inspected.
_LIMITED = frozenset(
    t.id
    for t in (
        pa.timestamp("us"),
        pa.date32(),
        pa.date64(),
        pa.list_(pa.null()),
        pa.struct([]),
        pa.map_(pa.string(), pa.null()),
    )
)


class Unfit(ValueError):
    """A value that cannot be stored: its 0-based row number and the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def check_memory(values: pa.Array | pa.ChunkedArray) -> None:
    """Raises Unfit for invalid UTF-8, out-of-range offsets and indices, and decimals that exceed the precision of their type.

    Casts and conversions assume that there are none.
    """
    full = _deep(values.type)
    before = 0
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else (values,):
        try:
            chunk.validate(full=full)
        except pa.ArrowInvalid as why:
            row, reason = _first_bad(chunk), str(why).splitlines()[0]
            raise Unfit(before + row, "it is not UTF-8" if "UTF8" in reason else f"damaged ({reason})") from None
        before += len(chunk)


@lru_cache(maxsize=4096)
def _deep(kind: pa.DataType) -> bool:
    """False for types in which every bit pattern is a valid value."""
    t = pa.types
    plain = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_timestamp(kind)
    return not (plain or t.is_date32(kind) or t.is_null(kind))


def _is_good(values: pa.Array) -> bool:
    try:
        values.validate(full=_deep(values.type))
    except pa.ArrowInvalid:
        return False
    return True


def _first_bad(values: pa.Array) -> int:
    """The first bad row of an array that has one, as far as it can be determined."""
    kind, t = values.type, pa.types
    if t.is_struct(kind):
        return min((_first_bad(c) for i in range(kind.num_fields) if not _is_good(c := values.field(i))), default=0)
    if t.is_map(kind) or t.is_list(kind) or t.is_large_list(kind):
        return _first_bad_list(values, (values.keys, values.items) if t.is_map(kind) else (values.values,))
    # Bisect: the shortest invalid prefix ends with the bad row.
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _is_good(values.slice(0, middle)) else (good, middle)
    return good


def _first_bad_list(values: pa.Array, inside: tuple[pa.Array, ...]) -> int:
    offsets = values.offsets.to_numpy()
    outside = np.flatnonzero((np.diff(offsets) < 0) | (offsets[:-1] < 0) | (offsets[1:] > len(inside[0])))
    if len(outside):
        return int(outside[0])
    found = [_first_bad(part) for part in inside if not _is_good(part)]
    return max(0, int(np.searchsorted(offsets, min(found), side="right")) - 1) if found else 0


def check_values(values: pa.Array | pa.ChunkedArray) -> None:
    """Raises Unfit for times outside the years 1 to 9999 and for duplicate map keys, at any nesting depth."""
    if values.type.id not in _LIMITED or not limited(values.type):
        return
    if not pa.types.is_nested(values.type):
        _check_times(values, None)
        return
    before = 0
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else (values,):
        rows = pa.array(np.arange(before, before + len(chunk)))
        for leaf, of in _leaves(chunk, rows):
            _check_times(leaf, of)
        before += len(chunk)


@lru_cache(maxsize=4096)
def limited(kind: pa.DataType) -> bool:
    """Whether some values of a type cannot be stored."""
    t = pa.types
    if t.is_timestamp(kind) or t.is_date(kind) or t.is_map(kind):
        return True
    if t.is_list(kind):
        return limited(kind.value_type)
    return bool(t.is_struct(kind)) and any(limited(kind.field(i).type) for i in range(kind.num_fields))


def _leaves(values: pa.Array, rows: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The times inside nested values, with the row of each; maps are checked on the way."""
    kind, t = values.type, pa.types
    if t.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        pairs = values.cast(entries)
        of = rows.take(pc.list_parent_indices(pairs))
        inside = pc.list_flatten(pairs)
        keys = pc.struct_field(inside, 0)
        _check_keys(keys, of)
        for part in (keys, pc.struct_field(inside, 1)):
            if limited(part.type):
                yield from _leaves(part, of)
    elif t.is_list(kind):
        yield from _leaves(pc.list_flatten(values), rows.take(pc.list_parent_indices(values)))
    elif t.is_struct(kind):
        for i in range(kind.num_fields):
            if limited(kind.field(i).type):
                yield from _leaves(pc.struct_field(values, i), rows)
    else:
        yield values, rows


def _check_times(values: pa.Array | pa.ChunkedArray, rows: pa.Array | None) -> None:
    days = pa.types.is_date(values.type)
    first, last = (FIRST_DAY, LAST_DAY) if days else (FIRST_MICRO, LAST_MICRO)
    bounds = pc.min_max(values)
    least, most = bounds["min"], bounds["max"]
    if not least.is_valid or (least.value >= first and most.value <= last):
        return
    numbers = values.cast(pa.int32() if days else pa.int64())
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    at = pc.index(outside, True).as_py()
    raise Unfit(at if rows is None else rows[at].as_py(), f"a {'date' if days else 'time'} {OUT_OF_RANGE}")


def _check_keys(keys: pa.Array, rows: pa.Array) -> None:
    if len(keys) < 2:
        return
    if pa.types.is_floating(keys.type):
        # All NaNs are the same key; so are both zeros.
        keys = pc.if_else(pc.is_nan(keys), pa.scalar(float("nan"), keys.type), pc.add(keys, pa.scalar(0.0, keys.type)))
    if pa.types.is_nested(keys.type):
        keys = pa.array([repr(k) for k in keys.to_pylist()])
    counted = pa.table({"row": rows, "key": keys}).group_by(["row", "key"]).aggregate([([], "count_all")])
    if counted.num_rows < len(keys):
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        row = pc.min(twice.column("row")).as_py()
        shown = twice.filter(pc.equal(twice.column("row"), row)).column("key")[0].as_py()
        raise Unfit(row, f"the map has a duplicate key {shown!r}")
