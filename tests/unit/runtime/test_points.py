"""Statements about single rows, on an engine without a JVM: any call of Spark fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.effort import times
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError
from penstock.runtime.statements import prepared
from penstock.runtime.statements.execute import execute
from penstock.runtime.statements.session import Session


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING, n INT NOT NULL)")
        yield made


def run(db: Database, sql: str, params: Any = None, session: Session | None = None) -> list[tuple[Any, ...]]:
    found: Any = execute(session or db.session, sql, params)
    return [tuple(row.values()) for row in found.to_pylist()]


def code(db: Database, sql: str, params: Any = None) -> str:
    with pytest.raises(PenstockError) as caught:
        run(db, sql, params)
    assert caught.value.sql is not None
    return caught.value.code


def test_rows_are_written_changed_and_read(db: Database) -> None:
    assert run(db, "INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2)") == [(2,)]
    assert run(db, "INSERT INTO t (n, ID) VALUES (:n, :id)", {"n": 3, "id": 3}) == [(1,)]
    assert run(db, "UPDATE t SET name = 'b', n = n + 1 WHERE id = 2") == [(1,)]
    assert run(db, "UPDATE t SET name = ? WHERE 3 = id", ["c"]) == [(1,)]
    assert run(db, "DELETE FROM t WHERE (id = ?) AND n = ?", [1, 1]) == [(1,)]
    assert run(db, "DELETE FROM t WHERE id = ? AND n = ?", [2, 99]) == [(0,)]
    assert db.rows("t") == {(2, "b", 3): 1, (3, "c", 3): 1}
    for _ in range(2):
        assert run(db, "SELECT name AS x, id FROM t AS r WHERE r.id = ?", [2]) == [("b", 2)]
        assert run(db, "SELECT * FROM t WHERE id = 4") == []
        assert run(db, "SELECT t.id, t.n FROM t WHERE t.id = ? LIMIT 1", [2]) == [(2, 3)]
        assert run(db, "SELECT t.id FROM t WHERE t.id = ? LIMIT 0", [2]) == []
    assert run(db, "SELECT name AS x, id FROM t AS r WHERE r.id = ?", [None]) == []


def test_a_key_can_be_changed_but_not_to_one_that_is_taken(db: Database) -> None:
    run(db, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    assert run(db, "UPDATE t SET id = 3 WHERE id = 1") == [(1,)]
    assert code(db, "UPDATE t SET id = 2 WHERE id = 3") == "PSK-5006"
    assert db.rows("t") == {(3, "a", 1): 1, (2, "b", 2): 1}


def test_rows_are_checked(db: Database) -> None:
    run(db, "INSERT INTO t VALUES (1, 'a', 1)")
    assert code(db, "INSERT INTO t VALUES (?, ?, ?)", [2, "b", None]) == "PSK-5003"
    assert code(db, "INSERT INTO t (name, n) VALUES ('x', 1)") == "PSK-5003"
    assert code(db, "UPDATE t SET n = NULL WHERE id = 1") == "PSK-5003"
    assert code(db, "UPDATE t SET m = 1 WHERE id = 1") == "PSK-1004"
    assert code(db, "DELETE FROM u WHERE id = 1") == "PSK-1002"
    assert db.rows("t") == {(1, "a", 1): 1}


def test_parameters_are_checked(db: Database) -> None:
    for params in ([1, "a"], [1, "a", 1, 1], {"a": 1}, "abc", [1, object(), 1], [1, "\ud800", 1]):
        with pytest.raises(PenstockError) as caught:
            run(db, "INSERT INTO t VALUES (?, ?, ?)", params)
        assert caught.value.code in ("PSK-1018", "PSK-1001")
    with pytest.raises(PenstockError, match="PSK-1018"):
        run(db, "INSERT INTO t VALUES (:id, :id, :n)", {"id": 1, "n": 1, "unused": 1})
    assert db.rows("t") == {}


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, 'a', 1 + 1)",
        "INSERT INTO t VALUES (1, 'a', 3000000000)",
        "INSERT INTO t VALUES (1, 'a', 'x')",
        "INSERT INTO t VALUES (1, 'a')",
        "UPDATE t SET n = n + 1 WHERE id = 1 OR id = 2",
        "UPDATE t SET n = 2147483647 + 1 WHERE id = 1",
        "UPDATE t SET n = n + 2147483647 WHERE id = 1",
        "UPDATE t SET n = 1",
        "UPDATE t SET n = 1 WHERE id = 1 AND id = 2",
        "UPDATE t SET n = 1 WHERE id = '1'",
        "UPDATE t SET n = 1 WHERE id = 1.0",
        "DELETE FROM t WHERE id > 1",
        "DELETE FROM t WHERE name = 'a'",
        "DELETE FROM t WHERE x.id = 1",
    ],
)
def test_everything_else_is_left_to_spark(db: Database, sql: str) -> None:
    run(db, "INSERT INTO t VALUES (1, 'a', 1)")
    with pytest.raises((AttributeError, PenstockError)) as caught:
        run(db, sql)
    # The stand-in for Spark has no `select`.
    if isinstance(caught.value, PenstockError):
        assert caught.value.code == "PSK-1016"
    else:
        assert "select" in str(caught.value)
    assert db.rows("t") == {(1, "a", 1): 1}


def test_a_transaction_sees_its_own_rows(db: Database) -> None:
    run(db, "INSERT INTO t VALUES (1, 'a', 1)")
    other = Session(db.engine)
    db.run("BEGIN")
    run(db, "UPDATE t SET n = n + 1 WHERE id = 1")
    run(db, "UPDATE t SET n = n + 1 WHERE id = 1")
    run(db, "INSERT INTO t VALUES (2, 'b', 1)")
    run(db, "DELETE FROM t WHERE id = 2")
    assert run(db, "SELECT n FROM t WHERE id = 1", session=other) == [(1,)]
    db.run("COMMIT")
    assert db.rows("t") == {(1, "a", 3): 1}
    db.run("BEGIN")
    run(db, "DELETE FROM t WHERE id = 1")
    run(db, "UPDATE t SET n = 0 WHERE id = 1")
    db.run("ROLLBACK")
    assert run(db, "SELECT n FROM t WHERE id = 1") == [(3,)]


def test_a_text_follows_the_catalogue(db: Database) -> None:
    select, insert = "SELECT * FROM t WHERE id = ?", "INSERT INTO t VALUES (?, ?, ?)"
    run(db, insert, [1, "a", 1])
    assert [run(db, select, [1]) for _ in range(2)] == [[(1, "a", 1)]] * 2
    db.run("DROP TABLE t")
    assert code(db, select, [1]) == "PSK-1002"
    db.run("CREATE TABLE t (name STRING, n STRING, id INT PRIMARY KEY)")
    run(db, insert, ["a", 5, 1])
    assert [run(db, select, [1]) for _ in range(2)] == [[("a", "5", 1)]] * 2


def test_the_number_of_kept_statements_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_MOST", 10)
    for i in range(30):
        run(db, f"INSERT INTO t VALUES ({i}, 'a', 1)")
    assert len(db.session.prepared._kept) == 10


def test_threads_that_change_one_row_lose_nothing(db: Database) -> None:
    run(db, "INSERT INTO t VALUES (1, 'a', 0)")
    each = times(50, quick=20)

    def work() -> None:
        session = Session(db.engine)
        for _ in range(each):
            run(db, "UPDATE t SET n = n + ? WHERE id = ?", [1, 1], session)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert run(db, "SELECT n FROM t WHERE id = 1") == [(4 * each,)]
    assert db.rows("t") == {(1, "a", 4 * each): 1}
