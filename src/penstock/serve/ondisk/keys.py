"""The keys by which rows are ordered on disk: numbers, or bytes.

The order only has to be the same everywhere; it need not be SQL's. A key of one column of integers, dates or timestamps is its number, and NULL comes right after the smallest number.
Any other key is a byte string: for each column a NULL flag, its length if that varies, and its value.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys: TypeAlias = pa.Array
"""Of type int64, with NULL, or of type large_binary, without."""
Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Place: TypeAlias = tuple[Any, bool]

_LEAST = -(1 << 63)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)
# Of a longer key, only both ends and the length are hashed.
_HASHED = 64


def is_number(kinds: Sequence[pa.DataType]) -> bool:
    """Whether the key of such columns is a number."""
    t = pa.types
    return len(kinds) == 1 and bool(t.is_integer(kinds[0]) or t.is_date(kinds[0]) or t.is_timestamp(kinds[0]))


def is_encodable(kind: pa.DataType) -> bool:
    """Whether a column of this type can be part of a key."""
    t = pa.types
    return bool(_is_text(kind) or t.is_primitive(kind) or t.is_decimal128(kind))


def encode(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Keys:
    """The keys of rows."""
    arrays = [_whole(rows.column(c)) for c in columns]
    if is_number([a.type for a in arrays]):
        return _as_numbers(arrays[0])
    parts: list[pa.Array] = []
    for array in arrays:
        parts += _text_parts(array) if _is_text(array.type) else [_fixed(array)]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def order(keys: Keys) -> Ints:
    """The indices that sort the keys, stably."""
    if not _numeric(keys):
        return np.asarray(pc.sort_indices(keys).to_numpy(), np.int64)
    numbers = numbers_of(keys)
    if keys.null_count:
        return np.lexsort((_nulls(keys), numbers)).astype(np.int64)
    return np.argsort(numbers, kind="stable").astype(np.int64)


def firsts(keys: Keys) -> Bools:
    """Which of ascending keys differ from their predecessor."""
    new = np.ones(len(keys), np.bool_)
    if len(keys) < 2:
        return new
    if _numeric(keys):
        numbers = numbers_of(keys)
        new[1:] = numbers[1:] != numbers[:-1]
        if keys.null_count:
            nulls = _nulls(keys)
            new[1:] |= nulls[1:] != nulls[:-1]
    else:
        new[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return new


def is_ascending(keys: Keys) -> bool:
    """Whether each key is greater than its predecessor."""
    if len(keys) < 2:
        return True
    if _numeric(keys):
        numbers = numbers_of(keys)
        return not keys.null_count and bool((numbers[1:] > numbers[:-1]).all())
    return bool(pc.all(pc.greater(keys[1:], keys[:-1])).as_py())


def up_to(keys: Keys, bound: pa.Scalar) -> int:
    """The number of ascending keys that are not above a bound. NULL counts as the smallest number."""
    if _numeric(keys):
        number = bound.as_py()
        return int(numbers_of(keys).searchsorted(np.int64(_LEAST if number is None else number), side="right"))
    wanted = bound.as_py()
    return bisect.bisect_right(range(len(keys)), wanted, key=lambda i: keys[i].as_py())


def least(bounds: Sequence[pa.Scalar]) -> pa.Scalar:
    """The smallest key."""
    return min(bounds, key=place_of)


def find(keys: Keys, wanted: Keys) -> Ints:
    """The indices of wanted keys among ascending ones; -1 for missing ones."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    if not _numeric(keys):
        if len(wanted) == 1:
            key = wanted[0].as_py()
            at = bisect.bisect_left(range(len(keys)), key, key=lambda i: keys[i].as_py())
            return np.array([at if at < len(keys) and keys[at].as_py() == key else -1], np.int64)
        return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=keys), -1).to_numpy(), np.int64)
    numbers, sought = numbers_of(keys), numbers_of(wanted)
    places = numbers.searchsorted(sought).astype(np.int64)
    inside = np.minimum(places, len(numbers) - 1)
    places[numbers[inside] != sought] = -1
    if keys.null_count or wanted.null_count:
        nulls = _nulls(keys)
        # The smallest number and NULL are the first two, in this order.
        places[(places >= 0) & nulls[inside]] = -1
        places[_nulls(wanted)] = int(nulls.argmax()) if nulls.any() else -1
    return places


def blocks_of(first: Keys, wanted: Keys) -> Ints:
    """For each wanted key the only block that can have it, by the blocks' first keys; -1 if it is below all."""
    if _numeric(first):
        return (numbers_of(first).searchsorted(numbers_of(wanted), side="right") - 1).astype(np.int64)
    known = first.to_pylist()
    return np.array([bisect.bisect_right(known, k) - 1 for k in wanted.to_pylist()], np.int64)


def hashes(keys: Keys) -> Hashes:
    """A hash of each key, the same in every process."""
    if _numeric(keys):
        return _mixed(numbers_of(keys).view(np.uint64))
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = _mixed(lengths.astype(np.uint64))
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        taken = np.arange(length) if length <= 2 * _HASHED else np.r_[:_HASHED, length - _HASHED : length]
        padded = np.zeros((len(chosen), -(-len(taken) // 8) * 8), np.uint8)
        padded[:, : len(taken)] = data[starts[chosen][:, None] + taken]
        of = found[chosen]
        for lane in np.ascontiguousarray(padded).view(np.uint64).T:
            of = _mixed(of ^ lane)
        found[chosen] = of
    return found


def numbers_of(keys: Keys) -> Ints:
    """The numbers, NULL as the smallest."""
    return np.asarray((pc.fill_null(keys, _LEAST) if keys.null_count else keys).to_numpy(), np.int64)


def _mixed(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        values = values + _STEP
        values = (values ^ (values >> np.uint64(30))) * _MIX[0]
        values = (values ^ (values >> np.uint64(27))) * _MIX[1]
        return values ^ (values >> np.uint64(31))


def place_of(key: pa.Scalar) -> Place:
    """A Python value that compares like the key."""
    value = key.as_py()
    return (_LEAST, True) if value is None else (value, False)


def _numeric(keys: Keys) -> bool:
    return bool(pa.types.is_int64(keys.type))


def _nulls(keys: Keys) -> Bools:
    return np.asarray(pc.is_null(keys).to_numpy(zero_copy_only=False), np.bool_)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        whole = column.combine_chunks()
        return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return column


def _as_numbers(array: pa.Array) -> pa.Array:
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    width = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    return array.view(width).cast(pa.int64())


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind))


def _text_parts(array: pa.Array) -> list[pa.Array]:
    lengths = pc.fill_null(pc.binary_length(array), -1).to_numpy()
    text = pc.fill_null(array.cast(pa.large_binary()), b"")
    # NULL has its own length.
    return [_bytes((lengths + 1).astype(">u4").view(np.uint8).reshape(len(array), 4)), text]


def _fixed(array: pa.Array) -> pa.Array:
    """A flag and the value; zeros for NULL."""
    nulls = _nulls(array)
    kind = array.type
    if pa.types.is_decimal128(kind):
        raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 : (array.offset + len(array)) * 16]
        values = raw.reshape(len(array), 16)
    else:
        if pa.types.is_boolean(kind):
            array = array.cast(pa.int8())
        elif pa.types.is_floating(kind):
            # Normalise to one zero and one NaN.
            array = pc.if_else(pc.is_nan(array), float("nan"), pc.add(array, pa.scalar(0.0, kind))).cast(kind)
        width = array.type.bit_width // 8
        raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
        values = raw.reshape(len(array), width)[:, ::-1]
        if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind):
            values = values.copy()
            values[:, 0] ^= 0x80
    whole = np.empty((len(array), values.shape[1] + 1), np.uint8)
    whole[:, 0] = ~nulls
    whole[:, 1:] = values
    whole[nulls, 1:] = 0
    return _bytes(whole)


def _bytes(values: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    data = np.ascontiguousarray(values).tobytes()
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
