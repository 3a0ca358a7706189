"""ALTER … AS … REBUILD on an engine without a JVM, whose queries copy the rows of what they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError, fail
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


def test_a_restart_goes_on_with_the_new_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run(TABLES)
        db.insert("t", (1, "t"))
        db.insert("u", (2, "u"))
        db.run(ALTER)
        db.engine.start()
        assert db.rows("over") == Counter({(2, "u"): 1})
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        db.insert("u", (3, "u"))
        assert db.rows("m") == db.rows("over") == Counter({(2, "u"): 1, (3, "u"): 1})
        assert "FROM u" in db.run("SHOW CREATE MATERIALIZED VIEW m").to_pylist()[0]["statement"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("ALTER MATERIALIZED VIEW m AS SELECT k, v FROM u", "PSK-1012"),
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


def test_a_catalogue_that_cannot_be_written_leaves_the_old_query(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        calls = iter(range(100))

        def edit(*_: Any, **__: Any) -> None:
            if next(calls) == 0:
                raise fail("PSK-7004", "The disk is full.")
            return change(*_, **__)

        change = db.engine.catalog.change
        patch.setattr(db.engine.catalog, "change", edit)
        with pytest.raises(PenstockError, match="PSK-7004"):
            db.run(ALTER)
    db.insert("t", (5, "t"))
    assert db.rows("over") == Counter({(1, "t"): 1, (2, "t"): 1, (5, "t"): 1})
