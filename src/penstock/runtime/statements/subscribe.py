"""SUBSCRIBE: to an object, or to a query that lives as long as its subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of, stored_schema
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.statements.conditions import selected, stored
from penstock.runtime.statements.faithful import check_expressions
from penstock.runtime.statements.hidden import acquire, beneath, catch_up, release
from penstock.runtime.statements.inspect import find
from penstock.runtime.statements.named import whole
from penstock.runtime.statements.rules import Variables, rule
from penstock.runtime.statements.session import Session
from penstock.runtime.storage.contents import contents, read_entry
from penstock.serve.change import Change
from penstock.serve.group import GroupMember, GroupSubscription
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.query import ParsedQuery


def subscribe_statement(session: Session, s: st.Subscribe) -> Subscription | GroupSubscription:
    check_expressions(session.engine, s, s.where)
    given: dict[str, Any] = dict(s.options)
    for flag in given.keys() & {"snapshot", "progress"}:
        given[flag] = given[flag].lower() == "true"
    for number in given.keys() & {"buffer_bytes", "buffer_messages"}:
        given[number] = _number(number, given[number])
    for word in given.keys() & {"policy", "envelope"}:
        given[word] = given[word].lower()
    options = SubscribeOptions(
        as_of=s.as_of,
        up_to=s.up_to,
        as_of_lsn=s.as_of_lsn,
        up_to_lsn=s.up_to_lsn,
        where=s.where.sql(dialect=DIALECT) if s.where is not None else None,
        **given,
    )
    if s.target is not None and s.others:
        return subscribe_group(session.engine, [s.target, *s.others], options, session.variables)
    target = s.target if s.target is not None else s.select
    assert target is not None
    return subscribe(session.engine, target, options, variables=session.variables)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise fail("PSK-1011", f"{name} = '{text}' is not a whole number.") from None


def kill(engine: Engine, number: int) -> None:
    """KILL SUBSCRIPTION: its reader gets PSK-5018."""
    known = {s.id: s for s in engine.hub.subscriptions()}
    if number not in known:
        raise fail("PSK-1002", f"There is no subscription {number}.", hint="SHOW SUBSCRIPTIONS lists them.")
    known[number].kill()


def subscribe(
    engine: Engine,
    target: str | ParsedQuery,
    options: SubscribeOptions,
    on_change: Callable[[Change], object] | None = None,
    on_error: Callable[[BaseException], object] | None = None,
    variables: Variables | None = None,
) -> Subscription:
    """A subscription to a stream, view or table by name, or to a SELECT. `variables` are those of a session that row rules apply to."""
    engine.check_open()
    if variables is None:
        return _subscribe(engine, target, options, on_change, on_error, None)
    # No rule may change between looking at the rules and joining.
    with engine.ddl:
        return _subscribe(engine, target, options, on_change, on_error, variables)


def _subscribe(
    engine: Engine,
    target: str | ParsedQuery,
    options: SubscribeOptions,
    on_change: Callable[[Change], object] | None,
    on_error: Callable[[BaseException], object] | None,
    variables: Variables | None,
) -> Subscription:
    sized = _sized(engine, options)
    named: Origin | None = None
    if not isinstance(target, ParsedQuery):
        info = find(engine, target)
        if info.kind is not Kind.NAMED_QUERY:
            named = origin_of(engine, info, options)
            kept = _kept(engine, info, named, options.where, variables)
            if kept is not None:
                return engine.hub.subscribe(info.id, kept, sized, on_change=on_change, on_error=on_error)
            _check_now(info, options)
            target, sized = selected(engine, info.name, options.where), replace(sized, where=None)
        else:
            target = whole(engine, info)
    reading = acquire(engine, target, variables)
    try:
        title = " ".join(target.text.split()) if named is None else info.name
        origin = origin_of(engine, reading.info, sized, reading.names, title, named)
        kept = _kept(engine, reading.info, origin, sized.where, None)
        if kept is None:
            # Filtered by a query of its own, which is shared like any other.
            _check_now(reading.info, options)
            columns = zip((c.name for c in reading.info.columns), reading.names, strict=True)
            query, sized = selected(engine, reading.info.name, sized.where, columns), replace(sized, where=None)
            reading = beneath(acquire(engine, query), reading)
            kept = origin_of(engine, reading.info, sized, reading.names, title, origin)
        catch_up(engine, reading)
        if variables is not None:
            kept = replace(kept, reads=frozenset([reading.info.id]))
        subscription = engine.hub.subscribe(reading.info.id, kept, sized, on_change=on_change, on_error=on_error)
    except BaseException:
        release(engine, reading)
        raise
    subscription.on_close(lambda: release(engine, reading))
    return subscription


def _kept(
    engine: Engine, info: ObjectInfo, origin: Origin, where: str | None, variables: Variables | None
) -> Origin | None:
    """Only the rows that the session sees and that satisfy the condition, in this order; None if the store cannot evaluate one of them."""
    if variables is not None:
        origin = replace(origin, reads=frozenset([info.id]))
        text = rule(engine, info, variables)
        if text is not None:
            visible = stored(engine, info, text)
            if visible is None:
                return None
            origin = replace(origin, where=visible, where_key=f"rule {text}")
    if where is None:
        return origin
    kept, visible = stored(engine, info, where, origin.names), origin.where
    if kept is None:
        return None
    both = kept if visible is None else lambda table: kept(visible(table))
    return replace(origin, where=both, where_key=f"{origin.where_key} {origin.names} where {where}")


def _check_now(info: ObjectInfo, options: SubscribeOptions) -> None:
    for option in ("as_of", "up_to"):
        if getattr(options, option) is not None:
            raise fail(
                "PSK-5012",
                f"This condition is evaluated by a query of its own, which has not the epochs of {info.name}.",
                hint="Name an LSN in place of the epoch, or CREATE MATERIALIZED VIEW with the condition.",
            )


def subscribe_group(
    engine: Engine, names: Sequence[str], options: SubscribeOptions, variables: Variables | None = None
) -> GroupSubscription:
    """A subscription to several tables and views, delivered at the same LSN."""
    engine.check_open()
    given = {
        "as_of": options.as_of,
        "up_to": options.up_to,
        "where": options.where,
        "progress": options.progress or None,
    }
    for option, value in given.items():
        if value is not None:
            epoch = option in ("as_of", "up_to")
            raise fail(
                "PSK-1012",
                f"A group of objects cannot be subscribed to with {option}.",
                hint="Each object counts its own epochs; name an LSN." if epoch else None,
            )
    if len({n.lower() for n in names}) != len(names) or not names:
        raise fail("PSK-0009", "A group has one or more objects, each once.")
    members = []
    for name in names:
        info = find(engine, name)
        if not info.has_contents:
            raise fail("PSK-5012", f"{info.name} is a {info.kind.value}; a group has tables and views.")
        members.append(_member(engine, info, options, variables))
    after = options.as_of_lsn
    return GroupSubscription(members, snapshot=options.snapshot, after=after, up_to=options.up_to_lsn)


def _member(engine: Engine, info: ObjectInfo, options: SubscribeOptions, variables: Variables | None) -> GroupMember:
    def settled(lsn: int, deadline: float) -> bool:
        queries = [o for o in engine.jobs.upstream([info]) if o.kind in QUERIES]
        if queries and not engine.running:
            return False
        done = all(engine.jobs.settle(o, lsn, deadline) for o in queries)
        return done and published_head(engine, info) >= lsn

    def follow(snapshot: bool, after: int | None) -> Subscription:
        own = None if after is None else _own_lsn(engine, info, after)
        chosen = replace(options, snapshot=snapshot, as_of_lsn=own, up_to_lsn=None)
        return subscribe(engine, info.name, chosen, variables=variables)

    return GroupMember(info.name, follow, settled)


def _own_lsn(engine: Engine, info: ObjectInfo, input_lsn: int) -> int:
    """The LSN of an object's last entry that was caused by a commit up to `input_lsn`; that LSN itself if there is none, or it is still to come."""
    low, high, found = input_lsn, published_head(engine, info), input_lsn
    while low <= high:
        middle = (low + high) // 2
        entry = engine.log.last_entry(info.id, middle)
        if entry is None or entry.input_lsn <= input_lsn:
            found = found if entry is None else max(found, entry.lsn)
            low = middle + 1
        else:
            high = middle - 1
    return found


def _sized(engine: Engine, options: SubscribeOptions) -> SubscribeOptions:
    limits = engine.settings.subscribe
    return replace(
        options,
        buffer_bytes=limits.buffer_bytes if options.buffer_bytes is None else options.buffer_bytes,
        buffer_messages=limits.buffer_messages if options.buffer_messages is None else options.buffer_messages,
    )


def origin_of(
    engine: Engine,
    info: ObjectInfo,
    options: SubscribeOptions,
    names: tuple[str, ...] = (),
    title: str | None = None,
    like: Origin | None = None,
) -> Origin:
    """How to read and present an object to a subscriber, which names its columns by `names`. `like`: presents it as another one, whose columns
    it has; it is a filter of that."""
    if info.on_demand:
        raise fail(
            "PSK-5012",
            f"{info.name} is looked up on demand, so its changes are unknown.",
            hint="Use strategy = 'replicated'.",
        )
    if info.kind in (Kind.SOURCE, Kind.SINK, Kind.FUNCTION):
        raise fail("PSK-5012", f"{info.name} is a {info.kind.value} and cannot be subscribed to.")
    if options.envelope == "upsert" and not (info.key if like is None else like.keys):
        shown = title or info.name
        raise fail("PSK-1011", f"{shown} has no key, so its changes cannot be sent as upserts.", hint="Use diff.")
    emit: Any = info.options.get("emit", "changes")
    if emit == "every":
        emit = "changes" if info.changelog else "append"
    renamed = dict(zip((c.name for c in info.columns), names, strict=True)) if names else {}
    names = names if any(a != b for a, b in renamed.items()) else ()
    return Origin(
        schema_of(info.columns),
        snapshot=lambda: _snapshot(engine, info),
        history=lambda after: _history(engine, info, after),
        emit=emit if like is None else like.emit,
        keys=tuple(renamed.get(k, k) for k in info.key) if like is None else like.keys,
        epoch_at=lambda lsn: _epoch_at(engine, info, lsn),
        head=lambda: published_head(engine, info),
        names=names,
        title=title,
        input_at=lambda lsn: entry.input_lsn if (entry := engine.log.last_entry(info.id, lsn)) is not None else None,
    )


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
        Past(
            e.epoch,
            e.lsn,
            read_entry(engine.log, e, schema) if e.rows else schema.empty_table(),
            e.watermark,
            e.input_lsn,
        )
        for e in engine.log.iterate(info.id, engine.log.lsn_at_epoch(info.id, after))
    )


def _epoch_at(engine: Engine, info: ObjectInfo, lsn: int) -> int | str:
    head = published_head(engine, info)
    if engine.log.abandoned(lsn):
        return f"the database was restored to before LSN {lsn}"
    if lsn > head:
        return f"LSN {lsn} is not in the log, which ends at LSN {head}"
    if lsn == 0 and engine.log.reaches_back(info.id, 0):
        return 0
    # An object that has an entry at or before the LSN is the one that the LSN is from, and all later entries are there as well. Without one,
    # it may have been created since, under the same name.
    last = engine.log.last_entry(info.id, lsn)
    return f"there is no history at LSN {lsn}" if last is None else last.epoch


def published_head(engine: Engine, info: ObjectInfo) -> int:
    """An LSN up to which all commits of an object have been published."""
    head = engine.log.head
    engine.storage.await_published(info.id)
    return head
