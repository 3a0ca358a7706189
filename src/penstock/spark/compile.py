"""Compiles a bound plan to a streaming DataFrame.

Internally, a frame has the node's columns by their internal names, `__weight` if the node is a changelog, and `__pwm` (the watermark
in force, Unix ms) up to the first stateful operator. One `Compiler` compiles one job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JavaColumn
from pyspark.sql.column import Column as SparkColumn
from pyspark.sql.types import BooleanType, DataType, LongType, StructField, StructType, TimestampType
from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Column, ObjectInfo
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.dialect import DIALECT
from penstock.plan.passes.rebuild import transform
from penstock.plan.repeats import repeats
from penstock.plan.shown import shown
from penstock.spark.comparable import check_comparable
from penstock.spark.guards import Guards, told
from penstock.spark.kernel import LOG_SOURCE
from penstock.spark.operators import Operator
from penstock.spark.session import jvm
from penstock.spark.translate import translated
from penstock.spark.typetext import type_text
from penstock.spark.windows import compared_micros

UNIT_OBJECT = 0
"""The built-in object with exactly one row: the input of constant rows and global aggregates."""


def unit_schema() -> StructType:
    return StructType().add("u", LongType())


def log_schema(info: ObjectInfo) -> StructType:
    """The columns of an object in the log."""
    schema = StructType.fromDDL(", ".join(f"`{c.name}` {without_lengths(c.type)}" for c in info.columns))
    assert isinstance(schema, StructType)
    return schema.add("__weight", LongType()) if info.changelog else schema


@dataclass(frozen=True)
class Timed:
    """An object whose watermark the job follows, `lag_ms` behind."""

    object_id: int
    lag_ms: int


@dataclass(frozen=True)
class Output:
    """One output of a job: its schema, and whether its epochs are already consolidated."""

    columns: tuple[Column, ...]
    changelog: bool
    consolidated: bool


@dataclass
class Compiled:
    """A job's frame, and its description for the clock and the sink.

    With a late output (`outputs[1]`) the frame holds both outputs' columns side by side and `__out`.
    """

    frame: Any
    """A DataFrame; None for a job that is not planned by Spark."""
    outputs: list[Output]
    slots: list[list[int]]
    befores: list[int]
    """For each output, the column with the watermark in force for a row behind it (NULL for other rows); -1: none."""
    objects: list[int]
    timed: list[Timed]
    times: tuple[p.TimeAttr, ...]
    event_time: bool
    operators: list[Operator] = field(default_factory=list)
    late_rows: Any = None
    """The accumulator of late rows, if rows can be late."""
    root: p.Node | None = None
    """The compiled plan of a single query, with the nodes that its operators refer to."""
    guarded: list[p.Node] = field(default_factory=list)
    """The nodes in which a row can fail."""
    passed: Any = None
    """The accumulator of rows that have passed the stateless parts below all operators, if they are counted."""
    errors: Any = None
    """The kernel's channel for rows that fail, if any can; a member of a shared job has none of its own."""
    replicas: tuple[p.Node, ...] = ()
    """The lookup joins whose table is replicated to the rows."""

    @property
    def fallible(self) -> bool:
        """Whether a row can fail; `Epoch.errors` reports those that do."""
        return bool(self.guarded)


class Compiler:
    """Compiles one query for one job; `objects` has the catalogue entry of each scanned object."""

    def __init__(
        self,
        spark: SparkSession,
        job: str,
        objects: Callable[[int], ObjectInfo],
        parallelism: int,
        *,
        exact_state: bool = False,
        hosted: bool = False,
        counted: bool = False,
    ) -> None:
        self.spark = spark
        self.job = job
        self._objects = objects
        self._parallelism = parallelism
        self._scans: list[int] = []
        self._lags: dict[int, int] = {}
        self.event_time = False
        self.stamped = False
        """Whether scans add the watermark in force for each row."""
        self.arrival = False
        self.late: DataFrame | None = None
        self.carries_late = False
        self.late_rows: Any = None
        self.counted = counted
        """Whether to count the rows that leave the stateless parts of the plan below its operators."""
        self.passed: Any = None
        self.stateful = 0
        self.operators: list[Operator] = []
        self.exact_state = exact_state
        """Whether every operator must be one whose state is counted exactly, in bytes."""
        self.hosted = hosted
        """Whether the query is compiled as a member of a shared job, where a keyed operator becomes a description."""
        self.guards = Guards(spark, lambda: self._nodes[-1], hosted=hosted)
        self.replicas: list[p.Node] = []
        """Lookup joins whose table is replicated to the rows."""
        self._nodes: list[p.Node] = []
        self._places: dict[int, int] = {}
        self._parts: dict[int, Any] = {}

    def compile(self, query: p.Query) -> Compiled:
        with translated():
            self.activate()
            return self._compile(query)

    def activate(self) -> None:
        """Activates the session: Spark takes the enabled types from the thread's active session, not from the frame's."""
        session = self.spark._jvm
        assert session is not None
        session.SparkSession.setActiveSession(self.spark._jsparkSession)

    def _compile(self, query: p.Query) -> Compiled:
        self.event_time = any(_needs_time(n) for n in query.root.walk())
        follows = self.event_time or bool(query.root.times)
        root = self._relative(query.root) if follows else query.root
        self.stateful = sum(1 for n in root.walk() if not isinstance(n, p.Linear))
        self.stamped = self.event_time or (bool(root.times) and not root.changelog)
        self.arrival = any(isinstance(n, p.LookupJoin) or (self.event_time and _orders(n)) for n in root.walk())
        self.carries_late = _plain_above_sessions(root)
        self._places, self._parts = repeats(root), {}
        self._share_late(root)
        made = self.node(root)
        select = [F.col(f"`{c}`").alias(f"c{i}") for i, c in enumerate(root.columns)]
        if root.changelog:
            select.append(F.col("__weight"))
        before = _before(made, root)
        frame = made.select(*select, *before)
        known = root.column_types
        types = [_declared(f.dataType, known.get(c)) for f, c in zip(frame.schema.fields, root.columns, strict=False)]
        columns = tuple(Column(n, t) for n, t in zip(query.names, types, strict=False))
        # In a shared job an operator above others processes the rows of an epoch and the advance of its watermark separately.
        twice = self.hosted and self.event_time and self.stateful > 1
        outputs = [Output(columns, root.changelog, _consolidated(root) and not twice)]
        slots, befores = [list(range(len(select)))], [len(select) if before else -1]
        if "__late" in made.columns or self.late is not None:
            frame, late = self._with_late(frame, self.late) if self.late is not None else self._split(made, select)
            outputs.append(late)
            slots.append(list(range(len(frame.columns) - 1 - len(late.columns), len(frame.columns) - 1)))
            befores.append(-1)
        elif any(isinstance(n, p.Aggregate) and n.late_to is not None for n in root.walk()):
            raise fail(
                "PSK-1012",
                "LATE DATA TO is not supported for windows over this input, because the arrival of its rows is unknown.",
                hint="Create a stream of the input, and put the windows over that.",
            )
        timed = [Timed(o, lag) for o, lag in self._lags.items()] if follows else []
        objects = list(dict.fromkeys(self._scans))
        return Compiled(
            frame,
            outputs,
            slots,
            befores,
            objects,
            timed,
            root.times,
            self.event_time,
            self.operators,
            self.late_rows,
            root,
            self.guards.nodes,
            self.passed,
            self.guards.channel if self.guards.nodes else None,
            tuple(self.replicas),
        )

    def _relative(self, root: p.Node) -> p.Node:
        """The plan with lags relative to the job's own watermark, which follows each object with the largest lag of its rows."""
        for n in root.walk():
            if isinstance(n, p.Scan) and n.time_attrs:
                lags = [t.lag_ms for t in n.time_attrs]
                self._lags[n.object_id] = max(self._lags.get(n.object_id, 0), *lags)

        def absorbed(n: p.Node) -> p.Node:
            if not isinstance(n, p.Scan):
                return n
            base = self._lags.get(n.object_id, 0)
            return replace(n, time_attrs=tuple(p.TimeAttr(t.column, max(0, t.lag_ms - base)) for t in n.time_attrs))

        return transform(root, absorbed)

    def _share_late(self, root: p.Node) -> None:
        """Shares the stateful parts of the windows' input, which late rows read a second time."""
        for n in root.walk():
            if isinstance(n, p.Aggregate) and n.late_to is not None and n.session is None:
                below = next(b for b in n.child.walk() if isinstance(b, p.WindowAssign)).child
                if any(not isinstance(b, p.Linear) for b in below.walk()):
                    self._places.setdefault(id(below), len(self._places))

    def _with_late(self, main: DataFrame, late: DataFrame) -> tuple[DataFrame, Output]:
        names = [c for c in late.columns if c not in ("__pwm", "__lsn")]
        main_types, late_types = main.schema.fields, [late.schema[n] for n in names]
        left = [F.col(f.name) for f in main_types]
        left += [F.lit(None).cast(f.dataType).alias(f"l{i}") for i, f in enumerate(late_types)]
        right = [F.lit(None).cast(f.dataType).alias(f.name) for f in main_types]
        right += [F.col(f"`{n}`").alias(f"l{i}") for i, n in enumerate(names)]
        frame = main.select(*left, F.lit(0).alias("__out")).unionAll(late.select(*right, F.lit(1).alias("__out")))
        return frame, _late_output(late_types)

    def _split(self, made: DataFrame, select: list[SparkColumn]) -> tuple[DataFrame, Output]:
        """Both outputs of an operator that returns its late rows in `__late`, which is NULL for all other rows."""
        row = made.schema["__late"].dataType
        assert isinstance(row, StructType)
        late = [F.col("__late").getField(f.name).alias(f"l{i}") for i, f in enumerate(row.fields)]
        frame = made.select(*select, *late, F.col("__late").isNotNull().cast("int").alias("__out"))
        return frame, _late_output(row.fields)

    # Linear operators

    def node(self, n: p.Node) -> DataFrame:
        """The frame of a node. A part that occurs more than once is compiled at its first occurrence."""
        below = not self._nodes or not isinstance(self._nodes[-1], p.Linear)
        if self.counted and below and all(isinstance(m, p.Linear) for m in n.walk()):
            return self._counting(self._alone(n))
        part = self._places.get(id(n))
        if part is None:
            return self._alone(n)
        if part not in self._parts:
            df = self._alone(n)
            self._parts[part] = jvm().SharedPart.of(
                df.select(*(F.col(f"`{c}`") for c in n.columns), *self.hidden(df))._jdf
            )
            return DataFrame(self._parts[part].first(), self.spark)
        return DataFrame(self._parts[part].again(json.dumps(n.columns)), self.spark)

    def _counting(self, df: DataFrame) -> DataFrame:
        name = "penstock_passed_" + self.job.replace("-", "_")
        if self.passed is None:
            self.passed = jvm().LateCounter.register(self.spark._jsparkSession, name)
        return df.where(F.expr(f"{name}(CAST(1 AS BIGINT))"))

    def _alone(self, n: p.Node) -> DataFrame:
        self._nodes.append(n)
        try:
            made = self._frame(n)
            check_comparable(n, made)
            return made
        finally:
            self._nodes.pop()

    def _frame(self, n: p.Node) -> DataFrame:
        # The modules of the operators import this one.
        from penstock.spark.nodes import COMPILED

        return COMPILED[type(n)](self, n)

    @property
    def current(self) -> p.Node:
        """The node that is being compiled."""
        return self._nodes[-1]

    def hidden(self, df: DataFrame) -> list[str]:
        return [c for c in ("__weight", "__pwm", "__lsn", "__late") if c in df.columns]

    def scan(self, n: p.Scan) -> DataFrame:
        schema = log_schema(self._objects(n.object_id))
        df = self._load(schema, n.object_id, len(schema))
        select = [F.col(f"`{source}`").alias(name) for name, source in n.fields]
        return df.select(*select, *self.hidden(df))

    def _load(self, schema: StructType, object_id: int, count: int) -> DataFrame:
        scan = len(self._scans)
        self._scans.append(object_id)
        # A shared job advances time itself.
        moves_time = self.event_time and not self.hosted
        if moves_time:
            schema = schema.add("__wm", TimestampType()).add("__hb", BooleanType())
        if self.stamped:
            schema = schema.add("__pwm", LongType())
        if self.arrival:
            schema = schema.add("__lsn", LongType())
        df = (
            self.spark.readStream.format(LOG_SOURCE)
            .schema(schema)
            .option("job", self.job)
            .option("scan", scan)
            .option("object", object_id)
            .option("columns", count)
            .option("eventTime", str(moves_time).lower())
            .option("parallelism", self._parallelism)
            .load()
        )
        if not moves_time:
            return df
        jvm().WatermarkExec.plan(self.spark._jsparkSession)
        # Deliberately non-deterministic: the optimizer must not push filters below the watermark, where they would drop heartbeats.
        beat = F.expr("CASE WHEN __hb THEN spark_partition_id() < 0 ELSE true END")
        return df.withWatermark("__wm", "0 seconds").where(beat).drop("__wm", "__hb")

    def unit(self) -> DataFrame:
        """One row, in the first epoch."""
        return self._load(unit_schema(), UNIT_OBJECT, 1)

    def values(self, n: p.Values) -> DataFrame:
        rows = ", ".join(
            "struct(" + ", ".join(f"{e.sql()} AS `{c}`" for c, e in zip(n.names, r, strict=True)) + ")" for r in n.rows
        )
        df = self.unit()
        return df.select(F.expr(f"inline(array({rows}))"), *self.hidden(df))

    def filter(self, n: p.Filter) -> DataFrame:
        df, wanted = self.node(n.child), F.expr(n.predicate.sql())
        if "__late" in df.columns:
            wanted = wanted | F.col("__late").isNotNull()
        return self.guards.where(n, df, wanted, n.predicate)

    def project(self, n: p.Project) -> DataFrame:
        df = self.node(n.child)
        hidden = self.hidden(df)
        select = [F.expr(i.expr.sql()).alias(i.name) for i in n.items]
        select += [F.col(h) for h in hidden]
        return self.guards.select(n, df, select, [*(told(i.expr) for i in n.items), *(None for _ in hidden)])

    def generate(self, n: p.Generate) -> DataFrame:
        df, name = self._arguments(n, self.node(n.child))
        outer = "OUTER " if n.outer else ""
        view = f"__gen_{self.job}_{len(self.operators)}_{id(n)}"
        df.createOrReplaceTempView(f"`{view}`")
        try:
            columns = ", ".join(f"`{c}`" for c in n.outputs)
            kept = ", ".join(f"`{c}`" for c in [*n.child.columns, *n.outputs, *self.hidden(df)])
            if n.generator.node.name.lower() == "variant_explode":
                # Spark has it only as a table function, and ignores the LEFT of LEFT JOIN LATERAL with a generator.
                call = name.replace("(", "_outer(", 1) if n.outer else name
                return self.spark.sql(f"SELECT {kept} FROM `{view}` JOIN LATERAL {call} AS __g({columns})")
            return self.spark.sql(f"SELECT {kept} FROM `{view}` LATERAL VIEW {outer}{name} __g AS {columns}")
        finally:
            self.spark.catalog.dropTempView(view)

    def _arguments(self, n: p.Generate, df: DataFrame) -> tuple[DataFrame, str]:
        """The frame and the generator call; arguments that can fail are columns of the frame."""
        call = n.generator.node.copy()
        args = [e for e in call.walk() if e.parent is call and e.find(exp.Column) and not isinstance(e, exp.Column)]
        if not args:
            return df, n.generator.sql()
        exprs = [p.Expr(cast(exp.Expression, e.copy())) for e in args]
        made = [F.expr(e.sql()).alias(f"__g{i}") for i, e in enumerate(exprs)]
        kept = [F.col(f"`{c}`") for c in df.columns]
        guarded = self.guards.select(n, df, [*kept, *made], [*(None for _ in kept), *exprs])
        if not self.guards.guards(guarded):
            return df, n.generator.sql()
        for i, e in enumerate(args):
            e.replace(p.col(f"__g{i}").node)
        return guarded, call.sql(dialect=DIALECT)

    def union(self, n: p.Union) -> DataFrame:
        frames = [self.node(c) for c in n.inputs]
        kept = [c for c in ("__pwm", "__lsn") if all(c in f.columns for f in frames)]
        parts = []
        for child, f in zip(n.inputs, self.alike(n, frames), strict=True):
            select = [F.col(f"`{c}`").alias(name) for c, name in zip(child.columns, n.columns, strict=True)]
            if n.changelog:
                select.append(
                    F.col("__weight") if "__weight" in f.columns else F.lit(1).cast("bigint").alias("__weight")
                )
            select += [F.col(c) for c in kept]
            parts.append(f.select(*select))
        out = parts[0]
        for part in parts[1:]:
            out = out.unionAll(part)
        return out

    def alike(self, n: p.Union | p.SetOp, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """The frames of a node's children, with columns cast explicitly where Spark's implicit cast could fail."""
        rows = [f.select(*(F.col(f"`{x}`") for x in c.columns)) for c, f in zip(n.children, frames, strict=True)]
        types = [[field.dataType for field in r.schema.fields] for r in rows]
        if all(t == types[0] for t in types):
            return list(frames)
        together = self.typed(rows[0])
        for r in rows[1:]:
            together = together.unionAll(self.typed(r))
        wanted = [field.dataType for field in together.schema.fields]
        out = []
        for child, f, own in zip(n.children, frames, types, strict=True):
            casts = {x: t for x, t, has in zip(child.columns, wanted, own, strict=True) if t != has}
            select = [F.col(f"`{x}`").cast(casts[x]).alias(x) if x in casts else F.col(f"`{x}`") for x in f.columns]
            names = shown(child)
            exprs = [f"CAST({names[x]} AS {type_text(casts[x])})" if x in casts else None for x in f.columns]
            made = self.guards.select(n, f, select, exprs, names)
            out.append(made if self.guards.guards(made) else f)
        return out

    # Kernel operators

    def kernel(self, operator: str, spec: dict[str, object], *frames: DataFrame) -> DataFrame:
        """Applies a kernel operator to frames of this job."""
        if self.hosted:
            self.operators.append(Operator(operator, self._nodes[-1], hosted=True))
            told: dict[str, object] = {"hosted": True, "operator": len(self.operators) - 1}
        else:
            size = jvm().StateSize.create(self.spark._jsparkSession)
            self.operators.append(Operator(operator, self._nodes[-1], size))
            told = {"size": size.id()}
        java = getattr(jvm(), operator).apply(*(f._jdf for f in frames), json.dumps(spec | told))
        return DataFrame(java, self.spark)

    def native(self, operator: str, df: DataFrame) -> DataFrame:
        """Registers a native stateful operator."""
        self.operators.append(Operator(operator, self._nodes[-1], row_bytes=int(df._jdf.schema().defaultSize())))
        return df

    def typed(self, df: DataFrame) -> DataFrame:
        """An empty batch frame with the same columns, to get types from Spark for operations that streams do not support."""
        return self.spark.createDataFrame([], df.schema)

    def counts_late(self, rows: SparkColumn) -> SparkColumn:
        """A condition that is true, and counts `rows` as late where it is evaluated."""
        if self.hosted:
            return JavaColumn(jvm().LateRow.of(rows._jc))
        name = "penstock_late_" + self.job.replace("-", "_")
        if self.late_rows is None:
            self.late_rows = jvm().LateCounter.register(self.spark._jsparkSession, name)
        return F.call_function(name, rows)

    def weight(self, df: DataFrame) -> str | None:
        return "__weight" if "__weight" in df.columns else None


def _declared(kind: DataType, known: str | None) -> str:
    """The type of an output column; a string that is passed through from an object keeps its declared length."""
    found = type_text(kind)
    return known if known is not None and without_lengths(known) == found else found


def _plain_above_sessions(root: p.Node) -> bool:
    """True if the late rows of a session can pass through all nodes above together with its results."""
    while isinstance(root, p.Filter | p.Project):
        root = root.child
    return isinstance(root, p.Aggregate) and root.session is not None


def _before(made: DataFrame, root: p.Node) -> list[SparkColumn]:
    """The watermark in force for a row of an append-only output with a time behind it."""
    if root.changelog or "__pwm" not in made.columns or not root.times:
        return []
    return [behind(made, {f"`{t.column}`": t.lag_ms for t in root.times})]


def behind(df: DataFrame, times: dict[str, int]) -> SparkColumn:
    """`__pwm` where one of these times (expressions, with their lags) is behind it, otherwise NULL."""
    late = [compared_micros(df, t) <= F.col("__pwm") * 1000 - lag * 1000 for t, lag in times.items()]
    return F.when(reduce(or_, late), F.col("__pwm")).alias("__before")


def _late_output(fields: Sequence[StructField]) -> Output:
    return Output(tuple(Column(f.name.split("$", 1)[-1], type_text(f.dataType)) for f in fields), False, True)


def _needs_time(n: p.Node) -> bool:
    match n:
        case p.Aggregate(window_end=str() as end):
            return any(t.column == k.expr.column for k in n.keys if k.name == end for t in n.child.times)
        case p.Aggregate(session=p.SessionWindow() as s):
            return any(t.column == s.time.column for t in n.child.times)
        case p.TemporalFilter() | p.Extremes():
            return True
        case p.Join(time_bound=p.IntervalBound()):
            return True
        case p.AsofJoin():
            return not n.eager
        case p.ProbeJoin():
            timed = {t.column for t in (*n.left.times, *n.right.times)}
            return n.left_time.column in timed and n.right_time.column in timed
        case _:
            return False


def _orders(n: p.Node) -> bool:
    """True if the operator processes late rows in order of arrival."""
    match n:
        case p.Aggregate(session=p.SessionWindow()) | p.Join(time_bound=p.IntervalBound()) | p.ProbeJoin():
            return True
        case p.AsofJoin():
            return not n.eager
        case _:
            return False


def _consolidated(n: p.Node) -> bool:
    """True if one epoch of the node's output cannot hold the same row twice with different signs."""
    match n:
        case p.Aggregate() | p.Distinct() | p.TopN() | p.Analytic() | p.SetOp() | p.Recursive():
            return True
        case p.Filter():
            return _consolidated(n.child)
        case p.Project():
            kept = {i.expr.column for i in n.items}
            return _consolidated(n.child) and (not n.child.changelog or _key(n.child) <= kept)
        case _:
            return not n.changelog


def _key(n: p.Node) -> set[str | None]:
    match n:
        case p.Aggregate():
            start = [n.session.start] if n.session else []
            return {*(k.name for k in n.keys), *start}
        case p.Filter():
            return _key(n.child)
        case p.Project():
            names = {i.expr.column: i.name for i in n.items}
            return {names.get(c) for c in _key(n.child)} if None not in _key(n.child) else {None}
        case p.Scan() if n.object_key:
            names = {own: name for name, own in n.fields}
            return {names.get(k) for k in n.object_key}
        case _:
            return set(n.columns)


def output_times(query: p.Query, compiled: Compiled) -> tuple[p.TimeAttr, ...]:
    """Event-time columns of a job's output, relative to the job's own watermark, by their user-visible names."""
    name = dict(zip(query.root.columns, query.names, strict=True))
    return tuple(p.TimeAttr(name[t.column], t.lag_ms) for t in compiled.times)


def output_key(query: p.Query) -> tuple[str, ...]:
    """The output columns that form a key (at most one live row), by their user-visible names; empty if none is known."""
    root = query.root
    if not _keyed(root):
        return ()
    name = dict(zip(root.columns, query.names, strict=True))
    key = _key(root)
    return tuple(name[c] for c in root.columns if c in key) if None not in key and key <= set(root.columns) else ()


def _keyed(n: p.Node) -> bool:
    match n:
        case p.Aggregate():
            return bool(n.keys)
        case p.Filter() | p.Project():
            return _keyed(n.child)
        case p.Scan():
            return bool(n.object_key)
        case _:
            return False
