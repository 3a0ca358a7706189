"""The contents of an object at one moment, read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.form import Form, Kind
from penstock.serve.ondisk.keys import Hashes, Ints, Keys, find, firsts, hashes, order, place_of
from penstock.serve.ondisk.memory import Run
from penstock.serve.ondisk.merge import merged
from penstock.serve.ondisk.segment import Segment
from penstock.serve.physical import physical, physical_schema


class Snapshot:
    """Immutable files and runs in memory, both newest first. It outlives later changes, merges and the object itself.

    DuckDB can scan it like a table, any number of times (`__arrow_c_stream__`). `error` is the error that ended a scan, because DuckDB passes on only its text.
    """

    def __init__(self, form: Form, runs: tuple[Run, ...], segments: tuple[Segment, ...]) -> None:
        self._form = form
        self._runs = runs
        self._segments = segments
        self.error: PenstockError | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._form.schema

    def find(self, keys: pa.Table) -> pa.Table:
        """The rows with the given keys (columns of the object's key); NULL equals NULL. Raises PSK-6001."""
        form = self._form
        wanted = form.keys_of(keys.select(form.keys).cast(pa.schema([form.schema.field(k) for k in form.keys])))
        if len(wanted) == 1:
            return self._one(wanted)
        if len(wanted) > 1:
            wanted = wanted.take(pa.array(order(wanted)))
            wanted = wanted.filter(pa.array(firsts(wanted)))
        hashed = hashes(wanted)
        found: list[pa.Table] = []
        looks: list[Callable[[Keys, Hashes], list[tuple[Ints, pa.Table]]]] = [partial(_found, r) for r in self._runs]
        looks += [s.find for s in self._segments]
        for look in looks:
            if not len(wanted):
                break
            hits = look(wanted, hashed)
            if hits:
                found += [rows for _, rows in hits]
                left = np.delete(np.arange(len(wanted)), np.concatenate([at for at, _ in hits]))
                wanted, hashed = wanted.take(pa.array(left)), hashed[left]
        if not found:
            return form.schema.empty_table()
        return form.alive(pa.concat_tables(found)).cast(form.schema)

    def _one(self, wanted: Keys) -> pa.Table:
        """The row of one key, without copying it."""
        schema = self._form.schema
        row = None
        for rows, keys in self._runs:
            at = int(find(keys, wanted)[0])
            if at >= 0:
                row = rows.slice(at, 1)
                break
        else:
            place, hashed = place_of(wanted[0]), int(hashes(wanted)[0])
            for segment in self._segments:
                batch = segment.one(wanted, place, hashed)
                if batch is not None:
                    row = pa.Table.from_batches([batch])
                    break
        if row is None:
            return schema.empty_table()
        if row.num_columns > len(schema):
            if row.column(len(schema))[0].as_py() < 0:
                return schema.empty_table()
            row = row.drop_columns([WEIGHT])
        return row if row.schema.equals(schema) else row.cast(schema)

    def pieces(self) -> Iterator[pa.Table]:
        """All rows, in tables of some megabytes. Raises PSK-6001."""
        form = self._form
        if form.kind is Kind.APPENDED:
            for segment in reversed(self._segments):
                yield from segment.scan()
            for rows, _ in reversed(self._runs):
                yield rows
            return
        sources = [*(iter([rows]) for rows, _ in self._runs), *(s.scan() for s in self._segments)]
        for rows in merged(form, sources):
            alive = form.alive(rows)
            if alive.num_rows:
                yield alive.cast(form.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        schema = physical_schema(self.schema)
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema)).__arrow_c_stream__(requested_schema)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for piece in self.pieces():
                yield from physical(piece).cast(schema).to_batches()
        except PenstockError as why:
            self.error = why
            raise


def _found(run: Run, wanted: Keys, hashed: Hashes) -> list[tuple[Ints, pa.Table]]:
    rows, keys = run
    at = find(keys, wanted)
    there = np.flatnonzero(at >= 0)
    return [(there, rows.take(pa.array(at[there])))] if len(there) else []


__all__ = ["Snapshot"]
