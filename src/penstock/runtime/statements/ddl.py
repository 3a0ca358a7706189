"""Creating objects that have rows, also while the pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo, Role
from penstock.catalog.types import to_arrow
from penstock.connect import LookupSource, make_source
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.runtime.connect.lookups import check_asked, lookup_options, make_lookup, unique
from penstock.runtime.connect.replica import Replica
from penstock.runtime.durations import duration_ms, size_bytes
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.limits import state_limits
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.jobs.probes import Probe, refuse_late_data, split
from penstock.runtime.statements.draft import Draft, drafting
from penstock.runtime.statements.dropping import replaced
from penstock.runtime.statements.faithful import check_condition, check_query
from penstock.runtime.storage.alignment import check as check_alignment
from penstock.runtime.storage.backpressure import check as check_backpressure
from penstock.runtime.storage.pervalue import check as check_values
from penstock.serve.layout import WEIGHT
from penstock.spark.bridge import ERROR_SCHEMA
from penstock.spark.compile import UNIT_OBJECT, Output, output_key, output_times
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_constant


def create_fed(engine: Engine, s: st.CreateSource | st.CreateTable | st.CreateLookupTable) -> None:
    """CREATE SOURCE, TABLE and LOOKUP TABLE."""
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        kind = {st.CreateSource: Kind.SOURCE, st.CreateTable: Kind.TABLE, st.CreateLookupTable: Kind.LOOKUP}[type(s)]
        check_columns(engine, s.columns)
        check_retention(s.options)
        connector = _connector(engine, kind, s)
        watermark = s.watermark if isinstance(s, st.CreateSource) else None
        if watermark is not None:
            _check_time(s.columns, watermark.column)
        key = s.key if not isinstance(s, st.CreateSource) else ()
        info = ObjectInfo(
            id=engine.catalog.new_id(),
            name=s.name,
            kind=kind,
            columns=tuple(replace(c, nullable=False) if c.name in key else c for c in s.columns),
            key=key,
            changelog=kind is not Kind.SOURCE,
            times=(p.TimeAttr(watermark.column),) if watermark is not None else (),
            watermark=watermark,
            connector=connector,
            options=dict(s.options),
            sql=s.text,
        )
        if "watermark_per" in info.options:
            check_values(info)
        gone_ids = {o.id for o in gone}
        check_alignment(info, [o for o in engine.catalog.objects(Kind.SOURCE) if o.id not in gone_ids])
        check_backpressure(info, engine.settings)
        read = _read_lookup(engine, info)
        with drafting(engine, gone) as draft:
            draft.attach(info)
            if read is not None:
                _begin_lookup(engine, info, *read)
            elif engine.running:
                draft.then(info, engine.start_connector)


def _connector(
    engine: Engine, kind: Kind, s: st.CreateSource | st.CreateTable | st.CreateLookupTable
) -> Connector | None:
    """The validated connector of the object; None if only INSERT writes to it, as for a `static` lookup table."""
    if kind is Kind.SOURCE:
        if s.connector is not None:
            make_source(s.connector, s.columns, engine.access)
        if not s.columns:
            raise fail(
                "PSK-1016", f"{s.name} has no columns, and nothing to derive them from.", hint="Write the columns."
            )
        if "idle_timeout" in s.options:
            duration_ms(s.options["idle_timeout"])
        return s.connector
    if isinstance(s, st.CreateLookupTable):
        return None if s.connector is None or s.connector.name == "static" else s.connector
    if s.connector is not None:
        raise fail("PSK-5001", f"A {kind.value} cannot be fed by {s.connector.name}.", hint="Fill it with INSERT.")
    return None


def _read_lookup(engine: Engine, info: ObjectInfo) -> tuple[LookupSource, pa.Table | None] | None:
    """Queries the source of a lookup table once: for all rows or, on demand, only to check that it is available. None if there is no source."""
    if info.kind is not Kind.LOOKUP:
        return None
    options = lookup_options(info.options, info.connector)
    if info.connector is None:
        return None
    if options.on_demand:
        check_asked(info)
    source = make_lookup(info, engine.access)
    try:
        if not options.on_demand:
            return source, unique(info, source.scan())
        source.check()
        return source, None
    except BaseException:
        source.close()
        raise


def _begin_lookup(engine: Engine, info: ObjectInfo, source: LookupSource, rows: pa.Table | None) -> None:
    lookup = engine.lookups[info.id]
    lookup.source = source
    if rows is not None:
        assert isinstance(lookup, Replica)
        lookup.become(rows)
        lookup.figures.requests, lookup.figures.rows_read = 1, rows.num_rows
    if engine.running:
        lookup.start()


def create_query(engine: Engine, s: st.CreateStream | st.CreateView) -> None:
    """CREATE STREAM and CREATE MATERIALIZED VIEW; the job is started if the pipeline runs."""
    kind = Kind.VIEW if isinstance(s, st.CreateView) else Kind.STREAM
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        with drafting(engine, gone) as draft:
            add_query(draft, s.name, kind, s.query, s.text)


def add_query(
    draft: Draft,
    name: str,
    kind: Kind,
    parsed: ParsedQuery,
    text: str,
    role: Role = Role.USER,
    owner_id: int | None = None,
    bound: p.Query | None = None,
    rules: str | None = None,
) -> ObjectInfo:
    """Plans a query, attaches its objects to a draft and starts it. `bound` is its plan, if it is known; `rules` are the names that stand for other
    objects in it (`Catalog.as_read_by`)."""
    engine = draft.engine
    query = bound or bind(parsed, engine.catalog)
    check_query(engine, parsed)
    check_retention(parsed.options)
    _unique(query.names)
    for clause, side in (("LATE DATA TO", parsed.late_to), ("ERRORS TO", parsed.errors_to)):
        if side is not None and draft.taken(side):
            raise fail("PSK-1003", f"{side} already exists.", hint=f"{clause} names a new stream.")
    object_id = draft.new_id()
    with located(parsed):
        query = split(query, name, draft.by_id, lambda probe: _add_probe(draft, probe, text, object_id))
        late = engine.catalog.new_id() if parsed.late_to is not None else None
        planned = engine.jobs.planner.plan(
            object_id,
            query,
            late,
            limits=state_limits(parsed.options),
            by_id=draft.by_id,
            alone="" if role in (Role.USER, Role.SUBSCRIPTION, Role.VERSION) else "it is a part of another query",
            options=parsed.options,
        )
        _refuse_replaced(draft, name, planned)
        options = dict(parsed.options) | ({"on_error": "dead_letter"} if parsed.errors_to is not None else {})
        options |= {"rules": rules} if rules is not None else {}
        info = _query_info(draft, object_id, name, kind, query, planned, options, text)
        info = replace(info, role=role, owner_id=owner_id)
        _attach(draft, info)
        if late is not None:
            assert parsed.late_to is not None
            _attach(draft, _late_info(late, parsed.late_to, object_id, planned.compiled.outputs[1]))
        if planned.compiled.fallible or parsed.errors_to is not None:
            _attach(draft, errors_info(engine.catalog.new_id(), info, parsed.errors_to))
        draft.start(info, planned)
        return info


def _add_probe(draft: Draft, probe: Probe, text: str, owner_id: int) -> ObjectInfo:
    refuse_late_data(probe)
    object_id = draft.new_id()
    planned = draft.engine.jobs.planner.plan(
        object_id, probe.query, None, by_id=draft.by_id, alone="it is a part of another query"
    )
    info = _query_info(draft, object_id, probe.name, Kind.STREAM, probe.query, planned, {}, text)
    info = replace(info, role=Role.PROBE, owner_id=owner_id, lookup_id=probe.lookup.id)
    _attach(draft, info)
    if planned.compiled.fallible:
        _attach(draft, errors_info(draft.engine.catalog.new_id(), info, None))
    draft.start(info, planned)
    return info


def _attach(draft: Draft, info: ObjectInfo) -> None:
    for c in info.columns:
        to_arrow(c.type)
    draft.attach(info)


def _refuse_replaced(draft: Draft, name: str, planned: Planned) -> None:
    own = {o.id for o in draft.gone}
    if own & set(planned.compiled.objects):
        raise fail("PSK-1017", f"{name} would read itself.", hint="Give the new query another name.")


def _query_info(
    draft: Draft,
    object_id: int,
    name: str,
    kind: Kind,
    query: p.Query,
    planned: Planned,
    options: Mapping[str, str],
    text: str,
) -> ObjectInfo:
    out = planned.compiled.outputs[0]
    return ObjectInfo(
        id=object_id,
        name=name,
        kind=kind,
        columns=out.columns,
        key=output_key(query),
        changelog=out.changelog,
        times=output_times(query, planned.compiled),
        options=dict(options) | {"emit": query.emit.kind},
        depends_on=tuple(i for i in planned.compiled.objects if i != UNIT_OBJECT),
        sql=text,
        expands=query.expands,
        order=query.order,
    )


def _late_info(late: int, name: str, of: int, output: Output) -> ObjectInfo:
    return ObjectInfo(
        id=late,
        name=name,
        kind=Kind.STREAM,
        columns=output.columns,
        options={"emit": "append"},
        depends_on=(of,),
        sql=f"LATE DATA TO {name}",
        role=Role.LATE_ROWS,
        owner_id=of,
    )


def errors_info(object_id: int, of: ObjectInfo, name: str | None) -> ObjectInfo:
    """The view of a query's rows that could not be computed; hidden if the query does not name it."""
    return ObjectInfo(
        id=object_id,
        name=name or f"__errors_{of.name}",
        kind=Kind.VIEW,
        columns=tuple(Column(f.name, "string") for f in ERROR_SCHEMA if f.name != WEIGHT),
        changelog=True,
        options={"emit": "changes"},
        depends_on=(of.id,),
        sql=f"ERRORS TO {name}",
        role=Role.ERRORS,
        owner_id=of.id,
    )


def check_columns(engine: Engine, columns: tuple[Column, ...] | list[Column]) -> None:
    _unique([c.name for c in columns])
    for c in columns:
        if c.name.startswith("__"):
            raise fail("PSK-1015", f"{c.name} is a reserved column name.")
        to_arrow(c.type)
    engine.compute.batch.check_columns(columns)
    programs = engine.settings.security.allow_programs
    for c in columns:
        if c.default is not None:
            check_condition(engine, c.default, parse_constant(c.default, programs=programs))


def _check_time(columns: tuple[Column, ...], name: str) -> None:
    column = next((c for c in columns if c.name.lower() == name.lower()), None)
    if column is None:
        raise fail("PSK-1004", f"The watermark's column {name} is not a column of the source.")
    if column.type not in ("timestamp", "timestamp_ntz", "bigint"):
        raise fail("PSK-2002", f"Event time must be TIMESTAMP or BIGINT, but {name} is {column.type}.")


def check_retention(options: dict[str, str]) -> None:
    text = options.get("retain_history")
    if text is not None and size_bytes(text) is None:
        duration_ms(text)


def _unique(names: tuple[str, ...] | list[str]) -> None:
    seen: set[str] = set()
    for n in names:
        if n.lower() in seen:
            raise fail("PSK-1014", f"The column name {n} appears twice.", hint="Give one of them another name with AS.")
        seen.add(n.lower())
