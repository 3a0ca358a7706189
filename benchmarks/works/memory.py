"""Memory of the two processes while many rows go through the window query."""

from __future__ import annotations

import threading

import numpy as np
import psutil
import pyarrow.compute as pc

from benchmarks.data import Shape
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.window import SQL

QUARTERS = 4
SAMPLE_S = 0.1
MIB = 1 << 20


class Watch(threading.Thread):
    """Samples resident memory, by how many rows have come through."""

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()
        self.rows = 0
        self.samples: list[tuple[int, dict[str, float]]] = []

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.samples.append((self.rows, {n: p.memory_info().rss / MIB for n, p in self._processes.items()}))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def median(self, name: str, first: int, last: int) -> float:
        return float(np.median([s[name] for rows, s in self.samples if first <= rows <= last]))


def with_penstock(quick: bool) -> Figures:
    rows = Shape(4_000_000 if quick else 20_000_000)
    failed: list[BaseException] = []
    with penstock.opened() as db:
        query = penstock.PenstockQuery(db, "w", SQL)
        watch = Watch({"python": psutil.Process(), "jvm": psutil.Process(penstock.jvm_pid(db))})
        watch.start()

        def push() -> None:
            try:
                for batch in rows.batches():
                    query.push(batch)
                query.push(rows.last())
            except BaseException as error:
                failed.append(error)

        threading.Thread(target=push, daemon=True).start()
        while watch.rows < rows.rows and not failed:
            table = query.poll(60.0)
            if table is None:
                raise TimeoutError(f"{watch.rows} of {rows.rows} rows")
            watch.rows += pc.sum(table["n"]).as_py() or 0
        watch.stop()
        if failed:
            raise failed[0]
    quarter = rows.rows // QUARTERS
    figures: Figures = {}
    for name in ("python", "jvm"):
        after = [watch.median(name, i * quarter, (i + 1) * quarter) for i in range(QUARTERS)]
        for number, value in enumerate(after, 1):
            figures[f"{name}_{number}"] = [value]
        figures[f"{name}_growth"] = [after[-1] / after[1]]
    return figures


def _rows() -> tuple[Row, ...]:
    rows = []
    for name, title in (("python", "Python"), ("jvm", "JVM")):
        for number in range(1, QUARTERS + 1):
            rows.append(
                Row(f"20 M rows: {title}, quarter {number}", f"{name}_{number}", "MiB", better="less", digits=0)
            )
        rows.append(
            Row(f"20 M rows: {title}, last quarter : second", f"{name}_growth", "×", (AtMost(1.15),), better="less")
        )
    return tuple(rows)


WORK = Work(name="memory", programs={PENSTOCK: with_penstock}, rows=_rows(), repeats=2)
