"""Random traces of writers and subscribers, on an engine whose queries copy rows. After every step, each subscriber's folded messages are what the
objects contain, and its messages have no gap."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as hs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from tests.effort import times
from tests.unit.ducks import reuse
from tests.unit.runtime.engines import Database, database

from penstock.catalog.objects import Kind
from penstock.runtime.statements.subscribe import subscribe_group
from penstock.runtime.storage import storage
from penstock.serve.group import GroupSubscription
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.subscription import Subscription

SOON_S = 20.0
TABLES = ("t", "u")
TARGETS = (
    "t",
    "u",
    "a",
    "b",
    "(SELECT k, v FROM t)",
    "(select x.k, x.v from T x)",
    "(SELECT k, v FROM u)",
)
OF = dict(zip(TARGETS, ("t", "u", "t", "u", "t", "t", "u"), strict=True))
LOSSLESS: tuple[Policy, ...] = ("block", "coalesce", "resync")

Rows = Counter[tuple[Any, ...]]


@dataclass
class Reader:
    """One subscriber and what it knows. `stalled`: it does not read."""

    target: str
    policy: Policy
    subscription: Subscription
    rows: Rows = field(default_factory=Counter)
    lsn: int | None = None
    seq: int = 0
    stalled: bool = False
    gone: bool = False

    def read(self) -> None:
        while (change := self.subscription.next(0)) is not None:
            self.seq += 1
            assert change.seq == self.seq
            if change.kind in ("snapshot", "resync"):
                self.rows = Counter()
            elif self.lsn is not None:
                assert change.prev_lsn == self.lsn, "a gap, or a repetition"
                assert change.kind != "changes" or change.table.num_rows, "a message without changes"
            assert change.lsn >= change.input_lsn
            self.lsn = change.lsn
            for row in change.rows():
                weight = row.pop("__weight")
                self.rows[tuple(row.values())] += weight
                assert self.rows[tuple(row.values())] >= 0, "retracted before it was there"
            self.rows = +self.rows


class LiveViews(RuleBasedStateMachine):
    readers: Bundle[Reader] = Bundle("readers")
    on_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        reuse(self.patch)
        if self.on_disk:
            self.patch.setattr(storage, "size_of", lambda text: 1)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.model: dict[str, dict[int, str]] = {t: {} for t in TABLES}
        self.all: list[Reader] = []
        self.groups: list[tuple[GroupSubscription, dict[str, Rows]]] = []
        self.values = itertools.count()
        self.of = dict(OF)
        self.altered = False
        self.db: Database
        self.opened = ExitStack()
        self.open()
        self.db.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING); CREATE TABLE u (k BIGINT PRIMARY KEY, v STRING)")
        self.db.run(
            "CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t; CREATE MATERIALIZED VIEW b AS SELECT k, v FROM u"
        )
        self.db.engine.start()

    def open(self) -> None:
        self.db = self.opened.enter_context(database(self.folder, self.patch))

    def teardown(self) -> None:
        for r in self.all:
            r.subscription.cancel()
        assert self.db.engine.hidden == {}
        self.opened.close()
        self.stack.close()

    def settle(self) -> None:
        self.db.rows("t")

    # Writers

    @rule(table=hs.sampled_from(TABLES), keys=hs.sets(hs.integers(0, 5), min_size=1))
    def insert(self, table: str, keys: set[int]) -> None:
        rows = [(k, f"v{next(self.values)}") for k in sorted(keys)]
        self.db.insert(table, *rows)
        self.model[table].update(rows)

    @rule(table=hs.sampled_from(TABLES), key=hs.integers(0, 5))
    def update(self, table: str, key: int) -> None:
        value = f"v{next(self.values)}"
        self.db.run(f"UPDATE {table} SET v = '{value}' WHERE k = {key}")
        if key in self.model[table]:
            self.model[table][key] = value

    @rule(table=hs.sampled_from(TABLES), key=hs.integers(0, 5))
    def delete(self, table: str, key: int) -> None:
        self.db.run(f"DELETE FROM {table} WHERE k = {key}")
        self.model[table].pop(key, None)

    @rule(key=hs.integers(0, 5))
    def commit_both(self, key: int) -> None:
        value = f"v{next(self.values)}"
        self.db.run(f"BEGIN; INSERT INTO t VALUES ({key}, '{value}'); INSERT INTO u VALUES ({key}, '{value}'); COMMIT")
        for t in TABLES:
            self.model[t][key] = value

    @rule(view=hs.sampled_from(("a", "b")), table=hs.sampled_from(TABLES))
    def alter(self, view: str, table: str) -> None:
        self.db.run(f"ALTER MATERIALIZED VIEW {view} AS SELECT k, v FROM {table} REBUILD")
        self.of[view] = table
        self.altered = True

    # Readers

    @rule(target=readers, name=hs.sampled_from(TARGETS), policy=hs.sampled_from(LOSSLESS))
    def subscribe(self, name: str, policy: Policy) -> Reader:
        limits = f"policy = '{policy}', buffer_messages = 2"
        made = self.db.run(f"SUBSCRIBE {name} WITH (snapshot = true, {limits})")
        self.all.append(Reader(name, policy, made))
        return self.all[-1]

    @rule()
    def follow_all(self) -> None:
        names = ("t", "u", "a", "b")
        made = subscribe_group(self.db.engine, names, SubscribeOptions(snapshot=True))
        self.groups.append((made, {n: Counter() for n in names}))

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
        """Disconnects and continues after the last LSN that it has seen."""
        reader.subscription.cancel()
        self.again(reader)

    def again(self, reader: Reader) -> None:
        if reader.gone:
            return
        at = f"AS OF LSN {reader.lsn}" if reader.lsn is not None else ""
        begin = "" if at else ", snapshot = true"
        reader.subscription = self.db.run(
            f"SUBSCRIBE {reader.target} {at} WITH (policy = '{reader.policy}', buffer_messages = 2{begin})"
        )
        reader.seq = 0

    @rule()
    def trim(self) -> None:
        """Nothing of the past of views is retained. The fake queries need that of tables."""
        self.settle()
        views = self.db.engine.catalog.objects(Kind.VIEW)
        self.db.engine.log.trim({o.id: self.db.engine.storage.save(o) for o in views})

    @precondition(lambda self: self.all)
    @rule()
    def restart(self) -> None:
        for made, _ in self.groups:
            made.cancel()
        self.groups.clear()
        self.opened.close()
        self.opened = ExitStack()
        self.open()
        self.db.engine.start()
        for reader in self.all:
            reader.subscription.cancel()
            self.again(reader)

    @invariant()
    def every_reader_has_what_is_there(self) -> None:
        if not hasattr(self, "db"):
            return
        want = {t: Counter(dict.fromkeys(rows.items(), 1)) for t, rows in self.model.items()}
        self.settle()
        for reader in self.all:
            if not reader.stalled:
                reader.read()
                assert reader.rows == want[self.of[reader.target]], reader
        for made, have in self.groups:
            while (change := made.next(0)) is not None:
                for name, table in change.tables.items():
                    if change.kind != "changes":
                        have[name] = Counter()
                    for row in table.to_pylist():
                        weight = row.pop("__weight")
                        have[name][tuple(row.values())] += weight
                    have[name] = +have[name]
                # The difference between two versions of a view comes apart from the changes of its inputs.
                assert self.altered or (have["t"] == have["a"] and have["u"] == have["b"])
            assert have == {name: want[self.of[name]] for name in have}


LiveViews.TestCase.settings = settings(
    max_examples=times(8, quick=3),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLiveViews = LiveViews.TestCase


class LiveViewsOnDisk(LiveViews):
    """The same, with contents that go to disk with their first row."""

    on_disk = True


LiveViewsOnDisk.TestCase.settings = settings(LiveViews.TestCase.settings, max_examples=times(2, quick=1))
TestLiveViewsOnDisk = LiveViewsOnDisk.TestCase
