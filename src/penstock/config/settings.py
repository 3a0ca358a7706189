"""The settings of a database: every section, key, default and bound."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from penstock.config.keys import parse_key


def _not_a_flag(value: object) -> object:
    # pydantic would take True for 1.
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")
    return value


def _as_text(value: object) -> object:
    # Spark writes its flags and numbers as text; TOML and Python have types for them.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _folders(value: object) -> object:
    # In the environment there is only text: a JSON array, or folders with the separator of PATH between them.
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
    """A group of settings. Frozen; a key that it does not have is refused."""

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
        description="The largest heap of the driver JVM, such as `512m` or `2g`.",
    )
    shuffle_partitions: Count = Field(
        default=2, ge=1, description="Partitions of every keyed operator. Fixed for a query once it has a checkpoint."
    )
    class_archive: bool = Field(
        default=True,
        description="Keep the classes that Spark has loaded in the user's cache folder, which makes later starts faster. The "
        "first database that is closed on a machine takes some seconds to write them.",
    )
    conf: dict[str, Text] = Field(
        default_factory=dict,
        description="Further Spark settings, by Spark's own names (`spark.conf.spark.ui.enabled`). Those that Spark can change while it "
        "runs hold for this database alone, the others for the process.",
    )


class LogSettings(Section):
    """The commit log."""

    wal_mode: Literal["sync", "async"] = Field(
        default="sync",
        description="`sync`: a commit is on disk before it is acknowledged. `async`: it is acknowledged first and "
        "synced within `async_interval_ms`; a crash of the machine may lose that much.",
    )
    async_interval_ms: Count = Field(default=50, ge=1, description="Longest time between two syncs in `async` mode.")
    segment_bytes: Count = Field(
        default=67_108_864, ge=4096, description="A segment that has grown to this size is closed."
    )
    retain_bytes: Count = Field(
        default=268_435_456,
        ge=0,
        description="History kept of each object whose statement does not say `retain_history`.",
    )
    max_bytes: Count = Field(
        default=0,
        ge=0,
        description="How large the log may become; 0: no limit. Beyond it history goes first, then queries that have failed no longer hold anything, "
        "and then new rows are refused (PSK-5013) until those who hold the log (`SHOW LOG`) have read on.",
    )


class EngineSettings(Section):
    """The jobs that maintain streams and views."""

    max_rows_per_epoch: Count = Field(
        default=2_000_000,
        ge=1,
        description="An epoch takes in whole commits until it has this many rows; the rest waits.",
    )
    poll_timeout_ms: Count = Field(
        default=200,
        ge=1,
        description="How long a job without input waits for a commit before it hands control back to Spark.",
    )
    release_failed_ms: Count = Field(
        default=86_400_000,
        ge=0,
        description="A query that has failed for longer than this no longer keeps the log from being trimmed. When it is restarted, its "
        "results are made again from the beginning.",
    )
    max_future_skew_ms: Count = Field(
        default=300_000,
        ge=0,
        description="A row further than this past the wall clock does not move the watermark, "
        "where the source does not say otherwise.",
    )


class ServeSettings(Section):
    """The contents of tables and views, and the queries on them."""

    memory_limit: str = Field(
        default="2gb",
        pattern=r"^[1-9]\d* ?[kmgtKMGT][iI]?[bB]$",
        description="Memory for contents, and for the result of one query, such as `512mb` or `4gb`. Contents beyond it are spilled to the folder of "
        "the database; a result beyond it is refused (`PSK-7009`).",
    )


class SubscribeSettings(Section):
    """What waits in memory for a subscriber that is slower than its stream. What it misses beyond that is read from the log."""

    buffer_bytes: Count = Field(
        default=16_777_216, ge=1, description="Bytes that may wait, where `subscribe` does not say."
    )
    buffer_messages: Count = Field(default=4096, ge=1, description="Changes that may wait.")


class ReadSettings(Section):
    """What a SELECT may see."""

    consistency: Literal["strong", "eventual"] = Field(
        default="strong",
        description="`strong`: a SELECT sees everything that this database had committed before it, and waits for the queries that it "
        "reads from. `eventual`: it reads what is there.",
    )
    timeout_ms: Count = Field(
        default=60_000,
        ge=1,
        description="How long a `strong` SELECT waits for the queries that it reads from (PSK-0010 then).",
    )
    stale: bool = Field(
        default=False,
        description="Let SELECT read what is there of queries that have failed or are stopped, as `WITH (stale = true)` does for one SELECT.",
    )


class SecuritySettings(Section):
    """What SQL may reach outside the database. Neither `SET` nor the file in the database folder can change it."""

    allowed_roots: Folders = Field(
        default=None,
        description="Folders that path options of connectors may reach, with everything below them. `null`: the working directory, the "
        "database folder and the folder for temporary files. In the environment: a JSON array, or folders separated as in `PATH`.",
    )
    allow_programs: bool = Field(
        default=False,
        description="Allow SQL that runs programs or Java methods, or reads files: `TRANSFORM … USING`, `reflect`, and the other functions "
        "that the security page lists.",
    )
    allow_python_imports: bool = Field(
        default=False,
        description="Allow `INTO PYTHON (callable = 'module:function')`. Otherwise only functions given to `db.register_callable` are called.",
    )


class Settings(Section):
    """All settings of one database. `Settings()` has the defaults; `load_settings` reads the rest."""

    spark: SparkSettings = SparkSettings()
    log: LogSettings = LogSettings()
    engine: EngineSettings = EngineSettings()
    serve: ServeSettings = ServeSettings()
    subscribe: SubscribeSettings = SubscribeSettings()
    read: ReadSettings = ReadSettings()
    security: SecuritySettings = SecuritySettings()
    variables: dict[str, Text] = Field(
        default_factory=dict, description="Values for `${NAME}` in option values; they go before the environment."
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def origin(self, key: str) -> str:
        """Where the value of a dotted key came from: `default`, the file, the environment variable, or `config`.

        For a whole map, the origins of its entries. An unknown key is refused (PSK-0001).
        """
        name = str(parse_key(type(self), key))
        found = {origin for known, origin in self._origins.items() if known == name or known.startswith(f"{name}.")}
        return ", ".join(sorted(found)) or "default"
