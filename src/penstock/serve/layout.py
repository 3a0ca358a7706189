"""The DuckDB tables of one object, and the SQL that reads them.

An append-only object is one table, `base`. Other objects also have deltas: tables of weighted rows, oldest first; changes go to the last one.
The object is the sum of all of them: rows are grouped by all their columns, so that NULL equals NULL, NaN equals NaN and 0.0 equals -0.0,
and DuckDB can push filters on columns through the grouping to the tables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.serve.gathered import Gathered
    from penstock.serve.ondisk import DiskContents
    from penstock.serve.recent import Recent

WEIGHT = "__weight"
_ROWS = "__rows"
# Names are never reused, so a table that could not be dropped is harmless.
_numbers = itertools.count(1)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class TableLayout:
    """The tables of one object. `deltas` is empty for an append-only object; otherwise it has at least one."""

    id: int
    schema: pa.Schema
    keys: tuple[str, ...]
    append_only: bool
    waits: Recent | Gathered
    """The pending changes."""
    recent: Recent | None
    """The same, if it also serves rows by key."""
    base: str = ""
    deltas: list[str] = field(default_factory=list)
    base_rows: int = 0
    delta_rows: int = 0
    count: int = 0
    epoch: int = 0
    lsn: int = 0
    compacting: bool = False
    damage: PenstockError | None = None
    disk: DiskContents | None = None
    """The rows if they are on disk; DuckDB then has none."""
    seen_rows: int = 0
    seen_bytes: int = 0
    """Of all changes so far."""
    weighed: int = 0
    """Its size when it was last considered for moving to disk."""

    @property
    def view(self) -> str:
        return f"o{self.id}"

    @property
    def size(self) -> int:
        """Estimated memory of the rows, in bytes."""
        return self.count * self.seen_bytes // max(1, self.seen_rows) if self.disk is None else 0

    @property
    def columns(self) -> str:
        return ", ".join(quote(n) for n in self.schema.names)

    @property
    def stored(self) -> tuple[int, int]:
        """The epoch and the LSN of the tables."""
        if not self.waits.waiting:
            return self.epoch, self.lsn
        return self.waits.stored_epoch, self.waits.stored_lsn

    def next_table(self) -> str:
        return f"t{self.id}_{next(_numbers)}"

    def weighted(self, restrict: str, base: str, deltas: list[str]) -> str:
        """A SELECT of all rows with their weights, not consolidated."""
        parts = [f"SELECT {self.columns}, 1::BIGINT AS {WEIGHT} FROM {base} t {restrict}"]
        parts += [f"SELECT {self.columns}, {WEIGHT} FROM {d} t {restrict}" for d in deltas]
        return " UNION ALL ".join(parts)

    def reading(self, restrict: str = "", base: str | None = None, deltas: list[str] | None = None) -> str:
        """A SELECT of the rows, with duplicates. `restrict` is a WHERE clause for each table, whose alias is `t`."""
        base = self.base if base is None else base
        deltas = self.deltas if deltas is None else deltas
        plain = f"SELECT {self.columns} FROM {base} t {restrict}"
        if not deltas:
            return plain
        merged = (
            f"SELECT {self.columns}, sum({WEIGHT})::BIGINT AS {_ROWS} FROM ({self.weighted(restrict, base, deltas)}) "
            f"GROUP BY {self.columns}"
        )
        most = "1" if self.keys else f"greatest({_ROWS}, 0)"
        alive = f"CASE WHEN {_ROWS} NOT BETWEEN 0 AND {most} THEN error('{_BROKEN}') ELSE {_ROWS} > 0 END"
        if self.keys:
            return f"SELECT {self.columns} FROM ({merged}) WHERE {alive}"
        # Nearly every row has a count of one; a constant list for those costs half of range().
        times = f"unnest(CASE WHEN {_ROWS} = 1 THEN [1] ELSE range({_ROWS}) END)"
        return f"SELECT {self.columns} FROM (SELECT {self.columns}, {times} FROM ({merged}) WHERE {alive})"


_BROKEN = "row count of a view out of range"


def is_broken(message: str) -> bool:
    """Whether a DuckDB error says that a row's total is negative, or above one under a key."""
    return _BROKEN in message
