"""One frozen class per kind of statement.

`text` is the statement as written, `offset` its start in the script.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.catalog.objects import Column, Connector, Watermark
from penstock.errors import Position
from penstock.plan.nodes import Interval
from penstock.sql.files import FileOptions
from penstock.sql.query import EmitClause, ParsedQuery


@dataclass(frozen=True)
class Statement:
    text: str
    offset: int


@dataclass(frozen=True)
class _Create(Statement):
    name: str
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource(_Create):
    """`columns` may be empty if the connector provides the schema."""

    columns: tuple[Column, ...] = ()
    watermark: Watermark | None = None
    connector: Connector | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateTable(_Create):
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    connector: Connector | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateLookupTable(_Create):
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    connector: Connector | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _CreateQuery(_Create):
    query: ParsedQuery = field(kw_only=True)

    @property
    def emit(self) -> EmitClause | None:
        return self.query.emit

    @property
    def lateness(self) -> Interval | None:
        return self.query.lateness

    @property
    def late_to(self) -> str | None:
        return self.query.late_to

    @property
    def errors_to(self) -> str | None:
        return self.query.errors_to

    @property
    def options(self) -> dict[str, str]:
        return self.query.options


@dataclass(frozen=True)
class CreateStream(_CreateQuery):
    pass


@dataclass(frozen=True)
class CreateView(_CreateQuery):
    pass


@dataclass(frozen=True)
class CreateNamedQuery(_CreateQuery):
    """CREATE VIEW that is not materialized. It has no clauses of its own."""


@dataclass(frozen=True)
class CreateFunction(_Create):
    """`returns` None: the type that Spark finds. `table`: the columns of the result, if it is a table; empty: those of the query."""

    parameters: tuple[Column, ...] = field(kw_only=True)
    returns: str | None = field(kw_only=True)
    table: tuple[Column, ...] | None = field(kw_only=True)
    body: exp.Expression = field(kw_only=True)
    comment: str | None = field(kw_only=True)


@dataclass(frozen=True)
class CreateSink(_Create):
    """Either `source` (with `where`, a query over it) or `query` feeds the sink."""

    connector: Connector = field(kw_only=True)
    source: str | None = None
    query: ParsedQuery | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop(Statement):
    """`kind` is a value of `catalog.Kind`."""

    kind: str
    name: str
    if_exists: bool
    cascade: bool


@dataclass(frozen=True)
class AlterQuery(Statement):
    kind: str
    name: str
    query: ParsedQuery
    rebuild: bool


@dataclass(frozen=True)
class AlterSourceAddColumn(Statement):
    name: str
    column: Column


@dataclass(frozen=True)
class AlterTableColumn(Statement):
    """ALTER TABLE: exactly one of `add`, `drop` and `rename` (old and new name) is set. `kind` is a value of `catalog.Kind`."""

    kind: str
    name: str
    add: Column | None = None
    drop: str | None = None
    rename: tuple[str, str] | None = None


@dataclass(frozen=True)
class Rename(Statement):
    """ALTER … RENAME TO."""

    kind: str
    name: str
    new_name: str


@dataclass(frozen=True)
class Comment(Statement):
    """COMMENT ON an object, or on one of its columns (then `kind` is None). `comment` is None to remove it."""

    kind: str | None
    name: str
    column: str | None
    comment: str | None


@dataclass(frozen=True)
class Insert(Statement):
    """Either `values` (rows of expressions) or `select` is set. `columns` is None if the statement names none."""

    target: str
    columns: tuple[str, ...] | None
    values: tuple[tuple[exp.Expression, ...], ...] | None
    select: ParsedQuery | None


@dataclass(frozen=True)
class Update(Statement):
    target: str
    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression | None


@dataclass(frozen=True)
class Delete(Statement):
    target: str
    where: exp.Expression | None


@dataclass(frozen=True)
class CopyFrom(Statement):
    """COPY of files into a source or table. `columns` is None if the statement names none."""

    target: str
    columns: tuple[str, ...] | None
    path: str
    options: FileOptions
    position: Position


@dataclass(frozen=True)
class CopyTo(Statement):
    """COPY of the rows of a query, or of an object, to a file."""

    query: ParsedQuery
    path: str = ""
    options: FileOptions = field(default_factory=FileOptions)
    position: Position | None = None


@dataclass(frozen=True)
class Begin(Statement):
    pass


@dataclass(frozen=True)
class Commit(Statement):
    pass


@dataclass(frozen=True)
class Rollback(Statement):
    pass


@dataclass(frozen=True)
class Select(Statement):
    query: ParsedQuery


@dataclass(frozen=True)
class Subscribe(Statement):
    """Exactly one of `target` and `select` is set. `others` make a group with the target. `where` refers to the target's columns."""

    target: str | None
    select: ParsedQuery | None
    as_of: int | None
    up_to: int | None
    where: exp.Expression | None
    options: dict[str, str]
    as_of_lsn: int | None = None
    up_to_lsn: int | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class CreatePolicy(Statement):
    """A row rule: of `target`, restricted sessions see the rows for which `using` holds."""

    name: str
    target: str
    using: exp.Expression


@dataclass(frozen=True)
class DropPolicy(Statement):
    name: str
    target: str
    if_exists: bool


@dataclass(frozen=True)
class KillSubscription(Statement):
    """KILL SUBSCRIPTION by the id that SHOW SUBSCRIPTIONS shows."""

    id: int


@dataclass(frozen=True)
class DeclareCursor(Statement):
    cursor: str
    subscribe: Subscribe


@dataclass(frozen=True)
class Fetch(Statement):
    """`count` is None for FETCH ALL."""

    cursor: str
    count: int | None


@dataclass(frozen=True)
class CloseCursor(Statement):
    cursor: str


@dataclass(frozen=True)
class Explain(Statement):
    analyze: bool
    statement: Statement


@dataclass(frozen=True)
class ExplainObject(Statement):
    """EXPLAIN [ANALYZE] of a stream or view by its name."""

    analyze: bool
    name: str


@dataclass(frozen=True)
class Restart(Statement):
    """RESTART of one query or sink. `beginning`: recompute its results from its inputs."""

    kind: str
    name: str
    beginning: bool


@dataclass(frozen=True)
class Show(Statement):
    """`what` is lower case: sources, tables, streams, views, sinks, queries, checkpoints, connectors, log, subscriptions, policies, copies."""

    what: str


@dataclass(frozen=True)
class ShowCreate(Statement):
    """`kind` is a value of `catalog.Kind`, or None if only the name is given."""

    kind: str | None
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    extended: bool
    name: str


@dataclass(frozen=True)
class Checkpoint(Statement):
    pass


@dataclass(frozen=True)
class Restore(Statement):
    """`backup`: the state before is kept as a checkpoint. `keep_delivered`: what sinks have delivered since stays with their targets."""

    checkpoint: int
    backup: bool = True
    keep_delivered: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    key: str
    value: str


@dataclass(frozen=True)
class StartPipeline(Statement):
    pass


@dataclass(frozen=True)
class StopPipeline(Statement):
    pass


@dataclass(frozen=True)
class Refresh(Statement):
    """REFRESH LOOKUP TABLE."""

    name: str


@dataclass(frozen=True)
class Flush(Statement):
    pass
