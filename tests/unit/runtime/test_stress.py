from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.effort import times
from tests.unit.runtime.storing import (
    Rows,
    added,
    drop,
    follow,
    in_contents,
    in_log,
    make,
    opened,
    part,
    read,
    summed,
    together,
)

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import TableWriter, Write

SECONDS = times(6, quick=3) / 10
WRITERS = 3
KEYS = 4
LOG = {"segment_bytes": 16 << 10}


class Crowd:
    """Threads that do all that can be done to a storage at once. Each writer has keys of its own, so it knows what must be there."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.writer = storage, TableWriter(storage)
        self.source = make(storage, "s", Kind.SOURCE)
        self.table, self.bag = make(storage, "t"), make(storage, "b", key=())
        self.passing: list[ObjectInfo] = []
        self.rows: list[dict[int, str]] = [{} for _ in range(WRITERS)]
        self.inserted: list[Rows] = [Counter() for _ in range(WRITERS)]
        self.bagged: list[Rows] = [Counter() for _ in range(WRITERS)]
        self.dropped = 0
        self.end = time.monotonic() + SECONDS
        self.subscriptions = [follow(storage, o, buffer_messages=8) for o in (self.table, self.bag)]
        self.changes: list[list[Rows]] = [[], []]
        self._lock = threading.Lock()

    def going_on(self) -> bool:
        return time.monotonic() < self.end

    def write(self, thread: int) -> Callable[[], None]:
        chance = random.Random(thread)

        def run() -> None:
            number = 0
            while self.going_on():
                number += 1
                k = chance.randrange(KEYS) * WRITERS + thread
                chance.choice([self.insert, self.upsert, self.update, self.add, self.pass_by])(thread, k, f"{number}")

        return run

    def insert(self, thread: int, k: int, v: str) -> None:
        self.writer.insert("s", {"k": k, "v": v})
        self.inserted[thread][k, v] += 1

    def upsert(self, thread: int, k: int, v: str) -> None:
        """One transaction over a source, a table with a key and one without."""
        infos = (self.source, self.table, self.bag)
        self.writer.commit([(o, "insert", self.storage.feed(o).part([(k, v)])) for o in infos])
        self.inserted[thread][k, v] += 1
        self.rows[thread][k] = v
        self.bagged[thread][k, v] += 1

    def update(self, thread: int, k: int, v: str) -> None:
        feed = self.storage.feed(self.table)
        with self.writer.alone([self.table]):
            old = self.rows[thread].get(k)
            writes: list[Write] = [(self.table, "place", feed.part([(k, v)]))]
            if old is not None:
                writes.insert(0, (self.table, "delete", feed.part([(k, old)])))
            self.writer.commit(writes, fresh=True)
        self.rows[thread][k] = v

    def add(self, thread: int, k: int, v: str) -> None:
        """Takes one row out of the bag, if there is one, and puts another in."""
        feed, own = self.storage.feed(self.bag), self.bagged[thread]
        writes: list[Write] = [(self.bag, "insert", feed.part([(k, v)]))]
        gone = next(iter(own), None)
        if gone is not None:
            writes.append((self.bag, "delete", feed.part([gone])))
            own[gone] -= 1
            self.bagged[thread] = own = +own
        self.writer.commit(writes)
        own[k, v] += 1

    def pass_by(self, thread: int, k: int, v: str) -> None:
        """Writes into an object that may be dropped at any moment: all of the commit happens, or nothing."""
        with self._lock:
            infos = self.passing[-1:]
        for info in infos:
            try:
                writes: list[Write] = [(o, "insert", self.storage.feed(o).part([(k, v)])) for o in (self.source, info)]
                self.writer.commit(writes)
            except PenstockError as error:
                if error.code != "PSK-1002":
                    raise
                self.dropped += 1
            else:
                self.inserted[thread][k, v] += 1

    def come_and_go(self) -> None:
        number = 0
        while self.going_on():
            number += 1
            info = make(self.storage, f"passing{number}")
            with self._lock:
                self.passing.append(info)
            # For so long others can write into it.
            time.sleep(0.01)
            drop(self.storage, info)

    def look_on(self) -> None:
        chance = random.Random(7)
        idle = []
        while self.going_on():
            policy = chance.choice(["block", "coalesce", "latest", "resync", "disconnect"])
            # Some never read a line.
            idle.append(follow(self.storage, chance.choice([self.table, self.bag]), policy=policy, buffer_messages=2))
            if len(idle) > 20:
                idle.pop(chance.randrange(len(idle))).cancel()
            # The pace of new subscribers, so that writers get their turn.
            time.sleep(0.005)

    def keep_house(self) -> None:
        while self.going_on():
            for info in (self.table, self.bag):
                self.storage.log.trim({info.id: self.storage.save(info)})
            # The pace of trimming, so that there is something to trim.
            time.sleep(0.02)

    def follow_closely(self, number: int) -> Callable[[], None]:
        """Reads every change of one of the objects that are followed."""

        def run() -> None:
            while self.going_on():
                change = self.subscriptions[number].next(timeout=0.05)
                if change is not None:
                    self.seen(number, change.kind == "resync", added(change.table))

        return run

    def seen(self, number: int, anew: bool, rows: Rows) -> None:
        if anew:
            self.changes[number].clear()
        self.changes[number].append(rows)


def test_a_crowd_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, log=LOG) as storage:
        crowd = Crowd(storage)
        writing = [crowd.write(t) for t in range(WRITERS)]
        watching = [crowd.follow_closely(n) for n in range(2)]
        together([*writing, *watching, crowd.come_and_go, crowd.look_on, crowd.keep_house])
        last = (-1, "last")
        lsn = storage.commit([part(o, (*last, 1)) for o in (crowd.table, crowd.bag)]).lsn
        for number, info in enumerate((crowd.table, crowd.bag)):
            crowd.changes[number] += [rows for _, rows in read(crowd.subscriptions[number], lsn)]
            assert summed(crowd.changes[number]) == in_contents(storage, info)
        rows = Counter(row for own in crowd.rows for row in own.items()) + Counter([last])
        bag = sum(crowd.bagged, Counter()) + Counter([last])
        inserted = sum(crowd.inserted, Counter())
        assert in_contents(storage, crowd.table) == rows
        assert in_contents(storage, crowd.bag) == bag
        assert in_log(storage, crowd.source) == inserted
        assert not storage.damage and inserted and crowd.passing
    with opened(tmp_path, log=LOG) as storage:
        assert in_contents(storage, crowd.table) == rows and in_contents(storage, crowd.bag) == bag
        assert in_log(storage, crowd.source) == inserted and not storage.damage
