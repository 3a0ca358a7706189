"""SUBSCRIBE: to an object, or to a query that lives as long as its subscription."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of
from penstock.errors import fail
from penstock.runtime.contents import contents, read_entry
from penstock.serve.change import Change
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.names import suggestion
from penstock.sql.query import ParsedQuery

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_numbers = itertools.count(1)
ANONYMOUS = "__subscription_"
"""How the names of queries begin that live as long as their subscription, or the process."""


def subscribe_statement(engine: Engine, s: st.Subscribe) -> Subscription:
    flags = {k: v.lower() == "true" for k, v in s.options.items()}
    where = s.where.sql(dialect="spark") if s.where is not None else None
    return subscribe(
        engine,
        s.target if s.target is not None else s.select,  # type: ignore[arg-type]
        as_of=s.as_of,
        up_to=s.up_to,
        where=where,
        envelope=s.options.get("envelope", "diff"),
        snapshot=flags.get("snapshot", False),
        progress=flags.get("progress", False),
    )


def subscribe(
    engine: Engine,
    target: str | ParsedQuery,
    *,
    snapshot: bool = False,
    as_of: int | None = None,
    up_to: int | None = None,
    where: str | None = None,
    envelope: str = "diff",
    progress: bool = False,
    policy: str = "block",
    buffer_bytes: int | None = None,
    on_change: Callable[[Change], object] | None = None,
) -> Subscription:
    """A subscription to a stream, view or table by name, or to a SELECT."""
    engine.check_open()
    if isinstance(target, ParsedQuery):
        info = _anonymous(engine, target)
    else:
        found = engine.catalog.get(target)
        if found is None:
            raise fail("PSK-1002", f"{target} is not found.", hint=suggestion(target, engine.catalog.names()))
        info = found
    if info.on_demand:
        raise fail(
            "PSK-5012",
            f"{info.name} is looked up on demand, so its changes are not known.",
            hint="Use strategy = 'replicated'.",
        )
    if info.kind in (Kind.SOURCE, Kind.SINK):
        raise fail("PSK-5012", f"{info.name} is a {info.kind.value} and cannot be subscribed to.")
    if envelope not in ("diff", "upsert", "debezium"):
        raise fail("PSK-1011", f"'{envelope}' is not an envelope.", hint="Use diff, upsert or debezium.")
    if envelope == "upsert" and not info.key:
        raise fail("PSK-1011", f"{info.name} has no key, so its changes cannot be told as upserts.", hint="Use diff.")
    emit: Any = info.options.get("emit", "changes")
    if emit == "every":
        emit = "changes" if info.changelog else "append"
    subscription = engine.hub.subscribe(
        info.id,
        schema=schema_of(info.columns),
        snapshot=lambda: _snapshot(engine, info),
        initial=snapshot,
        history=lambda after: _history(engine, info, after),
        where=_where(engine, info, where) if where else None,
        envelope=envelope,  # type: ignore[arg-type]
        emit=emit,
        keys=info.key,
        progress=progress,
        policy=policy,  # type: ignore[arg-type]
        buffer_bytes=buffer_bytes or engine.settings.subscribe.buffer_bytes,
        buffer_messages=engine.settings.subscribe.buffer_messages,
        as_of=as_of,
        up_to=up_to,
        on_change=on_change,
    )
    if isinstance(target, ParsedQuery):
        subscription.on_close(lambda: _end(engine, info))
    return subscription


def _anonymous(engine: Engine, query: ParsedQuery) -> ObjectInfo:
    from penstock.runtime.objects import add_query

    with engine.ddl:
        name = f"{ANONYMOUS}{next(_numbers)}"
        return add_query(engine, name, Kind.VIEW, query, f"CREATE MATERIALIZED VIEW `{name}` AS {query.text}")


def _end(engine: Engine, info: ObjectInfo) -> None:
    from penstock.runtime.lifecycle import State
    from penstock.runtime.objects import drop

    with engine.ddl:
        if engine.lifecycle.state is not State.CLOSED and engine.catalog.has_id(info.id):
            drop(engine, info, cascade=True)


def _snapshot(engine: Engine, info: ObjectInfo) -> tuple[pa.Table, int, int]:
    if info.kind in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
        return engine.store.snapshot(info.id)
    last = engine.log.last_entry(info.id)
    return (
        (contents(engine, info, last.lsn), last.epoch, last.lsn)
        if last
        else (schema_of(info.columns).empty_table(), 0, 0)
    )


def _history(engine: Engine, info: ObjectInfo, after: int) -> Iterable[tuple[int, int, pa.Table]] | None:
    """The epochs after one, or None where some of them are gone."""
    if not engine.log.reaches_back(info.id, after):
        return None
    schema = schema_of(info.columns)
    if info.changelog:
        schema = schema.append(pa.field("__weight", pa.int64()))
    return [
        (e.epoch, e.lsn, read_entry(engine, e, schema) if e.rows else schema.empty_table())
        for e in engine.log.entries(info.id, engine.log.lsn_at_epoch(info.id, after))
    ]


def _where(engine: Engine, info: ObjectInfo, text: str) -> Callable[[pa.Table], pa.Table]:
    """A filter over the object's rows; checked before the subscription exists."""
    engine.batch.schema(f"SELECT * FROM `{info.name}` WHERE {text}", {info.name: info.columns})

    def keep(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        return engine.batch.select(f"SELECT * FROM `{info.name}` WHERE {text}", {info.name: table}).cast(table.schema)

    return keep
