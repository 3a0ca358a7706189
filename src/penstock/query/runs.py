"""What the jobs of a query have done so far."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.runtime.jobs.job import Job


@dataclass
class _Run:
    """The figures of one job. What it had done before it was that of the query does not count: `skipped`, and the epochs `before`."""

    job: Job
    epochs: int = 0
    rows: int = 0
    taken: int = 0
    passed: int = 0
    times: dict[int, int] = field(default_factory=dict)
    skipped: tuple[int, int, int, int] = (0, 0, 0, 0)
    before: frozenset[int] = frozenset()

    def see(self) -> None:
        """What is known without the JVM."""
        figures = self.job.figures
        self.epochs, self.rows = figures.epochs, sum(figures.rows_out.values())

    def ask(self) -> None:
        self.see()
        kernel, (again, passed_again) = self.job.kernel, self.job.figures.repeated
        with suppress(PenstockError):  # Of a JVM that has exited, what was known before.
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
        # A run has its job, so that no later job has its id.
        self._of: dict[int, _Run] = {}
        self.reached = 0

    def _run(self, job: Job) -> _Run:
        self.reached = max(self.reached, job.figures.reached)
        return self._of.setdefault(id(job), _Run(job))

    def see(self, job: Job | None) -> None:
        """Notes what costs nothing."""
        if job is not None:
            self._run(job).see()

    def count(self, job: Job | None) -> None:
        """Notes everything but the durations of epochs, which take milliseconds."""
        if job is not None:
            self._run(job).ask()

    def time(self, job: Job | None) -> None:
        if job is not None:
            self._run(job).time()

    def note(self, job: Job | None) -> None:
        self.count(job)
        self.time(job)

    def skip(self, job: Job | None) -> None:
        """What a job has done so far does not count: another one has done it as well."""
        if job is not None:
            run = self._run(job)
            run.ask()
            run.skipped = run.counts

    def skip_times(self, job: Job | None) -> None:
        """The same for the durations of its epochs."""
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
