"""The catalogue's record of a named object."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.plan.nodes import SortTerm, TimeAttr


class Kind(Enum):
    SOURCE = "source"
    TABLE = "table"
    LOOKUP = "lookup table"
    STREAM = "stream"
    VIEW = "materialized view"
    SINK = "sink"
    FUNCTION = "function"
    """An expression with parameters that replaces its calls. It has no rows."""
    NAMED_QUERY = "view"
    """A view that is not materialized: a query that is expanded where it is used. It stores no rows."""


class Role(Enum):
    """The purpose of an object. Every role except `USER` is created for another object (its owner) or for a subscription."""

    USER = "user"
    LATE_ROWS = "late rows"
    PROBE = "probe"
    SINK_QUERY = "sink query"
    SUBSCRIPTION = "subscription"
    ERRORS = "errors"
    VERSION = "version"
    """A query that runs beside its owner until it replaces it."""


_SHOWN = frozenset({Role.USER, Role.LATE_ROWS, Role.ERRORS})


@dataclass(frozen=True)
class Column:
    """`type` is Spark's simple string (`bigint`, `array<string>`); `default` is a Spark SQL expression."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR column AS column - delay; `proctime`: the column is set to the time of arrival."""

    column: str
    delay_ms: int = 0
    proctime: bool = False


@dataclass(frozen=True)
class Connector:
    """FROM/INTO name (options) FORMAT format (format_options)."""

    name: str
    options: dict[str, str] = field(default_factory=dict)
    format: str | None = None
    format_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectInfo:
    """One object. Names are unique across all kinds, ignoring case.

    `changelog`: rows can be retracted. `times`: event-time columns, by the object's own column names.
    `sql` is the CREATE statement as written; `depends_on` are the ids of the objects whose rows it reads; `expands` those of the
    named queries in its statement (for a named query: of everything that it names). `owner_id` is the object for which this one was created:
    the query of late rows or of a probe, the sink of a sink query. `lookup_id` is the on-demand lookup table that a
    probe reads. `identity` identifies a sink to its target: globally unique, and new if the sink is dropped and recreated.
    """

    id: int
    name: str
    kind: Kind
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    changelog: bool = False
    times: tuple[TimeAttr, ...] = ()
    watermark: Watermark | None = None
    connector: Connector | None = None
    options: dict[str, str] = field(default_factory=dict)
    depends_on: tuple[int, ...] = ()
    sql: str = ""
    role: Role = Role.USER
    owner_id: int | None = None
    lookup_id: int | None = None
    expands: tuple[int, ...] = ()
    order: tuple[SortTerm, ...] = ()
    """The default order of a SELECT from a view."""
    identity: str | None = None
    comment: str | None = None
    column_comments: dict[str, str] = field(default_factory=dict)
    """The comments of columns, by column name."""

    @property
    def has_contents(self) -> bool:
        """Whether its current rows are stored and can be queried. Other kinds only have a stream of changes."""
        return self.kind in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW)

    @property
    def hidden(self) -> bool:
        """Whether statements cannot name it and lists omit it. Users cannot create names that begin with `__`."""
        return self.role not in _SHOWN or self.name.startswith("__")

    @property
    def on_demand(self) -> bool:
        """Whether it is a lookup table whose rows are fetched on demand."""
        return self.kind is Kind.LOOKUP and self.options.get("strategy", "").lower() == "on-demand"

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Slot:
    """A query in a shared job: its slot, which is never reused; `base`, the offset added to its batch ids; and `start`, the LSN after which it reads; 0: from the contents of its inputs."""

    slot: int
    base: int
    start: int = 0


@dataclass(frozen=True)
class Hosting:
    """A job shared by queries over the same objects: its number, its start LSN, the last slot that it has assigned, and its members by id."""

    number: int
    start: int
    last: int
    members: dict[int, Slot]


@dataclass(frozen=True)
class Solo:
    """The start of a query that has left a shared job, or that restarts: it reads after the LSN `start`, and its epoch numbers are `base` + the batch id of its job."""

    start: int
    base: int
