"""The lifecycle of the process's Spark, as far as it goes without one."""

from __future__ import annotations

import itertools

import pytest

from penstock.errors import PenstockError, fail
from penstock.spark.lifecycle import _NEXT, Phase, Spark
from penstock.spark.session import releasing


def test_every_phase_has_its_next_ones_and_can_be_left_by_the_exit() -> None:
    assert set(_NEXT) == set(Phase)
    assert all(Phase.OVER in after for phase, after in _NEXT.items() if phase is not Phase.OVER)


@pytest.mark.parametrize(("before", "after"), [(a, b) for a, b in itertools.product(Phase, Phase) if b not in _NEXT[a]])
def test_an_illegal_step_names_both_phases(before: Phase, after: Phase) -> None:
    spark = Spark()
    spark._phase = before
    with pytest.raises(PenstockError) as refused:
        spark._to(after)
    assert refused.value.code == "PSK-0006"
    assert before.value in refused.value.detail and after.value in refused.value.detail


def test_without_a_jvm_there_is_nothing_to_ask() -> None:
    spark = Spark()
    assert spark.end() is None
    with pytest.raises(PenstockError) as refused:
        spark.running()
    assert refused.value.code == "PSK-8001"


def test_what_a_dead_jvm_held_is_released() -> None:
    with releasing():
        raise fail("PSK-7005", "Spark's JVM has ended.")
    with pytest.raises(PenstockError), releasing():
        raise fail("PSK-7001", "The query failed.")
