"""Queries that read the same objects share a job: one epoch serves all of them.

Members have slots, which are never used twice in a job. The job has no plan that names them, so a query joins and leaves while the job runs, and the state of
the others is not touched: a new member begins with the next epoch, in which it alone reads what was there before. Which slot a query has is in the
catalogue; which members an epoch was for is in the job's file of epochs. A member that fails is taken out, and the others go on. One without state goes on where it was when it is started
again; one with state begins again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.objects import Hosting, ObjectInfo, Role, Slot, Solo
from penstock.catalog.types import stored_schema
from penstock.disk import make_folder
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.checkpoint import begun, mark_sealed, reached
from penstock.runtime.jobs.hostkey import HostKey
from penstock.runtime.jobs.job import Job, JobSpec
from penstock.runtime.jobs.limits import StateGuard
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.jobs.recovery import Beginning
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.record import MemberRecorder, Recorder, last_covered
from penstock.spark.bridge import Seed
from penstock.spark.hosted import HostJob, Place, compile_host
from penstock.spark.operators import StateFigures
from penstock.spark.seeds import write_seed

if TYPE_CHECKING:
    from penstock.runtime.jobs.jobs import Jobs

_FAILED = re.compile(r"member (\d+) of a shared job failed: (.*)")


_OF_ONE = ("PSK-1", "PSK-6")
"""Errors that are those of one query, and do not pass."""


class HostedJobs:
    """The shared jobs, by what their members have in common. Changes are made under the lock of DDL; only a member that fails is taken out by the pump of its job."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._catalog = jobs.storage.catalog
        self._running: dict[str, _Host] = {}
        self._noting = threading.Lock()
        """Held while the catalogue is read and changed."""

    def key(self, object_id: int) -> str | None:
        """The job that a query is a member of; None if it is none."""
        return next((key for key, h in list(self._catalog.hosted.items()) if object_id in h.members), None)

    def member(self, object_id: int) -> bool:
        return self.key(object_id) is not None

    def fits(self, key: str, planned: Planned) -> bool:
        """Whether a query could be a member of a job."""
        return planned.membership is not None and str(HostKey.of(planned.membership)) == key

    def all(self) -> list[str]:
        return list(self._catalog.hosted)

    def members(self, key: str) -> list[ObjectInfo]:
        return [self._catalog.by_id(i) for i in self._members(key)]

    def _members(self, key: str) -> dict[int, Slot]:
        """Of one that was dropped, or never came into the catalogue, only the slot is left."""
        hosting = self._catalog.hosted.get(key)
        return {i: s for i, s in hosting.members.items() if self._catalog.has_id(i)} if hosting is not None else {}

    def _note(self, key: str, hosting: Hosting | None, left: Mapping[int, Solo] | None = None) -> None:
        """Stores what a job is, durably; `left`: where queries go on that are no members any more."""
        with self._catalog.edit():
            self._catalog.solo.update(left or {})
            self._catalog.hosted.pop(key, None)
            if hosting is not None:
                self._catalog.hosted[key] = hosting
                for i in hosting.members:
                    self._catalog.solo.pop(i, None)

    def _give(self, key: str, info: ObjectInfo, planned: Planned) -> None:
        """Gives a query a new slot, durably."""
        with self._noting:
            old = self._catalog.hosted.get(key)
            if old is None:
                old = Hosting(self._free_number(key), self._jobs.storage.log.head, 0, {})
            solo = self._jobs.begin(info)
            slot = Slot(old.last + 1, solo.base, solo.start or self._beginning(key, planned))
            self._note(key, Hosting(old.number, old.start, slot.slot, {**old.members, info.id: slot}))

    def _beginning(self, key: str, planned: Planned) -> int:
        """The LSN after which a new query reads. Trimmed entries can reappear after a crash; they are not part of its input."""
        log = self._jobs.storage.log
        head = log.head
        empty = not planned.seeds and all(log.first_entry(o) is None for o in HostKey.read(key).objects)
        return head if empty else 0

    def _take(self, key: str, object_id: int, *, resumes: bool = False) -> None:
        """Takes a query's slot away, durably. `resumes`: it will be started again, and goes on where it is if it has no state."""
        with self._noting:
            hosting = self._catalog.hosted.get(key)
            if hosting is not None:
                rest = {i: s for i, s in hosting.members.items() if i != object_id}
                left = self._position(key, hosting, object_id) if resumes else None
                self._note(key, replace(hosting, members=rest), {object_id: left} if left is not None else None)

    def _position(self, key: str, hosting: Hosting, object_id: int) -> Solo | None:
        """Where a member goes on; None if it begins again."""
        slot = hosting.members.get(object_id)
        if slot is None or HostKey.read(key).state or not self._catalog.has_id(object_id):
            return None
        log = self._jobs.storage.log
        covered = (last_covered(log, [i], s.base) for i, s in hosting.members.items() if self._catalog.has_id(i))
        recorded = max((c.reach for c in covered if c is not None), default=0)
        try:
            found = reached(self._folder(key, hosting.number), slot.slot, recorded)
        except PenstockError:
            return None
        return self._jobs.after(object_id, slot.start if found is None else found)

    def _folder(self, key: str, number: int) -> Path:
        return self._jobs.storage.layout.hosted(key, number)

    # Members

    def join(self, info: ObjectInfo, planned: Planned) -> None:
        """Makes a query a member of the job over its objects, which is started if there is none."""
        assert planned.membership is not None
        key = str(HostKey.of(planned.membership))
        before = self._catalog.solo.get(info.id)
        with uninterrupted():
            self._give(key, info, planned)
            try:
                if self._jobs.running():
                    host = self._running.get(key)
                    if host is not None and host.job.state is JobState.RUNNING:
                        # In this order: if it fails at once, it is taken out again.
                        self._list(info.id, host.job)
                        host.join(info, self._catalog.hosted[key].members[info.id], planned)
                    else:
                        self._stop(key)
                        self._start(key, {info.id: info})
            except BaseException:
                self._forget(key, info.id)
                if before is not None:
                    with self._catalog.edit():
                        self._catalog.solo[info.id] = before
                raise

    def leave(self, info: ObjectInfo) -> None:
        """The query is no member any more: it was dropped, or is to begin again. What it has kept is of no use to anybody."""
        key = self.key(info.id)
        if key is not None:
            with uninterrupted():
                self._forget(key, info.id)

    def _list(self, object_id: int, job: Job | None) -> None:
        """Notes which job maintains a query and the stream of its late rows; None: none does."""
        late = self._jobs.storage.owned(object_id, Role.LATE_ROWS)
        places = (h.places[object_id][1] for h in list(self._running.values()) if object_id in h.places)
        known = (place.object_ids for place in places)
        for i in next(known, (object_id,) if late is None else (object_id, late.id)):
            if job is None:
                self._jobs.by_object.pop(i, None)
            else:
                self._jobs.by_object[i] = job

    def _forget(self, key: str, object_id: int) -> None:
        self._take(key, object_id)
        self._list(object_id, None)
        host = self._running.get(key)
        if host is not None:
            host.leave(object_id)
        self._close(key)

    def _close(self, key: str) -> None:
        """Ends a job that has no members."""
        with self._noting:
            hosting = self._catalog.hosted.get(key)
            if hosting is None or hosting.members:
                return
            self._note(key, None)
        self._stop(key)
        self._jobs.storage.layout.sweep_hosted(key, None)

    @contextmanager
    def at_rest(self, info: ObjectInfo) -> Iterator[None]:
        """Nothing of the job that a query shares is recorded meanwhile: all its members stay where they are. A member that is being evicted is gone, with its reason known."""
        host = next((h for h in list(self._running.values()) if info.id in h.places), None)
        with host.boundary if host is not None else nullcontext():
            yield

    def inherit(self, info: ObjectInfo, version: ObjectInfo, base: int) -> None:
        """The slot of a version becomes that of its query, which gives up its own. To be called within a change of the catalogue."""
        for key, hosting in list(self._catalog.hosted.items()):
            slot = hosting.members.get(version.id)
            rest = {i: s for i, s in hosting.members.items() if i not in (version.id, info.id)}
            if slot is not None:
                rest[info.id] = replace(slot, base=base)
            self._catalog.hosted[key] = replace(hosting, members=rest)

    def become(self, info: ObjectInfo, version: ObjectInfo, planned: Planned) -> None:
        """The jobs that run follow `inherit`, at rest."""
        self._list(version.id, None)
        now = self.key(info.id)
        for key, other in self._running.items():
            if key != now and info.id in other.places:
                other.leave(info.id)
        host = self._running.get(now) if now is not None else None
        if now is not None and host is not None:
            host.become(info, version, self._catalog.hosted[now].members[info.id], planned)
            self._list(info.id, host.job)

    def depart(self, info: ObjectInfo) -> None:
        """A query without state leaves its job, and goes on where it is when it is started again."""
        key = self.key(info.id)
        if key is None:
            return
        with self.at_rest(info):
            if self._position(key, self._catalog.hosted[key], info.id) is None:
                raise fail("PSK-6018", f"How far {info.name} has read is unknown.", hint="RESTART it first.")
            self._take(key, info.id, resumes=True)
            self._list(info.id, None)
            if key in self._running:
                self._running[key].leave(info.id)

    def close_empty(self) -> None:
        """Ends jobs whose last member has gone to another."""
        for key in self.all():
            self._close(key)

    def evict(self, key: str, object_id: int, error: PenstockError) -> None:
        """A member has failed. It is taken out durably before another epoch is recorded, of which its state would have no part."""
        host = self._running.get(key)
        if host is None:
            return
        self._take(key, object_id, resumes=True)
        # Whoever waits for it hears of this before the job goes on without it. The statement that creates it may not have put it into the catalogue yet.
        if object_id in host.places:
            self._jobs.refused(object_id, error)
        self._list(object_id, None)
        host.leave(object_id)

        def close() -> None:
            with self._jobs.ddl:
                # A pipeline that has stopped meanwhile, or a database that has closed, closes it when it starts.
                if self._jobs.running():
                    self._close(key)

        # This is the pump's thread of the job itself, which must end before the job can be stopped.
        threading.Thread(target=close, name="penstock-evict", daemon=True).start()

    # Running

    def start(self, key: str) -> None:
        """Starts a job as it was when the pipeline was stopped. A member whose plan is refused is taken out of it, and begins again when it is accepted."""
        if key in self._running:
            return
        hosting = self._catalog.hosted[key]
        for i in [i for i in hosting.members if not self._catalog.has_id(i)]:
            self._take(key, i)
        for i in self._members(key):
            info = self._catalog.by_id(i)
            try:
                self._check(info)
            except PenstockError as error:
                if not error.code.startswith(_OF_ONE):
                    raise
                self._take(key, i, resumes=True)
                self._jobs.refused(i, error)
        sound = self._members(key)
        if not sound:
            self._close(key)
        elif self._lost(key, hosting, sound):
            # Each begins again, in a new job.
            self._note(key, None)
            for info in (self._catalog.by_id(i) for i in sound):
                self._jobs.attempt([info], lambda info=info: self._jobs.start(info))  # type: ignore[misc]
        else:
            self._start(key, {})

    def _check(self, info: ObjectInfo) -> None:
        self._jobs.storage.check_sound(info)
        if self._jobs.plan(info).membership is None:
            raise fail(
                "PSK-6003",
                f"The plan of {info.name} is not the one that its stored state was made with.",
                hint=f"Drop and create {info.name} again.",
            )

    def _lost(self, key: str, hosting: Hosting, members: Mapping[int, Slot]) -> bool:
        """True if the log has epochs of members, and the checkpoint is gone."""
        recorded = any(self._jobs.recorded(i) >= slot.base for i, slot in members.items())
        job = self._place(key, hosting)
        why = self._jobs.recovery.damage(job.folder)
        if why is None and begun(job.folder):
            return False
        has_begun = recorded or why is not None or self._jobs.recovery.saved(job)
        return has_begun and not self._jobs.recovery.roll_back(job, why or f"{job.folder / 'checkpoint'} is missing")

    def _place(self, key: str, hosting: Hosting) -> Beginning:
        """A job with its members: each reads from its own beginning."""
        common = HostKey.read(key)
        reads = dict.fromkeys(common.objects, hosting.start)
        for i, slot in self._members(key).items():
            planned = self._jobs.planned.get(i)
            seeded = {} if slot.start or planned is None else {s.object_id: s.lsn for s in planned.seeds}
            for o in common.objects:
                reads[o] = min(reads[o], slot.start or seeded.get(o, 0))
        return Beginning(f"the job over {key}", self._folder(key, hosting.number), 0, reads)

    def beginnings(self) -> list[Beginning]:
        return [self._place(key, hosting) for key, hosting in list(self._catalog.hosted.items())]

    def _start(self, key: str, joining: Mapping[int, ObjectInfo]) -> None:
        hosting = self._catalog.hosted[key]
        infos = {**{i: self._catalog.by_id(i) for i in self._members(key)}, **joining}
        folder = self._folder(key, hosting.number)
        if not begun(folder):
            mark_sealed(folder)

        def mend(error: PenstockError, attempt: int) -> bool:
            job = self._place(key, self._catalog.hosted[key])
            return self._jobs.recovery.mend(job, error, attempt)

        host = _Host(self._jobs, key, hosting, folder, lambda i, error: self.evict(key, i, error), mend)
        for i, info in infos.items():
            host.join(info, hosting.members[i], self._jobs.plan(info))
        self._running[key] = host
        try:
            self._jobs.run(host.spec(), host.adopt)
        except BaseException:
            self._running.pop(key, None)
            raise

    def halt(self, key: str) -> None:
        """Stops a job; `start` goes on with all its members."""
        self._stop(key)

    def _stop(self, key: str) -> None:
        host = self._running.pop(key, None)
        if host is not None:
            for i in list(host.places):
                self._list(i, None)
            host.job.stop()

    def jobs(self) -> list[Job]:
        """The shared jobs that run."""
        return [host.job for host in list(self._running.values())]

    def stopped(self) -> None:
        """All jobs were stopped, or have ended with the JVM."""
        self._running.clear()

    def renew(self, object_id: int) -> None:
        """An object has changed its columns: jobs that read it are started again, and know them."""
        for key in self.all():
            if object_id in HostKey.read(key).objects and key in self._running:
                self._stop(key)
                self._jobs.attempt(self.members(key), lambda key=key: self.start(key))  # type: ignore[misc]

    def _free_number(self, key: str) -> int:
        """A number that no job over these objects has had of which anything is left."""
        left = [int(f.name) for f in self._folder(key, 0).parent.glob("*") if f.name.isdecimal()]
        return max([0, *left]) + 1


class _Host:
    """One shared job: its members, and the run that serves them."""

    def __init__(
        self,
        jobs: Jobs,
        key: str,
        hosting: Hosting,
        folder: Path,
        evict: MemberRecorder.Evict,
        mend: Callable[[PenstockError, int], bool],
    ) -> None:
        self._jobs = jobs
        self._mend = mend
        self._key = key
        self._hosting = hosting
        self._folder = folder
        self._evict = evict
        self.places: dict[int, tuple[int, Place]] = {}
        self._recorder = MemberRecorder(jobs.storage, evict, self.kept, self._tidy)
        self._lock = self._recorder.lock
        self._made: Job | None = None
        self._kernel: HostJob | None = None
        self._untidy = True
        self._sweeping: set[int] = set()
        self._objects: list[int] = []
        self._name = f"{jobs.compute.uid}-hosted-{key}"
        self._common = HostKey.read(key)
        read = [jobs.storage.catalog.by_id(o) for o in self._common.objects]
        self._plan = compile_host(jobs.compute.spark, read, self._common.timed)

    @property
    def job(self) -> Job:
        assert self._made is not None
        return self._made

    def adopt(self, job: Job) -> None:
        self._made = job

    def join(self, info: ObjectInfo, slot: Slot, planned: Planned) -> None:
        assert planned.membership is not None
        # One that goes on where it was finds what its lookup tables had there.
        contents = self._contents(planned.membership.tables) if self._kernel is not None and slot.start else []
        with self._lock:
            self._enter(info, slot, planned)
            if self._kernel is not None:
                if contents:
                    self._kernel.know(contents)
                self._kernel.join(slot.slot, self.places[info.id][1])

    def _enter(self, info: ObjectInfo, slot: Slot, planned: Planned) -> None:
        assert planned.membership is not None
        seeds = tuple(Seed(o, slot.start, 0, "", ()) for o in self._common.objects) if slot.start else planned.seeds
        late = self._jobs.storage.owned(info.id, Role.LATE_ROWS)
        outputs = [info] if late is None else [info, late]
        place = Place(
            tuple(o.id for o in outputs),
            planned.membership,
            tuple(stored_schema(o) for o in outputs),
            seeds,
            planned.limits.query,
            planned.closings,
        )
        recorder = Recorder(
            self._jobs.storage, outputs, planned.compiled.outputs, slot.base, errors=[self._jobs.errors_of(info)]
        )
        guard = StateGuard.of(info.name, planned.limits, self._jobs.budget)
        late_id = None if late is None else late.id
        self._recorder.members[slot.slot] = MemberRecorder.Member(info.id, recorder, guard, late_id)
        self.places[info.id] = (slot.slot, place)
        self._objects += place.object_ids

    @property
    def boundary(self) -> AbstractContextManager[object]:
        """Held between two epochs."""
        return self._lock

    def become(self, info: ObjectInfo, version: ObjectInfo, slot: Slot, planned: Planned) -> None:
        """A member maintains another object from here on, whose own member leaves."""
        with self._lock:
            self.leave(info.id)
            self._unlist(self.places.pop(version.id)[1])
            self._recorder.members.pop(slot.slot)
            self._enter(info, slot, planned)
            if self._kernel is not None:
                self._kernel.become(slot.slot, self.places[info.id][1])

    def leave(self, object_id: int) -> None:
        with self._lock:
            self._untidy = True
            slot, place = self.places.pop(object_id, (0, None))
            gone = self._recorder.members.pop(slot, None)
            if gone is not None and gone.guard is not None:
                gone.guard.forget()
            if place is not None:
                self._unlist(place)
            if self._kernel is not None and slot:
                self._kernel.leave(slot)

    def _unlist(self, place: Place) -> None:
        """Forgets what a member maintains. Its late rows stay counted."""
        for i in place.object_ids:
            self._objects.remove(i)
            if self._made is not None:
                self._made.figures.rows_out.pop(i, None)
                self._jobs.count_late(i, self._made.figures.late.pop(i, 0))

    def _count_late(self) -> None:
        """The job ends."""
        late = self.job.figures.late
        for i in list(late):
            self._jobs.count_late(i, late.pop(i))

    def kept(self) -> Mapping[int, Sequence[StateFigures]]:
        """What each member keeps."""
        return self._kernel.kept() if self._kernel is not None else {}

    def _tidy(self) -> None:
        """Removes what members have left behind."""
        kernel = self._kernel
        if kernel is None:
            return
        if self._sweeping:
            kernel.swept(self._sweeping)
            self._sweeping = set()
        elif self._untidy:
            self._sweeping = set(kernel.remains())
            self._untidy = False
            if self._sweeping:
                kernel.sweep(self._sweeping)

    def _contents(self, tables: Iterable[int]) -> list[Seed]:
        """The contents of lookup tables now, in files of the job. The kernel takes back what the job has yet to read."""
        storage = self._jobs.storage
        found = []
        for i in sorted(set(tables)):
            info = storage.catalog.by_id(i)
            storage.check_sound(info)
            make_folder(self._folder)
            path = self._folder / f"contents-{i}.arrow"
            with storage.store.reading(i) as now:
                found.append(write_seed(path, i, now.lsn, now.schema, now.pieces, info.changelog))
        return found

    def _make(self) -> HostJob:
        jobs, settings = self._jobs, self._jobs.storage.settings.engine
        with self._lock:
            places = [place for _, place in self.places.values()]
        contents = self._contents(i for place in places for i in place.membership.tables)
        with self._lock:
            self._sweeping = set()
            self._kernel = HostJob(
                jobs.compute.spark,
                jobs.compute.uid,
                self._name,
                self._plan,
                folder=self._folder,
                max_rows=settings.max_rows_per_epoch,
                poll_ms=settings.poll_timeout_ms,
                start=self._hosting.start,
                places=dict(self.places.values()),
                contents=contents,
                parallelism=jobs.compute.parallelism,
                gather_ms=jobs.gather_ms(self._common.objects),
                recorded=self._recorder.resume(),
            )
            return self._kernel

    def _blamed(self, error: PenstockError) -> bool:
        """Takes out the member that an error names; False if it names none."""
        found = _FAILED.search(str(error.detail))
        if found is None:
            return False
        with self._lock:
            of = next((i for i, (slot, _) in self.places.items() if slot == int(found[1])), None)
            if of is not None:
                self._evict(of, fail("PSK-7001", found[2]))
        return of is not None

    def _told(self) -> list[ObjectInfo]:
        catalog = self._jobs.storage.catalog
        return [catalog.by_id(i) for i in list(self.places) if catalog.has_id(i)]

    def spec(self) -> JobSpec:
        jobs, catalog = self._jobs, self._jobs.storage.catalog
        return JobSpec(
            name=("keyed " if self._common.state else "")
            + "queries on "
            + ", ".join(catalog.by_id(o).name for o in self._common.objects),
            objects=self._objects,
            make=self._make,
            recorder=self._recorder,
            failed=lambda error: jobs.teller(self._told())(error),
            healed=lambda: jobs.healer(self._told())(),
            ended=lambda late: self._count_late(),
            erred=jobs.erred,
            blamed=self._blamed,
            mend=self._mend,
            pace=jobs.pace(),
            read=partial(jobs.rows_read, self._common.objects),
            taken=jobs.taken,
            tracing=jobs.tracing,
        )


__all__ = ["HostedJobs"]
