"""ALTER … AS … REBUILD: another query under the same name, for the same readers."""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.limits import state_limit
from penstock.runtime.statements.ddl import check_retention, errors_info
from penstock.runtime.statements.faithful import check_query
from penstock.runtime.statements.inspect import find
from penstock.runtime.storage.contents import complete
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.spark.compile import UNIT_OBJECT, output_key, output_times
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.located import located


def alter_query(engine: Engine, s: st.AlterQuery) -> None:
    """Replaces the query of a stream or view. Everything that can be refused is refused while the old query runs. Then:

    1. the old query is stopped, and its state dropped;
    2. the catalogue gets the new one: here the statement takes effect;
    3. it starts over: what the old one has emitted is retracted in one commit, and the new results come with its first epochs.

    Objects that read it, its sinks and its subscribers stay, and see one sequence of changes. A SELECT waits until the new query has caught up.
    """
    with engine.ddl:
        info = _target(engine, s)
        text = f"CREATE {info.kind.value.upper()} `{info.name}` AS {s.query.text}"
        query = bind(s.query, engine.catalog, statement_text=text)
        check_query(engine, s.query)
        check_retention(s.query.options)
        with located(s.query):
            altered = _altered(engine, info, s, query, text)
        jobs = engine.jobs
        with uninterrupted():
            jobs.lose(info, told=False)
            try:
                planned = jobs.planner.plan(
                    info.id, query, None, limit=state_limit(s.query.options), options=s.query.options
                )
                errors = None
                if planned.compiled.fallible and jobs.errors_of(info) is None:
                    errors = errors_info(engine.catalog.new_id(), altered, None)
                with engine.catalog.edit():
                    engine.catalog.change(replace=[altered], add=[errors] if errors is not None else [])
                    engine.catalog.plans[info.id] = planned.fingerprint
            except BaseException:
                jobs.lose(info, told=False)
                if engine.running:
                    jobs.attempt([info], lambda: jobs.start(info))
                raise
            engine.storage.renew(altered)
            if errors is not None:
                engine.attach(errors)
            jobs.planned[info.id] = planned
            if engine.running:
                # Its status says why it could not be started.
                jobs.attempt([altered], lambda: jobs.start(altered))


def _target(engine: Engine, s: st.AlterQuery) -> ObjectInfo:
    info = find(engine, s.name)
    kind = info.kind.value
    if kind != s.kind:
        raise fail("PSK-1008", f"{info.name} is a {kind}.", hint=f"ALTER {kind.upper()} {info.name} AS …")
    if info.kind not in (Kind.STREAM, Kind.VIEW) or info.role is not Role.USER:
        raise fail("PSK-1008", f"{info.name} has no query of its own that could be altered.")
    if not s.rebuild:
        raise fail(
            "PSK-1012",
            "The state of a query cannot be carried over to another one.",
            hint=f"ALTER {kind.upper()} {info.name} AS … REBUILD computes it from its inputs.",
        )
    owned = [o for o in engine.catalog.objects() if o.owner_id == info.id and not (o.role is Role.ERRORS and o.hidden)]
    if s.query.late_to is not None or s.query.errors_to is not None or owned:
        raise fail("PSK-1012", "A query with side streams or on-demand lookups cannot be altered.", hint=_again(info))
    if not info.changelog:
        raise fail("PSK-6003", f"{info.name} cannot be altered: its rows cannot be retracted.", hint=_again(info))
    return info


def _altered(engine: Engine, info: ObjectInfo, s: st.AlterQuery, query: p.Query, text: str) -> ObjectInfo:
    """The object with its new query; refused if readers would notice more than other rows."""
    find_by_id = engine.catalog.by_id
    read = [
        find_by_id(n.object_id)
        for n in query.root.walk()
        if isinstance(n, p.Scan) and engine.catalog.has_id(n.object_id)
    ]
    for o in read:
        path = [u.name for u in engine.jobs.upstream([o]) if info.id in (u.id, *u.depends_on)]
        if o.id == info.id or path:
            through = f" through {', '.join(n for n in path if n != info.name)}" if o.id != info.id else ""
            raise fail("PSK-1017", f"{info.name} would read itself{through}.", hint="Give the new query another name.")
        if o.on_demand:
            raise fail("PSK-1012", "A query with on-demand lookups cannot be altered.", hint=_again(info))
        if not o.has_contents and not complete(engine.log, o.id):
            raise fail(
                "PSK-5011",
                f"{info.name} cannot be computed: the history of {o.name} is no longer complete.",
                hint=_again(info),
            )
    limit = state_limit(s.query.options)
    compiled, _ = engine.jobs.planner.compile(None, "alter", query, find_by_id, limit, "")
    out = compiled.outputs[0]
    had, has = ([f"{c.name} {c.type}" for c in columns] for columns in (info.columns, out.columns))
    if had != has:
        raise fail(
            "PSK-1016",
            f"The columns of {info.name} would change from {', '.join(had)} to {', '.join(has)}.",
            hint=_again(info),
        )
    if not out.changelog or output_key(query) != info.key or len(compiled.outputs) > 1:
        raise fail(
            "PSK-1012", f"The key of {info.name}, or whether its rows change, would be another.", hint=_again(info)
        )
    policies = {k: v for k, v in info.options.items() if k.startswith("policy.")}
    return replace(
        info,
        columns=out.columns,
        times=output_times(query, compiled),
        options=dict(s.query.options) | {"emit": query.emit.kind} | policies,
        depends_on=tuple(i for i in compiled.objects if i != UNIT_OBJECT),
        sql=text,
        expands=query.expands,
        order=query.order,
    )


def _again(info: ObjectInfo) -> str:
    return f"CREATE OR REPLACE {info.kind.value.upper()} {info.name}, which drops what reads it, or use another name."
