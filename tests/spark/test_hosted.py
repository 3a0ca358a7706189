"""Keyed queries on the same objects: one job, one operator with the state of all, and nothing that one of them does to the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.effort import EFFORT, times
from tests.spark.conftest import Opener
from tests.spark.defects import break_member
from tests.spark.following import SOON_S, until
from tests.spark.kernel_state import entries_of_host

import penstock
from penstock.runtime.jobs import planned as planned_module
from penstock.spark.hosted import HostJob

TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, k INT, v BIGINT, name STRING);
CREATE TABLE u (id BIGINT PRIMARY KEY, k INT, w DOUBLE);
"""

ON_ONE = {
    "grouped": "SELECT k, count(*) AS n, sum(v) AS total, min(v) AS least, max(name) AS last FROM t GROUP BY k",
    "filtered": "SELECT k % 2 AS odd, avg(v) AS mean, count(DISTINCT name) AS names FROM t WHERE v > 10 GROUP BY k % 2",
    "several": "SELECT name, sum(v * 2) + 1 AS twice FROM t GROUP BY name HAVING count(*) > 1",
    "whole": "SELECT count(*) AS n, max(v) AS most FROM t WHERE v < 60",
    "different": "SELECT DISTINCT k, name FROM t",
    "top": "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 3",
    "best": "SELECT id, k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) WHERE r <= 2",
    "running": "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id) AS sum FROM t",
    "twice": "SELECT k, count(*) AS n FROM (SELECT k FROM t UNION ALL SELECT id AS k FROM t WHERE v > 5) GROUP BY k",
    "rest": "SELECT k FROM t WHERE v > 30 EXCEPT SELECT k FROM t WHERE name = 'a'",
    "levels": "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n",
    "above": "WITH m AS (SELECT k, avg(v) AS mean FROM t GROUP BY k) SELECT t.id, (SELECT max(mean) FROM m) AS top FROM t JOIN m ON t.k = m.k AND t.v > m.mean",
}
ON_TWO = {
    "pairs": "SELECT t.id, u.id AS other, v, w FROM t JOIN u ON t.k = u.k",
    "all_left": "SELECT t.id, u.w FROM t LEFT JOIN u ON t.k = u.k AND u.w > 1",
    "without": "SELECT id, k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "common": "SELECT k FROM t INTERSECT SELECT k FROM u",
    "joined": "SELECT u.k, sum(v) AS sum FROM t JOIN u ON t.k = u.k GROUP BY u.k UNION ALL SELECT k, v FROM t WHERE v > 60",
}
SHAPES = ON_ONE | ON_TWO


@contextmanager
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queries that are made within have jobs of their own."""
    with monkeypatch.context() as patch:
        patch.setattr(planned_module, "unfit", lambda query: "the test compares it with one")
        yield


def view(db: penstock.Database, name: str, select: str, more: str = "") -> None:
    db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}{more}")


def rows(db: penstock.Database, select: str) -> list[tuple[Any, ...]]:
    return sorted(db.sql(select).fetchall(), key=repr)


def jobs(db: penstock.Database, *names: str) -> set[str]:
    """The names of the jobs that maintain some objects."""
    catalog = db._engine.catalog
    infos = [catalog.get(n) for n in names]
    return {db._engine.jobs.by_object[i.id].name for i in infos if i is not None}


def changes(seed: int) -> Iterator[str]:
    """Statements that insert, replace and delete rows of both tables."""
    choose = random.Random(seed)
    while True:
        table = choose.choice(["t", "t", "u"])
        id, k = choose.randrange(20), choose.choice(["NULL", 0, 1, 2, 3])
        if choose.random() < 0.3:
            yield f"DELETE FROM {table} WHERE id = {id}"
        elif table == "t":
            name = choose.choice(["NULL", "'a'", "'b'", "'c'"])
            yield f"INSERT INTO t VALUES ({id}, {k}, {choose.randrange(80)}, {name})"
        else:
            yield f"INSERT INTO u VALUES ({id}, {k}, {choose.choice(['0.5', '1.5', '-0.0', 'NULL'])})"


def check(db: penstock.Database, names: dict[str, str], *prefixes: str) -> None:
    for name, select in names.items():
        expected = rows(db, select)
        for prefix in prefixes:
            assert rows(db, f"SELECT * FROM {prefix}{name}") == expected, prefix + name


@pytest.mark.parametrize("seed", range(times(1)))
def test_members_have_what_queries_alone_and_batches_have(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    db.execute(TABLES)
    some = dict(random.Random(seed).sample(sorted(SHAPES.items()), times(2)))
    for name, select in SHAPES.items():
        view(db, name, select)
    with alone(monkeypatch):
        for name, select in some.items():
            view(db, f"own_{name}", select)
    assert jobs(db, *ON_ONE) == {"keyed queries on t"}
    assert jobs(db, *ON_TWO) == {"keyed queries on t, u"}
    assert jobs(db, *(f"own_{n}" for n in some)) == {f"own_{n}" for n in some}
    statements = changes(seed)
    for step in range(4):
        for _ in range(1 + step % 4 * 3):
            db.execute(next(statements))
        check(db, {n: s for n, s in SHAPES.items() if n not in some}, "")
        check(db, some, "", "own_")


def test_a_member_that_comes_later_begins_with_what_is_there(db: penstock.Database) -> None:
    db.execute(TABLES)
    db.execute("CREATE SOURCE s (k INT, v BIGINT)")
    db.execute("INSERT INTO t VALUES (1, 1, 10, 'a'), (2, 1, 20, 'b'), (3, 2, 30, 'c')")
    db.execute("DELETE FROM t WHERE id = 2")
    db.execute("INSERT INTO s VALUES (1, 5), (2, 6)")
    for name in ("grouped", "whole"):
        view(db, name, ON_ONE[name])
    view(db, "first_of_s", "SELECT k, sum(v) AS total FROM s GROUP BY k")
    check(db, {n: ON_ONE[n] for n in ("grouped", "whole")}, "")
    db.execute("INSERT INTO t VALUES (4, 2, 40, 'a')")
    db.execute("INSERT INTO s VALUES (2, 7)")
    kernel = db._engine.jobs.by_object[db._engine.catalog.get("grouped").id].kernel  # type: ignore[union-attr]
    for name, select in ON_ONE.items():
        if name not in ("grouped", "whole"):
            view(db, name, select)
            check(db, {name: select}, "")
    view(db, "second_of_s", "SELECT count(*) AS n, sum(v) AS total FROM s")
    assert rows(db, "SELECT * FROM second_of_s") == [(3, 18)]
    assert rows(db, "SELECT * FROM first_of_s") == [(1, 5), (2, 13)]
    check(db, ON_ONE, "")
    # Nobody else was stopped for it.
    assert db._engine.jobs.by_object[db._engine.catalog.get("twice").id].kernel is kernel  # type: ignore[union-attr]


def test_members_that_begin_while_the_job_is_behind(db: penstock.Database) -> None:
    """Rows that are in the contents with which a member begins come in the job's next epoch, too."""
    db.execute(TABLES)
    view(db, "first", ON_ONE["grouped"])
    made = {"first": ON_ONE["grouped"]}
    for i in range(6):
        db.insert("t", [(10 * i + n, n % 3, n, "a") for n in range(10)])
        made[f"member_{i}"] = ON_ONE["grouped"] if i % 2 else f"SELECT count(*) AS n, sum(v) AS total, {i} AS i FROM t"
        view(db, f"member_{i}", made[f"member_{i}"])
        db.insert("t", [(1000 + i, 1, i, "b")])
    check(db, made, "")


def test_a_query_with_many_state_variables_shares_the_job(interpreted: Opener) -> None:
    """More than a byte can number: each of the functions keeps two maps."""
    db = interpreted()
    db.execute(TABLES)
    firsts = ", ".join(f"first_value(v + {i}) AS f{i}" for i in range(130))
    select = f"SELECT k, {firsts} FROM t GROUP BY k"
    assert "job: shared by keyed queries on t" in db.explain(select).splitlines()
    view(db, "firsts", select)
    db.insert("t", [(1, 1, 10, "a"), (2, 1, 20, "b"), (3, 2, 30, "c")])
    db.execute("DELETE FROM t WHERE id = 1")
    assert rows(db, "SELECT * FROM firsts") == [(k, *(v + i for i in range(130))) for k, v in ((1, 20), (2, 30))]


def test_many_rows_go_through_tasks_and_files(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE s (k INT, v BIGINT); CREATE TABLE u (k INT PRIMARY KEY, name STRING)")
    selects = {
        "each": "SELECT s.v, u.name, count(*) AS n FROM s JOIN u ON s.k = u.k GROUP BY s.v, u.name",
        "all_of_them": "SELECT sum(n) AS n, count(*) AS groups FROM (SELECT v, count(*) AS n FROM s GROUP BY v)",
    }
    for name, select in selects.items():
        view(db, name, select)
    kernel = db._engine.jobs.by_object[db._object("each").id].kernel
    tracker = db.spark.sparkContext.statusTracker()
    db.insert("u", [(k, f"name {k}") for k in range(7)])
    db.flush(timeout=SOON_S)
    assert list(tracker.getJobIdsForGroup(kernel._job)) == []  # The driver has run the tasks of so small an epoch.
    for first in (0, 20_000):
        db.insert("s", [(v % 7, v) for v in range(first, first + 40_000)])
        check(db, selects, "")
    until(lambda: len(tracker.getJobIdsForGroup(kernel._job)) > 0)
    assert list((kernel._folder / "out").iterdir()) == []


def test_hundreds_of_small_epochs_in_a_row(opener: Opener, tmp_path: Path) -> None:
    """The change logs of state have room for the names of so many versions; then there must be a snapshot."""
    db = opener(tmp_path / "db")
    db.execute("CREATE SOURCE s (k INT, v BIGINT)")
    view(db, "sums", "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k")
    count = 310 if EFFORT == 1 else 1000
    for v in range(count):
        db.insert("s", [(1, v)])
        db.flush(timeout=SOON_S)
    db.close()
    db = opener(tmp_path / "db")
    db.insert("s", [(1, count)])
    assert rows(db, "SELECT * FROM sums") == [(1, count + 1, count * (count + 1) // 2)]


def test_an_epoch_takes_all_members_to_the_same_moment(db: penstock.Database) -> None:
    db.execute(TABLES)
    for name, select in ON_ONE.items():
        view(db, name, select)
    for statement in (
        "INSERT INTO t VALUES (1, 1, 40, 'a'), (2, 1, 41, 'a'), (3, 2, 50, 'b')",
        "DELETE FROM t WHERE id = 1",
    ):
        db.execute(statement)
        db.flush(timeout=SOON_S)
    engine = db._engine
    last = [engine.log.last_entry(engine.catalog.get(n).id) for n in ("grouped", "top", "running")]  # type: ignore[union-attr]
    assert len({e.lsn for e in last if e is not None}) == 1
    assert len({e.input_lsn for e in last if e is not None}) == 1


def test_a_member_leaves_nothing_to_the_others_and_nothing_of_itself(db: penstock.Database) -> None:
    db.execute(TABLES)
    view(db, "grouped", ON_ONE["grouped"])
    view(db, "large", "SELECT id, k, v, name, count(*) AS n, min(v) AS least FROM t GROUP BY id, k, v, name")
    db.insert("t", [(i, i % 3, i, "some name") for i in range(500)])
    db.flush(timeout=SOON_S)
    kernel = db._engine.jobs.by_object[db._engine.catalog.get("large").id].kernel  # type: ignore[union-attr]
    assert isinstance(kernel, HostJob)
    kept = {o.name: o for o in db.status()}
    assert kept["large"].state_rows == 1000
    assert kept["grouped"].state_rows > 0
    db.execute("DROP MATERIALIZED VIEW large")
    assert [f.rows for left in kernel.remains().values() for f in left] == [1000]
    for i in range(3):
        db.execute(f"INSERT INTO t VALUES ({1000 + i}, 1, 5, 'x')")
        db.flush(timeout=SOON_S)
    assert kernel.remains() == {}
    kept = {o.name: o for o in db.status()}
    assert entries_of_host(db.spark, kernel._folder) == kept["grouped"].state_rows
    check(db, {"grouped": ON_ONE["grouped"]}, "")
    view(db, "large", "SELECT id, count(*) AS n FROM t GROUP BY id")
    assert db.sql("SELECT count(*) FROM large").fetchall() == [(503,)]
    db.execute("DROP MATERIALIZED VIEW large; DROP MATERIALIZED VIEW grouped")
    assert not list((db._engine.storage.layout.jobs).glob("hosted-*"))


def test_members_go_on_after_a_stop_a_restart_and_another_open(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "db")
    db.execute(TABLES)
    for name, select in SHAPES.items():
        view(db, name, select)
    statements = changes(7)

    def change() -> None:
        for _ in range(6):
            db.execute(next(statements))

    change()
    check(db, SHAPES, "")
    db.stop()
    change()
    db.start()
    check(db, SHAPES, "")
    db.execute("RESTART MATERIALIZED VIEW grouped")
    change()
    check(db, SHAPES, "")
    before = rows(db, "SELECT * FROM best")
    db.execute("RESTART MATERIALIZED VIEW best FROM BEGINNING")
    assert rows(db, "SELECT * FROM best") == before
    change()
    db.execute("DROP MATERIALIZED VIEW top")
    db.close()
    db = opener(tmp_path / "db")
    left = {n: s for n, s in SHAPES.items() if n != "top"}
    check(db, left, "")
    change()
    view(db, "top", SHAPES["top"])
    check(db, SHAPES, "")
    db.stop()
    view(db, "later", "SELECT k, count(*) AS n FROM t GROUP BY k")
    change()
    db.start()
    check(db, SHAPES | {"later": "SELECT k, count(*) AS n FROM t GROUP BY k"}, "")


def test_rows_that_one_member_cannot_compute_are_its_own(db: penstock.Database) -> None:
    db.execute(TABLES)
    view(db, "shares", "SELECT k, sum(100 DIV v) AS share FROM t GROUP BY k")
    view(db, "sums", "SELECT k, sum(v) AS total FROM t GROUP BY k")
    view(db, "others", "SELECT k, count(*) AS n, sum(100 DIV (v - 1)) AS share FROM t GROUP BY k")
    db.execute("INSERT INTO t VALUES (1, 1, 10, 'a'), (2, 1, 0, 'b'), (3, 2, 9223372036854775807, 'c')")
    assert rows(db, "SELECT * FROM others") == [(1, 2, -89), (2, 1, 0)]
    with pytest.raises(penstock.PenstockError, match=r"PSK-7007.*shares has 1 row.*100 DIV v"):
        db.sql("SELECT * FROM shares")
    assert rows(db, "SELECT * FROM shares WITH (stale = true)") == [(1, 10), (2, 0)]
    db.execute("INSERT INTO t VALUES (4, 2, 9, 'c')")
    with pytest.raises(penstock.PenstockError, match=r"PSK-7007.*sums has 1 row.*sum"):
        db.sql("SELECT * FROM sums")
    db.execute("DELETE FROM t WHERE id = 2 OR id = 3")
    assert rows(db, "SELECT * FROM shares") == [(1, 10), (2, 11)]
    assert rows(db, "SELECT * FROM sums") == [(1, 10), (2, 9)]
    assert rows(db, "SELECT * FROM others") == [(1, 1, 11), (2, 1, 12)]


def test_a_member_whose_state_is_too_large_fails_alone(db: penstock.Database) -> None:
    db.execute(TABLES)
    view(db, "grouped", ON_ONE["grouped"])
    view(db, "limited", "SELECT id, count(*) AS n FROM t GROUP BY id", " WITH (max_state_bytes = 1000)")
    db.insert("t", [(1, 1, 1, "a")])
    assert rows(db, "SELECT * FROM limited") == [(1, 1)]
    db.insert("t", [(i, 1, i, "a") for i in range(2, 200)])
    with pytest.raises(penstock.PenstockError, match=r"PSK-7006.*max_state_bytes allows 1000"):
        db.sql("SELECT * FROM limited")
    assert rows(db, "SELECT * FROM limited WITH (stale = true)") == [(1, 1)]
    check(db, {"grouped": ON_ONE["grouped"]}, "")
    assert {o.name: o.state for o in db.status() if o.kind == "materialized view"} == {
        "grouped": "running",
        "limited": "failed",
    }
    db.execute("DELETE FROM t WHERE id > 5")
    db.execute("RESTART MATERIALIZED VIEW limited")
    assert rows(db, "SELECT * FROM limited") == [(i, 1) for i in range(1, 6)]
    check(db, {"grouped": ON_ONE["grouped"]}, "")


def test_a_member_with_a_defect_is_taken_out_and_the_others_go_on(db: penstock.Database) -> None:
    db.execute(TABLES)
    for name in ("grouped", "top", "different"):
        view(db, name, ON_ONE[name])
    db.execute("INSERT INTO t VALUES (1, 1, 10, 'a')")
    check(db, {n: ON_ONE[n] for n in ("grouped", "top", "different")}, "")
    changes = db.subscribe("top")
    break_member(db, "top", "v")
    db.execute("INSERT INTO t VALUES (2, 1, 20, 'b')")
    check(db, {n: ON_ONE[n] for n in ("grouped", "different")}, "")
    with pytest.raises(penstock.PenstockError, match=r"PSK-7006.*top"):
        db.sql("SELECT * FROM top")
    with pytest.raises(penstock.PenstockError, match=r"PSK-7001.*"):
        changes.next(SOON_S)
    db.execute("RESTART MATERIALIZED VIEW top")
    db.execute("INSERT INTO t VALUES (3, 2, 30, 'c')")
    check(db, {n: ON_ONE[n] for n in ("grouped", "top", "different")}, "")
    later = db.subscribe("top")
    assert later.next(timeout=0) is None, "whoever comes later hears nothing of the failure"


def test_a_new_column_reaches_the_members_to_come(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE s (k INT, v BIGINT)")
    view(db, "sums", "SELECT k, sum(v) AS total FROM s GROUP BY k")
    db.execute("INSERT INTO s VALUES (1, 5)")
    db.execute("ALTER SOURCE s ADD COLUMN x INT")
    db.execute("INSERT INTO s VALUES (1, 6, 2)")
    view(db, "by_x", "SELECT x, sum(v) AS total FROM s GROUP BY x")
    db.execute("INSERT INTO s VALUES (2, 7, 2)")
    assert rows(db, "SELECT * FROM sums") == [(1, 11), (2, 7)]
    assert rows(db, "SELECT * FROM by_x") == [(2, 13), (None, 5)]


def test_explain_says_who_shares_and_why_not(db: penstock.Database) -> None:
    db.execute(TABLES)
    db.execute("CREATE SOURCE s (k INT, ts TIMESTAMP, WATERMARK FOR ts)")
    db.execute("CREATE SOURCE r (k INT, ts TIMESTAMP, WATERMARK FOR ts)")
    told = {
        ON_ONE["grouped"]: "job: shared by keyed queries on t",
        ON_TWO["pairs"]: "job: shared by keyed queries on t, u",
        "SELECT k, count(*) FROM (SELECT DISTINCT k, v FROM t) GROUP BY k": "job: shared by keyed queries on t",
        "SELECT k, count(*) FROM s WHERE rand() < 0.5 GROUP BY k": "job: its own, because an expression is not deterministic",
        "SELECT c, count(*) FROM t LATERAL VIEW explode(split(name, '')) AS c GROUP BY c": "job: shared by keyed queries on t",
        "SELECT c FROM t LATERAL VIEW explode(split(name, '')) AS c": "job: shared by queries without state on t",
        "SELECT k, rand() AS r FROM s": "job: its own, because an expression is not deterministic",
        "SELECT k, window_end, count(*) FROM s GROUP BY k, TUMBLE(ts, INTERVAL '5' SECOND)": "job: shared by keyed queries on s",
        "CREATE STREAM x AS SELECT k, window_end, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '5' SECOND) EMIT ON WINDOW CLOSE": "job: shared by keyed queries on s",
        "SELECT s.k FROM s ASOF JOIN r ON s.k = r.k AND s.ts >= r.ts": "job: shared by keyed queries on s, r",
    }
    for select, line in told.items():
        assert line in db.explain(select).splitlines(), db.explain(select)
