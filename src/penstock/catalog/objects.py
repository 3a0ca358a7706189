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
    """An expression with parameters, which takes the place of its calls. It has no rows."""
    NAMED_QUERY = "view"
    """A view that is not materialized: a query that is expanded where it is used. It has no rows of its own."""


class Role(Enum):
    """The purpose of an object. Every role except `USER` is created for another object (its owner) or for a subscription."""

    USER = "user"
    LATE_ROWS = "late rows"
    PROBE = "probe"
    SINK_QUERY = "sink query"
    SUBSCRIPTION = "subscription"
    ERRORS = "errors"
    VERSION = "version"
    """A query that is computed beside its owner, and becomes it."""


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
    """WATERMARK FOR column AS column - delay; `proctime`: the column is filled with the time of arrival."""

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
    `sql` is the CREATE statement as written; `depends_on` are the ids of the objects whose rows it reads, `expands` those of the
    named queries that its statement contains (of a named query: of everything that it names). `owner_id` is the object that this one was created for:
    the query that late rows or a probe belong to, the sink that a sink query feeds. `lookup_id` is the on-demand lookup table that a
    probe reads. `identity` is by what the target of a sink knows it: unique in the world, and different when it is dropped and created again.
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
    """The order in which a SELECT from a view presents the rows if it has none of its own."""
    identity: str | None = None
    comment: str | None = None
    column_comments: dict[str, str] = field(default_factory=dict)
    """The comments of columns, by their names."""

    @property
    def has_contents(self) -> bool:
        """Its current rows are stored and can be queried. Other kinds only have a stream of changes."""
        return self.kind in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW)

    @property
    def hidden(self) -> bool:
        """Statements cannot name it and lists do not show it. Users cannot create names that begin with `__`."""
        return self.role not in _SHOWN or self.name.startswith("__")

    @property
    def on_demand(self) -> bool:
        """A lookup table whose rows are fetched on demand."""
        return self.kind is Kind.LOOKUP and self.options.get("strategy", "").lower() == "on-demand"

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Slot:
    """The place of a query in a shared job, never given twice, what is added to the numbers of its epochs, and the LSN after which it begins to read; 0: with the contents of what it reads."""

    slot: int
    base: int
    start: int = 0


@dataclass(frozen=True)
class Hosting:
    """A job that queries over some objects share: its number, the LSN at which it began, the last slot that it has given, and its members by their ids."""

    number: int
    start: int
    last: int
    members: dict[int, Slot]


@dataclass(frozen=True)
class Solo:
    """Where a query begins that has left a shared job, or begins again: after the LSN `start`, with epoch number `base` + the number in its job."""

    start: int
    base: int
