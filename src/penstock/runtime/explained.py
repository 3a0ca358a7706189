"""EXPLAIN: the plan, on which path each operator runs, what state it keeps; with ANALYZE, the running query's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan import nodes as p
from penstock.plan.explain import explain
from penstock.spark.compile import Compiler
from penstock.sql import statements as st

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


def explain_query(engine: Engine, query: p.Query) -> list[str]:
    compiler = Compiler(engine.spark, "explain", engine.catalog.by_id, parallelism=1)
    compiled = compiler.compile(query)
    lines = explain(query).splitlines()
    columns = ", ".join(f"{c.name} {c.type}" for c in compiled.outputs[0].columns)
    lines.append(f"output: {columns}; {'changelog' if compiled.outputs[0].changelog else 'append-only'}")
    lines.append(f"operators: {', '.join(compiled.operators) or 'stateless'}")
    if compiled.event_time:
        follows = ", ".join(f"{engine.catalog.by_id(t.object_id).name} - {t.lag_ms} ms" for t in compiled.timed)
        lines.append(f"watermark: the smallest of {follows}")
    return lines


def explain_analyze(
    engine: Engine, statement: st.CreateStream | st.CreateView | st.Select, query: p.Query
) -> list[str]:
    """Figures of the job that runs this statement, found by its name or, for a SELECT, by its plan."""
    lines = explain_query(engine, query)
    job = None
    if isinstance(statement, st.Select):
        wanted = explain(query)
        running = [i for i, planned in engine.planned.items() if explain(planned.query) == wanted]
        job = engine.jobs.get(running[0]) if running else None
    else:
        info = engine.catalog.get(statement.name)
        job = engine.jobs.get(info.id) if info is not None else None
    if job is None:
        return [*lines, "no running query has this plan"]
    progress = job.kernel.progress()
    lsn, watermark, epochs = job.kernel.position
    lines.append(
        f"running as {job.name}: {epochs} epochs, {sum(job.figures.rows_by_output)} rows out, LSN {lsn}, watermark {watermark}"
    )
    times = ", ".join(f"{k} {v} ms" for k, v in sorted(progress.get("durationMs", {}).items()))
    if times:
        lines.append(f"last epoch: {times}")
    for i, op in enumerate(progress.get("stateOperators", [])):
        lines.append(
            f"state {i} ({op.get('operatorName')}): {op.get('numRowsTotal')} rows, {op.get('memoryUsedBytes')} bytes, "
            f"{op.get('numRowsUpdated')} updated, {op.get('numRowsRemoved')} removed"
        )
    return lines
