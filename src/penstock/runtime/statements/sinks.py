"""CREATE SINK."""

from __future__ import annotations

import logging
import uuid

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.connect import make_sink
from penstock.errors import fail
from penstock.runtime.connect.delivery import OPTIONS, delivery, write_timeout_s
from penstock.runtime.connect.sinks import check_start, open_sink
from penstock.runtime.engine import Engine
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import replaced
from penstock.runtime.storage.position import Position, position_file
from penstock.sql import statements as st
from penstock.sql.names import suggestion

_logger = logging.getLogger(__name__)


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
                identity=uuid.uuid4().hex,
            )
            write_timeout_s(engine.settings, info)
            draft.attach(info)
            position_file(engine.storage.layout, info).write(Position())
            if engine.running:
                promised, _ = open_sink(engine.storage, info, sink, Position())
                if promised.warning:
                    _logger.warning("%s", promised.warning)
                draft.then(info, lambda info: engine.start_sink(info, (sink, promised)))
            else:
                delivery(engine.storage.info, engine.settings, info, sink.capabilities)


def _as_it_is(engine: Engine, s: st.CreateSink) -> ObjectInfo | None:
    """The object whose epochs the sink delivers directly; None if it needs a query of its own."""
    if s.source is None:
        return None
    of_query = [name for name in s.options if name not in OPTIONS]
    if of_query:
        raise fail(
            "PSK-1010",
            f"{of_query[0]} is an option of a query, and FROM names an object.",
            hint="Use INTO … AS SELECT.",
        )
    found = engine.catalog.get(s.source)
    if found is None:
        raise fail("PSK-1002", f"{s.source} is not found.", hint=suggestion(s.source, engine.catalog.names()))
    if found.kind in (Kind.SINK, Kind.FUNCTION):
        raise fail("PSK-1008", f"{found.name} is a {found.kind.value}.")
    if found.on_demand:
        raise fail(
            "PSK-5012",
            f"{found.name} is looked up on demand, so its changes are unknown.",
            hint="Use strategy = 'replicated'.",
        )
    filtered = s.query is not None and s.query.ast.args.get("where") is not None
    return None if filtered or found.kind in (Kind.SOURCE, Kind.NAMED_QUERY) else found
