"""A stream or view that is ready to run: bound, compiled, and with its start positions."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from penstock.catalog.objects import Column, ObjectInfo, Role
from penstock.catalog.store import Catalog
from penstock.config import substitute
from penstock.disk import make_folder, unpack_json, write_json
from penstock.errors import PenstockError, fail
from penstock.plan import nodes as p
from penstock.plan.closings import Closing, closings
from penstock.plan.explain import explain
from penstock.runtime.jobs.checkpoint import begun
from penstock.runtime.jobs.compute import Compute
from penstock.runtime.jobs.limits import OPERATOR, QUERY, UNLIMITED, StateLimits, state_limits
from penstock.runtime.jobs.probes import Probe, split
from penstock.runtime.jobs.signature import Signature, earlier, signature
from penstock.runtime.storage.contents import complete
from penstock.runtime.storage.storage import Storage
from penstock.spark.bridge import Seed
from penstock.spark.compile import Compiled, Compiler
from penstock.spark.hosted import Membership, membership, unfit
from penstock.spark.seeds import write_seed
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateSink, CreateStream, CreateView

_logger = logging.getLogger(__name__)

_ORDERED = (p.LookupJoin, p.TemporalJoin)
"""Joins whose result depends on when a row of their table arrived."""

FINAL = "its state has a limit and its rows are final: when the limit is raised, it goes on where it was"
"""Why a query that could share a job has one of its own. A member that fails loses its place; one whose rows can be retracted is computed again, and this one could not be."""

_SEEDS_FORMAT = 2
_CHANGING = re.compile(
    r"\b(rand|randn|random|uuid|shuffle|monotonically_increasing_id|now|curdate|current_\w+|localtimestamp|unix_timestamp)\b",
    re.IGNORECASE,
)
"""Functions whose value changes from call to call. A name or text that only looks like one does no harm."""


@dataclass(frozen=True)
class Planned:
    """The input of a job. `output_ids`: the object itself and, if rows can be late, its side stream."""

    job: str
    query: p.Query
    compiled: Compiled
    output_ids: tuple[int, ...]
    every_ms: int
    seeds: tuple[Seed, ...]
    limits: StateLimits = UNLIMITED
    membership: Membership | None = None
    """What a job needs of it that it shares with other queries; None if it has a job of its own."""
    alone: str = ""
    """Why it does not share a job."""
    codegen: bool = True
    """Whether Spark generates code for it."""
    partitions: int = 1
    """Of a state that is begun now."""

    @cached_property
    def repeatable(self) -> bool:
        """Whether the same input leads to the same output, whenever it is read: nothing expires by the wall clock, and no expression is random."""
        expires = any(isinstance(n, p.Join) and n.ttl_ms for n in self.query.root.walk())
        return not expires and not _CHANGING.search(explain(self.query))

    @cached_property
    def closings(self) -> frozenset[Closing]:
        """The watermarks before which it emits nothing but late rows; empty if it can emit at any time."""
        return closings(self.query)

    @cached_property
    def signature(self) -> Signature:
        """What its state is made by."""
        return signature(self.query, self.compiled.operators, self.partitions, shared=self.membership is not None)

    def signature_of(self, format: int) -> Signature:
        """The same in the format of an earlier version."""
        if format == self.signature.format:
            return self.signature
        operators, shared = self.compiled.operators, self.membership is not None
        return signature(self.query, operators, self.partitions, shared=shared, format=format)


class Planner:
    """Plans queries of one database."""

    def __init__(self, storage: Storage, compute: Compute) -> None:
        self._storage = storage
        self._compute = compute

    def stored(self, info: ObjectInfo, catalog: Catalog | None = None, *, begins: bool = False) -> Planned | None:
        """The plan of a stored object; None if it has no query of its own. Raises PSK-6003 if it cannot go on with its state, unless it `begins` again."""
        parsed = self._parsed(info)
        if parsed is None:
            return None
        known_by = catalog or self._storage.catalog
        query = self._own_part(info, bind(parsed, known_by.as_read_by(info)))
        late = self._side(info, Role.LATE_ROWS)
        planned = self.plan(
            info.id,
            query,
            late,
            limits=state_limits(parsed.options),
            by_id=known_by.by_id,
            alone=""
            if not info.hidden or info.role in (Role.SUBSCRIPTION, Role.VERSION)
            else "it is a part of another query",
            options=info.options,
        )
        check_columns(info, planned.compiled.outputs[0].columns)
        if not begins:
            self._compare(info, planned, known_by)
        return planned

    def _compare(self, info: ObjectInfo, planned: Planned, catalog: Catalog) -> None:
        """Raises PSK-6003 if a query cannot go on with the state that it has. What has changed otherwise is reported, and noted."""
        known, now = catalog.plans.get(info.id), planned.signature
        was = Signature.from_text(known) if known is not None else now
        if was is None:
            if known != earlier(planned.query):
                raise _changed(info, ["an earlier version has planned it otherwise"])
            was = now.by_earlier()
        # What an earlier version has noted is compared in its own format, and noted in the present one.
        found = was.differences(planned.signature_of(was.format))
        if lost := [d.text for d in found if d.lost]:
            raise _changed(info, lost)
        if found:
            _logger.warning("%s goes on with its state; changed: %s", info.name, "; ".join(d.text for d in found))
        text = was.carried_on(now).to_text()
        if known != text and catalog is self._storage.catalog:
            with catalog.edit():
                catalog.plans[info.id] = text

    def _parsed(self, info: ObjectInfo) -> ParsedQuery | None:
        if info.role in (Role.LATE_ROWS, Role.ERRORS):
            return None
        settings = self._storage.settings
        (statement,) = parse_script(
            info.sql,
            substitute=lambda text: substitute(text, settings.variables),
            connectors="keep",
            programs=settings.security.allow_programs,
        )
        if isinstance(statement, CreateStream | CreateView | CreateSink):
            return statement.query
        return None

    def _side(self, info: ObjectInfo, role: Role) -> int | None:
        """The id of a query's side stream in a role."""
        owned = (o for o in self._storage.catalog.objects() if o.owner_id == info.id and o.role is role)
        return next((o.id for o in owned), None)

    def _own_part(self, info: ObjectInfo, query: p.Query) -> p.Query:
        """The part of a stored query that one job computes: the query over its probes, or one of the probes."""
        catalog = self._storage.catalog
        parts: dict[str, p.Query] = {}

        def known(probe: Probe) -> ObjectInfo:
            parts[probe.name] = probe.query
            found = catalog.get(probe.name)
            assert found is not None
            return found

        owner = catalog.by_id(info.owner_id) if info.role is Role.PROBE and info.owner_id is not None else info
        rest = split(query, owner.name, catalog.by_id, known)
        return parts.get(info.name, rest)

    def plan(
        self,
        object_id: int,
        query: p.Query,
        late: int | None,
        *,
        limits: StateLimits = UNLIMITED,
        by_id: Callable[[int], ObjectInfo] | None = None,
        alone: str = "",
        options: Mapping[str, str] | None = None,
    ) -> Planned:
        """Compiles a query for the job of an object. `by_id` knows objects that are not in the catalogue yet; `alone` says why it must have a job of its own."""
        find = by_id or self._storage.catalog.by_id
        job = f"{self._compute.uid}-{object_id}"
        options = options or {}
        counted, codegen = "lifecycle" in options, options.get("jit") != "false"
        alone = alone or ("it has a lifecycle of its own" if counted else "")
        compiled, company = self.compile(object_id, job, query, find, limits, alone, counted=counted)
        if any(limits) and not compiled.operators:
            name = QUERY if limits.query else OPERATOR
            raise fail("PSK-1012", "This query keeps no state to limit.", hint=f"Leave {name} out.")
        every = query.emit.every.micros // 1000 if query.emit.kind == "every" and query.emit.every else 0
        outputs = (object_id,) if late is None else (object_id, late)
        seeds = self._seeds(object_id, compiled)
        partitions = self._storage.settings.spark.shuffle_partitions
        planned = Planned(job, query, compiled, outputs, every, seeds, limits, partitions=partitions)
        if isinstance(company, str):
            return replace(planned, alone=company, codegen=codegen)
        return replace(planned, membership=company)

    def compile(
        self,
        object_id: int | None,
        job: str,
        query: p.Query,
        find: Callable[[int], ObjectInfo],
        limits: StateLimits,
        alone: str,
        *,
        counted: bool = False,
    ) -> tuple[Compiled, Membership | str]:
        """A query as it is run: as a member of a shared job, or for one of its own, and why."""
        spark, parallelism = self._compute.spark, self._compute.parallelism

        def own() -> Compiled:
            return Compiler(spark, job, find, parallelism, exact_state=any(limits), counted=counted).compile(query)

        why = alone or unfit(query) or self._settled(object_id, query) or self._unreplicated(object_id, query, limits)
        if not why and any(limits) and not query.root.changelog and not self._shares(object_id):
            why = FINAL
        if why:
            return own(), why
        compiled = Compiler(spark, job, find, parallelism, hosted=True).compile(query)
        company = membership(compiled)
        return (own() if isinstance(company, str) else compiled), company

    def _shares(self, object_id: int | None) -> bool:
        """Whether a query is a member of a shared job, or was made for one."""
        catalog = self._storage.catalog
        known = Signature.from_text(catalog.plans.get(object_id, "")) if object_id is not None else None
        return any(object_id in h.members for h in list(catalog.hosted.values())) or (
            known is not None and "shared" in known.path
        )

    def _settled(self, object_id: int | None, query: p.Query) -> str | None:
        """Why a query stays in a job of its own, or is not to read all that it begins with in one epoch, for which others would wait."""
        if self._shares(object_id) or self._goes_on(object_id):
            return None
        known = Signature.from_text(self._storage.catalog.plans.get(object_id, "")) if object_id is not None else None
        if object_id is not None and (begun(self._storage.layout.job(object_id)) or (known is not None and known.path)):
            return "its state is in a job of its own"
        log, most = self._storage.log, self._storage.settings.engine.max_rows_per_epoch
        read = {n.object_id for n in query.root.walk() if isinstance(n, p.Scan)}
        rows = sum(log.amount(i)[1] for i in read)
        return f"it begins with {rows} rows, more than an epoch takes" if rows > most else None

    def _goes_on(self, object_id: int | None) -> bool:
        """Whether a query without state goes on where it was when it left its job."""
        solo = self._storage.catalog.solo.get(object_id) if object_id is not None else None
        return solo is not None and solo.start > 0

    def _unreplicated(self, object_id: int | None, query: p.Query, limits: StateLimits) -> str | None:
        """Why lookup tables of a query are not replicated, but kept by an operator. A query that has begun stays with what it has."""
        tables = {
            n.right.object_id for n in query.root.walk() if isinstance(n, p.LookupJoin) and isinstance(n.right, p.Scan)
        }
        catalog, settings = self._storage.catalog, self._storage.settings.engine
        if not tables:
            return None
        if not self._compute.local:
            return "its lookup table is where its tasks are only with a local master"
        if self._shares(object_id) or self._goes_on(object_id):
            return None
        if any(limits):
            return "its state has a limit, and its lookup table counts"
        for i in sorted(tables):
            rows = self._storage.store.count(i)
            if rows > settings.max_replica_rows:
                return f"{catalog.by_id(i).name} has {rows} rows, more than a replica of a lookup table may have"
        return None

    def _seeds(self, object_id: int, compiled: Compiled) -> tuple[Seed, ...]:
        """A new query starts from the current contents of the tables and views that it reads, not from their history."""
        storage = self._storage
        folder = storage.layout.job(object_id)
        index = folder / "seeds.json"
        if index.exists():
            return _stored_seeds(index)
        if begun(folder):
            raise _unseeded(index, "it is missing")
        seeds = []
        make_folder(folder)
        for input_id in compiled.objects:
            if not storage.catalog.has_id(input_id):
                continue
            info = storage.catalog.by_id(input_id)
            if not info.has_contents or storage.log.epoch(input_id) == 0 or self._from_history(info, compiled):
                continue
            storage.check_sound(info)
            path = folder / f"seed-{input_id}.arrow"
            with storage.store.reading(input_id) as now:
                seeds.append(write_seed(path, input_id, now.lsn, now.schema, now.pieces, info.changelog))
        # A folder can be moved, so paths are stored relative to it.
        relative = [asdict(replace(s, path=Path(s.path).name)) for s in seeds]
        write_json(index, relative, _SEEDS_FORMAT)
        return tuple(seeds)

    def _from_history(self, info: ObjectInfo, compiled: Compiled) -> bool:
        """True if the log has all changes of the object, and the query should read them instead of the contents: because they
        contain no retractions, or because the query depends on their order.
        """
        storage = self._storage
        if not complete(storage.log, info.id):
            return False
        _, rows, _ = storage.log.retained(info.id)
        ordered = compiled.root is not None and any(isinstance(n, _ORDERED) for n in compiled.root.walk())
        return ordered or rows == storage.store.count(info.id)


def check_columns(info: ObjectInfo, columns: Sequence[Column]) -> None:
    """Raises PSK-6003 if the stored text of a query gives other columns than those that it was created with, even if it begins again."""
    had, has = ([f"{c.name} {c.type}" for c in some] for some in (info.columns, columns))
    # Earlier versions quoted no names of fields.
    if [c.replace("`", "") for c in had] != [c.replace("`", "") for c in has]:
        raise fail(
            "PSK-6003",
            f"{info.name} has other columns in this version: they were {', '.join(had)}, and would be {', '.join(has)}.",
            hint=f"Drop {info.name} and create it again, with the text that SHOW CREATE {info.name} shows.",
        )


def _changed(info: ObjectInfo, why: Sequence[str]) -> PenstockError:
    again = f"RESTART {info.kind.value.upper()} {info.name} FROM BEGINNING computes it again from its inputs."
    return fail(
        "PSK-6003",
        f"{info.name} cannot go on with its state: {'; '.join(why)}.",
        hint=again if info.changelog else f"Its rows cannot be retracted: drop {info.name} and create it again.",
    )


def _stored_seeds(index: Path) -> tuple[Seed, ...]:
    try:
        data = index.read_bytes()
        # Before format 2 it was a list without a checksum.
        stored = json.loads(data) if data.startswith(b"[") else unpack_json(data, _SEEDS_FORMAT, index)
        return tuple(
            Seed(
                object_id=int(s["object_id"]),
                lsn=int(s["lsn"]),
                columns=int(s["columns"]),
                path=str(index.parent / s["path"]),
                batches=tuple((int(a), int(b), int(c)) for a, b, c in s["batches"]),
                checks=tuple(int(c) for c in s.get("checks", ())),
            )
            for s in stored
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        raise _unseeded(index, str(why) or type(why).__name__) from why


def _unseeded(index: Path, why: str) -> PenstockError:
    return fail(
        "PSK-6001",
        f"{index} is damaged: {why}. With which contents the query began is unknown.",
        hint="RESTART … FROM BEGINNING computes the query again; or restore the file from a backup.",
    )


__all__ = ["Planned", "Planner"]
