"""Any input gives a result or an error with a code, and the database keeps working."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import times
from tests.spark.conftest import CONFIG, Opener
from tests.unit.sql.test_fuzz import damaged

import penstock
from penstock.errors import PenstockError

TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING, price DOUBLE);
CREATE SOURCE s (k STRING, v BIGINT, d DOUBLE, ts TIMESTAMP, WATERMARK FOR ts);
CREATE TABLE wide (id INT PRIMARY KEY, a ARRAY<INT>, m MAP<STRING, INT>, n MAP<INT, STRING>, st STRUCT<x: INT, y: ARRAY<STRING>>, ts TIMESTAMP, d DATE,
                   text STRING, aa ARRAY<STRUCT<x: INT>>)
"""


@pytest.fixture(scope="module")
def shared(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with penstock.open(master="local[2]", config=CONFIG) as database:
        database.execute(TABLES)
        yield database


def code(call: Callable[[], object]) -> str:
    with pytest.raises(PenstockError) as caught:
        call()
    caught.value.render().encode()
    return caught.value.code


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        ("SELECT array() AS x", [([],)]),
        ("SELECT array(NULL) AS x", [([None],)]),
        ("SELECT map() AS x", [({},)]),
        ("SELECT struct(NULL AS a, 1 AS b) AS x", [({"a": None, "b": 1},)]),
        ("SELECT array(array()) AS x, 1 AS x", [([[]], 1)]),
        ("SELECT explode(array()) AS x", []),
        ("SELECT NULL AS x", [(None,)]),
        ("SELECT INTERVAL '1' DAY AS x", [(dt.timedelta(days=1),)]),
        ("SELECT INTERVAL '1' MONTH AS x", [(1,)]),
        ("SELECT 1 AS ``", [(1,)]),
        ("SELECT 'a\\nb'", [("a\nb",)]),
        ("SELECT 'a\0b' AS x", [("a\0b",)]),
    ],
)
def test_odd_results(shared: penstock.Database, select: str, rows: list[Any]) -> None:
    assert shared.sql(select).fetchall() == rows


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ("(1, array(), map(), map(), NULL, NULL, NULL, NULL, array())", (1, [], {}, {}, None, None, None, None, [])),
        ("(2, array(NULL), NULL, NULL, struct(NULL, array()), NULL, NULL, NULL, NULL)", (2, [None], None, None, {"x": None, "y": []}, None, None, None, None)),
        ("(3, NULL, map('a', NULL), map(1, 'x'), NULL, NULL, NULL, '', array(NULL))", (3, None, {"a": None}, {1: "x"}, None, None, None, "", [None])),
    ],
)  # fmt: skip
def test_odd_inserts(shared: penstock.Database, values: str, row: tuple[Any, ...]) -> None:
    shared.execute(f"INSERT INTO wide VALUES {values}")
    assert shared.sql(f"SELECT * FROM wide WHERE id = {row[0]}").fetchall() == [row]


@pytest.mark.parametrize(
    "values",
    [
        "(9, NULL, NULL, NULL, NULL, TIMESTAMP'10000-01-01', NULL, NULL, NULL)",
        "(9, NULL, NULL, NULL, NULL, NULL, DATE'-0001-01-01', NULL, NULL)",
        "(9, NULL, NULL, NULL, NULL, NULL, NULL, CAST(X'ff' AS STRING), NULL)",
    ],
)
def test_values_that_cannot_be_stored(shared: penstock.Database, values: str) -> None:
    assert (
        code(
            lambda: shared.execute(
                f"INSERT INTO wide VALUES (8, NULL, NULL, NULL, NULL, NULL, NULL, 'good', NULL), {values}"
            )
        )
        == "PSK-5003"
    )
    assert shared.sql("SELECT id FROM wide WHERE id > 5").fetchall() == []


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 20}, {"id": 21, "m": [("a", 1), ("a", 2)]}],
        [{"id": 20}, {"id": 21, "ts": 10**15}],
        pa.table({"id": pa.array([20, 21], pa.int32()), "text": pa.Array.from_buffers(
            pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")])}),
        pa.table({"id": pa.array([20, 21], pa.int32()), "ts": pa.array([0, 2**62], pa.int64()).view(pa.timestamp("us", "UTC"))}),
        pa.table({"id": pa.array([20, 21], pa.int32()), "m": pa.MapArray.from_arrays(
            [0, 0, 2], pa.array(["a", "a"]), pa.array([1, 2], pa.int32()))}),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_stored(shared: penstock.Database, rows: Any) -> None:
    with pytest.raises(PenstockError) as caught:
        shared.insert("wide", rows)
    assert caught.value.code == "PSK-5003"
    assert "Row 2, column" in caught.value.detail
    assert shared.sql("SELECT id FROM wide WHERE id >= 20").fetchall() == []
    shared.insert("wide", {"id": 20})
    shared.execute("DELETE FROM wide WHERE id = 20")


def arrow(column: str, kind: pa.DataType, value: bytes) -> pa.Table:
    """A row with a value that Arrow has not looked at."""
    buffers = [None, pa.py_buffer(value)]
    if kind == pa.string():
        buffers.insert(1, pa.py_buffer(np.array([0, len(value)], np.int32)))
    return pa.table({"id": [2], column: pa.Array.from_buffers(kind, 1, buffers)})


MICROS = pa.timestamp("us", "UTC")
TWICE = "map('a', 1, 'a', 2)"
UNFIT_ROWS: list[object] = [
    arrow("s", pa.string(), b"\xff"), arrow("d", pa.decimal128(5, 2), (10**9).to_bytes(16, "little")), arrow("d", pa.decimal128(9, 2), (10**9).to_bytes(16, "little")),
    arrow("ts", MICROS, (2**62).to_bytes(8, "little")), {"id": 2, "s": "\ud800"}, {"id": 2, "d": Decimal("12345.67")}, {"id": 2, "ts": 10**15}, {"id": 1 << 63},
    {"id": None},
]  # fmt: skip
UNFIT_SQL = [
    "INSERT INTO plain (id, s) VALUES (2, CAST(X'ff' AS STRING))", "INSERT INTO plain (id, d) VALUES (2, 12345.67)", "INSERT INTO plain (id, d) SELECT 2, 12345.67",
    "INSERT INTO plain (id, ts) VALUES (2, TIMESTAMP'10000-01-01')", "INSERT INTO plain (id) VALUES (9223372036854775808)",
    "UPDATE plain SET s = CAST(X'ff' AS STRING) WHERE id = 1", "UPDATE plain SET d = d * 1000 WHERE id = 1", "UPDATE plain SET d = d + 999.5",
    "UPDATE plain SET ts = TIMESTAMP'10000-01-01' WHERE id = 1", "UPDATE plain SET ts = ts + INTERVAL '9000' YEAR", "UPDATE plain SET id = NULL WHERE id = 1",
    f"INSERT INTO nested (id, m) VALUES (2, {TWICE})", f"UPDATE nested SET m = {TWICE} WHERE id = 1", "UPDATE nested SET s = CAST(X'ff' AS STRING) WHERE id = 1",
]  # fmt: skip
UNFIT_BOUND = [("s", "\ud800"), ("d", Decimal("12345.67")), ("d", 10**18)]


def test_what_the_log_takes_the_view_store_takes(opener: Opener, tmp_path: Path) -> None:
    """A row alone waits in front of the view store (`plain`) or goes there at once (`nested`); nothing of it may fail after the commit."""
    db = opener(tmp_path)
    columns = "(id BIGINT PRIMARY KEY, s STRING, d DECIMAL(5, 2), ts TIMESTAMP{})"
    db.execute(f"CREATE TABLE plain {columns.format('')}; CREATE TABLE nested {columns.format(', m MAP<STRING, INT>')}")
    row = (1, "a\0b", Decimal("999.99"), dt.datetime(9999, 12, 31, tzinfo=dt.UTC))
    db.insert("plain", [row])
    db.insert("nested", [(*row, [("a", 1)])])
    for rows in UNFIT_ROWS:
        for name in ("plain", "nested"):
            with pytest.raises(PenstockError, match="PSK-5003"):
                db.insert(name, rows)
    with pytest.raises(PenstockError, match="PSK-5003"):
        db.insert("nested", {"id": 2, "m": [("a", 1), ("a", 2)]})
    for sql in UNFIT_SQL:
        with pytest.raises(PenstockError, match="PSK-"):
            db.execute(sql)
    for column, value in UNFIT_BOUND:
        with pytest.raises(PenstockError, match="PSK-"):
            db.execute(f"UPDATE plain SET {column} = ? WHERE id = 1", [value])
        with pytest.raises(PenstockError, match="PSK-"):
            db.execute(f"INSERT INTO plain (id, {column}) VALUES (2, ?)", [value])
    for _ in range(2):
        assert db.sql("SELECT * FROM plain").fetchall() == [row]
        assert db.sql("SELECT * FROM nested").fetchall() == [(*row, {"a": 1})]
        assert [s.state for s in db.status()] == ["ready", "ready"]
        db.close()
        db = opener(tmp_path)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT TIMESTAMP'10000-01-01 00:00:00' AS x", "PSK-7001"),
        ("SELECT CAST(X'ff' AS STRING) AS x", "PSK-7001"),
        ("SELECT map(1, 2, 1, 3) AS x", "PSK-7001"),
        ("SELECT '\ud800' AS x", "PSK-1001"),
        ("CREATE MATERIALIZED VIEW bad AS SELECT '' FROM t", "PSK-1015"),
        ("CREATE MATERIALIZED VIEW bad AS SELECT id AS `a``b` FROM t", "PSK-1015"),
        ("CREATE TABLE `` (a INT PRIMARY KEY)", "PSK-1015"),
        ("CREATE TABLE `a\nb` (a INT PRIMARY KEY)", "PSK-1015"),
        ("CREATE TABLE `a\0b` (a INT PRIMARY KEY)", "PSK-1015"),
        ("CREATE TABLE bad (`a``b` INT PRIMARY KEY)", "PSK-1015"),
        ("CREATE SOURCE bad (a TIMESTAMP DEFAULT TIMESTAMP'10000-01-01')", "PSK-5003"),
        ("CREATE SOURCE bad (a INT DEFAULT 1 / 0)", "PSK-7001"),
        ("SUBSCRIBE t WHERE nope > 1", "PSK-1004"),
    ],
)
def test_odd_statements(shared: penstock.Database, sql: str, expected: str) -> None:
    before = [s.name for s in shared.status()]

    def run() -> None:
        outcome = shared.execute(sql)
        if isinstance(outcome, penstock.Result):
            outcome.fetchall()

    assert code(run) == expected
    assert [s.name for s in shared.status()] == before


@pytest.mark.parametrize(
    "name", ["{x}", "a.b", 'a"b', "a'b", "é", "a b", "a\\b", "%s", "$x", "?", ":x", "a;b", "--", "SELECT", "😀"]
)
def test_odd_names(shared: penstock.Database, name: str) -> None:
    """A table and columns of that name, read on DuckDB and on Spark, changed, and in a view."""
    db = shared
    db.execute(f"CREATE TABLE `{name}` (`{name}` INT PRIMARY KEY, b INT)")
    db.execute(
        f"CREATE MATERIALIZED VIEW odd AS SELECT `{name}` + 1 AS x, b AS `{name}` FROM `{name}` WHERE `{name}` > 0"
    )
    try:
        db.insert(name, {name: 1, "b": 2})
        db.execute(f"INSERT INTO `{name}` (`{name}`, b) VALUES (5, 6)")
        db.execute(f"UPDATE `{name}` SET b = 3 WHERE `{name}` = 1")
        assert sorted(db.sql(f"SELECT `{name}`, b FROM `{name}`").fetchall()) == [(1, 3), (5, 6)]
        assert sorted(db.sql(f"SELECT abs(`{name}`) AS z FROM `{name}`").fetchall()) == [(1,), (5,)]
        db.flush()
        assert sorted(db.sql("SELECT * FROM odd").fetchall()) == [(2, 3), (6, 6)]
    finally:
        db.execute(f"DROP TABLE `{name}` CASCADE")


@pytest.mark.parametrize(
    "value",
    ["a\\'b", "\n\r\0\t", "${env:HOME}", "it's", "\\", "'; DROP TABLE t; --", "é😀", dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.date(9999, 12, 31), b"\xff\x00",
     Decimal("1.50"), 2**62, True, None],
)  # fmt: skip
def test_parameters_come_back(shared: penstock.Database, value: object) -> None:
    assert shared.sql("SELECT ? AS x", [value]).fetchall() == [(value,)]


def test_odd_arguments(shared: penstock.Database) -> None:
    db: Any = shared
    calls: list[Callable[[], object]] = [
        lambda: db.execute(None), lambda: db.execute(b"SELECT 1"), lambda: db.sql(5), lambda: db.explain(5), lambda: db.insert("t", None),
        lambda: db.insert(None, {}), lambda: db.subscribe(None), lambda: db.subscribe("t", where=5), lambda: db.subscribe("t", as_of="x"),
        lambda: db.subscribe("t", policy="x"), lambda: db.subscribe("t", envelope="x"), lambda: db.sql("SELECT ?", 5), lambda: db.sql("SELECT ?", "a"),
        lambda: db.register_function(5), lambda: db.register_function(lambda x: x, name="reflect"), lambda: db.source(5),
        lambda: db.register_function(lambda x: x, name="f", returns="nope"),
    ]  # fmt: skip
    for call in calls:
        assert code(call).startswith("PSK-")
    assert code(lambda: db.explain("SELECT 1; DROP TABLE t")) == "PSK-1001"
    assert db.sql("SELECT count(*) AS n FROM t").fetchall() == [(0,)]
    cyclic: list[object] = []
    cyclic.append(cyclic)
    assert code(lambda: db.sql("SELECT ?", [cyclic])) == "PSK-1018"


@settings(max_examples=times(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged().filter(lambda text: "CREATE" not in text.upper()))
def test_damaged_statements(shared: penstock.Database, text: str) -> None:
    """Each is carried out or refused with a code, and the database works on."""
    refusal = None
    try:
        outcome = shared.execute(text)
        if isinstance(outcome, penstock.Subscription):
            outcome.cancel()
    except PenstockError as error:
        refusal = error.render().encode()
    assert refusal is None or refusal.startswith(b"PSK-")
    assert shared.sql("SELECT 1 AS x").fetchall() == [(1,)]


@settings(max_examples=times(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "${" not in text))
def test_any_text_comes_back(shared: penstock.Database, text: str) -> None:
    assert shared.sql("SELECT ? AS x, concat(?, 'y') AS y", [text, text]).fetchall() == [(text, text + "y")]
