"""Figures of the jobs of a query so far."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.runtime.jobs.job import Job


@dataclass
class _Run:
    """The figures of one job, without its work before it became the query's: `skipped`, and the epochs `before`."""

    job: Job
    epochs: int = 0
    rows: int = 0
    taken: int = 0
    passed: int = 0
    times: dict[int, int] = field(default_factory=dict)
    skipped: tuple[int, int, int, int] = (0, 0, 0, 0)
    before: frozenset[int] = frozenset()

    def see(self) -> None:
        """Updates the figures that do not need the JVM."""
        figures = self.job.figures
        self.epochs, self.rows = figures.epochs, sum(figures.rows_out.values())

    def ask(self) -> None:
        self.see()
        kernel, (again, passed_again) = self.job.kernel, self.job.figures.repeated
        with suppress(PenstockError):  # If the JVM has exited, keep the last figures.
            self.taken, self.passed = kernel.rows_in - again, kernel.rows_passed() - passed_again

    def time(self) -> None:
        with suppress(PenstockError):
            self.times |= {batch: ms for batch, ms in self.job.kernel.durations().items() if batch not in self.before}

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.epochs, self.rows, self.taken, self.passed


class Runs:
    """The figures of all jobs that the query has had: one for each time that it was started, resumed or swapped."""

    def __init__(self) -> None:
        # A run references its job, so that no later job gets the same id().
        self._of: dict[int, _Run] = {}
        self.reached = 0

    def _run(self, job: Job) -> _Run:
        self.reached = max(self.reached, job.figures.reached)
        return self._of.setdefault(id(job), _Run(job))

    def see(self, job: Job | None) -> None:
        """Updates the figures that cost nothing."""
        if job is not None:
            self._run(job).see()

    def count(self, job: Job | None) -> None:
        """Updates all figures except the durations of epochs, which take milliseconds to read."""
        if job is not None:
            self._run(job).ask()

    def time(self, job: Job | None) -> None:
        if job is not None:
            self._run(job).time()

    def note(self, job: Job | None) -> None:
        self.count(job)
        self.time(job)

    def skip(self, job: Job | None) -> None:
        """Excludes the job's work so far, which another job has also done."""
        if job is not None:
            run = self._run(job)
            run.ask()
            run.skipped = run.counts

    def skip_times(self, job: Job | None) -> None:
        """Likewise excludes the durations of its epochs so far."""
        if job is not None:
            run = self._run(job)
            run.time()
            run.before, run.times = frozenset(run.times), {}

    def _sum(self, figure: int) -> int:
        return sum(r.counts[figure] - r.skipped[figure] for r in list(self._of.values()))

    @property
    def epochs(self) -> int:
        return self._sum(0)

    @property
    def rows(self) -> int:
        return self._sum(1)

    @property
    def taken(self) -> int:
        return self._sum(2)

    @property
    def passed(self) -> int:
        return self._sum(3)

    @property
    def total_ms(self) -> int:
        return sum(sum(r.times.values()) for r in list(self._of.values()))
