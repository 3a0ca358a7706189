"""A stream or view made ready to run: bound, compiled, and told where to begin reading."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.catalog.objects import ObjectInfo, Role
from penstock.catalog.store import Catalog
from penstock.config import substitute
from penstock.disk import make_folder, write_durably
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.explain import explain
from penstock.runtime.jobs.compute import Compute
from penstock.runtime.jobs.limits import state_limit
from penstock.runtime.jobs.probes import Probe, split
from penstock.runtime.storage.contents import complete
from penstock.runtime.storage.storage import Storage
from penstock.spark.bridge import Seed
from penstock.spark.compile import Compiled, Compiler
from penstock.spark.seeds import write_seed
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateSink, CreateStream, CreateView

_ORDERED = (p.LookupJoin, p.TemporalJoin)
"""Joins whose result depends on when a row of their table came."""


@dataclass(frozen=True)
class Planned:
    """Everything that a job needs. `output_ids`: the object itself and, where rows can be late, its side stream."""

    job: str
    query: p.Query
    compiled: Compiled
    output_ids: tuple[int, ...]
    every_ms: int
    seeds: tuple[Seed, ...]
    state_limit: int = 0
    """The bytes of state at which the query fails; 0: no limit."""

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(explain(self.query).encode()).hexdigest()[:16]


class Planner:
    """Plans queries of one database."""

    def __init__(self, storage: Storage, compute: Compute) -> None:
        self._storage = storage
        self._compute = compute

    def stored(self, info: ObjectInfo, catalog: Catalog | None = None) -> Planned | None:
        """The plan of a stored object; PSK-6003 if it does not fit the checkpoint. None if the object has no query of its own."""
        parsed = self._parsed(info)
        if parsed is None:
            return None
        known_by = catalog or self._storage.catalog
        query = self._own_part(info, bind(parsed, known_by, statement_text=info.sql))
        late = self._side(info, Role.LATE_ROWS)
        planned = self.plan(info.id, query, late, limit=state_limit(parsed.options), by_id=known_by.by_id)
        known = known_by.plans.get(info.id)
        if known is not None and known != planned.fingerprint:
            raise fail(
                "PSK-6003",
                f"The plan of {info.name} is not the one that its stored state was made with.",
                hint=f"Drop and create {info.name} again.",
            )
        return planned

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
        """The id of the side stream that a query has for some of its rows."""
        owned = (o for o in self._storage.catalog.objects() if o.owner_id == info.id and o.role is role)
        return next((o.id for o in owned), None)

    def _own_part(self, info: ObjectInfo, query: p.Query) -> p.Query:
        """What one job of a stored query computes: the query over its probes, or one of these."""
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
        limit: int = 0,
        by_id: Callable[[int], ObjectInfo] | None = None,
    ) -> Planned:
        """Compiles a query for the job of an object. `by_id` knows objects that are not in the catalogue yet."""
        find = by_id or self._storage.catalog.by_id
        job = f"{self._compute.uid}-{object_id}"
        compiler = Compiler(self._compute.spark, job, find, self._compute.parallelism, exact_state=limit > 0)
        compiled = compiler.compile(query)
        if limit and not compiled.operators:
            raise fail("PSK-1012", "This query keeps no state to limit.", hint="Leave max_state_bytes out.")
        every = query.emit.every.micros // 1000 if query.emit.kind == "every" and query.emit.every else 0
        outputs = (object_id,) if late is None else (object_id, late)
        return Planned(job, query, compiled, outputs, every, self._seeds(object_id, compiled), limit)

    def _seeds(self, object_id: int, compiled: Compiled) -> tuple[Seed, ...]:
        """A new query begins with the contents of the tables and views that it reads, not with a history of rows long gone."""
        storage = self._storage
        folder = storage.layout.job(object_id)
        index = folder / "seeds.json"
        if index.exists():
            return _stored_seeds(index)
        seeds = []
        make_folder(folder)
        for input_id in compiled.objects:
            if not storage.catalog.has_id(input_id):
                continue
            info = storage.catalog.by_id(input_id)
            if not info.has_contents or storage.log.epoch(input_id) == 0 or self._from_history(info, compiled):
                continue
            storage.check_sound(info)
            table, _, lsn = storage.store.snapshot(input_id)
            seeds.append(write_seed(folder / f"seed-{input_id}.arrow", input_id, lsn, table, info.changelog))
        # A folder can be moved: paths are kept relative to it.
        relative = [asdict(replace(s, path=Path(s.path).name)) for s in seeds]
        write_durably(index, json.dumps(relative).encode())
        return tuple(seeds)

    def _from_history(self, info: ObjectInfo, compiled: Compiled) -> bool:
        """True if the log has all changes of the object, and nothing but them will do: nothing in them is gone again, or the
        query depends on the order in which they came.
        """
        storage = self._storage
        if not complete(storage.log, info.id):
            return False
        _, rows, _ = storage.log.retained(info.id)
        ordered = compiled.root is not None and any(isinstance(n, _ORDERED) for n in compiled.root.walk())
        return ordered or rows == storage.store.count(info.id)


def _stored_seeds(index: Path) -> tuple[Seed, ...]:
    try:
        stored = json.loads(index.read_text())
        return tuple(
            Seed(
                object_id=int(s["object_id"]),
                lsn=int(s["lsn"]),
                columns=int(s["columns"]),
                path=str(index.parent / s["path"]),
                batches=tuple((int(a), int(b), int(c)) for a, b, c in s["batches"]),
            )
            for s in stored
        )
    except (ValueError, KeyError, TypeError) as why:
        raise fail(
            "PSK-6001",
            f"{index} is damaged: where the query began is not known.",
            hint="Drop the query and create it again.",
        ) from why


__all__ = ["Planned", "Planner"]
