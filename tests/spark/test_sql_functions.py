"""SQL functions: in views, SELECT and DML, with names, dependants and a life of their own."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
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


def test_defaults_row_rules_conditions_and_sinks_call_functions(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "places")
    got: list[dict[str, object]] = []
    db.register_callable("take", lambda epoch, table: got.extend(table.to_pylist()))
    db.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, owner STRING, fee INT DEFAULT tax(base => 40) + 1);
        CREATE FUNCTION tax(base INT, rate INT DEFAULT half(4)) RETURNS INT RETURN base DIV rate;
        CREATE FUNCTION half(x INT) RETURN x DIV 2;
        CREATE FUNCTION owns(who STRING, me STRING) RETURN lower(who) = lower(me);
        CREATE POLICY own ON t USING (owns(owner, current_setting('me')) OR tax(fee) > 100);
        CREATE SINK k FROM t WHERE tax(fee) > 5 INTO PYTHON (callable = 'take');
        INSERT INTO t (id, owner) VALUES (1, 'Ann');
        INSERT INTO t VALUES (2, 'bob', 10), (3, 'cem', 300);
    """)
    db.insert("t", [{"id": 4, "owner": "ANN"}])
    whole = [(1, "Ann", 21), (2, "bob", 10), (3, "cem", 300), (4, "ANN", 21)]
    assert db.sql("SELECT * FROM t ORDER BY id").fetchall() == whole
    settle(db)
    assert sorted(int(str(r["id"])) for r in got) == [1, 3, 4]
    with db.session(me="ann") as ann:
        assert ann.sql("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (3,), (4,)]
    with db.subscribe("t", where="tax(fee) > 5 AND owns(owner, 'ANN')", snapshot=True) as changes:
        assert sorted(r["id"] for r in next(iter(changes)).rows()) == [1, 4]
    db.execute("DECLARE c CURSOR FOR SUBSCRIBE t WHERE upper(owner) = 'ANN' AND half(id) = 2 WITH (snapshot = true)")
    assert db.sql("FETCH 1 FROM c").arrow().column("id").to_pylist() == [4]
    for statement, user in (
        ("DROP FUNCTION tax", "the default of column fee of t"),
        ("DROP FUNCTION tax CASCADE", "the default of column fee of t"),
        ("DROP FUNCTION half CASCADE", "the default of column fee of t"),
        ("CREATE OR REPLACE FUNCTION owns(who STRING, me STRING) RETURN true", "the policy own of t"),
        ("ALTER FUNCTION owns RENAME TO has", "the policy own of t"),
    ):
        with pytest.raises(penstock.PenstockError, match=f"PSK-1009.*{user}"):
            db.execute(statement)
    db.execute("CLOSE c")
    db.close()
    db = opener(tmp_path / "places")
    db.register_callable("take", lambda epoch, table: None)
    db.execute("INSERT INTO t (id) VALUES (5); DROP POLICY own ON t; DROP FUNCTION owns")
    assert db.sql("SELECT fee FROM t WHERE id = 5").fetchall() == [(21,)]


def test_functions_that_return_a_table(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "tables")
    db.execute("""
        CREATE MATERIALIZED VIEW top AS SELECT p.name, l.amount FROM people p, LATERAL largest(p.name, n => 2) AS l;
        CREATE MATERIALIZED VIEW anns AS SELECT o, amount * 2 AS twice FROM orders_of('ann') AS f(o, amount);
        CREATE MATERIALIZED VIEW counts AS
          WITH orders AS (SELECT 1 AS nothing) SELECT p.name, c.n FROM people p LEFT JOIN LATERAL counted(p.name) c ON true;
        CREATE FUNCTION orders_of(who STRING) RETURNS TABLE (id BIGINT, amount INT) COMMENT 'all of one' RETURN
          SELECT id, amount FROM orders WHERE buyer = who;
        CREATE FUNCTION largest(who STRING, n INT DEFAULT 1) RETURNS TABLE RETURN
          SELECT amount FROM (SELECT amount, row_number() OVER (PARTITION BY buyer ORDER BY amount DESC) AS r, buyer FROM orders) WHERE buyer = who AND r <= n;
        CREATE FUNCTION counted(who STRING) RETURNS TABLE (n BIGINT) RETURN SELECT count(*) FROM orders WHERE buyer = who;
        CREATE FUNCTION large_of(name STRING) RETURNS TABLE RETURN SELECT o.id FROM orders_of(name) AS o WHERE o.amount > 5;
        CREATE TABLE orders (id INT PRIMARY KEY, buyer STRING, amount INT);
        CREATE TABLE people (name STRING);
        INSERT INTO people VALUES ('ann'), ('bob'), ('cem');
        INSERT INTO orders VALUES (1, 'ann', 5), (2, 'ann', 7), (3, 'bob', 1), (4, 'ann', 9);
    """)
    selects = {
        "top": "SELECT p.name, l.amount FROM people p, LATERAL largest(p.name, n => 2) AS l",
        "anns": "SELECT o, amount * 2 AS twice FROM TABLE(orders_of('ann')) AS f(o, amount)",
        "counts": "WITH orders AS (SELECT 1 AS nothing) SELECT p.name, c.n FROM people p LEFT JOIN LATERAL counted(p.name) c ON true",
    }
    expected = [
        {
            "top": [("ann", 7), ("ann", 9), ("bob", 1)],
            "anns": [(1, 10), (2, 14), (4, 18)],
            "counts": [("ann", 3), ("bob", 1), ("cem", 0)],
        },
        {"top": [("bob", 1), ("cem", 5)], "anns": [], "counts": [("ann", 0), ("bob", 1), ("cem", 1)]},
    ]
    for rows in expected:
        settle(db)
        for view, select in selects.items():
            assert sorted(db.sql(f"SELECT * FROM {view}").fetchall()) == rows[view], view
            assert sorted(db.sql(select).fetchall()) == rows[view], select
        db.execute("DELETE FROM orders WHERE amount > 5; UPDATE orders SET buyer = 'cem' WHERE buyer = 'ann'")
    assert db.sql("SELECT * FROM large_of('ann') UNION ALL SELECT id FROM orders_of('cem')").fetchall() == [(1,)]
    assert db.sql("SELECT * FROM orders_of('cem')").arrow().schema.field("id").type == pa.int64()
    for statement, code in (
        ("SELECT * FROM people, orders_of(name)", "PSK-1012"),
        ("SELECT orders_of('ann')", "PSK-1007"),
        ("SELECT * FROM orders_of()", "PSK-1007"),
        ("SELECT * FROM people AS orders, LATERAL orders_of(orders.name)", "PSK-1012"),
        ("SELECT * FROM (SELECT name AS amount FROM people), LATERAL orders_of(amount)", "PSK-1012"),
        ("SELECT * FROM orders_of('ann') WITH ORDINALITY", "PSK-1012"),
        ("CREATE FUNCTION f(buyer STRING) RETURNS TABLE RETURN SELECT id FROM orders WHERE buyer = buyer", "PSK-1014"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT) RETURN SELECT id, buyer FROM orders", "PSK-1016"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE RETURN SELECT y FROM orders", "PSK-1004"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE RETURN SELECT 1 AS a FROM f(x)", "PSK-1017"),
        ("DROP TABLE orders", "PSK-1009"),
        ("DROP FUNCTION orders_of", "PSK-1009"),
        ("ALTER TABLE orders ADD COLUMN more INT", "PSK-1009"),
    ):
        with pytest.raises(penstock.PenstockError) as refused:
            db.execute(statement)
        assert refused.value.code == code, (statement, str(refused.value))
    db.close()
    db = opener(tmp_path / "tables")
    db.execute("INSERT INTO orders VALUES (7, 'ann', 3); FLUSH")
    assert db.sql("SELECT * FROM anns").fetchall() == [(7, 6)]
    assert db.sql("SHOW CREATE FUNCTION counted").fetchall()[0][0].startswith("CREATE FUNCTION counted(who STRING)")


def test_defaults_that_change_have_a_value_for_each_row_or_insert(db: penstock.Database) -> None:
    begun = dt.datetime.now(dt.UTC)
    db.execute("""
        CREATE TABLE t (
          id INT, at TIMESTAMP DEFAULT current_timestamp(), local TIMESTAMP_NTZ DEFAULT now(), day DATE DEFAULT CURRENT_DATE, code STRING DEFAULT uuid()
        );
        INSERT INTO t (id) VALUES (1), (2);
        INSERT INTO t (id) SELECT 3;
        ALTER TABLE t ADD COLUMN other STRING DEFAULT uuid();
    """)
    db.insert("t", [{"id": 4}])
    rows = db.sql("SELECT * FROM t ORDER BY id").fetchall()
    times = [r[1] for r in rows]
    assert begun <= times[0] == times[1] < times[2] < times[3] <= dt.datetime.now(dt.UTC)
    assert [r[2].replace(tzinfo=dt.UTC) for r in rows] == times and {r[3] for r in rows} <= {t.date() for t in times}
    assert len({r[4] for r in rows}) == len({r[5] for r in rows}) == 4
    for default in (
        "INT DEFAULT rand()",
        "BIGINT DEFAULT unix_timestamp()",
        "STRING DEFAULT now()",
        "DATE DEFAULT current_date() + 1",
    ):
        with pytest.raises(penstock.PenstockError, match=r"PSK-1012.*changes"):
            db.execute(f"CREATE TABLE bad (a {default})")


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE FUNCTION g(x INT DEFAULT g(1)) RETURN x", "PSK-1017"),
        ("CREATE TABLE g (x INT DEFAULT nope(1))", "PSK-1006"),
        ("CREATE TABLE g (x INT DEFAULT f())", "PSK-1007"),
        ("CREATE POLICY g ON f USING (true)", "PSK-1008"),
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
        ("SELECT * FROM f(1)", "PSK-1007"),
        ("CREATE FUNCTION tumble(x INT) RETURN x", "PSK-1003"),
        ("CREATE FUNCTION generate_series(x INT) RETURN x", "PSK-1003"),
        ("CREATE FUNCTION unnest(x INT) RETURN x", "PSK-1003"),
        ("SELECT f()", "PSK-1007"),
        ("SELECT f(DISTINCT 1)", "PSK-1007"),
        ("SELECT f(*) FROM (SELECT 1 AS a)", "PSK-1007"),
        ("SELECT f(1) OVER ()", "PSK-1007"),
        ("SELECT f(1) FILTER (WHERE true)", "PSK-1007"),
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
