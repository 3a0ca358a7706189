"""CREATE SINK."""

from __future__ import annotations

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.types import stored_schema
from penstock.connect import make_sink
from penstock.errors import fail
from penstock.runtime.connect.sinks import check_start
from penstock.runtime.engine import Engine
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import replaced
from penstock.sql import statements as st
from penstock.sql.names import suggestion


def create_sink(engine: Engine, s: st.CreateSink) -> None:
    """Creates a sink on a stream itself, or on its own query, which becomes a hidden stream."""
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        feeding = _as_it_is(engine, s)
        if feeding is not None:
            check_start(engine.storage, feeding)
        sink_id = engine.catalog.new_id()
        with drafting(engine, gone) as draft:
            if feeding is None:
                assert s.query is not None
                feeding = add_query(
                    draft, f"__sink_{s.name}", Kind.STREAM, s.query, s.text, Role.SINK_QUERY, owner_id=sink_id
                )
            sink = make_sink(s.connector, changelog=feeding.changelog, access=engine.access)
            draft.opened(sink.close)
            info = ObjectInfo(
                id=sink_id,
                name=s.name,
                kind=Kind.SINK,
                columns=feeding.columns,
                changelog=feeding.changelog,
                connector=s.connector,
                options=dict(s.options),
                depends_on=(feeding.id,),
                sql=s.text,
            )
            draft.attach(info)
            if engine.running:
                sink.open(stored_schema(feeding), 0)
                draft.then(info, lambda info: engine.start_sink(info, sink))


def _as_it_is(engine: Engine, s: st.CreateSink) -> ObjectInfo | None:
    """The object whose epochs the sink delivers directly; None if it needs a query of its own."""
    if s.source is None:
        return None
    if s.options:
        raise fail(
            "PSK-1010",
            f"{next(iter(s.options))} is an option of a query, and FROM names an object.",
            hint="Use INTO … AS SELECT.",
        )
    found = engine.catalog.get(s.source)
    if found is None:
        raise fail("PSK-1002", f"{s.source} is not found.", hint=suggestion(s.source, engine.catalog.names()))
    if found.kind is Kind.SINK:
        raise fail("PSK-1008", f"{found.name} is a sink.")
    if found.on_demand:
        raise fail(
            "PSK-5012",
            f"{found.name} is looked up on demand, so its changes are unknown.",
            hint="Use strategy = 'replicated'.",
        )
    filtered = s.query is not None and s.query.ast.args.get("where") is not None
    return None if filtered or found.kind in (Kind.SOURCE, Kind.NAMED_QUERY) else found
