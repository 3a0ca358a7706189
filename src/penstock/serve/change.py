"""The messages that a subscriber gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.catalog.values import frame, values

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ChangeKind = Literal["changes", "snapshot", "progress", "resync"]


@dataclass(slots=True)
class Change:
    """One message: all changes in `(prev_lsn, lsn]`, up to and including `epoch`.

    `snapshot`: the contents at that point. `changes`: the changes. `progress`: nothing changed. `resync`: messages were lost (`reason` says
    why); the table has the contents at that point and replaces everything before. `seq` counts from 1 without gaps.

    `lsn` is the commit that recorded the change. `input_lsn` is the commit that caused it: the change includes all writes up to that
    LSN. For a table both are the same.
    """

    name: str
    epoch: int
    lsn: int
    input_lsn: int
    prev_lsn: int
    seq: int
    table: pa.Table
    kind: ChangeKind
    watermark: int | None = None
    reason: str | None = None

    def rows(self) -> list[dict[str, Any]]:
        columns = [values(c, f) for c, f in zip(self.table.columns, self.table.schema, strict=True)]
        if not columns:
            return [{} for _ in range(self.table.num_rows)]
        return [dict(zip(self.table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def arrow(self) -> pa.Table:
        return self.table

    def df(self) -> pd.DataFrame:
        made: pd.DataFrame = frame(self.table)
        return made

    def pl(self) -> pl.DataFrame:
        import polars

        made: pl.DataFrame = polars.from_arrow(self.table)  # type: ignore[assignment]
        return made

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> bool:
        return True
