"""What a database has counted since its objects were created. Counts survive a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from penstock.disk.checked import unpack_json, write_json
from penstock.errors import PenstockError
from penstock.log import Log

_logger = logging.getLogger(__name__)

_FORMAT = 1
_SECONDS = 10
"""The time over which a rate is measured."""


@dataclass
class Counts:
    """Of one object. Each field has one writer at a time, which adds to it. `rows` are those of its commits up to the LSN of the totals; `taken` those
    of its inputs that a query has processed, up to `reached`."""

    rows: int = 0
    taken: int = 0
    reached: int = 0
    late: int = 0
    null_time: int = 0
    future: int = 0
    dropped: int = 0
    delivered: int = 0


@dataclass
class DatabaseCounts:
    """Of the database as a whole: how often it was opened, its checkpoints, and the queries that went back to one."""

    opened: int = 0
    completed: int = 0
    failed: int = 0
    rolled_back: int = 0
    uploaded: int = 0
    upload_failed: int = 0


class Totals:
    """Rows are counted in the log, so their number is exact even after a crash, if `save` precedes the removal of history. The other counts may lack what came
    after the last save, a few seconds before a crash. Thread-safe."""

    def __init__(self, path: Path, log: Log) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._counts: dict[int, Counts] = {}
        self._lsn = 0
        self._written: object = None
        self._samples: deque[tuple[float, Mapping[int, int]]] = deque(maxlen=_SECONDS + 1)
        self.database = DatabaseCounts()
        self._load()
        self.database.opened += 1

    def of(self, object_id: int) -> Counts:
        """The counts of an object, to which their owners add."""
        with self._lock:
            return self._counts.setdefault(object_id, Counts())

    def rows(self, object_id: int) -> int:
        """The rows of all commits of an object. Those of a table or view are changes: a row that is replaced is two."""
        with self._lock:
            counts = self._counts.get(object_id)
            return (counts.rows if counts is not None else 0) + self._log.amount(object_id, after=self._lsn)[1]

    def take(self, queries: Iterable[tuple[int, Iterable[int]]], lsn: int) -> None:
        """Queries, each with its inputs, have processed everything up to an LSN. An epoch that is repeated counts once."""
        known: dict[tuple[int, int], int] = {}
        for object_id, inputs in queries:
            counts = self.of(object_id)
            if lsn <= counts.reached:
                continue
            for i in inputs:
                key = (i, counts.reached)
                if key not in known:
                    known[key] = self._log.amount(i, after=counts.reached, up_to=lsn)[1]
                counts.taken += known[key]
            counts.reached = lsn

    def tick(self, objects: Iterable[int]) -> None:
        """Notes the rows of objects, from which rates come. Called once a second."""
        self._samples.append((time.monotonic(), {i: self.rows(i) for i in objects}))

    def rate(self, object_id: int) -> float:
        """Rows a second of late."""
        for at, rows in list(self._samples):
            since = time.monotonic() - at
            if object_id in rows and since > 0:
                return (self.rows(object_id) - rows[object_id]) / since
        return 0.0

    def forget(self, object_id: int) -> None:
        """The object was dropped."""
        with self._lock:
            self._counts.pop(object_id, None)

    def save(self) -> None:
        """Writes the counts if any has changed. Raises PSK-7004."""
        with self._saving:
            content, counted = self._content()
            # A position alone is no reason to write: heartbeats move it once a second.
            if counted != self._written:
                write_json(self._path, content, _FORMAT)
                self._written = counted

    def _content(self) -> tuple[object, object]:
        with self._lock:
            known, head = self._log.object_ids(), self._log.head
            for i in known:
                counts = self._counts.setdefault(i, Counts())
                counts.rows += self._log.amount(i, after=self._lsn, up_to=head)[1]
            self._lsn = head
            objects = {str(i): list(asdict(c).values()) for i, c in sorted(self._counts.items())}
            counted = [replace(c, reached=0) for _, c in sorted(self._counts.items())]
            return (
                {"lsn": head, "database": asdict(self.database), "objects": objects},
                (counted, replace(self.database)),
            )

    def _load(self) -> None:
        try:
            content = unpack_json(self._path.read_bytes(), _FORMAT, self._path)
            # A log that has lost its end counts from there.
            self._lsn = min(int(content["lsn"]), self._log.head)
            self.database = DatabaseCounts(**content["database"])
            names = [f.name for f in fields(Counts)]
            self._counts = {
                int(i): Counts(**dict(zip(names, map(int, values), strict=True)))
                for i, values in content["objects"].items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, PenstockError) as why:
            # Figures are no reason not to open a database.
            self._lsn, self._counts, self.database = 0, {}, DatabaseCounts()
            _logger.warning("%s cannot be read, so counts begin with what the log has: %s", self._path, why)
