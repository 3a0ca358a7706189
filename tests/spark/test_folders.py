"""Folders that earlier versions wrote open in this one, with all their rows, and go on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.folders import ARCHIVES, WRITTEN, delivered, expected, rows, unpack, variables
from tests.spark.conftest import CONFIG, Opener

from penstock import Database, PenstockError
from penstock.runtime.storage.format import FORMAT

FOLDERS = sorted(ARCHIVES.glob("*.tar.xz"))
REFUSED = {"format-0": {"windows"}, "format-1": {"windows"}}
"""Queries whose state this version cannot read."""


def compare(db: Database, root: Path, count: int, gone: Collection[str]) -> None:
    db.flush(60)
    assert [(s.name, s.error) for s in db.status() if s.error] == []
    wanted = expected(count)
    assert delivered(root / "out") == wanted.pop("even")
    for name, contents in wanted.items():
        if name not in gone:
            assert Counter(db.sql(f"SELECT * FROM {name}").fetchall()) == contents, name


def test_there_is_a_folder_of_every_format() -> None:
    assert [f.name for f in FOLDERS] == [f"format-{n}.tar.xz" for n in range(FORMAT + 1)]
    assert sum(f.stat().st_size for f in FOLDERS) < 400_000


@pytest.mark.parametrize("archive", FOLDERS, ids=lambda f: f.name.partition(".")[0])
def test_a_folder_goes_on(opener: Opener, archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unpack(archive, tmp_path)
    refused = REFUSED.get(archive.name.partition(".")[0], set())
    with caplog.at_level(logging.WARNING, "penstock"):
        db = opener(tmp_path / "db", config=CONFIG | variables(tmp_path))
        errors = {s.name: str(s.error) for s in db.status() if s.error}
        assert set(errors) == refused and all("PSK-6003" in e for e in errors.values()), errors
        for name in refused:
            db.execute(f"DROP MATERIALIZED VIEW {name}")
        compare(db, tmp_path, WRITTEN, refused)
    # Nothing has begun again.
    assert not [r for r in caplog.messages if "goes on from" in r]
    earlier = archive.name != f"format-{FORMAT}.tar.xz"
    assert (tmp_path / "db" / "backup-format-0").exists() == earlier
    db.insert("s", rows(WRITTEN, 60))
    compare(db, tmp_path, 60, refused)
    db.close()
    db = opener(tmp_path / "db", config=CONFIG | variables(tmp_path))
    compare(db, tmp_path, 60, refused)


def test_a_view_that_has_other_types_now_is_refused_until_it_is_created_again(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions named the fields of struct(k) after columns of the plan."""
    create = "CREATE MATERIALIZED VIEW s AS SELECT id, struct(k) AS r FROM t"
    with monkeypatch.context() as earlier:
        earlier.setattr("penstock.sql.bind.fields._NAMED", {})
        db = opener(tmp_path / "db")
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k INT); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t"
        )
        db.execute(create)
        db.execute("INSERT INTO t VALUES (1, 5)")
        db.flush(60)
        assert db.sql("SELECT r FROM s").fetchall() == [({"t$k": 5},)]
        db.close()
    db = opener(tmp_path / "db")
    (error,) = (str(s.error) for s in db.status() if s.name == "s")
    assert "PSK-6003" in error and "t$k" in error and "struct<k:int>" in error and "Drop s" in error
    with pytest.raises(PenstockError, match="PSK-7006"):
        db.sql("SELECT * FROM s")
    for again in ("RESTART MATERIALIZED VIEW s", "RESTART MATERIALIZED VIEW s FROM BEGINNING"):
        with pytest.raises(PenstockError, match="PSK-6003"):
            db.execute(again)
    db.execute("INSERT INTO t VALUES (2, 6)")
    assert db.sql("SELECT n FROM n").fetchall() == [(2,)]
    db.execute(f"DROP MATERIALIZED VIEW s; {create}")
    db.flush(60)
    assert db.sql("SELECT r FROM s ORDER BY id").fetchall() == [({"k": 5},), ({"k": 6},)]
