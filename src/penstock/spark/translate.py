"""Translates Spark's errors into ours. The Java stack is kept as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from penstock.errors import PenstockError, fail
from penstock.spark.configuration import RECURSION_STEPS
from penstock.spark.kernel import RESULT_TOO_LARGE
from penstock.spark.session import ended

_BY_CONDITION = {
    "UNRESOLVED_ROUTINE": "PSK-1006",
    "UNRESOLVED_COLUMN": "PSK-1004",
    "UNRESOLVED_FIELD": "PSK-1004",
    "FIELD_NOT_FOUND": "PSK-1004",
    "AMBIGUOUS_REFERENCE": "PSK-1005",
    "TABLE_OR_VIEW_NOT_FOUND": "PSK-1002",
    "DATATYPE_MISMATCH": "PSK-1007",
    "WRONG_NUM_ARGS": "PSK-1007",
    "INVALID_EXTRACT_FIELD": "PSK-1007",
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "PSK-1007",
    "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE": "PSK-1007",
    "MISSING_AGGREGATION": "PSK-1019",
    "MISSING_GROUP_BY": "PSK-1019",
    "NESTED_AGGREGATE_FUNCTION": "PSK-1019",
    "GROUP_BY_AGGREGATE": "PSK-1019",
    "INVALID_WHERE_CONDITION": "PSK-1019",
    "UNSUPPORTED_GROUPING_EXPRESSION": "PSK-1019",
    "GROUPING_COLUMN_MISMATCH": "PSK-1019",
    "GROUPING_ID_COLUMN_MISMATCH": "PSK-1019",
    "SCALAR_SUBQUERY_IS_IN_GROUP_BY_OR_AGGREGATE_FUNCTION": "PSK-1019",
    "WINDOW_FUNCTION_FRAME_NOT_ORDERED": "PSK-1019",
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": "PSK-1019",
    "GROUP_BY_POS_OUT_OF_RANGE": "PSK-1004",
    "ORDER_BY_POS_OUT_OF_RANGE": "PSK-1004",
    "EXPRESSION_TYPE_IS_NOT_ORDERABLE": "PSK-2011",
    "PARSE_SYNTAX_ERROR": "PSK-1001",
    "UNSUPPORTED_DATATYPE": "PSK-1013",
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": "PSK-1013",
    "DIVIDE_BY_ZERO": "PSK-7001",
    "ARITHMETIC_OVERFLOW": "PSK-7001",
    "CAST_INVALID_INPUT": "PSK-7001",
    "NUM_COLUMNS_MISMATCH": "PSK-1016",
    "INCOMPATIBLE_COLUMN_TYPE": "PSK-1007",
    "RECURSION_TOO_DEEP": "PSK-4003",
    "RECURSION_ROW_LIMIT_EXCEEDED": "PSK-4003",
    "CANNOT_LOAD_STATE_STORE": "PSK-6001",
}

_TOO_LARGE = (RESULT_TOO_LARGE, "spark.driver.maxResultSize")
"""The text in the message when a result is too large."""


_DAMAGED = re.compile(r"PSK-6001 \{(.*?)\}")
"""The kernel's message for a file whose checksum does not match."""


_PATTERN = re.compile(r"Fail to recognize '(.*?)' pattern in the DateTimeFormatter")
"""The text after which Spark suggests its own settings."""


@contextmanager
def translated() -> Iterator[None]:
    """Translates every error of Spark, and the effects of an exiting JVM, into a PenstockError."""
    try:
        yield
    except PenstockError:
        raise
    except (PySparkException, Py4JError) as error:
        raise (ended() or translate(error)) from error
    except RecursionError as error:
        raise fail("PSK-1020", "the statement is nested too deeply") from error
    except (OSError, EOFError) as error:
        # PySpark receives rows on separate sockets, not on those of its calls.
        end = ended(soon=True)
        if end is None:
            raise
        raise end from error
    except (pa.ArrowException, UnicodeError) as error:
        raise fail("PSK-7001", f"Spark's values cannot be read: {error}.") from error


def translate(error: BaseException) -> PenstockError:
    """Our error for one of Spark's: Spark's message without class names, plan and stack."""
    condition = ""
    text = str(error)
    if "java.lang.StackOverflowError" in text:
        return fail("PSK-1020", "the statement is too deep for Spark")
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        text = error.getMessage() or text
    # For state, Spark only says that it cannot be loaded; the cause names the file.
    if (found := _DAMAGED.search(f"{error} {text} {getattr(error, '_stackTrace', '')}")) is not None:
        return fail("PSK-6001", found[1], hint="Restore the file from a backup.")
    if "RECURSION_LEVEL_LIMIT_EXCEEDED" in f"{condition} {text}":
        return fail(
            "PSK-4003",
            f"The recursion of this SELECT takes more than {RECURSION_STEPS:,} steps.",
            hint="Add a condition to the recursive step, or create a view of it, which takes 10,000.",
        )
    if any(sign in text for sign in _TOO_LARGE):
        return fail("PSK-7009", "The result is too large to be held in memory.")
    refused = isinstance(error, (AnalysisException, ParseException)) and not condition.startswith("INTERNAL_ERROR")
    return fail(_code(condition, text, "PSK-1012" if refused else "PSK-7001"), _sentence(text))


def _code(condition: str, text: str, other: str) -> str:
    # The condition of a failure inside an operator follows Spark's condition for the operator.
    named = [condition, *re.findall(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\]", text)]
    return next((_BY_CONDITION[head] for n in named if (head := n.split(".")[0]) in _BY_CONDITION), other)


def _sentence(text: str) -> str:
    if (pattern := _PATTERN.search(text)) is not None:
        return f"'{pattern[1]}' is not a pattern for dates and times, such as yyyy-MM-dd HH:mm:ss"
    text = re.split(
        r"\n\s*(?:JVM stacktrace|== SQL|at org\.|at java\.|\s*at |'?\+?-? ?'?Project|;\n|== DataFrame|=== Streaming Query)",
        text,
    )[0]
    # Lines of a plan have numbered columns.
    text = re.split(r"\n[^\n]*#\d+", text)[0]
    text = re.sub(r"^An error occurred while calling [\w.:$]+\.\s*:\s*", "", text.strip())
    text = re.sub(r"^(?:[\w.$]+(?:Exception|Error): )+", "", text)
    text = re.sub(r"^\[[A-Z_.0-9]+\] ", "", text)
    text = re.sub(r"^An error occurred in the user-defined function \w+ of the StatefulProcessor\. Reason: ", "", text)
    text = re.sub(r"^\[[A-Z_.0-9]+\] ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    # This setting cannot be changed here.
    text = re.sub(r' If necessary set "spark\.sql\.ansi\.enabled" to "false" [^.]*\.', "", text)
    text = re.sub(r'"`?([\w$]*\$)', '"', text).replace(";\n", "\n")
    # Expressions of a plan are quoted, with internal column names.
    text = re.sub(r'"[^"\n]*"', lambda m: re.sub(r"\b\w[\w$]*\$(?=[A-Za-z_])", "", m[0]), text)
    return text.strip().rstrip(";").split("\n'")[0].strip()
