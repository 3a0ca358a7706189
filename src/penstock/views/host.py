"""Views over hidden tables of a database, which a program feeds with diffs at its own LSNs."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.api.database import Database
from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.lifecycle import State
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import drop
from penstock.runtime.statements.subscribe import origin_of
from penstock.runtime.storage.writes import Write
from penstock.serve.options import SubscribeOptions
from penstock.serve.subscription import Subscription
from penstock.serve.zset import weighted
from penstock.sql.bind import bind
from penstock.views.plan import CompiledPlan, Inputs, Row, to_rows

_numbers = itertools.count(1)

Diff = tuple[str, Row, int]
"""A table, one of its rows, and a signed multiplicity."""


class AggregateDelta(NamedTuple):
    """One row of a view that changed. `lsn` is that of the write that caused it; `diff` is the signed multiplicity."""

    row: Row
    lsn: int
    diff: int


class Hosted(NamedTuple):
    """The rows of a view as of an LSN."""

    rows: list[Row]
    lsn: int


class WalUpdate(NamedTuple):
    table: str
    row: Row
    diff: int


class WalTransaction(NamedTuple):
    """One commit of the program's log, over one or several tables."""

    commit_lsn: int
    updates: Sequence[WalUpdate]


@dataclass
class _View:
    """A running plan. `lock` serialises all reads and changes; the host's lock is never held meanwhile."""

    plan: CompiledPlan
    tables: Mapping[str, ObjectInfo]
    info: ObjectInfo
    changes: Subscription
    lsn: int
    subscribers: list[int] = field(default_factory=list)
    gone: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class PersistentHost:
    """Maintains compiled plans, each once for any number of subscribers. Thread-safe.

    The input tables and the view of a plan are hidden objects of the database, so plans run in its jobs; they end with the last
    subscriber, or with the process. A plan is built without holding the host's lock. Calls that change a plan and calls that
    read it are serialised, so an attached subscriber gets every delta after its LSN, and none at or before it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._views: dict[str, _View] = {}
        self._lock = threading.Lock()

    @property
    def _engine(self) -> Engine:
        return self._database._engine

    # Subscribers

    def cached_view(self, canonical: str, subscriber: int) -> Hosted | None:
        """Attaches a subscriber and reads the view, in one step; None if the plan is not hosted."""
        view = self._views.get(canonical)
        if view is None:
            return None
        with view.lock:
            return None if view.gone else self._attach(view, subscriber)

    def register_or_seed(
        self, canonical: str, plan: CompiledPlan, inputs: Inputs, snapshot_lsn: int, subscriber: int
    ) -> Hosted:
        """Attaches a subscriber to the plan, which the first one builds and seeds. The loser of that race drops its work and gets the winner's
        rows and LSN."""
        found = self.cached_view(canonical, subscriber)
        while found is None:
            made = self._build(plan, inputs, snapshot_lsn)
            with self._lock:
                won = self._views.setdefault(canonical, made)
            if won is not made:
                self._destroy(made)
            with won.lock:
                # The winner may have been released meanwhile.
                found = None if won.gone else self._attach(won, subscriber)
        return found

    def subscribers(self, canonical: str) -> list[int] | None:
        view = self._views.get(canonical)
        if view is None:
            return None
        with view.lock:
            return None if view.gone else list(view.subscribers)

    def release(self, canonical: str, subscriber: int) -> int:
        """Detaches a subscriber and returns how many remain; without any, the plan is dropped with its state and files."""
        view = self._views.get(canonical)
        if view is None:
            return 0
        with view.lock:
            if subscriber in view.subscribers:
                view.subscribers.remove(subscriber)
            remaining = len(view.subscribers)
            if remaining or view.gone:
                return remaining
            view.gone = True
            with self._lock:
                self._views.pop(canonical, None)
        self._destroy(view)
        return 0

    def close(self) -> None:
        """Releases every plan."""
        for canonical, view in list(self._views.items()):
            for subscriber in list(view.subscribers):
                self.release(canonical, subscriber)

    def _attach(self, view: _View, subscriber: int) -> Hosted:
        table, _, _ = self._engine.store.snapshot(view.info.id)
        view.subscribers.append(subscriber)
        return Hosted(to_rows(table), view.lsn)

    # Diffs

    def push_table_diff(self, canonical: str, table: str, row: Row, diff: int, lsn: int) -> list[AggregateDelta]:
        """Applies one diff; returns the resulting deltas, none if the plan is gone."""
        return self.push_table_batch(canonical, [(table, row, diff)], lsn)

    def push_table_batch(self, canonical: str, diffs: Iterable[Diff], lsn: int) -> list[AggregateDelta]:
        """Applies a batch at one LSN."""
        applied = self.apply_and_fanout(canonical, diffs, lsn)
        return [] if applied is None else applied[0]

    def push_transaction(self, canonical: str, transaction: WalTransaction) -> list[AggregateDelta]:
        """Applies one commit over several tables."""
        return self.push_table_batch(canonical, transaction.updates, transaction.commit_lsn)

    def apply_and_fanout(
        self, canonical: str, diffs: Iterable[Diff], lsn: int
    ) -> tuple[list[AggregateDelta], list[int]] | None:
        """Applies a batch of diffs atomically at one LSN. Returns the consolidated deltas of the view at that LSN, and the subscribers that get them; None if the plan
        is gone. Retracting a missing row is PSK-5008; LSNs must increase (PSK-0009)."""
        view = self._views.get(canonical)
        if view is None:
            return None
        with view.lock:
            if view.gone:
                return None
            if lsn <= view.lsn:
                raise fail("PSK-0009", f"LSN {lsn} is not after LSN {view.lsn}, which {canonical} stands for.")
            deltas = self._apply(view, diffs, lsn)
            view.lsn = lsn
            return deltas, list(view.subscribers)

    def _apply(self, view: _View, diffs: Iterable[Diff], lsn: int) -> list[AggregateDelta]:
        written = self._write(view.plan, view.tables, diffs)
        if written is None:
            return []
        self._settle(view.info, written)
        net: Counter[Row] = Counter()
        while (change := view.changes.next(0)) is not None:
            for *row, weight in to_rows(weighted(change.table)):
                net[tuple(row)] += weight
        # Retractions first, as in every changelog.
        return sorted((AggregateDelta(r, lsn, n) for r, n in net.items() if n), key=lambda d: d.diff)

    def _write(self, plan: CompiledPlan, tables: Mapping[str, ObjectInfo], diffs: Iterable[Diff]) -> int | None:
        """Commits diffs and returns the LSN in the database; None if they cancel out."""
        net: dict[str, Counter[Row]] = {}
        for table, row, diff in diffs:
            if table not in tables:
                raise fail("PSK-1002", f"{table} is not read by the plan.", hint=f"It reads {', '.join(tables)}.")
            net.setdefault(table, Counter())[tuple(row)] += diff
        writes: list[Write] = []
        for table, rows in net.items():
            info = tables[table]
            feed = self._engine.storage.feed(info)
            new = [r for r, n in rows.items() for _ in range(n)]
            old = [r for r, n in rows.items() for _ in range(-n)]
            writes += [(info, "insert", feed.part(new))] if new else []
            writes += [(info, "delete", feed.part(old))] if old else []
        return self._engine.writer.commit(writes) if writes else None

    def _settle(self, info: ObjectInfo, lsn: int) -> None:
        engine = self._engine
        engine.check_open()
        if not engine.running:
            raise fail("PSK-7006", "The pipeline is stopped, so no view follows.", hint="START PIPELINE starts it.")
        engine.jobs.settle(info, lsn, None)
        error = engine.jobs.uncomputed([info])
        if error is not None:
            raise error

    # Plans

    def _build(self, plan: CompiledPlan, inputs: Inputs, lsn: int) -> _View:
        engine = self._engine
        engine.check_open()
        for table in inputs:
            plan.rows(table, ())
        number = next(_numbers)
        tables = self._tables(plan, number)
        try:
            seeds = [(t, row, 1) for t, rows in inputs.items() if t in tables for row in rows]
            written = self._write(plan, tables, seeds)
            info = self._view(plan, tables, number)
            self._settle(info, engine.log.head if written is None else written)
            changes = engine.hub.subscribe(info.id, origin_of(engine, info, SubscribeOptions()))
        except BaseException:
            self._drop(tables.values())
            raise
        return _View(plan, tables, info, changes, lsn)

    def _tables(self, plan: CompiledPlan, number: int) -> dict[str, ObjectInfo]:
        engine = self._engine
        with engine.ddl, drafting(engine) as draft:
            made = {
                name: ObjectInfo(
                    id=draft.new_id(),
                    name=f"__host_{number}_{name}",
                    kind=Kind.TABLE,
                    columns=plan.tables[name],
                    changelog=True,
                    # The program has its own log, so no history is needed here.
                    options={"retain_history": "0b"},
                    role=Role.SUBSCRIPTION,
                )
                for name in plan.inputs
            }
            for info in made.values():
                draft.attach(info)
        return made

    def _view(self, plan: CompiledPlan, tables: Mapping[str, ObjectInfo], number: int) -> ObjectInfo:
        engine = self._engine
        rules = json.dumps({name: info.name for name, info in tables.items()})
        text = f"CREATE MATERIALIZED VIEW hosted AS {plan.query.text}"
        with engine.ddl:
            seen = ObjectInfo(0, "", Kind.VIEW, (), options={"rules": rules})
            bound = bind(plan.query, engine.catalog.as_read_by(seen))
            with drafting(engine) as draft:
                name = f"__host_{number}"
                return add_query(draft, name, Kind.VIEW, plan.query, text, Role.SUBSCRIPTION, bound=bound, rules=rules)

    def _destroy(self, view: _View) -> None:
        view.changes.cancel()
        self._drop(view.tables.values())

    def _drop(self, tables: Iterable[ObjectInfo]) -> None:
        """Drops input tables, and with them the view that reads them."""
        engine = self._engine
        with engine.ddl:
            for info in tables:
                if engine.lifecycle.state is not State.CLOSED and engine.catalog.has_id(info.id):
                    drop(engine, info, cascade=True)
