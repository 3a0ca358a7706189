"""Waiting until a query has recorded everything up to an LSN, whatever happens to its job meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import PenstockError
from penstock.runtime.jobs.job import Job
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.interrupts import uninterrupted

if TYPE_CHECKING:
    from penstock.runtime.jobs.jobs import Jobs


def settled(jobs: Jobs, info: ObjectInfo, lsn: int, deadline: float | None) -> bool:
    """False after the timeout. Raises the cause if the query, or one of its inputs, cannot get there."""
    target = max([lsn, *(_last_lsn(jobs, i) for i in info.depends_on)])
    while True:
        if (refusal := jobs.refusal(info.id)) is not None:
            raise refusal
        job = jobs.by_object.get(info.id)
        if job is None and _expected(jobs, info):
            # A statement is replacing it, or the pipeline is starting.
            if not _quiet(jobs, deadline):
                return False
            job = jobs.by_object.get(info.id)
            if job is None and jobs.refusal(info.id) is not None:
                continue
        if job is None:
            return True
        if _reached(jobs, info, job, target):
            return True
        try:
            done = job.settle(target, deadline)
            if jobs.refusal(info.id) is not None:
                continue  # The job has gone on without it.
            return done
        except PenstockError:
            replaced = jobs.by_object.get(info.id) is not job and _expected(jobs, info)
            if jobs.refusal(info.id) is None and not replaced:
                raise


def _expected(jobs: Jobs, info: ObjectInfo) -> bool:
    """True if a query has its own or a shared job when the pipeline runs."""
    of_another = info.role in (Role.LATE_ROWS, Role.ERRORS)
    return jobs.running() and not of_another and jobs.storage.catalog.has_id(info.id)


def _quiet(jobs: Jobs, deadline: float | None) -> bool:
    """Waits until no statement changes the queries; False after the timeout."""
    while True:
        with uninterrupted():
            if jobs.ddl.acquire(timeout=0.05):
                jobs.ddl.release()
                return True
        if deadline is not None and time.monotonic() >= deadline:
            return False


def _reached(jobs: Jobs, info: ObjectInfo, job: Job, target: int) -> bool:
    """True without asking the JVM if no input has anything that the recorded epochs have not processed."""
    if job.state is not JobState.RUNNING or not job.figures.reached or not job.complete:
        return False
    planned = jobs.planned.get(info.id)
    if planned is None or (planned.compiled.event_time and planned.membership is None):
        return False  # Only the kernel knows whether the watermark has taken effect.
    ends = [last.lsn for i in info.depends_on if (last := jobs.storage.log.last_entry(i)) is not None]
    return all(min(end, target) <= job.figures.reached for end in ends)


def _last_lsn(jobs: Jobs, object_id: int) -> int:
    catalog = jobs.storage.catalog
    if not catalog.has_id(object_id) or catalog.by_id(object_id).kind not in (Kind.STREAM, Kind.VIEW):
        return 0
    last = jobs.storage.log.last_entry(object_id)
    return last.lsn if last else 0
