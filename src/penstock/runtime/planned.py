"""A stream or view made ready to run: bound, compiled, and told where to begin reading."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.explain import explain
from penstock.runtime.durations import duration_ms
from penstock.runtime.limits import state_limit
from penstock.runtime.probes import Probe, probe_owner, split
from penstock.spark.bridge import Seed
from penstock.spark.compile import Compiled, Compiler
from penstock.spark.seeds import write_seed
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateSink, CreateStream, CreateView

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


@dataclass(frozen=True)
class Planned:
    """Everything that a job needs. `output_ids`: the object itself and, where rows can be late, its side stream."""

    job: str
    query: p.Query
    compiled: Compiled
    output_ids: tuple[int, ...]
    idle_ms: dict[int, int]
    every_ms: int
    seeds: tuple[Seed, ...]
    state_limit: int = 0
    """The bytes of state at which the query fails; 0: no limit."""

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(explain(self.query).encode()).hexdigest()[:16]


def parsed_query(engine: Engine, info: ObjectInfo) -> ParsedQuery | None:
    """The query of a stored CREATE statement; None for the side stream of late rows, which has no query."""
    if not info.sql.lstrip().upper().startswith("CREATE"):
        return None
    (statement,) = parse_script(info.sql, substitute=engine.substitute)
    if isinstance(statement, CreateStream | CreateView):
        return statement.query
    if isinstance(statement, CreateSink):
        return statement.query
    return None


def plan_object(engine: Engine, info: ObjectInfo) -> Planned | None:
    """Plans a stored object again when the database is opened; a plan that does not fit its checkpoint is refused."""
    parsed = parsed_query(engine, info)
    if parsed is None:
        return None
    query = _own_part(engine, info, bind(parsed, engine.catalog, statement_text=info.sql))
    planned = plan_query(engine, info.id, query, late_id(engine, info), state_limit(parsed.options))
    stored = engine.catalog.plans.get(info.id)
    if stored is not None and stored != planned.fingerprint:
        raise fail(
            "PSK-6003",
            f"The plan of {info.name} is not the one that its stored state was made with.",
            hint=f"Drop and create {info.name} again.",
        )
    return planned


def _own_part(engine: Engine, info: ObjectInfo, query: p.Query) -> p.Query:
    """What one job of a stored query computes: the query over its probes, or one of these."""
    parts: dict[str, p.Query] = {}

    def known(probe: Probe) -> ObjectInfo:
        parts[probe.name] = probe.query
        found = engine.catalog.get(probe.name)
        assert found is not None
        return found

    rest = split(query, probe_owner(info.name) or info.name, engine.catalog.by_id, known)
    return parts.get(info.name, rest)


def late_id(engine: Engine, info: ObjectInfo) -> int | None:
    return next((o.id for o in engine.catalog.dependents(info.id) if o.sql.startswith("LATE DATA")), None)


def plan_query(engine: Engine, object_id: int, query: p.Query, late: int | None, limit: int = 0) -> Planned:
    job = f"{engine.uid}-{object_id}"
    compiler = Compiler(engine.spark, job, engine.catalog.by_id, engine.parallelism, exact_state=limit > 0)
    compiled = compiler.compile(query)
    if limit and not compiled.operators:
        raise fail("PSK-1012", "This query keeps no state to limit.", hint="Leave max_state_bytes out.")
    idle = {}
    for t in compiled.timed:
        option = engine.catalog.by_id(t.object_id).options.get("idle_timeout")
        if option is not None:
            idle[t.object_id] = duration_ms(option)
    every = query.emit.every.micros // 1000 if query.emit.kind == "every" and query.emit.every else 0
    outputs = (object_id,) if late is None else (object_id, late)
    return Planned(job, query, compiled, outputs, idle, every, _seeds(engine, object_id, compiled), limit)


def _seeds(engine: Engine, object_id: int, compiled: Compiled) -> tuple[Seed, ...]:
    """Where the log no longer has all of a table's or view's changes, its contents are written down to begin with."""
    folder = engine.layout.job(object_id)
    index = folder / "seeds.json"
    if index.exists():
        return tuple(_seed(s) for s in json.loads(index.read_text()))
    seeds = []
    for input_id in compiled.objects:
        if not engine.catalog.has_id(input_id):
            continue
        info = engine.catalog.by_id(input_id)
        if info.kind not in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            continue
        if engine.log.reaches_back(input_id, 0):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        table, _, lsn = engine.store.snapshot(input_id)
        seeds.append(write_seed(folder / f"seed-{input_id}.arrow", input_id, lsn, table, info.changelog))
    folder.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps([asdict(s) for s in seeds]))
    return tuple(seeds)


def _seed(stored: dict[str, object]) -> Seed:
    batches = tuple(tuple(b) for b in stored["batches"])  # type: ignore[attr-defined]
    return Seed(**{**stored, "batches": batches})  # type: ignore[arg-type]


__all__ = ["Planned", "late_id", "parsed_query", "plan_object", "plan_query"]
