"""Joins of more rows than travel in one bundle: in a shared job, and in a job of its own with generated code and without it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock
import penstock.runtime.jobs.planned as planned_module

from .conftest import CONFIG, Opener

ROWS = 60_000
KEYS = 7
START = 1_767_000_000_000_000
"""Microseconds."""


@pytest.fixture(params=["shared", "generated", "interpreted"])
def db(request: pytest.FixtureRequest, opener: Opener, monkeypatch: pytest.MonkeyPatch) -> penstock.Database:
    if request.param != "shared":
        monkeypatch.setattr(planned_module, "unfit", lambda query: "the test compares it with one")
    # A stage whose generated code does not compile would otherwise run without it, and nobody would notice.
    generated = {
        "spark.conf.spark.sql.codegen.wholeStage": str(request.param != "interpreted").lower(),
        "spark.conf.spark.sql.codegen.fallback": "false",
    }
    return opener(config={**CONFIG, **generated})


def side(column: str, shift: int) -> pa.Table:
    """Some 18 MB: a row every 10 µs for one of the keys in turn, and one row in a thousand with a NULL key."""
    number = np.arange(ROWS)
    keys = pa.array([None if n % 1000 == 999 else f"key {n % KEYS}" for n in number])
    texts = pc.binary_join_element_wise(pc.cast(pa.array(number), pa.string()), "x" * 280, "-")
    times = pa.array(START + 10 * number + shift, pa.timestamp("us", "UTC"))
    return pa.table({"k": keys, column: texts, "ts": times})


def test_each_row_finds_the_last_one_before_it(db: penstock.Database) -> None:
    for source, column in (("trades", "t"), ("quotes", "q")):
        db.execute(f"CREATE SOURCE {source} (k STRING, {column} STRING, ts TIMESTAMP, WATERMARK FOR ts)")
    db.execute("""
        CREATE STREAM answered AS SELECT t.k, CAST(split(t.t, '-')[0] AS INT) AS n, length(t.t) AS size, CAST(split(q.q, '-')[0] AS INT) AS found
        FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts > q.ts) ON t.k = q.k
    """)
    last = pa.table({"k": ["end"], "ts": pa.array([START + 10**9], pa.timestamp("us", "UTC"))})
    for source, column, shift in (("quotes", "q", 0), ("trades", "t", 5)):
        db.insert(source, side(column, shift))
        db.insert(source, last.append_column(column, pa.array(["0-"])))
    db.flush()
    rows = db.sql("SELECT k, n, size, found FROM answered WHERE k IS NULL OR k <> 'end'").arrow()
    found = dict(
        zip(
            rows["n"].to_pylist(),
            zip(rows["k"].to_pylist(), rows["size"].to_pylist(), rows["found"].to_pylist(), strict=True),
            strict=True,
        )
    )
    assert rows.num_rows == len(found) == ROWS
    for n in range(ROWS):
        null = n % 1000 == 999
        # The quote with the same number is 5 µs before the trade.
        assert found[n] == (None if null else f"key {n % KEYS}", len(str(n)) + 281, None if null else n)
