"""SELECTs as people write them for other systems: a view and a one-shot SELECT give the same rows, or refuse alike.

Each of them was once accepted with another meaning, or by one of both only.
"""

from __future__ import annotations

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import bag, settle

import penstock

ROWS = """
    INSERT INTO t VALUES
      (1, 'a', 10, array(1, 2), map('p', 1)), (2, 'a', 20, array(), map()), (3, 'b', NULL, NULL, NULL), (4, NULL, 10, array(3, NULL), map('q', NULL))
"""
SAME: dict[str, list[tuple[object, ...]]] = {
    "SELECT id, x FROM t ORDER BY x DESC NULLS LAST LIMIT 2 WITH TIES": [(2, 20), (1, 10), (4, 10)],
    "SELECT id FROM t ORDER BY id LIMIT ALL": [(1,), (2,), (3,), (4,)],
    "SELECT id, z FROM t CROSS JOIN UNNEST(arr) AS z": [(1, 1), (1, 2), (4, 3), (4, None)],
    "SELECT id, z, ordinality FROM t, UNNEST(arr) WITH ORDINALITY AS z": [
        (1, 1, 1),
        (1, 2, 2),
        (4, 3, 1),
        (4, None, 2),
    ],
    "SELECT id, key, value FROM t, LATERAL explode(m)": [(1, "p", 1), (4, "q", None)],
    "SELECT id, pos, key FROM t, LATERAL posexplode(m)": [(1, 0, "p"), (4, 0, "q")],
    "SELECT id, json_tuple(to_json(m), 'p', 'q') AS (p, q) FROM t": [
        (1, "1", None),
        (2, None, None),
        (3, None, None),
        (4, None, None),
    ],
    "SELECT id, c0 FROM t, LATERAL json_tuple('{\"a\": 1}', 'a') WHERE id = 1": [(1, "1")],
    "SELECT id, c.k, c.v FROM t, LATERAL inline_outer(map_entries(m)) AS c(k, v)": [
        (1, "p", 1),
        (2, None, None),
        (3, None, None),
        (4, "q", None),
    ],
    "SELECT x AS y, y + 1 AS z, z * 2 AS w FROM t WHERE id < 3": [(10, 11, 22), (20, 21, 42)],
    "SELECT struct(x, t.k) AS s, (id, k) AS r FROM t WHERE id = 1": [({"x": 10, "k": "a"}, {"id": 1, "k": "a"})],
    "SELECT struct(*) AS s, struct(b.*) AS o FROM (SELECT id, x FROM t WHERE id = 1) b": [
        ({"id": 1, "x": 10}, {"id": 1, "x": 10})
    ],
    "SELECT to_json(struct(*)) AS j FROM (SELECT id, k FROM t) WHERE id > 2": [('{"id":3,"k":"b"}',), ('{"id":4}',)],
    "SELECT arrays_zip(b.arr, array(id)) AS z FROM t b WHERE id = 1": [([{"arr": 1, "1": 1}, {"arr": 2, "1": None}],)],
    "SELECT concat_ws('-', *) AS c, count(*) OVER () AS n FROM (SELECT id, k FROM t)": [
        ("1-a", 4),
        ("2-a", 4),
        ("3-b", 4),
        ("4", 4),
    ],
    "SELECT count(DISTINCT *) AS m FROM (SELECT k, x FROM t)": [(2,)],
    "SELECT k FROM t UNION ALL SELECT k FROM t ORDER BY k FETCH FIRST 1 ROWS WITH TIES": [(None,), (None,)],
    "SELECT DISTINCT ON (k, x) k, x, id FROM t ORDER BY k": [("a", 10, 1), ("a", 20, 2), ("b", None, 3), (None, 10, 4)],
    "SELECT transform(arr, e -> struct(e, id)) AS l FROM t WHERE id = 4": [
        ([{"e": 3, "id": 4}, {"e": None, "id": 4}],)
    ],
}
REFUSED = {
    "SELECT id FROM t ORDER BY id FETCH FIRST 40 PERCENT ROWS ONLY": "PSK-1012",
    "SELECT id FROM t ORDER BY id LIMIT 50 PERCENT": "PSK-1012",
    "SELECT id, k FROM t LIMIT 1 BY k": "PSK-1012",
    "SELECT DISTINCT ON (k) k, x, id FROM t ORDER BY x": "PSK-1012",
    "SELECT count(t.*) FROM t": "PSK-1012",
    "SELECT * REPLACE (1 AS x) FROM t": "PSK-1012",
    "SELECT * RENAME (x AS y) FROM t": "PSK-1012",
    "SELECT id FROM t WHERE x = ANY(arr)": "PSK-1012",
    "SELECT id FROM t WHERE x > ALL(array(1, 2))": "PSK-1012",
    "SELECT y + 1 AS z, x AS y FROM t": "PSK-1004",
}


def test_rows_are_those_that_were_asked_for(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, k STRING, x INT, arr ARRAY<INT>, m MAP<STRING, INT>)")
    for i, select in enumerate(SAME):
        db.execute(f"CREATE MATERIALIZED VIEW v{i} AS {select}")
    db.execute(ROWS)
    settle(db)
    for i, (select, rows) in enumerate(SAME.items()):
        assert bag(db.sql(select).fetchall()) == bag(rows), select
        assert bag(db.sql(f"SELECT * FROM v{i}").fetchall()) == bag(rows), select
    for select, code in REFUSED.items():
        for statement in (select, f"CREATE MATERIALIZED VIEW bad AS {select}"):
            with pytest.raises(penstock.PenstockError) as refused:
                db.execute(statement)
            assert refused.value.code == code, (statement, str(refused.value))


def test_missing_windows_are_filled(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("""
        CREATE SOURCE s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts);
        CREATE STREAM bars AS SELECT k, window_start, sum(v) AS v FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE;
        CREATE MATERIALIZED VIEW filled AS
          SELECT f.k, minute(g.t) AS m, coalesce(b.v, 0) AS v, last_value(b.v) IGNORE NULLS OVER (PARTITION BY f.k ORDER BY g.t) AS known
          FROM (SELECT k, min(window_start) AS first, max(window_start) AS last FROM bars GROUP BY k) f,
            LATERAL generate_series(f.first, f.last, INTERVAL '1' MINUTE) AS g(t)
            LEFT JOIN bars b ON b.k = f.k AND b.window_start = g.t;
    """)
    for rows, expected in (
        ("('a', 1, '00:10'), ('b', 5, '01:10'), ('a', 2, '03:10')", [("a", 0, 1, 1), ("b", 1, 5, 5)]),
        (
            "('a', 3, '04:30'), ('z', 0, '09:00')",
            [("a", 0, 1, 1), ("a", 1, 0, 1), ("a", 2, 0, 1), ("a", 3, 2, 2), ("a", 4, 3, 3), ("b", 1, 5, 5)],
        ),
    ):
        db.execute(
            f"INSERT INTO s SELECT k, v, CAST('2026-01-01 00:' || t AS TIMESTAMP) FROM VALUES {rows} AS x(k, v, t)"
        )
        settle(db)
        assert bag(db.sql("SELECT * FROM filled").fetchall()) == bag(expected)
