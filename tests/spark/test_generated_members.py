"""Random SELECTs over one table, all in one job: views come, go, fail and start again between the commits, and each equals batch SQL after every one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.effort import EFFORT, times
from tests.generated.cases import Case, Group
from tests.generated.queries import Relation
from tests.generated.reproduce import described
from tests.generated.running import Running, before_the_end
from tests.generated.sessions import DATABASE
from tests.spark.conftest import CONFIG, Opener
from tests.spark.defects import break_member
from tests.spark.following import until

MEMBERS = 8 if EFFORT == 1 else 50
CHANGES = times(10, quick=4)


class OneTable(Group):
    """A group whose SELECTs read its first table."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CHANGES)
        self.bases = []

    def relations(self) -> list[Relation]:
        return super().relations()[:1]


def job_of(running: Running, case: Case) -> str:
    return running.db._engine.jobs.by_object[running.db._object(case.name).id].name


def fill(running: Running, cases: Iterator[Case]) -> None:
    """As many views as wanted, all in one job; some SELECTs cannot share one."""
    while len(running.cases) < MEMBERS:
        running.create(cases, MEMBERS)
        for case in [c for c in running.cases if not job_of(running, c).startswith("keyed queries")]:
            running.drop(case)


class Turmoil:
    """Between two commits something happens to one of the views, or to all."""

    def __init__(self, running: Running, cases: Iterator[Case], seed: int) -> None:
        self.running = running
        self.happened: list[str] = []
        self._cases = cases
        self._dice = Random(f"turmoil {seed}")
        self._left: list[str] = []

    def __call__(self, commit: int) -> None:
        # Each kind once before one comes again.
        self._left = self._left or self._dice.sample(["drop and add", "defect", "stop", "reopen"], 4)
        kind = self._left.pop()
        self.happened.append(kind)
        if kind == "drop and add":
            for case in self._dice.sample(self.running.cases, 2):
                self.running.drop(case)
            fill(self.running, self._cases)
            self.running.follow()
        elif kind == "defect":
            self._break(commit)
        elif kind == "stop":
            self.running.db.stop()
            self.running.perform_next()
            self.running.db.start()
            # Subscribers were told.
            self.running.follow()
        else:
            self.running.reopen()

    def _break(self, commit: int) -> None:
        """A view gets code that fails, and is started again afterwards."""
        table = self.running.group.tables[0]
        if not any(c.table == table.name and c.rows for c in self.running.trace[commit]):
            return  # Nobody would notice.
        jobs = self.running.db._engine.jobs
        case = self._dice.choice(self.running.cases)
        scanned = jobs.planned[self.running.db._object(case.name).id].query.root
        columns = sorted({column for scan in scanned.walk() for _, column in getattr(scan, "fields", ())})
        if not columns:
            return
        break_member(self.running.db, case.name, columns[0])
        self.running.perform_next()
        until(lambda: self.running.db.metrics()[case.name].state == "failed")
        failed = {o.name for o in self.running.db.status() if o.error}
        assert failed == {case.name}
        self.running.resume(case)


@pytest.mark.parametrize("seed", range(times(1)))
def test_members_equal_batch_whatever_happens_to_one(
    opener: Opener, spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    group = next(g for g in map(OneTable, range(10 * seed, 10 * seed + 10)) if not g.tables[0].source)
    running = Running(lambda: opener(tmp_path, config={**CONFIG, **DATABASE}), spark, group)
    running.load()
    cases = group.cases()
    fill(running, cases)
    turmoil = Turmoil(running, cases, seed)
    report = running.run(before_the_end, between=turmoil)
    jobs = {job_of(running, c) for c in running.cases}
    running.db.close()
    assert not report.failures, "\n".join([*turmoil.happened, *(described(group, f) for f in report.failures)])
    assert len(running.cases) == MEMBERS
    assert jobs == {f"keyed queries on {group.tables[0].name}"}
