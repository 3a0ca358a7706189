"""Checks with Spark's parser that expressions reach Spark as they were written."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import SparkSession

from penstock.spark.session import jvm
from penstock.spark.translate import translated
from penstock.sql.written import Written

_MOST = 10_000


class Sameness:
    """Compares expressions in one call to the JVM; caches those that are the same."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._same: set[tuple[str, str]] = set()

    def difference(self, found: Sequence[Written]) -> tuple[Written, int, str] | None:
        """The first expression that differs, the offset of the difference in it, and Spark's message if it cannot read the original."""
        asked = [w for w in found if (w.original, w.copy) not in self._same]
        if not asked:
            return None
        with translated():
            texts = json.dumps([t for w in asked for t in (w.original, w.copy)])
            answer = jvm().SameTrees.difference(self._spark._jsparkSession, texts)
        if answer is not None:
            number, at, message = answer
            return asked[number], at, message
        if len(self._same) > _MOST:
            self._same.clear()
        self._same.update((w.original, w.copy) for w in asked)
        return None
