"""Switching a query to another version, at one point of its output."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.plan import nodes as p
from penstock.plan.succession import obstacle, same_state, scanned
from penstock.query.lifecycle import QueryState
from penstock.query.output import Difference
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.job import Job
from penstock.runtime.statements.continuing import continue_with
from penstock.runtime.statements.rebuild import check_computed
from penstock.runtime.statements.subscribe import origin_of, published_head
from penstock.runtime.storage.contents import complete, read_entry
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.serve.change import Change
from penstock.serve.envelope import Form
from penstock.serve.message import Point
from penstock.serve.options import SubscribeOptions
from penstock.serve.zset import consolidate, negated
from penstock.spark.bridge import KernelJob

if TYPE_CHECKING:
    from penstock.query.query import StreamingQuery

_FOLDED_BYTES = 64 << 20
"""Changes are consolidated at this size."""
_REBUILD = "swap(new, rebuild=True) computes it from the rows that were submitted so far."


class Swap:
    """One attempt to replace the version of a running query. Until the switch everything can be undone, and the old version continues.

    Final results of the old version remain, and the new one adds to them. Results that can change become those of the new version at the switch, and the output includes the difference.
    """

    def __init__(self, query: StreamingQuery, new: StreamingQuery, rebuild: bool) -> None:
        self._query = query
        self._new = new
        self._rebuild = rebuild
        self._engine: Engine = query._engine
        info = query._info
        assert info is not None
        self._info = info
        self._inputs = {name: s._info for name, s in query._sources.items()}
        with self._engine.ddl:
            self._had = self._engine.jobs.plan(info).query
            self._has = new._bound(self._inputs)

    def run(self) -> None:
        if any(_stateful(q) or q.root.changelog for q in (self._had, self._has)):
            self._check()
            if self._carries_over():
                self._carry_over()
                return
            self._check_history()
            with self._beside(None) as made:
                self._switch(made)
        else:
            with self._beside(self._engine.log.head) as made:
                self._switch(made)

    # Refusals

    def _check(self) -> None:
        changing = [q for q in (self._had, self._has) if q.root.changelog]
        if len(changing) == 1:
            which = "new" if changing[0] is self._has else "old"
            raise fail(
                "PSK-6018",
                f"The results of the {which} version change, and those of the other are final.",
                hint="finish() this query, and start the other.",
            )
        why = None if self._rebuild else obstacle(self._had, self._has)
        if why is not None:
            raise fail("PSK-6018", f"The new version does not continue the old one. Of {why}.", hint=_REBUILD)

    def _check_history(self) -> None:
        """Refuses a swap that would need history that is gone, to compute or retract results."""
        log, catalog = self._engine.log, self._engine.catalog
        names = {info.id: name for name, info in self._inputs.items()}
        for i in dict.fromkeys(scanned(self._has)):
            o = catalog.by_id(i)
            if o.on_demand:
                raise fail("PSK-1012", f"{o.name} is looked up on demand, so its rows at earlier times are unknown.")
            if not o.has_contents and not complete(log, i):
                raise fail(
                    "PSK-5011",
                    f"The new version cannot be computed: of the rows of {names.get(i, o.name)} some are no longer retained.",
                    hint="CREATE SOURCE … WITH (retain_history = …) says how much is retained, also of what is submitted; or finish() this query, and start the other.",
                )
        if self._info.changelog and not complete(log, self._info.id):
            raise _unknown("old")

    def _carries_over(self) -> bool:
        """Whether the new version continues with the state of the old one: operators and columns are the same, and results are final."""
        if self._rebuild or self._had.root.changelog or not same_state(self._had, self._has):
            return False
        had, has = ([(c.name, c.type) for c in some] for some in (self._info.columns, self._new._compiled.columns))
        return had == has

    def _carry_over(self) -> None:
        query, compiled, engine = self._query, self._new._compiled, self._engine
        with self._standing_still(), engine.ddl:
            # The job restarts with a new clock, which is not held.
            query._runs.note(query._job)
            continue_with(engine, self._info, compiled.parsed, self._has, compiled.text)
            query._info = engine.catalog.by_id(self._info.id)
            self._take_over()

    # The version beside the old one

    @contextmanager
    def _beside(self, after: int | None) -> Iterator[ObjectInfo]:
        """The new version, after it has caught up. It reads all submitted rows, or those after an LSN. It is dropped unless the query takes it."""
        query = self._query
        made = self._new._make_output(self._inputs, after)
        try:
            for _ in range(2):  # The second round is short: only rows that arrived during the first.
                query._caught_up(made, None)
            check_computed(self._engine, made, "The new version")
            yield made
        except BaseException:
            if query._info is not made:
                query._drop_one(made)
            raise

    def _switch(self, made: ObjectInfo) -> None:
        """Switches the output to the new version."""
        query, engine = self._query, self._engine
        changing = self._info.changelog
        old, new = _Folded(engine, self._info, "old"), _Folded(engine, made, "new")
        changes = query._subscribed(made, SubscribeOptions())
        if changing:
            old.reach(published_head(engine, self._info))
            new.reach(published_head(engine, made))
        # Catch up first, including upstream queries, so that little is left while `submit` waits.
        self._settle_old()
        with self._standing_still(made):
            check_computed(engine, made, "The new version")
            if changing:
                # Entries in the log that are not published yet may no longer reach the readers.
                old.reach(published_head(engine, self._info))
            published_head(engine, made)
            # Skip changes from rows that both have processed: the old version's output has them.
            while changes.next(0) is not None:
                pass
            figures = changes.figures
            now = Point(figures.epoch, figures.lsn, figures.input_lsn)
            if changing:
                new.reach(now.lsn)
            difference = Difference() if changing else None
            with uninterrupted():
                # Output of the old version from now until it stops has no reader.
                last = engine.hub.end(self._info.id) or now
                if difference is not None:
                    query._output.insert(difference)
                query._output.follow(made, changes)
                ended = query._job
                query._runs.count(ended)
                query._info = made
                query._runs.skip(query._job)
                self._take_over()
        if difference is not None:
            _fill(difference, query, old, new, last, now)
        query._runs.skip_times(query._job)
        query._runs.time(ended)
        with engine.ddl, suppress(PenstockError):  # It is dropped once its output has been read.
            if engine.catalog.has_id(self._info.id):
                # START PIPELINE must not restart it.
                engine.jobs.paused.add(self._info.id)
                engine.jobs.stop(self._info)

    def _take_over(self) -> None:
        query, new = self._query, self._new
        query._compiled, query.sql, query.config = new._compiled, new.sql, new.config
        for writer in query._writers.values():
            writer.pace(new.config.batch_policy.max_rows, new.config.batch_policy.max_delay)

    @contextmanager
    def _standing_still(self, made: ObjectInfo | None = None) -> Iterator[None]:
        """Holds the versions at the point where they have processed exactly the rows submitted so far. `submit` waits only until that point is determined; reaching it takes at most `pause_timeout`."""
        query, engine = self._query, self._engine
        with query._lock, ExitStack() as held:
            query._expect("swap", QueryState.RUNNING)
            jobs = [query._job, *([engine.jobs.by_object.get(made.id)] if made is not None else [])]
            kernels = [job.kernel for job in jobs if job is not None]
            with query._gate:
                query._flush()
                # With the gate closed and nothing buffered, all submitted rows are in the log.
                lsn = engine.log.head
                for kernel in kernels:
                    held.callback(_let_go, kernel)
                    kernel.hold(lsn)
            deadline = time.monotonic() + query.config.pause_timeout
            for job in jobs:
                self._settle(job, lsn, deadline)
            if [job.kernel for job in jobs if job is not None] != kernels:
                raise fail(
                    "PSK-6019", "A version has been restarted, so it did not stop at the same point as the other."
                )
            yield

    def _settle(self, job: Job | None, lsn: int, deadline: float) -> None:
        old = job is self._query._job
        try:
            if job is not None and not job.settle(lsn, deadline):
                raise fail(
                    "PSK-0010", f"The versions have not caught up within {self._query.config.pause_timeout:g} s."
                )
            if old:
                self._check_old()
        except PenstockError as error:
            if not old or not self._forgives(error):
                raise

    def _settle_old(self) -> None:
        try:
            self._query._settle(None)
        except PenstockError as error:
            if not self._forgives(error):
                raise

    def _check_old(self) -> None:
        error = self._engine.jobs.uncomputed([self._info])
        if error is not None:
            raise error

    def _forgives(self, error: PenstockError) -> bool:
        """Whether an error of the old version does not prevent the swap: one that fails, or has uncomputable rows, can be replaced if its results are recomputed."""
        return self._info.changelog and error.code not in ("PSK-0010", "PSK-7005")


class _Folded:
    """The result of a version up to an LSN, consolidated from its output."""

    def __init__(self, engine: Engine, info: ObjectInfo, which: str) -> None:
        self._engine = engine
        self.info = info
        self._which = which
        self._schema = stored_schema(info)
        self._parts: list[pa.Table] = []
        self._at = self._size = 0

    def reach(self, lsn: int) -> None:
        log = self._engine.log
        for e in log.iterate(self.info.id, self._at, up_to=lsn):
            if e.rows:
                self._parts.append(read_entry(log, e, self._schema))
                self._size += self._parts[-1].nbytes
                if self._size > _FOLDED_BYTES:
                    self._parts = [self.table]
                    self._size = 0
        if not complete(log, self.info.id):
            raise _unknown(self._which)
        self._at = max(self._at, lsn)

    @property
    def table(self) -> pa.Table:
        return consolidate(pa.concat_tables([self._schema.empty_table(), *self._parts]))

    def form(self) -> Form:
        origin = origin_of(self._engine, self.info, SubscribeOptions())
        return Form.of(origin.emit, "diff", origin.keys, origin.names)


def _fill(difference: Difference, query: StreamingQuery, old: _Folded, new: _Folded, last: Point, now: Point) -> None:
    """Computes the changes at the switch: the difference or, if the columns differ, the retraction of all old rows and all new ones."""
    try:
        old.reach(last.lsn)
        had, has = negated(old.table), new.table
        if had.schema.equals(has.schema):
            parts = [(new.form(), consolidate(pa.concat_tables([had, has])))]
        else:
            parts = [(old.form(), had), (new.form(), has)]
        tables = [t for form, rows in parts if rows.num_rows and (t := form.render(rows)).num_rows]
        lsn = max(last.lsn, now.lsn)
        difference.become(
            [
                Change(query.label, n, lsn, now.input_lsn, lsn, n, t, "changes", now.watermark)
                for n, t in enumerate(tables, 1)
            ]
        )
    except Exception as error:
        difference.fail(error)
    except BaseException as error:
        difference.fail(error)
        raise


def _let_go(kernel: KernelJob) -> None:
    with suppress(PenstockError):  # Its JVM has exited.
        kernel.hold(None)


def _unknown(which: str) -> PenstockError:
    return fail(
        "PSK-5011",
        f"Some changes of the {which} version are no longer retained, so its results are unknown.",
        hint="A larger log.retain_bytes retains more; or finish() this query, and start the other.",
    )


def _stateful(query: p.Query) -> bool:
    return any(not isinstance(n, p.Linear) for n in query.root.walk())


def check_same_inputs(query: StreamingQuery, new: StreamingQuery) -> None:
    """Refuses a version with other sources, or one whose other inputs leave no common point for the switch."""
    catalog = query._engine.catalog
    root = new._compiled.query.root
    read = [catalog.by_id(i) for i in scanned(new._compiled.query) if catalog.has_id(i)]
    sources = {o.name: o.columns for o in read if o.kind is Kind.SOURCE}
    had = {name: s.schema for name, s in query._sources.items()}
    if sources != had:
        raise fail(
            "PSK-1016",
            f"The new version does not read the same rows: {', '.join(sorted(sources))} and not {', '.join(sorted(had))}, "
            "or other columns of them.",
            hint="Stop this query and start the other.",
        )
    others = sorted({o.name for o in read if o.kind is not Kind.SOURCE})
    if others and not root.changelog and not (query._operators or new._operators):
        raise fail(
            "PSK-6018",
            f"The query reads {', '.join(others)}, which others write at any time, so there is no moment at which both versions have read the same.",
            hint="finish() it, and start the other; or use CREATE STREAM and ALTER … AS.",
        )


__all__ = ["Swap", "check_same_inputs"]
