"""The lifecycle of one streaming query: compile, start, submit, poll, pause, finish, stop."""

from __future__ import annotations

import itertools
import json
import threading
import time
import weakref
from collections import deque
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, NewType

from penstock.api.database import Database
from penstock.api.source import BatchingWriter, SourceHandle
from penstock.catalog.objects import Kind, ObjectInfo, Role, Solo
from penstock.errors import fail
from penstock.log import Part
from penstock.plan import nodes as p
from penstock.query.cache import CompilerCache
from penstock.query.compiling import CompiledQuery, compile_query
from penstock.query.config import BackpressureStrategy, QueryConfig
from penstock.query.figures import QueryMetadata, QueryMetrics
from penstock.query.lifecycle import STEPS, QueryState
from penstock.query.output import Output
from penstock.query.runs import Runs
from penstock.query.swapping import Swap, check_same_inputs
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.jobs.job import Job
from penstock.runtime.lifecycle import Lifecycle, State
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
_CARRIED = ("max_future_skew", "watermark_per", "retain_history")
"""Options of a source that its private copy inherits."""
_LOOK_S = 0.01

_numbers = itertools.count(1)
_caches: weakref.WeakKeyDictionary[Database, CompilerCache] = weakref.WeakKeyDictionary()


class StreamingQuery:
    """A query with private inputs and output. Thread-safe.

    Of its sources it uses only the schemas; their rows are those passed to `submit`. It reads the database's own tables, lookup tables and
    views. It lives until `stop` or `finish`, at most as long as its process. An illegal step is PSK-0006.
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
        """Held by each `submit`, and by `swap` while it determines the point of the switch."""
        self._swapping = False
        self._output = Output(self._drop_one, database._engine.settings.subscribe.buffer_bytes)
        self._sources: dict[str, SourceHandle] = {}
        self._writers: dict[str, BatchingWriter] = {}
        self._info: ObjectInfo | None = None
        self._in = self._drops = self._direct = self._spent_ns = 0
        self._latencies: deque[int] = deque(maxlen=_SAMPLES)
        self._runs = Runs()
        self._number = next(_numbers)
        self._figures: dict[str, float] = {}

    @classmethod
    def compile(
        cls, sql: str, config: QueryConfig | None = None, *, db: Database, cache: CompilerCache | None = None
    ) -> StreamingQuery:
        """Parses, plans and compiles a SELECT with its clauses (EMIT …). Nothing runs yet. The default `cache` is the database's."""
        config = config or QueryConfig()
        engine = db._engine
        engine.check_open()
        if cache is None:
            cache = _caches.setdefault(db, CompilerCache())
        return cls(db, sql, config, compile_query(engine, sql, config, cache), cache)

    @property
    def id(self) -> QueryId:
        """Equal for queries with the same meaning."""
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
        """Creates its inputs and output, and runs it. An error leaves it unchanged."""
        with self._lock, ExitStack() as undo:
            self._expect("start", QueryState.READY)
            self._engine.check_open()
            if not self._engine.running:
                raise fail("PSK-7006", "The pipeline is stopped.", hint="START PIPELINE starts it.")
            inputs = self._make_inputs()
            undo.callback(self._drop, [*inputs.values()])
            self._info = self._make_output(inputs)
            # Its job is already running and may have emitted changes.
            self._output.follow(self._info, self._subscribed(self._info, SubscribeOptions(as_of_lsn=0)))
            policy = self.config.batch_policy
            for name, info in inputs.items():
                self._sources[name] = SourceHandle(self._engine, info)
                self._writers[name] = BatchingWriter(self._sources[name], policy.max_rows, policy.max_delay)
            self._life.to(QueryState.RUNNING)
            self._engine.watched.add(self)
            undo.pop_all()

    def pause(self) -> None:
        """Stops processing after the current epoch. Rows submitted before are processed after `resume`."""
        with self._lock:
            self._expect("pause", QueryState.RUNNING)
            self._flush()
            assert self._info is not None
            with self._engine.ddl:
                job = self._job
                self._engine.jobs.paused.add(self._info.id)
                self._engine.jobs.stop(self._info)
                # It may have finished an epoch while it was stopping.
                self._runs.note(job)
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
        """Ends the input, which closes all windows. Returns the unread output, and stops the query."""
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
            out = self._output.drained()
            self._end()
            return out

    def compile_new_version(self, sql: str, config: QueryConfig | None = None) -> StreamingQuery:
        """Compiles another version of this query, which keeps running; `swap` switches to it."""
        return StreamingQuery.compile(sql, config or self.config, db=self._database, cache=self._cache)

    def swap(self, new: StreamingQuery, *, rebuild: bool = False) -> None:
        """Switches to another version at an epoch boundary: the old version processes rows submitted before it, the new one later
        rows, and the output continues as one sequence. `submit` waits until the point of the switch is determined. A paused query is resumed. After an error the old version continues.

        The new version must read the same sources (PSK-1016). If either keeps state, the operators of the new one must be among those of the old one, over the same inputs
        and with the same keys; aggregates may differ. Otherwise it raises PSK-6018, unless `rebuild` is set. State that
        the new version cannot take over is computed while the old one runs, from all submitted rows (PSK-5011 if they are no longer retained).

        If results can change, those of the new version replace those of the old one: the output has the difference or, if the columns differ, the retraction of all old rows
        and then all new ones. Final results (EMIT ON WINDOW CLOSE) remain, and those after the switch are the new version's.
        """
        if not new._lock.acquire(blocking=False):
            raise fail("PSK-6017", "The new version is being started or swapped in elsewhere.")
        try:
            with self._lock:
                self._expect("swap", QueryState.RUNNING, QueryState.PAUSED)
                new._expect("swap", QueryState.READY)
                if self._swapping:
                    raise fail("PSK-6017", "Another swap of this query is under way.", hint="Wait until it is done.")
                check_same_inputs(self, new)
                if self.state is QueryState.PAUSED:
                    self.resume()
                self._swapping = True
            try:
                Swap(self, new, rebuild).run()
            finally:
                self._swapping = False
                if self._compiled is new._compiled:
                    new._life.to(QueryState.STOPPED)
        finally:
            new._lock.release()

    def stop(self) -> None:
        """Ends the query and discards unread output. Stopping it again does nothing."""
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
        count = len(rows) if rows is not None else _size(data)
        # The number of rows of a stream is only known once it has been read.
        if not self._admitted(1 if count is None else count):
            return
        if rows is not None:
            for row in rows:
                writer.write(row)
        else:
            writer.flush()
            handle = self._sources[self._name(source)]
            lsn = handle.insert(data)
            if count is None:
                count = self._engine.log.amount(handle._id, after=lsn - 1, up_to=lsn)[1]
        assert count is not None
        spent = time.perf_counter_ns() - begin
        # Only with the gate: taking the lock could deadlock, because a swap holds it while it waits for the gate.
        self._direct += rows is None
        self._in += count
        self._spent_ns += spent
        if count:
            self._latencies.append(spent // count)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything submitted before has been processed and its output can be polled."""
        with self._lock:
            self._expect("flush", QueryState.RUNNING)
            self._flush()
        self._settle(timeout)

    def poll_output(self, count: int | None = None, timeout: float = 0.0) -> list[Change]:
        """The output so far, at most `count` changes, waiting at most `timeout` seconds for the first. Raises errors of the query."""
        self._expect("poll_output", QueryState.RUNNING, QueryState.PAUSED)
        self._runs.see(self._job)
        return self._output.fetch(count, timeout)

    # Figures

    def metrics(self) -> QueryMetrics:
        with self._lock:
            job = self._job
            runs = self._runs
            runs.note(job)
            latencies = sorted(self._latencies)
            p99 = latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] if latencies else 0
            return QueryMetrics(
                ring0_events_in=self._in - sum(w.refused for w in self._writers.values()),
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
        """The metrics by name, for Prometheus. During a swap or the end of the query, the previous ones."""
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
        """Waits for room according to the strategy; whether to accept the rows."""
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
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            info = self._info
            assert info is not None
            if not self._caught_up(info, deadline):
                raise fail("PSK-0010", f"The query has not caught up within {timeout} s.")
            if info is self._info:
                break  # No swap happened meanwhile.
        error = self._engine.jobs.uncomputed([info])
        if error is not None:
            raise error

    def _caught_up(self, info: ObjectInfo, deadline: float | None) -> bool:
        """Waits until a version, and the queries that it reads from, have processed everything so far; False at the deadline."""
        jobs, head = self._engine.jobs, self._engine.log.head
        return all(jobs.settle(o, head, deadline) for o in jobs.upstream([info]) if o.kind in QUERIES)

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
                        options={k: v for k, v in o.options.items() if k in _CARRIED},
                        role=Role.SUBSCRIPTION,
                        sql="",
                    )
                    for o in known
                    if o.kind is Kind.SOURCE
                }
                for info in made.values():
                    draft.attach(info)
        return made

    def _subscribed(self, info: ObjectInfo, options: SubscribeOptions) -> Subscription:
        return self._engine.hub.subscribe(info.id, origin_of(self._engine, info, options), options)

    def _bound(self, inputs: dict[str, ObjectInfo]) -> p.Query:
        """Its plan over these inputs."""
        seen = ObjectInfo(0, "", Kind.STREAM, (), options={"rules": _stands(inputs)})
        return bind(self._compiled.parsed, self._engine.catalog.as_read_by(seen))

    def _make_output(self, inputs: dict[str, ObjectInfo], after: int | None = None) -> ObjectInfo:
        """The stream of the query over its inputs; `after`: it reads only rows after that LSN."""
        engine, compiled = self._engine, self._compiled
        rules = _stands(inputs)
        with engine.ddl:
            bound = self._bound(inputs)
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
            last.callback(self._output.close)
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


def _size(data: object) -> int | None:
    """The number of rows, if it is known without reading them."""
    try:
        return len(data)  # type: ignore[arg-type]
    except TypeError:
        return None


def _stands(inputs: dict[str, ObjectInfo]) -> str:
    """The names in a query's text, mapped to those of its inputs."""
    return json.dumps({name: info.name for name, info in inputs.items()})
