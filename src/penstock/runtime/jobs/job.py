"""One job: a streaming query, the thread that records its epochs, and its metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.limits import StateGuard
from penstock.runtime.jobs.pace import Pace
from penstock.runtime.jobs.timing import Timing
from penstock.runtime.lifecycle import JOB_STEPS, JobState, Lifecycle, wait_s
from penstock.runtime.storage.record import MemberRecorder, Recorder
from penstock.runtime.tracing import Tracing
from penstock.spark.bridge import Epoch, KernelJob
from penstock.spark.calls import brief
from penstock.spark.hosted import HostJob
from penstock.spark.operators import StateFigures

_logger = logging.getLogger(__name__)

_POLL_MS = 500
"""How often an idle pump checks that its query is alive."""
_ATTEMPTS = 5
"""The number of consecutive failures, without an epoch in between, that end a query. Full disks are retried for ever."""
_PASSING = frozenset({"PSK-5002", "PSK-7001", "PSK-7004", "PSK-8001"})
_LASTING = frozenset({"PSK-7004"})


@dataclass
class JobFigures:
    """Counted since the job was started. An epoch that was recorded before, and is repeated after a stop or a crash, counts only as `repeated`."""

    epochs: int = 0
    rows_out: dict[int, int] = field(default_factory=dict)
    """Rows emitted, by the object that they are of."""
    late: dict[int, int] = field(default_factory=dict)
    """Late rows of the queries that share a job."""
    computing: Timing = field(default_factory=Timing)
    """From the choice of an epoch's input until it is computed."""
    recording: Timing = field(default_factory=Timing)
    """From then until it is in the log and with its readers."""
    watermark: int | None = None
    started_at: float = field(default_factory=time.time)
    reached: int = 0
    """The LSN up to which the recorded epochs have processed the log."""
    begun: int = 0
    """The last LSN when the job was started."""
    repeated: tuple[int, int] = (0, 0)
    """Rows that repeated epochs have read, and that have passed their stateless steps."""


@dataclass(frozen=True)
class JobSpec:
    """The query of a job, its objects (in the order of its outputs), and its callbacks: `failed` and `healed` for the job
    itself, `erred` for changes in the rows that could not be computed.

    `make` gives a fresh kernel job for each attempt. `interrupt` wakes a recorder that waits for something, so that it sees that
    the job is to stop.  `blamed` is asked whether the failure is that of one member
    of a shared job, which it has taken out: the job then goes on at once.
    """

    name: str
    objects: Sequence[int]
    make: Callable[[], KernelJob]
    recorder: Recorder | MemberRecorder
    failed: Callable[[PenstockError], None]
    healed: Callable[[], None] = lambda: None
    erred: Callable[[], None] = lambda: None
    interrupt: Callable[[], None] = lambda: None
    guard: StateGuard | None = None
    """Watches the state of a query with a job of its own."""
    pace: Pace = field(default_factory=lambda: Pace(0, 0))
    read: Callable[[Epoch], int] = lambda epoch: 0
    """How many rows an epoch has read."""
    blamed: Callable[[PenstockError], bool] = lambda error: False
    taken: Callable[[Sequence[int], int], None] = lambda objects, lsn: None
    """Hears of the objects of each epoch that is recorded, and up to which LSN it has read."""
    tracing: Tracing = field(default_factory=lambda: Tracing(False))
    ended: Callable[[int], None] = lambda late: None
    """Hears, once, how many rows were too late, when the job has ended."""
    mend: Callable[[PenstockError, int], bool] = lambda error, attempt: False
    """Puts back an older checkpoint in place of one that is damaged, for each attempt in a row another; False if there is none."""


class Job:
    """Runs one query until it is stopped or fails permanently."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.error: PenstockError | None = None
        self.failed_at: float | None = None
        self.figures = JobFigures()
        self.kernel: KernelJob = spec.make()
        self._life = Lifecycle(spec.name, JobState.STARTING, JOB_STEPS)
        self._failures = 0
        self._mends = 0
        self._damage: PenstockError | None = None
        self._late = 0
        self._ended = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._pump = threading.Thread(target=self._run, name=f"penstock-pump-{spec.name}", daemon=True)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def objects(self) -> Sequence[int]:
        return self.spec.objects

    @property
    def state(self) -> JobState:
        return self._life.state

    @property
    def mending(self) -> bool:
        """Whether it goes back to an older checkpoint: no failure unless there is none."""
        return self._damage is not None and self.state is JobState.RETRYING

    def start(self) -> None:
        """Starts the query; raises, with nothing left running, if Spark refuses it."""
        try:
            self.kernel.start()
            if not self._life.attempt(JobState.RUNNING):
                # The JVM exited in the meantime.
                raise self.error or fail("PSK-7006", f"{self.name} was stopped.")
        except BaseException:
            self._life.attempt(JobState.STOPPED)
            with suppress(PenstockError):
                self.kernel.stop()
            raise
        self._pump.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
                return
            except Exception as error:
                if not self._failed(error) or not self._again():
                    return

    def _follow(self) -> None:
        """Records epochs until the job should stop."""
        recorded = None
        while not self._stopping.is_set():
            epoch = self.kernel.take(recorded, _POLL_MS)
            recorded = None
            if epoch is not None:
                self._one(epoch)
                recorded = self.spec.recorder.head
            elif not self._stopping.is_set() and not self.kernel.active:
                raise self.kernel.error or fail("PSK-7001", f"{self.name} ended unexpectedly.")

    def _one(self, epoch: Epoch) -> None:
        begin = time.perf_counter()
        if self.spec.guard is not None:
            self.spec.guard.check(self.kernel.state())
        recorder = self.spec.recorder
        repeated = isinstance(recorder, Recorder) and recorder.repeats(epoch)
        if recorder.record(epoch, self._stopping.is_set):
            self.spec.erred()
        for path in epoch.files:
            path.unlink(missing_ok=True)
        figures = self.figures
        if repeated:
            # They come first, and the next epoch begins when this one is done.
            figures.repeated = self.kernel.rows_in, self.kernel.rows_passed()
        figures.epochs += not repeated
        objects = recorder.objects(epoch)
        self.spec.taken([of for of in objects if of is not None], epoch.lsn)
        for of, output in zip(objects, epoch.batches, strict=True):
            if of is not None and not repeated:
                figures.rows_out[of] = figures.rows_out.get(of, 0) + sum(b.num_rows for b in output)
        for of, slot in zip(objects, epoch.slots or (), strict=False):
            if of is not None and slot in epoch.late:
                figures.late[of] = figures.late.get(of, 0) + epoch.late[slot]
        figures.watermark = epoch.watermark
        figures.reached = max(figures.reached, epoch.lsn)
        recording = (time.perf_counter() - begin) * 1000
        figures.recording.add(recording)
        if epoch.ms >= 0:
            figures.computing.add(epoch.ms)
            if self.spec.pace.after(self.spec.read(epoch), epoch.ms + recording):
                self.kernel.limit(self.spec.pace.rows)
        rows = sum(b.num_rows for output in epoch.batches for b in output)
        self.spec.tracing.epoch(self.name, epoch.number, epoch.lsn, rows, epoch.ms, recording)
        self._mends = 0
        if self._failures:
            self._failures = 0
            self.error = self.failed_at = None
            self.spec.healed()

    def _failed(self, why: Exception) -> bool:
        """Records a failure; True if the query should be retried."""
        if self._stopping.is_set():
            return False
        error = why
        if not isinstance(error, PenstockError):
            error = fail("PSK-8001", f"{self.name}: {type(why).__name__}: {why}")
            error.__cause__ = why
        if self.spec.blamed(error):
            with suppress(Exception):
                self.kernel.refuse(str(error))
            self._wake.set()
            return self._life.attempt(JobState.RETRYING)
        self._failures += 1
        self.failed_at = self.failed_at or time.time()
        self.error = error
        with suppress(Exception):
            self.kernel.refuse(str(error))
        if error.code == "PSK-6001" and self._damage is None and self._life.attempt(JobState.RETRYING):
            self._damage = error
            self._wake.set()
            return True
        passing = error.code in _PASSING and (error.code in _LASTING or self._failures < _ATTEMPTS)
        if passing:
            return self._life.attempt(JobState.RETRYING)
        if self._life.attempt(JobState.FAILED):
            if error.code != "PSK-7005":  # The end of the JVM is reported once, and not by each of its jobs.
                _logger.error("%s failed: %s", self.name, error)
            self.spec.failed(error)
        return False

    def _again(self) -> bool:
        """Waits, then restarts the query from its checkpoint; False if it should stop or has failed permanently."""
        while self._waited():
            with suppress(PenstockError):
                self.kernel.stop()
            try:
                self._mend()
                self._life.to(JobState.STARTING)
                self.kernel = self.spec.make()
                self.kernel.start()
            except Exception as error:
                if self._failed(error):
                    continue
            else:
                if self._life.attempt(JobState.RUNNING):
                    return True
            # A concurrent `stop` has stopped the previous kernel job, not this one.
            if self._stopping.is_set():
                with suppress(PenstockError):
                    self.kernel.stop()
            return False
        return False

    def _mend(self) -> None:
        """Replaces a checkpoint that is damaged; raises what is wrong with it if that is not possible."""
        damage = self._damage
        if damage is None:
            return
        self._mends += 1
        if not self.spec.mend(damage, self._mends - 1):
            raise damage
        self._damage = None

    def _waited(self) -> bool:
        """Waits until the next attempt is due; False if there is none."""
        self._wake.wait(wait_s(self._failures))
        self._wake.clear()
        return not self._stopping.is_set()

    def rows_out(self, object_id: int) -> int:
        """Rows emitted for one of its objects since the job was started."""
        return self.figures.rows_out.get(object_id, 0)

    def kept(self, object_id: int) -> list[StateFigures]:
        """What one of the queries that share the job keeps, by its operators; nothing if it is not in the job."""
        kernel = self.kernel
        if not isinstance(kernel, HostJob):
            return brief(kernel.state)
        return brief(kernel.kept).get(object_id, [])

    def warning(self, object_id: int) -> str | None:
        """What there is to say of the state of a query."""
        guard = (
            self.spec.recorder.guard(object_id) if isinstance(self.spec.recorder, MemberRecorder) else self.spec.guard
        )
        return guard.warning(self.kept(object_id)) if guard is not None else None

    def late_rows(self, object_id: int) -> int:
        """Rows that were too late for one of its objects, while it runs; of a JVM that has exited, as many as were known."""
        if isinstance(self.kernel, HostJob):
            return self.figures.late.get(object_id, 0)
        if not self._ended:
            with suppress(PenstockError):
                self._late = brief(self.kernel.late_rows)
        return 0 if self._ended else self._late

    def _end(self) -> None:
        late = self.late_rows(self.objects[0] if self.objects else 0)
        if not self._ended:
            self._ended = True
            self.spec.ended(late)

    @property
    def complete(self) -> bool:
        """Whether all queries of the job have begun."""
        return not isinstance(self.kernel, HostJob) or self.kernel.complete

    def settle(self, lsn: int, deadline: float | None) -> bool:
        """Waits until everything up to an LSN is recorded; False after the timeout.

        A job that waits for its next attempt retries immediately. Raises the cause if the job fails twice during the wait; that it goes back to an older checkpoint, and to another if that is damaged too, is no failure.
        """
        known = self._failures - self._mends
        while True:
            state = self.state
            if state is JobState.RETRYING:
                self._wake.set()
            if state is JobState.STOPPED:
                raise fail("PSK-7006", f"{self.name} was stopped.", hint="START PIPELINE starts it again.")
            if self.error is not None and (state is JobState.FAILED or self._failures - self._mends > known + 1):
                raise self.error
            left = 0.25 if deadline is None else min(0.25, deadline - time.monotonic())
            if state is JobState.RUNNING:
                if self.kernel.settled(lsn, max(0, int(left * 1000))):
                    return True
            elif left > 0:
                self._stopping.wait(min(left, 0.05))
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def abandon(self, error: PenstockError) -> None:
        """Called when the JVM exited, and the query with it: nothing is left to stop."""
        self.error, self.failed_at = error, time.time()
        self._stopping.set()
        self._wake.set()
        self._life.attempt(JobState.FAILED)
        self.spec.interrupt()

    def stop(self) -> None:
        """Stops the query after the current epoch."""
        self._stopping.set()
        self._wake.set()
        self.spec.interrupt()
        try:
            self.kernel.stop()
        finally:
            if self.spec.guard is not None:
                self.spec.guard.forget()
            self._end()
            self._life.attempt(JobState.STOPPED)
            if self._pump.is_alive() and threading.current_thread() is not self._pump:
                self._pump.join(timeout=10)
