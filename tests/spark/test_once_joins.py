"""ASOF, temporal and probe joins in a one-shot SELECT give what a view of the same query has when all rows are there."""

from __future__ import annotations

import pytest
from tests.spark.following import SOON_S, bag

import penstock

_QUERIES = {
    "asof": "SELECT t.id, q.p FROM t ASOF JOIN q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k",
    "on": "SELECT t.id, q.p FROM t INNER ASOF JOIN q ON t.k = q.k AND t.ts > q.ts",
    "forward": "SELECT t.id, q.p FROM t ASOF JOIN q MATCH_CONDITION (t.ts <= q.ts AND q.ts - t.ts <= INTERVAL '5' SECOND) ON t.k = q.k",
    "nearest": "SELECT t.id, q.p FROM t ASOF JOIN q MATCH_CONDITION (NEAREST (t.ts, q.ts)) ON t.k = q.k",
    "temporal": "SELECT t.id, r.rate FROM t LEFT JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.k = r.k",
    "probe": "SELECT t.id, p.offset_ms, q.p FROM t TEMPORAL PROBE JOIN q ON (k) TIMESTAMPS (t.ts, q.ts) LIST (-5s, 0s, 3s) AS p",
    "grouped": """SELECT d.name, count(*) AS n, max(q.p) AS p FROM t ASOF JOIN q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k
                  JOIN names d ON d.k = t.k GROUP BY d.name HAVING count(*) > 0""",
    "least": "SELECT id FROM t WHERE id < ALL (SELECT p FROM q WHERE q.k = t.k)",
    "some": "SELECT id FROM t WHERE id >= ANY (SELECT p FROM q)",
}


def test_joins_once_equal_the_views(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE t (id INT, k STRING, ts TIMESTAMP);
        CREATE SOURCE q (k STRING, p INT, ts TIMESTAMP);
        CREATE TABLE rates (k STRING, since TIMESTAMP, rate INT, PRIMARY KEY (k, since));
        CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
        INSERT INTO names VALUES ('a', 'A'), ('b', 'B');
        INSERT INTO rates VALUES ('a', TIMESTAMP '2026-01-01 00:00:00', 1), ('a', TIMESTAMP '2026-01-01 00:00:10', 2);
    """)
    base = 1_767_225_600_000
    db.insert(
        "q",
        [
            ("a", 1, base),
            ("a", 2, base + 8_000),
            ("b", 3, base + 5_000),
            ("b", 9, None),
            (None, 9, base),
            ("a", 4, base + 8_000),
        ],
    )
    for name, query in _QUERIES.items():
        db.execute(f"CREATE MATERIALIZED VIEW v_{name} AS {query} WITH (unbounded_state = true)")
    db.flush(timeout=SOON_S)
    db.insert(
        "t",
        [
            (1, "a", base),
            (2, "a", base + 4_000),
            (3, "a", base + 12_000),
            (4, "b", base),
            (5, None, base),
            (6, "c", base),
            (7, "a", None),
        ],
    )
    db.flush(timeout=SOON_S)
    for name, query in _QUERIES.items():
        wanted = bag(db.sql(f"SELECT * FROM v_{name}").fetchall())
        assert bag(db.sql(query).fetchall()) == wanted, name
    assert db.sql(f"{_QUERIES['asof']} ORDER BY id LIMIT 4").fetchall() == [(1, 1), (2, 1), (3, 4), (4, None)]
    db.execute(f"CREATE VIEW latest AS {_QUERIES['asof']}")
    assert db.sql("SELECT count(*), count(p) FROM latest").fetchall() == [(7, 3)]
    assert "answered by Spark with the operators of a view, because it has an ASOF join" in db.explain(_QUERIES["asof"])


def test_tables_have_all_their_rows(db: penstock.Database) -> None:
    """A view refuses tables here, because an answer would change later."""
    db.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, ts BIGINT); CREATE TABLE q (ts BIGINT PRIMARY KEY, p BIGINT);
        INSERT INTO t VALUES (1, 5), (2, 25); INSERT INTO q VALUES (0, 7), (20, 9223372036854775807), (21, 1);
    """)
    asof = "FROM t ASOF JOIN q MATCH_CONDITION (t.ts >= q.ts)"
    assert bag(db.sql(f"SELECT id, p {asof}").fetchall()) == bag([(1, 7), (2, 1)])
    with pytest.raises(penstock.PenstockError, match="PSK-3003"):
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, p {asof}")
    with pytest.raises(penstock.PenstockError) as overflow:
        db.sql("SELECT sum(p) OVER (ORDER BY ts GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM q")
    assert overflow.value.code.startswith("PSK-7")
    with pytest.raises(penstock.PenstockError) as divided:
        db.sql(f"SELECT id DIV (id - id) {asof}")
    assert divided.value.code.startswith("PSK-7")
    db.execute("BEGIN; INSERT INTO q VALUES (4, 8)")
    assert bag(db.sql(f"SELECT id, p {asof}").fetchall()) == bag([(1, 8), (2, 1)])
    db.execute("ROLLBACK")
