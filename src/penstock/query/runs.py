"""What the jobs of a query have done so far."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.runtime.jobs.job import Job


@dataclass
class _Run:
    epochs: int = 0
    rows: int = 0
    taken: int = 0
    passed: int = 0


class Runs:
    """The figures of all jobs that the query has had: one for each time that it was started, resumed or swapped."""

    def __init__(self) -> None:
        self._of: dict[int, _Run] = {}
        self._jobs: dict[int, Job] = {}
        self._times: dict[tuple[int, int], int] = {}
        self._skipped: set[tuple[int, int]] = set()
        self.reached = 0

    def note(self, job: Job | None) -> None:
        if job is None:
            return
        kernel, figures = job.kernel, job.figures
        rows = sum(figures.rows_out.values())
        # Kept here, so that no later job has its id.
        self._jobs[id(job)] = job
        self.reached = max(self.reached, figures.reached)
        found = self._of.setdefault(id(job), _Run())
        found.epochs, found.rows = figures.epochs, rows
        with suppress(PenstockError):  # Of a JVM that has exited, what was known before.
            found.taken, found.passed = kernel.rows_in - figures.repeated[0], kernel.rows_passed() - figures.repeated[1]
            now = {(id(job), batch): ms for batch, ms in kernel.durations().items()}
            self._times.update({key: ms for key, ms in now.items() if key not in self._skipped})

    def skip(self, job: Job | None) -> None:
        """What a job has done so far does not count: another one has done it as well."""
        if job is not None:
            self.note(job)
            self._skipped |= {key for key in self._times if key[0] == id(job)}
            for key in self._skipped:
                self._times.pop(key, None)
            done = self._of[id(job)]
            self._of[-id(job)] = _Run(-done.epochs, -done.rows, -done.taken, -done.passed)

    @property
    def taken(self) -> int:
        return sum(f.taken for f in list(self._of.values()))

    @property
    def passed(self) -> int:
        return sum(f.passed for f in list(self._of.values()))

    @property
    def epochs(self) -> int:
        return sum(f.epochs for f in list(self._of.values()))

    @property
    def rows(self) -> int:
        return sum(f.rows for f in list(self._of.values()))

    @property
    def total_ms(self) -> int:
        return sum(list(self._times.values()))
