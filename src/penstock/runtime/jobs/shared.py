"""Stateless streams and views on one object share a job: one epoch serves all of them.

Every epoch of Spark costs tens of milliseconds, so twenty filters on one source are one query with twenty outputs. Such
a job has no state, so its members can change: it drains, and a new generation starts, with its own checkpoint, at the
LSN that the old one reached. A failing member interrupts the others only briefly: the job is split up, each member continues
alone from the same LSN, and the one that fails again is the culprit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.objects import Generation, ObjectInfo, Solo
from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.checkpoint import begun, reached
from penstock.runtime.jobs.job import Job, JobSpec
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.record import Recorder
from penstock.spark.bridge import KernelJob
from penstock.spark.compile import UNIT_OBJECT, Compiler
from penstock.spark.together import compile_together

if TYPE_CHECKING:
    from penstock.runtime.jobs.jobs import Jobs

_QUIESCE_MS = 60_000
_LOOK_MS = 1_000
"""How often a caller that waits for a job to drain checks whether it has failed."""
_EPOCHS = 1 << 40
"""A multiple of this is added to epoch numbers to make them unique across generations."""


class _Restless(Exception):
    """A job does not drain; it continues unchanged."""


class SharedJobs:
    """The shared jobs of one database, by the object that they read. Callers hold the DDL lock."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._catalog = jobs.storage.catalog

    @property
    def _by_input(self) -> Mapping[int, Generation]:
        return self._catalog.shared

    def _note(self, input_id: int, generation: Generation | None, alone: Mapping[int, Solo] | None = None) -> None:
        """Stores the current generation of an object durably; None: it no longer has a shared job. A query is either a member or runs alone."""
        with self._catalog.edit():
            self._catalog.shared.pop(input_id, None)
            if generation is not None:
                self._catalog.shared[input_id] = generation
                for m in generation.members:
                    self._catalog.solo.pop(m, None)
            self._catalog.solo.update(alone or {})

    def member(self, object_id: int) -> bool:
        return any(object_id in g.members for g in self._by_input.values())

    def takes(self, info: ObjectInfo, planned: Planned) -> bool:
        """Whether a query can join: it has no state, and nothing in the log to read first."""
        compiled = planned.compiled
        if info.id in self._catalog.solo or info.hidden or planned.every_ms or planned.seeds:
            return False
        if compiled.event_time or compiled.operators or len(compiled.outputs) > 1 or len(compiled.objects) != 1:
            return False
        (input_id,) = compiled.objects
        return input_id != UNIT_OBJECT and self._jobs.storage.log.first_entry(input_id) is None

    def begin(self, info: ObjectInfo) -> Solo:
        """The start position of a query that runs alone."""
        return self._catalog.solo.get(info.id, Solo(0, 0))

    def after(self, job_epoch: int) -> Solo:
        """The start of a query from scratch, with epoch numbers above all earlier ones."""
        return Solo(0, (job_epoch // _EPOCHS + 1) * _EPOCHS)

    def inputs(self) -> list[int]:
        """The objects that have a shared job."""
        return list(self._by_input)

    def join(self, info: ObjectInfo, planned: Planned) -> None:
        (input_id,) = planned.compiled.objects
        self._change(input_id, (*self._members(input_id), info.id), joining={info.id: info})

    def leave(self, info: ObjectInfo) -> None:
        """Removes a query from its shared job; if it still exists, it continues alone from the job's position."""
        for input_id, generation in list(self._by_input.items()):
            if info.id in generation.members:
                self._change(input_id, tuple(m for m in self._members(input_id) if m != info.id))

    def renew(self, input_id: int) -> None:
        """Starts a new generation with the same members after the columns of the input have changed."""
        if input_id in self._by_input:
            self._change(input_id, self._members(input_id))

    def _members(self, input_id: int) -> tuple[int, ...]:
        """The queries of the shared job of an object, without those that were dropped or never entered the catalogue."""
        generation = self._by_input.get(input_id)
        return tuple(m for m in generation.members if self._catalog.has_id(m)) if generation is not None else ()

    def _change(self, input_id: int, members: tuple[int, ...], joining: dict[int, ObjectInfo] | None = None) -> None:
        """Drains the job and starts the next generation at its position; removed members continue alone from there.

        If that fails at any point, the previous generation continues.
        """
        old = self._by_input.get(input_id)
        known = self._members(input_id)
        try:
            start = self._drain(input_id, old) if old is not None else self._beginning(input_id)
            number = self._free_number(input_id)
            alone = Solo(start, number * _EPOCHS)
            self._note(
                input_id,
                Generation(number, start, members) if members else None,
                {m: alone for m in known if m not in members},
            )
            if members and self._jobs.running():
                self._start(input_id, joining)
        except _Restless:
            raise fail("PSK-0010", "The running queries did not drain.", hint="Try again under less load.") from None
        except BaseException:
            with uninterrupted():
                self._fall_back(input_id, old, known)
            raise
        self._jobs.storage.layout.sweep_shared(input_id, self._by_input.get(input_id))

    def _fall_back(self, input_id: int, old: Generation | None, known: tuple[int, ...]) -> None:
        """Resumes the members of a generation after its successor failed. Those that cannot resume report it in their status."""
        now = self._by_input.get(input_id)
        try:
            start = max([0, *(self._end(input_id, g) for g in (old, now) if g is not None)])
            if now is not old:
                # If the disk refuses, the stored generation stays valid.
                self._note(input_id, Generation(self._free_number(input_id), start, known) if known else None)
            self._jobs.storage.layout.sweep_shared(input_id, self._by_input.get(input_id))
            if known and self._jobs.running():
                self._start(input_id)
        except PenstockError as error:
            for m in known:
                self._jobs.refused(self._catalog.by_id(m), error)

    def _beginning(self, input_id: int) -> int:
        """The start position of the first generation. Trimmed entries can reappear after a crash; they are not part of its input."""
        log = self._jobs.storage.log
        head = log.head
        return head if log.first_entry(input_id) is None else 0

    def _drain(self, input_id: int, generation: Generation) -> int:
        """Stops the job of a generation after its pending epochs; returns the LSN that it reached."""
        job = self._job(generation)
        deadline = time.monotonic() + _QUIESCE_MS / 1000
        # A job that fails during the wait never drains.
        while job is not None and job.state is JobState.RUNNING and job.kernel.quiesce(_LOOK_MS) is None:
            if time.monotonic() >= deadline:
                raise _Restless
        return self._end(input_id, generation)

    def _end(self, input_id: int, generation: Generation) -> int:
        """Stops the job of a generation, if it runs; returns the LSN that it reached."""
        job = self._job(generation)
        if job is not None:
            for m in generation.members:
                self._jobs.by_object.pop(m, None)
            job.stop()
        recorded = max(self._jobs.recorded(m) for m in generation.members)
        own = max(-1, recorded - generation.number * _EPOCHS)
        found = reached(self._folder(input_id, generation.number), own)
        return generation.start if found is None else found

    def _job(self, generation: Generation) -> Job | None:
        return next((j for m in generation.members if (j := self._jobs.by_object.get(m)) is not None), None)

    def _free_number(self, input_id: int) -> int:
        """A number that no generation of an object uses, and of which no files are left."""
        generation = self._by_input.get(input_id)
        left = [int(f.name) for f in self._folder(input_id, 0).parent.glob("*") if f.name.isdecimal()]
        return max([0, *left, *([generation.number] if generation is not None else [])]) + 1

    def _folder(self, input_id: int, number: int) -> Path:
        return self._jobs.storage.layout.shared(input_id, number)

    def start(self, input_id: int) -> None:
        """Starts a shared job as it was when the pipeline was stopped. A member whose plan is refused is removed."""
        generation = self._by_input[input_id]
        members = self._members(input_id)
        if self._job(generation) is not None:
            return  # A query created while the pipeline was stopped has joined and started it.
        if not members:
            self._note(input_id, None)
        elif self._lost(input_id, generation):
            self._note(input_id, None)
            self._each_alone(members)
        else:
            sound = tuple(m for m in members if self._plans(m))
            if sound == members:
                self._start(input_id)
            elif sound:
                self._change(input_id, sound)

    def _lost(self, input_id: int, generation: Generation) -> bool:
        """True if the log has epochs of a generation but its checkpoint is gone: each member starts over alone."""
        recorded = max(self._jobs.recorded(m) for m in generation.members)
        return recorded >= generation.number * _EPOCHS and not begun(self._folder(input_id, generation.number))

    def _plans(self, object_id: int) -> bool:
        info = self._catalog.by_id(object_id)
        try:
            self._jobs.plan(info)
        except PenstockError as error:
            self._jobs.refused(info, error)
            return False
        return True

    def _start(self, input_id: int, joining: dict[int, ObjectInfo] | None = None) -> None:
        jobs, known = self._jobs, joining or {}
        generation = self._by_input[input_id]
        there = {m: self._catalog.by_id(m) for m in self._members(input_id)} | known
        infos = [there[m] for m in generation.members if m in there]
        name = f"{jobs.compute.uid}-shared-{input_id}"
        compiler = Compiler(jobs.compute.spark, name, self._catalog.by_id, jobs.compute.parallelism)
        compiled = compile_together(compiler, [jobs.plan(i).query for i in infos])
        settings = jobs.storage.settings.engine

        def make() -> KernelJob:
            return KernelJob(
                jobs.compute.spark,
                jobs.compute.uid,
                name,
                compiled,
                folder=self._folder(input_id, generation.number),
                schemas=[stored_schema(i) for i in infos],
                max_rows=settings.max_rows_per_epoch,
                poll_ms=settings.poll_timeout_ms,
                every_ms=0,
                seeds=(),
                start=generation.start,
            )

        reader = self._catalog.by_id(input_id).name
        spec = JobSpec(
            name=f"shared by {len(infos)} on {reader}" if len(infos) > 1 else infos[0].name,
            objects=tuple(i.id for i in infos),
            make=make,
            recorder=Recorder(
                jobs.storage,
                infos,
                compiled.outputs,
                generation.number * _EPOCHS,
                errors=[jobs.errors_of(i) for i in infos],
            ),
            erred=jobs.erred,
            failed=self._splitter(input_id) if len(infos) > 1 else jobs.teller(infos),
            healed=jobs.healer(infos),
            alone=len(infos) == 1,
        )
        jobs.run(spec)

    def split_up(self, info: ObjectInfo) -> bool:
        """Splits up the failed job of a member; False if the query did not fail in a shared job."""
        with self._jobs.ddl:
            for input_id, generation in list(self._by_input.items()):
                job = self._jobs.by_object.get(info.id)
                if info.id in generation.members and job is not None and job.error is not None:
                    self._split(input_id, job.error)
            job = self._jobs.by_object.get(info.id)
            return job is not None and job.state is not JobState.FAILED

    def _splitter(self, input_id: int) -> Callable[[PenstockError], None]:
        def failed(error: PenstockError) -> None:
            # This is the job's own pump thread, which must end before the job can be stopped.
            threading.Thread(target=self._split, args=(input_id, error), name="penstock-split", daemon=True).start()

        return failed

    def _split(self, input_id: int, error: PenstockError) -> None:
        jobs = self._jobs
        with jobs.ddl:
            generation = self._by_input.get(input_id)
            if generation is None or not jobs.running():
                return
            job = self._job(generation)
            if job is None or job.error is not error or job.state is not JobState.FAILED or len(generation.members) < 2:
                return
            members = self._members(input_id)
            try:
                alone = Solo(self._end(input_id, generation), self._free_number(input_id) * _EPOCHS)
                self._note(input_id, None, dict.fromkeys(members, alone))
            except PenstockError as why:
                for m in members:
                    jobs.refused(self._catalog.by_id(m), why)
                return
            self._each_alone(members)
            jobs.storage.layout.sweep_shared(input_id, None)

    def _each_alone(self, members: Sequence[int]) -> None:
        for m in members:
            info = self._catalog.by_id(m)
            try:
                self._jobs.start(info)
            except PenstockError as error:
                self._jobs.refused(info, error)


__all__ = ["SharedJobs"]
