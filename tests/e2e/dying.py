"""Processes whose JVM ends in the middle of something: `python -m tests.e2e.dying scenario`. Each prints one JSON object as its last line."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.effort import times

import penstock
from penstock.config import load_settings
from penstock.errors import PenstockError
from penstock.spark import results, session
from penstock.spark.batch import BatchReader
from penstock.spark.calls import interruptible

SETTINGS = load_settings(None, {"spark.master": "local[2]", "spark.heap": "512m"})
SOON_S = 60.0
JVMS = times(3)

FOR_EVER = "SELECT count(*) AS n FROM range(1000000000000) WHERE rand() > 2"


def pid() -> int:
    process = session._spark._process
    assert process is not None
    return process.pid


def kill_jvm() -> None:
    os.kill(pid(), signal.SIGKILL)


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def raised(call: Callable[[], object]) -> tuple[str, float]:
    """The code of the PenstockError that a call raises, and the seconds that it took."""
    begin = time.monotonic()
    try:
        call()
    except PenstockError as error:
        return error.code, time.monotonic() - begin
    return "nothing", time.monotonic() - begin


def streamed(spark: SparkSession, name: str) -> int:
    """The rows that a streaming query over a file puts into memory."""
    folder = Path(spark.sparkContext._temp_dir) / name
    spark.range(7).write.parquet(str(folder))
    query = (
        spark.readStream.schema("id BIGINT").parquet(str(folder))
        .writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(SOON_S)
    return spark.table(name).count()


class UnderWay:
    """Calls that the JVM is busy with, each on a thread of its own, and how they end."""

    def __init__(self, **calls: Callable[[], object]) -> None:
        self.ends: dict[str, tuple[str, float]] = {}
        self._threads = [threading.Thread(target=self._run, args=c) for c in calls.items()]
        for t in self._threads:
            t.start()

    def _run(self, name: str, call: Callable[[], object]) -> None:
        code, _ = raised(call)
        self.ends[name] = (code, time.monotonic())

    def since(self, begin: float) -> dict[str, Any]:
        for t in self._threads:
            t.join(SOON_S)
        return {name: (code, at - begin) for name, (code, at) in self.ends.items()}


def under_way() -> dict[str, Any]:
    """kill -9 while calls of every kind wait."""
    spark = session.get_session(SETTINGS)
    reader = BatchReader(spark)
    told: list[tuple[str, float]] = []
    unwatch = session.watch(lambda error: told.append((str(error), time.monotonic())))
    deaf: list[PenstockError] = []
    session.watch(deaf.append)()
    stuck = threading.Event()
    sleeping = spark.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
    calls = UnderWay(
        select=lambda: reader.select(FOR_EVER, {}),
        direct=lambda: sleeping.sleep(600_000),
        collected=lambda: session_collect(spark),
        stuck=lambda: interruptible(lambda: stuck.wait(SOON_S)),
    )
    tracker = spark.sparkContext.statusTracker()
    until(lambda: len(tracker.getActiveJobsIds()) == 2, "no job runs")
    begin = time.monotonic()
    kill_jvm()
    ends = calls.since(begin)
    stuck.set()
    until(lambda: told, "no watcher was told")
    after = [
        raised(call)
        for call in (
            lambda: reader.select("SELECT 1 AS a", {}),
            session.jvm,
            lambda: spark.sql("SELECT 1"),
            lambda: spark.sparkContext.defaultParallelism,
            session.keep_classes,
        )
    ]
    unwatch()
    text, at = told[0]
    return {"ends": ends, "told": text, "told_s": at - begin, "after": after, "deaf": len(deaf)}


def session_collect(spark: SparkSession) -> None:
    from penstock.spark.translate import translated

    with translated():
        spark.newSession().sql(FOR_EVER).collect()


def restarts() -> dict[str, Any]:
    """Several JVMs one after the other in one process."""
    counts: list[tuple[int, int, int]] = []
    rows = []
    old: list[str] = []
    before: Callable[[], object] | None = None
    for n in range(JVMS):
        spark = session.get_session(SETTINGS)
        if before is not None:
            old.append(raised(before)[0])
        reader = BatchReader(spark)
        table = pa.table({"v": pa.array([1, 2, n], pa.int64())})
        rows.append(reader.select("SELECT sum(v) AS s FROM t", {"t": table}).to_pylist()[0]["s"])
        if n == JVMS - 1:
            reader.register("plus", lambda v: v + 1, "BIGINT")
            rows.append(reader.select("SELECT sum(plus(v)) AS s FROM t", {"t": table}).to_pylist()[0]["s"])
            rows.append(streamed(spark, "streamed"))
        before = spark.range(1).count
        told = threading.Event()
        unwatch = session.watch(lambda error, told=told: told.set())
        kill_jvm()
        assert told.wait(SOON_S)
        unwatch()
        del spark, reader
        gc.collect()
        counts.append(settled())
    return {"rows": rows, "old": old, "counts": counts, "path": [p for p in sys.path if "penstock-spark" in p]}


def settled() -> tuple[int, int, int]:
    """Threads, sockets and open files, once those of the dead JVM have ended."""

    def counted() -> tuple[int, int, int]:
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd_exists(fd)]
        return threading.active_count(), sum("socket" in n for n in names), len(names)

    last = counted()
    same_since = time.monotonic()
    deadline = same_since + 10
    # Waits for the counts to stop changing. Py4J's finalizer looks once a second whether it may end.
    while time.monotonic() - same_since < 2.5 and time.monotonic() < deadline:
        time.sleep(0.1)
        now = counted()
        if now != last:
            last, same_since = now, time.monotonic()
    return last


def fd_exists(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def memory() -> dict[str, Any]:
    """Results and inputs larger than the heap of 512 MB, then a query that no heap is large enough for."""
    spark = session.get_session(SETTINGS)
    reader = BatchReader(spark)
    begin = time.monotonic()
    large = reader.select("SELECT id, repeat(chr(97 + id % 26), 1000) AS s FROM range(1000000) ORDER BY id", {})
    out: dict[str, Any] = {
        "bytes": large.nbytes,
        "rows": large.num_rows,
        "last": [large["id"][-1].as_py(), large["s"][-1].as_py()[:2]],
        "large_s": time.monotonic() - begin,
    }
    begin = time.monotonic()
    summed = reader.select("SELECT count(*) AS n, sum(id) AS s, max(length(s)) AS l FROM t", {"t": large})
    out |= {"summed": [*summed.to_pylist()[0].values()], "input_s": time.monotonic() - begin}
    del large, summed
    room, results._room = results._room, lambda folder: 50 << 20
    out["refused"] = raised(lambda: reader.select("SELECT repeat('x', 1000) AS s FROM range(100000000)", {}))
    results._room = room
    out["wide"] = reader.select("SELECT repeat('x', 1000000) AS s FROM range(300)", {}).nbytes
    out["left"] = len(os.listdir(spark.sparkContext._temp_dir))
    begin = time.monotonic()
    try:
        reader.select("SELECT collect_list(concat(id, repeat('x', 1000000))) AS l FROM range(2000)", {})
    except PenstockError as error:
        out |= {"died": str(error), "died_s": time.monotonic() - begin}
    spark = session.get_session(SETTINGS)
    out["again"] = BatchReader(spark).select("SELECT 1 AS a", {}).to_pylist()
    return out


def ports() -> dict[str, Any]:
    """What the JVM listens on, what anybody can see of it, and what it takes from a stranger."""
    spark = session.get_session(SETTINGS)
    gateway = session._spark.running().gateway
    inodes = {os.readlink(f"/proc/{pid()}/fd/{fd}") for fd in os.listdir(f"/proc/{pid()}/fd") if link(fd)}
    addresses = set()
    for line in [
        *Path("/proc/net/tcp").read_text().splitlines()[1:],
        *Path("/proc/net/tcp6").read_text().splitlines()[1:],
    ]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            addresses.add(words[1].split(":")[0])
    with socket.create_connection(("127.0.0.1", gateway.java_parameters.port), timeout=SOON_S) as stranger:
        # The JVM's time, asked for without the token.
        stranger.sendall(b"c\nz:java.lang.System\ncurrentTimeMillis\ne\n")
        answer = stranger.recv(100)
    conf = spark.sparkContext.getConf()
    return {
        "addresses": sorted(addresses),
        "answer": answer.decode(),
        "authenticate": conf.get("spark.authenticate"),
        "command": Path(f"/proc/{pid()}/cmdline").read_text(),
        "mode": session._spark.running().scratch.path.stat().st_mode & 0o777,
    }


def link(fd: str) -> bool:
    return os.path.lexists(f"/proc/{pid()}/fd/{fd}")


def starting() -> dict[str, Any]:
    """A JVM that dies while it starts, two threads that start one at once, and a context that is stopped."""
    out: dict[str, Any] = {}
    ends: list[tuple[str, float]] = []
    first = threading.Thread(target=lambda: ends.append(raised(lambda: session.get_session(SETTINGS))))
    first.start()
    until(lambda: session._spark._process is not None, "no process")
    kill_jvm()
    first.join(SOON_S)
    out["killed"] = ends
    out["phase"] = session._spark.phase.value
    databases: list[penstock.Database] = []
    threads = [
        threading.Thread(
            target=lambda: databases.append(penstock.open(master="local[2]", config={"spark.heap": "512m"}))
        )
        for _ in range(2)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(3 * SOON_S)
    out["sums"] = [d.sql("SELECT 1 + 1 AS a").fetchall() for d in databases]
    told = threading.Event()
    session.watch(lambda error: told.set())
    spark = session.get_session(SETTINGS)
    for d in databases:
        d.close()
    spark.stop()
    assert told.wait(SOON_S)
    ended = session.ended()
    out["stopped"] = str(ended)
    out["again"] = BatchReader(session.get_session(SETTINGS)).select("SELECT 1 AS a", {}).to_pylist()
    return out


def reopened(folder: str) -> dict[str, Any]:
    """A database whose JVM is killed says so in every call, goes on with a new JVM, and can be closed and opened again in the same process."""

    def opened() -> penstock.Database:
        return penstock.open(folder, master="local[2]", config={"spark.heap": "512m"})

    db = opened()
    db.execute(
        "CREATE SOURCE s (k STRING, v BIGINT); CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS t FROM s GROUP BY k"
    )
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY); CREATE MATERIALIZED VIEW gone AS SELECT k FROM s GROUP BY k")
    db.insert("s", [("a", 1), ("b", 2)])
    db.flush(timeout=SOON_S)
    # A DROP is under way: it has changed the catalogue, and waits for a JVM that does not answer any more.
    os.kill(pid(), signal.SIGSTOP)
    drop = UnderWay(drop=lambda: db.execute("DROP MATERIALIZED VIEW gone"))
    until(lambda: db._engine.catalog.get("gone") is None, "the view was not dropped")
    kill_jvm()
    dropped = drop.since(time.monotonic())["drop"][0]
    until(lambda: db.state != "Running", "the death was not noticed")
    faulted = db.state
    calls: list[Callable[[], object]] = [
        lambda: db.insert("s", [("a", 100)]),
        lambda: db.insert("t", [("x",)]),
        lambda: db.execute("INSERT INTO t VALUES ('x')"),
        lambda: db.flush(timeout=SOON_S),
        lambda: db.sql("SELECT * FROM g"),
        lambda: db.sql("SELECT * FROM g WITH (stale = true)"),
        lambda: db.sql("SELECT * FROM t"),
        lambda: db.execute("CHECKPOINT"),
        lambda: db.execute("CREATE TABLE u (k STRING PRIMARY KEY)"),
        lambda: db.subscribe("g"),
        db.stop,
    ]
    dead = [raised(c) for c in calls]
    states = {s.name: s.state for s in db.status()}
    db.execute("START PIPELINE")
    db.insert("s", [("b", 20)])
    revived = sorted(db.sql("SELECT k, t FROM g").fetchall())
    kill_jvm()
    until(session.ended, "the death was not noticed")
    begin = time.monotonic()
    db.close()
    closed_s = time.monotonic() - begin
    with opened() as db:
        db.insert("s", [("a", 10)])
        db.flush(timeout=SOON_S)
        return {
            "dropped": dropped,
            "faulted": faulted,
            "dead": dead,
            "states": states,
            "revived": revived,
            "closed_s": closed_s,
            "rows": sorted(db.sql("SELECT k, t FROM g").fetchall()),
            "t": db.sql("SELECT * FROM t").fetchall(),
        }


def exiting(how: str) -> dict[str, Any]:
    """Ends right after it has printed when."""
    spark = session.get_session(SETTINGS)
    scratch = str(session._spark.running().scratch.path)
    spark.range(10).count()
    if how == "dead":
        kill_jvm()
        until(session.ended, "the death was not noticed")
    elif how == "stuck":
        # It lives, and does not hear that its input is closed.
        os.kill(pid(), signal.SIGSTOP)
    return {"scratch": scratch, "jvm": pid(), "at": time.time()}


def waiting() -> dict[str, Any]:
    """Says where its folder is, and waits to be killed."""
    session.get_session(SETTINGS)
    return {"scratch": str(session._spark.running().scratch.path), "jvm": pid()}


if __name__ == "__main__":
    done = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(done) + "\n")
    sys.stdout.flush()
    if sys.argv[1] == "waiting":
        signal.pause()
