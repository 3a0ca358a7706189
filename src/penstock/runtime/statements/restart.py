"""RESTART: stops and starts one query or sink."""

from __future__ import annotations

from penstock.catalog.objects import Kind
from penstock.errors import fail
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.statements.inspect import find
from penstock.sql import statements as st


def restart(engine: Engine, s: st.Restart) -> None:
    """Continues from the checkpoint; FROM BEGINNING retracts all results and recomputes them from the query's inputs."""
    with engine.ddl:
        info = find(engine, s.name)
        if info.kind.value != s.kind:
            raise fail(
                "PSK-1008",
                f"{info.name} is a {info.kind.value}.",
                hint=f"RESTART {info.kind.value.upper()} {info.name}",
            )
        if info.kind not in (*QUERIES, Kind.SINK):
            raise fail("PSK-1008", f"{info.name} is a {info.kind.value}; only queries and sinks can be restarted.")
        if not engine.running:
            raise fail("PSK-7006", "The pipeline is stopped.", hint="START PIPELINE starts all queries.")
        if info.kind is Kind.SINK:
            if s.beginning:
                raise fail("PSK-1012", "A sink cannot retract delivered rows.", hint="Leave FROM BEGINNING out.")
            if (running := engine.sinks.get(info.id)) is not None:
                running.stop()
            engine.start_sink(info)
            engine.refusals.pop(info.id, None)
            return
        queries = [*engine.jobs.probes(info), info]
        if s.beginning:
            for one in queries:
                engine.jobs.check_repeatable(one)
        for one in queries:
            if s.beginning:
                engine.jobs.lose(one)
            else:
                engine.jobs.halt(one)
        for one in queries:
            engine.jobs.start(one)
