"""The running queries of a database."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.catalog.objects import Kind, ObjectInfo, Role, Solo
from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.runtime.connect.lookups import FedLookup
from penstock.runtime.connect.ondemand import OnDemand
from penstock.runtime.jobs.checkpoint import begun, mark_sealed
from penstock.runtime.jobs.compute import Compute
from penstock.runtime.jobs.hosted import HostedJobs
from penstock.runtime.jobs.job import Job, JobSpec
from penstock.runtime.jobs.limits import StateBudget, StateGuard
from penstock.runtime.jobs.operators import OperatorStatus
from penstock.runtime.jobs.pace import Pace
from penstock.runtime.jobs.planned import Planned, Planner
from penstock.runtime.jobs.recovery import Beginning, Recovery
from penstock.runtime.jobs.relocate import relocate
from penstock.runtime.jobs.settling import settled
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.backpressure import Reader, limits
from penstock.runtime.storage.contents import complete, contents
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.record import GENERATION, Recorder, change_part
from penstock.runtime.storage.storage import Storage
from penstock.runtime.tracing import Tracing
from penstock.serve.zset import negated
from penstock.spark.bridge import Epoch, KernelJob

QUERIES = (Kind.STREAM, Kind.VIEW)


@dataclass(frozen=True)
class Trouble:
    """Why the contents of an object do not follow its inputs: the failing query, since when (Unix time), and the LSN of the contents."""

    name: str
    state: str
    since: float
    lsn: int
    error: PenstockError | None


class Jobs:
    """Jobs by the object that they maintain. Changes require the DDL lock; reads need none."""

    def __init__(
        self,
        storage: Storage,
        compute: Compute,
        ddl: threading.RLock,
        lookups: Mapping[int, FedLookup],
        running: Callable[[], bool],
        paused: set[int] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.storage = storage
        self.compute = compute
        self.ddl = ddl
        self.running = running
        self.planner = Planner(storage, compute)
        self.recovery = Recovery(storage)
        self.planned: dict[int, Planned] = {}
        self.by_object: dict[int, Job] = {}
        self.tracing = Tracing(False) if tracing is None else tracing
        self.budget = StateBudget(storage.settings.engine.max_state_bytes)
        self.hosted = HostedJobs(self)
        self._lookups = lookups
        self.paused = set() if paused is None else paused
        """Queries that the pipeline does not start: their owner has stopped them."""
        self._refused: dict[int, tuple[PenstockError, float]] = {}
        self.last_seen: dict[int, tuple[OperatorStatus, ...]] = {}
        """The operators of queries when the JVM was last asked for them."""

    # Starting and stopping

    def start_all(self) -> None:
        """Starts every query, in order of dependency. One that cannot be started is reported; the others still start."""
        catalog = self.storage.catalog
        for info in catalog.objects(*QUERIES):
            if not self.hosted.member(info.id) and info.id not in self.paused:
                self.attempt([info], lambda info=info: self.start(info))  # type: ignore[misc]
        for key in self.hosted.all():
            self.attempt(self.hosted.members(key), lambda key=key: self.hosted.start(key))  # type: ignore[misc]

    def attempt(self, infos: Sequence[ObjectInfo], start: Callable[[], None]) -> None:
        """Starts queries; if that is refused, their status says why."""
        try:
            start()
        except PenstockError as error:
            for info in infos:
                self.refused(info.id, error)

    def refused(self, object_id: int, error: PenstockError) -> None:
        """Records that a query could not be planned or started. The next start of the pipeline, or RESTART, retries it."""
        self._refused[object_id] = (error, time.time())
        self.storage.hub.suspend(object_id, error)

    def start(self, info: ObjectInfo, planned: Planned | None = None) -> None:
        """Starts the job of a stream or view; an object without its own query has none."""
        if planned is not None:
            self.planned[info.id] = planned
        known = self.planned.get(info.id) or self.planner.stored(info)
        if known is None:
            return
        self.planned[info.id] = known
        self.storage.check_sound(info)
        # It may fail as soon as it runs.
        was = self._refused.pop(info.id, None)
        try:
            self._run_one(info, known)
        except BaseException:
            if was is not None:
                self._refused.setdefault(info.id, was)
            raise
        self._tell(info)

    def _run_one(self, info: ObjectInfo, known: Planned) -> None:
        key = self.hosted.key(info.id)
        if key is not None:
            self.hosted.start(key)
            return
        if self._lost(info, known):
            self._begin_again(info)
            known = self.plan(info)
        if known.membership is not None:
            self.hosted.join(info, known)
        else:
            folder = self.storage.layout.job(info.id)
            if not begun(folder):
                mark_sealed(folder)
            relocate(folder)
            self.run(self._spec(info, known))

    def resumed(self, info: ObjectInfo) -> None:
        """A query runs: in a job of its own, or in one that has been running."""
        self._refused.pop(info.id, None)
        self._tell(info)

    def _lost(self, info: ObjectInfo, planned: Planned) -> bool:
        """True if the query has begun, but has no checkpoint to go on from, and cannot repeat its way from an older one or from the beginning."""
        if planned.membership is not None and not begun(self.storage.layout.job(info.id)):
            recorded = self.recorded(info.id)
            return recorded >= 0 and recorded >= self.begin(info).base
        job = self._beginning(info, planned)
        why = self.recovery.damage(job.folder)
        if why is None and begun(job.folder):
            return False
        has_begun = why is not None or self.recorded(info.id) >= max(0, job.base) or self.recovery.saved(job)
        return has_begun and not self.recovery.roll_back(job, why or f"{job.folder / 'checkpoint'} is missing")

    def _beginning(self, info: ObjectInfo, planned: Planned) -> Beginning:
        solo = self.begin(info)
        reads = dict.fromkeys(planned.compiled.objects, solo.start) | {s.object_id: s.lsn for s in planned.seeds}
        folder = self.storage.layout.job(info.id)
        return Beginning(info.name, folder, solo.base, reads, planned.repeatable)

    def beginnings(self) -> list[Beginning]:
        """All jobs that have been planned in this process."""
        # One look at the catalogue: another thread may drop an object at any moment.
        known = [(o, p) for o in self.storage.catalog.objects() if (p := self.planned.get(o.id)) is not None]
        own = [self._beginning(o, p) for o, p in known if not self.hosted.member(o.id)]
        return [*own, *self.hosted.beginnings()]

    def running_in(self, job: Beginning) -> Job | None:
        """The job that runs in a folder."""
        return next((j for j in self._all() if j.kernel.folder == job.folder), None)

    def recorded(self, object_id: int) -> int:
        """The last epoch of a query that is in the log, with rows, or with errors alone; -1 if there is none."""
        errors = self.storage.owned(object_id, Role.ERRORS)
        return max(self.storage.log.job_epoch(i) for i in (object_id, *([errors.id] if errors is not None else [])))

    def begin(self, info: ObjectInfo) -> Solo:
        """Where a query begins that has no checkpoint."""
        return self.storage.catalog.solo.get(info.id, Solo(0, 0))

    def after(self, object_id: int, start: int = 0) -> Solo:
        """Where a query begins again, with epoch numbers above all that it has had."""
        return Solo(start, (self.recorded(object_id) // GENERATION + 1) * GENERATION)

    def check_repeatable(self, info: ObjectInfo) -> None:
        """Raises PSK-6003 or PSK-5011 for a query that cannot start over: its output cannot be retracted, or not be recomputed."""
        if self.recorded(info.id) < 0:
            return
        planned = self.planned.get(info.id) or self.planner.stored(info, begins=True)
        assert planned is not None
        way = f"Drop {info.name} and create it again."
        if not info.changelog or len(planned.output_ids) > 1:
            raise fail("PSK-6003", f"{info.name} cannot start over: its rows cannot be retracted.", hint=way)
        catalog, log = self.storage.catalog, self.storage.log
        for i in planned.compiled.objects:
            known = catalog.by_id(i) if catalog.has_id(i) else None
            if known is not None and not known.has_contents and not complete(log, i):
                raise fail(
                    "PSK-5011",
                    f"{info.name} cannot be recomputed: the history of {known.name} is no longer complete.",
                    hint=way,
                )

    def _begin_again(self, info: ObjectInfo) -> None:
        """Retracts all output and all errors of the query, so that it can be recomputed from its inputs. After a crash in between it starts over."""
        self.check_repeatable(info)
        storage = self.storage
        errors = self.errors_of(info)
        parts = []
        for o in [info, *([errors] if errors is not None else [])]:
            rows = contents(storage, o)
            if rows.num_rows:
                parts.append(change_part(o, negated(rows).cast(stored_schema(o))))
        if parts:
            storage.commit(parts)
        with storage.catalog.edit():
            storage.catalog.solo[info.id] = self.after(info.id)
        # What it began with may be followed by changes that the log does not have any more.
        shutil.rmtree(storage.layout.job(info.id), ignore_errors=True)
        self.planned.pop(info.id, None)

    def run(self, spec: JobSpec, made: Callable[[Job], None] = lambda job: None) -> None:
        """Starts a job; `made` hears of it before it runs."""
        job = Job(spec)
        job.figures.begun = self.storage.log.head
        made(job)
        for i in spec.objects:
            self.by_object[i] = job
        # Before it runs: a query that fails at once must keep its reason.
        was = {i: refused for i in spec.objects if (refused := self._refused.pop(i, None)) is not None}
        try:
            # After Ctrl-C the query either runs and is registered, or neither.
            with uninterrupted():
                job.start()
        except BaseException:
            for i in spec.objects:
                self.by_object.pop(i, None)
            for i, refused in was.items():
                self._refused.setdefault(i, refused)
            if job.state is not JobState.STOPPED:
                _quietly(job)
            raise
        spec.healed()

    def plan(self, info: ObjectInfo) -> Planned:
        """The plan of a stream or view, built at most once per process."""
        planned = self.planned.get(info.id) or self.planner.stored(info)
        assert planned is not None
        self.planned[info.id] = planned
        return planned

    def _spec(self, info: ObjectInfo, planned: Planned) -> JobSpec:
        storage, compute = self.storage, self.compute
        outputs = [storage.info(i) for i in planned.output_ids]
        solo = self.begin(info)
        settings = storage.settings.engine
        asks = self._asks(info)
        owner = storage.info(info.owner_id) if info.role is Role.PROBE and info.owner_id is not None else None
        recorder = Recorder(storage, outputs, planned.compiled.outputs, solo.base, asks, [self.errors_of(info)])

        def make() -> KernelJob:
            return KernelJob(
                compute.spark,
                compute.uid,
                planned.job,
                planned.compiled,
                folder=storage.layout.job(info.id),
                schemas=[stored_schema(o) for o in outputs],
                max_rows=settings.max_rows_per_epoch,
                poll_ms=settings.poll_timeout_ms,
                every_ms=planned.every_ms,
                seeds=planned.seeds,
                start=solo.start,
                state_limit=planned.limits.query,
                codegen=planned.codegen,
                recorded=recorder.recorded(),
                gather_ms=self.gather_ms(planned.compiled.objects),
                closings=planned.closings,
            )

        told = [*outputs, *([owner] if owner is not None else [])]
        return JobSpec(
            name=f"lookups of {owner.name}" if owner is not None else info.name,
            objects=planned.output_ids,
            make=make,
            recorder=recorder,
            failed=self.teller(told),
            healed=self.healer(told),
            mend=lambda error, n: self.recovery.mend(self._beginning(info, planned), error, n),
            taken=self.taken,
            tracing=self.tracing,
            ended=partial(self.count_late, (owner or info).id),
            erred=self.erred,
            interrupt=asks.interrupt if asks is not None else lambda: None,
            guard=StateGuard.of(info.name, planned.limits, self.budget),
            pace=self.pace(),
            read=partial(self.rows_read, planned.compiled.objects),
        )

    def gather_ms(self, objects: Iterable[int]) -> int:
        """How long a job may gather rows of these objects. Where writers wait until a query has read what they wrote, it reads at once."""
        inputs = [found for i in objects if (found := self.storage.find(i)) is not None]
        limited = any(any(limits(i, self.storage.settings)) for i in inputs)
        return 0 if limited else self.storage.settings.engine.gather_ms

    def pace(self) -> Pace:
        """For a job that is started now."""
        settings = self.storage.settings.engine
        return Pace(settings.max_rows_per_epoch, settings.max_epoch_ms)

    def rows_read(self, objects: Sequence[int], epoch: Epoch) -> int:
        """How many rows an epoch has read from the log."""
        return sum(self.storage.log.amount(i, after=epoch.after, up_to=epoch.lsn)[1] for i in objects)

    def taken(self, objects: Sequence[int], lsn: int) -> None:
        """Queries have processed their inputs up to an LSN."""
        known = [(i, o.depends_on) for i in objects if (o := self.storage.find(i)) is not None]
        self.storage.totals.take(known, lsn)

    def count_late(self, object_id: int, rows: int) -> None:
        """Rows of a query were late, in a job that does not count them any more."""
        if rows:
            self.storage.totals.of(object_id).late += rows

    def teller(self, infos: Sequence[ObjectInfo]) -> Callable[[PenstockError], None]:
        """A callback that reports a failure to subscribers."""

        def failed(error: PenstockError) -> None:
            for o in infos:
                self.storage.hub.suspend(o.id, error)

        return failed

    def healer(self, infos: Sequence[ObjectInfo]) -> Callable[[], None]:
        """A callback that resumes subscribers."""

        def healed() -> None:
            for o in infos:
                self._tell(o)

        return healed

    def erred(self) -> None:
        """Called when the errors of a query have changed: suspends or resumes subscribers of everything that reads it."""
        for o in self.storage.catalog.objects(*QUERIES):
            self._tell(o)

    def _tell(self, info: ObjectInfo) -> None:
        error = self.uncomputed([info])
        if error is not None:
            self.storage.hub.suspend(info.id, error)
        elif self.trouble(info) is None:
            self.storage.hub.resume(info.id)

    def errors_of(self, info: ObjectInfo) -> ObjectInfo | None:
        """The object that receives the rows of a query that could not be computed."""
        return self.storage.owned(info.id, Role.ERRORS)

    def _asks(self, info: ObjectInfo) -> OnDemand | None:
        """The lookup table that answers the rows of a probe."""
        if info.lookup_id is None:
            return None
        lookup = self._lookups[info.lookup_id]
        assert isinstance(lookup, OnDemand)
        return lookup

    def stop(self, info: ObjectInfo) -> None:
        if self.hosted.member(info.id):
            self.hosted.leave(info)
            return
        job = self.by_object.pop(info.id, None)
        if job is not None and isinstance(job.spec.recorder, Recorder):
            # The stream of late rows of a member goes with the member, and not with its job.
            for i in job.objects:
                self.by_object.pop(i, None)
            job.stop()

    def halt(self, info: ObjectInfo) -> None:
        """Stops a query, and those that share its job, before a restart. Until they are restarted, their contents are not served as current."""
        key = self.hosted.key(info.id)
        for one in [info] if key is None else self.hosted.members(key):
            self._stopped(one)
        if key is None:
            self.stop(info)
        else:
            self.hosted.halt(key)

    def _stopped(self, info: ObjectInfo) -> None:
        self.refused(info.id, fail("PSK-7006", f"{info.name} was stopped, and not started again."))

    def restart(self, info: ObjectInfo) -> None:
        """Restarts a query that has a job of its own; if that is refused, its status says why."""
        self.halt(info)
        self.attempt([info], lambda: self.start(info))

    def lose(self, info: ObjectInfo, *, told: bool = True) -> None:
        """Stops a query, which begins again when it is started: all that it has emitted is taken back first. Its subscribers are told,
        unless it is started again under the same lock."""
        if told:
            self._stopped(info)
        self.stop(info)
        shutil.rmtree(self.storage.layout.job(info.id), ignore_errors=True)
        self.planned.pop(info.id, None)
        with self.storage.catalog.edit():
            self.storage.catalog.solo.pop(info.id, None)
            self.storage.catalog.plans.pop(info.id, None)

    def release(self, info: ObjectInfo) -> None:
        """A query that has failed does not go on where it was any more: what it has not read may leave the log. It starts over."""
        if info.id in self.storage.catalog.solo:
            with self.storage.catalog.edit():
                self.storage.catalog.solo.pop(info.id, None)
        self.planned.pop(info.id, None)
        shutil.rmtree(self.storage.layout.job(info.id), ignore_errors=True)

    def forget(self, info: ObjectInfo) -> None:
        """Removes the job, plan and files of a dropped query."""
        try:
            self.stop(info)
        finally:
            self.planned.pop(info.id, None)
            self._refused.pop(info.id, None)
            self.paused.discard(info.id)
            self.last_seen.pop(info.id, None)
            shutil.rmtree(self.storage.layout.job(info.id), ignore_errors=True)

    def stop_all(self, deadline: float) -> list[str]:
        """Stops all jobs; returns those that have not stopped by then (monotonic clock)."""
        jobs = self._with_empty()
        self.by_object.clear()
        self.hosted.stopped()
        threads = [
            threading.Thread(target=_quietly, args=(j,), name=f"penstock-stop-{j.name}", daemon=True) for j in jobs
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(max(0.0, deadline - time.monotonic()))
        return [j.name for j, t in zip(jobs, threads, strict=True) if t.is_alive()]

    def abandon(self, error: PenstockError) -> None:
        """The JVM has ended, and every query with it."""
        jobs = self._with_empty()
        self.hosted.stopped()
        for job in jobs:
            job.abandon(error)
        for info in self.storage.catalog.objects(*QUERIES):
            self.storage.hub.suspend(info.id, error)

    def _all(self) -> list[Job]:
        return list({id(j): j for j in list(self.by_object.values())}.values())

    def _with_empty(self) -> list[Job]:
        """All jobs, also shared ones whose last member has failed and that are about to be closed."""
        return list({id(j): j for j in [*self._all(), *self.hosted.jobs()]}.values())

    def __iter__(self) -> Iterator[Job]:
        return iter(self._all())

    # Status

    def of(self, info: ObjectInfo) -> list[Job]:
        """The jobs that produce the rows of a stream or view: its own, and those of its on-demand lookups."""
        ids = [info.id, *(o.id for o in self.probes(info))]
        return [j for i in ids if (j := self.by_object.get(i)) is not None]

    def probes(self, owner: ObjectInfo) -> list[ObjectInfo]:
        """The probes of a query, in the order in which they feed each other."""
        streams = self.storage.catalog.objects(Kind.STREAM)
        return [o for o in streams if o.role is Role.PROBE and o.owner_id == owner.id]

    def trouble(self, info: ObjectInfo) -> Trouble | None:
        """Why the contents of one object do not follow its inputs; None if they do, or will."""
        damage = self.storage.damage.get(info.id)
        if damage is not None:
            return Trouble(info.name, "damaged", 0.0, 0, damage)
        if info.kind not in QUERIES:
            return None
        last = self.storage.log.last_entry(info.id)
        lsn = last.lsn if last else 0
        if info.id in self._refused:
            error, since = self._refused[info.id]
            return Trouble(info.name, "failed", since, lsn, error)
        owner = info
        if info.role in (Role.LATE_ROWS, Role.ERRORS) and info.owner_id is not None:
            owner = self.storage.info(info.owner_id)
        job = self.by_object.get(owner.id)
        if job is None:
            return Trouble(info.name, "stopped", 0.0, lsn, None) if not self.running() else None
        if job.error is not None and job.state in (JobState.FAILED, JobState.RETRYING) and not job.mending:
            return Trouble(info.name, job.state.value, job.failed_at or 0.0, max(lsn, job.figures.reached), job.error)
        return None

    def readers(self, object_id: int) -> Iterator[Reader]:
        """The running queries that read an object directly. What was committed before one was started does not count as waiting for it: a new query may have to
        read a long history first."""
        catalog = self.storage.catalog
        for info in catalog.dependents(object_id):
            job = self.by_object.get(info.id)
            if job is not None and job.state not in (JobState.FAILED, JobState.STOPPED):
                owner = info.owner_id if info.hidden and info.owner_id is not None else info.id
                name = catalog.by_id(owner).name if catalog.has_id(owner) else info.name
                yield Reader(name, max(job.figures.reached, job.figures.begun))

    def upstream(self, infos: Iterable[ObjectInfo], *, errors: bool = True) -> list[ObjectInfo]:
        """Objects and all their inputs, direct and indirect, in order of dependency. Without `errors`, the errors of a query do not depend on it."""
        catalog = self.storage.catalog
        seen: set[int] = set()
        todo = [i.id for i in infos]
        while todo:
            object_id = todo.pop()
            if object_id in seen or not catalog.has_id(object_id):
                continue
            seen.add(object_id)
            info = catalog.by_id(object_id)
            if info.role is Role.ERRORS and not errors:
                todo += [i for of in info.depends_on if catalog.has_id(of) for i in catalog.by_id(of).depends_on]
            else:
                todo += info.depends_on
        return [o for o in catalog.objects() if o.id in seen]

    def uncomputed(self, infos: Iterable[ObjectInfo]) -> PenstockError | None:
        """Why objects may not be read now: rows of a query among their inputs could not be computed, and are not diverted."""
        behind = {o.id: o for o in self.upstream(infos, errors=False)}
        for errors in self.storage.catalog.objects(Kind.VIEW):
            owner = behind.get(errors.owner_id or 0)
            if errors.role is Role.ERRORS and owner is not None and owner.options.get("on_error", "fail") == "fail":
                error = self._failing(owner, errors)
                if error is not None:
                    return error
        return None

    def _failing(self, owner: ObjectInfo, errors: ObjectInfo) -> PenstockError | None:
        count = self.storage.store.count(errors.id)
        if not count:
            return None
        rows = self.storage.store.query('SELECT * FROM "errors" LIMIT 3', {"errors": errors.id}).to_pylist()
        named = "; ".join(f"{r['expression']}: {r['error']} Row {r['row']}" for r in rows)
        return fail(
            "PSK-7007",
            f"{owner.name} has {count} row{'s' if count != 1 else ''} that could not be computed. {named}",
            hint=f"Delete or correct them; or create {owner.name} with ERRORS TO name, which diverts them. "
            "SELECT … WITH (stale = true) reads the others.",
        )

    def late_rows(self, info: ObjectInfo) -> int:
        """Rows that were too late for every window of a stream or view."""
        ids = [info.id, *(o.id for o in self.probes(info))]
        now = sum(job.late_rows(i) for i in ids if (job := self.by_object.get(i)) is not None)
        return self.storage.totals.of(info.id).late + now

    # Progress

    def settle(self, info: ObjectInfo, lsn: int, deadline: float | None) -> bool:
        """Waits until a query and its inputs have recorded everything up to an LSN; False after the timeout. Raises the cause if they cannot."""
        return settled(self, info, lsn, deadline)

    def refusal(self, object_id: int) -> PenstockError | None:
        """Why a query could not be started, or was evicted from its job."""
        found = self._refused.get(object_id)
        return found[0] if found is not None else None


def _quietly(job: Job) -> None:
    with suppress(Exception):
        job.stop()
