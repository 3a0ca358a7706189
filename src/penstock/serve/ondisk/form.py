"""The form of an object's rows on disk: columns, order, and the effect of a change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, fail
from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.keys import Keys, encode, firsts, is_encodable, order
from penstock.serve.zset import consolidate, weighted


class Kind(Enum):
    """`KEYED`: one row per key, the newest counts. `BAG`: the weights of equal rows are summed. `APPENDED`: rows that never change, in arrival order."""

    KEYED = "keyed"
    BAG = "bag"
    APPENDED = "appended"


@dataclass(frozen=True)
class Form:
    """The columns, keys and kind of an object on disk."""

    id: int
    schema: pa.Schema
    keys: tuple[str, ...]
    kind: Kind

    @staticmethod
    def of(id: int, schema: pa.Schema, keys: tuple[str, ...], *, append_only: bool) -> Form | None:
        """None if a column's type cannot be ordered."""
        if append_only:
            return Form(id, schema, (), Kind.APPENDED)
        by = keys or tuple(schema.names)
        if not all(is_encodable(schema.field(k).type) for k in by):
            return None
        return Form(id, schema, by, Kind.KEYED if keys else Kind.BAG)

    @property
    def weighted(self) -> pa.Schema:
        return self.schema.append(pa.field(WEIGHT, pa.int64()))

    def keys_of(self, rows: pa.Table | pa.RecordBatch) -> Keys:
        return encode(rows, self.keys)

    def change(self, change: pa.Table) -> pa.Table:
        """One epoch's change in this form. Raises PSK-8001 for a retraction from an append-only object."""
        if self.kind is not Kind.APPENDED:
            return weighted(change).select(self.weighted.names).cast(self.weighted)
        rows = change.select(self.schema.names).cast(self.schema)
        if WEIGHT not in change.column_names:
            return rows
        weights = change[WEIGHT].to_numpy()
        if len(weights) and weights.min() < 0:
            raise fail("PSK-8001", f"A retraction reached the append-only object {self.id}.")
        return rows if (weights == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))

    def sorted(self, change: pa.Table) -> tuple[pa.Table, Keys]:
        """The rows of one epoch's change with weights, by key, each key once. Raises PSK-8001 if a key would get two rows."""
        if self.kind is Kind.KEYED:
            # Sort the new row of a key before the one that it replaces.
            change = change.take(pa.array(np.argsort(-change[WEIGHT].to_numpy(), kind="stable")))
        keys = self.keys_of(change)
        at = pa.array(order(keys))
        change, keys = change.take(at), keys.take(at)
        first = firsts(keys)
        if self.kind is Kind.KEYED:
            weights = change[WEIGHT].to_numpy()
            twice = bool((weights[~first] > 0).any())
            if twice or (np.abs(weights) != 1).any() or self._came_and_went(change, first):
                again = consolidate(change)
                if again.num_rows < change.num_rows:
                    return self.sorted(again)
                if twice or (np.abs(weights) != 1).any():
                    raise self.broken()
        return self.combined(change, keys, first)

    def _came_and_went(self, change: pa.Table, first: np.typing.NDArray[np.bool_]) -> bool:
        """Whether a row may occur with both signs."""
        again = np.flatnonzero(~first)
        if not len(again):
            return False
        same = np.ones(len(again), np.bool_)
        for name in self.schema.names:
            column = change[name]
            if pa.types.is_nested(column.type):
                continue
            a, b = column.take(pa.array(again)), column.take(pa.array(again - 1))
            equal = pc.fill_null(pc.equal(a, b), False).to_numpy()
            same &= equal | (pc.is_null(a).to_numpy() & pc.is_null(b).to_numpy())
            if pa.types.is_floating(column.type):
                same |= pc.fill_null(pc.is_nan(a), False).to_numpy()
        return bool(same.any())

    def combined(self, rows: pa.Table, keys: Keys, first: np.typing.NDArray[np.bool_]) -> tuple[pa.Table, Keys]:
        """One row per key, from rows sorted by key, the newest of a key first."""
        if first.all():
            return rows, keys
        kept = pa.array(first)
        if self.kind is Kind.KEYED:
            return rows.filter(kept), keys.filter(kept)
        sums = np.add.reduceat(rows[WEIGHT].to_numpy(), np.flatnonzero(first))
        rows = rows.filter(kept)
        rows = rows.set_column(rows.num_columns - 1, WEIGHT, pa.array(sums))
        left = pa.array(sums != 0)
        return rows.filter(left), keys.filter(kept).filter(left)

    def alive(self, rows: pa.Table) -> pa.Table:
        """The contents from weighted rows: with duplicates, without weights."""
        weights = rows[WEIGHT].to_numpy()
        rows = rows.drop_columns([WEIGHT])
        if self.kind is Kind.KEYED:
            return rows if (weights > 0).all() else rows.filter(pa.array(weights > 0))
        if len(weights) and weights.min() < 0:
            raise self.broken()
        return rows if (weights == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))

    def broken(self) -> PenstockError:
        return fail(
            "PSK-8001",
            f"In object {self.id} the weights of a row sum to less than zero, or to more than one under a key.",
        )
