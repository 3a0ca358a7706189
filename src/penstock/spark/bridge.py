"""Python's side of the kernel: one running query with its clock and its outbox."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.disk import Witness
from penstock.errors import PenstockError, fail
from penstock.log import Covered
from penstock.plan.closings import Closing
from penstock.plan.nodes import Join
from penstock.spark.calls import interruptible
from penstock.spark.compile import Compiled
from penstock.spark.index import packed_slices
from penstock.spark.kernel import LOG_SINK
from penstock.spark.offsets import Reached, numbered, offset_in, recorded_file
from penstock.spark.operators import Operator, StateFigures
from penstock.spark.session import jvm, releasing
from penstock.spark.translate import translate, translated

NO_WATERMARK = -(1 << 63)

ERROR_SCHEMA = pa.schema(
    [
        pa.field("expression", pa.string()),
        pa.field("error", pa.string()),
        pa.field("row", pa.string()),
        pa.field("__weight", pa.int64()),
    ]
)
"""The columns of an error: the expression that failed, the reason, and the row as JSON."""

_TIMED_EPOCHS = 10_000

_ANSWER_S = 2.0
"""So much longer than it was asked to wait may the JVM take for its answer."""


def _plain(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else dict(json.loads(progress.json))


class FolderClaim:
    """The JVM's lock on a database folder; it waits until the JVM of a killed process has exited."""

    def __init__(self, path: Path, timeout_ms: int = 30_000) -> None:
        self._hold = interruptible(lambda: jvm().FolderHold.acquire(str(path), timeout_ms))
        if self._hold is None:
            raise fail("PSK-0005", f"{path.parent} is still locked by the JVM of another process.")

    def release(self) -> None:
        with releasing():
            self._hold.release()


@dataclass(frozen=True)
class Epoch:
    """The output of one epoch of a job: record batches per output, in no particular order."""

    number: int
    watermark: int | None
    idle: bool
    """True if the output does not hold back the watermark of its readers, until its next epoch."""
    lsn: int
    batches: tuple[tuple[pa.RecordBatch, ...], ...]
    before: tuple[tuple[int, ...], ...]
    """For each batch, the watermark in force for its rows if they are behind it, otherwise `NO_WATERMARK`."""
    files: tuple[Path, ...]
    after: int = 0
    """The LSN after which the epoch has read, up to `lsn`."""
    beat: int = 0
    """Distinguishes epochs that reach the same LSN."""
    objects: tuple[int, ...] | None = None
    """In a shared job: the objects of the outputs."""
    slots: tuple[int, ...] | None = None
    """In a shared job: the slots of the outputs' members, negated for late rows. Unlike an object, a slot always belongs to one version of a query."""
    ms: float = -1.0
    """Milliseconds from the choice of its input to its delivery; -1 for a replayed epoch."""
    errors: tuple[pa.Table | None, ...] = ()
    """Changes of the errors (`ERROR_SCHEMA`) of each query of the job, not consolidated; None if there are none."""
    late: Mapping[int, int] = field(default_factory=dict)
    """In a shared job: the number of late rows, by slot."""

    def of(self, *own: int) -> Epoch:
        """The outputs of one member of a shared job as a separate epoch, with the errors of the first."""
        batches, before = (tuple(some[i] for i in own) for some in (self.batches, self.before))
        return replace(self, batches=batches, before=before, errors=(self.errors[own[0]],))


@dataclass(frozen=True)
class Seed:
    """Contents of an object as of an LSN, in a file of record-batch messages."""

    object_id: int
    lsn: int
    columns: int
    path: str
    batches: tuple[tuple[int, int, int], ...]
    checks: tuple[int, ...] = ()


class KernelJob:
    """A job in Spark. `start` runs it; `take` returns finished epochs, which must each be acknowledged."""

    def __init__(
        self,
        spark: SparkSession,
        database: str,
        job: str,
        compiled: Compiled,
        *,
        folder: Path,
        schemas: list[pa.Schema],
        max_rows: int,
        poll_ms: int,
        every_ms: int,
        seeds: Iterable[Seed],
        start: int = 0,
        state_limit: int = 0,
        codegen: bool = True,
        recorded: Covered | None = None,
        gather_ms: int = 0,
        closings: Iterable[Closing] = (),
    ) -> None:
        self._spark = spark
        self._codegen = codegen
        self._job = job
        self._compiled = compiled
        self.folder = self._folder = folder
        self._schemas = schemas
        kernel = jvm()
        spec = {
            "database": database,
            "maxRows": max_rows,
            "pollMs": poll_ms,
            "everyMs": every_ms,
            "start": start,
            "stateLimit": state_limit,
            "gatherMs": gather_ms,
            "closings": [[c.step_ms, c.first_ms] for c in closings],
        }
        with translated():
            self._clock = kernel.EpochClock.create(job, json.dumps(spec | self._spec()))
        if recorded is not None:
            self._clock.recorded(recorded.after, recorded.reach, recorded.watermark)
        for s in seeds:
            slices = packed_slices(s.batches, s.checks)
            self._clock.seed(s.object_id, s.lsn, s.columns, s.path, slices)
        self._box = kernel.Outbox.create(job)
        if compiled.errors is not None:
            compiled.errors.open(str(folder / "out"))
        self._query: StreamingQuery | None = None

    def _spec(self) -> dict[str, object]:
        """The clock's specification of the compiled job."""
        compiled = self._compiled
        return {
            "objects": compiled.objects,
            "timed": [{"object": t.object_id, "lagMs": t.lag_ms} for t in compiled.timed],
            "eventTime": compiled.event_time,
            "ttlMs": self._ttl_ms(),
            "sizes": [o.size.id() for o in compiled.operators if not o.native],
            "ledger": str(self._folder / "state"),
        }

    def _ttl_ms(self) -> int:
        """The longest time for which rows are kept, if rows expire by the wall clock."""
        nodes = [o.node for o in self._compiled.operators]
        return max((n.ttl_ms for n in nodes if isinstance(n, Join) and n.ttl_ms), default=0)

    def start(self) -> None:
        options = {
            # Repeated parts of a plan are already shared.
            "spark.sql.exchange.reuse": "false",
            "spark.sql.streaming.noDataMicroBatches.enabled": str(not self._ttl_ms()).lower(),
            "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": str(
                any(o.native for o in self._compiled.operators)
            ).lower(),
        }
        if not self._codegen:
            options |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        if self._compiled.passed is not None:
            # All of its epochs are timed.
            options["spark.sql.streaming.numRecentProgressUpdates"] = str(_TIMED_EPOCHS)
        with translated():
            last = self._last_offset()
            if last is not None:
                self._clock.resumeAfter(last)
            planned = jvm().PlanOnce.of(self._compiled.frame._jdf)
            for key, value in options.items():
                planned.sparkSession().conf().set(key, value)
            writer = (
                DataFrame(planned, self._spark)
                .writeStream.format(LOG_SINK)
                .queryName(self._job)
                .outputMode("append")
                .option("job", self._job)
                .option("folder", str(self._folder / "out"))
                .option("outputs", json.dumps(self._compiled.slots))
                .option("befores", json.dumps(self._compiled.befores))
                .option("checkpointLocation", str(self._folder / "checkpoint"))
            )
            if self._compiled.errors is not None:
                writer = writer.option("errors", self._compiled.errors.id())
            self._query = writer.start()

    def _last_offset(self) -> str | None:
        """The offset of the last epoch that Spark committed; None if there is none, or if Spark will report that it cannot be read."""
        checkpoint = self._folder / "checkpoint"
        committed = numbered(checkpoint / "commits")
        if not committed:
            return None
        try:
            return offset_in((checkpoint / "offsets" / str(committed[-1])).read_bytes())
        except (OSError, ValueError):
            return None

    def take(self, recorded: int | None, timeout_ms: int) -> Epoch | None:
        """Acknowledges the previous epoch, if `recorded` is the last commit of the log, and waits for the next one; None after the timeout."""
        if recorded is not None:
            self._attest(recorded)
        packet = self._box.take(-1 if recorded is None else recorded, timeout_ms)
        return None if packet is None else self._unpack(packet)

    def _attest(self, recorded: int) -> None:
        """Records the LSN that the log must have reached, because Spark's files do not say it."""
        Witness.write(recorded_file(self._folder), recorded)

    def _unpack(self, packet: bytes) -> Epoch:
        return self._epoch(packet, dict(enumerate(self._schemas)))

    def _epoch(self, packet: bytes, schemas: dict[int, pa.Schema], objects: Mapping[int, int] | None = None) -> Epoch:
        """Unpacks an epoch with one output per schema. `objects`, in a shared job: those of the outputs, each of which has its own errors."""
        (length,) = struct.unpack_from(">i", packet)
        head: dict[str, Any] = json.loads(packet[4 : 4 + length])
        body = pa.py_buffer(packet)
        if objects is not None:
            # Members that have not started are not in this epoch.
            schemas = {slot: schema for slot, schema in schemas.items() if abs(slot) <= head["roster"]}
            objects = {slot: objects[slot] for slot in schemas}
        outputs: dict[int, list[pa.RecordBatch]] = {o: [] for o in schemas}
        before: dict[int, list[int]] = {o: [] for o in schemas}
        files = []
        for part in head["parts"]:
            if "path" in part:
                path = Path(part["path"])
                files.append(path)
                data, base = pa.memory_map(str(path)).read_buffer(), 0
            else:
                data, base = body, 4 + length + part["at"]
            schema = schemas.get(part["output"])
            if schema is None:
                continue  # Its member has left.
            for offset, size, _ in part["messages"]:
                outputs[part["output"]].append(pa.ipc.read_record_batch(data.slice(base + offset, size), schema))
                before[part["output"]].append(part["before"])
        errors: dict[int, list[pa.RecordBatch]] = {q: [] for q in (objects if objects is not None else (0,))}
        for part in head.get("errors", ()):
            if "path" in part:
                path = Path(part["path"])
                files.append(path)
                message = pa.memory_map(str(path)).read_buffer()
            else:
                message = body.slice(4 + length + part["at"], part["length"])
            if part["query"] in errors:
                errors[part["query"]].append(pa.ipc.read_record_batch(message, ERROR_SCHEMA))
        wm = None if head["wm"] == NO_WATERMARK else head["wm"]
        return Epoch(
            head["epoch"],
            wm,
            head["idle"],
            head["lsn"],
            tuple(tuple(o) for o in outputs.values()),
            tuple(tuple(b) for b in before.values()),
            tuple(files),
            head["after"],
            head["beat"],
            tuple(objects[o] for o in schemas) if objects is not None else None,
            tuple(schemas) if objects is not None else None,
            float(head.get("ms", -1)),
            tuple(pa.Table.from_batches(e, ERROR_SCHEMA) if e else None for e in errors.values()),
            {int(slot): rows for slot, rows in head.get("late", {}).items()},
        )

    def refuse(self, message: str) -> None:
        """Fails the query with this message, because the current epoch could not be recorded."""
        with releasing():
            self._box.refuse(message)

    def settled(self, lsn: int, timeout_ms: int) -> bool:
        """Waits until everything committed up to an LSN is in the job's output; False after the timeout, also if the JVM does not answer because it has no memory left to work with, or was stopped."""
        try:
            call = lambda: bool(self._clock.awaitSettled(lsn, timeout_ms))  # noqa: E731
            return interruptible(call, within=timeout_ms / 1000 + _ANSWER_S)
        except TimeoutError:
            return False

    def hold(self, lsn: int | None) -> None:
        """Stops later epochs from reading beyond this LSN; None removes the limit."""
        with releasing():
            self._clock.hold(-1 if lsn is None else lsn)

    @property
    def durable_lsn(self) -> int:
        return int(self._clock.durableLsn())

    def durable(self, reached: Reached) -> None:
        """Notes that a checkpoint of this position is on disk, so the job will not resume from an earlier one."""
        with releasing():
            self._clock.durable(reached.lsn, reached.roster)

    @property
    def position(self) -> tuple[int, int | None, int]:
        """LSN and watermark of the last recorded epoch, and the number of epochs since the start."""
        lsn, wm, _, epochs, _ = (int(x) for x in self._clock.position())
        return lsn, None if wm == NO_WATERMARK else wm, epochs

    @property
    def rows_in(self) -> int:
        """Input rows since the start."""
        return int(self._clock.position()[4])

    @property
    def active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    @property
    def error(self) -> PenstockError | None:
        failure = self._query.exception() if self._query is not None else None
        return translate(failure) if failure is not None else None

    def rows_passed(self) -> int:
        """Rows that have passed the stateless parts below all operators since the start; 0 if they are not counted."""
        return int(self._compiled.passed.value()) if self._compiled.passed is not None else 0

    def durations(self) -> dict[int, int]:
        """The durations of recent epochs, in milliseconds, by batch id."""
        recent = self._query.recentProgress if self._query is not None else []
        return {int(p["batchId"]): int(p["durationMs"].get("triggerExecution", 0)) for p in map(_plain, recent)}

    def late_rows(self) -> int:
        return int(self._compiled.late_rows.value()) if self._compiled.late_rows is not None else 0

    @property
    def operators(self) -> list[Operator]:
        return self._compiled.operators

    def state(self) -> list[StateFigures]:
        """The state of each operator after the last epoch, in the order of `Compiled.operators`."""
        counted = [int(x) for x in self._clock.state()]
        native: Iterator[dict[str, Any]] = iter(self.progress().get("stateOperators", []))
        out = []
        for o in self._compiled.operators:
            if o.native:
                rows = int(next(native, {}).get("numRowsTotal", 0))
                out.append(StateFigures(rows, rows * o.row_bytes))
            else:
                out.append(StateFigures(counted.pop(0), counted.pop(0)))
        return out

    def progress(self) -> dict[str, Any]:
        """Spark's own metrics of the last epoch: durations, rows, state operators."""
        last = self._query.lastProgress if self._query is not None else None
        return json.loads(last.json) if last is not None else {}

    def limit(self, rows: int) -> None:
        """Limits the rows of later epochs; each reads whole commits, at least one."""
        self._clock.limit(rows)

    def stop(self) -> None:
        with releasing():
            self._box.close()
            with translated():
                self._end()
            jvm().Outbox.drop(self._job)
            jvm().EpochClock.drop(self._job)

    def _end(self) -> None:
        """Ends the query in Spark and waits until it has ended."""
        if self._query is not None:
            self._query.stop()
            jvm().LoadedState.forget(self._query.runId)
