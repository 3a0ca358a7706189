"""Random traces of writers and subscribers of aggregates and joins: after every commit each subscriber's folded messages are the batch result."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis.strategies as hs
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from tests.effort import times
from tests.spark.conftest import CONFIG, MASTER
from tests.unit.runtime.test_live_views import LOSSLESS, Reader, Rows

import penstock
from penstock.serve.options import Policy

SOON_S = 120.0
Model = dict[str, dict[int, str]]


def grouped(rows: dict[int, str], summary: Callable[[list[str]], tuple[Any, ...]]) -> Rows:
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for k, v in rows.items():
        groups[k % 2].append(v)
    return Counter((g, *summary(vs)) for g, vs in groups.items())


VIEWS: dict[str, tuple[tuple[str, Callable[[Model], Rows]], ...]] = {
    "a": (
        (
            "SELECT k % 2 AS g, count(*) AS n, max(v) AS m FROM t GROUP BY k % 2",
            lambda m: grouped(m["t"], lambda vs: (len(vs), max(vs))),
        ),
        (
            "SELECT k % 2 AS g, count(*) * 10 AS n, min(v) AS m FROM t GROUP BY k % 2",
            lambda m: grouped(m["t"], lambda vs: (len(vs) * 10, min(vs))),
        ),
    ),
    "b": (
        (
            "SELECT t.k, t.v, u.v AS w FROM t JOIN u ON t.k = u.k",
            lambda m: Counter((k, v, m["u"][k]) for k, v in m["t"].items() if k in m["u"]),
        ),
        (
            "SELECT t.k, t.v, u.v AS w FROM t JOIN u ON t.k = u.k WHERE t.k > 2",
            lambda m: Counter((k, v, m["u"][k]) for k, v in m["t"].items() if k in m["u"] and k > 2),
        ),
    ),
}
SELECTS: dict[str, Callable[[Model], Rows]] = {
    "SELECT v, k FROM u WHERE k < 4": lambda m: Counter((v, k) for k, v in m["u"].items() if k < 4),
    "select x.v, X.k as k from U x where 4 > x.k": lambda m: Counter((v, k) for k, v in m["u"].items() if k < 4),
    "SELECT count(*) AS n FROM t WHERE k IN (SELECT k FROM u)": lambda m: Counter([(len(m["t"].keys() & m["u"]),)]),
}


class Traces(RuleBasedStateMachine):
    readers: Bundle[Reader] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.model: Model = {"t": {}, "u": {}}
        self.version = dict.fromkeys(VIEWS, 0)
        self.all: list[Reader] = []
        self.values = itertools.count()
        self.db = penstock.open(self.folder, master=MASTER, config=CONFIG)
        for name in self.model:
            self.db.execute(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY, v STRING)")
        for name, versions in VIEWS.items():
            self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {versions[0][0]}")

    def teardown(self) -> None:
        for reader in self.all:
            reader.subscription.cancel()
        self.db.close()
        self.stack.close()

    def value(self) -> str:
        return f"{next(self.values):04}"

    @rule(table=hs.sampled_from(("t", "u")), keys=hs.sets(hs.integers(0, 5), min_size=1))
    def insert(self, table: str, keys: set[int]) -> None:
        rows = [(k, self.value()) for k in sorted(keys)]
        self.db.insert(table, rows)
        self.model[table].update(rows)

    @rule(table=hs.sampled_from(("t", "u")), low=hs.integers(0, 5))
    def update(self, table: str, low: int) -> None:
        value = self.value()
        self.db.execute(f"UPDATE {table} SET v = '{value}' WHERE k >= {low}")
        self.model[table].update({k: value for k in self.model[table] if k >= low})

    @rule(table=hs.sampled_from(("t", "u")), key=hs.integers(0, 5))
    def delete(self, table: str, key: int) -> None:
        self.db.execute(f"DELETE FROM {table} WHERE k = {key}")
        self.model[table].pop(key, None)

    @rule(key=hs.integers(0, 5))
    def commit_both(self, key: int) -> None:
        value = self.value()
        with self.db.transaction() as both:
            for table in self.model:
                both.insert(table, [(key, value)])
                self.model[table][key] = value

    @rule(view=hs.sampled_from(sorted(VIEWS)), rebuild=hs.booleans())
    def alter(self, view: str, rebuild: bool) -> None:
        self.version[view] = 1 - self.version[view]
        # The input of the join is another one, so nothing of it can be taken over.
        again = " REBUILD" if rebuild or view == "b" else ""
        self.db.execute(f"ALTER MATERIALIZED VIEW {view} AS {VIEWS[view][self.version[view]][0]}{again}")

    @rule(
        target=readers,
        name=hs.sampled_from(("t", *VIEWS, *SELECTS)),
        policy=hs.sampled_from(LOSSLESS),
    )
    def subscribe(self, name: str, policy: Policy) -> Reader:
        made = self.db.subscribe(name, snapshot=True, policy=policy, buffer_messages=2)
        self.all.append(Reader(name, policy, made))
        return self.all[-1]

    @rule(reader=readers)
    def stall(self, reader: Reader) -> None:
        reader.stalled = True

    @rule(reader=readers)
    def catch_up(self, reader: Reader) -> None:
        reader.stalled = False

    @rule(reader=consumes(readers))
    def release(self, reader: Reader) -> None:
        reader.subscription.cancel()
        reader.gone = True
        self.all.remove(reader)

    @rule(reader=readers)
    def resume(self, reader: Reader) -> None:
        reader.subscription.cancel()
        self.again(reader)

    def again(self, reader: Reader) -> None:
        if not reader.gone:
            begin: dict[str, Any] = {"as_of_lsn": reader.lsn} if reader.lsn is not None else {"snapshot": True}
            reader.subscription = self.db.subscribe(reader.target, policy=reader.policy, buffer_messages=2, **begin)
            reader.seq = 0

    @rule()
    def restart(self) -> None:
        for reader in self.all:
            reader.subscription.cancel()
        self.db.close()
        self.db = penstock.open(self.folder, master=MASTER, config=CONFIG)
        for reader in self.all:
            self.again(reader)

    @invariant()
    def every_reader_has_the_batch_result(self) -> None:
        self.db.flush(timeout=SOON_S)
        for reader in self.all:
            if not reader.stalled:
                reader.read()
                assert reader.rows == self.expected(reader.target), reader

    def expected(self, target: str) -> Rows:
        if target in self.model:
            return Counter(self.model[target].items())
        if target in VIEWS:
            return VIEWS[target][self.version[target]][1](self.model)
        return SELECTS[target](self.model)


def test_every_reader_has_the_batch_result_after_every_commit(first_database: penstock.Database) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Traces,
        settings=settings(
            max_examples=times(4, quick=1),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            database=None,
        ),
    )
