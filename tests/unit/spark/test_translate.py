"""Errors of Spark in our words."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from penstock.spark.translate import _sentence, translate

STATE = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030"


class Captured(PySparkException):
    """An error of the JVM, whose causes are in its stack trace alone."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self._stackTrace = trace


def test_the_file_of_damaged_state_is_named() -> None:
    """Spark says that state cannot be loaded, and the kernel's error, deep in the causes, says why."""
    file = "/data/jobs/7/checkpoint/state/0/0/3.changelog"
    cause = f"Caused by: dev.penstock.kernel.state.Damaged: PSK-6001 {{{file} is damaged. It is lost.}}\n\tat …"
    found = translate(Captured(STATE, f"org.apache.spark.SparkException: {STATE}\n{cause}"))
    assert found.code == "PSK-6001" and found.detail == f"{file} is damaged. It is lost."


def test_state_that_cannot_be_loaded_is_damaged() -> None:
    assert translate(Captured(STATE, "at …")).code == "PSK-6001"


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("MISSING_AGGREGATION", "PSK-1019"),
        ("INVALID_EXTRACT_BASE_FIELD_TYPE", "PSK-1007"),
        ("DISTINCT_WINDOW_FUNCTION_UNSUPPORTED", "PSK-1012"),
        ("INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND", "PSK-7001"),
    ],
)
def test_what_spark_refuses_is_an_error_of_the_statement(condition: str, code: str) -> None:
    class Refused(AnalysisException):
        def getCondition(self) -> str:
            return condition

    found = translate(Refused(f"[{condition}] It is wrong. SQLSTATE: 42000; line 1 pos 0;\nProject [a#1]\n+- Relation"))
    assert (found.code, found.detail.split(";")[0].strip()) == (code, "It is wrong.")


def test_a_recursion_that_is_too_deep() -> None:
    text = "[RECURSION_LEVEL_LIMIT_EXCEEDED] Recursion level limit 1000 reached, try 'WITH RECURSIVE t(col) MAX RECURSION LEVEL 200'."
    error = translate(PySparkException(text))
    assert error.code == "PSK-4003" and error.detail == "The recursion of this SELECT takes more than 1,000 steps."


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (
            '[ARITHMETIC_OVERFLOW] overflow. Use \'try_add\'. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22003',
            "overflow. Use 'try_add'.",
        ),
        (
            "An error occurred while calling z:dev.penstock.kernel.host.ArrowFiles.write.\n: org.apache.spark.SparkException: "
            "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000\n\tat org.apache.spark.Thing",
            "More than one row.",
        ),
    ],
)
def test_a_message_is_about_the_statement(text: str, detail: str) -> None:
    """Without the names of classes, and without settings that nobody can set here."""
    assert _sentence(text) == detail
