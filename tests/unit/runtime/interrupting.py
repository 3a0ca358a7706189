"""A process that writes while Ctrl-C is pressed, and says whether log, contents, subscribers and a model agree at the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tests.effort import times
from tests.unit.runtime.storing import Rows, follow, in_contents, in_log, make, opened, part, read, summed

from penstock.catalog.objects import Kind
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import TableWriter

STRIKES = times(60, quick=15)
SECONDS = 60.0
KEYS = 5


class Presses:
    """Ctrl-C at random moments, once or twice. Only what is attempted is struck, so that the test itself goes on."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._left = 0
        self._over = threading.Event()
        self.struck = 0
        signal.signal(signal.SIGINT, self._strike)
        self._thread = threading.Thread(target=self._press, daemon=True)
        self._thread.start()

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._left:
            self._left -= 1
            self.struck += 1
            raise KeyboardInterrupt

    def _press(self) -> None:
        while not self._over.wait(self._chance.uniform(0, 0.002)):
            os.kill(os.getpid(), signal.SIGINT)
            if self._chance.random() < 0.3:
                # The moment of the second press is what is tried.
                time.sleep(self._chance.uniform(0, 0.0003))
                os.kill(os.getpid(), signal.SIGINT)

    def attempt(self, work: Callable[[], object]) -> bool:
        """True if the work was not struck."""
        whole = False
        try:
            try:
                self._left = 2
                work()
                whole = True
            except KeyboardInterrupt:
                whole = False
            self._left = 0
        except KeyboardInterrupt:
            # There is none left.
            whole = False
        finally:
            self._left = 0
        return whole

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class Model:
    """What must be there, by what was carried out. Whether a struck write was carried out is seen in the log, for all of its objects."""

    def __init__(self, storage: Storage, presses: Presses, seed: int) -> None:
        self.storage, self.presses = storage, presses
        self.chance = random.Random(seed)
        self.writer = TableWriter(storage)
        self.source = make(storage, "s", Kind.SOURCE)
        self.table = make(storage, "t")
        self.view = make(storage, "v", Kind.VIEW)
        self.told = {o.id: follow(storage, o) for o in (self.table, self.view)}
        self.rows: dict[int, str | None] = {}
        self.inserted: Rows = Counter()
        self.carried_out = self.not_carried_out = 0

    def run(self) -> None:
        works = [*[self.insert] * 30, *[self.upsert] * 3, *[self.delete] * 2, *[self.both] * 2, self.look]
        end = time.monotonic() + SECONDS
        number = 0
        while time.monotonic() < end:
            # Both outcomes must have been seen, however slow the machine is.
            if self.presses.struck >= STRIKES and self.carried_out and self.not_carried_out:
                return
            number += 1
            self.chance.choice(works)(number)

    def _write(self, work: Callable[[], object], *ids: int) -> bool:
        before = [self.storage.log.epoch(i) for i in ids]
        whole = self.presses.attempt(work)
        after = [self.storage.log.epoch(i) for i in ids]
        moved = {b < a for b, a in zip(before, after, strict=True)}
        assert len(moved) == 1, "a commit is in the log by half"
        (happened,) = moved
        assert happened or not whole, "a write that returned is not in the log"
        self.carried_out += happened and not whole
        self.not_carried_out += not happened
        return happened

    def insert(self, n: int) -> None:
        if self._write(lambda: self.writer.insert("s", {"k": n, "v": "insert"}), self.source.id):
            self.inserted[n, "insert"] += 1

    def upsert(self, n: int) -> None:
        rows = {self.chance.randrange(KEYS): f"{n}.{i}" for i in range(self.chance.randint(1, 3))}
        if self._write(lambda: self.writer.insert("t", [{"k": k, "v": v} for k, v in rows.items()]), self.table.id):
            self.rows |= rows

    def delete(self, n: int) -> None:
        k = self.chance.randrange(KEYS)
        if k not in self.rows:
            return
        gone = self.storage.feed(self.table).part([{"k": k, "v": self.rows[k]}])
        if self._write(lambda: self.writer.commit([(self.table, "delete", gone)]), self.table.id):
            del self.rows[k]

    def both(self, n: int) -> None:
        """A transaction over a source and a table."""
        k = self.chance.randrange(KEYS)
        row = {"k": k, "v": f"both {n}"}
        writes = [(o, "insert", self.storage.feed(o).part([row])) for o in (self.source, self.table)]
        if self._write(lambda: self.writer.commit(writes), self.source.id, self.table.id):  # type: ignore[arg-type]
            self.rows[k] = row["v"]  # type: ignore[assignment]
            self.inserted[k, f"both {n}"] += 1

    def look(self, n: int) -> None:
        assert in_contents(self.storage, self.table) == self.contents

    @property
    def contents(self) -> Rows:
        return Counter((k, v) for k, v in self.rows.items())


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    with opened(folder) as storage:
        presses = Presses(seed)
        model = Model(storage, presses, seed)
        over = threading.Event()

        def beside() -> None:
            # Somebody else writes the view meanwhile, and waits for its turn.
            while not over.wait(0.02):
                storage.commit([part(model.view, (0, "beside", 1))])

        other = threading.Thread(target=beside, daemon=True)
        other.start()
        model.run()
        over.set()
        other.join(10)
        presses.stop()
        assert not other.is_alive()
        # No later call fails.
        model.insert(0)
        model.upsert(0)
        model.look(0)
        storage.commit([part(o, (9, "last", 1)) for o in (model.table, model.view)])
        model.rows[9] = "last"
        assert in_contents(storage, model.table) == in_log(storage, model.table) == model.contents
        assert in_contents(storage, model.view) == in_log(storage, model.view)
        got = in_log(storage, model.source)
        assert got == model.inserted, got - model.inserted
        for info in (model.table, model.view):
            changes = read(model.told[info.id], storage.log.head)
            assert summed(rows for _, rows in changes) == in_contents(storage, info)
        assert not storage.damage
        # As a crash would leave it: the contents are made again from the log.
        shutil.copytree(folder, folder / "crashed", ignore=shutil.ignore_patterns("crashed"))
    with opened(folder / "crashed") as storage:
        assert in_contents(storage, model.table) == model.contents
        assert in_contents(storage, model.view) == in_log(storage, model.view)
    with opened(folder) as storage:
        assert in_contents(storage, model.table) == model.contents
    print(presses.struck, model.carried_out, model.not_carried_out, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
