"""SUBSCRIBE: to an object, or to a query that lives as long as its subscription."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.types import schema_of, stored_schema
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.lifecycle import State
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import drop
from penstock.runtime.statements.named import whole
from penstock.runtime.storage.contents import contents, read_entry
from penstock.serve.change import Change
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.names import suggestion
from penstock.sql.query import ParsedQuery

_numbers = itertools.count(1)


def subscribe_statement(engine: Engine, s: st.Subscribe) -> Subscription:
    flags = {k: v.lower() == "true" for k, v in s.options.items()}
    options = SubscribeOptions(
        snapshot=flags.get("snapshot", False),
        as_of=s.as_of,
        up_to=s.up_to,
        where=s.where.sql(dialect="spark") if s.where is not None else None,
        envelope=s.options.get("envelope", "diff"),  # type: ignore[arg-type]
        progress=flags.get("progress", False),
    )
    return subscribe(engine, s.target if s.target is not None else s.select, options)  # type: ignore[arg-type]


def subscribe(
    engine: Engine,
    target: str | ParsedQuery,
    options: SubscribeOptions,
    on_change: Callable[[Change], object] | None = None,
    on_error: Callable[[BaseException], object] | None = None,
) -> Subscription:
    """A subscription to a stream, view or table by name, or to a SELECT."""
    engine.check_open()
    if not isinstance(target, ParsedQuery):
        info = engine.catalog.get(target)
        if info is None:
            raise fail("PSK-1002", f"{target} is not found.", hint=suggestion(target, engine.catalog.names()))
        if info.kind is not Kind.NAMED_QUERY:
            return _follow(engine, info, options, on_change, on_error)
        target = whole(engine, info)
    info = _anonymous(engine, target)
    try:
        subscription = _follow(engine, info, options, on_change, on_error)
        subscription.on_close(lambda: _end(engine, info))
    except BaseException:
        _end(engine, info)
        raise
    return subscription


def _follow(
    engine: Engine,
    info: ObjectInfo,
    options: SubscribeOptions,
    on_change: Callable[[Change], object] | None,
    on_error: Callable[[BaseException], object] | None,
) -> Subscription:
    if info.on_demand:
        raise fail(
            "PSK-5012",
            f"{info.name} is looked up on demand, so its changes are unknown.",
            hint="Use strategy = 'replicated'.",
        )
    if info.kind in (Kind.SOURCE, Kind.SINK):
        raise fail("PSK-5012", f"{info.name} is a {info.kind.value} and cannot be subscribed to.")
    if options.envelope == "upsert" and not info.key:
        raise fail("PSK-1011", f"{info.name} has no key, so its changes cannot be sent as upserts.", hint="Use diff.")
    emit: Any = info.options.get("emit", "changes")
    if emit == "every":
        emit = "changes" if info.changelog else "append"
    origin = Origin(
        schema_of(info.columns),
        snapshot=lambda: _snapshot(engine, info),
        history=lambda after: _history(engine, info, after),
        where=_where(engine, info, options.where) if options.where is not None else None,
        emit=emit,
        keys=info.key,
    )
    limits = engine.settings.subscribe
    options = replace(
        options,
        buffer_bytes=limits.buffer_bytes if options.buffer_bytes is None else options.buffer_bytes,
        buffer_messages=limits.buffer_messages if options.buffer_messages is None else options.buffer_messages,
    )
    return engine.hub.subscribe(info.id, origin, options, on_change=on_change, on_error=on_error)


def _anonymous(engine: Engine, query: ParsedQuery) -> ObjectInfo:
    """A view that lives as long as its subscription, or the process."""
    name = f"__subscription_{next(_numbers)}"
    text = f"CREATE MATERIALIZED VIEW `{name}` AS {query.text}"
    with engine.ddl, drafting(engine) as draft:
        return add_query(draft, name, Kind.VIEW, query, text, Role.SUBSCRIPTION)


def _end(engine: Engine, info: ObjectInfo) -> None:
    with engine.ddl:
        if engine.lifecycle.state is not State.CLOSED and engine.catalog.has_id(info.id):
            drop(engine, info, cascade=True)


def _snapshot(engine: Engine, info: ObjectInfo) -> tuple[pa.Table, int, int]:
    if info.has_contents:
        return engine.store.snapshot(info.id)
    last = engine.log.last_entry(info.id)
    return (
        (contents(engine.storage, info, last.lsn), last.epoch, last.lsn)
        if last
        else (schema_of(info.columns).empty_table(), 0, 0)
    )


def _history(engine: Engine, info: ObjectInfo, after: int) -> Iterator[Past] | None:
    """The epochs after the given one; None if some of them are no longer retained."""
    if not engine.log.reaches_back(info.id, after):
        return None
    schema = stored_schema(info)
    return (
        Past(e.epoch, e.lsn, read_entry(engine.log, e, schema) if e.rows else schema.empty_table(), e.watermark)
        for e in engine.log.iterate(info.id, engine.log.lsn_at_epoch(info.id, after))
    )


def _where(engine: Engine, info: ObjectInfo, text: str) -> Callable[[pa.Table], pa.Table]:
    """A filter over the object's rows, validated before the subscription exists."""
    engine.compute.batch.schema(f"SELECT * FROM `{info.name}` WHERE {text}", {info.name: info.columns})

    def keep(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        return engine.compute.batch.select(f"SELECT * FROM `{info.name}` WHERE {text}", {info.name: table}).cast(
            table.schema
        )

    return keep
