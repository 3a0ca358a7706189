"""Sinks: each reads the log of one stream from where it stopped, and hands every epoch on, in order."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of
from penstock.connect import Sink, make_sink
from penstock.disk import make_folder, write_durably
from penstock.errors import PenstockError, fail
from penstock.runtime.contents import read_entry
from penstock.runtime.objects import add_query, drop, hidden_name, make_room
from penstock.sql import statements as st
from penstock.sql.names import suggestion
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


def create_sink(engine: Engine, s: st.CreateSink) -> None:
    """CREATE SINK: over a stream as it is, or over a query of its own, which is then a hidden stream."""
    with engine.ddl:
        if not make_room(engine, s.name, s.or_replace, s.if_not_exists):
            return
        hidden = None
        feeding = _as_it_is(engine, s)
        if feeding is None:
            assert s.query is not None
            feeding = hidden = add_query(engine, hidden_name(s.name), Kind.STREAM, s.query, s.text)
        try:
            make_sink(s.connector, changelog=feeding.changelog)
            info = ObjectInfo(
                id=engine.catalog.new_id(),
                name=s.name,
                kind=Kind.SINK,
                columns=feeding.columns,
                changelog=feeding.changelog,
                connector=s.connector,
                options=dict(s.options),
                depends_on=(feeding.id,),
                sql=s.text,
            )
            engine.catalog.add(info)
            if engine.running:
                engine.start_sink(info)
        except BaseException:
            if hidden is not None:
                drop(engine, hidden, cascade=True)
            raise


def _as_it_is(engine: Engine, s: st.CreateSink) -> ObjectInfo | None:
    """The object whose epochs the sink takes without a query between; None if there must be one."""
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
            f"{found.name} is looked up on demand, so its changes are not known.",
            hint="Use strategy = 'replicated'.",
        )
    filtered = s.query is not None and s.query.ast.args.get("where") is not None
    return None if filtered or found.kind is Kind.SOURCE else found


def open_sink(engine: Engine, info: ObjectInfo) -> SinkRunner:
    (statement,) = parse_script(info.sql, substitute=engine.substitute)
    assert isinstance(statement, st.CreateSink)
    return SinkRunner(engine, info, make_sink(statement.connector, changelog=info.changelog))


# Entries that are written before the position is.
_ENTRIES = 1000


class SinkRunner:
    """A thread that follows one stream. An error stops this sink alone; it is tried again when the pipeline is started."""

    def __init__(self, engine: Engine, info: ObjectInfo, sink: Sink) -> None:
        self.name = info.name
        self.rows = 0
        self.state = "running"
        self.error: str | None = None
        self._engine = engine
        self._info = info
        self._input = engine.catalog.by_id(info.depends_on[0])
        self._sink = sink
        self._position = engine.layout.job(info.id) / "position.json"
        self._stop = threading.Event()
        schema = schema_of(self._input.columns)
        self._schema = schema.append(pa.field("__weight", pa.int64())) if self._input.changelog else schema
        epoch, self.durable_lsn = self._load()
        sink.open(self._schema, epoch)
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{info.name}", daemon=True)
        self._thread.start()

    def _load(self) -> tuple[int, int]:
        if not self._position.exists():
            return 0, 0
        stored = json.loads(self._position.read_text())
        return int(stored["epoch"]), int(stored["lsn"])

    def _save(self, epoch: int, lsn: int) -> None:
        make_folder(self._position.parent)
        write_durably(self._position, json.dumps({"epoch": epoch, "lsn": lsn}).encode())

    def _run(self) -> None:
        engine = self._engine
        try:
            while not self._stop.is_set():
                entries = engine.log.entries(self._input.id, after=self.durable_lsn, limit=_ENTRIES)
                if not entries:
                    with engine.commits:
                        if not engine.log.entries(self._input.id, after=self.durable_lsn, limit=1):
                            engine.commits.wait(0.5)
                    continue
                for entry in entries:
                    if self._stop.is_set():
                        return
                    if entry.rows:
                        self._sink.write(entry.epoch, entry.lsn, read_entry(engine, entry, self._schema))
                        self.rows += entry.rows
                self._sink.flush()
                self._save(entries[-1].epoch, entries[-1].lsn)
                with self._done:
                    self.durable_lsn = entries[-1].lsn
                    self._done.notify_all()
        except Exception as error:
            self.state = "failed"
            self.error = str(error if isinstance(error, PenstockError) else fail("PSK-5002", f"{self.name}: {error}"))
            with self._done:
                self._done.notify_all()

    def settle(self, deadline: float | None) -> bool:
        last = self._engine.log.last_entry(self._input.id)
        if last is None:
            return True
        with self._done:
            while self.state == "running" and self.durable_lsn < last.lsn and not self._stop.is_set():
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._done.wait(0.25)
        return True

    def stop(self) -> None:
        self._stop.set()
        with self._engine.commits:
            self._engine.commits.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        self._sink.close()
        if self.state == "running":
            self.state = "stopped"
