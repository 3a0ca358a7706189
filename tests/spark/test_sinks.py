"""Sinks: what reaches them, once, also after the database is opened again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.postgres import PASSWORD, PostgresServer
from tests.spark.conftest import CONFIG, Opener

import penstock

SOURCE = "CREATE SOURCE s (k STRING, v BIGINT)"


def rows_of(folder: Path) -> list[tuple[object, ...]]:
    tables = [pq.read_table(f) for f in sorted(folder.glob("*.parquet"))]
    return [tuple(r.values()) for t in tables for r in t.to_pylist()]


def test_files_get_every_row_once_over_a_restart(opener: Opener, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    db = opener(data)
    db.execute(f"""
        {SOURCE};
        CREATE STREAM big AS SELECT k, v FROM s WHERE v > 1;
        CREATE SINK f FROM big INTO FILES (path = '{out}/f') FORMAT PARQUET;
        CREATE SINK w FROM big WHERE v > 2 INTO FILES (path = '{out}/w') FORMAT PARQUET;
        CREATE SINK q INTO FILES (path = '{out}/q') FORMAT PARQUET AS SELECT k, v * 10 AS x FROM s;
    """)
    db.insert("s", [("a", 1), ("b", 2), ("c", 3)])
    db.flush(timeout=120)
    db.close()
    db = opener(data)
    db.insert("s", [("d", 4)])
    db.flush(timeout=120)
    assert rows_of(out / "f") == [("b", 2), ("c", 3), ("d", 4)]
    assert rows_of(out / "w") == [("c", 3), ("d", 4)]
    assert rows_of(out / "q") == [("a", 10), ("b", 20), ("c", 30), ("d", 40)]
    db.execute("DROP SINK q; DROP SINK w; DROP SINK f; DROP STREAM big; DROP SOURCE s")
    assert db.status() == []


def test_json_and_csv_files(db: penstock.Database, tmp_path: Path) -> None:
    db.execute(f"""
        {SOURCE};
        CREATE SINK j FROM s INTO FILES (path = '{tmp_path}/j') FORMAT JSON;
        CREATE SINK c FROM s INTO FILES (path = '{tmp_path}/c') FORMAT CSV;
    """)
    db.insert("s", [("a", 1)])
    db.flush(timeout=120)
    (document,) = [json.loads(line) for f in (tmp_path / "j").glob("*.json*") for line in f.read_text().splitlines()]
    assert document == {"k": "a", "v": 1}
    (text,) = [f.read_text() for f in (tmp_path / "c").glob("*.csv")]
    assert text.splitlines()[1].replace('"', "") == "a,1"


def test_a_python_function_gets_the_changelog(db: penstock.Database) -> None:
    got: list[tuple[object, ...]] = []

    def take(epoch: int, table: pa.Table) -> None:
        got.extend(tuple(r.values()) for r in table.to_pylist())

    db.register_callable("take", take)
    db.execute(f"""
        {SOURCE};
        CREATE STREAM total AS SELECT k, sum(v) AS t FROM s GROUP BY k EMIT CHANGES;
        CREATE SINK p FROM total INTO PYTHON (callable = 'take');
    """)
    for v in (1, 2):
        db.insert("s", [("a", v)])
        db.flush(timeout=120)
    assert got == [("a", 1, 1), ("a", 1, -1), ("a", 3, 1)]


def test_a_sink_is_replaced_and_a_changelog_is_refused(db: penstock.Database, tmp_path: Path) -> None:
    db.execute(f"{SOURCE}; CREATE SINK f FROM s INTO FILES (path = '{tmp_path}/one') FORMAT PARQUET")
    db.execute(f"CREATE OR REPLACE SINK f FROM s INTO FILES (path = '{tmp_path}/two') FORMAT PARQUET")
    db.insert("s", [("a", 1)])
    db.flush(timeout=120)
    assert rows_of(tmp_path / "two") == [("a", 1)]
    with pytest.raises(penstock.PenstockError, match="PSK-5004"):
        db.execute(
            f"CREATE SINK g INTO FILES (path = '{tmp_path}/g') FORMAT PARQUET AS SELECT k, sum(v) AS t FROM s GROUP BY k"
        )
    with pytest.raises(penstock.PenstockError, match="PSK-1010"):
        db.execute(
            f"CREATE SINK h FROM s INTO FILES (path = '{tmp_path}/h') FORMAT PARQUET WITH (unbounded_state = true)"
        )


def test_postgres_has_the_contents_of_a_view_over_a_restart(
    opener: Opener, tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.execute("CREATE TABLE sums (k text PRIMARY KEY, t bigint)", "CREATE TABLE seen (k text, v bigint)")
    config = {**CONFIG, "variables.PASSWORD": PASSWORD, "delivery.guarantee": "exactly-once"}
    target = f"url = '{postgres.url}', password = '${{PASSWORD}}'"
    db = opener(tmp_path / "data", config=config)
    db.execute(f"""
        {SOURCE};
        CREATE MATERIALIZED VIEW total AS SELECT k, sum(v) AS t FROM s GROUP BY k HAVING sum(v) > 0;
        CREATE SINK u FROM total INTO POSTGRES ({target}, table = 'sums', mode = 'upsert');
        CREATE SINK a FROM s INTO POSTGRES ({target}, table = 'seen') WITH (write_timeout = '1 minute');
    """)
    db.insert("s", [("a", 1), ("b", 2), ("c", 3)])
    db.flush(timeout=120)
    with pytest.raises(penstock.PenstockError, match="PSK-5004"):
        db.execute(f"CREATE SINK x FROM total INTO POSTGRES ({target}, table = 'sums')")
    with pytest.raises(penstock.PenstockError, match="PSK-5031"):
        db.execute("CREATE SINK y FROM total INTO CONSOLE (style = 'plain')")
    db.close()
    db = opener(tmp_path / "data", config=config)
    db.insert("s", [("a", 10), ("b", -2), ("d", 4)])
    db.flush(timeout=120)
    assert postgres.execute("SELECT k, t FROM sums ORDER BY k") == [("a", 11), ("c", 3), ("d", 4)]
    seen = [("a", 1), ("a", 10), ("b", -2), ("b", 2), ("c", 3), ("d", 4)]
    assert postgres.execute("SELECT k, v FROM seen ORDER BY k, v") == seen
    assert [(r[0], r[5]) for r in db.sql("SHOW SINKS").fetchall()] == [("u", "exactly-once"), ("a", "exactly-once")]
