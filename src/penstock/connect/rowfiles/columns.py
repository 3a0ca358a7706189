"""Which columns of a file are read, and as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.check import Unfit, check_values
from penstock.connect.rowfiles.badrow import BadRow
from penstock.errors import fail
from penstock.sql.names import suggestion


@dataclass(frozen=True)
class Wanted:
    """The columns to read, by name, ignoring case.

    `complete`: every column must be in the files. `exact`: the files must have no others. `by_place`: a file without names has exactly these, in this order.
    `defaults` are the values for JSON objects that lack a column.
    """

    fields: tuple[pa.Field, ...]
    complete: bool = True
    exact: bool = False
    by_place: bool = True
    defaults: Mapping[str, object] = field(default_factory=dict)

    def pairs(self, file: Path, have: Sequence[str]) -> list[tuple[int, pa.Field]]:
        """The number of a column in the file, and the field that it fills."""
        check_names(file, have)
        folded = {n.lower(): i for i, n in enumerate(have)}
        names = [f.name for f in self.fields]
        known = {n.lower() for n in names}
        other = next((n for n in have if n.lower() not in known), None) if self.exact else None
        if other is not None:
            raise fail(
                "PSK-1004",
                f"{file} has a column {other}, which the target does not have.",
                hint=suggestion(other, names) or "Name the columns to read after the target: COPY t (a, b) FROM ….",
            )
        out = []
        for f in self.fields:
            at = folded.get(f.name.lower())
            if at is not None:
                out.append((at, f))
            elif self.complete:
                raise fail("PSK-1004", f"{file} has no column {f.name}.", hint=suggestion(f.name, have))
        if not out:
            hint = f"It has {', '.join(have[:20])}."
            raise fail("PSK-1004", f"{file} has none of the columns {', '.join(names)}.", hint=hint)
        return out


def check_names(file: Path, have: Sequence[str]) -> None:
    folded = [n.lower() for n in have]
    twice = next((n for i, n in enumerate(have) if folded[i] in folded[:i]), None)
    if twice is not None:
        raise fail("PSK-1014", f"{file} has two columns {twice}.", hint="Rename one of them.")


def storable(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> None:
    """Raises BadRow for a value of the right type that cannot be stored."""
    if not f.nullable and values.null_count:
        raise BadRow(pc.index(pc.is_null(values), True).as_py(), f.name, "NULL in a NOT NULL column")
    try:
        check_values(values)
    except Unfit as why:
        raise BadRow(why.row, f.name, why.reason) from None
