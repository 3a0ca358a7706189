"""ALTER … AS: another query under the same name, for the same readers, that is computed beside the old one."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock.catalog.objects import Kind, ObjectInfo, Role, Solo
from penstock.disk import crash_point
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.succession import obstacle, scanned
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.jobs import Trouble
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.jobs.versions import become, commit_difference, mark_taken, taken, version_of
from penstock.runtime.statements.continuing import check_cycle, check_result, continue_with, otherwise
from penstock.runtime.statements.ddl import add_query, errors_info
from penstock.runtime.statements.draft import drafting, remove_remains
from penstock.runtime.statements.inspect import find
from penstock.runtime.storage.contents import complete
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery

_CAUSE_S = 2.0
_CATCH_UP_S = 60.0
"""The old version is held meanwhile; the new one had caught up a moment before."""


def alter_query(engine: Engine, s: st.AlterQuery) -> None:
    """Replaces the query of a stream or view. Objects that read it, its sinks and its subscribers stay, and see one sequence of changes:

    1. the new version is a hidden view, which is computed from the inputs while the old version goes on;
    2. when it has caught up, both come to rest between two epochs;
    3. the catalogue gets the new version: here the statement takes effect;
    4. the difference between both results is one commit, and the job of the new version goes on in place of the old.

    Whatever fails before the third step leaves the old version running. Without REBUILD, the operators of the new version are those of the old one, which may
    compute other aggregates, and append-only results go on: nothing is recomputed.
    """
    with engine.ddl:
        info = _target(engine, s)
        text = f"CREATE {info.kind.value.upper()} `{info.name}` AS {s.query.text}"
        query = bind(s.query, engine.catalog)
        if not s.rebuild and not info.changelog:
            continue_with(engine, info, s.query, query, text)
            return
        if not s.rebuild and (why := obstacle(engine.jobs.plan(info).query, query)) is not None:
            raise fail(
                "PSK-6018",
                f"The new query of {info.name} does not continue the old one. Of {why}.",
                hint=f"ALTER {info.kind.value.upper()} {info.name} AS … REBUILD computes it from its inputs.",
            )
        version = _beside(engine, info, s, query, text)
    try:
        _follow(engine, info, version)
        crash_point("swap.built")
        with engine.ddl:
            switch(engine, info, version)
    except BaseException:
        discard(engine, version)
        raise


def _target(engine: Engine, s: st.AlterQuery) -> ObjectInfo:
    info = find(engine, s.name)
    kind = info.kind.value
    if kind != s.kind:
        raise fail("PSK-1008", f"{info.name} is a {kind}.", hint=f"ALTER {kind.upper()} {info.name} AS …")
    if info.kind not in (Kind.STREAM, Kind.VIEW) or info.role is not Role.USER:
        raise fail("PSK-1008", f"{info.name} has no query of its own that could be altered.")
    check_alterable(engine, info, s.query)
    if s.rebuild and not info.changelog:
        raise fail("PSK-6003", f"{info.name} cannot be altered: its rows cannot be retracted.", hint=otherwise(info))
    if info.changelog and info.kind is Kind.STREAM and not complete(engine.log, info.id):
        raise fail(
            "PSK-5011",
            f"{info.name} cannot be altered: what it has emitted is no longer retained, and cannot be retracted.",
            hint=otherwise(info),
        )
    return info


def check_alterable(engine: Engine, info: ObjectInfo, parsed: ParsedQuery) -> None:
    """Refuses to replace a query that is not on its own, or now."""
    if version_of(engine.storage, info) is not None:
        raise fail("PSK-6017", f"Another statement is altering {info.name}.", hint="Wait until it is done.")
    if not engine.running:
        raise fail(
            "PSK-7006",
            "The pipeline is stopped, so the new query cannot be computed.",
            hint="START PIPELINE starts it.",
        )
    owned = [o for o in engine.catalog.objects() if o.owner_id == info.id and not (o.role is Role.ERRORS and o.hidden)]
    if parsed.late_to is not None or parsed.errors_to is not None or owned:
        raise fail(
            "PSK-1012", "A query with side streams or on-demand lookups cannot be altered.", hint=otherwise(info)
        )


def _beside(engine: Engine, info: ObjectInfo, s: st.AlterQuery, query: p.Query, text: str) -> ObjectInfo:
    """Starts the new version. Refused if readers would notice more than other rows."""
    check_inputs(engine, info, query)
    with drafting(engine) as draft:
        version = add_query(
            draft,
            f"__version_{info.id}",
            Kind.VIEW,
            s.query,
            text,
            Role.VERSION,
            info.id,
            bound=query,
            rules=info.options.get("rules"),
        )
        planned = engine.jobs.planned[version.id]
        check_result(info, version.columns, version.key, planned.compiled)
    return version


def check_inputs(engine: Engine, info: ObjectInfo, query: p.Query) -> None:
    """Refuses a query that would read itself, or what is no longer there."""
    check_cycle(engine, info, query)
    for o in [engine.catalog.by_id(i) for i in sorted(set(scanned(query))) if engine.catalog.has_id(i)]:
        if o.on_demand:
            raise fail("PSK-1012", "A query with on-demand lookups cannot be altered.", hint=otherwise(info))
        if not o.has_contents and not complete(engine.log, o.id):
            raise fail(
                "PSK-5011",
                f"{info.name} cannot be computed: the history of {o.name} is no longer complete.",
                hint=otherwise(info),
            )


def _follow(engine: Engine, info: ObjectInfo, version: ObjectInfo) -> None:
    """Waits until the new version has caught up."""
    for _ in range(2):  # What came while it caught up takes less time.
        engine.jobs.settle(version, engine.log.head, None)
    check_computed(engine, version, f"The new version of {info.name}")


def check_computed(engine: Engine, version: ObjectInfo, name: str) -> None:
    """Refuses a version that has rows that cannot be computed."""
    errors = engine.storage.owned(version.id, Role.ERRORS)
    uncomputed = engine.jobs.uncomputed([version]) if errors is not None and engine.store.count(errors.id) else None
    if uncomputed is not None:
        raise fail(
            "PSK-6019",
            f"{name} has rows that cannot be computed. {uncomputed.detail}",
            hint="Delete or correct them, or guard the expression (try_divide, try_cast …).",
        ) from uncomputed


def _trouble(engine: Engine, version: ObjectInfo, wait_s: float) -> Trouble | None:
    """What is wrong with the new version. One that has left its job has a cause, which its thread is about to report."""
    deadline = time.monotonic() + wait_s
    while (found := engine.jobs.trouble(version)) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def switch(engine: Engine, before: ObjectInfo, version: ObjectInfo) -> None:
    """A query becomes its new version, at one LSN. After an error the old version runs on."""
    jobs, catalog, hosted = engine.jobs, engine.catalog, engine.jobs.hosted
    if not (engine.running and catalog.has_id(version.id) and catalog.has_id(before.id)):
        raise fail("PSK-6019", f"{before.name} was dropped, or the pipeline stopped, before it was altered.")
    info, version = catalog.by_id(before.id), catalog.by_id(version.id)
    policies = {k: v for k, v in info.options.items() if k.startswith("policy.")}
    altered = replace(
        info,
        columns=version.columns,
        times=version.times,
        options=version.options | policies,
        depends_on=version.depends_on,
        sql=version.sql,
        expands=version.expands,
        order=version.order,
    )
    planned = jobs.planned[version.id]
    alone, apart = not hosted.member(info.id), not hosted.member(version.id)
    with ExitStack() as last, ExitStack() as undo:
        last.callback(hosted.close_empty)
        if alone:
            undo.callback(lambda: jobs.attempt([info], lambda: jobs.start(info)))
            jobs.stop(info)
        with ExitStack() as held:
            held.enter_context(hosted.at_rest(info))
            # The new version must not be behind: what the old one has taken in would come a second time. In one job both are equally far, and nothing moves.
            reached, deadline = engine.log.covered(info.id).reach, time.monotonic() + _CATCH_UP_S
            together = not alone and hosted.key(info.id) == hosted.key(version.id)
            if not together and not jobs.settle(version, reached, deadline):
                raise fail("PSK-6019", f"The new version of {info.name} has not caught up within {_CATCH_UP_S:g} s.")
            held.enter_context(hosted.at_rest(version))
            lost = version.id not in jobs.by_object or not (apart or hosted.member(version.id))
            trouble = _trouble(engine, version, _CAUSE_S if lost else 0.0)
            if trouble is not None or lost:
                error = trouble.error if trouble is not None else None
                raise error or fail("PSK-6019", f"The new version of {info.name} has ended.")
            if apart:
                jobs.stop(version)
            with uninterrupted():
                _take(engine, info, altered, version, planned)
                undo.pop_all()
    if apart:
        jobs.planned.pop(info.id, None)
        # Its status says why it could not be started.
        jobs.attempt([altered], lambda: jobs.start(altered))


def _take(engine: Engine, info: ObjectInfo, altered: ObjectInfo, version: ObjectInfo, planned: Planned) -> None:
    jobs, catalog, storage = engine.jobs, engine.catalog, engine.storage
    base = jobs.after(info.id).base
    errors = None
    if storage.owned(version.id, Role.ERRORS) is not None and jobs.errors_of(info) is None:
        errors = errors_info(catalog.new_id(), altered, None)
    hosting, solo, plan = dict(catalog.hosted), catalog.solo.get(info.id), catalog.plans.get(info.id)
    with catalog.edit():
        catalog.change(replace=[altered], add=[errors] if errors is not None else [])
        mark_taken(storage, version)
        catalog.plans[info.id] = planned.signature.to_text()
        catalog.solo[info.id] = Solo(jobs.begin(version).start, base)
        if jobs.hosted.member(version.id):
            catalog.solo.pop(info.id)
        jobs.hosted.inherit(info, version, base)
    crash_point("swap.decided")
    storage.renew(altered)
    try:
        if errors is not None:
            engine.attach(errors)
        commit_difference(storage, altered, version)
    except BaseException:
        with catalog.edit():
            catalog.change(replace=[info, version], remove=[errors.id] if errors is not None else [])
            catalog.hosted.update(hosting)
            catalog.plans.update({info.id: plan} if plan is not None else {})
            catalog.solo.pop(info.id, None)
            catalog.solo.update({info.id: solo} if solo is not None else {})
        storage.renew(info)
        if errors is not None:
            remove_remains(engine, errors)
        raise
    folder = storage.layout.job(info.id)
    moved = tuple(replace(seed, path=str(folder / Path(seed.path).name)) for seed in planned.seeds)
    jobs.planned[info.id] = replace(planned, output_ids=(info.id,), seeds=moved)
    jobs.planned.pop(version.id, None)
    jobs.hosted.become(altered, version, jobs.planned[info.id])
    become(storage, altered, version)
    jobs.resumed(altered)


def discard(engine: Engine, version: ObjectInfo) -> None:
    """Removes a version that was not taken."""
    with engine.ddl, uninterrupted():
        if not engine.catalog.has_id(version.id) or taken(engine.catalog.by_id(version.id)):
            return
        errors = engine.storage.owned(version.id, Role.ERRORS)
        gone = [o for o in (errors, version) if o is not None]
        engine.catalog.remove(*(o.id for o in gone))
        for o in gone:
            remove_remains(engine, o)
        engine.jobs.hosted.close_empty()
