"""The kernel's epoch clock, driven by hand: what an epoch holds, and which watermark is in force for its rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.kernel import LOG_SINK, LOG_SOURCE, Kernel

NONE = -(1 << 63)
FAR_BACK = -9_000_000_000_000_000


class Job:
    """A query that hands on the rows of some objects with the watermark in force for each, and who takes its epochs."""

    def __init__(self, spark: SparkSession, folder: Path, followed: dict[int, int]) -> None:
        self.kernel = Kernel(spark._jvm)
        self.spark = spark
        self.folder = folder
        self.name = f"clock-{folder.name}"
        self.index = self.kernel.LogIndex.of(self.name)
        self.followed = followed
        self.lsn = 0
        self.rows: list[tuple[int, int, int]] = []

    def commit(self, **parts: tuple[list[int], int | None] | str) -> int:
        """One commit: `o1=([values], watermark)`, or `o1="idle"`."""
        self.lsn += 1
        lines = []
        for name, part in parts.items():
            values, watermark = ([], None) if isinstance(part, str) else part
            mark = "" if watermark is None else str(watermark)
            slices = ""
            path = self.folder / f"{self.lsn}-{name}.arrow"
            if values:
                batch = pa.record_batch({"v": pa.array(values, pa.int64())})
                path.write_bytes(batch.serialize().to_pybytes())
                slices = f"0,{path.stat().st_size},{len(values)}"
            lines.append(f"{self.lsn}\t{name[1:]}\t{mark}\t{int(part == 'idle')}\t1\t{path}\t{slices}\n")
        self.index.add("".join(lines), self.lsn)
        return self.lsn

    @contextmanager
    def running(self, max_rows: int = 1_000_000) -> Iterator[Any]:
        spec = {
            "database": self.name,
            "objects": list(self.followed),
            "timed": [{"object": o, "lagMs": lag} for o, lag in self.followed.items()],
            "eventTime": False,
            "maxRows": max_rows,
            "pollMs": 50,
            "everyMs": 0,
            "start": 0,
            "ledger": str(self.folder / "state"),
        }
        clock = self.kernel.EpochClock.create(self.name, json.dumps(spec))
        box = self.kernel.Outbox.create(self.name)
        frame = None
        for scan, object_id in enumerate(self.followed):
            one = (
                self.spark.readStream.format(LOG_SOURCE)
                .schema("v BIGINT, __pwm BIGINT")
                .options(job=self.name, scan=scan, object=object_id, columns=1, eventTime="false")
                .load()
            )
            frame = one if frame is None else frame.unionAll(one)
        assert frame is not None
        stopped = threading.Event()
        taking = threading.Thread(target=self._take, args=(box, stopped))
        taking.start()
        query = (
            frame.writeStream.format(LOG_SINK)
            .options(job=self.name, folder=str(self.folder / "out"), outputs="[[0, 1]]", befores="[-1]")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )
        try:
            yield clock
        finally:
            stopped.set()
            taking.join()
            box.close()
            query.stop()
            self.kernel.Outbox.drop(self.name)
            self.kernel.EpochClock.drop(self.name)

    def _take(self, box: Any, stopped: threading.Event) -> None:
        schema = pa.schema([("v", pa.int64()), ("pwm", pa.int64())])
        recorded = -1
        while not stopped.is_set():
            packet = box.take(recorded, 50)
            recorded = -1 if packet is None else 0
            if packet is None:
                continue
            length = int.from_bytes(packet[:4], "big")
            head = json.loads(packet[4 : 4 + length])
            for part in head["parts"]:
                for offset, size, _ in part["messages"]:
                    at = 4 + length + part["at"] + offset
                    table = pa.ipc.read_record_batch(pa.py_buffer(packet[at : at + size]), schema)
                    self.rows += [(head["epoch"], v, w) for v, w in zip(*table.to_pydict().values(), strict=True)]

    def in_force(self) -> dict[int, int]:
        return {v: w for _, v, w in self.rows}


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Job]:
    made = Job(spark, tmp_path, {1: 0, 2: 100})
    yield made
    made.kernel.LogIndex.drop(made.name)


def test_each_commit_is_judged_by_the_watermark_before_it(job: Job) -> None:
    job.commit(o1=([1], 1000))
    job.commit(o2=([2], 500))  # The smaller one counts, less its lag.
    job.commit(o1=([3], 2000), o2=([4], 700))
    job.commit(o1=([5], 2500))
    job.commit(o2="idle")
    job.commit(o1=([6], 3000))
    job.commit(o1="idle")  # Both: the larger one.
    job.commit(o1=([7], 3500), o2=([8], 800))  # They are back, but the watermark does not go back.
    last = job.commit(o1=([9], 3600), o2=([10], 900))
    expected = {
        1: FAR_BACK,
        2: FAR_BACK,
        3: 400,
        4: 400,
        5: 600,
        6: 2500,
        7: 3000,
        8: 3000,
        9: 3000,
        10: 3000,
    }
    with job.running() as clock:
        assert clock.awaitSettled(last, 60_000)
        assert len({epoch for epoch, _, _ in job.rows}) == 1
        assert job.in_force() == expected


def test_a_job_that_begins_epoch_by_epoch_sees_the_same(job: Job) -> None:
    for i in range(6):
        last = job.commit(o1=([10 * i], 1000 * i), o2=([10 * i + 1], 900 * i))
    with job.running(max_rows=1) as clock:
        assert clock.awaitSettled(last, 60_000)
        assert len({epoch for epoch, _, _ in job.rows}) == 6
        assert job.in_force() == {0: FAR_BACK, 1: FAR_BACK} | {
            10 * i + n: 900 * (i - 1) - 100 for i in range(1, 6) for n in (0, 1)
        }


def test_a_job_goes_on_with_the_watermark_that_it_had(job: Job) -> None:
    job.commit(o1=([1], 1000))
    last = job.commit(o2=([2], 500))
    with job.running() as clock:
        assert clock.awaitSettled(last, 60_000)
    # What has moved the watermark is gone.
    job.index.trim(1, last)
    job.index.trim(2, last)
    last = job.commit(o1=([3], 1500))
    with job.running() as clock:
        assert clock.awaitSettled(last, 60_000)
    assert job.in_force() == {1: FAR_BACK, 2: FAR_BACK, 3: 400}
