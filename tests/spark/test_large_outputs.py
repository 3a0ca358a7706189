"""Outputs of more rows than one batch has, and more bytes than travel inline: every type, NULLs at every place of a byte of the validity, strings of all lengths."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.spark.conftest import Opener

ROWS = 70_000

COLUMNS = {
    "id": "BIGINT",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "number": "INT",
    "large": "BIGINT",
    "single": "FLOAT",
    "twice": "DOUBLE",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "text": "STRING",
    "flag": "BOOLEAN",
    "exact": "DECIMAL(12, 2)",
    "bytes": "BINARY",
    "list": "ARRAY<INT>",
}


def values(i: int) -> dict[str, object]:
    moment = dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=i)
    return {
        "tiny": i % 128 - 64,
        "small": i % 30_000 - 15_000,
        "number": -i,
        "large": i << 33,
        "single": i / 4,
        "twice": -i / 8,
        "day": dt.date(2024, 1, 1) + dt.timedelta(days=i % 1_000),
        "at": moment.replace(tzinfo=dt.UTC),
        "local": moment,
        # Some are longer than all that comes before them.
        "text": "é" * (i % 5) + "x" * (5_000 if i % 9_973 == 0 else i % 40),
        "flag": i % 3 == 0,
        "exact": Decimal(i) / 100,
        "bytes": bytes([i % 256]) * (i % 4),
        "list": [i, None] if i % 2 else [],
    }


def row(i: int) -> dict[str, object]:
    # Each column is NULL at places of its own; some runs of NULLs are longer than a byte of bits.
    given = values(i)
    return {"id": i} | {
        name: None if (i + n) % (n + 2) == 0 or i // 40 % 17 == n else value
        for n, (name, value) in enumerate(given.items())
    }


# EMIT EVERY has a job of Spark's own, whose sink writes what it is given; the other one is written by the kernel.
@pytest.mark.parametrize("emit", ["", " EMIT EVERY INTERVAL '100' MILLISECOND"])
def test_every_row_of_a_large_output_is_as_it_was(opener: Opener, emit: str) -> None:
    db = opener()
    declared = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    db.execute(f"CREATE SOURCE s ({declared}); CREATE STREAM o AS SELECT {', '.join(COLUMNS)} FROM s{emit}")
    expected = [row(i) for i in range(ROWS)]
    with db.subscribe("o") as changes:
        db.insert("s", expected)
        parts: list[pa.Table] = []
        while sum(part.num_rows for part in parts) < ROWS:
            change = changes.next(60.0)
            assert change is not None
            parts.append(change.arrow())
    found = pa.concat_tables(parts).select(list(COLUMNS)).sort_by("id")
    assert found.to_pylist() == expected
