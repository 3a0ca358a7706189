"""One job: a streaming query, the thread that records its epochs, and what is known of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import PenstockError, fail
from penstock.runtime.limits import StateGuard
from penstock.spark.bridge import Epoch, KernelJob
from penstock.spark.operators import StateFigures

_POLL_MS = 500
"""How often the pump looks whether its query still lives, when nothing comes."""


class JobState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass
class JobFigures:
    """Counted since the job was started."""

    epochs: int = 0
    rows_by_output: list[int] = field(default_factory=list)
    last_epoch_ms: float = 0.0
    watermark: int | None = None
    started_at: float = field(default_factory=time.time)


class Job:
    """Runs a kernel job that maintains one object, or several (`objects`, in the order of its outputs). `record` is called on the pump's thread for every epoch, in order; what it raises fails this job alone.

    `interrupt` makes a `record` that waits for something look whether the job is `stopping`.
    """

    def __init__(
        self,
        objects: tuple[int, ...],
        name: str,
        kernel: KernelJob,
        record: Callable[[Epoch], None],
        failed: Callable[[PenstockError], None],
        interrupt: Callable[[], None] | None = None,
        state_limit: int = 0,
    ) -> None:
        self.objects = objects
        self.name = name
        self.kernel = kernel
        self.state = JobState.STARTING
        self.error: PenstockError | None = None
        self.figures = JobFigures()
        self._record = record
        self._failed = failed
        self._interrupt = interrupt
        self._guard = StateGuard(name, state_limit) if state_limit else None
        self._stopping = False
        self._pump = threading.Thread(target=self._run, name=f"penstock-pump-{name}", daemon=True)

    def start(self) -> None:
        self.kernel.start()
        self.state = JobState.RUNNING
        self._pump.start()

    def _run(self) -> None:
        ack = False
        while not self._stopping:
            try:
                epoch = self.kernel.take(ack, _POLL_MS)
                ack = False
                if epoch is None:
                    if not self._stopping and not self.kernel.active:
                        self._fail(self.kernel.error or fail("PSK-7001", f"{self.name} ended unexpectedly."))
                        return
                    continue
                self._one(epoch)
                ack = True
            except PenstockError as error:
                if self._stopping:
                    return
                self.kernel.refuse(str(error))
                self._fail(error)
                return
            except Exception as error:
                if self._stopping:
                    return
                wrapped = fail("PSK-8001", f"{self.name}: {type(error).__name__}: {error}")
                wrapped.__cause__ = error
                try:
                    self.kernel.refuse(str(wrapped))
                finally:
                    self._fail(wrapped)
                return

    def _one(self, epoch: Epoch) -> None:
        begin = time.perf_counter()
        if self._guard is not None:
            self._guard.check(self.kernel.state())
        self._record(epoch)
        for path in epoch.files:
            path.unlink(missing_ok=True)
        self.figures.epochs += 1
        rows = [sum(b.num_rows for b in output) for output in epoch.batches]
        self.figures.rows_by_output = [
            a + b for a, b in zip(self.figures.rows_by_output or [0] * len(rows), rows, strict=True)
        ]
        self.figures.watermark = epoch.watermark
        self.figures.last_epoch_ms = (time.perf_counter() - begin) * 1000

    def _fail(self, error: PenstockError) -> None:
        self.error = error
        self.state = JobState.FAILED
        self._failed(error)

    def rows_out(self, object_id: int) -> int:
        """Rows put out for one of its objects since the job was started."""
        rows = self.figures.rows_by_output
        return rows[self.objects.index(object_id)] if rows and object_id in self.objects else 0

    @property
    def state_figures(self) -> list[StateFigures]:
        """What each of its operators keeps."""
        return self.kernel.state()

    @property
    def warning(self) -> str | None:
        return self._guard.warning(self.kernel.state()) if self._guard is not None else None

    @property
    def late_rows(self) -> int:
        return self.kernel.late_rows()

    def settle(self, lsn: int, deadline: float | None) -> bool:
        """Waits until everything up to an LSN is recorded. A job that is not running has nothing to wait for."""
        while self.state is JobState.RUNNING:
            left = 0.25 if deadline is None else min(0.25, deadline - time.monotonic())
            if self.kernel.settled(lsn, max(0, int(left * 1000))):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        self._stopping = True
        if self._interrupt is not None:
            self._interrupt()
        try:
            self.kernel.stop()
        finally:
            if self.state is not JobState.FAILED:
                self.state = JobState.STOPPED
            if self._pump.is_alive() and threading.current_thread() is not self._pump:
                self._pump.join(timeout=10)
