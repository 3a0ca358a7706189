from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.unit.runtime.storing import drop, follow, in_contents, in_log, make, opened, part, read, together

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError
from penstock.runtime.storage.storage import Storage

ONE, TWO = (1, "one"), (2, "two")


def test_commits_into_dropped_objects_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        one, other = make(storage, "t"), make(storage, "u")
        told = follow(storage, one)
        lsn = storage.commit([part(one, (*ONE, 1))]).lsn
        drop(storage, one)
        for parts in ([part(one, (*TWO, 1))], [part(other, (*TWO, 1)), part(one, (*TWO, 1))]):
            with pytest.raises(PenstockError) as refused:
                storage.commit(parts)
            assert refused.value.code == "PSK-1002"
        with pytest.raises(PenstockError, match="PSK-1002"):
            storage.info(one.id)
        with pytest.raises(PenstockError, match="PSK-1002"):
            storage.feed(one)
        assert storage.log.head == lsn and not in_contents(storage, other)
        # What came before the drop can still be read; then the subscription ends.
        assert read(told, lsn) == [(lsn, {ONE: 1})]
        assert told.next(timeout=5) is None and told.closed


def race(storage: Storage, kept: ObjectInfo, gone: ObjectInfo) -> list[int]:
    """Two threads commit into both objects until one of these is dropped; the LSNs of their commits."""
    begun = threading.Semaphore(0)
    lsns: list[int] = []
    refusals: list[str] = []

    def write() -> None:
        try:
            while True:
                lsns.append(storage.commit([part(gone, (*ONE, 1)), part(kept, (*ONE, 1))]).lsn)
                begun.release()
        except PenstockError as error:
            refusals.append(error.code)

    def away() -> None:
        for _ in range(5):
            assert begun.acquire(timeout=10)
        drop(storage, gone)

    together([write, write, away])
    assert refusals == ["PSK-1002", "PSK-1002"]
    return lsns


def test_a_drop_beside_commits_refuses_them_from_one_point_on(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        kept = make(storage, "kept", Kind.VIEW)
        for number in range(3):
            gone = make(storage, f"v{number}", Kind.VIEW)
            lsns = race(storage, kept, gone)
            assert storage.log.head == max(lsns) and not storage.log.entries(gone.id)
        assert in_contents(storage, kept) == in_log(storage, kept) == {ONE: storage.log.head}
