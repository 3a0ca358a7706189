"""The reads and writes of files that are under way, for SHOW COPIES and the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_logger = logging.getLogger(__name__)
_REPORT_S = 10.0
"""How often a long one is reported in the log."""


@dataclass
class Copying:
    """One statement that reads files. `total_bytes` is the size of all its files."""

    statement: str
    total_bytes: int
    started: float = field(default_factory=time.monotonic)
    read_bytes: int = 0
    rows: int = 0
    _reported: float = field(default_factory=time.monotonic)

    def __call__(self, read_bytes: int, rows: int) -> None:
        self.read_bytes += read_bytes
        self.rows += rows
        now = time.monotonic()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            _logger.info("%s: %d rows, %d of %d bytes", self.statement, self.rows, self.read_bytes, self.total_bytes)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Copies:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Copying] = []

    @contextmanager
    def running(self, statement: str, total_bytes: int) -> Iterator[Copying]:
        made = Copying(statement, total_bytes)
        with self._lock:
            self._running.append(made)
        try:
            yield made
        finally:
            with self._lock:
                # By identity: two copies may be equal.
                self._running = [c for c in self._running if c is not made]

    def listed(self) -> list[Copying]:
        with self._lock:
            return list(self._running)
