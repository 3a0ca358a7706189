"""OpenTelemetry spans for statements and epochs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.unit.runtime import engines
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import settings

from penstock.errors import PenstockError
from penstock.runtime.tracing import Tracing


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    traced = settings()
    traced = traced.model_copy(update={"logging": traced.logging.model_copy(update={"tracing": True})})
    monkeypatch.setattr(engines, "settings", lambda: traced)
    yield exporter
    provider.shutdown()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_statements_and_epochs_are_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: InMemorySpanExporter
) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING); CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t")
        db.engine.start()
        db.run("INSERT INTO t VALUES (1, 'secret'), (2, 'x')")
        db.rows("m")
        with pytest.raises(PenstockError):
            db.run("DROP TABLE nothing")
    spans = exported.get_finished_spans()
    names = [s.name for s in spans]
    assert names[:2] == ["CREATE TABLE", "CREATE VIEW"] and "INSERT" in names
    (failed,) = [s for s in spans if s.name == "DROP"]
    assert facts(failed)["error.type"] == "PSK-1002" and not failed.status.is_ok
    (epoch,) = [s for s in spans if s.name == "epoch" and facts(s)["penstock.rows"]]
    assert facts(epoch)["penstock.rows"] == 2 and facts(epoch)["penstock.lsn"] > 0
    phases = [s for s in spans if s.parent is not None and s.parent.span_id == epoch.context.span_id]
    assert [s.name for s in phases] == ["compute", "record"]
    compute, record = phases
    assert epoch.start_time == compute.start_time
    assert compute.end_time == record.start_time and record.end_time == epoch.end_time
    # No text and no values.
    assert "secret" not in "".join(s.to_json() for s in spans)


def test_a_tracer_that_fails_disturbs_nobody() -> None:
    class Broken:
        def start_span(self, *_: object, **__: object) -> object:
            raise ValueError("no")

    tracing = Tracing(True)
    tracing._tracer = Broken()
    tracing.epoch("j", 1, 2, 3, 4.0, 5.0)


def test_it_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    Tracing(False).epoch("j", 1, 2, 3, 4.0, 5.0)
    with pytest.raises(PenstockError, match=r"(?s)PSK-0001.*penstock\[tracing\]"):
        Tracing(True)
