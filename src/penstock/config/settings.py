"""The settings of a database: every section, key, default and bound."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from penstock.config.keys import parse_key


def _not_a_flag(value: object) -> object:
    # pydantic would accept True as 1.
    if isinstance(value, bool):
        raise ValueError("it must be a number, not true or false")
    return value


def _as_text(value: object) -> object:
    # Spark's flags and numbers are text; TOML and Python have types for them.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _folders(value: object) -> object:
    # The environment only has text: a JSON array, or folders separated as in PATH.
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        return tuple(part for part in value.split(os.pathsep) if part)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return tuple(os.fspath(part) if isinstance(part, os.PathLike) else part for part in value)
    return value


Count = Annotated[int, BeforeValidator(_not_a_flag)]
Text = Annotated[str, BeforeValidator(_as_text)]
Folders = Annotated[tuple[str, ...] | None, BeforeValidator(_folders)]


class Section(BaseModel):
    """A group of settings. Frozen; rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SparkSettings(Section):
    """The Spark session, one per process."""

    master: str = Field(
        default="local[*]",
        pattern=r"^(local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn)$",
        description="Where Spark runs: `local[n]`, or the address of a cluster manager.",
    )
    heap: str = Field(
        default="2g",
        pattern=r"^[1-9]\d*[kmgtKMGT]$",
        description="Maximum heap of the driver JVM, such as `512m` or `2g`.",
    )
    shuffle_partitions: Count = Field(
        default=2,
        ge=1,
        description="Number of partitions of every keyed operator. Fixed for a query once it has a checkpoint.",
    )
    class_archive: bool = Field(
        default=True,
        description="Keep an archive of the classes that Spark loads, and the command that starts its JVM, in the user's cache folder, for faster starts. "
        "`penstock prepare` writes the archive; otherwise it takes a few seconds when the first database on a machine is closed.",
    )
    conf: dict[str, Text] = Field(
        default_factory=dict,
        description="More Spark settings, by Spark's own names (`spark.conf.spark.ui.enabled`). Runtime settings of Spark apply to "
        "this database only, all others to the whole process.",
    )


class LogSettings(Section):
    """The commit log."""

    wal_mode: Literal["sync", "async"] = Field(
        default="sync",
        description="`sync`: a commit is on disk before it is acknowledged. `async`: it is acknowledged first and "
        "synced within `async_interval_ms`; a machine crash may lose the commits of that interval.",
    )
    async_interval_ms: Count = Field(default=50, ge=1, description="Maximum time between two syncs in `async` mode.")
    segment_bytes: Count = Field(default=67_108_864, ge=4096, description="A segment that reaches this size is closed.")
    retain_bytes: Count = Field(
        default=268_435_456,
        ge=0,
        description="History retained for each object whose statement has no `retain_history`.",
    )
    scrub_bytes: Count = Field(
        default=4_194_304,
        ge=0,
        description="How much of the log is verified each second, in the background, in bytes; 0: none. Damage is reported in the status of the objects whose rows are damaged.",
    )
    max_bytes: Count = Field(
        default=0,
        ge=0,
        description="Size limit of the log; 0: no limit. Above it, Penstock first drops retained history, then stops retaining rows for failed queries, "
        "and then rejects new rows (PSK-5013) until the readers that hold the log (`SHOW LOG`) catch up.",
    )


class EngineSettings(Section):
    """The jobs that maintain streams and views."""

    max_rows_per_epoch: Count = Field(
        default=2_000_000,
        ge=1,
        description="An epoch reads whole commits until it has this many rows; the rest waits for the next epoch.",
    )
    max_replica_rows: Count = Field(
        default=250_000,
        ge=0,
        description="A lookup join with a table of at most this many rows when it is created has a replica of the table in the JVM, so its rows are not shuffled; "
        "one with a larger table keeps it as state.",
    )
    warm_up_cpu_ms: Count = Field(
        default=0,
        ge=0,
        description="CPU time of a new JVM, after its start, up to which it is warmed up, in milliseconds; 0: not at all; 10,000 are enough. While the database is idle, synthetic rows go through a temporary "
        "database of their own, so that the code that rows go through is compiled before the first row needs it. The program's own work counts.",
    )
    gather_ms: Count = Field(
        default=200,
        ge=0,
        description="How long a query that emits only closed windows gathers rows between two epochs; 0: not at all. It reads at once when a window closes, when 50,000 rows wait, and when "
        "`flush`, a read or a checkpoint waits for it. Late rows that go to a side stream can be this much later.",
    )
    poll_timeout_ms: Count = Field(
        default=200,
        ge=1,
        description="How long an idle job waits for a commit before it returns control to Spark.",
    )
    max_state_bytes: Count = Field(
        default=0,
        ge=0,
        description="Size limit of the state of all queries together, in bytes; 0: no limit. A query whose state grows while the limit is reached fails (PSK-4002). "
        "For single queries there are the options `max_state_bytes` and `max_operator_state_bytes`.",
    )
    max_epoch_ms: Count = Field(
        default=10_000,
        ge=0,
        description="How long an epoch should take at most; 0: any time. After one that takes longer, the query reads fewer rows at a time, until its epochs take less again. `penstock_epochs_over_total` counts them.",
    )
    shutdown_timeout_ms: Count = Field(
        default=60_000,
        ge=1,
        description="How long `close` and `STOP PIPELINE` wait for queries, sinks and connectors, in all. What has not stopped by then is left behind, and named in the log of Python; nothing committed is lost.",
    )
    release_failed_ms: Count = Field(
        default=86_400_000,
        ge=0,
        description="A query that has been failed for longer than this no longer prevents the log from being trimmed. When it is "
        "restarted, its results are recomputed from the beginning.",
    )
    max_future_skew_ms: Count = Field(
        default=300_000,
        ge=0,
        description="A row further than this ahead of the wall clock does not advance the watermark, "
        "unless the source says otherwise.",
    )
    max_pending_rows: Count = Field(
        default=0,
        ge=0,
        description="Rows of a source that a running query has not processed, from which on no more are accepted; 0: no limit. For sources without the option `max_pending_rows`.",
    )
    max_pending_bytes: Count = Field(
        default=0,
        ge=0,
        description="The same in bytes of the log; 0: no limit. For sources without the option `max_pending_bytes`.",
    )
    full_timeout_ms: Count = Field(
        default=30_000,
        ge=0,
        description="How long rows wait that are inserted into a source which has reached one of these limits, with `on_full = 'block'`; then they are refused (PSK-5020). "
        "A connector waits without a limit.",
    )
    drift_timeout_ms: Count = Field(
        default=30_000,
        ge=0,
        description="How long rows wait that are inserted into a source which is too far ahead of its `watermark_group`, with "
        "`on_drift = 'pause'`; then they are refused (PSK-5014). A connector waits without a limit.",
    )


class CheckpointSettings(Section):
    """Checkpoints, from which queries go on after a power cut."""

    interval_ms: Count = Field(
        default=30_000,
        ge=0,
        description="How often a checkpoint is made while queries make progress; 0: only `CHECKPOINT` and `close` make one. The log keeps what queries have read since.",
    )
    max_retained: Count = Field(
        default=2,
        ge=1,
        description="How many checkpoints are kept. The log keeps what queries have read since the oldest of them.",
    )
    timeout_ms: Count = Field(
        default=300_000,
        ge=1,
        description="How long a checkpoint may take: CHECKPOINT waits so long for queries (PSK-0010), and its files are written to disk within the same time, or it is given up (PSK-6014).",
    )
    url: str = Field(
        default="",
        pattern=r"^([a-z][a-z0-9+.-]*://[^@]*)?$",
        description="Where each completed checkpoint is copied to, besides: `file:///mnt/backups/shop`, or `s3://bucket/prefix`, whose credentials are those of the environment. `max_retained` of them are kept there, too. "
        "A database can be made from any of them (`penstock checkpoint import`). Nothing waits for it; the status shows a failure. No two databases can share a place.",
    )


class ServeSettings(Section):
    """The contents of tables and views, and the queries on them."""

    memory_limit: str = Field(
        default="2gb",
        pattern=r"^[1-9]\d* ?[kmgtKMGT][iI]?[bB]$",
        description="Memory limit for contents, and for the result of one query, such as `512mb` or `4gb`. Contents above it are spilled to the "
        "database folder; a larger result is refused (`PSK-7009`). Indexes for reads by key take up to a quarter of it in addition.",
    )
    object_memory: str = Field(
        default="128mb",
        pattern=r"^[1-9]\d* ?[kmgtKMGT][iI]?[bB]$",
        description="A table or view with more rows than fit in this is kept on disk, with an index on its key; so is the largest when all together have more than half of `memory_limit`. Its newest changes, "
        "a quarter of this, are in memory.",
    )


class SubscribeSettings(Section):
    """The in-memory buffer of a slow subscriber. Changes that do not fit are read from the log."""

    buffer_bytes: Count = Field(
        default=16_777_216, ge=1, description="Size limit of the buffer, unless `subscribe` sets one."
    )
    buffer_messages: Count = Field(default=4096, ge=1, description="Maximum number of buffered changes.")


class ReadSettings(Section):
    """What a SELECT sees."""

    consistency: Literal["strong", "eventual"] = Field(
        default="strong",
        description="`strong`: a SELECT sees everything that this database committed before it, and waits for the queries it reads from "
        "to catch up. `eventual`: it reads the current contents.",
    )
    timeout_ms: Count = Field(
        default=60_000,
        ge=1,
        description="How long a `strong` SELECT waits for the queries it reads from before it fails with PSK-0010.",
    )
    stale: bool = Field(
        default=False,
        description="Let SELECT read the last contents of failed and stopped queries, as `WITH (stale = true)` does for one SELECT.",
    )


class DeliverySettings(Section):
    """What sinks promise."""

    guarantee: Literal["auto", "at-least-once", "exactly-once"] = Field(
        default="auto",
        description="The guarantee of sinks without the option `guarantee`. `auto`: each delivers exactly once if it can, and otherwise at least once. "
        "`exactly-once`: a sink that cannot is refused (PSK-5030, PSK-5031, PSK-5032).",
    )
    write_timeout_ms: Count = Field(
        default=60_000,
        ge=1,
        description="How long one call of a sink may take, unless it has the option `write_timeout`. Then it is cancelled and tried again (PSK-5016).",
    )


class SecuritySettings(Section):
    """What SQL may access outside the database. Neither `SET` nor the file in the database folder can change it."""

    allowed_roots: Folders = Field(
        default=None,
        description="Folders that connectors may access, with everything below them. `null`: the working directory, the "
        "database folder and the temporary folder. In the environment: a JSON array, or folders separated as in `PATH`.",
    )
    allow_programs: bool = Field(
        default=False,
        description="Allow SQL that runs programs or Java methods, or reads files: `TRANSFORM … USING`, `reflect`, and the other functions "
        "listed on the security page.",
    )
    allow_python_imports: bool = Field(
        default=False,
        description="Allow `INTO PYTHON (callable = 'module:function')`. Otherwise only functions registered with `db.register_callable` can be called.",
    )


class LoggingSettings(Section):
    """What the process reports about itself, beside the errors that it raises."""

    file: bool = Field(
        default=False,
        description="Write reports to `logs/penstock.jsonl` in the database folder, one JSON object per line; `penstock logs` shows them. The three "
        "last files of 10 MB are kept.",
    )
    status: bool = Field(
        default=False,
        description="Write the figures of all objects and subscriptions to `logs/status.json` once a second, for `penstock top`.",
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important reports that the file gets."
    )
    tracing: bool = Field(
        default=False,
        description="Create OpenTelemetry spans for statements and epochs, with the tracer provider of the process. Needs the package `opentelemetry-api` (`penstock[tracing]`).",
    )


class Settings(Section):
    """All settings of one database. `Settings()` has the defaults; `load_settings` reads the other layers."""

    spark: SparkSettings = SparkSettings()
    log: LogSettings = LogSettings()
    engine: EngineSettings = EngineSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    serve: ServeSettings = ServeSettings()
    subscribe: SubscribeSettings = SubscribeSettings()
    read: ReadSettings = ReadSettings()
    delivery: DeliverySettings = DeliverySettings()
    security: SecuritySettings = SecuritySettings()
    logging: LoggingSettings = LoggingSettings()
    variables: dict[str, Text] = Field(
        default_factory=dict, description="Values for `${NAME}` in option values. They override the environment."
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def origin(self, key: str) -> str:
        """Where the value of a dotted key came from: `default`, the file, the environment variable, or `config`.

        For a whole map, the origins of its entries. Raises PSK-0001 for an unknown key.
        """
        name = str(parse_key(type(self), key))
        found = {origin for known, origin in self._origins.items() if known == name or known.startswith(f"{name}.")}
        return ", ".join(sorted(found)) or "default"
