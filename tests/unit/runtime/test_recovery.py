from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.runtime.storing import COLUMNS, in_contents, in_log, make, opened, part

from penstock.catalog.objects import Hosting, Kind, ObjectInfo, Role, Slot
from penstock.runtime.engine import Engine
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.storage import Storage

ONE = (1, "one")


def unfinished(storage: Storage, name: str = "unfinished") -> ObjectInfo:
    """An object with rows that a statement has made and not entered into the catalogue."""
    info = ObjectInfo(storage.catalog.new_id(), name, Kind.TABLE, COLUMNS, ("k",), changelog=True)
    storage.attach(info)
    storage.commit([part(info, (*ONE, 1))])
    return info


def recovered(storage: Storage) -> None:
    """What the engine does with a storage before it attaches its objects."""
    engine = object.__new__(Engine)
    engine.storage = storage
    engine._forget_unowned()


def test_an_object_that_the_catalogue_never_had_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        kept = make(storage, "t")
        storage.commit([part(kept, (*ONE, 1))])
        lost = unfinished(storage)
        storage.save_contents()
        storage.store.save(lost.id, storage.layout.snapshot(lost.id))
    with opened(tmp_path) as storage:
        recovered(storage)
        assert storage.log.object_ids() == [kept.id] and not storage.log.epoch(lost.id)
        assert not storage.layout.snapshot(lost.id).exists()
        assert in_contents(storage, kept) == in_log(storage, kept) == {ONE: 1}


@pytest.mark.parametrize("swept", [False, True], ids=["undone", "crashed"])
def test_an_id_is_never_given_twice(tmp_path: Path, swept: bool) -> None:
    with opened(tmp_path) as storage:
        make(storage, "t")
        lost = unfinished(storage)
        if not swept:
            storage.detach(lost.id)
    with opened(tmp_path) as storage:
        recovered(storage)
    with opened(tmp_path) as storage:
        table = make(storage, "u")
        assert table.id > lost.id
        storage.commit([part(table, (*ONE, 1))])
        assert in_contents(storage, table) == {ONE: 1}


def test_what_belongs_to_no_one_is_dropped_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        source = make(storage, "s", Kind.SOURCE)
        view = make(storage, "__subscription_1", Kind.VIEW, role=Role.SUBSCRIPTION, depends_on=(source.id,))
        probe = make(storage, "__probe_0", Kind.STREAM, role=Role.PROBE, owner_id=view.id)
        late = make(storage, "late", Kind.STREAM, role=Role.LATE_ROWS, owner_id=probe.id)
        sink = make(storage, "__sink_x", Kind.STREAM, role=Role.SINK_QUERY, owner_id=99)
        storage.commit([part(o, (*ONE, 1)) for o in (view, probe, late, sink)])
        owned = make(storage, "kept late", Kind.STREAM, role=Role.LATE_ROWS, owner_id=source.id)
    with opened(tmp_path) as storage:
        recovered(storage)
    with opened(tmp_path) as storage:
        assert [o.id for o in storage.catalog.objects()] == [source.id, owned.id]
        assert storage.log.object_ids() == []


def test_the_log_of_a_new_database_is_not_empty(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        recovered(storage)
        assert storage.log.head == 1
        recovered(storage)
        assert storage.log.head == 1


def test_the_sweep_takes_what_belongs_to_no_object_and_nothing_else(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    files = {
        "jobs/1/checkpoint/a": True,
        "jobs/2/checkpoint/a": False,
        "jobs/hosted-1-2/2/checkpoint/a": True,
        "jobs/hosted-1-2/1/checkpoint/a": False,
        "jobs/hosted-3/1/a": False,
        "jobs/notes/a": True,
        "jobs/12.txt": True,
        "views/1.arrow": True,
        "views/2.arrow": False,
        "views/.1.arrow.part": False,
        "views/1.arrow.tmp": False,
        "views/notes.txt": True,
        "catalog.json": True,
        "log/00000001.seg": True,
    }
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for _ in range(2):
        layout.sweep({1}, {"1-2": Hosting(2, 0, 1, {1: Slot(1, 0)})})
        assert {n: (tmp_path / n).exists() for n in files} == files
    layout.sweep({1}, {})
    assert not (layout.jobs / "hosted-1-2").exists() and layout.job(1).exists()


def test_an_empty_folder_has_nothing_to_sweep(tmp_path: Path) -> None:
    Layout(tmp_path).sweep((), {})
    assert list(tmp_path.iterdir()) == []


def test_an_object_with_more_columns_than_its_oldest_rows_is_read(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        source = make(storage, "s", Kind.SOURCE, columns=COLUMNS[:1])
        storage.commit([part(source, (1,))])
        grown = replace(source, columns=COLUMNS)
        storage.catalog.replace(grown)
        storage.regrow(grown, {})
        storage.commit([storage.feed(grown).part([{"k": 2, "v": "two"}])])
    with opened(tmp_path) as storage:
        assert in_log(storage, grown) == {(1, None): 1, (2, "two"): 1}
