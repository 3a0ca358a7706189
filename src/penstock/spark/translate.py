"""Translates Spark's errors into ours. The Java stack is kept as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError, fail
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
    "PARSE_SYNTAX_ERROR": "PSK-1001",
    "UNSUPPORTED_DATATYPE": "PSK-1013",
    "DIVIDE_BY_ZERO": "PSK-7001",
    "ARITHMETIC_OVERFLOW": "PSK-7001",
    "CAST_INVALID_INPUT": "PSK-7001",
    "NUM_COLUMNS_MISMATCH": "PSK-1016",
    "INCOMPATIBLE_COLUMN_TYPE": "PSK-1007",
    "RECURSION_TOO_DEEP": "PSK-4003",
    "CANNOT_LOAD_STATE_STORE": "PSK-6001",
}

_TOO_LARGE = (RESULT_TOO_LARGE, "spark.driver.maxResultSize")
"""The text in the message when a result is too large."""


_DAMAGED = re.compile(r"PSK-6001 \{(.*?)\}")
"""What the kernel says of a file that does not have its checksum."""


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
        # PySpark receives rows on other sockets than those of its calls.
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
    # Of state Spark says that it cannot be loaded, and the file is in the cause.
    if (found := _DAMAGED.search(f"{error} {text} {getattr(error, '_stackTrace', '')}")) is not None:
        return fail("PSK-6001", found[1], hint="Restore the file from a backup.")
    if any(sign in text for sign in _TOO_LARGE):
        return fail("PSK-7009", "The result is too large to be held in memory.")
    return fail(_code(condition, text), _sentence(text))


def _code(condition: str, text: str) -> str:
    # The condition of a failure inside an operator follows Spark's condition for the operator.
    named = [condition, *re.findall(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\]", text)]
    return next((_BY_CONDITION[head] for n in named if (head := n.split(".")[0]) in _BY_CONDITION), "PSK-7001")


def _sentence(text: str) -> str:
    text = re.split(
        r"\n\s*(?:JVM stacktrace|== SQL|at org\.|at java\.|\s*at |'?\+?-? ?'?Project|;\n|== DataFrame|=== Streaming Query)",
        text,
    )[0]
    text = re.sub(r"^(?:[\w.$]+(?:Exception|Error): )+", "", text.strip())
    text = re.sub(r"^\[[A-Z_.0-9]+\] ", "", text)
    text = re.sub(r"^An error occurred in the user-defined function \w+ of the StatefulProcessor\. Reason: ", "", text)
    text = re.sub(r"^\[[A-Z_.0-9]+\] ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    text = re.sub(r'"`?([\w$]*\$)', '"', text).replace(";\n", "\n")
    return text.strip().rstrip(";").split("\n'")[0].strip()
