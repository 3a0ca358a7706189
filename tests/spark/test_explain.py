"""EXPLAIN as users see it: path, state and cost of each operator, and the figures of a running query."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark.following import SOON_S

import penstock

GOLDEN = Path(__file__).parent / "explain.txt"

OBJECTS = """
CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE SOURCE r (k STRING, w BIGINT, rts TIMESTAMP, WATERMARK FOR rts);
CREATE TABLE t (k STRING PRIMARY KEY, name STRING, x BIGINT);
CREATE LOOKUP TABLE d (k STRING PRIMARY KEY, label STRING);
"""


def test_the_plans_of_all_operators(db: penstock.Database) -> None:
    db.execute(OBJECTS)
    for block in GOLDEN.read_text(encoding="utf-8").strip().split("\n\n"):
        statement, _, expected = block.partition("\n")
        assert db.explain(statement) == expected, statement


def test_analyze_tells_the_figures_of_the_running_query(db: penstock.Database) -> None:
    view = "CREATE MATERIALIZED VIEW g AS SELECT t.name, sum(s.v) AS total FROM s JOIN t ON s.k = t.k GROUP BY t.name"
    db.execute(OBJECTS)
    assert db.explain(view, analyze=True).endswith("no running query has this plan")
    db.execute(view)
    db.insert("t", [("a", "Anna", 1), ("b", "Bert", 2)])
    db.execute(
        "INSERT INTO s VALUES ('a', 1, TIMESTAMP '2026-01-01 00:00:01'), ('a', 2, TIMESTAMP '2026-01-01 00:00:01')"
    )
    db.flush(timeout=SOON_S)
    told = db.explain(view, analyze=True)
    (join,) = (line for line in told.splitlines() if "Join inner" in line)
    (aggregate,) = (line for line in told.splitlines() if "Aggregate" in line)
    assert re.search(r"kernel Join; keeps rows of both sides by key; O\(diff · matches\); 4 rows, \d+ bytes kept", join)
    assert re.search(
        r"kernel Aggregate; keeps a row per group; O\(diff\); rows can fail; 1 rows, \d+ bytes kept", aggregate
    )
    assert re.search(r"running as g: running, \d+ epochs, LSN \d+, watermark None", told)
    assert "rows: 4 in, 1 out, 0 late" in told
    assert re.search(r"last epoch: \d+ ms: waiting \d+ ms, .*running \d+ ms, .*recording \d+ ms", told)
    again = db.explain(view.partition(" AS ")[2], analyze=True)
    # An epoch may have run in between.
    assert again.partition("last epoch")[0] == told.partition("last epoch")[0]
