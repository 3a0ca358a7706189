"""Races of those who join, build, write and release, in every order of their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.effort import times
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.interleaving import Interleaving, numbered, orders, spread

from penstock.runtime.statements import subscribe as subscribing
from penstock.serve.subscription import Subscription
from penstock.views import PersistentHost, compile_plan

SOON_S = 20.0
SQL = "SELECT id, value FROM events"
EVENTS = {"events": "id BIGINT, value BIGINT"}


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        made.engine.start()
        yield made


def clean(state: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in state.items() if k != "log"}


def test_the_orders_of_two_threads() -> None:
    assert orders(a=2, b=1) == ["aab", "aba", "baa"]
    assert len(orders(a=3, b=3)) == 20


# The host


@pytest.fixture
def host(db: Database) -> PersistentHost:
    surface: Any = SimpleNamespace(_engine=db.engine)
    return PersistentHost(surface)


def joining(db: Database, host: PersistentHost, canonical: str, lsn: int, number: int) -> Any:
    surface: Any = SimpleNamespace(_engine=db.engine)
    plan = compile_plan(surface, SQL, EVENTS)
    return lambda: host.register_or_seed(canonical, plan, {"events": [(lsn, lsn)]}, lsn, number)


def test_whoever_loses_a_cold_start_gets_the_rows_and_the_lsn_of_the_winner(
    db: Database, host: PersistentHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.state()
    steps = Interleaving(monkeypatch, (PersistentHost, "_build"), (PersistentHost, "_attach"))
    for number, order in numbered(spread(orders(a=3, b=3), times(10))):
        name = f"c{number}"
        got = steps.run(order, {"a": joining(db, host, name, 5, 1), "b": joining(db, host, name, 7, 2)})
        assert got["a"] == got["b"] and got["a"] in (([(5, 5)], 5), ([(7, 7)], 7)), order
        assert sorted(host.subscribers(name) or ()) == [1, 2]
        deltas = host.push_table_diff(name, "events", (9, 9), 1, 10)
        assert [(d.row, d.lsn, d.diff) for d in deltas] == [((9, 9), 10, 1)]
        assert (host.release(name, 1), host.release(name, 2)) == (1, 0)
    assert clean(db.state()) == clean(before)


def test_a_late_joiner_gets_every_delta_after_its_lsn_and_none_before(
    db: Database, host: PersistentHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Interleaving(
        monkeypatch, (PersistentHost, "_attach"), (PersistentHost, "_apply"), (PersistentHost, "_settle")
    )
    for number, order in numbered(orders(w=3, j=2)):
        name = f"c{number}"
        joining(db, host, name, 1, 1)()
        got = steps.run(
            order,
            {
                "w": lambda name=name: host.apply_and_fanout(name, [("events", (2, 2), 1)], 2),
                "j": lambda name=name: host.cached_view(name, 2),
            },
        )
        rows, lsn = got["j"]
        deltas, told = got["w"]
        have = Counter(rows)
        # A delta is for whoever was attached when it was made: exactly those whose rows are older.
        assert (2 in told) == (lsn < 2), order
        have.update({d.row: d.diff for d in deltas if d.lsn > lsn})
        assert have == Counter([(1, 1), (2, 2)]), order
        host.release(name, 1)
        host.release(name, 2)


def test_a_plan_that_is_released_while_somebody_joins_is_there_or_is_built_anew(
    db: Database, host: PersistentHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.state()
    steps = Interleaving(
        monkeypatch, (PersistentHost, "_attach"), (PersistentHost, "_build"), (PersistentHost, "_destroy")
    )
    for number, order in numbered(orders(r=2, j=3)):
        name = f"c{number}"
        joining(db, host, name, 1, 1)()
        got = steps.run(order, {"r": lambda name=name: host.release(name, 1), "j": joining(db, host, name, 3, 2)})
        assert got["j"] in (([(1, 1)], 1), ([(3, 3)], 3)), order
        assert (got["r"] == 1) == (got["j"].lsn == 1), order
        assert host.subscribers(name) == [2]
        assert len(host.push_table_diff(name, "events", (9, 9), 1, 10)) == 1
        assert host.release(name, 2) == 0 and host.subscribers(name) is None
    assert clean(db.state()) == clean(before)


# Subscriptions


TEXT = "SUBSCRIBE (SELECT k, v FROM t) WITH (snapshot = true)"


def folded(sub: Subscription, until: int) -> Counter[tuple[Any, ...]]:
    """All changes up to and including the one that an LSN caused; they have no gap."""
    have: Counter[tuple[Any, ...]] = Counter()
    at: int | None = None
    while True:
        change = sub.next(SOON_S)
        assert change is not None
        assert at is None or change.prev_lsn == at, "a gap, or a repetition"
        at = change.lsn
        for row in change.rows():
            weight = row.pop("__weight")
            have[tuple(row.values())] += weight
            assert have[tuple(row.values())] in (0, 1)
        if change.input_lsn >= until:
            return +have


def test_cold_starts_beside_a_writer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.state()
    steps = Interleaving(monkeypatch, (subscribing, "acquire"), (subscribing, "catch_up"))
    want: Counter[tuple[Any, ...]] = Counter()
    for number, order in numbered(spread(orders(a=3, b=3, w=1), times(14))):
        row = (2 * number, "x")
        got = steps.run(
            order,
            {"a": lambda: db.run(TEXT), "b": lambda: db.run(TEXT), "w": lambda row=row: db.insert("t", row)},
        )
        assert len(db.engine.hidden) == 1, order
        last = (2 * number + 1, "y")
        lsn = db.engine.writer.insert("t", [last])
        want.update([row, last])
        for name in "ab":
            assert folded(got[name], lsn) == want, order
            got[name].cancel()
        assert db.engine.hidden == {}
    after = clean(db.state())
    assert after == clean(before)


def test_the_last_reader_leaves_while_another_one_comes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Interleaving(monkeypatch, (subscribing, "acquire"), (subscribing, "catch_up"), (subscribing, "release"))
    want: Counter[tuple[Any, ...]] = Counter()
    for number, order in numbered(spread(orders(r=2, j=3, w=1), times(14))):
        first = db.run(TEXT)
        row = (2 * number, "x")
        got = steps.run(order, {"r": first.cancel, "j": lambda: db.run(TEXT), "w": lambda row=row: db.insert("t", row)})
        last = (2 * number + 1, "y")
        lsn = db.engine.writer.insert("t", [last])
        want.update([row, last])
        assert folded(got["j"], lsn) == want, order
        assert len(db.engine.hidden) == 1
        got["j"].cancel()
        assert db.engine.hidden == {}
