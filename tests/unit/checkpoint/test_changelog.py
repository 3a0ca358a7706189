"""Changelog entries, their ring buffer and the table of source ids."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint import (
    NO_WATERMARK,
    OverflowPolicy,
    SourceIds,
    StreamChangelogBuffer,
    StreamChangelogEntry,
    StreamChangeOp,
)
from penstock.errors import PenstockError

from ...effort import EFFORT

ENTRIES = st.builds(
    StreamChangelogEntry,
    st.integers(0, 2**16 - 1),
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


def push(sequence: int) -> StreamChangelogEntry:
    return StreamChangelogEntry(0, StreamChangeOp.PUSH, sequence)


def test_changelog_entry_size() -> None:
    assert len(push(1).to_bytes()) == 24


def test_the_bytes_of_an_entry() -> None:
    entry = StreamChangelogEntry(0x0102, StreamChangeOp.BARRIER, 0x030405060708090A, -2)
    assert entry.to_bytes().hex() == "02010200000000000a09080706050403feffffffffffffff"
    assert push(1).watermark == NO_WATERMARK


@given(ENTRIES)
@settings(max_examples=50 * EFFORT)
def test_an_entry_comes_back_from_its_bytes(entry: StreamChangelogEntry) -> None:
    assert StreamChangelogEntry.from_bytes(entry.to_bytes()) == entry


def test_an_unknown_operation_has_no_type() -> None:
    assert [StreamChangelogEntry(0, op, 0).op_type for op in (0, 1, 2, 3, 255)] == [*StreamChangeOp, None, None]


@pytest.mark.parametrize(
    "entry",
    [
        StreamChangelogEntry(2**16, 0, 0),
        StreamChangelogEntry(0, 256, 0),
        StreamChangelogEntry(0, 0, -1),
        StreamChangelogEntry(0, 0, 0, 2**63),
    ],
)
def test_a_number_that_does_not_fit_is_refused_and_changes_nothing(entry: StreamChangelogEntry) -> None:
    buffer = StreamChangelogBuffer(1)
    with pytest.raises(PenstockError, match="PSK-0009"):
        buffer.push(entry)
    assert buffer.is_empty


def test_changelog_buffer_push_pop() -> None:
    buffer = StreamChangelogBuffer(4, OverflowPolicy.DROP_NEW)
    assert buffer.is_empty
    assert buffer.push(push(1))
    assert len(buffer) == 1
    popped = buffer.pop()
    assert popped is not None and popped.sequence == 1
    assert buffer.is_empty and buffer.pop() is None


def test_changelog_buffer_overflow() -> None:
    buffer = StreamChangelogBuffer(2, OverflowPolicy.DROP_NEW)
    assert [buffer.push(push(i)) for i in (1, 2)] == [True, True]
    assert buffer.is_full
    assert not buffer.push(push(3))
    assert buffer.overflow_count == 1
    assert buffer.pop() == push(1)

    buffer = StreamChangelogBuffer(2, OverflowPolicy.OVERWRITE_OLDEST)
    assert [buffer.push(push(i)) for i in (1, 2, 3)] == [True, True, True]
    assert buffer.overflow_count == 1
    assert buffer.pop() == push(2)


def test_a_buffer_without_room_is_refused() -> None:
    with pytest.raises(PenstockError, match="changelog_capacity must be > 0"):
        StreamChangelogBuffer(0)
    with pytest.raises(PenstockError, match=r"PSK-6015.*more than there is memory for"):
        StreamChangelogBuffer(2**60)


def test_an_entry_that_is_cut_is_refused() -> None:
    for length in range(24):
        with pytest.raises(PenstockError, match=r"PSK-6016.*truncated changelog entry"):
            StreamChangelogEntry.from_bytes(push(1).to_bytes()[:length])


@given(st.integers(1, 5), st.sampled_from(OverflowPolicy), st.lists(st.one_of(ENTRIES, st.integers(0, 6)), max_size=40))
@settings(max_examples=100 * EFFORT)
def test_the_buffer_agrees_with_a_queue(
    capacity: int, policy: OverflowPolicy, steps: list[StreamChangelogEntry | int]
) -> None:
    """An entry is pushed; a number drains as many."""
    buffer = StreamChangelogBuffer(capacity, policy)
    model: deque[StreamChangelogEntry] = deque()
    overflows = 0
    for step in steps:
        if isinstance(step, int):
            assert buffer.drain(step) == [model.popleft() for _ in range(min(step, len(model)))]
        elif len(model) < capacity:
            assert buffer.push(step)
            model.append(step)
        else:
            overflows += 1
            assert buffer.push(step) is (policy is OverflowPolicy.OVERWRITE_OLDEST)
            if policy is OverflowPolicy.OVERWRITE_OLDEST:
                model.popleft()
                model.append(step)
        assert (len(buffer), buffer.is_empty, buffer.is_full) == (len(model), not model, len(model) == capacity)
        assert (buffer.overflow_count, buffer.capacity) == (overflows, capacity)
    assert buffer.drain() == list(model)


def test_source_ids_are_stable_and_reused_last() -> None:
    ids = SourceIds()
    assert [ids.of(n) for n in (10**12, 7, 10**12)] == [0, 1, 0]
    ids.release(7)
    assert ids.object_of(1) is None
    assert ids.of(8) == 2
    assert (len(ids), list(ids)) == (2, [10**12, 8])


def test_released_source_ids_are_given_out_when_no_other_is_left() -> None:
    ids = SourceIds()
    for n in range(2**16):
        ids.of(n)
    with pytest.raises(PenstockError, match="more than 65536 sources"):
        ids.of(2**16)
    ids.release(9)
    ids.release(5)
    assert [ids.of(n) for n in (2**16, 2**16 + 1)] == [9, 5]
    assert ids.object_of(9) == 2**16


def test_the_table_of_source_ids_comes_back_from_its_bytes() -> None:
    ids = SourceIds()
    for n in (100, 200, 300):
        ids.of(n)
    ids.release(200)
    again = SourceIds.from_bytes(ids.to_bytes())
    assert [again.object_of(i) for i in range(3)] == [100, None, 300]
    assert again.of(400) == 3
    for damaged in (ids.to_bytes()[:-1], ids.to_bytes() * 2):
        with pytest.raises(PenstockError, match="PSK-6016"):
            SourceIds.from_bytes(damaged)
