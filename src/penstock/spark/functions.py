"""Python functions in streaming queries: an exception is an error of its row, not of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import DataType, StringType, StructType, _parse_datatype_string

from penstock.spark.session import jvm

_VALUE, _ERROR = "__value", "__error"


def register(spark: SparkSession, name: str, function: Callable[..., object], returns: str) -> None:
    """Makes a function callable in the SQL of a session. An exception becomes the error of its row."""
    kind = _parse_datatype_string(returns)
    pair = StructType().add(_VALUE, kind).add(_ERROR, StringType())
    # Otherwise Spark would interpret type hints as those of a vectorized function, and warn if they are not.
    spark.udf.register(name, udf(_attempted(function, kind), pair, useArrow=False))
    jvm().PythonFunctions.unwrap(spark._jsparkSession, name)


def _attempted(function: Callable[..., object], kind: DataType) -> Callable[..., Any]:
    """Wraps the function to return its value or its error. It may run where this package is not installed, so it is self-contained."""
    pair = Row(_VALUE, _ERROR)
    names = [_VALUE, _ERROR]
    converts = kind.needConversion()

    def call(*arguments: object) -> Any:
        given = []
        for argument in arguments:
            if isinstance(argument, Row) and list(getattr(argument, "__fields__", ())) == names:
                if argument[1] is not None:
                    return pair(None, argument[1])
                given.append(argument[0])
            else:
                given.append(argument)
        try:
            value = function(*given)
            if converts and value is not None:
                kind.toInternal(value)
            return pair(value, None)
        except Exception as error:
            return pair(None, f"{type(error).__name__}: {error}")

    return call
