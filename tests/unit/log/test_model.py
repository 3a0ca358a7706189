from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.log.rows import SCHEMA, part

from penstock.log import Log, Mode

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OBJECTS = st.integers(1, 4)
ROWS = st.lists(st.integers(0, 99), max_size=5)
PARTS = st.dictionaries(OBJECTS, st.tuples(ROWS, st.none() | st.integers(-5, 50), st.integers(-1, 9)), min_size=1)


class LogAgainstLists(RuleBasedStateMachine):
    """The log does what lists in memory would do, over trimming, closing, crashing and opening."""

    def __init__(self) -> None:
        super().__init__()
        # in memory where there is such a place: what is compared does not depend on the disk
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.entries: dict[int, list[tuple[int, int, list[int], int | None]]] = {}
        self.watermarks: dict[int, int | None] = {}
        self.epochs: dict[int, int] = {}
        self.job_epochs: dict[int, int] = {}
        self.forgotten: set[int] = set()
        self.head = 0
        self.log: Log | None = None
        # What was trimmed can come back when the log is opened anew, if nothing had to be deleted.
        self.floors: dict[int, int] = {}

    @initialize(mode=st.sampled_from(["sync", "async"]), size=st.sampled_from([200, 1000, 1 << 20]))
    def begin(self, mode: Mode, size: int) -> None:
        self.mode, self.size = mode, size
        self.open()

    def open(self) -> Log:
        self.log = Log.open(self.folder, mode=self.mode, segment_bytes=self.size, async_interval_ms=1)
        return self.log

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()
        shutil.rmtree(self.folder)

    @rule(parts=PARTS)
    def append(self, parts: dict[int, tuple[list[int], int | None, int]]) -> None:
        parts = {i: p for i, p in parts.items() if i not in self.forgotten}
        if not parts or self.log is None:
            return
        lsn = self.log.append([part(i, *k, watermark=wm, job_epoch=job) for i, (k, wm, job) in parts.items()])
        self.head += 1
        assert lsn == self.head
        for i, (keys, watermark, job_epoch) in parts.items():
            known = [wm for wm in (self.watermarks.get(i), watermark) if wm is not None]
            self.watermarks[i] = max(known, default=None)
            self.epochs[i] = self.epochs.get(i, 0) + 1
            if job_epoch >= 0:
                self.job_epochs[i] = job_epoch
            self.entries.setdefault(i, []).append((lsn, self.epochs[i], keys, self.watermarks[i]))

    @rule(floors=st.dictionaries(OBJECTS, st.integers(0, 40)))
    def trim(self, floors: dict[int, int]) -> None:
        assert self.log is not None
        self.log.trim(floors)
        for i, lsn in floors.items():
            self.floors[i] = max(self.floors.get(i, 0), min(lsn, self.head))

    @rule(object_id=st.integers(3, 4))
    @precondition(lambda self: self.head > 5)
    def forget(self, object_id: int) -> None:
        assert self.log is not None
        self.log.forget(object_id)
        self.forgotten.add(object_id)
        for known in (self.entries, self.watermarks, self.epochs, self.job_epochs):
            known.pop(object_id, None)

    @rule()
    def reopen(self) -> None:
        assert self.log is not None
        self.log.close()
        self.open()

    @rule(tail=st.binary(max_size=200))
    def crash(self, tail: bytes) -> None:
        """Ends without giving reserved space back, and with the beginning of a write that was not finished."""
        assert self.log is not None
        self.log.close()
        last = sorted((self.folder / "log").glob("*.seg"))[-1]
        with last.open("ab") as file:
            file.write(tail + bytes(512))
        self.open()

    @invariant()
    def agrees(self) -> None:
        log = self.log
        if log is None:
            return
        assert log.head == self.head
        for i in range(1, 5):
            found = [(e.lsn, e.epoch, log.read(e, SCHEMA)["k"].to_pylist(), e.watermark) for e in log.entries(i)]
            model = self.entries.get(i, [])
            # A suffix, and one that reaches at least down to the floor.
            assert found == model[len(model) - len(found) :]
            assert len(found) >= sum(lsn > self.floors.get(i, 0) for lsn, *_ in model)
            assert log.watermark(i) == self.watermarks.get(i)
            assert log.epoch(i) == self.epochs.get(i, 0)
            assert log.job_epoch(i) == self.job_epochs.get(i, -1)
            assert log.retained(i)[1] == sum(len(keys) for _, _, keys, _ in found)
            middle = self.head // 2
            assert [e.lsn for e in log.entries(i, middle)] == [lsn for lsn, *_ in found if lsn > middle]


TestLogAgainstLists = LogAgainstLists.TestCase
TestLogAgainstLists.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
