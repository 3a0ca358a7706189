"""Runs one job without an engine: commits go in, and each epoch's output is returned as the kernel delivers it.

Rows of a table, or of a lookup table, end with their weight. The watermark of a source is given with the commit, in Unix milliseconds.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.unit.sql.conftest import Catalog

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of
from penstock.serve.zset import consolidate
from penstock.spark.bridge import ERROR_SCHEMA, KernelJob
from penstock.spark.compile import UNIT_OBJECT, Compiled, Compiler
from penstock.spark.hosted import HostJob, Membership, Place, compile_host, membership
from penstock.spark.session import jvm
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.script import parse_script

Rows = Sequence[tuple[Any, ...]]
Bag = Counter[tuple[Any, ...]]

_numbers = itertools.count(1)
_PATIENCE_S = 120


class JobTrace:
    """A job of one query or several, `select`, over the objects that `ddl` makes.

    `results` and `errors` hold what each query's result and its errors are now: rows with how often they are there. An error is
    (expression, error, row).
    """

    def __init__(self, spark: SparkSession, folder: Path, ddl: str, *select: str, exact_state: bool = False) -> None:
        self.catalog = Catalog(ddl)
        self.database = f"trace{next(_numbers)}"
        self.folder = folder
        self.spark = spark
        folder.mkdir(parents=True, exist_ok=True)
        for name, info in self.catalog.objects.items():
            if info.kind is Kind.LOOKUP:
                self.catalog.objects[name] = replace(info, changelog=True)
        self._by_id = {o.id: o for o in self.catalog.objects.values()}
        self._index = jvm().LogIndex.of(self.database)
        self._lsn = 0
        self._append({UNIT_OBJECT: (pa.table({"u": pa.array([1], pa.int64())}), None)})
        self.queries = []
        for text in select:
            # Only a stream may have EMIT.
            (statement,) = parse_script(
                text if text.lstrip().startswith("CREATE") else f"CREATE STREAM traced AS {text}"
            )
            assert isinstance(statement, st.CreateStream | st.CreateView)
            self.queries.append(bind(statement.query, self.catalog))
        self._exact = exact_state
        self.results: list[Bag] = [Counter() for _ in select]
        self.errors: list[Bag] = [Counter() for _ in select]
        self.late: Bag = Counter()
        self.epochs = self.files = 0
        self.job: KernelJob | None = None
        self.compiled = self._compile()

    def _compile(self) -> Compiled:
        compiler = Compiler(self.spark, self.database, self._object, 2, exact_state=self._exact)
        if len(self.queries) == 1:
            return compiler.compile(self.queries[0])
        compiled = [Compiler(self.spark, self.database, self._object, 2, hosted=True).compile(q) for q in self.queries]
        self._members = [membership(c) for c in compiled]
        return replace(compiled[0], outputs=[c.outputs[0] for c in compiled])

    def _object(self, object_id: int) -> ObjectInfo:
        return self._by_id[object_id]

    def __enter__(self) -> JobTrace:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        jvm().LogIndex.drop(self.database)

    def start(self) -> None:
        schemas = []
        for o in self.compiled.outputs:
            schema = schema_of(o.columns)
            schemas.append(schema.append(pa.field("__weight", pa.int64())) if o.changelog else schema)
        given: dict[str, Any] = {"folder": self.folder, "max_rows": 1_000_000, "poll_ms": 50}
        if len(self.queries) == 1:
            self.job = KernelJob(
                self.spark, self.database, self.database, self.compiled, schemas=schemas, every_ms=0, seeds=(), **given
            )
        else:
            plan = compile_host(self.spark, list(self._by_id.values()), ())
            places = {}
            for i, (member, schema) in enumerate(zip(self._members, schemas, strict=True)):
                assert isinstance(member, Membership), member
                places[i + 1] = Place((i,), member, (schema,), (), 0)
            self.job = HostJob(
                self.spark, self.database, self.database, plan, places=places, contents=(), parallelism=2, **given
            )
        self.job.start()

    def stop(self) -> None:
        if self.job is not None:
            self.job.stop()
            self.job = None

    def restart(self) -> None:
        """Goes on from the checkpoint with a plan that is made again."""
        self.stop()
        self.compiled = self._compile()
        self.start()

    def commit(self, rows: Mapping[str, Rows], watermarks: Mapping[str, int] | None = None) -> None:
        """One commit over several objects; returns when its epoch has been taken."""
        parts: dict[int, tuple[pa.Table, int | None]] = {}
        for name in [*rows, *(w for w in watermarks or {} if w not in rows)]:
            info = self.catalog.objects[name]
            schema = schema_of(info.columns)
            if info.changelog:
                schema = schema.append(pa.field("__weight", pa.int64()))
            given = list(zip(*rows.get(name, ()), strict=True)) or [()] * len(schema)
            columns = [pa.array(list(c), f.type) for c, f in zip(given, schema, strict=True)]
            parts[info.id] = (pa.Table.from_arrays(columns, schema=schema), (watermarks or {}).get(name))
        self._append(parts)
        self.settle()

    def settle(self) -> None:
        """Takes epochs until everything that was committed is in the results."""
        assert self.job is not None
        recorded, deadline = None, time.monotonic() + _PATIENCE_S
        while True:
            epoch = self.job.take(recorded, 100)
            recorded = None if epoch is None else self._lsn
            if epoch is not None:
                self._take(epoch)
                continue
            if not self.job.active:
                raise self.job.error or AssertionError("the job has ended")
            if self.job.settled(self._lsn, 0):
                return
            assert time.monotonic() < deadline, "nothing came"

    def _take(self, epoch: Any) -> None:
        self.epochs += 1
        for i, batches in enumerate(epoch.batches):
            number = i if epoch.objects is None else epoch.objects[i]
            late = number >= len(self.results) or (number == 1 and len(self.queries) == 1)
            into = self.late if late else self.results[number]
            for batch in batches:
                weighted = batch.schema.names[-1] == "__weight"
                for row in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    into[row[:-1] if weighted else row] += row[-1] if weighted else 1
        for i, table in enumerate(epoch.errors):
            number = i if epoch.objects is None else epoch.objects[i]
            if table is not None:
                assert table.schema == ERROR_SCHEMA
                for e in consolidate(table).to_pylist():
                    self.errors[number][(e["expression"], e["error"], e["row"])] += e["__weight"]
        for bags in (self.results, self.errors):
            for i, bag in enumerate(bags):
                assert all(n >= 0 for n in bag.values()), f"taken back what is not there: {-bag}"
                bags[i] = +bag
        self.files += len(epoch.files)
        for path in epoch.files:
            path.unlink()

    def _append(self, parts: Mapping[int, tuple[pa.Table, int | None]]) -> None:
        self._lsn += 1
        lines = []
        for object_id, (table, watermark) in parts.items():
            path = self.folder / f"{self._lsn}-{object_id}.arrow"
            slices, position = [], 0
            with path.open("wb") as file:
                for batch in table.combine_chunks().to_batches(max_chunksize=32_768):
                    message = batch.serialize()
                    file.write(message)
                    slices.append(f"{position},{message.size},{batch.num_rows}")
                    position += message.size
            told = "" if watermark is None else str(watermark)
            lines.append(f"{self._lsn}\t{object_id}\t{told}\t0\t{table.num_columns}\t{path}\t{';'.join(slices)}\n")
        self._index.add("".join(lines), self._lsn)


def row(**values: object) -> str:
    """A row as errors tell of it."""
    return json.dumps(values, separators=(",", ":"))
