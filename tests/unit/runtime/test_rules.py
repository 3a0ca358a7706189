"""Row rules of a whole engine without a JVM. The fake queries copy rows, so only conditions in the store, and who reads what, are checked here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError
from penstock.plan import nodes as p
from penstock.runtime.statements.execute import execute
from penstock.runtime.statements.session import Session
from penstock.serve.subscription import Subscription

SOON_S = 20.0
TABLES = """
CREATE TABLE t (k BIGINT PRIMARY KEY, owner STRING, level BIGINT);
CREATE TABLE free (k BIGINT PRIMARY KEY);
CREATE MATERIALIZED VIEW m AS SELECT k, owner FROM t;
CREATE POLICY mine ON t USING (owner = current_setting('who'));
"""


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.run(TABLES)
        made.engine.start()
        yield made


def asked(db: Database, sql: str, **variables: Any) -> Any:
    return execute(Session(db.engine, variables=variables), sql)


def refused(db: Database, sql: str, **variables: Any) -> str:
    with pytest.raises(PenstockError) as error:
        asked(db, sql, **variables)
    return error.value.code


def test_a_select_sees_only_what_the_rules_show(db: Database) -> None:
    db.insert("t", (1, "ann", 1), (2, "bob", 1), (3, "ann", 5))
    assert asked(db, "SELECT k FROM t ORDER BY k", who="ann").to_pylist() == [{"k": 1}, {"k": 3}]
    assert asked(db, "SELECT count(*) AS n FROM t", who="eve").to_pylist() == [{"n": 0}]
    assert asked(db, "SELECT k, owner FROM t WHERE k = 2", who="ann").num_rows == 0
    db.run("CREATE POLICY low ON t USING (level < 2)")
    assert asked(db, "SELECT k FROM t ORDER BY k", who="ann").column("k").to_pylist() == [1, 2, 3]
    assert db.run("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]
    db.run("DROP POLICY low ON t; DROP POLICY IF EXISTS low ON t")
    assert asked(db, "SELECT k FROM t", who="bob").to_pylist() == [{"k": 2}]
    assert db.run("SHOW POLICIES").to_pylist() == [
        {"name": "mine", "object": "t", "using": "owner = CURRENT_SETTING('who')"}
    ]


def test_the_rules_apply_through_a_view_that_is_not_materialized(db: Database) -> None:
    db.run("CREATE VIEW named AS SELECT k, owner FROM t")
    with pytest.raises(PenstockError, match=r"PSK-1008.*not materialized"):
        db.run("CREATE POLICY own ON named USING (k = 1)")
    sub = asked(db, "SUBSCRIBE named", who="ann")
    assert {db.engine.catalog.by_id(i).name for i in sub.reads} & {"t"} == set()
    assert refused(db, "SUBSCRIBE named") == "PSK-5019"
    sub.cancel()


def test_a_row_that_becomes_visible_or_invisible_is_inserted_or_retracted(db: Database) -> None:
    db.insert("t", (1, "ann", 1), (2, "bob", 1))
    sub = asked(db, "SUBSCRIBE t WITH (snapshot = true)", who="ann")
    seen = [sub.next(SOON_S)]
    db.run("UPDATE t SET owner = 'ann' WHERE k = 2")
    db.run("UPDATE t SET owner = 'bob' WHERE k = 1")
    db.insert("t", (3, "bob", 1))
    db.run("UPDATE t SET level = 7 WHERE k = 2")
    seen += [sub.next(SOON_S) for _ in range(3)]
    assert [(c.kind, [(r["k"], r["owner"], r["level"], r["__weight"]) for r in c.rows()]) for c in seen] == [
        ("snapshot", [(1, "ann", 1, 1)]),
        ("changes", [(2, "ann", 1, 1)]),
        ("changes", [(1, "ann", 1, -1)]),
        ("changes", [(2, "ann", 1, -1), (2, "ann", 7, 1)]),
    ]
    assert sub.next(0) is None


def test_the_query_of_a_subscription_reads_visible_rows_only(db: Database) -> None:
    sub = asked(db, "SUBSCRIBE (SELECT x.k FROM t AS x JOIN free ON x.k = free.k)", who="ann")
    objects = {o.name: o for o in db.engine.catalog.objects() if o.name.startswith("__subscription")}
    visible, outer = objects.values()
    assert "'ann'" in visible.sql
    ids = {n.object_id for n in db.engine.jobs.planned[outer.id].query.root.walk() if isinstance(n, p.Scan)}
    assert ids == {visible.id, db.engine.catalog.get("free").id}  # type: ignore[union-attr]
    # As after a restart of the JVM: planned again from what is stored.
    again = db.engine.jobs.planner.stored(outer)
    assert again is not None
    assert {n.object_id for n in again.query.root.walk() if isinstance(n, p.Scan)} == ids
    other = asked(db, "SUBSCRIBE (SELECT k FROM t)", who="ann")
    assert len([o for o in db.engine.catalog.objects() if o.name.startswith("__subscription")]) == 3
    for s in (sub, other):
        s.cancel()
    assert not [o for o in db.engine.catalog.objects() if o.name.startswith("__subscription")]


def test_sessions_with_equal_variables_share_and_others_do_not(db: Database) -> None:
    subs = [asked(db, "SUBSCRIBE (SELECT k FROM t)", who=who) for who in ("ann", "ann", "bob")]
    assert len(db.engine.hidden) == 4
    for s in subs:
        s.cancel()
    assert db.engine.hidden == {}


@pytest.mark.parametrize(
    ("sql", "variables", "code"),
    [
        ("SELECT * FROM t", {}, "PSK-5019"),
        ("SUBSCRIBE t", {"you": 1}, "PSK-5019"),
        ("SUBSCRIBE (SELECT k FROM t)", {}, "PSK-5019"),
        ("SELECT * FROM m", {"who": "ann"}, "PSK-5019"),
        ("SUBSCRIBE m", {"who": "ann"}, "PSK-5019"),
        ("SUBSCRIBE (SELECT k FROM m)", {"who": "ann"}, "PSK-5019"),
        ("SELECT * FROM __subscription_1", {"who": "ann"}, "PSK-1002"),
        ("INSERT INTO free VALUES (1)", {"who": "ann"}, "PSK-0012"),
        ("DROP POLICY mine ON t", {"who": "ann"}, "PSK-0012"),
        ("SHOW TABLES", {"who": "ann"}, "PSK-0012"),
        ("EXPLAIN SELECT * FROM t", {"who": "ann"}, "PSK-0012"),
        ("SET read.consistency = 'eventual'", {"who": "ann"}, "PSK-0012"),
    ],
)
def test_what_cannot_be_ruled_is_refused(db: Database, sql: str, variables: dict[str, Any], code: str) -> None:
    assert refused(db, sql, **variables) == code


def test_the_query_of_another_session_cannot_be_read_by_name(db: Database) -> None:
    asked_for = asked(db, "SUBSCRIBE (SELECT k FROM t)", who="ann")
    for o in [o for o in db.engine.catalog.objects() if o.name.startswith("__subscription")]:
        assert refused(db, f"SELECT * FROM {o.name}", who="bob") == "PSK-5019"
    asked_for.cancel()


def test_a_view_with_rules_of_its_own_can_be_read(db: Database) -> None:
    db.run("CREATE POLICY own ON m USING (owner = current_setting('who'))")
    db.insert("t", (1, "ann", 1), (2, "bob", 1))
    db.rows("m")
    assert asked(db, "SELECT k FROM m", who="ann").to_pylist() == [{"k": 1}]


def test_a_new_rule_ends_what_was_begun_without_it(db: Database) -> None:
    own = db.run("SUBSCRIBE free")
    assert isinstance(own, Subscription)
    named = asked(db, "SUBSCRIBE free", who="ann")
    query = asked(db, "SUBSCRIBE (SELECT k FROM free)", who="ann")
    db.run("CREATE POLICY odd ON free USING (k > 1)")
    for s in (named, query):
        with pytest.raises(PenstockError, match="PSK-5018"):
            s.next(SOON_S)
    assert db.engine.hidden == {}
    db.insert("free", (1,))
    change = own.next(SOON_S)
    assert change is not None and change.rows() == [{"k": 1, "__weight": 1}]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("k IN (SELECT k FROM free)", "PSK-1012"),
        ("rand() > 0.5", "PSK-1012"),
        ("count(*) > 1", "PSK-1019"),
        ("nothing = 1", "PSK-1004"),
        ("owner = current_setting(owner)", "PSK-1011"),
    ],
)
def test_a_rule_is_a_function_of_the_row(db: Database, rule: str, code: str) -> None:
    with pytest.raises(PenstockError) as error:
        db.run(f"CREATE POLICY bad ON t USING ({rule})")
    assert error.value.code == code


def test_rules_survive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run(TABLES)
        db.engine.start()
        db.insert("t", (1, "ann", 1), (2, "bob", 1))
        with pytest.raises(PenstockError, match="PSK-1003"):
            db.run("CREATE POLICY mine ON t USING (true)")
    with database(tmp_path, monkeypatch) as db:
        assert asked(db, "SELECT k FROM t", who="bob").to_pylist() == [{"k": 2}]
