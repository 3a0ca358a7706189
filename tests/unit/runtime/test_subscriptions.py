"""Subscriptions of a whole engine without a JVM: its queries copy the rows of what they read."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.effort import times
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError
from penstock.runtime.statements.subscribe import subscribe_group
from penstock.serve.change import Change
from penstock.serve.group import GroupChange, GroupSubscription
from penstock.serve.options import SubscribeOptions
from penstock.serve.subscription import Subscription

SOON_S = 20.0


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        made.engine.start()
        yield made


def hidden(db: Database) -> list[str]:
    return [o.name for o in db.engine.catalog.objects() if o.name.startswith("__subscription")]


def following(db: Database, sql: str) -> Subscription:
    made = db.run(sql)
    assert isinstance(made, Subscription)
    return made


def rows(change: Change | None) -> list[dict[str, Any]]:
    assert change is not None
    return change.rows()


def drained(sub: Subscription, n: int) -> Counter[tuple[Any, ...]]:
    """The sum of all changes, once `n` rows are there."""
    total: Counter[tuple[Any, ...]] = Counter()
    deadline = time.monotonic() + SOON_S
    while sum(total.values()) != n and time.monotonic() < deadline:
        change = sub.next(timeout=1)
        for row in change.rows() if change is not None else []:
            weight = row.pop("__weight")
            total[tuple(row.values())] += weight
    return total


@pytest.mark.parametrize(
    "text",
    [
        "select   K , V from T where k > 1 and v = 'a'",
        "SELECT x.k, x.v FROM t AS x WHERE x.v = 'a' AND x.k > 1",
        "SELECT k AS one, v AS two FROM t WHERE (v = 'a') AND (k > 1)",
    ],
)
def test_queries_that_mean_the_same_are_one(db: Database, text: str) -> None:
    first = following(db, "SUBSCRIBE (SELECT k, v FROM t WHERE k > 1 AND v = 'a')")
    second = following(db, f"SUBSCRIBE ({text})")
    assert len(hidden(db)) == 1
    db.insert("t", (1, "a"))
    names = [list(rows(s.next(SOON_S))[0].values()) for s in (first, second)]
    assert names[0] == names[1] == [1, "a", 1]
    first.cancel()
    assert len(hidden(db)) == 1
    second.cancel()
    assert hidden(db) == [] and db.engine.hidden == {}


def test_columns_have_the_names_of_each_reader(db: Database) -> None:
    one = following(db, "SUBSCRIBE (SELECT k, v FROM t)")
    two = following(db, "SUBSCRIBE (SELECT k AS a, v AS b FROM t) WHERE b = 'x'")
    assert len(hidden(db)) == 1
    db.insert("t", (1, "x"), (2, "y"))
    assert rows(one.next(SOON_S)) == [{"k": 1, "v": "x", "__weight": 1}, {"k": 2, "v": "y", "__weight": 1}]
    assert rows(two.next(SOON_S)) == [{"a": 1, "b": "x", "__weight": 1}]
    assert two.schema.names == ["a", "b", "__weight"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM t WHERE k > 2",
        "SELECT v, k FROM t WHERE k > 1",
        "SELECT k, v FROM t WHERE k > 1 OR v = 'a'",
        "SELECT k, v FROM t WHERE k > 1 AND v > 1",
        "SELECT k, v FROM t WHERE k > 1 WITH (retain_history = '1 day')",
    ],
)
def test_queries_that_differ_are_not(db: Database, text: str) -> None:
    subs = [following(db, f"SUBSCRIBE ({sql})") for sql in ("SELECT k, v FROM t WHERE k > 1", text)]
    assert len(hidden(db)) == 2
    for s in subs:
        s.cancel()
    assert hidden(db) == []


def test_conditions_that_can_fail_keep_their_order(db: Database) -> None:
    subs = [
        following(db, f"SUBSCRIBE (SELECT k FROM t WHERE {c})")
        for c in ("k <> 0 AND 10 / k > 1", "10 / k > 1 AND k <> 0")
    ]
    assert len(hidden(db)) == len(subs) == 2


def test_many_that_subscribe_first_at_once_build_one_query(db: Database) -> None:
    db.insert("t", *((i, "x") for i in range(10)))
    subs: list[Subscription] = []
    ready = threading.Barrier(8)

    def join() -> None:
        ready.wait()
        subs.append(following(db, "SUBSCRIBE (SELECT k, v FROM t) WITH (snapshot = true)"))

    threads = [threading.Thread(target=join) for _ in range(8)]
    for t in threads:
        t.start()
    for i in range(10, 30):
        db.insert("t", (i, "x"))
    for t in threads:
        t.join()
    assert len(hidden(db)) == 1
    want = Counter({(i, "x"): 1 for i in range(30)})
    for s in subs:
        assert drained(s, 30) == want
        s.cancel()
    assert hidden(db) == []


def test_release_and_resubscribe_loses_and_repeats_nothing(db: Database) -> None:
    before = db.state()
    threads = threading.active_count()
    for i in range(20):
        db.insert("t", (i, "x"))
        with following(db, "SUBSCRIBE (SELECT k, v FROM t) WITH (snapshot = true)") as sub:
            assert drained(sub, i + 1) == Counter({(j, "x"): 1 for j in range(i + 1)})
    after = db.state()
    assert {k: v for k, v in after.items() if k != "log"} == {k: v for k, v in before.items() if k != "log"}
    assert threading.active_count() <= threads + 1


def test_a_dropped_table_ends_its_readers_and_the_query_can_come_back(db: Database) -> None:
    sub = following(db, "SUBSCRIBE (SELECT k, v FROM t)")
    db.run("DROP TABLE t CASCADE")
    assert list(sub) == []
    db.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
    again = following(db, "SUBSCRIBE (SELECT k, v FROM t)")
    db.insert("t", (1, "a"))
    assert rows(again.next(SOON_S)) == [{"k": 1, "v": "a", "__weight": 1}]


def test_options_in_sql_are_those_of_python(db: Database) -> None:
    sub = following(
        db,
        "SUBSCRIBE t WITH (policy = 'Coalesce', buffer_bytes = 1000, buffer_messages = 2, name = 'dash', progress = true)",
    )
    limits = sub._options.limits
    assert (limits.policy, limits.bytes, limits.messages) == ("coalesce", 1000, 2)
    for text, code in (
        ("policy = 'fast'", "PSK-1011"),
        ("buffer_bytes = 'x'", "PSK-1011"),
        ("buffer_bytes = 0", "PSK-1011"),
        ("as_of = 1", "PSK-1010"),
    ):
        with pytest.raises(PenstockError) as error:
            db.run(f"SUBSCRIBE t WITH ({text})")
        assert error.value.code == code


def test_show_and_kill(db: Database) -> None:
    one = following(db, "SUBSCRIBE t WITH (name = 'dash')")
    two = following(db, "SUBSCRIBE (SELECT k,  v FROM t) WITH (policy = 'latest')")
    db.insert("t", (1, "a"))
    rows(one.next(SOON_S))
    rows(two.next(SOON_S))
    shown = db.run("SHOW SUBSCRIPTIONS").to_pylist()
    assert [(r["id"], r["name"], r["object"], r["policy"], r["messages"], r["rows"]) for r in shown] == [
        (one.id, "dash", "t", "block", 1, 1),
        (two.id, None, "SELECT k, v FROM t", "latest", 1, 1),
    ]
    assert shown[0]["lsn"] == db.engine.log.last_entry(db.engine.catalog.get("t").id).lsn  # type: ignore[union-attr]
    db.run(f"KILL SUBSCRIPTION {two.id}")
    assert hidden(db) == [] and [r["id"] for r in db.run("SHOW SUBSCRIPTIONS").to_pylist()] == [one.id]
    with pytest.raises(PenstockError, match="PSK-5018"):
        two.next(SOON_S)
    assert two.closed
    with pytest.raises(PenstockError, match="PSK-1002"):
        db.run(f"KILL SUBSCRIPTION {two.id}")
    two.kill()
    db.insert("t", (2, "b"))
    assert rows(one.next(SOON_S)) == [{"k": 2, "v": "b", "__weight": 1}]


def test_kill_wakes_a_reader_that_waits(db: Database) -> None:
    sub = following(db, "SUBSCRIBE t")
    failed: list[str] = []

    def read() -> None:
        try:
            sub.next(SOON_S)
        except PenstockError as error:
            failed.append(error.code)

    reader = threading.Thread(target=read)
    reader.start()
    db.run(f"KILL SUBSCRIPTION {sub.id}")
    reader.join(SOON_S)
    assert failed == ["PSK-5018"]


def test_a_reader_continues_after_the_lsn_that_it_has_seen(db: Database) -> None:
    db.run("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t")
    for name in ("t", "m"):
        sub = following(db, f"SUBSCRIBE {name} WITH (snapshot = true)")
        seen = sub.next(SOON_S)
        assert seen is not None
        have = Counter({(r["k"], r["v"]): r["__weight"] for r in seen.rows()})
        for i in range(5):
            db.insert("t", (100 * len(name) + i + ord(name), "x"))
            seen = sub.next(SOON_S)
            assert seen is not None
            for r in seen.rows():
                have[r["k"], r["v"]] += r["__weight"]
        sub.cancel()
        for i in range(5):
            db.insert("t", (2000 + ord(name) * 10 + i, "y"))
        db.rows("m")
        again = following(db, f"SUBSCRIBE {name} AS OF LSN {seen.lsn} UP TO LSN {db.engine.log.head}")
        at, changes = seen.lsn, list(again)
        assert changes and {c.kind for c in changes} == {"changes"}
        for c in changes:
            assert c.prev_lsn == at
            at = c.lsn
            for r in c.rows():
                have[r["k"], r["v"]] += r["__weight"]
        assert have == db.rows(name)


def test_contents_as_of_an_lsn(db: Database) -> None:
    lsns = [db.engine.writer.insert("t", [(i, "x")]) for i in range(3)]
    sub = following(db, f"SUBSCRIBE t AS OF LSN {lsns[1]} UP TO LSN {lsns[2]} WITH (snapshot = true)")
    kinds = [(c.kind, [r["k"] for r in c.rows()]) for c in sub]
    assert kinds == [("snapshot", [0, 1]), ("changes", [2])]


def test_up_to_an_lsn_that_is_still_to_come(db: Database) -> None:
    db.run("CREATE TABLE other (k BIGINT PRIMARY KEY)")
    head = db.engine.log.head
    sub = following(db, f"SUBSCRIBE t UP TO LSN {head + 2}")
    db.insert("t", (1, "x"))
    assert rows(sub.next(SOON_S)) == [{"k": 1, "v": "x", "__weight": 1}]
    assert sub.next(0) is None and not sub.closed
    # Another table passes the LSN; nothing of this one can come before it any more.
    db.insert("other", (1,))
    db.insert("t", (2, "x"))
    assert list(sub) == []


@pytest.mark.parametrize("gone", ["trimmed", "future", "recreated"])
def test_where_history_is_gone_the_answer_is_resync(db: Database, gone: str) -> None:
    lsn = db.engine.writer.insert("t", [(1, "a")])
    db.insert("t", (2, "b"))
    info = db.engine.catalog.get("t")
    assert info is not None
    if gone == "trimmed":
        db.engine.log.trim({info.id: db.engine.log.head})
    elif gone == "future":
        lsn = db.engine.log.head + 10
    else:
        db.run("DROP TABLE t; CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        db.insert("t", (1, "a"), (2, "b"))
    sub = following(db, f"SUBSCRIBE t AS OF LSN {lsn}")
    first = sub.next(SOON_S)
    assert first is not None
    assert (first.kind, sorted(r["k"] for r in first.rows())) == ("resync", [1, 2])
    assert first.reason is not None and str(lsn) in first.reason
    db.insert("t", (3, "c"))
    assert [r["k"] for r in rows(sub.next(SOON_S))] == [3]


def test_a_query_resumes_by_lsn_while_somebody_else_keeps_it(db: Database) -> None:
    text = "SUBSCRIBE (SELECT k, v FROM t)"
    keeper, sub = following(db, text), following(db, text)
    db.insert("t", (1, "a"))
    seen = sub.next(SOON_S)
    assert seen is not None
    sub.cancel()
    db.insert("t", (2, "b"))
    keeper.next(SOON_S)
    keeper.next(SOON_S)
    with following(db, f"{text} AS OF LSN {seen.lsn}") as again:
        assert [(c["k"], c["__weight"]) for c in rows(again.next(SOON_S))] == [(2, 1)]
    keeper.cancel()
    with following(db, f"{text} AS OF LSN {seen.lsn}") as anew:
        first = anew.next(SOON_S)
        assert first is not None and first.kind == "resync"
        assert sorted(r["k"] for r in first.rows()) == [1, 2]


def test_one_condition_is_evaluated_once_for_all_readers(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    matching = db.engine.store.matching
    monkeypatch.setattr(db.engine.store, "matching", lambda *a: calls.append(1) or matching(*a))
    subs = [following(db, "SUBSCRIBE t WHERE v = 'x' AND k > 1") for _ in range(5)]
    db.insert("t", (1, "x"), (2, "x"), (3, "y"))
    for s in subs:
        assert rows(s.next(SOON_S)) == [{"k": 2, "v": "x", "__weight": 1}]
    assert len(calls) == 1
    db.run("UPDATE t SET v = 'y' WHERE k = 2")
    assert rows(subs[0].next(SOON_S)) == [{"k": 2, "v": "x", "__weight": -1}]
    with pytest.raises(PenstockError, match="PSK-1004"):
        db.run("SUBSCRIBE t WHERE nothing = 1")


def test_history_is_replayed_one_epoch_at_a_time(db: Database) -> None:
    """A reader of a long past holds one epoch of it in memory, whatever its buffer is."""
    for i in range(50):
        db.insert("t", *((100 * i + j, "x" * 100) for j in range(100)))
    sub = following(db, "SUBSCRIBE t AS OF EPOCH 1 WITH (buffer_bytes = 1000, buffer_messages = 1)")
    for i in range(50):
        assert sub.pending == (0, 0)
        assert sorted(r["k"] for r in rows(sub.next(SOON_S))) == [100 * i + j for j in range(100)]


def test_input_lsns_survive_replay_and_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING); CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t")
        db.engine.start()
        live = following(db, "SUBSCRIBE m")
        lsn = db.engine.writer.insert("t", [(1, "a")])
        first = live.next(SOON_S)
        assert first is not None and first.input_lsn == lsn < first.lsn
        replayed = following(db, "SUBSCRIBE m AS OF EPOCH 1").next(SOON_S)
        assert replayed is not None and (replayed.lsn, replayed.input_lsn) == (first.lsn, lsn)
    with database(tmp_path, monkeypatch) as db:
        contents = following(db, "SUBSCRIBE m WITH (snapshot = true)").next(SOON_S)
        assert contents is not None and (contents.lsn, contents.input_lsn) == (first.lsn, lsn)
        missed = following(db, f"SUBSCRIBE m AS OF LSN {first.prev_lsn}").next(SOON_S)
        assert missed is not None


def group(db: Database, *names: str, snapshot: bool = True) -> GroupSubscription:
    return subscribe_group(db.engine, names, SubscribeOptions(snapshot=snapshot))


def folded(have: dict[str, Counter[tuple[Any, ...]]], change: GroupChange) -> None:
    for name, table in change.tables.items():
        if change.kind != "changes":
            have[name] = Counter()
        for row in table.to_pylist():
            weight = row.pop("__weight")
            have[name][tuple(row.values())] += weight


def test_what_holds_between_the_members_of_a_group_holds_after_every_message(db: Database) -> None:
    """Two tables that one commit changes together, a view of each in a job of its own: all four always have the same keys."""
    db.run("CREATE TABLE u (k BIGINT PRIMARY KEY, v STRING)")
    db.run("CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t; CREATE MATERIALIZED VIEW b AS SELECT k, v FROM u")
    names, commits = ("t", "u", "a", "b"), times(200, quick=60)

    def write() -> None:
        for i in range(commits):
            with_both = [
                (info, "insert", db.engine.storage.feed(info).part([(i, "x")]))
                for info in (db.engine.catalog.get("t"), db.engine.catalog.get("u"))
                if info is not None
            ]
            db.engine.writer.commit(with_both)  # type: ignore[arg-type]

    have: dict[str, Counter[tuple[Any, ...]]] = {n: Counter() for n in names}
    writer = threading.Thread(target=write)
    with group(db, *names) as sub:
        writer.start()
        at, messages = 0, 0
        deadline = time.monotonic() + SOON_S
        while len(have["t"]) < commits and time.monotonic() < deadline:
            change = sub.next(1)
            if change is None:
                continue
            assert change.kind == ("changes" if messages else "snapshot")
            assert change.prev_lsn == at < change.lsn or not messages
            at, messages = change.lsn, messages + 1
            folded(have, change)
            assert have["t"] == have["u"] == have["a"] == have["b"], change
        writer.join()
    assert len(have["t"]) == commits


def test_a_group_without_contents_begins_at_one_lsn(db: Database) -> None:
    db.run("CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t")
    db.insert("t", (1, "x"))
    with group(db, "t", "a", snapshot=False) as sub:
        assert sub.next(0.2) is None
        db.insert("t", (2, "x"))
        change = sub.next(SOON_S)
        assert change is not None
        assert [[r["k"] for r in t.to_pylist()] for t in change.tables.values()] == [[2], [2]]


def test_a_group_whose_member_lost_messages_begins_again(db: Database) -> None:
    db.run("CREATE TABLE u (k BIGINT PRIMARY KEY, v STRING)")
    options = SubscribeOptions(snapshot=True, policy="resync", buffer_messages=1)
    with subscribe_group(db.engine, ["t", "u"], options) as sub:
        first = sub.next(SOON_S)
        assert first is not None and first.kind == "snapshot"
        for i in range(5):
            db.insert("t", (i, "x"))
        again = sub.next(SOON_S)
        assert again is not None
        assert (again.kind, again.tables["t"].num_rows, again.reason) == ("resync", 5, "the subscriber was too slow")
        db.run("DROP TABLE u")
        assert sub.next(SOON_S) is None and sub.closed


def test_what_a_group_cannot_do_is_refused(db: Database) -> None:
    db.run("CREATE STREAM s AS SELECT k FROM t")
    for names, options, code in (
        (["t", "T"], {}, "PSK-0009"),
        ([], {}, "PSK-0009"),
        (["t"], {"as_of": 1}, "PSK-1012"),
        (["t"], {"where": "k > 1"}, "PSK-1012"),
        (["s"], {}, "PSK-5012"),
        (["nothing"], {}, "PSK-1002"),
    ):
        with pytest.raises(PenstockError) as error:
            subscribe_group(db.engine, names, SubscribeOptions(**options))  # type: ignore[arg-type]
        assert error.value.code == code
    for text, code in (
        ("SUBSCRIBE t, u WHERE k > 1", "PSK-1012"),
        ("SUBSCRIBE t, (SELECT 1)", "PSK-1001"),
    ):
        with pytest.raises(PenstockError) as error:
            db.run(text)
        assert error.value.code == code


def test_a_group_in_sql_ends_at_an_lsn_and_resumes_after_one(db: Database) -> None:
    db.run("CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t")
    lsns = [db.engine.writer.insert("t", [(i, "x")]) for i in range(6)]
    have: dict[str, Counter[tuple[Any, ...]]] = {"t": Counter(), "a": Counter()}
    with db.run("SUBSCRIBE TO t, a WITH (snapshot = true)") as sub:
        assert isinstance(sub, GroupSubscription)
        first = sub.next(SOON_S)
        assert first is not None and first.lsn == lsns[-1]
        folded(have, first)
        assert {(r["object"], r["row"]["k"]) for r in first.rows()} == {(n, i) for n in ("t", "a") for i in range(6)}
    more = []
    for i in range(6, 9):
        more.append(db.engine.writer.insert("t", [(i, "y")]))
        # An epoch of the view that had two of them would reach across the end.
        db.engine.flush(SOON_S)
    at = first.lsn
    with db.run(f"SUBSCRIBE t, a AS OF LSN {at} UP TO LSN {more[1]}") as again:
        for change in again:
            assert (change.kind, change.prev_lsn) == ("changes", at)
            assert change.lsn <= more[1]
            at = change.lsn
            folded(have, change)
            assert have["t"] == have["a"]
        assert again.closed and len(have["t"]) == 8 and at == more[1]
    with db.run(f"SUBSCRIBE t, a AS OF LSN {more[-1] + 1000}") as ahead:
        change = ahead.next(SOON_S)
        assert change is not None and change.kind == "resync" and "not in the log" in (change.reason or "")
        assert [t.num_rows for t in change.tables.values()] == [9, 9]


def test_a_condition_that_the_store_cannot_evaluate_is_one_query_for_all(db: Database) -> None:
    first = following(db, "SUBSCRIBE t WHERE xxhash64(k) <> 0")
    second = following(db, "SUBSCRIBE t where  XXHASH64( k )<>0 WITH (snapshot = true, envelope = 'upsert')")
    assert len(hidden(db)) == 1
    third = following(db, "SUBSCRIBE (SELECT k AS one FROM t) WHERE xxhash64(one) <> 0")
    assert len(hidden(db)) == 3
    db.insert("t", (1, "a"))
    assert rows(first.next(SOON_S)) == [{"k": 1, "v": "a", "__weight": 1}]
    assert rows(second.next(SOON_S)) == []
    assert rows(second.next(SOON_S)) == [{"k": 1, "v": "a", "__op": "upsert"}]
    assert rows(third.next(SOON_S)) == [{"one": 1, "__weight": 1}]
    assert {s.figures.object for s in (first, second)} == {"t"}
    with pytest.raises(PenstockError, match="PSK-5012"):
        db.run("SUBSCRIBE t AS OF EPOCH 1 WHERE xxhash64(k) <> 0")
    for sub in (first, second, third):
        sub.cancel()
    assert hidden(db) == [] and db.engine.hidden == {}


def test_a_group_can_be_a_cursor(db: Database) -> None:
    db.run("CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t")
    db.insert("t", (1, "x"), (2, "\u2028y"))
    db.run("DECLARE c CURSOR FOR SUBSCRIBE t, a WITH (snapshot = true)")
    found = db.run("FETCH ALL FROM c")
    assert found.column_names == ["object", "row", "lsn", "__weight"]
    rows = [(r["object"], json.loads(r["row"])["v"], r["__weight"]) for r in found.to_pylist()]
    assert sorted(rows) == [("a", "x", 1), ("a", "\u2028y", 1), ("t", "x", 1), ("t", "\u2028y", 1)]
    db.run("DELETE FROM t WHERE k = 1")
    found = db.run("FETCH NEXT FROM c")
    assert [(r["object"], r["__weight"]) for r in found.to_pylist()] == [("t", -1), ("a", -1)]
    db.run("CLOSE c")
    assert db.engine.hub.subscriptions() == []


def test_every_option_of_python_has_a_form_in_sql(db: Database) -> None:
    """A cursor takes what SUBSCRIBE takes."""
    clauses = {
        "as_of": "AS OF EPOCH 1",
        "as_of_lsn": "AS OF LSN 1",
        "up_to": "UP TO EPOCH 9",
        "up_to_lsn": "UP TO LSN 9",
    }
    values = {"snapshot": "true", "progress": "true", "envelope": "'debezium'", "policy": "'latest'", "name": "'me'"}
    values |= {"buffer_bytes": "1000", "buffer_messages": "3"}
    db.insert("t", (1, "x"))
    for option in fields(SubscribeOptions):
        name = option.name
        text = clauses.get(name) or ("WHERE k > 0" if name == "where" else f"WITH ({name} = {values[name]})")
        db.run(f"DECLARE c CURSOR FOR SUBSCRIBE t {text}")
        (sub,) = db.engine.hub.subscriptions()
        assert getattr(sub._options, name) != option.default, name
        db.run("CLOSE c")
