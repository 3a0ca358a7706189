"""Random tables and random rows. Everything is made from one `random.Random`, so a seed says it all."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

Row = tuple[Any, ...]

SQL_TYPES = {
    "int": ("INT", "BIGINT", "SMALLINT"),
    "str": ("STRING",),
    "dec": ("DECIMAL(8, 2)", "DECIMAL(20, 4)"),
    "dbl": ("DOUBLE",),
    "date": ("DATE",),
    "ts": ("TIMESTAMP",),
    "bool": ("BOOLEAN",),
}
"""The kinds of columns, by what may be done with them, and the SQL types of each."""

DUCK_TYPES = {"STRING": "VARCHAR"}

NAN = float("nan")
"""The only NaN: Python finds it in a list by identity."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    type: str


@dataclass(frozen=True)
class Table:
    """A table, whose first column is the key if it has one; or a source, which takes new rows only."""

    name: str
    columns: tuple[Column, ...]
    keyed: bool
    source: bool = False

    def ddl(self) -> str:
        columns = ", ".join(f"{c.name} {c.type}" for c in self.columns)
        key = f", PRIMARY KEY ({self.columns[0].name})" if self.keyed else ""
        return f"CREATE {'SOURCE' if self.source else 'TABLE'} {self.name} ({columns}{key})"


def random_tables(chance: Random) -> tuple[Table, ...]:
    """Two or three tables, some with a key, or as many sources. All have a number and a string to join by."""
    count = chance.choice([2, 3, 3])
    if chance.random() < 0.2:
        return tuple(_table(chance, f"t{i}", keyed=False, source=True) for i in range(count))
    keyed = [True, False, chance.random() < 0.5][:count]
    chance.shuffle(keyed)
    return tuple(_table(chance, f"t{i}", k) for i, k in enumerate(keyed))


def _table(chance: Random, name: str, keyed: bool, source: bool = False) -> Table:
    kinds = ["int", "str", *chance.choices(["int", "str", "dec", "dbl", "date", "ts", "bool"], k=chance.randint(2, 3))]
    names = ["k", "s", "a", "b", "c"]
    columns = [Column(n, kind, chance.choice(SQL_TYPES[kind])) for n, kind in zip(names, kinds, strict=False)]
    if keyed:
        columns.insert(0, Column("id", "int", chance.choice(["INT", "BIGINT"])))
    return Table(name, tuple(columns), keyed, source)


def random_rows(chance: Random, table: Table, count: int) -> list[Row]:
    """Few different values, so that groups, matches, ties and duplicates are common; some NULLs."""
    return [tuple(_value(chance, table, c) for c in table.columns) for _ in range(count)]


def _value(chance: Random, table: Table, column: Column) -> Any:
    if table.keyed and column is table.columns[0]:
        return chance.randrange(12)
    if chance.random() < 0.15:
        return None
    match column.kind:
        case "int":
            return chance.choice([-3, -1, 0, 0, 1, 1, 2, 2, 3, 5])
        case "str":
            return chance.choice(["a", "a", "b", "b", "c", "A", "", "ab", "z_%", "é𝄞"])
        case "dec":
            return Decimal(chance.choice(["-1.50", "0.00", "0.25", "1.00", "1.00", "2.75", "10.10"]))
        case "dbl":
            return chance.choice([-1.5, 0.0, -0.0, 0.25, 1.0, 1.0, 2.5, 8.0, NAN])
        case "date":
            return dt.date(2026, 1, 1) + dt.timedelta(days=chance.choice([0, 0, 1, 2, 30, 59, -20_000]))
        case "ts":
            seconds = chance.choice([0, 0, 1, 60, 3599.000001, 3600, 86400, -1_800_000_000.5])
            return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
        case _:
            return chance.choice([True, False])
