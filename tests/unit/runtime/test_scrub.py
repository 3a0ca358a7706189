from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.storing import drop, make, opened, part

from penstock.catalog.objects import Kind
from penstock.runtime.storage.scrub import Scrub

ONE = (1, "one")


def flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_damage_is_found_and_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        sources = [make(storage, f"s{i}", Kind.SOURCE) for i in range(3)]
        for _ in range(5):
            storage.commit([part(s, ONE) for s in sources])
        storage.log.sync()
        scrub = Scrub(storage)
        scrub.step(1 << 20)
        assert not scrub.findings
        entry = storage.log.entries(sources[1].id)[3]
        last = entry.offset + entry.length - 12
        flip(entry.path, last)
        # In small steps, it comes round to each of them.
        for _ in range(40):
            scrub.step(100)
        assert list(scrub.findings) == [sources[1].id]
        found = scrub.findings[sources[1].id]
        assert found.code == "PSK-6001" and f"commit {entry.lsn} are lost" in found.detail
        flip(entry.path, last)
        scrub.step(1 << 20)
        scrub.step(1 << 20)
        assert not scrub.findings
        flip(entry.path, last)
        scrub.step(1 << 20)
        drop(storage, sources[1])
        scrub.step(1 << 20)
        assert not scrub.findings
        scrub.step(0)


def test_a_damaged_snapshot_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path) as storage:
        tables = [make(storage, f"t{i}") for i in range(2)]
        for table in tables:
            storage.commit([part(table, (*ONE, 1))])
        storage.save_contents()
        paths = [storage.layout.snapshot(t.id) for t in tables]
        whole = [p.read_bytes() for p in paths]
        scrub = Scrub(storage)
        flip(str(paths[1]), len(whole[1]) // 2)
        # In small steps, it comes round to each of them.
        scrub.step(1)
        assert not caplog.records
        scrub.step(1)
        assert [p.read_bytes() for p in paths] == whole
        assert [r.levelname for r in caplog.records] == ["WARNING"] and str(paths[1]) in caplog.text
        scrub.step(1 << 20)
        assert len(caplog.records) == 1
