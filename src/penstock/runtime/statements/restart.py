"""RESTART: one query or sink is stopped and started again."""

from __future__ import annotations

from penstock.catalog.objects import Kind
from penstock.errors import fail
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.statements.inspect import find
from penstock.sql import statements as st


def restart(engine: Engine, s: st.Restart) -> None:
    """Goes on from the checkpoint; FROM BEGINNING takes all results back and computes them again from what the query reads."""
    with engine.ddl:
        info = find(engine, s.name)
        if info.kind.value != s.kind:
            raise fail(
                "PSK-1008",
                f"{info.name} is a {info.kind.value}.",
                hint=f"RESTART {info.kind.value.upper()} {info.name}",
            )
        if info.kind not in (*QUERIES, Kind.SINK):
            raise fail("PSK-1008", f"{info.name} is a {info.kind.value}; queries and sinks are restarted.")
        if not engine.running:
            raise fail("PSK-7006", "The pipeline is stopped.", hint="START PIPELINE starts all queries.")
        if info.kind is Kind.SINK:
            if s.beginning:
                raise fail(
                    "PSK-1012", "A sink cannot take back what it has delivered.", hint="Leave FROM BEGINNING out."
                )
            if (running := engine.sinks.pop(info.id, None)) is not None:
                running.stop()
            engine.start_sink(info)
            return
        queries = [*engine.jobs.probes(info), info]
        if s.beginning:
            for one in queries:
                engine.jobs.check_repeatable(one)
        for one in queries:
            engine.jobs.halt(one)
            if s.beginning:
                engine.jobs.lose(one)
        for one in queries:
            engine.jobs.start(one)
