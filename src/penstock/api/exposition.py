"""The figures of a database as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.runtime.engine import Engine
from penstock.runtime.statements.inspect import ObjectStatus, status
from penstock.runtime.statements.totals import database_status
from penstock.serve.figures import SubscriptionFigures

_OBJECT = ("object", "kind")
_SUBSCRIPTION = ("id", "name", "object")

OBJECTS: tuple[tuple[str, str, str], ...] = (
    ("rows_total", "rows", "Rows in, for a source or table, or out, for a query or sink, since it was created."),
    ("rows_in_total", "rows_in", "Rows of its inputs that a query has processed."),
    ("rows_per_second", "rows_per_s", "Rows a second, over the last ten seconds."),
    ("pending_rows", "pending_rows", "Rows that wait: of a source for queries, of a query or sink of its inputs."),
    ("pending_bytes", "pending_bytes", "Their size in the log."),
    ("error_rows", "error_rows", "Rows that a query could not compute, diverted ones, too."),
    ("dropped_rows_total", "dropped_rows", "Rows that a connector has dropped because its source was full."),
    ("epochs_total", "epoch", "Commits of the object."),
    ("lsn", "lsn", "The last commit of the object."),
    ("lag_seconds", "lag_ms", "The age of the oldest row that is not processed."),
    ("watermark_seconds", "watermark", "The watermark, in Unix time."),
    ("watermark_lag_seconds", "watermark_lag_ms", "How far the watermark is behind the clock."),
    ("late_rows_total", "late_rows", "Rows that were too late for every window."),
    ("null_time_rows_total", "dropped_null_time", "Rows without an event time."),
    ("future_rows_total", "future_rows", "Rows whose event time is too far ahead to count."),
    ("retained_bytes", "retained_bytes", "What the log keeps of the object."),
    ("subscribers", "subscribers", "Open subscriptions."),
    ("state_rows", "state_rows", "Rows of state of all operators."),
    ("state_bytes", "state_bytes", "Bytes of state of all operators."),
)
"""Name, field of `ObjectStatus`, and meaning of each figure of an object."""

DATABASE: tuple[tuple[str, str, str], ...] = (
    ("uptime_seconds", "uptime_s", "Since the database was opened."),
    ("opened_total", "opened", "How often it was opened."),
    ("failing_objects", "failing", "Objects with an error."),
    ("rows_in_total", "rows_in", "Rows of all sources and tables."),
    ("rows_in_per_second", "rows_in_per_s", "The same a second."),
    ("rows_out_total", "rows_out", "Rows of all streams and views."),
    ("rows_out_per_second", "rows_out_per_s", "The same a second."),
    ("rows_delivered_total", "rows_delivered", "Rows that sinks have delivered."),
    ("pending_rows", "pending_rows", "Rows that wait for queries and sinks."),
    ("pending_bytes", "pending_bytes", "Their size in the log."),
    ("late_rows_total", "late_rows", "Rows that were too late."),
    ("dropped_rows_total", "dropped_rows", "Rows that were dropped: of full sources, and without an event time."),
    ("error_rows", "error_rows", "Rows that could not be computed."),
    ("state_rows", "state_rows", "Rows of state of all queries."),
    ("state_bytes", "state_bytes", "Bytes of state of all queries."),
    ("subscriptions", "subscriptions", "Open subscriptions."),
    ("subscriptions_behind", "subscriptions_behind", "Those that read from the log or wait for a resync."),
    ("recovery_seconds", "recovery_ms", "How long the last open took to recover the objects."),
    ("queries_rolled_back_total", "rolled_back", "Queries that went back to a checkpoint."),
    ("restored_checkpoint", "restored", "The checkpoint that the database was last restored from."),
)
"""Name, field of `DatabaseStatus`, and meaning of each figure of the database."""

SUBSCRIPTIONS: tuple[tuple[str, str, str], ...] = (
    ("messages_total", "messages", "Messages delivered."),
    ("rows_total", "rows", "Rows delivered."),
    ("bytes_total", "bytes", "Bytes of the messages delivered."),
    ("dropped_epochs_total", "dropped", "Epochs that a snapshot or a newer message replaced."),
    ("resyncs_total", "resyncs", "Resyncs delivered."),
    ("pending_messages", "pending_messages", "Messages that wait in memory."),
    ("pending_bytes", "pending_bytes", "Bytes that wait in memory."),
    ("behind", "behind", "1 if the next changes come from the log or a resync."),
    ("lsn", "lsn", "The LSN that the reader has reached."),
)


class DatabaseCollector(Collector):
    """Reads the figures on collection; it keeps and counts nothing itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        objects = status(engine)
        whole = database_status(engine, objects)
        for name, field, text in DATABASE:
            value = getattr(whole, field)
            if value is not None:
                family = _family(f"penstock_database_{name}", text, ())
                family.add_metric([], value / 1000 if field.endswith("_ms") else value)
                yield family
        yield _gauge("penstock_log_head_lsn", "The last commit.", engine.log.head)
        yield _gauge("penstock_log_size_bytes", "The size of the log on disk.", engine.log.size)
        yield from _checkpoints(engine)
        state = GaugeMetricFamily(
            "penstock_database_state", "1 for the state that the database is in.", labels=["state"]
        )
        state.add_metric([engine.lifecycle.state.value], 1)
        yield state
        for name, field, text in OBJECTS:
            family = _family(f"penstock_object_{name}", text, _OBJECT)
            for o in objects:
                value = getattr(o, field)
                if value is not None:
                    family.add_metric([o.name, o.kind], value / 1000 if name.endswith("_seconds") else value)
            yield family
        yield from self._states(objects)
        yield from self._epochs()
        yield from _watched(engine)
        yield from _subscriptions([s.figures for s in engine.hub.subscriptions()])

    def _states(self, objects: list[ObjectStatus]) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "penstock_object_state", "1 for the state that an object is in.", labels=[*_OBJECT, "state"]
        )
        failing = GaugeMetricFamily("penstock_object_failing", "1 for an object with an error.", labels=_OBJECT)
        rows = GaugeMetricFamily("penstock_operator_state_rows", "Rows of state.", labels=["object", "operator"])
        size = GaugeMetricFamily("penstock_operator_state_bytes", "Bytes of state.", labels=["object", "operator"])
        for o in objects:
            states.add_metric([o.name, o.kind, o.state], 1)
            failing.add_metric([o.name, o.kind], o.error is not None)
            for i, operator in enumerate(o.operators):
                rows.add_metric([o.name, f"{i} {operator.name}"], operator.state_rows)
                size.add_metric([o.name, f"{i} {operator.name}"], operator.state_bytes)
        yield from (states, failing, rows, size)

    def _epochs(self) -> Iterator[Metric]:
        """The durations of each job's epochs, by phase."""
        labels = ["job", "phase"]
        count = CounterMetricFamily("penstock_epochs_total", "Epochs of a job since it was started.", labels=labels)
        total = CounterMetricFamily("penstock_epoch_seconds_total", "The time of all of them.", labels=labels)
        parts = GaugeMetricFamily(
            "penstock_epoch_seconds", "Half, or 99 of 100, epochs take no longer.", labels=[*labels, "quantile"]
        )
        over = CounterMetricFamily(
            "penstock_epochs_over_total", "Epochs that took longer than engine.max_epoch_ms.", labels=["job"]
        )
        for job in self._engine.jobs:
            over.add_metric([job.name], job.spec.pace.over)
            for phase, timing in (("compute", job.figures.computing), ("record", job.figures.recording)):
                count.add_metric([job.name, phase], timing.count)
                total.add_metric([job.name, phase], timing.total_ms / 1000)
                for share in (0.5, 0.99):
                    found = timing.percentile(share)
                    if found is not None:
                        parts.add_metric([job.name, phase, str(share)], found / 1000)
        yield from (count, total, parts, over)


def _checkpoints(engine: Engine) -> Iterator[Metric]:
    counts, kept = engine.storage.totals.database, engine.checkpoints.kept
    for outcome, count in (("completed", counts.completed), ("failed", counts.failed)):
        yield CounterMetricFamily(f"penstock_checkpoints_{outcome}", f"Checkpoints that {outcome}.", value=count)
    for outcome, count in (("completed", counts.uploaded), ("failed", counts.upload_failed)):
        yield CounterMetricFamily(f"penstock_checkpoint_uploads_{outcome}", f"Uploads that {outcome}.", value=count)
    if engine.uploads.enabled:
        failing = engine.uploads.error is not None
        yield _gauge("penstock_checkpoint_upload_failing", "1 if the last upload failed.", int(failing))
    if engine.uploads.last is not None:
        yield _gauge("penstock_checkpoint_uploaded_id", "The newest checkpoint at checkpoint.url.", engine.uploads.last)
    if kept:
        last = kept[-1]
        yield _gauge("penstock_checkpoint_last_id", "The newest checkpoint.", last.id)
        yield _gauge("penstock_checkpoint_last_bytes", "Its size; files that it shares count.", last.bytes)
        yield _gauge("penstock_checkpoint_last_duration_seconds", "How long it took.", last.duration_ms / 1000)


def _watched(engine: Engine) -> Iterator[Metric]:
    """The figures of streaming queries with a lifecycle, under the names of `QueryMetrics`."""
    found = [(w.label, w.figures()) for w in list(engine.watched)]
    for name in dict.fromkeys(n for _, figures in found for n in figures):
        family = GaugeMetricFamily(f"penstock_query_{name}", "See QueryMetrics.", labels=["query"])
        for label, figures in found:
            if name in figures:
                family.add_metric([label], figures[name])
        yield family


def _subscriptions(figures: list[SubscriptionFigures]) -> Iterator[Metric]:
    for name, field, text in SUBSCRIPTIONS:
        family = _family(f"penstock_subscription_{name}", text, _SUBSCRIPTION)
        for s in figures:
            family.add_metric([str(s.id), s.name or "", s.object], float(getattr(s, field)))
        yield family


def registry(engine: Engine) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(DatabaseCollector(engine))
    return made


def _family(name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
