"""OpenTelemetry spans for statements and epochs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, fail

if TYPE_CHECKING:
    from penstock.sql.statements import Statement

_SYSTEM = {"db.system.name": "penstock"}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Tracing:
    """Passes spans to the tracer of the process, which the program configures; without one they go nowhere. Off, it does nothing at all.

    Spans have no text of statements and no values: both may be confidential. An exporter that fails disturbs nobody.
    """

    def __init__(self, on: bool) -> None:
        self._tracer: Any = None
        if on:
            try:
                from opentelemetry import trace
            except ImportError:
                raise fail(
                    "PSK-0001",
                    "logging.tracing needs the package opentelemetry-api.",
                    hint='pip install "penstock[tracing]" installs it.',
                ) from None
            self._tracer = trace.get_tracer("penstock")

    @contextmanager
    def statement(self, statement: Statement) -> Iterator[None]:
        """A span around a statement."""
        if self._tracer is None:
            yield
            return
        name = _WORDS.sub(" ", type(statement).__name__).upper()
        with self._tracer.start_as_current_span(
            name,
            attributes=_SYSTEM | {"db.operation.name": name},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_attribute(
                    "error.type", error.code if isinstance(error, PenstockError) else type(error).__name__
                )
                _failed(span)
                raise

    def epoch(self, job: str, number: int, lsn: int, rows: int, compute_ms: float, record_ms: float) -> None:
        """An epoch that was recorded just now, with its two phases."""
        tracer = self._tracer
        if tracer is None:
            return
        with suppress(Exception):
            from opentelemetry import trace

            end = time.time_ns()
            computed = end - int(record_ms * 1e6)
            begin = computed - int(max(0.0, compute_ms) * 1e6)
            facts = {"penstock.job": job, "penstock.epoch": number, "penstock.lsn": lsn, "penstock.rows": rows}
            whole = tracer.start_span("epoch", attributes=_SYSTEM | facts, start_time=begin)
            within = trace.set_span_in_context(whole)
            for phase, since, until in (("compute", begin, computed), ("record", computed, end)):
                tracer.start_span(phase, context=within, start_time=since).end(end_time=until)
            whole.end(end_time=end)


def _failed(span: Any) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))
