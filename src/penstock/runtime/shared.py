"""Streams and views without state on one object share a job: one epoch serves all of them.

A query costs Spark some tens of milliseconds an epoch whatever it does, so twenty filters on one source are one query with twenty
outputs. Such a job has no state, so its members can change: it is let run out, and a new generation begins, with a checkpoint of its own, at
the LSN that the old one had reached. A member that fails takes the others with it only for a moment: the job is split up, each goes on
alone from the same LSN, and the one that fails again is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.catalog.objects import Generation, ObjectInfo, Solo
from penstock.errors import PenstockError, fail
from penstock.runtime.job import Job, JobState
from penstock.runtime.planned import Planned
from penstock.spark.bridge import KernelJob
from penstock.spark.compile import UNIT_OBJECT, Compiler
from penstock.spark.together import compile_together

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_QUIESCE_MS = 60_000
_EPOCHS = 1 << 40
"""Epoch numbers are made unique over generations by adding a multiple of this."""


class SharedJobs:
    """The shared jobs of one engine, by the object that they read. Called under the engine's `ddl` lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_input = dict(engine.catalog.shared)
        self._solo = dict(engine.catalog.solo)

    def member(self, object_id: int) -> bool:
        return any(object_id in g.members for g in self._by_input.values())

    def takes(self, info: ObjectInfo, planned: Planned) -> bool:
        """A query can join if it keeps no state and there is nothing in the log that it would have to read first."""
        compiled = planned.compiled
        if info.id in self._solo or info.name.startswith("__") or planned.every_ms or planned.seeds:
            return False
        if compiled.event_time or compiled.operators or len(compiled.outputs) > 1 or len(compiled.objects) != 1:
            return False
        (input_id,) = compiled.objects
        return input_id != UNIT_OBJECT and self._engine.log.first_entry(input_id) is None

    def begin(self, info: ObjectInfo) -> tuple[int, int]:
        """Where a query that runs alone begins: (LSN, base of its epoch numbers)."""
        solo = self._solo.get(info.id, Solo(0, 0))
        return solo.start, solo.base

    def start_all(self) -> None:
        """Starts every shared job as it was when the pipeline was stopped."""
        for input_id in list(self._by_input):
            self._start(input_id)

    def join(self, info: ObjectInfo, planned: Planned) -> None:
        (input_id,) = planned.compiled.objects
        members = self._by_input[input_id].members if input_id in self._by_input else ()
        self._change(input_id, [*members, info.id])

    def leave(self, info: ObjectInfo) -> None:
        for input_id, generation in list(self._by_input.items()):
            if info.id in generation.members:
                self._change(input_id, [m for m in generation.members if m != info.id])
        self._solo.pop(info.id, None)
        self._save()

    def _change(self, input_id: int, members: Sequence[int]) -> None:
        """Lets the job run out and begins the next generation."""
        old = self._by_input.get(input_id)
        start = self._let_run_out(input_id, old) if old is not None else 0
        number = old.number + 1 if old is not None else 1
        if members:
            self._by_input[input_id] = Generation(number, start, tuple(members))
        else:
            self._by_input.pop(input_id, None)
        self._save()
        if members and self._engine.running:
            self._start(input_id)

    def _let_run_out(self, input_id: int, old: Generation) -> int:
        job = next((j for m in old.members if (j := self._engine.jobs.get(m)) is not None), None)
        if job is None:
            return old.start if self._engine.log.first_entry(input_id) is None else self._reached(input_id, old)
        reached = job.kernel.quiesce(_QUIESCE_MS)
        if reached is None:
            raise fail(
                "PSK-0010", "The running queries did not come to rest.", hint="Try again when there is less to do."
            )
        for m in old.members:
            self._engine.jobs.pop(m, None)
        job.stop()
        return reached

    def _reached(self, input_id: int, old: Generation) -> int:
        """Where a job that is stopped now had come to: it is started for a moment, because only its checkpoint knows."""
        self._start(input_id)
        return self._let_run_out(input_id, old)

    def _start(self, input_id: int) -> None:
        engine = self._engine
        generation = self._by_input[input_id]
        infos = [engine.catalog.by_id(m) for m in generation.members]
        name = f"{engine.uid}-shared-{input_id}"
        compiler = Compiler(engine.spark, name, engine.catalog.by_id, engine.parallelism)
        compiled = compile_together(compiler, [engine.plan(i).query for i in infos])
        kernel = KernelJob(
            engine.spark,
            engine.uid,
            name,
            compiled,
            folder=engine.layout.root / "jobs" / f"shared-{input_id}" / str(generation.number),
            schemas=[engine.stored_schema(i) for i in infos],
            idle_ms={},
            max_rows=engine.settings.engine.max_rows_per_epoch,
            poll_ms=engine.settings.engine.poll_timeout_ms,
            every_ms=0,
            seeds=(),
            start=generation.start,
        )
        record = engine.recorder.of(infos, compiled.outputs, generation.number * _EPOCHS)
        reader = engine.catalog.by_id(input_id).name
        job = Job(generation.members, f"shared by {len(infos)} on {reader}", kernel, record, self._splitter(input_id))
        for m in generation.members:
            engine.jobs[m] = job
        try:
            job.start()
        except BaseException:
            for m in generation.members:
                engine.jobs.pop(m, None)
            job.stop()
            raise

    def renew(self, input_id: int) -> None:
        """The object that a shared job reads has changed its columns: a new generation, with the same members, knows them."""
        if input_id in self._by_input:
            self._change(input_id, self._by_input[input_id].members)

    def split_up(self, info: ObjectInfo) -> bool:
        """Waits until the failed job of a member has been split up; False if the query has not failed in company."""
        with self._engine.ddl:
            for input_id, generation in list(self._by_input.items()):
                job = self._engine.jobs.get(info.id)
                if info.id in generation.members and job is not None and job.error is not None:
                    self._split(input_id, job.error)
            job = self._engine.jobs.get(info.id)
            return job is not None and job.state is not JobState.FAILED

    def _splitter(self, input_id: int) -> Callable[[PenstockError], None]:
        def failed(error: PenstockError) -> None:
            # On the pump's thread of the job itself, which must end before the job can be stopped.
            threading.Thread(target=self._split, args=(input_id, error), name="penstock-split", daemon=True).start()

        return failed

    def _split(self, input_id: int, error: PenstockError) -> None:
        engine = self._engine
        with engine.ddl:
            generation = self._by_input.get(input_id)
            if generation is None or not engine.running:
                return
            job = engine.jobs.get(generation.members[0])
            if job is None or job.error is not error:
                return
            start = job.kernel.position[0]
            for m in generation.members:
                engine.jobs.pop(m, None)
            job.stop()
            del self._by_input[input_id]
            for m in generation.members:
                self._solo[m] = Solo(start, (generation.number + 1) * _EPOCHS)
            self._save()
            for m in generation.members:
                info = engine.catalog.by_id(m)
                try:
                    engine.start_query(info)
                except PenstockError as own:
                    engine.hub.fail(m, own)

    def _save(self) -> None:
        catalog = self._engine.catalog
        with catalog.edit():
            catalog.shared, catalog.solo = dict(self._by_input), dict(self._solo)


__all__ = ["Generation", "SharedJobs"]
