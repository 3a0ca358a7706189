"""Errors of Spark in our words."""

from __future__ import annotations

from pyspark.errors import PySparkException

from penstock.spark.translate import translate

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
