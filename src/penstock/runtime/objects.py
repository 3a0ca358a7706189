"""Objects are made and dropped, also while the pipeline runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo
from penstock.catalog.types import to_arrow
from penstock.connect import LookupSource, make_source
from penstock.errors import PenstockError, fail
from penstock.plan import nodes as p
from penstock.runtime.durations import duration_ms, size_bytes
from penstock.runtime.limits import state_limit
from penstock.runtime.lookups import as_written, check_asked, lookup_options, make_lookup, unique
from penstock.runtime.planned import Planned, plan_object, plan_query
from penstock.runtime.probes import LOOKUP, Probe, probe_owner, probes_of, refuse_late_data, split
from penstock.runtime.replica import Replica
from penstock.spark.compile import Output, output_key, output_times
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


def create_fed(engine: Engine, s: st.CreateSource | st.CreateTable | st.CreateLookupTable) -> None:
    """CREATE SOURCE, TABLE and LOOKUP TABLE."""
    with engine.ddl:
        if not make_room(engine, s.name, s.or_replace, s.if_not_exists):
            return
        kind = {st.CreateSource: Kind.SOURCE, st.CreateTable: Kind.TABLE, st.CreateLookupTable: Kind.LOOKUP}[type(s)]
        _check_columns(engine, s.columns)
        _check_retention(s.options)
        connector = _connector(kind, s)
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
        read = _read_lookup(info, s)
        engine.attach(info)
        engine.catalog.add(info)
        engine.hub.open(info.id, info.name)
        try:
            if read is not None:
                _begin_lookup(engine, info, *read)
            elif engine.running:
                engine.start_connector(info)
        except BaseException:
            drop_objects(engine, [info])
            raise


def _connector(kind: Kind, s: st.CreateSource | st.CreateTable | st.CreateLookupTable) -> Connector | None:
    """What feeds the object, checked; None where rows come through INSERT alone, which `static` says of a lookup table."""
    if kind is Kind.SOURCE:
        if s.connector is not None:
            make_source(s.connector, s.columns)
        if not s.columns:
            raise fail(
                "PSK-1016", f"{s.name} has no columns, and nothing that could tell them.", hint="Write the columns."
            )
        if "idle_timeout" in s.options:
            duration_ms(s.options["idle_timeout"])
        return s.connector
    if isinstance(s, st.CreateLookupTable):
        return None if s.connector is None or s.connector.name == "static" else as_written(s)
    if s.connector is not None:
        raise fail("PSK-5001", f"A {kind.value} cannot be fed by {s.connector.name}.", hint="Fill it with INSERT.")
    return None


def _read_lookup(info: ObjectInfo, s: st.Statement) -> tuple[LookupSource, pa.Table | None] | None:
    """The source of a lookup table, asked once: all rows, or, on demand, whether it is there. None if it has no source."""
    if info.kind is not Kind.LOOKUP:
        return None
    options = lookup_options(info.options, info.connector)
    if info.connector is None:
        return None
    assert isinstance(s, st.CreateLookupTable) and s.connector is not None
    if options.on_demand:
        check_asked(info)
    source = make_lookup(info, s.connector)
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
        if s.or_replace and engine.catalog.get(s.name) is not None:
            bind(s.query, engine.catalog, statement_text=s.text)
        if not make_room(engine, s.name, s.or_replace, s.if_not_exists):
            return
        add_query(engine, s.name, kind, s.query, s.text)


def add_query(
    engine: Engine, name: str, kind: Kind, parsed: ParsedQuery, text: str, depends: tuple[int, ...] = ()
) -> ObjectInfo:
    query = bind(parsed, engine.catalog, statement_text=text)
    _check_retention(parsed.options)
    _unique(query.names)
    if parsed.late_to is not None and engine.catalog.get(parsed.late_to) is not None:
        raise fail("PSK-1003", f"{parsed.late_to} already exists.", hint="LATE DATA TO names a new stream.")
    probes: list[ObjectInfo] = []
    try:
        with located(parsed):
            query = split(query, name, engine.catalog.by_id, lambda probe: _add_probe(engine, probe, text, probes))
        return _add_job(engine, name, kind, query, parsed, text)
    except BaseException:
        drop_objects(engine, probes[::-1])
        raise


def _add_probe(engine: Engine, probe: Probe, text: str, made: list[ObjectInfo]) -> ObjectInfo:
    refuse_late_data(probe)
    object_id = engine.catalog.new_id()
    try:
        planned = plan_query(engine, object_id, probe.query, None)
        info = _query_info(engine, object_id, probe.name, Kind.STREAM, probe.query, planned, {}, text)
        info = replace(info, options={**info.options, LOOKUP: str(probe.lookup.id)})
        made.append(_install(engine, [info], planned))
        return info
    except BaseException:
        shutil.rmtree(engine.layout.job(object_id), ignore_errors=True)
        raise


def _add_job(engine: Engine, name: str, kind: Kind, query: p.Query, parsed: ParsedQuery, text: str) -> ObjectInfo:
    object_id = engine.catalog.new_id()
    late = engine.catalog.new_id() if parsed.late_to is not None else None
    try:
        with located(parsed):
            planned = plan_query(engine, object_id, query, late, state_limit(parsed.options))
            info = _query_info(engine, object_id, name, kind, query, planned, parsed.options, text)
            infos = [info]
            if late is not None:
                assert parsed.late_to is not None
                infos.append(_late_info(late, parsed.late_to, object_id, planned.compiled.outputs[1], query))
            return _install(engine, infos, planned)
    except BaseException:
        shutil.rmtree(engine.layout.job(object_id), ignore_errors=True)
        raise


def _install(engine: Engine, infos: list[ObjectInfo], planned: Planned) -> ObjectInfo:
    info = infos[0]
    for one in infos:
        to_check = [c.type for c in one.columns]
        for t in to_check:
            to_arrow(t)
    with engine.catalog.edit():
        engine.catalog.plans[info.id] = planned.fingerprint
        engine.catalog.add(*infos)
    try:
        for one in infos:
            engine.hub.open(one.id, one.name)
            engine.attach(one)
        engine.planned[info.id] = planned
        if engine.running:
            engine.start_query(info)
    except BaseException:
        drop_objects(engine, infos[::-1])
        raise
    return info


def _query_info(
    engine: Engine,
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
        depends_on=tuple(i for i in planned.compiled.objects if engine.catalog.has_id(i)),
        sql=text,
    )


def _late_info(late: int, name: str, of: int, output: Output, query: p.Query) -> ObjectInfo:
    return ObjectInfo(
        id=late,
        name=name,
        kind=Kind.STREAM,
        columns=output.columns,
        options={"emit": "append"},
        depends_on=(of,),
        sql=f"LATE DATA TO {name}",
    )


def make_room(engine: Engine, name: str, or_replace: bool, if_not_exists: bool) -> bool:
    """False if there is nothing to do. A replaced object must have no dependents."""
    have = engine.catalog.get(name)
    if have is None:
        return True
    if if_not_exists:
        return False
    if not or_replace:
        raise fail("PSK-1003", f"{have.name} already exists.")
    drop(engine, have, cascade=False)
    return True


def drop_statement(engine: Engine, s: st.Drop) -> None:
    with engine.ddl:
        info = engine.catalog.get(s.name)
        if info is None:
            if s.if_exists:
                return
            from penstock.sql.names import suggestion

            names = [o.name for o in engine.catalog.objects() if o.kind.value == s.kind]
            raise fail("PSK-1002", f"{s.kind.capitalize()} {s.name} is not found.", hint=suggestion(s.name, names))
        if info.kind.value != s.kind:
            raise fail(
                "PSK-1008", f"{info.name} is a {info.kind.value}.", hint=f"DROP {info.kind.value.upper()} {info.name}"
            )
        drop(engine, info, cascade=s.cascade)


def drop(engine: Engine, info: ObjectInfo, *, cascade: bool) -> None:
    """Drops an object; what depends on it stands in the way, or goes first."""
    if info.sql.startswith("LATE DATA"):
        owner = engine.catalog.by_id(info.depends_on[0])
        raise fail("PSK-1009", f"{info.name} takes the late rows of {owner.name}.", hint=f"Drop {owner.name}.")
    gone = _with_dependents(engine, info)
    if info.kind is Kind.SINK and (own := engine.catalog.get(hidden_name(info.name))) is not None:
        gone.append(own)
    gone = [p for o in gone for p in (o, *probes_of(engine, o)[::-1]) if o is p or p not in gone]
    others = [o for o in gone if o.id != info.id and not _belongs(o, info) and probe_owner(o.name) is None]
    if others and not cascade:
        names = ", ".join(sorted(o.name for o in others))
        raise fail("PSK-1009", f"{info.name} is in use by {names}.")
    drop_objects(engine, gone)


def hidden_name(sink: str) -> str:
    """The name of the stream that feeds a sink with a query of its own."""
    return f"__sink_{sink}"


def _belongs(o: ObjectInfo, owner: ObjectInfo) -> bool:
    """An object that has no life of its own: the late rows of a query, the query of a sink."""
    late = o.sql.startswith("LATE DATA") and o.depends_on == (owner.id,)
    return late or (owner.kind is Kind.SINK and o.name == hidden_name(owner.name))


def drop_objects(engine: Engine, gone: list[ObjectInfo]) -> None:
    for o in gone:
        for running in (engine.sinks.pop(o.id, None), engine.intakes.pop(o.id, None)):
            if running is not None:
                running.stop()
        if (lookup := engine.lookups.pop(o.id, None)) is not None:
            lookup.close()
        engine.stop_query(o)
        engine.hub.end(o.id)
        engine.planned.pop(o.id, None)
        engine.feeds.pop(o.id, None)
        engine.store.drop(o.id)
    engine.catalog.remove(*(o.id for o in gone if engine.catalog.has_id(o.id)))
    for o in gone:
        engine.log.forget(o.id)
        engine.index.forget(o.id)
        engine.layout.snapshot(o.id).unlink(missing_ok=True)
        shutil.rmtree(engine.layout.job(o.id), ignore_errors=True)


def _with_dependents(engine: Engine, info: ObjectInfo) -> list[ObjectInfo]:
    """The object and all that stands on it, dependents first."""
    seen: dict[int, ObjectInfo] = {}

    def visit(o: ObjectInfo) -> None:
        for d in engine.catalog.dependents(o.id):
            if d.id not in seen:
                visit(d)
        seen.setdefault(o.id, o)

    visit(info)
    return list(seen.values())


def add_column(engine: Engine, s: st.AlterSourceAddColumn) -> None:
    """ALTER SOURCE … ADD COLUMN: NULL in older rows; queries that exist go on with the columns that they name."""
    with engine.ddl:
        info = engine.catalog.get(s.name)
        if info is None or info.kind is not Kind.SOURCE:
            raise fail("PSK-1002", f"Source {s.name} is not found.")
        if info.column(s.column.name) is not None:
            raise fail("PSK-1014", f"{info.name} already has a column {s.column.name}.")
        if not s.column.nullable:
            raise fail(
                "PSK-5006",
                "An added column is NULL in older rows, so it cannot be NOT NULL.",
                hint="Leave NOT NULL out.",
            )
        _check_columns(engine, [s.column])
        grown = replace(info, columns=(*info.columns, s.column))
        engine.catalog.replace(grown)
        try:
            again = _planned_again(engine, info)
        except BaseException:
            engine.catalog.replace(info)
            raise
        # Readers come first: they take rows without the new column, but the old ones could not take rows with it.
        for reader, planned in again:
            engine.planned[reader.id] = planned
            if engine.running and not engine.shared.member(reader.id):
                engine.stop_query(reader)
                engine.start_query(reader)
        engine.shared.renew(info.id)
        engine.feeds.pop(info.id)
        engine.attach(grown)


def _planned_again(engine: Engine, source: ObjectInfo) -> list[tuple[ObjectInfo, Planned]]:
    """The plans of a source's readers now that it has a column more; one that would change stands in the way."""
    again = []
    for reader in engine.catalog.dependents(source.id):
        try:
            planned = plan_object(engine, reader)
        except PenstockError as error:
            if error.code != "PSK-6003":
                raise
            planned = None
        if planned is None:
            raise fail(
                "PSK-1009",
                f"{probe_owner(reader.name) or reader.name} takes all columns of {source.name}.",
                hint="Name the columns there, or drop it first.",
            )
        again.append((reader, planned))
    return again


def _check_columns(engine: Engine, columns: tuple[Column, ...] | list[Column]) -> None:
    _unique([c.name for c in columns])
    for c in columns:
        if c.name.startswith("__"):
            raise fail("PSK-1015", f"{c.name} is a reserved column name.")
        to_arrow(c.type)
    engine.batch.check_columns(columns)


def _check_time(columns: tuple[Column, ...], name: str) -> None:
    column = next((c for c in columns if c.name.lower() == name.lower()), None)
    if column is None:
        raise fail("PSK-1004", f"The watermark's column {name} is not a column of the source.")
    if column.type not in ("timestamp", "timestamp_ntz", "bigint"):
        raise fail("PSK-2002", f"Event time must be TIMESTAMP or BIGINT, but {name} is {column.type}.")


def _check_retention(options: dict[str, str]) -> None:
    text = options.get("retain_history")
    if text is not None and size_bytes(text) is None:
        duration_ms(text)


def _unique(names: tuple[str, ...] | list[str]) -> None:
    seen: set[str] = set()
    for n in names:
        if n.lower() in seen:
            raise fail("PSK-1014", f"The column name {n} stands twice.", hint="Give one of them another name with AS.")
        seen.add(n.lower())
