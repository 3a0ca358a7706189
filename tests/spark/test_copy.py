"""COPY and read_files: one commit, all or nothing; what is refused, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Opener

import penstock
from penstock.errors import PenstockError


def _refused(db: penstock.Database, sql: str, code: str, words: str = "") -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        db.execute(sql)
    assert caught.value.code == code, caught.value
    assert words in caught.value.detail
    return caught.value


def test_rows_come_from_files_and_go_to_files(db: penstock.Database, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("K,price,extra\na,1.5,x\nb,2.5,y\na,3,z\n")
    db.execute(f"""
        CREATE TABLE t (k STRING, price DOUBLE, note STRING DEFAULT 'none');
        CREATE MATERIALIZED VIEW v AS SELECT k, sum(price) AS total FROM t GROUP BY k;
        COPY t (k, price) FROM '{tmp_path}/in.csv' WITH (FORMAT csv, HEADER);
        FLUSH;
    """)
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [("a", 1.5, "none"), ("a", 3.0, "none"), ("b", 2.5, "none")]
    assert db.sql(f"COPY (SELECT * FROM v ORDER BY k) TO '{tmp_path}/out.json'").fetchall() == [(2,)]
    assert (tmp_path / "out.json").read_text() == '{"k": "a", "total": 4.5}\n{"k": "b", "total": 2.5}\n'
    read = f"read_files('{tmp_path}/*.json', schema => 'k STRING, total DECIMAL(10, 2)')"
    assert db.sql(
        f"SELECT f.k, t.price FROM {read} AS f JOIN t ON t.k = f.k WHERE f.total > 4 ORDER BY 2"
    ).fetchall() == [
        ("a", 1.5),
        ("a", 3.0),
    ]
    assert db.sql(f"SELECT sum(price) FROM read_files('{tmp_path}/in.csv', header => true)").fetchall() == [(7.0,)]
    db.execute(
        f"INSERT INTO t (k, price) SELECT upper(k), price FROM read_files('{tmp_path}/in.csv') WHERE extra = 'z'"
    )
    assert db.sql("SELECT count(*) FROM t WHERE k = 'A'").fetchall() == [(1,)]
    plan = [r[0] for r in db.sql(f"EXPLAIN SELECT * FROM {read}").fetchall()]
    assert plan[-1] == f"SELECT: answered by Spark, because it reads the files {tmp_path}/*.json"
    assert db.sql(f"EXPLAIN COPY t (k) FROM '{tmp_path}/in.csv'").fetchall() == [
        ("COPY into table t (k), one commit",),
        (f"  csv file {tmp_path}/in.csv, 36 bytes",),
    ]
    assert db.sql("SHOW COPIES").fetchall() == []
    # A transaction has the rows, or nobody does.
    db.execute(f"BEGIN; DELETE FROM t WHERE k = 'A'; COPY t (k, price) FROM '{tmp_path}/in.csv'")
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(6,)]
    db.execute("ROLLBACK")
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(4,)]


def test_refusals_name_the_place_and_store_nothing(opener: Opener, tmp_path: Path) -> None:
    db = opener(config={"spark.heap": "2g", "security.allowed_roots": [str(tmp_path)]})
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, n INT NOT NULL)")
    (tmp_path / "a.csv").write_text("k,n\nx,1\n")
    (tmp_path / "b.csv").write_text("k,n\ny,2\nz,many\n")
    path = f"'{tmp_path}/*.csv'"
    error = _refused(db, f"COPY t FROM {path}", "PSK-5007", "b.csv, line 3, column 'n': 'many' is not of type int")
    assert error.position is not None and error.position.column == 13
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
    _refused(db, "COPY t FROM '/etc/passwd' (format = 'csv')", "PSK-0012")
    _refused(db, "SELECT * FROM read_files('/etc/passwd', format => 'csv')", "PSK-0012")
    _refused(db, f"COPY t TO '{tmp_path}/../x.csv'", "PSK-0012")
    _refused(db, f"COPY t TO '{tmp_path}/a.csv'", "PSK-1022")
    _refused(db, f"COPY t FROM '{tmp_path}/none.csv'", "PSK-1021")
    _refused(db, f"COPY t (k, m) FROM {path}", "PSK-1004", "has no column m")
    _refused(db, f"COPY nothing FROM {path}", "PSK-1002")
    view = f"SELECT * FROM read_files({path})"
    assert _refused(db, f"CREATE MATERIALIZED VIEW v AS {view}", "PSK-1012", "continuous").position is not None
    _refused(db, f"CREATE VIEW v AS {view}", "PSK-1012", "continuous")
    _refused(db, f"SUBSCRIBE ({view})", "PSK-1012")
    _refused(db, f"SELECT * FROM read_files({path}, formt => 'csv')", "PSK-1010")
    _refused(db, "SELECT * FROM read_files(1)", "PSK-1007")
    _refused(db, f"SELECT missing FROM read_files({path})", "PSK-1004")
    _refused(db, f"SELECT input_file_name() FROM read_files({path})", "PSK-1012", "does not know the files")
    (tmp_path / "b.csv").write_text("k,n,m\nx,1,1\n")
    _refused(db, f"COPY t FROM '{tmp_path}/b.csv'", "PSK-1004", "has a column m")
    db.execute(f"COPY t FROM '{tmp_path}/a.csv'")
    assert db.sql("SELECT * FROM t").fetchall() == [("x", 1)]
