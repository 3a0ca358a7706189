"""SHOW, DESCRIBE and the metrics behind `status()` and `metrics()`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.connect import connectors, masked
from penstock.errors import PenstockError, fail
from penstock.runtime.connect.lookups import LookupFigures
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.jobs.job import Job
from penstock.runtime.jobs.operators import OperatorStatus
from penstock.runtime.jobs.versions import version_of
from penstock.runtime.lifecycle import JobState
from penstock.serve.hub import ChannelStats
from penstock.spark.calls import brief
from penstock.sql import statements as st
from penstock.sql.names import suggestion

_KINDS = {
    "sources": (Kind.SOURCE,),
    "tables": (Kind.TABLE, Kind.LOOKUP),
    "streams": (Kind.STREAM,),
    "views": (Kind.VIEW, Kind.NAMED_QUERY),
    "sinks": (Kind.SINK,),
    "functions": (Kind.FUNCTION,),
}


@dataclass(frozen=True)
class ObjectStatus:
    """The current status of one object."""

    name: str
    kind: str
    state: str
    rows: int
    epoch: int
    lsn: int
    watermark: int | None
    lag_ms: int
    late_rows: int
    dropped_null_time: int
    future_rows: int
    retained_bytes: int
    subscribers: int
    state_rows: int
    state_bytes: int
    operators: tuple[OperatorStatus, ...]
    warning: str | None
    error: str | None
    lookup: LookupFigures | None = None
    """The requests to a lookup table's source and their results; None for objects without a source."""
    drift_ms: int | None = None
    """How far a source is ahead of the slowest other source of its watermark group; None for objects without a group."""
    held_back_by: str | None = None
    """The source of the watermark group that this source's rows wait for; of a query, what holds its watermark back, or the query that it waits for."""
    pending_rows: int = 0
    """Rows of a source that a running query has not processed yet; rows of its inputs that a query or sink has not processed."""
    pending_bytes: int = 0
    """Their size in the log."""
    rows_in: int = 0
    """Rows of its inputs that a query has processed."""
    rows_per_s: float = 0.0
    """Rows a second, over the last ten seconds."""
    watermark_lag_ms: int | None = None
    """How far the watermark is behind the clock; None without a watermark."""
    error_rows: int = 0
    """Rows that a query could not compute, at present; diverted ones, too."""
    utilization: float | None = None
    """How much of its limits a source uses; None for other objects, and for sources without limits."""
    dropped_rows: int = 0
    """Rows that the connector of a source has dropped because the source was full."""
    guarantee: str | None = None
    """What a sink promises: `exactly-once` or `at-least-once`; None for other objects, and for a sink that is not open."""


def status(engine: Engine) -> list[ObjectStatus]:
    """Every object: rows in or out since it was created, position, watermark, lag, state and last error. What only the JVM knows is, once it has exited, as it was when it was last
    asked for."""
    hub = engine.hub.stats()
    return [_status(engine, info, hub) for info in engine.catalog.objects() if not info.hidden]


def _progress(engine: Engine, version: ObjectInfo) -> str:
    """How far the new version of a query is that is computed beside it."""
    job = engine.jobs.by_object.get(version.id)
    reached = job.figures.reached if job is not None else 0
    waiting = sum(engine.log.amount(i, after=reached)[1] for i in version.depends_on)
    rows = engine.store.count(version.id)
    return f"a new version is computed beside this one: {rows} rows so far, {waiting} rows of input to be read"


def _status(engine: Engine, info: ObjectInfo, hub: dict[int, ChannelStats]) -> ObjectStatus:
    job = engine.jobs.by_object.get(info.id)
    feed = engine.storage.feeds.get(info.id)
    sink = engine.sinks.get(info.id)
    last = engine.log.last_entry(info.id)
    state, rows, error, warning, lag = "ready", engine.storage.totals.rows(info.id), None, None, 0
    operators: tuple[OperatorStatus, ...] = ()
    if job is not None:
        state = job.state.value
        operators, warning = _kept(engine, info)
        lag = max((lag_ms(engine, o) for o in [info, *engine.jobs.probes(info)]), default=0)
    elif info.kind in QUERIES:
        state = "running" if engine.running else "stopped"
    for o in [info, *engine.jobs.probes(info)]:
        trouble = engine.jobs.trouble(o)
        if trouble is not None:
            state = trouble.state
            error = error or (str(trouble.error) if trouble.error is not None else None)
    if info.kind in QUERIES and (beside := version_of(engine.storage, info)) is not None:
        warning = _progress(engine, beside)
    if error is None and info.kind in QUERIES and (uncomputed := engine.jobs.uncomputed([info])) is not None:
        error = str(uncomputed)
    if feed is not None:
        warning = feed.clock.warning if feed.clock is not None else None
    intake = engine.intakes.get(info.id)
    if intake is not None:
        state, error = intake.state.value, intake.error
    fed = engine.lookups.get(info.id)
    if fed is not None:
        state, error = fed.state.value, fed.error
    if sink is not None:
        state, error = sink.state.value, str(sink.error) if sink.error else None
        warning = sink.delivery.warning if sink.delivery is not None else None
    drift = engine.storage.alignment.drift(info.id)
    if drift is not None:
        state, warning = "paused" if drift.waiting else state, drift.warning or warning
    if info.id in engine.refusals:
        state, error = "failed", str(engine.refusals[info.id])
    pending = engine.storage.backpressure.pending(info.id) if info.kind is Kind.SOURCE else None
    if pending is not None and engine.storage.backpressure.holds(info.id):
        warning = warning or f"It is full: {pending.behind or 'a query'} is behind."
    subscribers = hub[info.id].subscribers if info.id in hub else 0
    counts, watermark = engine.storage.totals.of(info.id), engine.log.watermark(info.id)
    if info.kind is Kind.SINK:
        rows = counts.delivered
    pending_bytes, pending_rows = backlog(engine, info)
    errors = engine.jobs.errors_of(info) if info.kind in QUERIES else None
    held = drift.behind if drift is not None and drift.held else None
    if info.kind in QUERIES and engine.catalog.has_id(info.id):
        held = held_back(engine, info.id)
    return ObjectStatus(
        name=info.name,
        kind=info.kind.value,
        state=state,
        rows=rows,
        epoch=engine.log.epoch(info.id),
        lsn=last.lsn if last else 0,
        watermark=watermark,
        lag_ms=lag,
        late_rows=engine.jobs.late_rows(info),
        dropped_null_time=counts.null_time,
        future_rows=counts.future,
        retained_bytes=engine.log.retained(info.id)[0],
        subscribers=subscribers,
        state_rows=sum(o.state_rows for o in operators),
        state_bytes=sum(o.state_bytes for o in operators),
        operators=operators,
        warning=warning,
        error=error or engine.housekeeping_error(info.id),
        lookup=replace(fed.figures) if fed is not None else None,
        drift_ms=drift.ms if drift is not None else None,
        held_back_by=held,
        pending_rows=pending_rows,
        pending_bytes=pending_bytes,
        rows_in=counts.taken,
        rows_per_s=engine.storage.totals.rate(info.id),
        watermark_lag_ms=None if watermark is None else max(0, int(time.time() * 1000) - watermark),
        error_rows=engine.store.count(errors.id) if errors is not None else 0,
        utilization=pending.utilization if pending is not None and any(pending.limits) else None,
        dropped_rows=counts.dropped,
        guarantee=sink.delivery.guarantee if sink is not None and sink.delivery is not None else None,
    )


def _kept(engine: Engine, info: ObjectInfo) -> tuple[tuple[OperatorStatus, ...], str | None]:
    """The operators of a query, and what there is to say of their state. What was last known of them after the end of the JVM, and while the query leaves its job or is replaced in it."""
    operators: tuple[OperatorStatus, ...] = ()
    warning = None
    try:
        for one in engine.jobs.of(info):
            found = _operators(engine, one, info)
            if found is None:
                return engine.jobs.last_seen.get(info.id, ()), None
            operators += found
            warning = warning or one.warning(info.id)
    except PenstockError:
        return engine.jobs.last_seen.get(info.id, ()), None
    engine.jobs.last_seen[info.id] = operators
    return operators, warning


def backlog(engine: Engine, info: ObjectInfo) -> tuple[int, int]:
    """The bytes and rows that wait: of a source or table for the queries that read it, of a query or sink what its inputs have and it has not processed."""
    if info.kind in QUERIES:
        job = engine.jobs.by_object.get(info.id)
        reached = max(engine.storage.totals.of(info.id).reached, job.figures.reached if job is not None else 0)
        found = [engine.log.amount(i, after=reached) for i in info.depends_on]
    elif info.kind is Kind.SINK:
        sink = engine.sinks.get(info.id)
        found = [engine.log.amount(i, after=sink.durable_lsn) for i in info.depends_on if sink is not None]
    else:
        pending = engine.storage.backpressure.pending(info.id)
        found = [(pending.bytes, pending.rows)]
    return sum(size for size, _ in found), sum(rows for _, rows in found)


def _operators(engine: Engine, job: Job, info: ObjectInfo) -> tuple[OperatorStatus, ...] | None:
    """The operators of a query in its job; None if the job, which the query may share, does not run this plan at the moment."""
    member = engine.jobs.hosted.member(info.id)
    operators = engine.jobs.plan(info).compiled.operators if member else job.kernel.operators
    kept = job.kept(info.id)
    if len(kept) != len(operators):
        return None
    return tuple(OperatorStatus(o.name, f.rows, f.bytes) for o, f in zip(operators, kept, strict=True))


def lag_ms(engine: Engine, info: ObjectInfo) -> int:
    """The age of the oldest row that the job of a query has not processed."""
    job = engine.jobs.by_object.get(info.id)
    if job is None:
        return 0
    lsn = job.figures.reached
    if job.state is JobState.RUNNING:
        with suppress(PenstockError):
            lsn = brief(lambda: job.kernel.position[0])
    waiting = [e.time_ms for i in info.depends_on for e in engine.log.entries(i, after=lsn, limit=1)]
    return max(0, int(time.time() * 1000) - min(waiting)) if waiting else 0


def epochs(engine: Engine, name: str) -> dict[str, dict[str, float]]:
    """How long the epochs of a query's job take, by phase: `compute`, `record`. Empty for other objects, and before the first epoch."""
    info = engine.catalog.get(name)
    job = engine.jobs.by_object.get(info.id) if info is not None else None
    found = {"compute": job.figures.computing, "record": job.figures.recording} if job is not None else {}
    return {
        phase: {
            "count": timing.count,
            "p50_ms": timing.percentile(0.5) or 0.0,
            "p99_ms": timing.percentile(0.99) or 0.0,
        }
        for phase, timing in found.items()
        if timing.count
    }


def _queries(engine: Engine, job: Job) -> list[tuple[str, list[int]]]:
    """What a job is known by, and the objects that it maintains. Keyed queries that share one have state of their own, and are told apart."""
    known = [i for i in list(job.objects) if engine.catalog.has_id(i)]
    if any(engine.jobs.hosted.member(i) for i in known):
        return [(engine.catalog.by_id(i).name, [i]) for i in known]
    return [(job.name, known)]


def _query(engine: Engine, job: Job, name: str, objects: Sequence[int]) -> dict[str, object]:
    kept = job.kept(objects[0]) if objects else []
    return {
        "name": name,
        "state": job.state.value,
        "epochs": job.figures.epochs,
        "rows_in": max((engine.storage.totals.of(i).taken for i in objects), default=0),
        "rows_out": sum(engine.storage.totals.rows(i) for i in objects),
        "pending_rows": max((backlog(engine, engine.catalog.by_id(i))[1] for i in objects), default=0),
        "pending_bytes": max((backlog(engine, engine.catalog.by_id(i))[0] for i in objects), default=0),
        "compute_p50_ms": job.figures.computing.percentile(0.5),
        "compute_p99_ms": job.figures.computing.percentile(0.99),
        "record_p50_ms": job.figures.recording.percentile(0.5),
        "record_p99_ms": job.figures.recording.percentile(0.99),
        "watermark": job.figures.watermark,
        "lag_ms": max((lag_ms(engine, engine.catalog.by_id(i)) for i in objects), default=0),
        "held_back_by": next((h for i in objects if (h := held_back(engine, i))), None),
        "state_rows": sum(f.rows for f in kept),
        "state_bytes": sum(f.bytes for f in kept),
        "warning": job.warning(objects[0]) if objects else None,
        "error": str(job.error) if job.error else None,
    }


def _still(engine: Engine, job: Job, name: str, objects: Sequence[int]) -> dict[str, object] | None:
    """None for a query that another thread has dropped meanwhile."""
    try:
        return _query(engine, job, name, objects)
    except KeyError:
        if all(engine.catalog.has_id(i) for i in objects):
            raise
        return None


def held_back(engine: Engine, object_id: int) -> str | None:
    """What a query waits for: another query, or the source with the smallest watermark."""
    info = engine.catalog.by_id(object_id)
    for o in engine.jobs.upstream([info])[:-1]:
        trouble = engine.jobs.trouble(o)
        if trouble is not None:
            return f"{o.kind.value} {engine.owner(o).name}, which is {trouble.state}"
    planned = engine.jobs.planned.get(object_id)
    if planned is None or not planned.compiled.event_time:
        return None
    marks = [(engine.log.watermark(t.object_id), t) for t in planned.compiled.timed]
    without = [t for mark, t in marks if mark is None]
    if without:
        return f"{engine.catalog.by_id(without[0].object_id).name}, which has no watermark yet"
    mark, slowest = min(((m - t.lag_ms, t) for m, t in marks if m is not None), key=lambda x: x[0])
    drift = engine.storage.alignment.drift(slowest.object_id)
    waits = f", which waits for {drift.behind}" if drift is not None and drift.held else ""
    return f"the watermark of {engine.catalog.by_id(slowest.object_id).name} ({mark}){waits}"


def show(engine: Engine, what: str) -> pa.Table:
    if what in _KINDS:
        by_name = {s.name: s for s in status(engine)}
        rows = []
        for o in engine.catalog.objects(*_KINDS[what]):
            if o.name not in by_name:
                continue
            s = by_name[o.name]
            columns = ", ".join(f"{c.name} {c.type}" for c in o.columns)
            rows.append(asdict(replace(s, operators=())) | {"columns": columns, "comment": o.comment})
        fields = [
            ("name", pa.string()),
            ("columns", pa.string()),
            ("state", pa.string()),
            ("rows", pa.int64()),
            ("watermark", pa.int64()),
        ]
        if what == "views":
            fields.insert(1, ("kind", pa.string()))
        if what == "sources":
            fields += [("drift_ms", pa.int64()), ("held_back_by", pa.string()), ("warning", pa.string())]
            fields += [("pending_rows", pa.int64()), ("utilization", pa.float64()), ("dropped_rows", pa.int64())]
        if what == "sinks":
            fields += [("guarantee", pa.string()), ("warning", pa.string()), ("error", pa.string())]
        fields.append(("comment", pa.string()))
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))
    if what == "queries":
        found = [_still(engine, j, name, objects) for j in engine.jobs for name, objects in _queries(engine, j)]
        rows = [row for row in found if row is not None]
        schema = pa.schema(
            [
                ("name", pa.string()),
                ("state", pa.string()),
                ("epochs", pa.int64()),
                ("rows_in", pa.int64()),
                ("rows_out", pa.int64()),
                ("pending_rows", pa.int64()),
                ("pending_bytes", pa.int64()),
                ("compute_p50_ms", pa.float64()),
                ("compute_p99_ms", pa.float64()),
                ("record_p50_ms", pa.float64()),
                ("record_p99_ms", pa.float64()),
                ("watermark", pa.int64()),
                ("lag_ms", pa.int64()),
                ("held_back_by", pa.string()),
                ("state_rows", pa.int64()),
                ("state_bytes", pa.int64()),
                ("warning", pa.string()),
                ("error", pa.string()),
            ]
        )
        return pa.Table.from_pylist(rows, schema=schema)
    if what == "checkpoints":
        return _show_checkpoints(engine)
    if what == "log":
        return _show_log(engine)
    if what == "subscriptions":
        return _show_subscriptions(engine)
    if what == "copies":
        return _show_copies(engine)
    known = [{"name": c.name, "direction": c.direction, "delivery": c.delivery} for c in connectors()]
    return pa.Table.from_pylist(known, schema=pa.schema([(n, pa.string()) for n in ("name", "direction", "delivery")]))


def _show_copies(engine: Engine) -> pa.Table:
    """The statements that read files now."""
    running = engine.copies.listed()
    return pa.table(
        {
            "statement": pa.array([c.statement for c in running], pa.string()),
            "rows": pa.array([c.rows for c in running], pa.int64()),
            "read_bytes": pa.array([c.read_bytes for c in running], pa.int64()),
            "total_bytes": pa.array([c.total_bytes for c in running], pa.int64()),
            "seconds": pa.array([c.seconds for c in running], pa.float64()),
        }
    )


def _show_checkpoints(engine: Engine) -> pa.Table:
    kept = engine.checkpoints.kept
    columns: dict[str, tuple[list[int], pa.DataType]] = {
        "id": ([c.id for c in kept], pa.int64()),
        "lsn": ([c.lsn for c in kept], pa.int64()),
        "time": ([c.time_ms * 1000 for c in kept], pa.timestamp("us", tz="UTC")),
        "queries": ([len(c.jobs) for c in kept], pa.int64()),
        "bytes": ([c.bytes for c in kept], pa.int64()),
        "duration_ms": ([c.duration_ms for c in kept], pa.int64()),
    }
    shown = pa.table({name: pa.array(values, pa.int64()).cast(kind) for name, (values, kind) in columns.items()})
    uploads = engine.uploads
    there = [c.id in uploads.there if uploads.enabled else None for c in kept]
    damaged = [", ".join(c.damaged) or None for c in kept]
    return shown.append_column("uploaded", pa.array(there, pa.bool_())).append_column(
        "damaged", pa.array(damaged, pa.string())
    )


def _show_log(engine: Engine) -> pa.Table:
    """How much of the log each object retains, and who needs it."""
    floors = engine.ticker.retention.floors
    rows = []
    for o in engine.catalog.objects():
        size, count, oldest = engine.log.retained(o.id)
        if size or count:
            held = floors[o.id].held_by if o.id in floors else None
            rows.append(
                {"name": engine.owner(o).name, "rows": count, "bytes": size, "oldest": oldest * 1000, "held_by": held}
            )
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("oldest", pa.timestamp("us", tz="UTC")),
            ("held_by", pa.string()),
        ]
    )
    columns = [pa.array([r[f.name] for r in rows], pa.int64() if f.name == "oldest" else f.type) for f in schema]
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _show_subscriptions(engine: Engine) -> pa.Table:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("object", pa.string()),
            ("state", pa.string()),
            ("policy", pa.string()),
            ("envelope", pa.string()),
            ("since", pa.timestamp("ms", tz="UTC")),
            ("epoch", pa.int64()),
            ("lsn", pa.int64()),
            ("input_lsn", pa.int64()),
            ("messages", pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("pending_messages", pa.int64()),
            ("pending_bytes", pa.int64()),
            ("behind", pa.bool_()),
            ("dropped", pa.int64()),
            ("resyncs", pa.int64()),
            ("error", pa.string()),
        ]
    )
    rows = [asdict(s.figures) for s in engine.hub.subscriptions()]
    return pa.Table.from_pylist([r | {"since": r["since_ms"]} for r in rows], schema=schema)


def find(engine: Engine, name: str) -> ObjectInfo:
    info = engine.catalog.get(name)
    if info is None:
        raise fail("PSK-1002", f"{name} is not found.", hint=suggestion(name, engine.catalog.names()))
    return info


def show_create(engine: Engine, s: st.ShowCreate) -> pa.Table:
    info = find(engine, s.name)
    if s.kind is not None and info.kind.value != s.kind:
        raise fail("PSK-1008", f"{info.name} is a {info.kind.value}.")
    return pa.table({"statement": [masked(info.sql)]})


def describe(engine: Engine, s: st.Describe) -> pa.Table:
    info = find(engine, s.name)
    rows = [
        {
            "column": c.name,
            "type": c.type,
            "nullable": c.nullable,
            "key": c.name in info.key,
            "event_time": any(t.column == c.name for t in info.times),
            "comment": info.column_comments.get(c.name),
        }
        for c in info.columns
    ]
    table = pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [
                ("column", pa.string()),
                ("type", pa.string()),
                ("nullable", pa.bool_()),
                ("key", pa.bool_()),
                ("event_time", pa.bool_()),
                ("comment", pa.string()),
            ]
        ),
    )
    if not s.extended:
        return table
    (one,) = (x for x in status(engine) if x.name == info.name)
    facts = {
        "kind": one.kind,
        "comment": info.comment,
        "state": one.state,
        "rows": one.rows,
        "epoch": one.epoch,
        "lsn": one.lsn,
        "watermark": one.watermark,
        "lag ms": one.lag_ms,
        "held back by": held_back(engine, info.id) if info.kind in QUERIES else one.held_back_by,
        "watermark group": info.options.get("watermark_group"),
        "max drift": info.options.get("max_drift"),
        "on drift": info.options.get("on_drift", "pause") if "watermark_group" in info.options else None,
        "drift ms": one.drift_ms,
        "late rows": one.late_rows,
        "retained bytes": one.retained_bytes,
        "state rows": one.state_rows,
        "state bytes": one.state_bytes,
        "warning": one.warning,
        "subscribers": one.subscribers,
        "error": one.error,
        "depends on": ", ".join(engine.catalog.by_id(i).name for i in dict.fromkeys((*info.depends_on, *info.expands)))
        or None,
    }
    if one.lookup is not None:
        facts |= {k.replace("_", " "): v for k, v in asdict(one.lookup).items()}
    extra = [
        {"column": f"# {k}", "type": str(v), "nullable": None, "key": None, "event_time": None}
        for k, v in facts.items()
        if v is not None
    ]
    return pa.concat_tables([table, pa.Table.from_pylist(extra, schema=table.schema)])
