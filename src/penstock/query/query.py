"""The lifecycle of one streaming query: compile, start, submit, poll, pause, finish, stop."""

from __future__ import annotations

import itertools
import json
import threading
import time
import weakref
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NewType

from penstock.api.database import Database
from penstock.api.source import BatchingWriter, SourceHandle
from penstock.catalog.objects import Kind, ObjectInfo, Role, Solo
from penstock.errors import PenstockError, fail
from penstock.log import Part
from penstock.plan import nodes as p
from penstock.query.cache import CompilerCache
from penstock.query.compiling import CompiledQuery, compile_query
from penstock.query.config import BackpressureStrategy, QueryConfig
from penstock.query.figures import QueryMetadata, QueryMetrics
from penstock.query.lifecycle import STEPS, QueryState
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.job import Job
from penstock.runtime.lifecycle import Lifecycle, State
from penstock.runtime.statements.continuing import continue_with
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import drop
from penstock.runtime.statements.execute import checkpoint
from penstock.runtime.statements.subscribe import origin_of
from penstock.serve.change import Change
from penstock.serve.options import SubscribeOptions
from penstock.serve.subscription import Subscription
from penstock.sql.bind import bind

QueryId = NewType("QueryId", int)

_END_MS = 253_402_300_799_999
"""The end of the year 9999: a watermark after all event times."""
_SAMPLES = 10_000
_LOOK_S = 0.01

_numbers = itertools.count(1)
_caches: weakref.WeakKeyDictionary[Database, CompilerCache] = weakref.WeakKeyDictionary()


class StreamingQuery:
    """A query with inputs and output of its own. Thread-safe.

    The sources that it reads give their schema only: its rows are those that are submitted to it. Tables, lookup tables and views are read as they
    are. It lives until `stop` or `finish`, and ends with its process. An illegal step is PSK-0006.
    """

    def __init__(
        self, database: Database, sql: str, config: QueryConfig, compiled: CompiledQuery, cache: CompilerCache
    ):
        self.sql = sql
        self.config = config
        self._database = database
        self._compiled = compiled
        self._cache = cache
        self._life = Lifecycle("The query", QueryState.READY, STEPS)
        self._lock = threading.RLock()
        self._gate = threading.Lock()
        """Held by each `submit`, and by `swap`, which nothing is submitted during."""
        self._before: deque[tuple[ObjectInfo, Subscription]] = deque()
        """The outputs of versions that were replaced, as long as something of them may not have been polled."""
        self._reading = threading.Lock()
        """Output of earlier versions that was not polled."""
        self._sources: dict[str, SourceHandle] = {}
        self._writers: dict[str, BatchingWriter] = {}
        self._info: ObjectInfo | None = None
        self._changes: Subscription | None = None
        self._in = self._drops = self._direct = self._spent_ns = 0
        self._latencies: deque[int] = deque(maxlen=_SAMPLES)
        self._runs = _Runs()
        self._number = next(_numbers)
        self._figures: dict[str, float] = {}

    @classmethod
    def compile(
        cls, sql: str, config: QueryConfig | None = None, *, db: Database, cache: CompilerCache | None = None
    ) -> StreamingQuery:
        """Parses, plans and compiles a SELECT with its clauses (EMIT …). Nothing runs yet. Without a `cache`, that of the database is used."""
        config = config or QueryConfig()
        engine = db._engine
        engine.check_open()
        if cache is None:
            cache = _caches.setdefault(db, CompilerCache())
        return cls(db, sql, config, compile_query(engine, sql, config, cache), cache)

    @property
    def id(self) -> QueryId:
        """The same for queries that mean the same."""
        return QueryId(self._compiled.number)

    @property
    def state(self) -> QueryState:
        return self._life.state

    @property
    def metadata(self) -> QueryMetadata:
        return self._compiled.metadata

    @property
    def _operators(self) -> int:
        return self.metadata.ring1_operator_count

    @property
    def columns(self) -> tuple[str, ...]:
        return self._compiled.query.names

    @property
    def _engine(self) -> Engine:
        return self._database._engine

    # Lifecycle

    def start(self) -> None:
        """Creates its inputs and output, and runs it. After an error it is as before."""
        with self._lock, ExitStack() as undo:
            self._expect("start", QueryState.READY)
            self._engine.check_open()
            if not self._engine.running:
                raise fail("PSK-7006", "The pipeline is stopped.", hint="START PIPELINE starts it.")
            inputs = self._make_inputs()
            undo.callback(self._drop, [*inputs.values()])
            self._info = self._make_output(inputs)
            self._changes = self._subscribed(self._info)
            policy = self.config.batch_policy
            for name, info in inputs.items():
                self._sources[name] = SourceHandle(self._engine, info)
                self._writers[name] = BatchingWriter(self._sources[name], policy.max_rows, policy.max_delay)
            self._life.to(QueryState.RUNNING)
            self._engine.watched.add(self)
            undo.pop_all()

    def pause(self) -> None:
        """Stops processing after the current epoch. Rows that were submitted before are processed after `resume`."""
        with self._lock:
            self._expect("pause", QueryState.RUNNING)
            self._flush()
            assert self._info is not None
            with self._engine.ddl:
                self._runs.note(self._job)
                self._engine.jobs.paused.add(self._info.id)
                self._engine.jobs.stop(self._info)
            self._life.to(QueryState.PAUSED)

    def resume(self) -> None:
        with self._lock:
            self._expect("resume", QueryState.PAUSED)
            assert self._info is not None
            with self._engine.ddl:
                self._engine.check_open()
                self._engine.jobs.paused.discard(self._info.id)
                if self._job is None and self._engine.running:
                    try:
                        self._engine.jobs.start(self._info)
                    except BaseException:
                        self._engine.jobs.paused.add(self._info.id)
                        raise
            self._life.to(QueryState.RUNNING)

    def checkpoint(self) -> int:
        """Waits until everything submitted before is processed, makes it durable, and returns the checkpoint's number."""
        with self._lock:
            self._expect("checkpoint", QueryState.RUNNING)
            self._flush()
        return checkpoint(self._engine)

    def finish(self) -> list[Change]:
        """The end of input: all windows close. Returns the output that was not polled, and stops the query."""
        with self._lock:
            self._expect("finish", QueryState.RUNNING)
            self._flush()
            engine = self._engine
            marks = [
                Part(object_id=s._info.id, watermark=_END_MS, column_count=len(s.schema))
                for s in self._sources.values()
                if s._info.watermark is not None
            ]
            if marks:
                engine.storage.commit(marks)
            self._settle(None)
            out = self._drained()
            self._end()
            return out

    def compile_new_version(self, sql: str, config: QueryConfig | None = None) -> StreamingQuery:
        """Compiles another version of this query, which runs on meanwhile; `swap` switches to it."""
        return StreamingQuery.compile(sql, config or self.config, db=self._database, cache=self._cache)

    def swap(self, new: StreamingQuery) -> None:
        """Switches to another version at an epoch boundary: all rows that were submitted before are processed by the old version, all later ones by
        the new one, and the output goes on. `submit` waits meanwhile. After an error the old version runs on.

        The new version reads the same sources (PSK-1016). If a version keeps state, the new one has the same operators over the same inputs, whose state it goes on with,
        and the same columns; otherwise PSK-6018 says what is different.
        """
        with self._lock:
            self._expect("swap", QueryState.RUNNING)
            new._expect("swap", QueryState.READY)
            self._check_same(new)
            inputs = {name: s._info for name, s in self._sources.items()}
            if self._operators or new._operators:
                with self._gate:
                    self._flush()
                    self._settle(None)
                    self._go_on_with(new, inputs)
            else:
                self._overtake(new, inputs)
            self.sql, self.config = new.sql, new.config
            new._life.to(QueryState.STOPPED)

    def _overtake(self, new: StreamingQuery, inputs: dict[str, ObjectInfo]) -> None:
        """A version without state runs beside the old one, until both have processed the same rows."""
        engine = self._engine
        with ExitStack() as undo:
            made = new._make_output(inputs, after=engine.log.head)
            undo.callback(self._drop_one, made)
            changes = self._subscribed(made)
            engine.jobs.settle(made, engine.log.head, None)
            # The old version has just ended an epoch when the gate is closed, so what is left is one more.
            self._flush()
            self._settle(None)
            with self._gate:
                # With the gate closed and nothing buffered, no row comes before the switch.
                self._flush()
                self._settle(None)
                engine.jobs.settle(made, engine.log.head, None)
                # What both have processed is of the old version.
                while changes.next(0) is not None:
                    pass
                undo.pop_all()
                self._end_output()
                self._switch(new, made, changes)
                self._runs.skip(self._job)
        self._end_old()

    def _switch(self, new: StreamingQuery, made: ObjectInfo, changes: Subscription) -> None:
        assert self._info is not None and self._changes is not None
        self._runs.note(self._job)
        self._before.append((self._info, self._changes))
        self._info, self._changes, self._compiled = made, changes, new._compiled

    def _end_output(self) -> None:
        """Whatever this version still makes of later rows, until it is stopped, has no reader: they are the next version's. What it has emitted can still be polled."""
        assert self._info is not None
        self._engine.hub.end(self._info.id)

    def _end_old(self) -> None:
        """Stops the version that was replaced."""
        engine, (old, _) = self._engine, self._before[-1]
        with engine.ddl:
            engine.jobs.stop(old)

    def stop(self) -> None:
        """Ends the query; what was not polled is gone. Stopping it again does nothing."""
        with self._lock:
            if self.state is not QueryState.STOPPED:
                self._end()

    def __enter__(self) -> StreamingQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Rows

    def submit(self, data: object, *, source: str | None = None) -> None:
        """Takes a row (a dict or tuple), a list of rows, or anything that `insert` takes (Arrow, pandas, polars). Rows are committed by the batch policy;
        a frame is one commit. `source` names the input if there are several. An invalid row is refused by the next call at the latest."""
        with self._gate:
            self._submit(data, source)

    def _submit(self, data: object, source: str | None) -> None:
        begin = time.perf_counter_ns()
        self._expect("submit", QueryState.RUNNING)
        writer = self._writer(source)
        rows: list[Any] | None = None
        if isinstance(data, (dict, tuple)):
            rows = [data]
        elif isinstance(data, list):
            rows = data
        count = len(rows) if rows is not None else getattr(data, "num_rows", None) or len(data)  # type: ignore[arg-type]
        if not self._admitted(count):
            return
        if rows is not None:
            for row in rows:
                writer.write(row)
        else:
            writer.flush()
            self._sources[self._name(source)].insert(data)
        spent = time.perf_counter_ns() - begin
        # The gate is enough: a swap holds the lock while it waits for the gate.
        self._direct += rows is None
        self._in += count
        self._spent_ns += spent
        if count:
            self._latencies.append(spent // count)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything submitted before has been processed, and its output can be polled."""
        with self._lock:
            self._expect("flush", QueryState.RUNNING)
            self._flush()
        self._settle(timeout)

    def poll_output(self, count: int | None = None, timeout: float = 0.0) -> list[Change]:
        """The output so far, at most `count` changes, waiting at most `timeout` seconds for the first. Raises errors of the query."""
        self._expect("poll_output", QueryState.RUNNING, QueryState.PAUSED)
        self._runs.note(self._job)
        deadline = time.monotonic() + timeout
        out: list[Change] = []
        while count is None or len(out) < count:
            changes = self._first()
            wait = 0.0 if out else max(0.0, deadline - time.monotonic())
            out += changes.fetch(None if count is None else count - len(out), wait)
            if not self._over(changes):
                break
        return out

    def _first(self) -> Subscription:
        """The output to be read first: of the oldest version of which something may be left."""
        with self._reading:
            found = self._before[0][1] if self._before else self._changes
        assert found is not None
        return found

    def _over(self, changes: Subscription) -> bool:
        """Whether everything of an older version has been read; then it goes."""
        if not changes.closed:
            return False
        with self._reading:
            if not self._before or self._before[0][1] is not changes:
                return False
            old, _ = self._before.popleft()
        self._drop_one(old)
        return True

    def _drained(self) -> list[Change]:
        out: list[Change] = []
        while True:
            changes = self._first()
            while (change := changes.next(0)) is not None:
                out.append(change)
            if not self._over(changes):
                return out

    # Figures

    def metrics(self) -> QueryMetrics:
        with self._lock:
            job = self._job
            runs = self._runs
            runs.note(job)
            latencies = sorted(self._latencies)
            p99 = latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] if latencies else 0
            return QueryMetrics(
                ring0_events_in=self._in,
                ring0_events_out=runs.passed,
                ring0_events_dropped=max(0, runs.taken - runs.passed),
                ring0_total_ns=self._spent_ns,
                ring0_p99_ns=p99,
                bridge_pending=self._pending(),
                bridge_backpressure_drops=self._drops,
                bridge_batches_flushed=self._direct + sum(w.commits for w in self._writers.values()),
                ring1_batches_processed=runs.epochs,
                ring1_events_out=runs.rows,
                ring1_total_ns=runs.total_ms * 1_000_000,
                pipelines_compiled=self.metadata.compiled_pipeline_count,
                pipelines_fallback=self.metadata.fallback_pipeline_count,
                cache_hit_rate=self._cache.hit_rate,
            )

    @property
    def label(self) -> str:
        return f"{self.id:016x}/{self._number}"

    def figures(self) -> dict[str, float]:
        """The metrics by name, for Prometheus. While a swap or the end of the query is under way, those from before."""
        if self._lock.acquire(blocking=False):
            try:
                self._figures = asdict(self.metrics())
            finally:
                self._lock.release()
        return self._figures

    @property
    def _job(self) -> Job | None:
        return self._engine.jobs.by_object.get(self._info.id) if self._info is not None else None

    def _pending(self) -> int:
        job = self._job
        reached = max(self._runs.reached, job.figures.reached if job is not None else 0)
        log = self._engine.log
        waiting = sum(log.amount(s._id, after=reached)[1] for s in self._sources.values())
        return waiting + sum(w.pending for w in self._writers.values())

    # Inside

    def _expect(self, what: str, *states: QueryState) -> None:
        if self.state not in states:
            raise fail("PSK-0006", f"{what} needs a query that is {states[0].value}; it is {self.state.value}.")

    def _name(self, source: str | None) -> str:
        if source is None:
            if len(self._writers) != 1:
                named = ", ".join(self._writers) or "no source"
                raise fail("PSK-0009", f"The query reads {named}.", hint="Name one: submit(row, source='…').")
            return next(iter(self._writers))
        found = next((n for n in self._writers if n.lower() == source.lower()), None)
        if found is None:
            raise fail("PSK-1002", f"{source} is not a source of the query.")
        return found

    def _writer(self, source: str | None) -> BatchingWriter:
        return self._writers[self._name(source)]

    def _admitted(self, count: int) -> bool:
        """Whether the rows may be taken now."""
        strategy, deadline = self.config.backpressure, time.monotonic() + self.config.pause_timeout
        while self._pending() + count > self.config.max_pending:
            if strategy is BackpressureStrategy.DROP_NEWEST:
                self._drops += count
                return False
            if strategy is BackpressureStrategy.REFUSE:
                raise fail("PSK-5021", f"{self._pending()} rows wait; max_pending is {self.config.max_pending}.")
            if time.monotonic() > deadline:
                raise fail("PSK-0010", f"The query has not caught up within {self.config.pause_timeout:g} s.")
            self._expect("submit", QueryState.RUNNING)
            time.sleep(_LOOK_S)
        return True

    def _flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def _settle(self, timeout: float | None) -> None:
        assert self._info is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._engine.jobs.settle(self._info, self._engine.log.head, deadline):
            raise fail("PSK-0010", f"The query has not caught up within {timeout} s.")
        error = self._engine.jobs.uncomputed([self._info])
        if error is not None:
            raise error

    def _make_inputs(self) -> dict[str, ObjectInfo]:
        """A private copy of each source that the query reads."""
        engine, number = self._engine, next(_numbers)
        read = {n.object_id for n in self._compiled.query.root.walk() if isinstance(n, p.Scan)}
        with engine.ddl:
            known = [engine.catalog.by_id(i) for i in sorted(read) if engine.catalog.has_id(i)]
            with drafting(engine) as draft:
                made = {
                    o.name: replace(
                        o,
                        id=draft.new_id(),
                        name=f"__query_{number}_{o.name}",
                        connector=None,
                        options={k: v for k, v in o.options.items() if k in ("max_future_skew", "watermark_per")},
                        role=Role.SUBSCRIPTION,
                        sql="",
                    )
                    for o in known
                    if o.kind is Kind.SOURCE
                }
                for info in made.values():
                    draft.attach(info)
        return made

    def _subscribed(self, info: ObjectInfo) -> Subscription:
        return self._engine.hub.subscribe(info.id, origin_of(self._engine, info, SubscribeOptions()))

    def _check_same(self, new: StreamingQuery) -> None:
        """Refuses a version that cannot take over."""
        read = {n.object_id for n in new._compiled.query.root.walk() if isinstance(n, p.Scan)}
        catalog = self._engine.catalog
        sources = {o.name: o.columns for i in read if catalog.has_id(i) and (o := catalog.by_id(i)).kind is Kind.SOURCE}
        had = {name: s.schema for name, s in self._sources.items()}
        if sources != had:
            raise fail(
                "PSK-1016",
                f"The new version does not read the same rows: {', '.join(sorted(sources))} and not {', '.join(sorted(had))}, "
                "or other columns of them.",
                hint="Stop this query and start the other.",
            )
        others = sorted(o.name for i in read if catalog.has_id(i) and (o := catalog.by_id(i)).kind is not Kind.SOURCE)
        if others and not (self._operators or new._operators):
            raise fail(
                "PSK-6018",
                f"The query reads {', '.join(others)}, which others write at any time, so there is no moment at which both versions have read the same.",
                hint="finish() it, and start the other; or use CREATE MATERIALIZED VIEW and ALTER … AS.",
            )
        changing = [q.sql for q in (self, new) if q._operators and q._compiled.query.root.changelog]
        if changing:
            raise fail(
                "PSK-6018",
                f"The results of this version change, and cannot be taken back: {' '.join(changing[0].split())}",
                hint="finish() it, and start the other. A version whose windows close (EMIT ON WINDOW CLOSE) can be swapped.",
            )

    def _go_on_with(self, new: StreamingQuery, inputs: dict[str, ObjectInfo]) -> None:
        """Another version takes over output and state."""
        engine, compiled, info = self._engine, new._compiled, self._info
        assert info is not None
        with engine.ddl:
            seen = ObjectInfo(0, "", Kind.STREAM, (), options={"rules": _stands(inputs)})
            bound = bind(compiled.parsed, engine.catalog.as_read_by(seen))
            self._runs.note(self._job)
            continue_with(engine, info, compiled.parsed, bound, compiled.text)
            self._info = engine.catalog.by_id(info.id)
        self._compiled = compiled

    def _make_output(self, inputs: dict[str, ObjectInfo], after: int | None = None) -> ObjectInfo:
        """The stream of the query over its inputs; `after`: it reads only what comes after that LSN."""
        engine, compiled = self._engine, self._compiled
        rules = _stands(inputs)
        with engine.ddl:
            seen = ObjectInfo(0, "", Kind.STREAM, (), options={"rules": rules})
            bound = bind(compiled.parsed, engine.catalog.as_read_by(seen))
            name = f"__query_{next(_numbers)}"
            with drafting(engine) as draft:
                info = add_query(
                    draft,
                    name,
                    Kind.STREAM,
                    compiled.parsed,
                    compiled.text,
                    Role.SUBSCRIPTION,
                    bound=bound,
                    rules=rules,
                )
                if after is not None:
                    with engine.catalog.edit():
                        engine.catalog.solo[info.id] = Solo(after, 0)
            return info

    def _end(self) -> None:
        self._life.to(QueryState.STOPPED)
        self._engine.watched.discard(self)
        with ExitStack() as last:
            last.callback(self._drop, [s._id for s in self._sources.values()])
            for old, changes in self._before:
                last.callback(self._drop_one, old)
                last.callback(changes.cancel)
            if self._changes is not None:
                last.callback(self._changes.cancel)
            self._runs.note(self._job)
            for writer in self._writers.values():
                last.callback(writer.close)

    def _drop_one(self, info: ObjectInfo) -> None:
        engine = self._engine
        with engine.ddl:
            if engine.lifecycle.state is not State.CLOSED and engine.catalog.has_id(info.id):
                drop(engine, info, cascade=True)

    def _drop(self, inputs: list[ObjectInfo] | list[int]) -> None:
        """Drops inputs, and with them the stream that reads them."""
        engine = self._engine
        with engine.ddl:
            if engine.lifecycle.state is State.CLOSED:
                return
            ids = [i if isinstance(i, int) else i.id for i in inputs]
            for object_id in [*ids, *([self._info.id] if self._info is not None else [])]:
                if engine.catalog.has_id(object_id):
                    drop(engine, engine.catalog.by_id(object_id), cascade=True)


def _stands(inputs: dict[str, ObjectInfo]) -> str:
    """The names in a query's text, with those of the inputs that they stand for."""
    return json.dumps({name: info.name for name, info in inputs.items()})


@dataclass
class _Run:
    epochs: int = 0
    rows: int = 0
    taken: int = 0
    passed: int = 0


class _Runs:
    """The figures of all jobs that the query has had: one for each time that it was started or resumed."""

    def __init__(self) -> None:
        self._of: dict[int, _Run] = {}
        self._jobs: dict[int, Job] = {}
        self._times: dict[tuple[int, int], int] = {}
        self._skipped: set[tuple[int, int]] = set()
        self.reached = 0

    def note(self, job: Job | None) -> None:
        if job is None:
            return
        kernel = job.kernel
        rows = sum(job.figures.rows_out.values())
        # Kept here, so that no later job has its id.
        self._jobs[id(job)] = job
        self.reached = max(self.reached, job.figures.reached)
        found = self._of.setdefault(id(job), _Run())
        found.epochs, found.rows = job.figures.epochs, rows
        with suppress(PenstockError):  # Of a JVM that has exited, what was known before.
            found.taken, found.passed = kernel.rows_in, kernel.rows_passed()
            now = {(id(job), batch): ms for batch, ms in kernel.durations().items()}
            self._times.update({key: ms for key, ms in now.items() if key not in self._skipped})

    def skip(self, job: Job | None) -> None:
        """What a job has done so far does not count: another one has done it as well."""
        if job is not None:
            self.note(job)
            self._skipped |= {key for key in self._times if key[0] == id(job)}
            for key in self._skipped:
                self._times.pop(key, None)
            done = self._of[id(job)]
            self._of[-id(job)] = _Run(-done.epochs, -done.rows, -done.taken, -done.passed)

    @property
    def taken(self) -> int:
        return sum(f.taken for f in list(self._of.values()))

    @property
    def passed(self) -> int:
        return sum(f.passed for f in list(self._of.values()))

    @property
    def epochs(self) -> int:
        return sum(f.epochs for f in list(self._of.values()))

    @property
    def rows(self) -> int:
        return sum(f.rows for f in list(self._of.values()))

    @property
    def total_ms(self) -> int:
        return sum(list(self._times.values()))
