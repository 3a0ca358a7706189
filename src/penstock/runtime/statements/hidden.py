"""The queries of `SUBSCRIBE (select)`. Subscriptions whose queries mean the same share one, which ends with the last of them."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.policies import policies
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.repeats import canonical
from penstock.runtime.engine import Engine, HiddenQuery
from penstock.runtime.lifecycle import State
from penstock.runtime.statements.ddl import add_query
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import drop
from penstock.runtime.statements.rules import Variables, ruled_inputs
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reading:
    """A subscription's share of a hidden query. `names` are the columns as its own text names them; `inputs` are the hidden queries that it reads."""

    info: ObjectInfo
    key: str
    names: tuple[str, ...]
    inputs: tuple[Reading, ...] = ()


def acquire(engine: Engine, parsed: ParsedQuery, variables: Variables | None = None) -> Reading:
    """The query for a subscription: one that runs and means the same, or a new one. `release` ends its use.

    With the variables of a session, it reads only the rows that the session sees.
    """
    with engine.ddl, ExitStack() as undo:
        query = bind(parsed, engine.catalog)
        catalog, rules, inputs = engine.catalog, None, []
        if variables is not None:
            stands = {}
            for name, visible in ruled_inputs(engine, query, variables).items():
                inputs.append(acquire(engine, visible))
                undo.callback(release, engine, inputs[-1])
                stands[name] = inputs[-1].info.name
            if stands:
                rules = json.dumps(stands)
                catalog = catalog.as_read_by(replace(inputs[0].info, options={"rules": rules}))
                query = bind(parsed, catalog)
                _check_ruled(engine, query)
        name = f"__subscription_{next(_numbers)}"
        # Planned again in a new JVM; there it may not have a reserved name.
        text = f"CREATE MATERIALIZED VIEW subscription AS {parsed.text}"
        key = _key(parsed, canonical(query)) or name
        found = engine.hidden.get(key)
        if found is None or not engine.catalog.has_id(found.info.id):
            with drafting(engine) as draft:
                info = add_query(draft, name, Kind.VIEW, parsed, text, Role.SUBSCRIPTION, bound=query, rules=rules)
            found = engine.hidden[key] = HiddenQuery(info)
        found.readers += 1
        undo.pop_all()
        return Reading(found.info, key, query.names, tuple(inputs))


def beneath(reading: Reading, read: Reading) -> Reading:
    """The use of a query that reads another hidden one, which is released with it."""
    return replace(reading, inputs=(*reading.inputs, read))


def _check_ruled(engine: Engine, query: p.Query) -> None:
    """Nothing that has rules may be read past them."""
    for node in query.root.walk():
        if isinstance(node, p.Scan) and engine.catalog.has_id(node.object_id):
            info = engine.catalog.by_id(node.object_id)
            if policies(info):
                raise fail("PSK-5019", f"The row rules of {info.name} cannot be applied in this query.")


def release(engine: Engine, reading: Reading) -> None:
    """One reader less. The last one ends the query."""
    with engine.ddl:
        _release(engine, reading)
        for read in reading.inputs:
            release(engine, read)


def _release(engine: Engine, reading: Reading) -> None:
    with engine.ddl:
        found = engine.hidden.get(reading.key)
        if found is None or found.info.id != reading.info.id:
            return  # It was dropped with an object that it reads.
        found.readers -= 1
        if found.readers:
            return
        del engine.hidden[reading.key]
        if engine.lifecycle.state is not State.CLOSED and engine.catalog.has_id(found.info.id):
            drop(engine, found.info, cascade=True)


def catch_up(engine: Engine, reading: Reading) -> None:
    """Waits until a new query has taken in what was committed before: a subscription begins with its contents, or after them, and not while they come."""
    for read in reading.inputs:
        catch_up(engine, read)
    if not engine.running or engine.settings.read.consistency != "strong":
        return
    seconds = engine.settings.read.timeout_ms / 1000
    if not engine.jobs.settle(reading.info, engine.log.head, time.monotonic() + seconds):
        raise fail(
            "PSK-0010",
            f"The query of the subscription has not caught up within {seconds:g} s.",
            hint="SET read.timeout_ms waits longer; CREATE MATERIALIZED VIEW and subscribe to that.",
        )


def _key(parsed: ParsedQuery, plan: str | None) -> str | None:
    """What queries have in common that share one; None if this one cannot be shared: it has side streams, or its rows depend on more than its input."""
    if plan is None or parsed.late_to is not None or parsed.errors_to is not None:
        return None
    return f"{plan} {json.dumps(sorted(parsed.options.items()))}"
