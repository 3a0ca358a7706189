"""How one object lies in DuckDB, and the SQL that reads it.

Append-only objects are one table, `base`. The others have deltas beside it: tables of rows with a weight, in the order
of their age, of which the last takes the changes. The object is the sum of all of them: rows are grouped by all their columns,
so that NULL equals NULL, NaN equals NaN and 0.0 equals -0.0, and filters on columns go through the grouping to the tables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PenstockError

WEIGHT = "__weight"
_ROWS = "__rows"
# No name is used twice, so that a table which could not be dropped is in nobody's way.
_numbers = itertools.count(1)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class Layout:
    """The tables of one object. `deltas` is empty for an append-only object, and otherwise has at least one."""

    id: int
    schema: pa.Schema
    keys: tuple[str, ...]
    append_only: bool
    base: str = ""
    deltas: list[str] = field(default_factory=list)
    base_rows: int = 0
    delta_rows: int = 0
    count: int = 0
    epoch: int = 0
    lsn: int = 0
    compacting: bool = False
    damage: PenstockError | None = None

    @property
    def view(self) -> str:
        return f"o{self.id}"

    @property
    def columns(self) -> str:
        return ", ".join(quote(n) for n in self.schema.names)

    def next_table(self) -> str:
        return f"t{self.id}_{next(_numbers)}"

    def reading(self, restrict: str = "", base: str | None = None, deltas: list[str] | None = None) -> str:
        """SELECT of the rows, each as often as it is there. `restrict` is a WHERE clause put on each table, named `t`."""
        base = self.base if base is None else base
        deltas = self.deltas if deltas is None else deltas
        plain = f"SELECT {self.columns} FROM {base} t {restrict}"
        if not deltas:
            return plain
        parts = [f"SELECT {self.columns}, 1::BIGINT AS {WEIGHT} FROM {base} t {restrict}"]
        parts += [f"SELECT {self.columns}, {WEIGHT} FROM {d} t {restrict}" for d in deltas]
        merged = (
            f"SELECT {self.columns}, sum({WEIGHT})::BIGINT AS {_ROWS} FROM ({' UNION ALL '.join(parts)}) "
            f"GROUP BY {self.columns}"
        )
        most = "1" if self.keys else f"greatest({_ROWS}, 0)"
        alive = f"CASE WHEN {_ROWS} NOT BETWEEN 0 AND {most} THEN error('{_BROKEN}') ELSE {_ROWS} > 0 END"
        if self.keys:
            return f"SELECT {self.columns} FROM ({merged}) WHERE {alive}"
        # Nearly every row is there once; a constant list for those is half the cost of range().
        times = f"unnest(CASE WHEN {_ROWS} = 1 THEN [1] ELSE range({_ROWS}) END)"
        return f"SELECT {self.columns} FROM (SELECT {self.columns}, {times} FROM ({merged}) WHERE {alive})"


_BROKEN = "row count of a view out of range"


def is_broken(message: str) -> bool:
    """Whether a DuckDB error says that a row's total is negative, or above one under a key."""
    return _BROKEN in message
