"""VARCHAR(n) and CHAR(n): written and compared as in Spark's own tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Opener
from tests.spark.following import bag

from penstock import PenstockError

ROWS = [(1, "a", "x"), (2, "ab ", "x   "), (3, "abc", "xyz"), (4, None, ""), (5, "ab     ", "xyz  ")]
QUESTIONS = (
    "c = 'ab'", "c <> 'ab'", "c < 'ab '", "'ab' >= c", "c <=> 'ab'", "c IN ('a', 'abc')", "c NOT IN ('ab')", "c BETWEEN 'a' AND 'ab'", "c = 'abcde '",
    "c = d", "c = v", "v = 'x'", "c LIKE 'ab%'", "length(c) = 4", "c = concat('a', 'b')", "v IN ('x', 'xyz')", "c || '!' = 'ab  !'",
    "c = upper('AB') || 'cdefg'", "c IN ('a', lower('AB'))", "c > CAST('ab' AS STRING)", "c = NULL",
    "c IS DISTINCT FROM 'ab'", "c IN (d, 'x')", "CASE c WHEN d THEN 'd' WHEN 'ab' THEN 'ab' END", "CASE v WHEN c THEN 1 ELSE 0 END",
    "decode(c, 'ab', 1, NULL, 2, d, 3, 4)", "equal_null(c, 'ab')", "nullif(c, 'ab')", "coalesce(c, d) = 'ab'", "first_value(c) OVER (PARTITION BY d) = 'ab'",
)  # fmt: skip
FORMS = (
    "SELECT k, a.i, b.j FROM (SELECT c AS k, id AS i FROM t) a JOIN (SELECT d AS k, id AS j FROM t) b USING (k)",
    "SELECT id FROM t WHERE c = (SELECT max(d) FROM t)",
    "SELECT id FROM t WHERE c = (SELECT d FROM t WHERE id = 2 ORDER BY d LIMIT 1)",
    "SELECT id, m FROM t JOIN (SELECT v, max(c) AS m FROM t GROUP BY v) x USING (v) WHERE m = 'abc'",
    "SELECT * FROM (SELECT c, id FROM t) PIVOT (count(id) FOR c IN ('ab', 'ab  ' AS padded))",
    "SELECT * FROM (SELECT id, c, d FROM t) UNPIVOT (x FOR n IN (c, d)) WHERE x = 'ab'",
)  # fmt: skip


def test_strings_with_a_length(interpreted: Opener, plain_spark: SparkSession, tmp_path: Path) -> None:
    db, spark = interpreted(), plain_spark
    columns = "id INT, c CHAR(4) DEFAULT 'no', v VARCHAR(3), d CHAR(6), n STRUCT<a: ARRAY<CHAR(2)>>"
    db.sql(f"CREATE TABLE t ({columns}, PRIMARY KEY (id))")
    flags = ", ".join(f"{q} AS q{i}" for i, q in enumerate(QUESTIONS))
    db.sql(f"CREATE MATERIALIZED VIEW asked AS SELECT id, c, v, d, n, {flags} FROM t")
    db.sql(
        "CREATE MATERIALIZED VIEW again AS SELECT a.c, max(a.v) AS top FROM asked a JOIN t b ON a.c = b.d WHERE a.c <> 'abc' GROUP BY a.c"
    )
    for i, form in enumerate(FORMS):
        db.sql(f"CREATE MATERIALIZED VIEW form{i} AS {form}")
    schema = pa.schema([("id", pa.int32()), ("c", pa.string()), ("v", pa.string()), ("d", pa.string())])
    rows = [(*r, r[1]) for r in ROWS]
    db.sql("INSERT INTO t (id, c, v, d) VALUES (1, 'a', 'x', 'a')")
    db.sql("INSERT INTO t (id, c, v, d) VALUES (?, ?, ?, ?)", rows[1])
    arrow = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    db.insert("t", arrow.slice(2, 1))
    db.insert("t", arrow.slice(3, 1).to_pandas())
    db.insert("t", pl.from_arrow(arrow.slice(4, 1)))
    db.sql("INSERT INTO t SELECT id + 10, c, v, d, n FROM t")
    db.insert("t", {"id": 20, "n": {"a": ["p", None]}})
    db.sql("UPDATE t SET d = concat('q', v), v = 'y    ' WHERE id = 20")
    db.flush()

    spark.sql(f"CREATE TABLE sized ({columns.replace('a: ', 'a:')}) USING parquet LOCATION '{tmp_path}/sized'")
    try:
        for r in rows:
            text = ", ".join("NULL" if v is None else repr(v) for v in r)
            spark.sql(f"INSERT INTO sized (id, c, v, d) VALUES ({text})")
        spark.sql("INSERT INTO sized SELECT id + 10, c, v, d, n FROM sized")
        spark.sql("INSERT INTO sized SELECT 20, 'no', 'y  ', NULL, named_struct('a', array('p', NULL))")
        asked = f"SELECT id, c, v, d, n, {flags} FROM"
        expected = [r.asDict(recursive=True) for r in spark.sql(f"{asked} sized ORDER BY id").collect()]
        assert db.sql("SELECT * FROM asked ORDER BY id").arrow().to_pylist() == expected
        assert db.sql(f"{asked} t ORDER BY id").arrow().to_pylist() == expected
        joined = "SELECT a.c, max(a.v) AS top FROM sized a JOIN sized b ON a.c = b.d WHERE a.c <> 'abc' GROUP BY a.c ORDER BY 1"
        assert db.sql("SELECT * FROM again ORDER BY c").arrow().to_pylist() == [
            r.asDict() for r in spark.sql(joined).collect()
        ]
        for i, form in enumerate(FORMS):
            wanted = bag(tuple(r) for r in spark.sql(form.replace("FROM t", "FROM sized")).collect())
            assert wanted == bag(db.sql(f"SELECT * FROM form{i}").fetchall()) == bag(db.sql(form).fetchall()), form
    finally:
        spark.sql("DROP TABLE sized")

    for kind in ("t", "asked"):
        shown = {r["column"]: r["type"] for r in db.sql(f"DESCRIBE {kind}").arrow().to_pylist()}
        assert (shown["c"], shown["v"], shown["n"]) == ("char(4)", "varchar(3)", "struct<a:array<char(2)>>")
    before = db.sql("SELECT count(*) AS n FROM t").arrow().to_pylist()
    too_long = {"id": 30, "v": "wxyz"}
    for write in (
        lambda: db.sql("INSERT INTO t (id, v) VALUES (30, 'wxyz')"),
        lambda: db.sql("INSERT INTO t (id, v) SELECT 30, concat('wx', 'yz')"),
        lambda: db.sql("UPDATE t SET v = 'wxyz' WHERE id = 1"),
        lambda: db.sql("UPDATE t SET v = concat(v, 'wxyz') WHERE id < 3"),
        lambda: db.insert("t", too_long),
        lambda: db.insert("t", pa.Table.from_pylist([too_long])),
        lambda: db.insert("t", pd.DataFrame([too_long])),
        lambda: db.insert("t", pl.DataFrame([too_long])),
    ):
        with pytest.raises(PenstockError, match=r"PSK-2009.*too long for varchar\(3\)"):
            write()
    assert db.sql("SELECT count(*) AS n FROM t").arrow().to_pylist() == before
