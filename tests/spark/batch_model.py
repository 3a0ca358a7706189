"""Batch SQL as the measure: the same SELECT that a view maintains, run by Spark over plain rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.generated.sessions import batch_session
from tests.spark.following import Follower, Row, Sum, bag, contents

import penstock


class Batch:
    """Answers SELECTs over named tables of Python rows."""

    def __init__(self, spark: SparkSession, schemas: Mapping[str, str]) -> None:
        self._session = batch_session(spark)
        self._schemas = schemas

    def load(self, tables: Mapping[str, Iterable[Sequence[object]]]) -> None:
        for name, rows in tables.items():
            fields = list(to_arrow_schema(StructType.fromDDL(self._schemas[name])))  # type: ignore[arg-type]
            columns = list(zip(*rows, strict=True)) or [()] * len(fields)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
            # Of a list of rows Spark would ask a Python worker in every query.
            frame = self._session.createDataFrame(pa.table(arrays, [f.name for f in fields]))
            frame.createOrReplaceTempView(name)

    def answers(self, selects: Mapping[str, str]) -> dict[str, Counter[Row]]:
        return {name: bag(tuple(r) for r in self._session.sql(sql).collect()) for name, sql in selects.items()}


class Maintained:
    """Views of the same SELECTs in a database, each followed from its first epoch on."""

    def __init__(self, db: penstock.Database, selects: Mapping[str, str]) -> None:
        self.selects = dict(selects)
        for name, sql in selects.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        self._followers = {name: Follower(db, name, as_of=0) for name in selects}
        self._sums = {name: Sum() for name in selects}

    def reopened(self, db: penstock.Database) -> None:
        for name, old in self._followers.items():
            again = Follower(db, name, as_of=old.epoch + 1)
            again.epoch = old.epoch
            self._followers[name] = again

    def check(self, db: penstock.Database, answers: Mapping[str, Counter[Row]]) -> None:
        """Contents and the sum of all changes are what batch SQL says."""
        for name, wanted in answers.items():
            got = contents(db, name)
            assert got == wanted, f"{name}: too much {got - wanted}, too little {wanted - got}"
            for change in self._followers[name].changes():
                if "__weight" in change.arrow().column_names:
                    self._sums[name].add(change)
                else:
                    self._sums[name].total.update(bag(tuple(r.values()) for r in change.rows()))
            assert self._sums[name].total == wanted, f"{name}: the changes do not add up to the contents"
