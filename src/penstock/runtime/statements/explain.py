"""EXPLAIN: the plan, with the path, state and cost of each operator; with ANALYZE, the running query's metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.catalog.objects import ObjectInfo
from penstock.plan import nodes as p
from penstock.plan.closings import closings
from penstock.plan.explain import explain
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.job import Job
from penstock.runtime.jobs.limits import state_limits
from penstock.spark.compile import Compiled
from penstock.spark.hosted import Membership
from penstock.spark.operators import StateFigures
from penstock.sql import statements as st

Explained = st.CreateStream | st.CreateView | st.Select

_PHASES = (
    ("latestOffset", "waiting"),
    ("queryPlanning", "planning"),
    ("walCommit", "offset log"),
    ("addBatch", "running"),
    ("commitOffsets", "commit log"),
)


def explain_query(engine: Engine, statement: Explained, query: p.Query) -> list[str]:
    """The plan of a query as it would run."""
    limits = state_limits({} if isinstance(statement, st.Select) else statement.query.options)
    compiled, company = engine.jobs.planner.compile(None, "explain", query, engine.catalog.by_id, limits, "")
    lines = _lines(engine, query, compiled, _notes(query, compiled))
    return [*lines, *_job(engine, query, compiled, company)]


def explain_analyze(engine: Engine, statement: Explained, query: p.Query) -> list[str]:
    """The same with the metrics of the job that runs this statement, found by name or, for a SELECT, by plan."""
    object_id = _running(engine, statement, query)
    job = engine.jobs.by_object.get(object_id) if object_id is not None else None
    if job is None or object_id is None:
        return [*explain_query(engine, statement, query), "no running query has this plan"]
    planned = engine.jobs.planned[object_id]
    figures = job.kept(object_id)
    lines = _lines(engine, planned.query, planned.compiled, _notes(planned.query, planned.compiled, figures))
    lines += _job(engine, planned.query, planned.compiled, planned.membership or planned.alone)
    return [*lines, *_figures(engine, object_id, job)]


def explain_object(engine: Engine, info: ObjectInfo, *, analyze: bool) -> list[str]:
    """The plan of an existing stream or view; with `analyze` the metrics of its job, or why it has none."""
    planned = engine.jobs.plan(engine.owner(info))
    job = engine.jobs.by_object.get(info.id)
    figures = job.kept(planned.output_ids[0]) if analyze and job is not None else []
    lines = _lines(engine, planned.query, planned.compiled, _notes(planned.query, planned.compiled, figures))
    lines += _job(engine, planned.query, planned.compiled, planned.membership or planned.alone)
    if not analyze:
        return lines
    trouble = engine.jobs.trouble(info)
    if trouble is not None:
        lines.append(
            f"{trouble.state}: {trouble.error.detail if trouble.error is not None else 'the pipeline is stopped'}"
        )
    return [*lines, *(_figures(engine, info.id, job) if job is not None else [])]


def _running(engine: Engine, statement: Explained, query: p.Query) -> int | None:
    wanted = explain(query)
    if isinstance(statement, st.Select):
        return next((i for i, planned in engine.jobs.planned.items() if explain(planned.query) == wanted), None)
    info = engine.catalog.get(statement.name)
    planned = engine.jobs.planned.get(info.id) if info is not None else None
    return info.id if info is not None and planned is not None and explain(planned.query) == wanted else None


def _notes(query: p.Query, compiled: Compiled, figures: Sequence[StateFigures] = ()) -> Callable[[p.Node], str]:
    """The notes of each node: path, state, cost. Nodes are compared by identity: a plan may have equal ones."""
    operators = compiled.operators
    made = {id(o.node): i for i, o in enumerate(operators)}
    assert compiled.root is not None
    # Compiling rebuilds the nodes in the same tree.
    pairs = list(zip(query.root.walk(), compiled.root.walk(), strict=True))
    at = {id(n): made[id(c)] for n, c in pairs if id(c) in made}
    replicated = {id(n) for n, c in pairs if any(c is r for r in compiled.replicas)}
    failing = {id(n) for n, c in pairs if any(c is g for g in compiled.guarded)}

    def note(node: p.Node) -> str:
        known = node.cost
        i = at.get(id(node))
        fails = ["rows can fail"] if id(node) in failing else []
        if id(node) in replicated:
            return f"[{'; '.join(['no shuffle, a replica of the table', known.work, *fails])}]"
        if i is None:
            return f"[{'; '.join([known.work, *fails])}]"
        path = f"Spark {operators[i].name}" if operators[i].native else f"kernel {operators[i].name}"
        parts = [path, f"keeps {known.keeps}", known.work, *fails]
        if i < len(figures):
            parts.append(f"{figures[i].rows} rows, {figures[i].bytes} bytes kept")
        return f"[{'; '.join(parts)}]"

    return note


def _lines(engine: Engine, query: p.Query, compiled: Compiled, note: Callable[[p.Node], str]) -> list[str]:
    lines = explain(query, note).splitlines()
    columns = ", ".join(f"{c.name} {c.type}" for c in compiled.outputs[0].columns)
    lines.append(f"output: {columns}; {'changelog' if compiled.outputs[0].changelog else 'append-only'}")
    if not compiled.operators:
        lines.append("keeps no state")
    if compiled.event_time:
        follows = ", ".join(f"{engine.catalog.by_id(t.object_id).name} - {t.lag_ms} ms" for t in compiled.timed)
        lines.append(f"watermark: the smallest of {follows}")
    return lines


def _job(engine: Engine, query: p.Query, compiled: Compiled, company: Membership | str) -> list[str]:
    """With whom a query shares its job, or why it has one of its own."""
    if isinstance(company, str):
        gathers = ["gathers rows until a window closes"] if closings(query) else []
        return [f"job: its own, because {company}", *gathers]
    names = ", ".join(engine.catalog.by_id(i).name for i in company.objects)
    kind = "keyed queries" if compiled.operators else "queries without state"
    gathers = ["gathers rows until a window closes, while all queries of its job do"] if closings(query) else []
    return [f"job: shared by {kind} on {names}", *gathers]


def _figures(engine: Engine, object_id: int, job: Job) -> list[str]:
    lsn, watermark, epochs = job.kernel.position
    planned = engine.jobs.planned.get(object_id)
    others = len(job.objects) - len(planned.output_ids) if planned is not None else 0
    company = f" (with {others} others in one job)" if others else ""
    lines = [
        f"running as {engine.catalog.by_id(object_id).name}{company}: {job.state.value}, {epochs} epochs, LSN {lsn}, watermark {watermark}",
        f"rows: {job.kernel.rows_in} in, {job.rows_out(object_id)} out, {job.late_rows(object_id)} late",
    ]
    durations = job.kernel.progress().get("durationMs", {})
    if durations:
        phases = ", ".join(f"{name} {durations[key]} ms" for key, name in _PHASES if key in durations)
        recording = f"of which recording {job.figures.recording.last_ms:.0f} ms"
        lines.append(f"last epoch: {durations.get('triggerExecution', 0)} ms: {phases}, {recording}")
    warning = job.warning(object_id)
    if warning:
        lines.append(f"warning: {warning}")
    return lines
