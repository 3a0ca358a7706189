"""SQL functions: in views, SELECT and DML, with names, dependants and a life of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import settle

import penstock


def test_functions_are_used_wherever_an_expression_is(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "functions")
    db.execute("""
        CREATE MATERIALIZED VIEW v AS SELECT tax(amount) AS tax, count(*) AS n FROM t WHERE is_large(amount) GROUP BY tax(amount);
        CREATE FUNCTION tax(x INT, rate DOUBLE DEFAULT 0.5) RETURNS INT COMMENT 'rounded' RETURN round(x * rate);
        CREATE FUNCTION is_large(x INT) RETURN tax(x, rate => 1) > 10;
        CREATE TABLE t (id INT PRIMARY KEY, amount INT, taxed INT);
        CREATE VIEW w AS SELECT id, tax(amount) FROM t;
        INSERT INTO t VALUES (1, 11, tax(10)), (2, 12, NULL), (3, 5, 0), (4, 12, tax('7'));
        UPDATE t SET taxed = tax(amount) WHERE is_large(amount) AND id = 2;
        DELETE FROM t WHERE NOT is_large(amount);
    """)
    settle(db)
    assert db.sql("SELECT * FROM t ORDER BY id").fetchall() == [(1, 11, 5), (2, 12, 6), (4, 12, 4)]
    assert db.sql("SELECT * FROM v ORDER BY tax").fetchall() == [(6, 3)]
    found = db.sql("SELECT tax(amount), is_large(id) FROM t WHERE id = 4").arrow()
    assert found.column_names == ["tax(amount)", "is_large(id)"] and found.to_pylist() == [
        {"tax(amount)": 6, "is_large(id)": False}
    ]
    assert db.sql("SELECT * FROM w ORDER BY id LIMIT 1").fetchall() == [(1, 6)]
    with db.subscribe("SELECT sum(tax(amount)) AS s FROM t", snapshot=True) as changes:
        assert next(iter(changes)).rows()[0]["s"] == 18
    with pytest.raises(penstock.PenstockError, match=r"PSK-1009.*is_large, v, w"):
        db.execute("DROP FUNCTION tax")
    db.close()
    db = opener(tmp_path / "functions")
    db.execute("INSERT INTO t VALUES (9, 100, 0)")
    settle(db)
    assert db.sql("SELECT * FROM v ORDER BY tax").fetchall() == [(6, 3), (50, 1)]
    assert sorted(r[0] for r in db.sql("SHOW FUNCTIONS").fetchall()) == ["is_large", "tax"]
    assert db.sql("SHOW CREATE FUNCTION is_large").fetchall()[0][0].startswith("CREATE FUNCTION is_large(x INT) RETURN")
    assert [r[:2] for r in db.sql("DESCRIBE tax").fetchall()] == [("x", "int"), ("rate", "double")]
    db.execute(
        "DROP FUNCTION is_large CASCADE; CREATE OR REPLACE FUNCTION half(x INT) RETURN x DIV 2; DROP FUNCTION half"
    )
    assert db.sql("SELECT tax(3, 2), tax(rate => 1, x => 3)").fetchall() == [(6, 3)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE FUNCTION upper(x STRING) RETURN x", "PSK-1003"),
        ("CREATE FUNCTION f(x INT) RETURN x", "PSK-1003"),
        ("CREATE FUNCTION g(x INT) RETURN g(x - 1)", "PSK-1017"),
        ("CREATE FUNCTION g(x INT) RETURN y", "PSK-1004"),
        ("CREATE FUNCTION g(x INT) RETURN nope(x)", "PSK-1006"),
        ("CREATE FUNCTION g(x INT) RETURN sum(x)", "PSK-1012"),
        ("CREATE FUNCTION g(x INT) RETURN row_number() OVER (ORDER BY x)", "PSK-1012"),
        ("CREATE FUNCTION g(x MAP<INT, INT>) RETURNS INT RETURN x", "PSK-1007"),
        ("CREATE FUNCTION g(x INT DEFAULT 'a') RETURN x", "PSK-7001"),
        ("CREATE FUNCTION g(x INT) RETURN reflect('java.lang.System', 'exit', x)", "PSK-0012"),
        ("SELECT * FROM f", "PSK-1008"),
        ("SELECT f()", "PSK-1007"),
        ("INSERT INTO f VALUES (1)", "PSK-5005"),
        ("CREATE TABLE f (a INT)", "PSK-1003"),
        ("SUBSCRIBE f", "PSK-5012"),
        ("DROP VIEW f", "PSK-1008"),
    ],
)
def test_refusals(db: penstock.Database, statement: str, code: str) -> None:
    db.execute("CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1")
    with pytest.raises(penstock.PenstockError) as refused:
        db.execute(statement)
    assert refused.value.code == code, refused.value


def test_a_row_that_a_function_cannot_compute(db: penstock.Database) -> None:
    db.execute("""
        CREATE FUNCTION share(a INT, b INT) RETURNS INT RETURN a DIV b;
        CREATE TABLE t (a INT, b INT);
        CREATE MATERIALIZED VIEW v AS SELECT share(a, b) AS s FROM t ERRORS TO bad;
        INSERT INTO t VALUES (4, 2), (1, 0);
    """)
    settle(db)
    assert db.sql("SELECT * FROM v").fetchall() == [(2,)]
    assert db.sql("SELECT count(*) FROM bad").fetchall() == [(1,)]
