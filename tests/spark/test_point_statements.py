"""Statements about single rows give what Spark gives, and do not need it."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from tests.effort import times

import penstock
from penstock.runtime.statements import constants, dml
from penstock.runtime.statements import select as selecting
from penstock.runtime.statements.casts import Constant, cast
from penstock.sql.params import apply_params
from penstock.sql.script import parse_script

TYPES = [
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,10)", "decimal(3,3)", "decimal(18,0)", "string",
    "boolean", "date", "timestamp", "timestamp_ntz", "binary",
]  # fmt: skip

NUMBERS = [
    "0", "1", "-1", "+1", "- 5", "007", "42", "127", "128", "-128", "-129", "32767", "32768", "-32768", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "16777217", "33554435", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "99999999999999999999999999999999999999", "999999999999999999999999999999999999999", "1.5", "-1.5", "2.5", "-0.5",
    "0.005", "-0.005", "1.005", "0.0", "-0.0", "1.", ".5", "0.10", "12.50", "99999999.994", "99999999.995", "123456789012345.678",
    "0.00000000000000000000000000000000000001", "0.1234567890123456789012345678901234567", "1.0000001192092896", "1.00000005960464477539",
    "1.00000005960464477540", "1e3", "-1e3", "1E-5", "1.5e300", "1e308", "1e400", "1e-400", "1e10", "2.5e0", "1e23", "9.5e15", "0e0", "-0e0",
    "1L", "-1L", "5S", "5Y", "1.5D", "-0.0D", "1.5F", "16777217F", "1.5BD", "-1.50BD", "0.05BD", "1e5BD", "1D", "1e3D", "9223372036854775808L",
]  # fmt: skip

STRINGS = [
    "''", "'a'", "' 12 '", "'12'", "'+12'", "'-12'", "'012'", "'12.5'", "'-0'", "'-0.0'", "'1e3'", "'1E+2'", "'.5'", "'5.'", "'NaN'", "'inf'",
    "'-Infinity'", "'1d'", "'1f'", "'0x10'", "'1_000'", "'١٢'", "'999'", "'99999999999999999999'", "'1e400'", "'0.005'", "'99999999.995'", "'true'",
    "'TRUE'", "'T'", "'yes'", "'No'", "'0'", "'1'", "'on'", "' true '", "'2024-02-29'", "'2024-02-30'", "'2023-02-29'", "'0001-01-01'", "'0000-01-01'",
    "'9999-12-31'", "'10000-01-01'", "'2024-2-3'", "'2024'", "'2024-02'", "' 2024-02-29 '", "'2024-02-29T'", "'2024-02-29 12:34:56'",
    "'2024-02-29T12:34:56'", "'2024-02-29 12:34:56.1'", "'2024-02-29 12:34:56.123456'", "'2024-02-29 12:34:56.1234567'", "'2024-02-29 12:34:56Z'",
    "'2024-02-29 12:34:56+02:00'", "'2024-02-29 24:00:00'", "'2024-02-29 12:34:60'", "'2024-02-29 12:34'", "'12:34:56'", "'9999-12-31 23:59:59.999999'",
    "'0001-01-01 00:00:00'", "'1582-10-10'", "'1883-11-18 12:03:57'", "'now'", "'it''s'", "'it\\'s'", "'a' 'b'", "'\\\\'", "'\\%'", "'\\_x'", "'a\\nb'",
    "'tab\\t'", "'\\u00e9'", "'\\065'", "'\\x41'", "'nul\\0'", "'😀é中'", '"dq"', "r'a\\n'", "'${env:HOME}'", "'{}'", "'line\nbreak'", "'--'", "'/* */'",
]  # fmt: skip

OTHERS = [
    "NULL", "TRUE", "false", "DATE '2024-02-29'", "DATE '2024-02-30'", "DATE'2024-1-1'", "TIMESTAMP '2024-02-29 12:34:56.5'",
    "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '2024-02-29'", "TIMESTAMP '2024-02-29 12:00:00+05:30'", "TIMESTAMP_NTZ '2024-02-29 12:34:56'",
    "X'00ff'", "X''", "X'0'", "DEFAULT", "DOUBLE('nan')", "DOUBLE('-inf')", "CAST(1 AS BIGINT)", "CAST('12' AS INT)", "CAST(1.5 AS INT)",
    "CAST(NULL AS INT)", "CAST(300 AS TINYINT)", "TRY_CAST('x' AS INT)", "(1)", "-(1)", "1 + 1", "concat('a', 'b')", "-CAST(5 AS SMALLINT)",
    "-CAST(-128 AS TINYINT)", "CAST('2024-02-29' AS DATE)", "CAST(0.1 AS FLOAT)", "INTERVAL 1 DAY", "array(1)", "CAST('a' AS VARCHAR(3))",
    "CAST(12 AS DECIMAL(4, 1))", "CAST(12 AS DECIMAL)", "CAST(1e2 AS STRING)",
]  # fmt: skip

LITERALS = [*NUMBERS, *STRINGS, *OTHERS]

PARAMETERS: list[object] = [
    None, True, False, 0, 1, -1, 127, 128, -128, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) + 1,
    0.0, -0.0, 1.5, -1.5, 0.1, 0.3, 1e22, 1e23, 1e-7, 2.5, 0.005, 1.005, 1e300, 1e308, 5e-324, 2e-323, 123456789.125, 3.4028235e38, 3.5e38, 16777217.0,
    9007199254740993.0, math.nan, math.inf, -math.inf, Decimal("1.5"), Decimal("-1.50"), Decimal("0"), Decimal("-0.0"), Decimal("1E+3"), Decimal("1E-7"),
    Decimal("0.005"), Decimal("99999999.995"), Decimal("9" * 38), Decimal("9" * 39), Decimal("0." + "1" * 38), Decimal("NaN"), "", "a", "12", " 12 ",
    "true", "2024-02-29", "2024-02-30", "it's", "a\\b", "\\", "\\'", "a\nb\r\t\0\x01\x1a\x7f", "😀é中\u2028\ufeff", '"', "`", "%_", "\\%\\_", "${env:HOME}",
    "'; DROP TABLE t; --", "\ud800", dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.datetime(2024, 2, 29, 12, 34, 56),
    dt.datetime(2024, 2, 29, 12, 34, 56, 1200), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))), dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))),
    b"", b"\x00\xff", b"abc", [1], {"a": 1}, object, dt.timedelta(1),
]  # fmt: skip


@contextmanager
def through_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every statement takes the long way."""
    with monkeypatch.context() as patch:
        for module in (dml, selecting):
            patch.setattr(module, "spark_as_known", lambda settings: False)
        yield


@contextmanager
def without_spark(db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was asked")

    with monkeypatch.context() as patch:
        patch.setattr(db._engine.compute.batch, "select", refuse)
        yield


def shown(value: object) -> object:
    """Values for comparison: NaN equals itself, 0.0 and -0.0 differ, and so do decimals of different scale."""
    if isinstance(value, float):
        return f"float {value!r}"
    return f"decimal {value}" if isinstance(value, Decimal) else value


def asked(db: penstock.Database, pairs: list[tuple[str, str]]) -> list[object]:
    """CAST(value AS type) in Spark for each pair; an error is the string 'error'."""
    # One SELECT for many values. One that fails is split until the values at fault are alone.
    if not pairs:
        return []
    items = ", ".join(f"CAST({text} AS {kind}) AS c{i}" for i, (text, kind) in enumerate(pairs))
    try:
        row = db._engine.compute.batch.select(f"SELECT {items}", {})
        return [shown(column[0].as_py()) for column in row.columns]
    except Exception:
        if len(pairs) == 1:
            return ["error"]
    half = len(pairs) // 2
    return [*asked(db, pairs[:half]), *asked(db, pairs[half:])]


def tree_of(text: str) -> Any:
    try:
        statement: Any = parse_script(f"INSERT INTO t VALUES ({text})")[0]
        return statement.values[0][0]
    except penstock.PenstockError:
        return None


def compared(db: penstock.Database, found: list[tuple[object, str, Constant, str]]) -> None:
    """Each value, as Spark would get it, cast by both."""
    mine = [(value, kind, cast(constant, kind)) for value, _, constant, kind in found]
    taken = [i for i, (_, _, made) in enumerate(mine) if made is not None]
    theirs = asked(db, [(found[i][1], found[i][3]) for i in taken])
    wrong = [
        (mine[i][0], mine[i][1], made.value, spark)
        for i, spark in zip(taken, theirs, strict=True)
        if (made := mine[i][2]) is not None and shown(made.value) != spark
    ]
    assert wrong == []
    assert len(taken) > len(found) // 4


def test_literals_are_cast_as_spark_does(db: penstock.Database) -> None:
    trees = [(text, tree) for text in LITERALS if (tree := tree_of(text)) is not None]
    known = [(text, tree, made) for text, tree in trees if (made := constants.constant(tree, {})) is not None]
    compared(db, [(text, tree.sql(dialect="spark"), made, kind) for text, tree, made in known for kind in TYPES])


def test_parameters_are_cast_as_spark_does(db: penstock.Database) -> None:
    found = []
    for value in PARAMETERS:
        made = constants.bound_constant(value)
        if made is None:
            continue
        tree = tree_of(apply_params("?", [value]))
        found += [(value, tree.sql(dialect="spark"), made, kind) for kind in TYPES]
    compared(db, found)


def test_every_character_of_a_string_is_kept(db: penstock.Database) -> None:
    text = "".join(chr(c) for c in range(0x3000) if not 0xD800 <= c < 0xE000) + "\U0001f600"
    for part in (text[i : i + 512] for i in range(0, len(text), 512)):
        rendered = tree_of(apply_params("?", [part])).sql(dialect="spark")
        assert asked(db, [(rendered, "string")]) == [part]


# Whole statements


def outcome(db: penstock.Database, sql: str, params: Any = None) -> object:
    try:
        return db.sql(sql, params).fetchall()
    except penstock.PenstockError as error:
        return error.code, error.detail, error.position, error.hint
    except AssertionError:
        raise
    except Exception as error:
        return type(error).__name__


def rows(db: penstock.Database, name: str) -> list[object]:
    found = db._engine.storage.store.snapshot(db._object(name).id)[0]
    return [tuple(shown(v) for v in row.values()) for row in found.sort_by("id").to_pylist()]


# Whole statements cost Spark jobs, so these are the values where the way through the statement matters.
STATEMENT_LITERALS = [
    "1", "-2147483648", "1.005", "1e3", "'12'", "' 12 '", "'NaN'", "'it''s'", "NULL", "TRUE", "DATE '2024-02-29'", "-0.0D", "DEFAULT", "300",
]  # fmt: skip
STATEMENT_PARAMETERS: list[object] = [
    1,
    300,
    2**40,
    -1.5,
    Decimal("1.005"),
    "12",
    "x\\y'\n",
    None,
    True,
    dt.date(2024, 2, 29),
    b"\x00",
    object,
    "\ud800",
]


@pytest.mark.parametrize("kind", ["tinyint", "string", "decimal(10,2)", "timestamp"])
def test_statements_give_what_they_give_through_spark(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    db.execute(f"CREATE TABLE mine (id INT PRIMARY KEY, v {kind}, w {kind} NOT NULL)")
    db.execute(f"CREATE TABLE peer (id INT PRIMARY KEY, v {kind}, w {kind} NOT NULL)")
    filler = "1" if kind != "timestamp" else "TIMESTAMP '2024-01-01 00:00:00'"
    values = [(text, None) for text in STATEMENT_LITERALS] + [("?", [p]) for p in STATEMENT_PARAMETERS]
    texts = [
        (sql, params)
        for i, (text, params) in enumerate(values[:: 1 if times(1) > 1 else 4])
        for sql in (
            f"INSERT INTO %s VALUES ({i}, {text}, {filler})",
            f"UPDATE %s SET v = {text} WHERE id = {i // 2}",
        )
    ]
    for sql, params in texts:
        mine = outcome(db, sql % "mine", params)
        with through_spark(monkeypatch):
            theirs = outcome(db, sql % "peer", params)
        assert str(mine).replace("mine", "peer") == str(theirs), (sql, params)
        assert rows(db, "mine") == rows(db, "peer"), (sql, params)


@pytest.mark.parametrize(
    ("kind", "stored", "asked_for"),
    [
        ("bigint", ["1", "2"], ["1", "'1'", "1.0", "1e0", "NULL", "TRUE", "99999999999999999999", "1 AND id = 2", "1 AND id = 1", "1 OR id = 2"]),
        ("tinyint", ["1", "2"], ["1", "300", "-1"]),
        ("string", ["'a'", "'A'", "'1'", "''"], ["'a'", "1", "'a '", "''", "'b'", "NULL"]),
        ("boolean", ["TRUE", "FALSE"], ["TRUE", "'true'", "1"]),
        ("date", ["DATE '2024-02-29'"], ["DATE '2024-02-29'", "'2024-02-29'", "TIMESTAMP '2024-02-29 00:00:00'"]),
        ("decimal(10,2)", ["1.50", "2", "3.00"], ["1.5", "1.50", "1.500", "2", "2.001", "1.5e0", "'1.5'", "12345678901234567890.5"]),
        ("double", ["1.5D", "0.0D"], ["1.5", "-0.0D", "1.5D", "DOUBLE('nan')"]),
        ("timestamp", ["TIMESTAMP '2024-02-29 12:00:00'"], ["TIMESTAMP '2024-02-29 12:00:00'", "'2024-02-29 12:00:00'", "DATE '2024-02-29'"]),
    ],
)  # fmt: skip
def test_keys_match_what_they_match_through_spark(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, kind: str, stored: list[str], asked_for: list[str]
) -> None:
    for name in ("mine", "peer"):
        db.execute(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, n INT)")
    for text in asked_for:
        for name in ("mine", "peer"):
            db.execute(f"INSERT INTO {name} VALUES " + ", ".join(f"(CAST({s} AS {kind}), 0)" for s in stored))
        for sql in (f"UPDATE %s SET n = n + 1 WHERE id = {text}", f"DELETE FROM %s WHERE id = {text}"):
            mine = outcome(db, sql % "mine")
            with through_spark(monkeypatch):
                theirs = outcome(db, sql % "peer")
            assert str(mine).replace("mine", "peer") == str(theirs), sql
            assert rows(db, "mine") == rows(db, "peer"), sql


@pytest.mark.parametrize(
    ("kind", "start", "changes"),
    [
        ("tinyint", "126", ["n + 1", "n + 1", "n - 1L", "n * 2"]),
        ("int", "2147483646", ["n + 1", "n + 1", "n - 5000000000", "n * -1"]),
        ("bigint", "9223372036854775806", ["n + 1", "n + 1L", "n * 1"]),
        ("double", "0.1D", ["n + 1", "n + 0.2D", "n * 3", "n - 1e300", "n + 0.2"]),
        ("float", "0.1D", ["n + 1", "n * 0.1D"]),
        ("decimal(6,2)", "1.25", ["n + 1", "n * 1.5", "n - 0.005", "n + 0.125", "n * 10000", "n + 1e0"]),
        ("string", "'1'", ["n + 1", "n"]),
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_spark(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, kind: str, start: str, changes: list[str]
) -> None:
    for name in ("mine", "peer"):
        db.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n {kind})")
        db.execute(f"INSERT INTO {name} VALUES (1, CAST({start} AS {kind})), (2, NULL)")
    for change in changes:
        for key in (1, 2, 3):
            sql = f"UPDATE %s SET n = {change} WHERE id = {key}"
            mine = outcome(db, sql % "mine")
            with through_spark(monkeypatch):
                theirs = outcome(db, sql % "peer")
            assert str(mine).replace("mine", "peer") == str(theirs), sql
            assert rows(db, "mine") == rows(db, "peer"), sql


def test_several_rows_of_values(db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "peer"):
        db.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, s STRING, d DECIMAL(10,3))")
    for i, values in enumerate(
        [
            "({0}, 'a', 1), ({1}, NULL, 2)",
            "({0}, 1, 1.5), ({1}, 2, 2.25)",
            "({0}, 1.5, 1), ({1}, 2.25, 2.5)",
            "({0}, 1, 1), ({1}, 3000000000, 2)",
            "({0}, 'a', 1), ({1}, 1, 2)",
            "({0}, TRUE, 1e0), ({1}, NULL, NULL)",
            "({0}, 2.50, '1.5'), ({1}, 1, 7), (-{1}, 'x', 1e1)",
            "({0}, DATE '2024-01-01', 1), ({1}, 'x', 'no number')",
            "({0}, 'same key', 1), ({0}, 'last wins', 2)",
            "({0}, 'a'), ({1}, 'b')",
            "({0}, 'a', 1, 1), ({1}, 'b', 2, 2)",
        ]
    ):
        sql = f"INSERT INTO %s VALUES {values.format(10 * i, 10 * i + 1)}"
        mine = outcome(db, sql % "mine")
        with through_spark(monkeypatch):
            theirs = outcome(db, sql % "peer")
        assert str(mine).replace("mine", "peer") == str(theirs), sql
        assert rows(db, "mine") == rows(db, "peer"), sql


def test_single_rows_do_not_need_spark(db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING DEFAULT 'none', price DECIMAL(10,2), at TIMESTAMP)")
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    # The first run of a SELECT finds out that it reads one key.
    db.sql("SELECT name, price FROM t WHERE id = ?", [1])
    with without_spark(db, monkeypatch):
        assert db.sql("INSERT INTO t VALUES (1, 'a', 1.5, TIMESTAMP '2024-01-01 00:00:00')").fetchall() == [(1,)]
        assert db.sql("INSERT INTO t (price, id) VALUES (?, ?)", [2.5, 2]).fetchall() == [(1,)]
        assert db.sql("INSERT INTO t VALUES (:id, :n, NULL, :at)", {"id": 3, "n": "c", "at": at}).fetchall() == [(1,)]
        some = "INSERT INTO t VALUES (5, DEFAULT, 1, NULL), (6, 'f', default, DEFAULT), (7, DEFAULT, ?, NULL), (6, DEFAULT, 3, NULL)"
        assert db.sql(some, [2]).fetchall() == [(4,)]
        found = [db.sql("SELECT name, price FROM t WHERE id = ?", [i]).fetchone() for i in (5, 6, 7)]
        assert found == [("none", 1), ("none", 3), ("none", 2)]
        for i in (5, 6, 7):
            db.execute("DELETE FROM t WHERE id = ?", [i])
        assert db.sql("SELECT * FROM t WHERE id = 2").fetchall() == [(2, "none", Decimal("2.50"), None)]
        assert db.sql("UPDATE t SET name = ?, price = price + ? WHERE id = ?", ["b", 1, 2]).fetchall() == [(1,)]
        assert db.sql("SELECT name, price FROM t WHERE id = ?", [2]).fetchall() == [("b", Decimal("3.50"))]
        assert db.sql("DELETE FROM t WHERE id = 1 AND name = 'x'").fetchall() == [(0,)]
        assert db.sql("DELETE FROM t WHERE t.id = ?", [1]).fetchall() == [(1,)]
        assert db.sql("UPDATE t SET name = 'z' WHERE id = ?", [None]).fetchall() == [(0,)]
        with db.transaction() as transaction:
            transaction.execute("UPDATE t SET name = 'x' WHERE id = 3")
            transaction.execute("UPDATE t SET price = 1 WHERE id = ? AND name = ?", [3, "x"])
            transaction.execute("INSERT INTO t (id, name) VALUES (4, 'd')")
            transaction.execute("DELETE FROM t WHERE id = 4")
        assert db.sql("SELECT * FROM t WHERE id = ?", [3]).fetchall() == [(3, "x", Decimal("1.00"), at)]
    assert db.sql("SELECT id FROM t ORDER BY id").fetchall() == [(2,), (3,)]


def test_other_settings_of_spark_are_respected(opener: Callable[..., penstock.Database]) -> None:
    db = opener(config={"spark.heap": "2g", "spark.conf.spark.sql.ansi.enabled": "false"})
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, n TINYINT)")
    db.execute("INSERT INTO t VALUES (1, 300)")
    db.execute("UPDATE t SET n = 'x' WHERE id = 1")
    assert db.sql("SELECT n FROM t WHERE id = 1").fetchall() == [(None,)]
    db.execute("UPDATE t SET n = 127 WHERE id = 1")
    db.execute("CREATE TABLE whole (n INT); INSERT INTO whole VALUES (2147483647)")
    assert db.sql("SELECT n + 1 AS m FROM whole").fetchall() == [(-2147483648,)]
    assert db.explain("SELECT n + 1 AS m FROM whole").endswith("because its settings may change the meaning")


def test_a_text_is_bound_again_when_its_table_changes(db: penstock.Database) -> None:
    select, insert = "SELECT * FROM t WHERE id = ?", "INSERT INTO t VALUES (?, ?)"
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a STRING)")
    for _ in range(2):
        db.execute(insert, [1, 5])
        assert db.sql(select, [1]).fetchall() == [(1, "5")]
    db.execute("DROP TABLE t")
    for sql, params in ((select, [1]), (insert, [1, 5])):
        with pytest.raises(penstock.PenstockError, match="PSK-1002"):
            db.sql(sql, params)
    db.execute("CREATE TABLE t (a INT, id INT PRIMARY KEY)")
    db.execute(insert, [7, 1])
    for _ in range(2):
        found = db.sql(select, [1])
        assert (found.columns, found.fetchall()) == (["a", "id"], [(7, 1)])


def test_threads_that_update_one_row_lose_nothing(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    db.execute("INSERT INTO t VALUES (1, 0)")

    def work() -> None:
        for _ in range(25):
            db.sql("UPDATE t SET n = n + ? WHERE id = ?", [1, 1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert db.sql("SELECT n FROM t WHERE id = 1").fetchall() == [(100,)]


def test_sources_and_times(db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("CREATE SOURCE s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM s GROUP BY id")
    with without_spark(db, monkeypatch):
        db.execute("INSERT INTO s VALUES (1, '2024-01-01 00:00:00')")
        db.execute("INSERT INTO s (ts, id) VALUES (?, ?)", [dt.datetime(2024, 1, 1), 1])
        db.execute("INSERT INTO s VALUES (1, NULL)")
    for _ in range(2):
        assert db.sql("SELECT n FROM v WHERE id = ?", [1]).fetchall() == [(2,)]
    with pytest.raises(penstock.PenstockError, match="PSK-5005"):
        db.execute("UPDATE s SET id = 2 WHERE id = 1")
    with pytest.raises(penstock.PenstockError, match="PSK-5005"):
        db.execute("INSERT INTO v VALUES (1, 1)")


KEYS = {
    "bigint": (5_000_000_000, 5_000_000_001),
    "date": (dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    "timestamp": (dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 13, tzinfo=dt.UTC)),
    "decimal(10,2)": (Decimal("12.50"), Decimal("12.51")),
    "string": ("it's \\ one", "another"),
}


@pytest.mark.parametrize("kind", list(KEYS))
def test_the_first_read_of_a_key_needs_no_engine(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there, missing = KEYS[kind]
    db.execute(f"""
        CREATE TABLE t (k {kind} PRIMARY KEY, v INT);
        CREATE MATERIALIZED VIEW m AS SELECT k, v * 2 AS v FROM t;
        CREATE VIEW n AS SELECT k, v * 3 AS v FROM t
    """)
    db.insert("t", [(there, 7)])
    db.flush()
    with without_spark(db, monkeypatch):
        for name, found in (("t", 7), ("m", 14)):
            assert db.sql(f"SELECT v FROM {name} WHERE k = ?", [there]).fetchall() == [(found,)]
            assert db.sql(f"SELECT v FROM {name} WHERE k = ?", [missing]).fetchall() == []
    # A named query has rows of its own.
    assert db.sql("SELECT v FROM n WHERE k = ?", [there]).fetchall() == [(21,)]
