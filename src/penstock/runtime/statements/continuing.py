"""Another query in place of one whose rows cannot be retracted: it goes on where the other was, with its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.catalog.objects import Column, ObjectInfo
from penstock.disk import crash_point
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.succession import obstacle, same_state, scanned
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.limits import state_limits
from penstock.runtime.statements.ddl import check_retention, errors_info
from penstock.runtime.statements.faithful import check_query
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.spark.compile import UNIT_OBJECT, Compiled, output_key, output_times
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery


def continue_with(engine: Engine, info: ObjectInfo, parsed: ParsedQuery, query: p.Query, text: str) -> None:
    """The query of an append-only stream or view is replaced between two epochs. What it has emitted stays; rows that come later are processed by the new query.

    1. the old query stops after its epoch;
    2. the catalogue gets the new one: here the statement takes effect;
    3. it starts, on the checkpoint of the old one.
    """
    jobs, catalog = engine.jobs, engine.catalog
    check_cycle(engine, info, query)
    check_query(engine, parsed)
    check_retention(parsed.options)
    old = jobs.plan(info)
    _check_state(engine, info, old.query, query)
    limits = state_limits(parsed.options)
    with located(parsed):
        compiled, _ = jobs.planner.compile(None, "alter", query, catalog.by_id, limits, old.alone)
        check_result(info, compiled.outputs[0].columns, output_key(query), compiled)
    kept = {k: v for k, v in info.options.items() if k.startswith("policy.") or k == "rules"}
    altered = replace(
        info,
        columns=compiled.outputs[0].columns,
        times=output_times(query, compiled),
        options=dict(parsed.options) | {"emit": query.emit.kind} | kept,
        depends_on=tuple(i for i in compiled.objects if i != UNIT_OBJECT),
        sql=text,
        expands=query.expands,
        order=query.order,
    )
    key = jobs.hosted.key(info.id)
    with uninterrupted():
        if key is not None and compiled.operators:
            # Its state stays where it is, in the job that it shares; no epoch of that has been left half done by the old query.
            jobs.hosted.halt(key)
        elif key is not None:
            jobs.hosted.depart(info)
        else:
            jobs.stop(info)
        try:
            planned = jobs.planner.plan(info.id, query, None, limits=limits, options=altered.options)
            if compiled.operators and key is not None and not jobs.hosted.fits(key, planned):
                raise fail(
                    "PSK-6018",
                    f"The state of {info.name} cannot be carried over: it is in a job that other queries share, and the new query could not be in it.",
                    hint=otherwise(info),
                )
            errors = None
            if compiled.fallible and jobs.errors_of(info) is None:
                errors = errors_info(catalog.new_id(), altered, None)
            with catalog.edit():
                catalog.change(replace=[altered], add=[errors] if errors is not None else [])
                catalog.plans[info.id] = planned.signature.to_text()
        except BaseException:
            jobs.planned[info.id] = old
            jobs.attempt([info], lambda: jobs.start(info))
            raise
        crash_point("swap.decided")
        engine.storage.renew(altered)
        if errors is not None:
            engine.attach(errors)
        jobs.planned[info.id] = planned
        # Its status says why it could not be started.
        jobs.attempt([altered], lambda: jobs.start(altered))
        jobs.hosted.close_empty()


def _check_state(engine: Engine, info: ObjectInfo, old: p.Query, new: p.Query) -> None:
    """Refuses a query that cannot go on with the state of the other."""
    why = obstacle(old, new)
    if why is None and not same_state(old, new):
        why = "an aggregate: its rows are final, and what it has not computed so far is unknown"
    if why is not None:
        raise fail(
            "PSK-6018",
            f"The state of {info.name} cannot be carried over. Of {why}.",
            hint=otherwise(info),
        )
    had, has = ([engine.catalog.by_id(i).name for i in scanned(q) if engine.catalog.has_id(i)] for q in (old, new))
    if had != has:
        raise fail(
            "PSK-6018",
            f"The position of {info.name} cannot be carried over: it reads {', '.join(had)}, and would read {', '.join(has)}.",
            hint=otherwise(info),
        )


def check_cycle(engine: Engine, info: ObjectInfo, query: p.Query) -> None:
    """Refuses a query that would read itself."""
    for o in [engine.catalog.by_id(i) for i in sorted(set(scanned(query))) if engine.catalog.has_id(i)]:
        path = [u.name for u in engine.jobs.upstream([o]) if info.id in (u.id, *u.depends_on)]
        if o.id == info.id or path:
            through = f" through {', '.join(n for n in path if n != info.name)}" if o.id != info.id else ""
            raise fail("PSK-1017", f"{info.name} would read itself{through}.", hint="Give the new query another name.")


def check_result(info: ObjectInfo, columns: Sequence[Column], key: tuple[str, ...], compiled: Compiled) -> None:
    """Refuses a query whose readers would notice more than other rows."""
    had, has = ([f"{c.name} {c.type}" for c in some] for some in (info.columns, columns))
    if had != has:
        raise fail(
            "PSK-1016",
            f"The columns of {info.name} would change from {', '.join(had)} to {', '.join(has)}.",
            hint=otherwise(info),
        )
    outputs = compiled.outputs
    # Rows that have one for each of some columns have one for each of more.
    keeps_key = not info.key or (bool(key) and set(key) <= set(info.key))
    if outputs[0].changelog != info.changelog or not keeps_key or len(outputs) > 1:
        raise fail(
            "PSK-1012", f"The key of {info.name}, or whether its rows change, would be another.", hint=otherwise(info)
        )


def otherwise(info: ObjectInfo) -> str:
    """The way out where a query cannot be replaced."""
    return f"CREATE OR REPLACE {info.kind.value.upper()} {info.name}, which drops what reads it, or use another name."
