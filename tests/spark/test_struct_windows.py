"""Spark's window() and session_window(), ordered percentiles and variant_explode: a view has after every commit what Spark computes from all rows."""

from __future__ import annotations

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import bag, contents, settle

import penstock

COLUMNS = "id INT PRIMARY KEY, g STRING, ts TIMESTAMP, n INT, x DOUBLE, v VARIANT"
VIEWS = [
    "SELECT g, window, count(*) AS c FROM t GROUP BY g, window(ts, '1 minute')",
    "SELECT window.start AS a, window.end AS b, sum(n) AS s FROM t GROUP BY window(ts, '1 minute', '30 seconds', '-10 seconds')",
    "SELECT window(ts, '90 seconds').end AS b, max(x) AS m FROM t GROUP BY window(ts, '90 seconds') HAVING window.start > TIMESTAMP '2026-01-01'",
    "SELECT window(ts, 60000000), count(*) AS c FROM t GROUP BY window",
    "SELECT window(ts, 'interval 1 hour 30 minutes', '10 minutes') AS w, id FROM t",
    "SELECT w, count(*) AS c FROM (SELECT window(ts, '1 minute', '30 seconds') AS w FROM t) GROUP BY w",
    "SELECT window(window_time(window), '5 minutes') AS w, sum(c) AS s FROM (SELECT window, count(*) AS c FROM t GROUP BY window(ts, '1 minute')) GROUP BY 1",
    "SELECT a.c, b.window AS w FROM (SELECT window, count(*) AS c FROM t GROUP BY window(ts, '1 minute')) a "
    "LEFT JOIN (SELECT window, count(*) AS c FROM t WHERE n > 2 GROUP BY window(ts, '1 minute')) b ON a.window = b.window",
    "SELECT window, g, rank() OVER (PARTITION BY window ORDER BY c, g) AS r FROM (SELECT window, g, count(*) AS c FROM t GROUP BY window(ts, '1 minute'), g)",
    "SELECT window(DATE '2026-01-01', '1 day') AS w, id FROM t",
    "SELECT g, percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC) AS p, percentile_cont(0.3) WITHIN GROUP (ORDER BY n) AS q, "
    "percentile_disc(0.3) WITHIN GROUP (ORDER BY x DESC) AS r, percentile_cont(array(0.1, 0.9)) WITHIN GROUP (ORDER BY n DESC) AS s, "
    "mode() WITHIN GROUP (ORDER BY n DESC) AS a, mode() WITHIN GROUP (ORDER BY n) AS b, "
    "percentile_cont(0.7) WITHIN GROUP (ORDER BY x DESC) FILTER (WHERE n > 1) AS f FROM t GROUP BY g",
    "SELECT percentile(DISTINCT n, 0.4) AS p, median(DISTINCT n) AS m, percentile(n, 0.4, 2) AS f FROM t",
    "SELECT id, percentile_cont(0.3) WITHIN GROUP (ORDER BY n) OVER (PARTITION BY g) AS p FROM t",
    "SELECT id, e.pos, e.key, to_json(e.value) AS j FROM t, LATERAL variant_explode(v) AS e",
    "SELECT id, p, to_json(x) AS j FROM (SELECT id, v FROM t), LATERAL variant_explode_outer(v) AS e(p, k, x)",
    "SELECT id, key FROM t LEFT JOIN LATERAL variant_explode(v) AS e",
    "SELECT pos, to_json(value) AS j FROM variant_explode(parse_json('[1, {\"a\": 2}]'))",
]  # fmt: skip
STEPS = [
    "INSERT INTO t VALUES (1, 'a', TIMESTAMP '2026-01-01 00:00:10', 1, 1.5D, parse_json('{\"a\": [1], \"b\": null}')), "
    "(2, 'a', TIMESTAMP '2026-01-01 00:00:50', 2, 0.1D, parse_json('[1, \"x\"]')), (3, 'b', TIMESTAMP '2025-12-31 23:59:59.999', 3, double('NaN'), parse_json('7')), "
    "(4, 'b', NULL, 2, -0.0D, NULL), (5, NULL, TIMESTAMP '1969-12-31 23:59:30', 1, double('-Infinity'), parse_json('[]'))",
    "INSERT INTO t VALUES (6, 'a', TIMESTAMP '2026-01-01 00:04:00', 2, 7.25D, parse_json('[[2]]')), (7, 'b', TIMESTAMP '2026-01-01 00:01:00', 3, NULL, NULL)",
    "UPDATE t SET ts = ts + INTERVAL '45' SECOND, n = n + 1, v = parse_json('{\"c\": 1}') WHERE id IN (1, 3)",
    "DELETE FROM t WHERE id IN (2, 5)",
]
DURING = "TIMESTAMP '2026-01-01 00:0"


def test_each_is_what_spark_computes_after_every_commit(opener: Opener) -> None:
    db = opener()
    db.execute(f"CREATE TABLE t ({COLUMNS})")
    for i, text in enumerate(VIEWS):
        db.execute(f"CREATE MATERIALIZED VIEW v{i} AS {text}")
    for step in STEPS:
        db.execute(step)
        settle(db)
        for i, text in enumerate(VIEWS):
            assert contents(db, f"v{i}") == bag(db.sql(text).fetchall()), (step, text)
    for i, text in enumerate(VIEWS):
        found = db.sql(f"SELECT * FROM v{i}").arrow().schema
        assert found.types == db.sql(text).arrow().schema.types, text


def test_windows_that_close_are_those_of_tumble_hop_and_session(opener: Opener) -> None:
    db = opener()
    db.execute("CREATE SOURCE s (g STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)")
    pairs = {
        "window(ts, '1 minute')": "TUMBLE(ts, INTERVAL '1' MINUTE)",
        "window(ts, '1 minute', '30 seconds', '10 seconds')": "HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE, INTERVAL '10' SECOND)",
        "session_window(ts, '20 seconds')": "SESSION(ts, INTERVAL '20' SECOND)",
    }
    select = "SELECT g, {}, {}, count(*) AS c, sum(n) AS s FROM s GROUP BY g, {}{}"
    for i, (spark, own) in enumerate(pairs.items()):
        name = spark.partition("(")[0]
        for emit in (" EMIT ON WINDOW CLOSE", " EMIT CHANGES"):
            kind = emit.split()[-1].lower()
            struct = select.format(f"{name}.start AS a", f"{name}.end AS b", spark, emit)
            db.execute(f"CREATE MATERIALIZED VIEW {kind}_{i} AS {struct}")
            plain = select.format("window_start AS a", "window_end AS b", own, emit)
            db.execute(f"CREATE MATERIALIZED VIEW {kind}_own_{i} AS {plain}")
    for rows in (
        f"('a', 1, {DURING}0:10'), ('a', 2, {DURING}0:29'), ('b', 3, {DURING}0:30')",
        f"('a', 4, {DURING}0:49'), ('a', 5, {DURING}2:00'), ('b', 6, NULL)",
        f"('a', 7, {DURING}0:20'), ('b', 8, {DURING}1:10'), ('a', 9, {DURING}4:00')",
    ):
        db.execute(f"INSERT INTO s VALUES {rows}")
        settle(db)
        for i in range(len(pairs)):
            for kind in ("close", "changes"):
                assert contents(db, f"{kind}_{i}") == contents(db, f"{kind}_own_{i}"), (rows, kind, i)
    for i in range(len(pairs)):
        assert contents(db, f"close_{i}")
    session = "SELECT g, session_window, count(*) AS c FROM s GROUP BY g, session_window(ts, '20 seconds')"
    assert bag(db.sql(session).fetchall()) == bag(
        db.sql(
            "SELECT g, named_struct('start', window_start, 'end', window_end), count(*) FROM s GROUP BY g, SESSION(ts, INTERVAL '20' SECOND)"
        ).fetchall()
    )


def test_the_struct_keeps_its_event_time_in_the_queries_around_it(opener: Opener) -> None:
    db = opener()
    db.execute("CREATE SOURCE s (g STRING, ts TIMESTAMP, WATERMARK FOR ts)")
    db.execute("""
        CREATE STREAM totals AS SELECT window, sum(c) AS c FROM (SELECT g, window, count(*) AS c FROM s GROUP BY g, window(ts, '1 minute'))
          GROUP BY window EMIT ON WINDOW CLOSE;
        CREATE MATERIALIZED VIEW shown AS SELECT window.start AS a, c FROM totals;
    """)
    db.execute(f"INSERT INTO s VALUES ('a', {DURING}0:10'), ('b', {DURING}0:20'), ('a', {DURING}1:30')")
    settle(db)
    assert contents(db, "shown") == bag(db.sql(f"SELECT {DURING}0:00', 2L").fetchall())


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT count(*) AS c FROM t GROUP BY window(ts, '1m')", "PSK-2008"),
        ("SELECT count(*) AS c FROM t GROUP BY window(ts, '1 minute', '2 minutes')", "PSK-2003"),
        ("SELECT id FROM t LATERAL VIEW variant_explode(v) e AS p, k, x", "PSK-1012"),
        ("SELECT variant_explode(v) FROM t", "PSK-1006"),
        ("SELECT percentile_cont(n, 0.5) AS p FROM t", "PSK-1007"),
        ("SELECT percentile(0.5) WITHIN GROUP (ORDER BY n) AS p FROM t", "PSK-1012"),
    ],
)
def test_refusals(db: penstock.Database, query: str, code: str) -> None:
    db.execute(f"CREATE TABLE t ({COLUMNS})")
    with pytest.raises(penstock.PenstockError) as refused:
        db.execute(f"CREATE MATERIALIZED VIEW r AS {query}")
    assert refused.value.code == code and refused.value.position is not None
    with pytest.raises(penstock.PenstockError, match="PSK-"):
        db.sql(query).fetchall()
