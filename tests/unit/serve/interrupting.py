"""A program whose main thread uses a view store while Ctrl-C strikes it at random moments. Prints what it did, or fails."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter

import pyarrow as pa

from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
IDS = (1, 2)


def delta(rows: dict[int, int]) -> pa.Table:
    return pa.table({"k": list(rows), "v": [f"v{k}" for k in rows], "__weight": list(rows.values())})


class Trial:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = ViewStore(min_delta_rows=50)
        for i in IDS:
            self.store.create(i, SCHEMA, append_only=False)
        self.model: list[Counter[int]] = [Counter()]
        self.strikes = 0

    def attempt(self) -> None:
        """One commit into both objects, or a read; perhaps struck."""
        store, epoch = self.store, len(self.model)
        match self.rng.randrange(4):
            case 0 | 1:
                before = self.model[-1]
                change = {self.rng.randrange(40): 1}
                if before:
                    change.setdefault(self.rng.choice(list(before)), -1)
                after = before.copy()
                after.update(change)
                # The log has it now, whatever happens to the store.
                self.model.append(+after)
                store.apply_many([(i, delta(change), epoch) for i in IDS], epoch)
            case 2:
                store.query("SELECT count(*) FROM a JOIN b USING (k)", {"a": 1, "b": 2})
            case 3:
                store.lookup(1, pa.table({"k": pa.array([self.rng.randrange(40)], pa.int64())}))

    def check(self) -> None:
        """What was struck has happened as a whole or not at all; positions agree with rows, in every thread."""
        seen: list[tuple[dict[int, int], int, int, int]] = []

        def look() -> None:
            for i in IDS:
                table, epoch, lsn = self.store.snapshot(i)
                seen.append((dict(Counter(table["k"].to_pylist())), epoch, lsn, self.store.count(i)))

        look()
        # A write whose caller was struck may still be going on; the next one comes after it.
        self.store.drop(99)
        settled = len(seen)
        look()
        other = threading.Thread(target=look)
        other.start()
        other.join(30)
        assert not other.is_alive()
        for rows, epoch, lsn, count in seen:
            assert epoch == lsn
            assert rows == dict(self.model[epoch])
            assert count == self.model[epoch].total()
        assert len({epoch for _, epoch, _, _ in seen[settled:]}) == 1
        # The caller recovers as the engine does: it applies what the log has and the store has not.
        for epoch in range(seen[-1][1] + 1, len(self.model)):
            change = self.model[epoch].copy()
            change.subtract(self.model[epoch - 1])
            rows = {k: w for k, w in change.items() if w}
            self.store.apply_many([(i, delta(rows), epoch) for i in IDS], epoch)


def main(seed: int, rounds: int) -> None:
    trial = Trial(seed)
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    armed, stop = threading.Event(), threading.Event()

    def strike() -> None:
        rng = random.Random(seed + 1)
        while not stop.is_set():
            if armed.wait(0.1):
                # The moment of the interrupt is what is tried.
                time.sleep(rng.random() ** 3 * 0.02)
                for _ in range(rng.choice([1, 1, 2])):
                    if armed.is_set():
                        signal.pthread_kill(main_thread, signal.SIGINT)

    striker = threading.Thread(target=strike)
    striker.start()
    for _ in range(rounds):
        try:
            armed.set()
            try:
                for _ in range(20):
                    trial.attempt()
            finally:
                armed.clear()
        except KeyboardInterrupt:
            trial.strikes += 1
        armed.clear()
        # A second one that is still on its way strikes here, where nothing is at stake.
        try:
            time.sleep(0.002)
        except KeyboardInterrupt:
            trial.strikes += 1
        trial.check()
    stop.set()
    striker.join()
    trial.store.close()
    trial.store.close()
    print(f"strikes={trial.strikes} epochs={len(trial.model) - 1}")  # noqa: T201
    sys.stdout.flush()
    # DuckDB's bindings report what they have not freed at exit.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
