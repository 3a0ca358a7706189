"""What the catalogue knows of a named object."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.plan.nodes import TimeAttr


class Kind(Enum):
    SOURCE = "source"
    TABLE = "table"
    LOOKUP = "lookup table"
    STREAM = "stream"
    VIEW = "materialized view"
    SINK = "sink"


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
    """One object. Names are unique without regard to case over all kinds.

    `changelog`: rows can be retracted. `times`: event-time columns, by the object's own column names.
    `sql` is the CREATE statement as it was written; `depends_on` are object ids.
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

    @property
    def on_demand(self) -> bool:
        """A lookup table whose rows are fetched when they are asked for."""
        return self.kind is Kind.LOOKUP and self.options.get("strategy", "").lower() == "on-demand"

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)
