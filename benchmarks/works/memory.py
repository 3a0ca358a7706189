"""Memory of the two processes while many rows go through the window query."""

from __future__ import annotations

import threading

import psutil
import pyarrow.compute as pc

from benchmarks.data import Shape
from benchmarks.engines import penstock
from benchmarks.engines.query import SILENCE_S
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.window import SQL

MARKS = 4
SAMPLE_S = 0.1
MIB = 1 << 20


class Watch(threading.Thread):
    """Resident memory in MiB: when a quarter of the rows is through, and the most after the first quarter."""

    def __init__(self, processes: dict[str, psutil.Process], rows: int) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._mark = rows // MARKS
        self._over = threading.Event()
        self.rows = 0
        self.at: dict[str, list[float]] = {name: [] for name in processes}
        self.most: dict[str, float] = dict.fromkeys(processes, 0.0)

    def through(self, rows: int) -> None:
        """So many more rows have come through."""
        self.rows += rows
        for name, values in self.at.items():
            while len(values) < self.rows // self._mark:
                values.append(self._now(name))

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            if self.rows >= self._mark:
                for name in self.most:
                    self.most[name] = max(self.most[name], self._now(name))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _now(self, name: str) -> float:
        return float(self._processes[name].memory_info().rss) / MIB


def with_penstock(quick: bool) -> Figures:
    rows = Shape(4_000_000 if quick else 20_000_000)
    failed: list[BaseException] = []
    with penstock.opened() as db:
        query = penstock.PenstockQuery(db, "w", SQL)
        watch = Watch({"python": psutil.Process(), "jvm": psutil.Process(penstock.jvm_pid(db))}, rows.rows)
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
            table = query.poll(SILENCE_S)
            if table is None:
                raise TimeoutError(f"{watch.rows} of {rows.rows} rows")
            watch.through(pc.sum(table["n"]).as_py() or 0)
        watch.stop()
        if failed:
            raise failed[0]
    figures: Figures = {}
    for name, values in watch.at.items():
        for number, value in enumerate(values, 1):
            figures[f"{name}_{number}"] = [value]
        figures[f"{name}_growth"] = [max(watch.most[name], *values) / values[0]]
    return figures


def _rows() -> tuple[Row, ...]:
    rows = []
    for name, title in (("python", "Python"), ("jvm", "JVM")):
        for number in range(1, MARKS + 1):
            rows.append(
                Row(f"20 M rows: {title} after {5 * number} M", f"{name}_{number}", "MiB", better="less", digits=0)
            )
        rows.append(Row(f"20 M rows: {title}, most : after 5 M", f"{name}_growth", "×", (AtMost(1.15),), better="less"))
    return tuple(rows)


WORK = Work(name="memory", programs={PENSTOCK: with_penstock}, rows=_rows(), repeats=2)
