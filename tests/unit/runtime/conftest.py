"""A storage for tests that look at single objects of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.ducks import reuse
from tests.unit.runtime.storing import drop, opened

from penstock.runtime.storage.storage import Storage


@pytest.fixture(autouse=True)
def _reused_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    reuse(monkeypatch)


@pytest.fixture(scope="module")
def shared_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("storage")) as storage:
        yield storage


@pytest.fixture
def storage(shared_storage: Storage) -> Iterator[Storage]:
    yield shared_storage
    for info in reversed(shared_storage.catalog.objects()):
        drop(shared_storage, info)
