"""The envelopes in which changes are delivered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import fail
from penstock.serve.layout import WEIGHT
from penstock.serve.zset import assertions, consolidate, inserted

EmitKind = Literal["append", "changes", "update", "close"]
EnvelopeKind = Literal["diff", "upsert", "debezium"]


@dataclass(frozen=True)
class Form:
    """`diff` delivers rows by `emit`: `changes` with `__weight` last and retractions first, `update` only the new rows,
    `append` and `close` the rows. `upsert` delivers one row per key with `__op` last: `upsert`, or `delete` with only the key.
    `debezium` delivers `before`, `after`, `op` and `ts_ms`; with keys, the old and the new row of one key become one update.
    `names` rename the columns; `keys` are then among them.
    """

    emit: EmitKind = "changes"
    envelope: EnvelopeKind = "diff"
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.emit not in ("append", "changes", "update", "close"):
            raise fail("PSK-0009", f"Unknown emit {self.emit!r}.")
        if self.envelope == "upsert" and not self.keys:
            raise fail("PSK-5012", "The envelope 'upsert' needs an object with a key.", hint="Use the envelope 'diff'.")

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(emit: EmitKind, envelope: EnvelopeKind, keys: tuple[str, ...], names: tuple[str, ...]) -> Form:
        """Interned: the same object for the same form, so lookups compare by identity."""
        return Form(emit, envelope, keys, names)

    @cached_property
    def _hash(self) -> int:
        return hash((self.emit, self.envelope, self.keys, self.names))

    def __hash__(self) -> int:
        return self._hash

    def render(self, table: pa.Table, *, snapshot: bool = False) -> pa.Table:
        """A consolidated or raw Z-set in this form. `snapshot` marks contents instead of changes."""
        if self.names:
            table = table.rename_columns([*self.names, *table.column_names[len(self.names) :]])
        if self.envelope == "upsert":
            return _upsert(consolidate(table), self.keys)
        if self.envelope == "debezium":
            return _debezium(consolidate(table), self.keys, "r" if snapshot else "c")
        if self.emit == "changes":
            return consolidate(table, distinct=snapshot or WEIGHT not in table.column_names)
        if self.emit == "update":
            return assertions(consolidate(table) if WEIGHT in table.column_names else table)
        return inserted(table)


def _key(value: Any) -> Any:
    """A hashable form of a value; two are equal if and only if the values are."""
    if isinstance(value, (list, dict)):
        return repr(value)
    return "NaN" if value != value else value


def _keys(table: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*([_key(v) for v in table[k].to_pylist()] for k in keys), strict=True))


def _halves(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Retracted and asserted rows; an error if two rows of one key are asserted."""
    old = table.filter(pc.less(table[WEIGHT], 0))
    new = table.filter(pc.greater(table[WEIGHT], 0))
    live = _keys(new, keys)
    twice = len(set(live)) != len(live) or (new.num_rows and pc.max(new[WEIGHT]).as_py() > 1)
    if twice:
        raise fail("PSK-5006", f"Two rows have the same key ({', '.join(keys)}).", hint="Use the envelope 'diff'.")
    return old, new


def _upsert(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    old, new = _halves(table, keys)
    live = set(_keys(new, keys))
    gone: dict[tuple[Any, ...], int] = {}
    for i, key in enumerate(_keys(old, keys)):
        if key not in live:
            gone.setdefault(key, i)
    rows = table.schema.remove(table.schema.get_field_index(WEIGHT))
    schema = pa.schema([f if f.name in keys else f.with_nullable(True) for f in rows])
    schema = schema.append(pa.field("__op", pa.string(), nullable=False))
    dead = old.take(pa.array(list(gone.values()), pa.int64()))
    deletes = [dead[f.name] if f.name in keys else pa.nulls(dead.num_rows, f.type) for f in rows]
    upserts = [new[f.name] for f in rows]
    return pa.concat_tables(
        [
            pa.Table.from_arrays([*deletes, pa.repeat("delete", dead.num_rows)], schema=schema),
            pa.Table.from_arrays([*upserts, pa.repeat("upsert", new.num_rows)], schema=schema),
        ]
    )


def _debezium(table: pa.Table, keys: Sequence[str], created: str) -> pa.Table:
    row = pa.struct(list(table.schema.remove(table.schema.get_field_index(WEIGHT))))
    old = table.filter(pc.less(table[WEIGHT], 0))
    new = table.filter(pc.greater(table[WEIGHT], 0))
    if keys:
        old, new = _halves(table, keys)
    before, after = _repeated(old), _repeated(new)
    olds = {k: i for i, k in enumerate(_keys(old, keys))} if keys else {}
    pairs: list[tuple[int | None, int | None, str]] = []
    for j in range(after.num_rows) if not keys else ():
        pairs.append((None, j, created))
    for j, key in enumerate(_keys(new, keys) if keys else ()):
        i = olds.pop(key, None)
        pairs.append((i, j, created if i is None else "u"))
    deletes = list(olds.values()) if keys else list(range(before.num_rows))
    pairs = [(i, None, "d") for i in deletes] + pairs
    stamp = time.time_ns() // 1_000_000
    columns = [
        _structs(before, row).take(pa.array([p[0] for p in pairs], pa.int64())),
        _structs(after, row).take(pa.array([p[1] for p in pairs], pa.int64())),
        pa.array([p[2] for p in pairs], pa.string()),
        pa.array([stamp] * len(pairs), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, names=["before", "after", "op", "ts_ms"])


def _repeated(table: pa.Table) -> pa.Table:
    weights = table[WEIGHT].to_pylist()
    rows = table.drop_columns([WEIGHT])
    return rows.take(pa.array([i for i, w in enumerate(weights) for _ in range(abs(w))], pa.int64()))


def _structs(table: pa.Table, kind: pa.StructType) -> pa.Array:
    flat = table.combine_chunks()
    arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in flat.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
