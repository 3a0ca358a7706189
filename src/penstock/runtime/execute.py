"""Statements are carried out. Parsing and binding are done before anything happens."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from penstock.catalog.objects import Checkpoint, Kind
from penstock.errors import PenstockError, fail
from penstock.runtime import objects, tables
from penstock.runtime.inspect import describe, find, show, show_create
from penstock.runtime.replica import Replica
from penstock.runtime.select import select
from penstock.runtime.sinks import create_sink
from penstock.runtime.subscribe import subscribe_statement
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.located import located
from penstock.sql.names import suggestion
from penstock.sql.params import apply_params
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine
    from penstock.runtime.writes import Write, Writer

Outcome: TypeAlias = pa.Table | Subscription | None
Params: TypeAlias = Sequence[object] | Mapping[str, object] | None


@dataclass
class Session:
    """One user's thread of statements: an open transaction and cursors belong to it."""

    engine: Engine
    writer: Writer
    pending: list[Write] | None = None
    cursors: dict[str, Subscription] = field(default_factory=dict)
    last_lsn: int = 0


def execute(session: Session, sql: str, params: Params = None) -> Outcome:
    """All statements of a script, in order; the last one's outcome. The first error ends it and says which statement it was."""
    session.engine.check_open()
    text = apply_params(sql, params)
    statements = parse_script(text, substitute=session.engine.substitute)
    outcome: Outcome = None
    for number, statement in enumerate(statements, 1):
        try:
            outcome = run(session, statement)
        except PenstockError as error:
            if error.sql is None:
                error.sql = text
            if len(statements) > 1:
                error.add_note(f"in statement {number} of {len(statements)}")
            raise
    return outcome


def run(session: Session, s: st.Statement) -> Outcome:
    engine = session.engine
    match s:
        case st.CreateSource() | st.CreateTable() | st.CreateLookupTable():
            objects.create_fed(engine, s)
        case st.CreateStream() | st.CreateView():
            objects.create_query(engine, s)
        case st.CreateSink():
            create_sink(engine, s)
        case st.Drop():
            objects.drop_statement(engine, s)
        case st.AlterSourceAddColumn():
            objects.add_column(engine, s)
        case st.AlterQuery():
            raise fail("PSK-1012", "ALTER … AS is not supported.", hint="Drop and create it again.")
        case st.Insert() | st.Update() | st.Delete() | st.Begin() | st.Commit() | st.Rollback():
            return tables.run_write(session, s)
        case st.Select():
            return select(session, s.query)
        case st.Subscribe():
            return subscribe_statement(engine, s)
        case st.DeclareCursor():
            _declare(session, s)
        case st.Fetch():
            return _fetch(session, s)
        case st.CloseCursor():
            _cursor(session, s.cursor).cancel()
            del session.cursors[s.cursor.lower()]
        case st.Explain():
            return _explain(session, s)
        case st.Show():
            return show(engine, s.what)
        case st.ShowCreate():
            return show_create(engine, s)
        case st.Describe():
            return describe(engine, s)
        case st.Checkpoint():
            return pa.table({"checkpoint": [checkpoint(engine)]})
        case st.Restore():
            raise fail(
                "PSK-1012",
                "RESTORE FROM CHECKPOINT is not supported.",
                hint="A database recovers to its last commit when it is opened.",
            )
        case st.SetOption():
            engine.change_setting(s.key, s.value)
        case st.StartPipeline():
            engine.start()
        case st.StopPipeline():
            engine.stop()
        case st.Refresh():
            return _refresh(engine, s)
        case st.Flush():
            engine.flush()
        case _:
            raise fail("PSK-8001", f"No way to run {type(s).__name__}.")
    return None


def checkpoint(engine: Engine) -> int:
    """Waits until everything committed is in every view, marks the place in the log and writes contents down; its number.

    Objects that had no epoch since the last checkpoint get an empty one, so that every checkpoint is a barrier that subscribers can name.
    """
    from penstock.log import Part

    with engine.ddl:
        engine.flush()
        checkpoints = engine.catalog.checkpoints
        since = checkpoints[-1].lsn if checkpoints else 0
        quiet = [
            o
            for o in engine.catalog.objects(Kind.STREAM, Kind.VIEW)
            if (last := engine.log.last_entry(o.id)) is None or last.lsn <= since
        ]
        if quiet:
            parts = [
                Part(
                    object_id=o.id,
                    job_epoch=engine.log.job_epoch(o.id),
                    schema_version=len(o.columns) + int(o.changelog),
                )
                for o in quiet
            ]
            lsn = engine.log.append(parts).lsn
            for o in quiet:
                engine.hub.publish(o.id, engine.log.epoch(o.id), lsn, None, None)
        engine.log.sync()
        engine.save_contents()
        number = checkpoints[-1].id + 1 if checkpoints else 1
        with engine.catalog.edit():
            checkpoints.append(Checkpoint(number, engine.log.head, int(time.time() * 1000)))
        return number


def _declare(session: Session, s: st.DeclareCursor) -> None:
    name = s.cursor.lower()
    if name in session.cursors:
        raise fail("PSK-1003", f"Cursor {s.cursor} already exists.", hint=f"CLOSE {s.cursor} first.")
    session.cursors[name] = subscribe_statement(session.engine, s.subscribe)


def _cursor(session: Session, name: str) -> Subscription:
    found = session.cursors.get(name.lower())
    if found is None:
        raise fail("PSK-1002", f"Cursor {name} is not found.", hint=suggestion(name, session.cursors))
    return found


def _fetch(session: Session, s: st.Fetch) -> pa.Table:
    """Up to `count` changes that have come, or, if none has, those that come within a second."""
    subscription = _cursor(session, s.cursor)
    parts: list[pa.Table] = []
    wait = 1.0
    while s.count is None or len(parts) < s.count:
        change = subscription.next(timeout=wait)
        if change is None:
            break
        parts.append(change.table)
        wait = 0.0
    return pa.concat_tables(parts) if parts else subscription.schema.empty_table()


def _refresh(engine: Engine, s: st.Refresh) -> pa.Table:
    lookup = engine.lookups.get(find(engine, s.name).id)
    if not isinstance(lookup, Replica):
        raise fail(
            "PSK-1008",
            f"{s.name} is not a replicated lookup table with a source.",
            hint="Only those are refreshed: CREATE LOOKUP TABLE … FROM ….",
        )
    return pa.table({"changes": pa.array([lookup.refresh()], pa.int64())})


def _explain(session: Session, s: st.Explain) -> pa.Table:
    engine = session.engine
    inner = s.statement
    if not isinstance(inner, st.CreateStream | st.CreateView | st.Select):
        raise fail("PSK-1012", "EXPLAIN takes a SELECT, CREATE STREAM or CREATE MATERIALIZED VIEW.")
    from penstock.runtime.explained import explain_analyze, explain_query

    query = bind(inner.query, engine.catalog, statement_text=inner.text)
    with located(inner.query):
        lines = explain_analyze(engine, inner, query) if s.analyze else explain_query(engine, inner, query)
    return pa.table({"plan": lines})
