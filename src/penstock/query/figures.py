"""Figures of a query: of its compilation, and of its work so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueryMetadata:
    """Times in seconds. `parse_time`, `plan_time`, `extract_time`: text to statement, to plan, to pipelines. `compile_time`: Spark's share; 0 if the
    plan was in the cache. A pipeline is a chain of stateless steps. `native_pipelines` run in code that Spark generates;
    `kernel_pipelines` have a step that can fail and runs in the kernel's code; `interpreted_pipelines` run without generated code, each for a reason in `fallbacks`.
    """

    parse_time: float
    plan_time: float
    extract_time: float
    compile_time: float
    native_pipelines: int
    kernel_pipelines: int
    interpreted_pipelines: int
    fallbacks: tuple[str, ...]
    ring1_operator_count: int
    jit_enabled: bool
    cached: bool

    @property
    def compiled_pipeline_count(self) -> int:
        return self.native_pipelines + self.kernel_pipelines

    @property
    def fallback_pipeline_count(self) -> int:
        return self.interpreted_pipelines


@dataclass(frozen=True)
class QueryMetrics:
    """Counted since `start`. Ring 0 is `submit` and the stateless steps below the first operator, the bridge is the log, ring 1 the epochs.

    `ring0_events_in`: rows accepted by `submit`, except invalid ones. `ring0_events_out`, `ring0_events_dropped`: rows that passed the stateless steps, and rows
    that a filter there dropped, in the epochs so far. `ring0_total_ns`, `ring0_p99_ns`: time in `submit`, in total and per row.
    `bridge_pending`: rows that no epoch has processed yet. `bridge_batches_flushed`: commits. `ring1_total_ns`: the duration of all epochs.
    """

    ring0_events_in: int
    ring0_events_out: int
    ring0_events_dropped: int
    ring0_total_ns: int
    ring0_p99_ns: int
    bridge_pending: int
    bridge_backpressure_drops: int
    bridge_batches_flushed: int
    ring1_batches_processed: int
    ring1_events_out: int
    ring1_total_ns: int
    pipelines_compiled: int
    pipelines_fallback: int
    cache_hit_rate: float
