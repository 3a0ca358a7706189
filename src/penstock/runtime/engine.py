"""The engine: one open database. It owns the log, the catalogue, the view store, the subscription hub and the jobs."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.store import Catalog
from penstock.catalog.types import schema_of
from penstock.config import Settings, changed, substitute
from penstock.errors import PenstockError, fail
from penstock.log import Entry, FolderLock, Log, Part
from penstock.runtime.feed import Feed
from penstock.runtime.intake import Intake
from penstock.runtime.job import Job, JobState
from penstock.runtime.layout import Layout
from penstock.runtime.lifecycle import Lifecycle, State
from penstock.runtime.lookups import FedLookup
from penstock.runtime.ondemand import OnDemand
from penstock.runtime.planned import Planned, plan_object
from penstock.runtime.probes import LOOKUP, probe_owner, probes_of
from penstock.runtime.recording import Recorder
from penstock.runtime.replica import Replica
from penstock.runtime.shared import SharedJobs
from penstock.runtime.sinks import SinkRunner, open_sink
from penstock.runtime.subscribe import ANONYMOUS
from penstock.runtime.ticker import Ticker
from penstock.serve.hub import Hub
from penstock.serve.store import ViewStore
from penstock.spark.batch import BatchReader
from penstock.spark.bridge import FolderClaim, KernelJob
from penstock.spark.compile import UNIT_OBJECT
from penstock.spark.index import KernelIndex
from penstock.spark.seeds import unit_entry
from penstock.spark.session import database_session, keep_classes

QUERIES = (Kind.STREAM, Kind.VIEW)


class Engine:
    """Thread-safe. Changes of the catalogue and of the lifecycle exclude each other; reads and commits do not wait for them."""

    def __init__(self, folder: Path | None, settings: Settings, progress: Callable[[str], None] | None = None) -> None:
        say = progress or (lambda _: None)
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-")) if folder is None else folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.layout = Layout(self.folder)
        self.ddl = threading.RLock()
        self.writing = threading.RLock()
        self.commits = threading.Condition()
        self._lock = FolderLock(self.folder)
        self._lock.acquire()
        self._claim: FolderClaim | None = None
        with ExitStack() as undo:
            undo.callback(self._let_go)
            say("starting Spark")
            self.spark = database_session(settings)
            self._claim = FolderClaim(self.folder / "jvm.lock")
            say("opening the log")
            self.uid = uuid.uuid4().hex[:8]
            self.catalog = Catalog(self.layout.catalog)
            self.index = KernelIndex(self.uid)
            undo.callback(self.index.close)
            self.log = Log.open(
                self.folder,
                mode=settings.log.wal_mode,
                async_interval_ms=settings.log.async_interval_ms,
                segment_bytes=settings.log.segment_bytes,
                on_durable=self._durable,
            )
            undo.callback(self.log.close)
            self.store = ViewStore()
            undo.callback(self.store.close)
            self.hub = Hub()
            self.batch = BatchReader(self.spark)
            self.feeds: dict[int, Feed] = {}
            self.jobs: dict[int, Job] = {}
            self.sinks: dict[int, SinkRunner] = {}
            self.intakes: dict[int, Intake] = {}
            self.lookups: dict[int, FedLookup] = {}
            self.planned: dict[int, Planned] = {}
            self.recorder = Recorder(self)
            self.shared = SharedJobs(self)
            self.parallelism = self.spark.sparkContext.defaultParallelism
            say("recovering")
            self._recover()
            self._ticker = Ticker(self)
            undo.pop_all()

    def _let_go(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()
        self._lock.release()
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Recovery

    def _durable(self, entries: list[Entry]) -> None:
        self.index.add(entries, entries[-1].lsn)
        with self.commits:
            self.commits.notify_all()

    def _recover(self) -> None:
        self._forget_unowned()
        if self.log.head == 0:
            self.log.append([Part(object_id=UNIT_OBJECT)])
        self.index.add([unit_entry(self.layout.unit)], 1)
        known = {o.id for o in self.catalog.objects()}
        for object_id in self.log.object_ids():
            if object_id not in known and object_id != UNIT_OBJECT:
                self.log.forget(object_id)
                continue
            watermark = self.log.watermark(object_id)
            if watermark is not None:
                self.index.watermark(object_id, watermark)
            if object_id != UNIT_OBJECT:
                self.index.add(self.log.iterate(object_id), self.log.head)
        self.index.add([], self.log.head)
        for info in self.catalog.objects():
            self.attach(info)
            last = self.log.last_entry(info.id)
            self.hub.open(info.id, info.name, epoch=self.log.epoch(info.id), lsn=last.lsn if last else 0)

    def _forget_unowned(self) -> None:
        """The queries of subscriptions ended with the process that had them, and probes may be left of a query that was never made."""
        for info in self.catalog.objects():
            owner = probe_owner(info.name)
            orphan = owner is not None and self.catalog.get(owner) is None
            if orphan or (owner or info.name).startswith(ANONYMOUS):
                self.catalog.remove(info.id)
                self.layout.snapshot(info.id).unlink(missing_ok=True)
                shutil.rmtree(self.layout.job(info.id), ignore_errors=True)

    def attach(self, info: ObjectInfo) -> None:
        """Makes what an object needs in this process; contents come from its snapshot and the log."""
        if info.kind in (Kind.SOURCE, Kind.TABLE, Kind.LOOKUP):
            defaults = self.batch.defaults(info.columns)
            self.feeds[info.id] = Feed(info, defaults, self.settings.engine.max_future_skew_ms)
        if info.kind in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            self._attach_contents(info)
        if info.kind is Kind.LOOKUP and info.connector is not None:
            self.lookups[info.id] = OnDemand(self, info) if info.on_demand else Replica(self, info)

    def _attach_contents(self, info: ObjectInfo) -> None:
        schema = schema_of(info.columns)
        self.store.create(info.id, schema, keys=info.key, append_only=not info.changelog)
        path = self.layout.snapshot(info.id)
        if path.exists():
            self.store.load(info.id, path)
        _, lsn = self.store.position(info.id)
        stored = stored_schema(info)
        for entry in self.log.entries(info.id, after=lsn):
            table = self.log.read(entry, stored) if entry.rows else stored.empty_table()
            self.store.apply(info.id, table, epoch=entry.epoch, lsn=entry.lsn)

    # Lifecycle

    def start(self) -> None:
        """Starts every job, in order of dependency. A job that cannot be started unwinds all others, and can be tried again."""
        with self.ddl:
            if self.lifecycle.state in (State.RUNNING, State.STARTING):
                return
            self.lifecycle.to(State.STARTING)
            try:
                for lookup in self.lookups.values():
                    lookup.start()
                for info in self.catalog.objects(*QUERIES):
                    if not self.shared.member(info.id):
                        self.start_query(info)
                self.shared.start_all()
                for info in self.catalog.objects(Kind.SINK):
                    self.start_sink(info)
                for info in self.catalog.objects(Kind.SOURCE):
                    self.start_connector(info)
            except BaseException:
                self._stop_all()
                self.lifecycle.to(State.CREATED)
                raise
            self.lifecycle.to(State.RUNNING)

    def stop(self) -> None:
        """Stops every job after its current epoch; rows can still be inserted and are taken in after the next start."""
        with self.ddl:
            if self.lifecycle.state is not State.RUNNING:
                return
            self.lifecycle.to(State.SHUTTING_DOWN)
            self._stop_all()
            self.lifecycle.to(State.STOPPED)

    def _stop_all(self) -> None:
        for intake in [self.intakes.pop(i) for i in list(self.intakes)]:
            intake.stop()
        for sink in [self.sinks.pop(i) for i in list(self.sinks)]:
            sink.stop()
        for lookup in list(self.lookups.values()):
            lookup.stop()
        jobs = {id(j): j for j in (self.jobs.pop(i) for i in list(self.jobs))}.values()
        threads = [threading.Thread(target=j.stop) for j in jobs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def close(self) -> None:
        """Ends everything and gives the folder back. Calling it again does nothing."""
        with self.ddl:
            if self.lifecycle.state is State.CLOSED:
                return
            self._ticker.stop()
            if self.lifecycle.state is State.RUNNING:
                self.stop()
            self.lifecycle.to(State.CLOSED)
            for lookup in self.lookups.values():
                lookup.close()
            self.hub.close()
            if not self.temporary:
                self.save_contents()
            self.log.close()
            self.index.close()
            self.store.close()
            self._let_go()
            keep_classes()

    def save_contents(self) -> None:
        """Writes the contents of tables and views, so that the log before them is no longer needed to open the database."""
        for info in self.catalog.objects(Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            path = self.layout.snapshot(info.id)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.store.save(info.id, path)

    def substitute(self, text: str) -> str:
        """Replaces `${NAME}` in an option value."""
        return substitute(text, self.settings.variables)

    def change_setting(self, key: str, value: str) -> None:
        """Changes one setting until the database is closed; it counts for what begins from now on."""
        self.settings = changed(self.settings, key, value)

    def check_open(self) -> None:
        if self.lifecycle.state is State.CLOSED:
            raise fail("PSK-0004", "The database is closed.")

    @property
    def running(self) -> bool:
        return self.lifecycle.state in (State.RUNNING, State.STARTING)

    # Jobs

    def start_query(self, info: ObjectInfo) -> None:
        """Starts the job of a stream or view. The side stream of late rows has none of its own."""
        planned = self.planned.get(info.id) or plan_object(self, info)
        if planned is None:
            return
        self.planned[info.id] = planned
        if self.shared.takes(info, planned):
            self.shared.join(info, planned)
            return
        job = self._job(info, planned)
        self.jobs[info.id] = job
        try:
            job.start()
        except BaseException:
            self.jobs.pop(info.id, None)
            job.stop()
            raise

    def plan(self, info: ObjectInfo) -> Planned:
        """The plan of a stream or view, made at most once in this process."""
        planned = self.planned.get(info.id) or plan_object(self, info)
        assert planned is not None
        self.planned[info.id] = planned
        return planned

    def stored_schema(self, info: ObjectInfo) -> pa.Schema:
        return stored_schema(info)

    def _job(self, info: ObjectInfo, planned: Planned) -> Job:
        outputs = [self.catalog.by_id(i) for i in planned.output_ids]
        start, base = self.shared.begin(info)
        kernel = KernelJob(
            self.spark,
            self.uid,
            planned.job,
            planned.compiled,
            folder=self.layout.job(info.id),
            schemas=[stored_schema(o) for o in outputs],
            idle_ms=planned.idle_ms,
            max_rows=self.settings.engine.max_rows_per_epoch,
            poll_ms=self.settings.engine.poll_timeout_ms,
            every_ms=planned.every_ms,
            seeds=planned.seeds,
            start=start,
            state_limit=planned.state_limit,
        )
        asks = self._asks(info)
        owner = self.catalog.get(probe_owner(info.name) or "")
        record = self.recorder.of(outputs, planned.compiled.outputs, base, asks, lambda: job.stopping)

        def failed(error: PenstockError) -> None:
            for o in [*outputs, *([owner] if owner is not None else [])]:
                self.hub.fail(o.id, error)

        name = f"lookups of {owner.name}" if owner is not None else info.name
        interrupt = asks.interrupt if asks is not None else None
        job = Job(planned.output_ids, name, kernel, record, failed, interrupt, planned.state_limit)
        return job

    def _asks(self, info: ObjectInfo) -> OnDemand | None:
        """The lookup table that the rows of a probe ask."""
        if probe_owner(info.name) is None:
            return None
        lookup = self.lookups[int(info.options[LOOKUP])]
        assert isinstance(lookup, OnDemand)
        return lookup

    def jobs_of(self, info: ObjectInfo) -> list[Job]:
        """The jobs that make the rows of a stream or view: its own, and those of its on-demand lookups."""
        ids = [info.id, *(o.id for o in probes_of(self, info))]
        return [j for i in ids if (j := self.jobs.get(i)) is not None]

    def stop_query(self, info: ObjectInfo) -> None:
        if self.shared.member(info.id):
            self.shared.leave(info)
            return
        job = self.jobs.pop(info.id, None)
        if job is not None:
            job.stop()

    def start_sink(self, info: ObjectInfo) -> None:
        self.sinks[info.id] = open_sink(self, info)

    def start_connector(self, info: ObjectInfo) -> None:
        """Starts the connector that feeds a source, if it has one."""
        if info.connector is not None:
            self.intakes[info.id] = Intake(self, info)

    # Progress

    def flush(self, timeout: float | None = None) -> None:
        """Returns when every running job has taken in all that was committed before, and sinks have it too."""
        self.wait(self.log.head, timeout)

    def wait(self, lsn: int, timeout: float | None = None) -> None:
        self.check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        for info in self.catalog.objects(*QUERIES):
            target = max([lsn, *(self._last_lsn(i) for i in info.depends_on)])
            while True:
                job = self.jobs.get(info.id)
                if job is not None and not job.settle(target, deadline):
                    raise fail(
                        "PSK-0010", f"{probe_owner(info.name) or info.name} has not caught up within {timeout} s."
                    )
                if (job is not None and job.state is not JobState.FAILED) or not self.shared.split_up(info):
                    break
        for sink in list(self.sinks.values()):
            if not sink.settle(deadline):
                raise fail("PSK-0010", f"Sink {sink.name} has not caught up within {timeout} s.")

    def _last_lsn(self, object_id: int) -> int:
        info = self.catalog.by_id(object_id) if self.catalog.has_id(object_id) else None
        if info is None or info.kind not in QUERIES:
            return 0
        last = self.log.last_entry(object_id)
        return last.lsn if last else 0

    def late_rows(self, info: ObjectInfo) -> int:
        """Rows that came too late for every window of a stream or view, since the job was started."""
        return sum(j.late_rows for j in self.jobs_of(info))

    def housekeeping_error(self, object_id: int) -> str | None:
        """What fails at present in the work that time alone asks for: watermarks of processing time, retention."""
        return self._ticker.error(object_id)

    def register_function(self, name: str, function: Callable[..., object], returns: str) -> None:
        """Makes a Python function callable in SQL, in queries made from now on."""
        self.batch.register(name, function, returns)


def stored_schema(info: ObjectInfo) -> pa.Schema:
    """The Arrow schema of an object's rows in the log."""
    schema = schema_of(info.columns)
    return schema.append(pa.field("__weight", pa.int64())) if info.changelog else schema


__all__ = ["QUERIES", "Engine", "stored_schema"]
