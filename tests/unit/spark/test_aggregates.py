"""The aggregates that the compiler treats specially."""

from __future__ import annotations

from penstock.spark.aggregates import _OF_NUMBERS, _OF_TRUTH, NATIVE
from penstock.sql.functions import MAINTAINED


def test_every_name_is_one_that_the_binder_produces() -> None:
    assert NATIVE <= MAINTAINED
    assert _OF_TRUTH <= MAINTAINED
    assert _OF_NUMBERS <= MAINTAINED
