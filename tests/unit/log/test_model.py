from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.effort import times
from tests.unit.log.rows import SCHEMA, part

from penstock.log import Log, Mode

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OBJECTS = st.integers(1, 4)
ROWS = st.lists(st.integers(0, 99), max_size=5)
PARTS = st.dictionaries(OBJECTS, st.tuples(ROWS, st.none() | st.integers(-5, 50), st.integers(-1, 9)), min_size=1)


class Item(NamedTuple):
    lsn: int
    epoch: int
    keys: list[int]
    watermark: int | None
    input_lsn: int


def collapsed(items: list[Item]) -> list[Item]:
    """Of consecutive entries without rows the last."""
    following: list[Item | None] = [*items[1:], None]
    return [a for a, b in zip(items, following, strict=False) if a.keys or b is None or b.keys]


class LogAgainstLists(RuleBasedStateMachine):
    """The log does what lists in memory would do, over trimming, thinning out, closing, crashing and opening."""

    def __init__(self) -> None:
        super().__init__()
        # in memory where there is such a place: what is compared does not depend on the disk
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.entries: dict[int, list[Item]] = {}
        self.watermarks: dict[int, int | None] = {}
        self.epochs: dict[int, int] = {}
        self.job_epochs: dict[int, int] = {}
        self.forgotten: set[int] = set()
        self.head = 0
        self.log: Log | None = None
        # What was trimmed can come back when the log is opened anew, if nothing had to be deleted.
        self.floors: dict[int, int] = {}

    @initialize(mode=st.sampled_from(["sync", "async"]), size=st.sampled_from([200, 1000, 100_000]))
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

    @rule(parts=PARTS, back=st.none() | st.integers(0, 3))
    def append(self, parts: dict[int, tuple[list[int], int | None, int]], back: int | None) -> None:
        parts = {i: p for i, p in parts.items() if i not in self.forgotten}
        if not parts or self.log is None:
            return
        input_lsn = None if back is None else max(0, self.head - back)
        # Object 1 has large rows, so that holes of a file system have room between those of the others.
        commit = self.log.append(
            [
                part(i, *k, watermark=wm, job_epoch=job, input_lsn=input_lsn, width=20_000 if i == 1 else 0, before=i)
                for i, (k, wm, job) in parts.items()
            ]
        )
        self.head += 1
        assert commit.lsn == self.head
        for entry, (i, (keys, watermark, job_epoch)) in zip(commit.entries, parts.items(), strict=True):
            known = [wm for wm in (self.watermarks.get(i), watermark) if wm is not None]
            self.watermarks[i] = max(known, default=None)
            self.epochs[i] = self.epochs.get(i, 0) + 1
            if job_epoch >= 0:
                self.job_epochs[i] = job_epoch
            caused = self.head if input_lsn is None else input_lsn
            item = Item(self.head, self.epochs[i], keys, self.watermarks[i], caused)
            self.entries.setdefault(i, []).append(item)
            assert (entry.lsn, entry.epoch, entry.watermark, entry.input_lsn) == item[:2] + item[3:]

    @rule(rare=st.integers(0, 3))
    def churn(self, rare: int) -> None:
        """Much of one object, of which nothing stays, and a little of another."""
        for n in range(4):
            self.append({1: ([n, n, n, n], None, -1)} | ({2: ([n], n, -1)} if n == rare else {}), None)
        self.trim({1: self.head}, 3)

    @rule(floors=st.dictionaries(OBJECTS, st.integers(0, 40)), times=st.integers(1, 3))
    def trim(self, floors: dict[int, int], times: int) -> None:
        assert self.log is not None
        before = self.log.size
        # The second time around, what is pinned is known.
        freed = sum([self.log.trim(floors) for _ in range(times)])
        assert self.log.size == before - freed
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
            found = [
                Item(e.lsn, e.epoch, log.read(e, SCHEMA)["k"].to_pylist(), e.watermark, e.input_lsn)
                for e in log.entries(i)
            ]
            model = collapsed(self.entries.get(i, []))
            # A suffix, and one that reaches at least down to the floor.
            assert found == model[len(model) - len(found) :]
            assert len(found) >= sum(item.lsn > self.floors.get(i, 0) for item in model)
            assert log.watermark(i) == self.watermarks.get(i)
            assert log.epoch(i) == self.epochs.get(i, 0)
            assert log.job_epoch(i) == self.job_epochs.get(i, -1)
            assert log.retained(i)[1] == sum(len(item.keys) for item in found)
            middle = self.head // 2
            assert [e.lsn for e in log.entries(i, middle)] == [item.lsn for item in found if item.lsn > middle]
            gone = max([item.epoch for item in model[: len(model) - len(found)] if item.keys], default=0)
            assert [log.reaches_back(i, n) for n in range(4)] == [gone <= n for n in range(4)]
            assert log.reaches_back(i, gone) and not (gone and log.reaches_back(i, gone - 1))
        self.sizes_agree(log)

    def sizes_agree(self, log: Log) -> None:
        kept = log.kept()
        on_disk = [int(p.stem) for p in sorted((self.folder / "log").glob("*.seg"))]
        assert [k.number for k in kept] == on_disk
        assert sum(k.disk_bytes for k in kept) == log.size
        for holding in log.holdings():
            entries = log.entries(holding.object_id)
            assert (holding.first_lsn, holding.bytes) == (entries[0].lsn, sum(e.length for e in entries))
            assert holding.bytes == sum(k.needed.get(holding.object_id, 0) for k in kept)


TestLogAgainstLists = LogAgainstLists.TestCase
TestLogAgainstLists.settings = settings(max_examples=times(10, quick=4), stateful_step_count=30, deadline=None)
