"""Queries as members of one job.

Such a job has no plan: the kernel's `HostRun` passes each row to the members that read it, and keeps their state together. So members come and go while
it runs, and the overhead of an epoch is the same for one or a hundred. Queries without state share separate jobs, which need not wait for state.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructType

from penstock.catalog.objects import ObjectInfo
from penstock.errors import PenstockError
from penstock.plan import nodes as p
from penstock.plan.closings import Closing
from penstock.spark.bridge import Epoch, KernelJob, Seed
from penstock.spark.compile import UNIT_OBJECT, Compiled, Timed, log_schema, unit_schema
from penstock.spark.index import packed_slices
from penstock.spark.operators import StateFigures
from penstock.spark.session import jvm, releasing
from penstock.spark.translate import translate, translated

_KEYED = (
    p.Aggregate,
    p.Extremes,
    p.Distinct,
    p.TopN,
    p.Analytic,
    p.SetOp,
    p.TemporalFilter,
    p.Join,
    p.AsofJoin,
    p.TemporalJoin,
    p.ProbeJoin,
)
"""Nodes whose operator a shared job supports."""

_BESIDE = (p.Scan, p.Filter, p.Project, p.Generate, p.Union, p.WindowAssign)
"""Stateless nodes that a query in a shared job can have."""


@dataclass(frozen=True)
class Membership:
    """A query's data for a shared job: its code in the kernel, the layout of its rows (the kernel's `PackedOutput`), the objects that it reads, those whose watermarks it follows, and the number
    of its operators.
    """

    member: Any
    layout: str
    objects: tuple[int, ...]
    timed: tuple[Timed, ...] = ()
    operators: int = 1
    tables: tuple[int, ...] = ()
    """Lookup tables that it reads from replicas."""


def unfit(query: p.Query) -> str | None:
    """Why a query cannot share a job, judging by its plan; None if it may."""
    lookups = [n for n in query.root.walk() if isinstance(n, p.LookupJoin)]
    why = next((w for w in map(_unreplicated, lookups) if w), None)
    if why:
        return why
    keyed = [n for n in query.root.walk() if not isinstance(n, p.Linear) and n not in lookups]
    other = next((n for n in keyed if not isinstance(n, _KEYED)), None)
    if other is not None:
        return f"{type(other).__name__} is an operator that is not shared"
    other = next((n for n in query.root.walk() if isinstance(n, p.Linear) and not isinstance(n, _BESIDE)), None)
    if other is not None:
        return f"it has {type(other).__name__} in its plan"
    if query.emit.kind == "every":
        return "it has a pace of its own, EMIT EVERY"
    if any(isinstance(n, p.Join) and n.ttl_ms for n in keyed):
        return "rows expire, state_ttl"
    return None


def _unreplicated(node: p.LookupJoin) -> str | None:
    """Why the table of a lookup join cannot be replicated to the rows; None if it can."""
    if node.on_demand:
        return "rows of its lookup table are fetched on demand"
    if node.left.changelog:
        return "it looks up rows that can be retracted, and keeps their answers"
    if any(not isinstance(n, (p.Linear, p.LookupJoin)) for n in node.left.walk()):
        return "it looks up rows of an operator with state"
    return None


def membership(compiled: Compiled) -> Membership | str:
    """The membership of a query that was compiled for a shared job, or why it cannot be a member."""
    try:
        member = jvm().Member.of(compiled.frame._jdf)
    except Py4JJavaError as error:
        why = error.java_exception
        if not why.getClass().getName().endswith("Member$Unfit"):
            with translated():
                raise
        return str(why.getMessage())
    objects = tuple(o for o in compiled.objects if o != UNIT_OBJECT)
    timed = tuple(sorted(compiled.timed, key=lambda t: t.object_id))
    tables = {n.object_id for join in compiled.replicas for n in join.children[1].walk() if isinstance(n, p.Scan)}
    layout = {"schema": json.loads(member.schema()), "outputs": compiled.slots, "befores": compiled.befores}
    return Membership(member, json.dumps(layout), objects, timed, len(compiled.operators), tuple(sorted(tables)))


def compile_host(spark: SparkSession, infos: Sequence[ObjectInfo], timed: Sequence[Timed]) -> HostPlan:
    """A shared job over some objects, without members."""
    with translated():
        scans = {info.id: log_schema(info) for info in infos} | {UNIT_OBJECT: unit_schema()}
        read = {
            o: schema.add("__pwm", LongType()).add("__lsn", LongType()).add("__to", IntegerType())
            for o, schema in scans.items()
        }
        errors = jvm().ErrorChannel.create(spark._jsparkSession)
        sizes = jvm().SlotSizes.create(spark._jsparkSession)
        return HostPlan(read, tuple(timed), errors, sizes)


@dataclass(frozen=True)
class HostPlan:
    """The parts of a shared job that do not depend on its members."""

    scans: Mapping[int, StructType]
    """The objects that it reads, with their columns, `__pwm`, `__lsn`, and `__to`, which says who reads a row."""
    timed: tuple[Timed, ...]
    errors: Any
    sizes: Any
    """The counters of the members' state."""

    def described(self) -> Compiled:
        return Compiled(None, [], [], [], list(self.scans), list(self.timed), (), False, errors=self.errors)


@dataclass(frozen=True)
class Place:
    """A member of a running job: the objects that it maintains (the query and, if rows can be late, their stream), and the schemas of their rows."""

    object_ids: tuple[int, ...]
    membership: Membership
    schemas: tuple[pa.Schema, ...]
    seeds: tuple[Seed, ...]
    state_limit: int
    closings: frozenset[Closing] = frozenset()
    """The watermarks before which it emits nothing; empty: it can emit at any time."""

    @property
    def object_id(self) -> int:
        """The id of the query."""
        return self.object_ids[0]


class HostJob(KernelJob):
    """A shared job in Spark. Members are identified by slots, which increase in the order of joining."""

    def __init__(
        self,
        spark: SparkSession,
        database: str,
        job: str,
        plan: HostPlan,
        *,
        folder: Path,
        places: dict[int, Place],
        contents: Sequence[Seed],
        parallelism: int,
        **more: Any,
    ) -> None:
        self._plan = plan
        self._parallelism = parallelism
        self._run: Any = None
        described = plan.described()
        super().__init__(spark, database, job, described, folder=folder, schemas=[], every_ms=0, seeds=(), **more)
        self._table = jvm().HostTable.create(self._job)
        self._places: dict[int, Place] = {}
        self._joined = self._begun = 0
        self.know(contents)
        for slot, place in sorted(places.items()):
            self.join(slot, place)

    def _spec(self) -> dict[str, object]:
        return super()._spec() | {"slots": self._plan.sizes.id()}

    def _attest(self, recorded: int) -> None:
        """Does nothing, because the kernel's `EpochFile` records it."""

    def start(self) -> None:
        with translated():
            self._run = jvm().HostRun(
                self._spark._jsparkSession,
                self._job,
                str(self._folder),
                self._plan.errors,
                self._plan.sizes,
                self._parallelism,
            )
            for object_id, schema in self._plan.scans.items():
                self._run.scan(object_id, schema.json())
            self._run.start()

    @property
    def active(self) -> bool:
        return self._run is not None and bool(self._run.active())

    @property
    def error(self) -> PenstockError | None:
        failure = self._run.failure() if self._run is not None else None
        return translate(convert_exception(failure)) if failure is not None else None

    def progress(self) -> dict[str, Any]:
        """The durations of the last epoch, under Spark's names."""
        times = [int(x) for x in self._run.durations()] if self._run is not None else []
        if not times:
            return {}
        waiting, running = times
        return {"durationMs": {"latestOffset": waiting, "addBatch": running, "triggerExecution": waiting + running}}

    def _end(self) -> None:
        if self._run is not None:
            self._run.stop()

    def know(self, contents: Sequence[Seed]) -> None:
        """Passes the contents of lookup tables for building replicas."""
        for s in contents:
            self._clock.contents(s.object_id, s.lsn, s.columns, s.path, packed_slices(s.batches, s.checks))

    def join(self, slot: int, place: Place) -> None:
        """Adds a member. Unless it has started before, it starts with the next epoch."""
        with translated():
            self._places[slot] = place
            self._table.put(self._spark._jsparkSession, slot, place.membership.member)
            for s in place.seeds:
                slices = packed_slices(s.batches, s.checks)
                self._clock.seedOf(slot, s.object_id, s.lsn, s.columns, s.path, slices)
            closings = json.dumps([[c.step_ms, c.first_ms] for c in place.closings])
            self._clock.join(slot, place.membership.layout, place.state_limit, closings)
            self._joined = max(self._joined, slot)

    def become(self, slot: int, place: Place) -> None:
        """Makes a member maintain another object."""
        self._places[slot] = place

    @property
    def complete(self) -> bool:
        """Whether all members are known to have started; until then the LSN of an epoch does not apply to them."""
        return self._begun >= self._joined

    def settled(self, lsn: int, timeout_ms: int) -> bool:
        joined = self._joined
        done = super().settled(lsn, timeout_ms)
        if done:
            self._begun = max(self._begun, joined)
        return done

    def leave(self, slot: int) -> None:
        """Removes a member; its output in running epochs is dropped."""
        with releasing(), translated():
            self._clock.leave(slot)
            self._table.remove(slot)
        self._places.pop(slot, None)

    def _unpack(self, packet: bytes) -> Epoch:
        # The stream of late rows has the negated slot of its query.
        signs = (1, -1)
        places = dict(self._places)
        outputs = {
            s * slot: schema for slot, place in places.items() for s, schema in zip(signs, place.schemas, strict=False)
        }
        objects = {s * slot: i for slot, place in places.items() for s, i in zip(signs, place.object_ids, strict=False)}
        return self._epoch(packet, outputs, objects)

    def _figures(self) -> dict[int, dict[int, StateFigures]]:
        """The state size of each operator of each member, by slot and number."""
        figures = [int(x) for x in self._clock.slots()]
        found: dict[int, dict[int, StateFigures]] = {}
        for slot, operator, rows, size in zip(*(figures[i::4] for i in range(4)), strict=True):
            found.setdefault(slot, {})[operator] = StateFigures(rows, size)
        return found

    def kept(self) -> dict[int, list[StateFigures]]:
        """The state sizes of each member's operators after the last epoch, by the object that it maintains."""
        figures = self._figures()
        return {
            place.object_id: [
                figures.get(slot, {}).get(i, StateFigures(0, 0)) for i in range(place.membership.operators)
            ]
            for slot, place in dict(self._places).items()
        }

    def remains(self) -> dict[int, list[StateFigures]]:
        """The remaining state of former members, by slot."""
        return {slot: list(f.values()) for slot, f in self._figures().items() if slot not in self._places}

    def sweep(self, slots: Collection[int]) -> None:
        """Removes the remaining state of these slots with the next epoch."""
        self._table.sweep(list(slots))

    def swept(self, slots: Collection[int]) -> None:
        """Notes that an epoch has removed the state of these slots."""
        self._table.sweep([])
        for slot in slots:
            self._clock.swept(slot)

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            jvm().HostTable.drop(self._job)


__all__ = ["HostJob", "HostPlan", "Membership", "Place", "compile_host", "membership", "unfit"]
