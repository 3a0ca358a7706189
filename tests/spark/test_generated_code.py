"""The code that Spark generates for a query compiles. If it does not, Spark runs the query row by row, several times as slowly, and says nothing."""

from __future__ import annotations

import pytest
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import settle

SOURCES = """
CREATE SOURCE trades (symbol STRING, price DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE SOURCE quotes (symbol STRING, bid DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE LOOKUP TABLE names (symbol STRING PRIMARY KEY, name STRING);
"""

QUERIES = {
    "asof": "SELECT t.symbol, t.price, q.bid FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol",
    "close_by": "SELECT t.symbol, t.price, q.bid FROM trades t JOIN quotes q ON t.symbol = q.symbol"
    " AND q.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts",
    "named": "SELECT t.symbol, t.price, n.name FROM trades t LEFT JOIN names n ON t.symbol = n.symbol",
    "windows": "SELECT symbol, window_start, sum(price) AS total FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '10' SECOND)",
    "sessions": "SELECT symbol, window_start, count(*) AS n FROM trades GROUP BY symbol, SESSION(ts, INTERVAL '5' SECOND)",
    "largest": "SELECT symbol, price FROM (SELECT *, row_number() OVER (PARTITION BY symbol ORDER BY price DESC) AS n FROM trades) WHERE n = 1",
    "inverse": "SELECT symbol, symbol AS again, 1 DIV CAST(price AS INT) AS inverse, price FROM trades",
}


@pytest.mark.parametrize("alone", [False, True])
def test_generated_code_compiles(opener: Opener, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    if alone:
        monkeypatch.setattr("penstock.runtime.jobs.planned.unfit", lambda query: "each has its own job here")
    db = opener(config={**CONFIG, "spark.conf.spark.sql.codegen.fallback": "false"})
    db.execute(SOURCES)
    db.execute("INSERT INTO names VALUES ('a', 'first')")
    for name, select in QUERIES.items():
        db.execute(f"CREATE STREAM {name} AS {select}")
    db.execute("INSERT INTO quotes VALUES ('a', 1.0, '2026-01-01 00:00:01'), ('c', 1.0, '2026-01-01 01:00:00')")
    db.execute("INSERT INTO trades VALUES ('a', 2.0, '2026-01-01 00:00:02'), ('b', 3.0, '2026-01-01 00:00:03')")
    db.execute("INSERT INTO trades VALUES ('c', 9.0, '2026-01-01 01:00:00')")
    settle(db)
