"""Executes statements. Parsing and binding come before any effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa

from penstock.catalog.objects import Kind
from penstock.errors import PenstockError, fail
from penstock.log import Part
from penstock.runtime.connect.replica import Replica
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.jobs.saving import Linked
from penstock.runtime.lifecycle import State
from penstock.runtime.statements import alter, cursors, ddl, dml, dropping, named
from penstock.runtime.statements.columns import alter_column
from penstock.runtime.statements.constants import Bound
from penstock.runtime.statements.copying import check_target, copy_out, explain_copy
from penstock.runtime.statements.explain import explain_analyze, explain_object, explain_query
from penstock.runtime.statements.faithful import check_query
from penstock.runtime.statements.inscribe import comment_on, rename
from penstock.runtime.statements.inspect import describe, find, show, show_create
from penstock.runtime.statements.points import NotPoint
from penstock.runtime.statements.prepared import Prepared
from penstock.runtime.statements.rebuild import alter_query
from penstock.runtime.statements.restart import restart
from penstock.runtime.statements.restore import restore
from penstock.runtime.statements.rules import create_policy, drop_policy, show_policies
from penstock.runtime.statements.select import answered_by, select, select_prepared
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.sinks import create_sink
from penstock.runtime.statements.sqlfunctions import create_function
from penstock.runtime.statements.subscribe import kill, subscribe_statement
from penstock.serve.group import GroupSubscription
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.located import located
from penstock.sql.ordering import ordered
from penstock.sql.params import apply_params
from penstock.sql.script import parse_script

Outcome: TypeAlias = pa.Table | Subscription | GroupSubscription | None
Params: TypeAlias = Sequence[object] | Mapping[str, object] | None

_READING = (st.Select, st.Subscribe, st.DeclareCursor, st.Fetch, st.CloseCursor)


def execute(session: Session, sql: str, params: Params = None) -> Outcome:
    """Executes the statements of a script in order and returns the last outcome. The first error ends the script and names its statement."""
    engine = session.engine
    if engine.lifecycle.state is not State.FAULTED and engine.storage.is_open:
        engine.check_open()
    # What is prepared was bound for a session that sees everything.
    prepared = session.prepared.find(sql, engine.settings) if session.variables is None else None
    bound = prepared.bind(params) if prepared is not None else None
    if prepared is not None and bound is not None:
        engine.check_open()
        try:
            with engine.tracing.statement(prepared.statement), suppress(NotPoint):
                return _run_prepared(session, prepared, bound)
        except PenstockError as error:
            if error.sql is None:
                error.sql = apply_params(sql, params)
            raise
    text = apply_params(sql, params)
    statements = parse_script(
        text,
        substitute=engine.access.substitute,
        connectors="check",
        programs=engine.settings.security.allow_programs,
    )
    outcome: Outcome = None
    for number, statement in ordered(statements, lambda name: engine.catalog.get(name) is not None):
        try:
            if not isinstance(statement, st.StartPipeline):
                # It starts a new JVM, and opens files again; everything else needs both.
                engine.check_open()
            with engine.tracing.statement(statement):
                if isinstance(statement, st.Select) and prepared is not None:
                    outcome = select(session, statement.query, prepared)
                else:
                    outcome = run(session, statement)
        except PenstockError as error:
            if error.sql is None:
                error.sql = text
            if len(statements) > 1:
                error.add_note(f"in statement {number} of {len(statements)}")
            raise
    return outcome


def _run_prepared(session: Session, prepared: Prepared, bound: Bound) -> Outcome:
    if isinstance(prepared.statement, st.Select):
        return select_prepared(session, prepared, bound)
    return dml.run_write(session, prepared.statement, bound)


def run(session: Session, s: st.Statement) -> Outcome:
    engine = session.engine
    if session.variables is not None and not isinstance(s, _READING):
        raise fail(
            "PSK-0012",
            "A session with variables can only read: SELECT, SUBSCRIBE, and DECLARE, FETCH and CLOSE of a cursor.",
        )
    match s:
        case st.CreateSource() | st.CreateTable() | st.CreateLookupTable():
            ddl.create_fed(engine, s)
        case st.CreateStream() | st.CreateView():
            ddl.create_query(engine, s)
        case st.CreateNamedQuery():
            named.create_named_query(engine, s)
        case st.CreateFunction():
            create_function(engine, s)
        case st.CreateSink():
            create_sink(engine, s)
        case st.Drop():
            dropping.drop_statement(engine, s)
        case st.AlterSourceAddColumn():
            alter.add_column(engine, s)
        case st.AlterTableColumn():
            alter_column(engine, s)
        case st.Rename():
            rename(engine, s)
        case st.Comment():
            comment_on(engine, s)
        case st.AlterQuery():
            alter_query(engine, s)
        case st.Insert() | st.Update() | st.Delete() | st.CopyFrom() | st.Begin() | st.Commit() | st.Rollback():
            return dml.run_write(session, s)
        case st.CopyTo():
            check_target(session, s)
            return copy_out(session, s, select(session, s.query, mapped=True))
        case st.Select():
            return select(session, s.query)
        case st.Subscribe():
            return subscribe_statement(session, s)
        case st.CreatePolicy():
            create_policy(engine, s)
        case st.DropPolicy():
            drop_policy(engine, s)
        case st.KillSubscription():
            kill(engine, s.id)
        case st.DeclareCursor():
            cursors.declare(session, s)
        case st.Fetch():
            return cursors.fetch(session, s)
        case st.CloseCursor():
            cursors.close(session, s)
        case st.Explain():
            return _explain(session, s)
        case st.Show():
            return show_policies(engine) if s.what == "policies" else show(engine, s.what)
        case st.ShowCreate():
            return show_create(engine, s)
        case st.Describe():
            return describe(engine, s)
        case st.Checkpoint():
            return pa.table({"checkpoint": [checkpoint(engine)]})
        case st.Restore():
            done = restore(engine, s.checkpoint, backup=s.backup, keep_delivered=s.keep_delivered)
            columns = {"checkpoint": done.checkpoint, "lsn": done.lsn, "backup": done.backup}
            return pa.table({name: pa.array([value], pa.int64()) for name, value in columns.items()})
        case st.SetOption():
            engine.change_setting(s.key, s.value)
        case st.StartPipeline():
            engine.start()
        case st.StopPipeline():
            engine.stop()
        case st.Restart():
            restart(engine, s)
        case st.ExplainObject():
            return _explain_object(engine, s)
        case st.Refresh():
            return _refresh(engine, s)
        case st.Flush():
            engine.flush()
        case _:
            raise fail("PSK-8001", f"No way to run {type(s).__name__}.")
    return None


def checkpoint(engine: Engine) -> int:
    """Waits until every view has all commits, writes snapshots, and returns the checkpoint's number.

    Objects without an epoch since the last checkpoint get an empty one, so that subscribers can refer to every checkpoint.
    """
    taken_in = engine.log.head
    if engine.running:
        engine.wait(taken_in, engine.settings.checkpoint.timeout_ms / 1000)
    with engine.checkpoints.alone:
        with engine.ddl:
            linked = _linked(engine, taken_in)
        return engine.checkpoints.complete(linked).id


def _linked(engine: Engine, taken_in: int) -> Linked:
    """The part of a checkpoint during which no statement may change objects."""
    catalog = engine.catalog
    kept = engine.checkpoints.kept
    last = kept[-1].lsn if kept else 0
    quiet = [
        o
        for o in catalog.objects(Kind.STREAM, Kind.VIEW)
        if (entry := engine.log.last_entry(o.id)) is None or entry.lsn <= last
    ]
    if quiet:
        engine.storage.commit(
            [Part(object_id=o.id, input_lsn=taken_in, column_count=len(o.columns) + int(o.changelog)) for o in quiet]
        )
    engine.log.sync()
    engine.storage.save_contents()
    return engine.checkpoints.begin()


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
    if isinstance(inner, st.CopyFrom) and not s.analyze:
        return pa.table({"plan": explain_copy(engine, inner)})
    if isinstance(inner, st.CopyTo) and not s.analyze:
        inner = st.Select(inner.text, inner.offset, inner.query)
    if not isinstance(inner, st.CreateStream | st.CreateView | st.Select):
        raise fail("PSK-1012", "EXPLAIN takes a SELECT, COPY, CREATE STREAM or CREATE MATERIALIZED VIEW.")
    try:
        query = bind(inner.query, engine.catalog)
    except PenstockError as error:
        if not isinstance(inner, st.Select) or s.analyze:
            raise
        answered = answered_by(session, inner.query)
        if answered.startswith("SELECT: refused"):
            raise
        return pa.table({"plan": [f"as a continuous query: refused, because {error.detail}", answered]})
    check_query(engine, inner.query)
    with located(inner.query):
        lines = explain_analyze(engine, inner, query) if s.analyze else explain_query(engine, inner, query)
        if isinstance(inner, st.Select) and not s.analyze:
            lines.append(answered_by(session, inner.query))
    return pa.table({"plan": lines})


def _explain_object(engine: Engine, s: st.ExplainObject) -> pa.Table:
    info = find(engine, s.name)
    if info.kind not in QUERIES:
        hint = f"EXPLAIN SELECT * FROM {info.name} shows its plan." if info.kind is Kind.NAMED_QUERY else None
        raise fail("PSK-1008", f"{info.name} is a {info.kind.value}; a stream or view has a plan.", hint=hint)
    return pa.table({"plan": explain_object(engine, info, analyze=s.analyze)})
