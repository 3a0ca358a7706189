"""ALTER … AS … REBUILD on an engine without a JVM, whose queries copy the rows of what they read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.kernels import POISON
from tests.unit.runtime.storing import eventually

from penstock.errors import PenstockError, fail
from penstock.runtime.jobs import versions
from penstock.runtime.statements import draft, rebuild
from penstock.serve.subscription import Subscription

SOON_S = 20.0
TABLES = """
CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING);
CREATE TABLE u (k BIGINT PRIMARY KEY, v STRING);
CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t;
CREATE MATERIALIZED VIEW over AS SELECT k, v FROM m;
"""
ALTER = "ALTER MATERIALIZED VIEW m AS SELECT k, v FROM u REBUILD"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.run(TABLES)
        made.engine.start()
        made.insert("t", (1, "t"), (2, "t"))
        made.insert("u", (2, "u"), (3, "u"))
        made.rows("over")
        yield made


def folded(sub: Subscription, have: Counter[tuple[Any, ...]], lsn: int | None = None) -> int | None:
    while (change := sub.next(0)) is not None:
        assert lsn is None or change.prev_lsn == lsn
        lsn = change.lsn
        for row in change.rows():
            weight = row.pop("__weight")
            have[tuple(row.values())] += weight
            assert have[tuple(row.values())] >= 0
    return lsn


def test_readers_stay_and_see_one_sequence(db: Database) -> None:
    subs = [db.run(f"SUBSCRIBE {name} WITH (snapshot = true)") for name in ("m", "over")]
    have: list[Counter[tuple[Any, ...]]] = [Counter(), Counter()]
    at = [folded(s, h) for s, h in zip(subs, have, strict=True)]
    before = db.engine.catalog.get("m")
    db.run(ALTER)
    want = Counter({(2, "u"): 1, (3, "u"): 1})
    assert db.rows("m") == db.rows("over") == want
    at = [folded(s, h, a) for s, h, a in zip(subs, have, at, strict=True)]
    assert [+h for h in have] == [want, want]
    after = db.engine.catalog.get("m")
    assert before is not None and after is not None
    assert (after.id, after.depends_on) == (before.id, (db.engine.catalog.get("u").id,))  # type: ignore[union-attr]
    db.insert("t", (9, "t"))
    db.insert("u", (4, "u"))
    assert db.rows("over") == want + Counter({(4, "u"): 1})
    [folded(s, h, a) for s, h, a in zip(subs, have, at, strict=True)]
    assert [+h for h in have] == [db.rows("m")] * 2
    # The commit that caused a change is one of the new input.
    last = db.engine.log.last_entry(after.id)
    head = db.engine.log.last_entry(after.depends_on[0])
    assert last is not None and head is not None and last.input_lsn >= head.lsn


def test_a_stream_goes_on_with_another_query(db: Database) -> None:
    db.run("CREATE SOURCE s (k BIGINT, v STRING); CREATE STREAM f AS SELECT k, v FROM s")
    db.insert("s", (1, "a"))
    sub = db.run("SUBSCRIBE f WITH (snapshot = true)")
    for sql, code in [
        ("SELECT k FROM s", "PSK-1016"),
        ("SELECT k, v FROM t", "PSK-6018"),
        ("SELECT k, v FROM f", "PSK-1017"),
        ("SELECT DISTINCT k, v FROM s", "PSK-6018"),
        ("SELECT k, v FROM s REBUILD", "PSK-6003"),
    ]:
        with pytest.raises(PenstockError) as error:
            db.run(f"ALTER STREAM f AS {sql}")
        assert error.value.code == code
    db.insert("s", (2, "b"))
    db.run("ALTER STREAM f AS SELECT k, v FROM s WHERE k > 0")
    db.insert("s", (3, "c"))
    db.rows("m")
    assert [r["k"] for c in iter(lambda: sub.next(0), None) for r in c.rows()] == [1, 2, 3]


def test_a_restart_goes_on_with_the_new_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run(TABLES)
        with pytest.raises(PenstockError, match="PSK-7006"):
            db.run(ALTER)
        db.engine.start()
        db.insert("t", (1, "t"))
        db.insert("u", (2, "u"))
        db.run(ALTER)
        assert db.rows("over") == Counter({(2, "u"): 1})
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        db.insert("u", (3, "u"))
        assert db.rows("m") == db.rows("over") == Counter({(2, "u"): 1, (3, "u"): 1})
        assert "FROM u" in db.run("SHOW CREATE MATERIALIZED VIEW m").to_pylist()[0]["statement"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("ALTER MATERIALIZED VIEW m AS SELECT k, max(v) AS v FROM t GROUP BY k", "PSK-6018"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v FROM over", "PSK-1017"),
        ("ALTER STREAM m AS SELECT k, v FROM u REBUILD", "PSK-1008"),
        ("ALTER MATERIALIZED VIEW nothing AS SELECT k, v FROM u REBUILD", "PSK-1002"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k FROM u REBUILD", "PSK-1016"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v AS w FROM u REBUILD", "PSK-1016"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v FROM m REBUILD", "PSK-1017"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v FROM over REBUILD", "PSK-1017"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, x FROM u REBUILD", "PSK-1004"),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v FROM u ERRORS TO bad REBUILD", "PSK-1012"),
    ],
)
def test_what_is_refused_leaves_the_old_query_running(db: Database, sql: str, code: str) -> None:
    before = db.state()
    with pytest.raises(PenstockError) as error:
        db.run(sql)
    assert error.value.code == code
    assert db.state() == before
    db.insert("t", (5, "t"))
    assert db.rows("over") == Counter({(1, "t"): 1, (2, "t"): 1, (5, "t"): 1})


def test_a_disk_that_is_full_leaves_the_old_query(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.state()
    for name in ("mark_taken", "commit_difference"):
        with monkeypatch.context() as patch:

            def full(*_: Any) -> None:
                raise fail("PSK-7004", "The disk is full.")

            patch.setattr(rebuild, name, full)
            with pytest.raises(PenstockError, match="PSK-7004"):
                db.run(ALTER)
        db.rows("over")
        assert db.state() == before
    db.insert("t", (5, "t"))
    assert db.rows("over") == Counter({(1, "t"): 1, (2, "t"): 1, (5, "t"): 1})
    db.run(ALTER)
    assert db.rows("over") == Counter({(2, "u"): 1, (3, "u"): 1})


def test_a_version_that_fails_leaves_the_old_query(db: Database) -> None:
    before = db.state()
    db.world.sensitive.add(f"__version_{db.engine.catalog.get('m').id}")  # type: ignore[union-attr]
    db.insert("u", (4, POISON))
    with pytest.raises(PenstockError, match="PSK-7001"):
        db.run(ALTER)
    db.rows("over")
    assert db.state() == before
    db.insert("t", (5, "t"))
    assert db.rows("over") == Counter({(1, "t"): 1, (2, "t"): 1, (5, "t"): 1})


def test_a_query_that_fails_before_its_statement_takes_effect_has_a_reason(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(step: str) -> None:
        if step == "ddl.started":
            eventually(lambda: set(db.engine.jobs.by_object) == before, "the query has failed")

    before = set(db.engine.jobs.by_object)
    monkeypatch.setattr(draft, "crash_point", at)
    db.world.sensitive.add("late")
    db.insert("u", (4, POISON))
    db.run("CREATE MATERIALIZED VIEW late AS SELECT k, v FROM u")
    late = db.engine.catalog.get("late")
    assert late is not None
    trouble = db.engine.jobs.trouble(late)
    assert trouble is not None and "a poisoned row" in str(trouble.error)


def test_a_member_that_fails_while_the_database_closes_changes_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run(TABLES)
        db.engine.start()
        engine = db.engine
        db.world.sensitive.add("over")
        with engine.ddl:
            db.insert("t", (1, POISON))
            eventually(lambda: any(t.name == "penstock-evict" for t in threading.enumerate()), "the query has failed")
            evicting = [t for t in threading.enumerate() if t.name == "penstock-evict"]
            engine.close()
            before = {f: f.read_bytes() for f in tmp_path.glob("*") if f.is_file()}
        for thread in evicting:
            thread.join(SOON_S)
        assert {f: f.read_bytes() for f in tmp_path.glob("*") if f.is_file()} == before


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["swap.built", "swap.decided", "swap.committed", "swap.moved"])
def test_a_crash_leaves_the_old_version_or_the_new_one(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(at: str) -> None:
        if at == step:
            raise Crash

    with database(tmp_path, monkeypatch) as db:
        db.run(TABLES)
        db.engine.start()
        db.insert("t", (1, "t"), (2, "t"))
        db.insert("u", (2, "u"), (3, "u"))
        db.rows("over")
        with monkeypatch.context() as patch:
            for module in (rebuild, versions):
                patch.setattr(module, "crash_point", crash)
            # Whatever would tidy up does not run.
            patch.setattr(rebuild, "discard", lambda *_: None)
            with pytest.raises(Crash):
                db.run(ALTER)
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        new = step != "swap.built"
        db.insert("t", (4, "t"))
        db.insert("u", (5, "u"))
        want = {(2, "u"): 1, (3, "u"): 1, (5, "u"): 1} if new else {(1, "t"): 1, (2, "t"): 1, (4, "t"): 1}
        assert db.rows("m") == db.rows("over") == Counter(want)
        assert db.state()["objects"] == [o for o in db.engine.catalog.objects() if not o.hidden]
        db.run(ALTER)
        assert db.rows("over") == Counter({(2, "u"): 1, (3, "u"): 1, (5, "u"): 1})
