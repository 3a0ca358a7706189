"""Lookup tables that are replicated to where rows are joined with them: a row finds what the table had at its commit, whatever has happened since."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession
from tests.effort import times
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S

import penstock
from penstock.errors import fail

INNER = "SELECT n, name FROM s JOIN d ON s.k = d.k"
LEFT = "SELECT n, name, label FROM s LEFT JOIN d ON s.k = d.k AND d.m > 5 LEFT JOIN e ON s.n % 3 = e.j"
GROUPED = "SELECT name, count(*) AS c FROM s JOIN d ON s.k = d.k GROUP BY name"


class Model:
    """What the database has been told, and what its queries put out."""

    def __init__(self, db: penstock.Database, seed: int) -> None:
        self.db = db
        self._random = random.Random(seed)
        self._d: dict[int, tuple[str, int]] = {}
        self._n = 0
        self.inner: Counter[tuple[object, ...]] = Counter()
        self.left: Counter[tuple[object, ...]] = Counter()

    def change(self) -> None:
        """One commit: rows, or a change of the table."""
        k = self._random.randrange(6)
        match self._random.randrange(4):
            case 0:
                self._d[k] = (f"name{self._random.randrange(9)}", self._random.randrange(11))
                self.db.insert("d", [(k, *self._d[k])])
            case 1 if k in self._d:
                del self._d[k]
                self.db.execute(f"DELETE FROM d WHERE k = {k}")
            case _:
                rows: list[tuple[int | None, int]] = []
                for _ in range(self._random.randrange(1, 4)):
                    key = self._random.choice([None, *range(6)])
                    self._n += 1
                    rows.append((key, self._n))
                    found = self._d.get(key) if key is not None else None
                    if found is not None:
                        self.inner[(self._n, found[0])] += 1
                    name = found[0] if found is not None and found[1] > 5 else None
                    self.left[(self._n, name, "one" if self._n % 3 == 1 else None)] += 1
                self.db.insert("s", rows)

    def changes(self, count: int) -> None:
        for _ in range(count):
            self.change()

    def check(self) -> None:
        self.db.flush(timeout=SOON_S)
        assert self._of("a") == self.inner
        assert self._of("b") == self.left
        counted = Counter(name for (_, name), n in self.inner.items() for _ in range(n))
        assert self._of("c") == Counter(dict.fromkeys(counted.items(), 1))

    def _of(self, name: str) -> Counter[tuple[object, ...]]:
        return Counter(self.db.sql(f"SELECT * FROM {name}").fetchall())


def test_rows_find_what_the_table_had_at_their_commit(opener: Opener, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    db = opener(folder)
    db.execute(f"""
        CREATE SOURCE s (k BIGINT, n BIGINT);
        CREATE LOOKUP TABLE d (k INT PRIMARY KEY, name STRING, m INT);
        CREATE LOOKUP TABLE e (j BIGINT PRIMARY KEY, label STRING);
        INSERT INTO e VALUES (1, 'one');
        CREATE STREAM a AS {INNER};
    """)
    model = Model(db, 7)
    model.changes(8)
    # These begin with the past, each row with the table of its time.
    db.execute(f"CREATE STREAM b AS {LEFT}; CREATE MATERIALIZED VIEW c AS {GROUPED}")
    assert "no shuffle, a replica of the table" in str(db.sql(f"EXPLAIN {INNER}").fetchall())
    for _ in range(times(3)):
        model.changes(4)
        model.check()
        # A new run begins where the last one ended, and the table has gone on since.
        db.stop()
        model.changes(6)
        db.start()
        model.check()

    key = db._engine.jobs.hosted.key(db._object("a").id)
    assert key is not None
    db._engine.jobs.hosted.evict(key, db._object("a").id, fail("PSK-7001", "a defect"))
    model.changes(5)
    db.execute("RESTART STREAM a")
    model.check()

    # The rest on disk, as for a table that has grown large.
    system.setProperty("penstock.replica.bytes", "300")
    try:
        db.stop()
        model.changes(6)
        db.close()
        model.db = db = opener(folder)
        model.changes(6)
        model.check()
        db.execute(f"CREATE STREAM late AS {INNER}")
        model.changes(6)
        model.check()
        assert Counter(db.sql("SELECT * FROM late").fetchall()) == model.inner
    finally:
        system.clearProperty("penstock.replica.bytes")


def test_a_large_table_is_kept_as_state(opener: Opener, tmp_path: Path) -> None:
    with opener(tmp_path / "db", config={**CONFIG, "engine.max_replica_rows": 1}) as db:
        db.execute("""
            CREATE SOURCE s (k BIGINT, n BIGINT);
            CREATE LOOKUP TABLE d (k BIGINT PRIMARY KEY, name STRING);
            INSERT INTO d VALUES (1, 'one'), (2, 'two');
        """)
        shown = str(db.sql("EXPLAIN SELECT n, name FROM s JOIN d ON s.k = d.k").fetchall())
        assert "its own, because d has 2 rows, more than a replica of a lookup table may have" in shown
        assert "kernel LookupJoin" in shown
