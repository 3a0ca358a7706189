from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import times
from tests.unit.runtime.storing import Row, added, drop, in_contents, in_log, make, opened, part, summed

from penstock.catalog.objects import Column, Kind, ObjectInfo, Role
from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.log import Covered
from penstock.runtime.storage.record import Recorder, _ordered, change_part
from penstock.runtime.storage.storage import Storage

ONE, TWO = (1, "one"), (2, "two")
GENERATION = 1 << 40


@dataclass(frozen=True)
class Epoch:
    """Stands in for an epoch of the kernel."""

    number: int
    lsn: int
    batches: tuple[tuple[pa.RecordBatch, ...], ...]
    watermark: int | None = None
    errors: tuple[pa.Table | None, ...] = ()
    idle: bool = False
    after: int = 0
    beat: int = 0
    arrived: tuple[tuple[int, ...], ...] = ()

    @property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """The watermarks that were in force; unless the test says otherwise nothing is known of the arrival of the rows."""
        return self.arrived or tuple(() for _ in self.batches)


@dataclass(frozen=True)
class Output:
    """Stands in for what the compiler says of an output."""

    changelog: bool = True
    consolidated: bool = False


def batches(info: ObjectInfo, *rows: Row) -> tuple[pa.RecordBatch, ...]:
    """One batch for each row, as tasks would put them out."""
    return tuple(b for r in rows for b in part(info, r).batches)


def recorder(storage: Storage, *objects: ObjectInfo, outputs: Sequence[Output] | None = None, **more: Any) -> Recorder:
    made: Any = outputs or [Output(o.changelog) for o in objects]
    return Recorder(storage, objects, made, **more)


def record(r: Recorder, epoch: Any) -> None:
    r.record(epoch, lambda: False)


def test_an_epoch_is_one_commit_and_a_replay_of_it_is_dropped(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    r = recorder(storage, view)
    epoch = Epoch(0, 5, (batches(view, (*ONE, 1)),))
    record(r, epoch)
    record(r, epoch)
    record(recorder(storage, view), epoch)
    assert in_log(storage, view) == in_contents(storage, view) == {ONE: 1}
    assert (storage.log.epoch(view.id), storage.log.job_epoch(view.id)) == (1, 0)
    record(r, Epoch(1, 6, (batches(view, (*TWO, 1)),)))
    assert in_contents(storage, view) == {ONE: 1, TWO: 1} and storage.log.job_epoch(view.id) == 1


def test_a_replay_is_known_by_what_it_has_read_and_not_by_its_number(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    r = recorder(storage, view)
    for n in (1, 2, 3):
        record(r, Epoch(n, 10 * n, (batches(view, (n, "x", 1)),), after=10 * (n - 1)))
    # The checkpoint was lost: the same commits come in another epoch, with a number that is new or old, and then one that is new.
    for number in (0, 3, 9):
        record(r, Epoch(number, 30, (batches(view, (1, "x", 1), (2, "x", 1), (3, "x", 1)),)))
    assert r.recorded() == Covered(20, 30)
    record(r, Epoch(1, 31, (batches(view, (4, "x", 1)),), after=30))
    assert in_contents(storage, view) == {(n, "x"): 1 for n in (1, 2, 3, 4)}


def test_epochs_that_reach_equally_far_are_told_apart(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    r = recorder(storage, view)
    epochs = [
        Epoch(n, 7, (batches(view, (n, "x", 1)),), watermark=watermark, beat=beat)
        for n, (watermark, beat) in enumerate([(None, 0), (5, 0), (5, 1), (6, 0)])
    ]
    for i, epoch in enumerate(epochs):
        record(r, epoch)
        for again in epochs[: i + 1]:
            record(recorder(storage, view), again)
    assert in_contents(storage, view) == {(n, "x"): 1 for n in range(4)}
    # A query that begins again has nothing recorded, whatever it had read before.
    again = recorder(storage, view, base=GENERATION)
    assert again.recorded() is None
    record(again, Epoch(0, 3, (batches(view, (9, "x", 1)),)))
    record(again, Epoch(0, 3, (batches(view, (9, "x", 1)),)))
    assert in_contents(storage, view)[(9, "x")] == 1


def test_a_replay_is_known_after_the_database_was_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        view = make(storage, "v", Kind.VIEW)
        record(recorder(storage, view), Epoch(7, 5, (batches(view, (*ONE, 1)),)))
        # What does not come from the job leaves its number alone, and so does trimming.
        storage.commit([part(view, (*TWO, 1))])
        storage.save_contents()
        storage.log.trim({view.id: storage.log.head})
    with opened(tmp_path) as storage:
        record(recorder(storage, view), Epoch(7, 5, (batches(view, (*ONE, 1)),)))
        record(recorder(storage, view), Epoch(8, 6, (batches(view, (*ONE, -1)),)))
        assert in_contents(storage, view) == {TWO: 1}


def test_rows_of_one_epoch_are_consolidated_with_retractions_first(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    record(recorder(storage, view), Epoch(0, 1, (batches(view, (*ONE, 2)),)))
    rows = [(*TWO, 1), (*ONE, 1), (3, "gone", 1), (*ONE, -2), (3, "gone", -1), (4, None, 1), (4, None, 1)]
    record(recorder(storage, view), Epoch(1, 2, (batches(view, *rows),)))
    (_, entry) = storage.log.entries(view.id)
    stored = storage.log.read(entry, stored_schema(view))
    assert added(stored) == {ONE: -1, TWO: 1, (4, None): 2} and stored.num_rows == 3
    assert stored["__weight"].to_pylist()[0] == -1
    assert in_contents(storage, view) == {ONE: 1, TWO: 1, (4, None): 2}


def test_consolidated_rows_are_only_put_in_order(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW, columns=(Column("x", "double"),))
    r = recorder(storage, view, outputs=[Output(consolidated=True)])
    record(r, Epoch(0, 1, (batches(view, (1.5, 1), (-0.0, 1)),)))
    record(r, Epoch(1, 2, (batches(view, (2.5, 1), (0.0, -1), (3.5, 1), (1.5, -1)),)))
    (first, last) = storage.log.entries(view.id)
    assert str(storage.log.read(first, stored_schema(view))["x"].to_pylist()) == "[1.5, 0.0]"
    assert storage.log.read(last, stored_schema(view)).to_pydict() == {
        "x": [0.0, 1.5, 2.5, 3.5],
        "__weight": [-1, -1, 1, 1],
    }
    assert in_contents(storage, view) == {(2.5,): 1, (3.5,): 1}


@settings(max_examples=times(15))
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", None]), st.integers(-2, 2).filter(bool))),
    consolidated=st.booleans(),
)
def test_order_changes_no_sum(rows: list[Row], consolidated: bool) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("__weight", pa.int64())])
    table = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    made: Any = Output(consolidated=consolidated)
    ordered = _ordered(table, made)
    assert added(ordered) == added(table) and ordered.schema == schema
    weights = ordered["__weight"].to_pylist()
    assert weights == sorted(weights, key=lambda w: w > 0) and 0 not in weights
    if not consolidated:
        assert ordered.num_rows == len(added(table))


def test_rows_that_cannot_be_retracted_stay_as_they_come(storage: Storage) -> None:
    stream = make(storage, "s", Kind.STREAM, changelog=False)
    record(recorder(storage, stream), Epoch(0, 1, (batches(stream, TWO, ONE, TWO),)))
    (entry,) = storage.log.entries(stream.id)
    assert storage.log.read(entry, stored_schema(stream)).to_pydict() == {"k": [2, 1, 2], "v": ["two", "one", "two"]}


def test_several_outputs_are_one_commit(storage: Storage) -> None:
    view, late = make(storage, "v", Kind.VIEW), make(storage, "late", Kind.STREAM, changelog=False)
    r = recorder(storage, view, late)
    record(r, Epoch(0, 1, (batches(view, (*ONE, 1)), batches(late, TWO))))
    assert storage.log.entries(view.id)[0].lsn == storage.log.entries(late.id)[0].lsn == storage.log.head
    # An output without rows has no part in it; the number of the epoch is known from the others.
    record(r, Epoch(1, 2, (batches(view, (*TWO, 1)), ())))
    assert (storage.log.job_epoch(view.id), storage.log.job_epoch(late.id)) == (1, 0)
    record(r, Epoch(1, 2, (batches(view, (*TWO, 1)), ())))
    record(r, Epoch(2, 3, ((), batches(late, ONE))))
    record(r, Epoch(2, 3, ((), batches(late, ONE))))
    assert in_contents(storage, view) == {ONE: 1, TWO: 1} and in_log(storage, late) == {ONE: 1, TWO: 1}


def test_a_watermark_alone_is_recorded_for_every_output(storage: Storage) -> None:
    view, late = make(storage, "v", Kind.VIEW), make(storage, "late", Kind.STREAM)
    r = recorder(storage, view, late)
    record(r, Epoch(0, 1, ((), ()), watermark=1000))
    assert [storage.log.watermark(o.id) for o in (view, late)] == [1000, 1000]
    assert [storage.log.job_epoch(o.id) for o in (view, late)] == [0, 0]
    head = storage.log.head
    record(r, Epoch(0, 1, ((), ()), watermark=1000))
    assert storage.log.head == head
    # A watermark never falls.
    record(r, Epoch(1, 1, (batches(view, (*ONE, 1)), ()), watermark=500))
    assert [storage.log.watermark(o.id) for o in (view, late)] == [1000, 1000]


def test_idleness_alone_is_recorded(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    r = recorder(storage, view)
    for _ in range(2):
        record(r, Epoch(0, 1, ((),), idle=True))
    entry = storage.log.last_entry(view.id)
    assert entry is not None and entry.idle and storage.log.epoch(view.id) == 1
    record(r, Epoch(1, 2, (batches(view, (*ONE, 1)),)))
    entry = storage.log.last_entry(view.id)
    assert entry is not None and not entry.idle


def test_watermarks_that_were_in_force_go_with_the_batches_of_an_append_only_stream(storage: Storage) -> None:
    stream, view = make(storage, "s", Kind.STREAM, changelog=False), make(storage, "v", Kind.VIEW)
    rows = (batches(stream, TWO, ONE), batches(view, (*TWO, 1), (*ONE, 1)))
    record(recorder(storage, stream, view), Epoch(0, 1, rows, arrived=((50, 70), (50, 70))))
    (entry,) = storage.log.entries(stream.id)
    assert entry.before == (50, 70) and [n for _, _, n in entry.batches] == [1, 1]
    # The rows of a changelog are put into another order.
    assert storage.log.entries(view.id)[0].before == ()


def test_an_epoch_with_nothing_in_it_is_no_commit(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    head = storage.log.head
    record(recorder(storage, view), Epoch(0, 1, ((),)))
    record(recorder(storage, view), Epoch(1, 1, (batches(view, (*ONE, 1), (*ONE, -1)),)))
    assert storage.log.head == head


def test_numbers_go_on_rising_over_generations(storage: Storage) -> None:
    one, two = make(storage, "a", Kind.VIEW), make(storage, "b", Kind.VIEW)
    first = recorder(storage, one, two, base=GENERATION)
    record(first, Epoch(0, 1, (batches(one, (*ONE, 1)), batches(two, (*ONE, 1)))))
    record(first, Epoch(9, 2, (batches(one, (*TWO, 1)), ())))
    # The next generation counts from 0 again, and its first epoch is none of those before.
    second = recorder(storage, one, two, base=2 * GENERATION)
    record(second, Epoch(0, 3, (batches(one, (3, "three", 1)), ())))
    # Each goes on alone, with numbers of its own, under one base.
    record(recorder(storage, one, base=3 * GENERATION), Epoch(0, 4, (batches(one, (*TWO, -1)),)))
    record(recorder(storage, two, base=3 * GENERATION), Epoch(0, 4, (batches(two, (*TWO, 1)),)))
    # What a job of an earlier generation still had is dropped.
    record(second, Epoch(1, 4, (batches(one, (*TWO, -1)), ())))
    assert in_contents(storage, one) == {ONE: 1, (3, "three"): 1} and in_contents(storage, two) == {ONE: 1, TWO: 1}
    assert storage.log.job_epoch(one.id) == 3 * GENERATION


def test_the_input_of_a_view_on_views_is_what_the_slowest_has_taken_in(storage: Storage) -> None:
    source, table = make(storage, "s", Kind.SOURCE), make(storage, "t")
    fast = make(storage, "fast", Kind.VIEW, depends_on=(source.id,))
    slow = make(storage, "slow", Kind.VIEW, depends_on=(source.id, table.id))
    both = make(storage, "both", Kind.VIEW, depends_on=(fast.id, slow.id))
    top = make(storage, "top", Kind.VIEW, depends_on=(both.id, table.id))
    numbers: dict[int, int] = {}
    first = storage.log.head

    def epoch(info: ObjectInfo, lsn: int) -> int:
        """Records an epoch that has taken in the log up to an LSN; what its entry says that it was caused by."""
        number = numbers[info.id] = numbers.get(info.id, -1) + 1
        record(recorder(storage, info), Epoch(number, first + lsn, (batches(info, (number, "x", 1)),)))
        entry = storage.log.last_entry(info.id)
        assert entry is not None
        return entry.input_lsn - first

    for row in ((1, "a"), (2, "b"), (3, "c")):
        storage.commit([part(source, row)])
    storage.commit([part(table, (1, "a", 1))])
    # 1, 2 and 3 went into the source, 4 into the table.
    assert (epoch(fast, 3), epoch(slow, 2)) == (3, 2)
    assert storage.log.head == first + 6
    assert epoch(both, 6) == 2
    assert epoch(top, 7) == 2
    assert epoch(slow, 4) == 4
    assert epoch(both, 9) == 3
    # An epoch that was formed before its input went on does not claim what came later.
    assert epoch(top, 8) == 2
    assert epoch(top, 10) == 3
    # Nobody has taken in more than the epoch itself has.
    assert epoch(fast, 12) == 12
    assert epoch(both, 11) == 3


class Lookup:
    """Stands in for an on-demand lookup table: answers what it is told to, or fails."""

    def __init__(self, info: ObjectInfo, found: pa.Table | None, error: PenstockError | None = None) -> None:
        self.info = info
        self.found = found
        self.error = error
        self.keys: list[list[Any]] = []

    def asked(self, rows: pa.Table) -> pa.Table:
        return rows.select(["k"])

    def answer(self, keys: pa.Table, stopping: Callable[[], bool], commit: Callable[[pa.Table | None], None]) -> None:
        self.keys.append(keys["k"].to_pylist())
        if self.error is not None or stopping():
            raise self.error or fail("PSK-7002", "The query was stopped.")
        commit(self.found)


def test_what_the_rows_of_an_epoch_ask_for_is_in_the_same_commit(storage: Storage) -> None:
    lookup = make(storage, "d", Kind.LOOKUP)
    probe = make(storage, "p", Kind.STREAM)
    answers = Lookup(lookup, pa.Table.from_batches(part(lookup, (*ONE, 1)).batches))
    r = recorder(storage, probe, asks=answers)
    epoch = Epoch(0, 1, (batches(probe, (*ONE, 1), (*TWO, 1), (*TWO, -1)),))
    record(r, epoch)
    (row,), (asked,) = storage.log.entries(lookup.id), storage.log.entries(probe.id)
    assert row.lsn == asked.lsn and in_contents(storage, lookup) == {ONE: 1}
    # A replay is dropped without asking anybody.
    record(r, epoch)
    assert answers.keys == [[1]] and storage.log.head == row.lsn

    answers.found = None
    record(r, Epoch(1, 2, (batches(probe, (*TWO, 1)),)))
    assert answers.keys == [[1], [2]] and len(storage.log.entries(lookup.id)) == 1
    # An epoch without rows asks nothing.
    record(r, Epoch(2, 3, ((),), watermark=7))
    assert len(answers.keys) == 2 and storage.log.watermark(probe.id) == 7


def test_an_epoch_that_is_not_answered_is_not_recorded(storage: Storage) -> None:
    lookup, probe = make(storage, "d", Kind.LOOKUP), make(storage, "p", Kind.STREAM)
    answers = Lookup(lookup, None, fail("PSK-5002", "The source is away."))
    r = recorder(storage, probe, asks=answers)
    epoch: Any = Epoch(0, 1, (batches(probe, (*ONE, 1)),))
    with pytest.raises(PenstockError, match="PSK-5002"):
        record(r, epoch)
    answers.error = None
    with pytest.raises(PenstockError, match="PSK-7002"):
        r.record(epoch, lambda: True)
    assert storage.log.epoch(probe.id) == 0 and storage.log.job_epoch(probe.id) == -1
    record(r, epoch)
    assert in_log(storage, probe) == {ONE: 1}


def test_a_dropped_output_refuses_the_epoch(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    r = recorder(storage, view)
    drop(storage, view)
    with pytest.raises(PenstockError, match="PSK-1002"):
        record(r, Epoch(0, 1, (batches(view, (*ONE, 1)),)))


def test_an_epoch_that_could_not_be_stored_is_refused_before_the_commit(storage: Storage) -> None:
    view, other = make(storage, "v", Kind.VIEW), make(storage, "w", Kind.VIEW)
    (bad,) = batches(view, (1, "ab", 1))
    text = pa.Array.from_buffers(pa.string(), 1, [None, bad.column(1).buffers()[1], pa.py_buffer(b"a\xff")])
    bad = bad.set_column(1, bad.schema.field(1), text)
    head = storage.log.head
    with pytest.raises(
        PenstockError, match="PSK-7001: Column v of v has a value that cannot be stored: it is not UTF-8"
    ):
        record(recorder(storage, other, view), Epoch(0, 1, (batches(other, (*ONE, 1)), (bad,))))
    assert storage.log.head == head and not storage.damage


def test_a_change_is_cut_into_batches(storage: Storage) -> None:
    table = make(storage, "t")
    delta = pa.Table.from_batches(part(table, *((i, "x", 1) for i in range(5))).batches)
    assert [b.num_rows for b in change_part(table, delta, 2).batches] == [2, 2, 1]
    assert change_part(table, delta.slice(0, 0)).batches == ()
    assert summed([added(pa.Table.from_batches(change_part(table, delta).batches))]) == added(delta)


def test_rows_that_could_not_be_computed_are_recorded_with_their_epoch(storage: Storage) -> None:
    view = make(storage, "v", Kind.VIEW)
    columns = tuple(Column(n, "string") for n in ("expression", "error", "row"))
    errors = make(storage, "__errors_v", Kind.VIEW, columns=columns, role=Role.ERRORS, owner_id=view.id)
    r = recorder(storage, view, errors=[errors])

    def failed(weight: int) -> pa.Table:
        row = {"expression": "1 / k", "error": "Division by zero.", "row": "{0}", "__weight": weight}
        return pa.Table.from_pylist([row], stored_schema(errors))

    assert r.record(cast("Any", Epoch(0, 1, (batches(view, (*ONE, 1)),), errors=(failed(1),))), bool) is True
    assert storage.log.entries(view.id)[0].lsn == storage.log.entries(errors.id)[0].lsn
    assert len(in_contents(storage, errors)) == 1
    # A replay is known by the errors too, where the epoch had nothing else.
    assert r.record(cast("Any", Epoch(1, 2, ((),), errors=(failed(-1),))), bool) is True
    assert r.record(cast("Any", Epoch(1, 2, ((),), errors=(failed(-1),))), bool) is False
    assert not in_contents(storage, errors)
    assert r.record(cast("Any", Epoch(2, 3, (batches(view, (*TWO, 1)),), errors=(None,))), bool) is False
    # A query that has no place for them fails.
    alone = recorder(storage, view, base=GENERATION, errors=[None])
    with pytest.raises(PenstockError, match="Division by zero"):
        record(alone, Epoch(0, 4, ((),), errors=(failed(1),)))
