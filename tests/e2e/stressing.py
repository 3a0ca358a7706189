"""A database under concurrent load, checked against a model: run as `python -m tests.e2e.stressing FOLDER SECONDS SEED`.

Threads insert, update, delete, create and drop objects, read, subscribe (some stop reading), flush and checkpoint; the main thread inserts
while it is interrupted, and the JVM is killed and started again. Every error must have a code. At the end nothing is lost or duplicated, nothing
hangs, and every view equals its query over the rows.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import penstock

PIPELINE = """
CREATE SOURCE s (id BIGINT, v BIGINT);
CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT);
CREATE MATERIALIZED VIEW sums AS SELECT v % 7 AS k, count(*) AS n, sum(id) AS total FROM s GROUP BY v % 7;
CREATE MATERIALIZED VIEW large AS SELECT id, v FROM s WHERE v > 50;
CREATE MATERIALIZED VIEW small AS SELECT id, v * 2 AS w FROM s WHERE v <= 50;
CREATE MATERIALIZED VIEW rows_of_t AS SELECT v % 5 AS k, count(*) AS n FROM t GROUP BY v % 5;
CREATE MATERIALIZED VIEW over AS SELECT sum(n) AS n FROM sums;
"""
VIEWS = {
    "sums": "SELECT v % 7 AS k, count(*) AS n, sum(id) AS total FROM s GROUP BY v % 7",
    "large": "SELECT id, v FROM s WHERE v > 50",
    "small": "SELECT id, v * 2 AS w FROM s WHERE v <= 50",
    "rows_of_t": "SELECT v % 5 AS k, count(*) AS n FROM t GROUP BY v % 5",
    "over": "SELECT CAST(count(*) AS BIGINT) AS n FROM s",
}
END_S = 180.0
"""How long the threads may take to come to an end, and the views to catch up."""


class Stress:
    def __init__(self, folder: Path, seed: int) -> None:
        self.db = penstock.open(folder, master="local[2]")
        self.db.execute(PIPELINE)
        self.seed = seed
        self.stop = threading.Event()
        self.wrong: list[str] = []
        self.codes: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.sure: set[int] = set()
        self.unsure: set[int] = set()
        self.table: dict[int, int | None] = {}
        self.doubtful: set[int] = set()
        self.lock = threading.Lock()
        self.reviving = threading.Lock()

    def attempt(self, what: str, work: Callable[[], object]) -> bool:
        """True if it happened; False if it was refused with a code. Anything else is wrong."""
        try:
            work()
            self.done[what] += 1
            return True
        except penstock.PenstockError as error:
            self.codes[f"{what}: {error.code}"] += 1
            if error.code == "PSK-8001":
                self.wrong.append(f"{what}: {error}")
            if error.code == "PSK-7005":
                self.revive()
        except Exception as error:
            self.wrong.append(f"{what}: {type(error).__name__}: {error}")
        return False

    def revive(self) -> None:
        with self.reviving:
            if self.db.state == "Faulted":
                try:
                    self.db.start()
                    self.done["start"] += 1
                except penstock.PenstockError as error:
                    self.codes[f"start: {error.code}"] += 1

    # Threads

    def insert(self, rng: random.Random, number: int) -> None:
        at = number * 10_000_000
        while not self.stop.is_set():
            ids = list(range(at, at + rng.randint(1, 20)))
            at = ids[-1] + 1
            self._insert(rng, ids)

    def _insert(self, rng: random.Random, ids: list[int]) -> None:
        rows = [(i, rng.randint(0, 100)) for i in ids]
        happened = self.attempt("insert", lambda: self.db.insert("s", rows))
        with self.lock:
            (self.sure if happened else self.unsure).update(ids)

    def change(self, rng: random.Random, number: int) -> None:
        while not self.stop.is_set():
            i, v = number * 1000 + rng.randint(0, 50), rng.randint(0, 100)
            kind = rng.choice(["insert", "insert", "update", "delete"])
            statement = {
                "insert": f"INSERT INTO t VALUES ({i}, {v})",
                "update": f"UPDATE t SET v = {v} WHERE id = {i}",
                "delete": f"DELETE FROM t WHERE id = {i}",
            }[kind]
            if rng.random() < 0.7 and kind == "insert":
                happened = self.attempt("upsert", lambda i=i, v=v: self.db.insert("t", [(i, v)]))  # type: ignore[misc]
            else:
                happened = self.attempt(kind, lambda s=statement: self.db.execute(s))  # type: ignore[misc]
            with self.lock:
                if not happened:
                    self.doubtful.add(i)
                elif kind == "delete":
                    self.table[i] = None
                elif kind == "insert" or self.table.get(i) is not None:
                    self.table[i] = v
                if happened and kind != "update":
                    self.doubtful.discard(i)

    def make(self, rng: random.Random, number: int) -> None:
        while not self.stop.is_set():
            name = f"extra{number}"
            query = rng.choice(["SELECT id FROM s WHERE v = 1", "SELECT v, count(*) AS n FROM s GROUP BY v"])
            self.attempt("create", lambda n=name, q=query: self.db.execute(f"CREATE MATERIALIZED VIEW {n} AS {q}"))  # type: ignore[misc]
            self.attempt("read new", lambda n=name: self.db.sql(f"SELECT count(*) AS n FROM {n}"))  # type: ignore[misc]
            self.attempt("drop", lambda n=name: self.db.execute(f"DROP MATERIALIZED VIEW IF EXISTS {n}"))  # type: ignore[misc]

    def read(self, rng: random.Random, number: int) -> None:
        while not self.stop.is_set():
            name = rng.choice([*VIEWS, "s", "t"])
            self.attempt("select", lambda n=name: self.db.sql(f"SELECT count(*) AS n FROM {n}"))  # type: ignore[misc]
            self.stop.wait(0.05)

    def subscribe(self, rng: random.Random, number: int) -> None:
        kept: list[object] = []
        while not self.stop.is_set():
            policy = rng.choice(["block", "coalesce", "latest", "resync", "disconnect"])
            snapshot = rng.random() < 0.5

            def follow(policy: str = policy, snapshot: bool = snapshot) -> None:
                name = rng.choice(list(VIEWS))
                followed = self.db.subscribe(name, policy=policy, snapshot=snapshot, buffer_bytes=2000)  # type: ignore[arg-type]
                if rng.random() < 0.4 and len(kept) < 50:
                    kept.append(followed)  # Nobody reads it.
                    return
                try:
                    for _ in range(rng.randint(0, 5)):
                        followed.next(timeout=0.2)
                finally:
                    if rng.random() < 0.7:
                        followed.cancel()

            self.attempt("subscribe", follow)
            self.stop.wait(0.1)

    def maintain(self, rng: random.Random, number: int) -> None:
        while not self.stop.is_set():
            self.attempt("flush", lambda: self.db.flush(timeout=60))
            if rng.random() < 0.3:
                self.attempt("checkpoint", self.db.checkpoint)
            self.attempt("status", self.db.status)

    # The main thread

    def run(self, seconds: float) -> None:
        works = [
            self.insert,
            self.insert,
            self.change,
            self.change,
            self.make,
            self.read,
            self.subscribe,
            self.maintain,
        ]
        threads = [
            threading.Thread(target=w, args=(random.Random(self.seed * 100 + n), n + 1), name=w.__name__, daemon=True)
            for n, w in enumerate(works)
        ]
        for t in threads:
            t.start()
        rng = random.Random(self.seed)
        end = time.monotonic() + seconds
        kill = time.monotonic() + seconds / 3
        armed = threading.Event()
        threading.Thread(target=self._strike, args=(armed,), name="strike", daemon=True).start()
        ids = [0]
        while time.monotonic() < end:
            try:
                armed.set()
                ids = list(range(ids[-1] + 1, ids[-1] + 1 + rng.randint(1, 5)))
                self._insert(rng, ids)
            except KeyboardInterrupt:
                armed.clear()
                self.done["interrupt"] += 1
                with self.lock:
                    self.unsure.update(set(ids) - self.sure)
            if time.monotonic() > kill:
                armed.clear()
                kill = time.monotonic() + seconds / 3
                self.kill_jvm()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.stop.set()
        limit = time.monotonic() + END_S
        for t in threads:
            t.join(max(0.0, limit - time.monotonic()))
        stuck = [t.name for t in threads if t.is_alive()]
        if stuck:
            faulthandler.dump_traceback(all_threads=True)
            self.wrong.append(f"hung: {stuck}")

    def _strike(self, armed: threading.Event) -> None:
        """Presses Ctrl-C every now and then, while somebody is there to be struck."""
        rng = random.Random(self.seed + 1)
        while not self.stop.is_set():
            armed.wait()
            # The moment of the interrupt is what is tried.
            time.sleep(rng.random() * 0.05)
            if armed.is_set() and not self.stop.is_set():
                armed.clear()
                os.kill(os.getpid(), signal.SIGINT)

    def kill_jvm(self) -> None:
        found = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
            self.done["kill"] += 1

    def check(self) -> None:
        self.revive()
        self.db.flush(timeout=END_S)
        ids = Counter(r[0] for r in self.db.sql("SELECT id FROM s").fetchall())
        twice = [i for i, n in ids.items() if n > 1]
        lost = self.sure - set(ids)
        strange = set(ids) - self.sure - self.unsure
        if twice or lost or strange:
            self.wrong.append(f"{len(twice)} twice, {len(lost)} lost, {len(strange)} from nowhere")
        have = dict(self.db.sql("SELECT id, v FROM t").fetchall())
        want = {i: v for i, v in self.table.items() if v is not None}
        differs = [i for i in {*have, *want} if have.get(i) != want.get(i) and i not in self.doubtful]
        if differs:
            self.wrong.append(f"table: {[(i, have.get(i), want.get(i)) for i in differs[:5]]}")
        for name, query in VIEWS.items():
            view = Counter(self.db.sql(f"SELECT * FROM {name}").fetchall())
            batch = Counter(self.db.sql(query).fetchall())
            if view != batch:
                self.wrong.append(f"{name}: {list((view - batch).items())[:3]} for {list((batch - view).items())[:3]}")
        self.db.close()


def main() -> None:
    folder, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    stress = Stress(folder, seed)
    stress.run(seconds)
    if not stress.wrong:
        stress.check()
    again = penstock.open(folder, master="local[2]")
    rows = again.sql("SELECT count(*) AS n FROM s").fetchall()
    again.close()
    sys.stdout.write(f"{dict(stress.done)}\n{dict(stress.codes)}\n{rows[0][0]} rows\n")
    sys.stdout.write("\n".join(stress.wrong) or "sound")
    sys.stdout.flush()
    os._exit(1 if stress.wrong else 0)


if __name__ == "__main__":
    main()
