"""SQL reaches nothing outside the database, unless the settings say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import until

import penstock
from penstock.catalog.file import read_catalog, write_catalog
from penstock.errors import PenstockError

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, s STRING);
CREATE TABLE `/etc/hostname` (id INT PRIMARY KEY, value STRING);
CREATE SOURCE src (id INT, s STRING);
INSERT INTO t VALUES (1, 'a')
"""
HOME = "reflect('java.lang.System', 'getenv', 'HOME')"


@pytest.fixture(scope="module")
def shared(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with penstock.open(master="local[2]", config=CONFIG) as database:
        database.execute(TABLES)
        yield database


def refused(db: penstock.Database, sql: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        db.execute(sql)
    return caught.value


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {HOME}",
        f"SELECT id FROM t WHERE s = {HOME}",
        f"SELECT builtin.`Reflect`{HOME.removeprefix('reflect')}",
        "SELECT TRANSFORM(s) USING 'id' FROM t",
        f"SELECT {HOME.replace('reflect', 'java_method')}",
        f"INSERT INTO t VALUES (2, {HOME})",
        f"INSERT INTO t SELECT 2, {HOME}",
        f"UPDATE t SET s = {HOME}",
        f"DELETE FROM t WHERE s = {HOME}",
        f"CREATE MATERIALIZED VIEW v AS SELECT id, {HOME} AS h FROM t",
        f"CREATE SOURCE o (a STRING DEFAULT {HOME})",
        f"SUBSCRIBE t WHERE s = {HOME}",
        f"EXPLAIN SELECT {HOME} AS h FROM t",
        "CREATE SINK k FROM t INTO PYTHON (callable = 'os:system')",
        "CREATE SINK k FROM src INTO FILES (path = '/etc/penstock')",
        "CREATE LOOKUP TABLE l (a STRING PRIMARY KEY) FROM FILES (path = '/etc', format = 'csv')",
    ],
)
def test_refused(shared: penstock.Database, sql: str) -> None:
    before = [s.name for s in shared.status()]
    assert refused(shared, sql).code == "PSK-0012"
    assert [s.name for s in shared.status()] == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')",
        "SELECT * FROM text.`/etc/hostname`",
        "UPDATE t SET s = (SELECT max(value) FROM text.`/etc/hostname`)",
        "DELETE FROM t WHERE s IN (SELECT value FROM text.`/etc/hostname`)",
        "INSERT INTO t SELECT 5, value FROM text.`/etc/hostname`",
        "SELECT id FROM t WHERE s IN (SELECT value FROM text.`/etc/hostname`)",
    ],
)
def test_files_are_no_tables(shared: penstock.Database, sql: str) -> None:
    """An object of that name does not make them so."""
    assert refused(shared, sql).code in ("PSK-1002", "PSK-1012")


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (f"s = {HOME}", "PSK-0012"),
        ("s IN (SELECT TRANSFORM(s) USING 'id' FROM t)", "PSK-0012"),
        ("s IN (SELECT value FROM text.`/etc/hostname`)", "PSK-1002"),
        ("true; DROP TABLE t", "PSK-1001"),
        ("true) OR (true", "PSK-1001"),
    ],
)
def test_conditions_of_subscriptions(shared: penstock.Database, where: str, code: str) -> None:
    with pytest.raises(PenstockError) as caught:
        shared.subscribe("t", where=where)
    assert caught.value.code == code


def test_a_stored_default_is_checked_again(opener: Opener, tmp_path: Path) -> None:
    with opener(tmp_path / "d") as db:
        db.execute("CREATE SOURCE s (a STRING DEFAULT 'harmless', b INT)")
    path = tmp_path / "d" / "catalog.json"
    content = read_catalog(path)
    assert content is not None
    (info,) = (o for o in content.objects if o.name == "s")
    columns = (replace(info.columns[0], default=HOME), *info.columns[1:])
    write_catalog(path, replace(content, objects=(replace(info, columns=columns),)))
    with opener(tmp_path / "d") as db, pytest.raises(PenstockError) as caught:
        db.insert("s", [{"b": 1}])
    assert caught.value.code == "PSK-0012"


def test_xml_opens_no_files(shared: penstock.Database) -> None:
    entity = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a><b>&x;</b></a>'
    name = Path("/etc/hostname").read_text().strip() if os.path.exists("/etc/hostname") else "root"
    for call in (f"xpath_string('{entity}', 'a/b')", f"to_json(from_xml('{entity}', 'b STRING'))"):
        try:
            rows = shared.sql(f"SELECT {call} AS x").fetchall()
        except PenstockError:
            continue
        assert name not in str(rows)


def test_no_secret_is_stored_or_shown(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEED_TOKEN", "s3cr3t-token")
    folder = tmp_path / "d"
    with opener(folder) as db:
        error = refused(db, "CREATE SOURCE s (a INT) FROM WEBSOCKET (url = 'ws://127.0.0.1:9/x?token=s3cr3t-token')")
        assert error.code == "PSK-1011"
        assert "s3cr3t" not in error.render()
        error = refused(db, "CREATE SOURCE s (a INT) FROM WEBSOCKET (url = 'nonsense://u:${FEED_TOKEN}@h')")
        assert error.code == "PSK-1011"
        assert "s3cr3t" not in error.render()
        # The port is closed: the source exists, and its status says why it has no rows.
        url = "wss://u:${FEED_TOKEN}@127.0.0.1:9/feed/${FEED_TOKEN}?api_key=${FEED_TOKEN}"
        db.execute(f"CREATE SOURCE s (a INT) FROM WEBSOCKET (url = '{url}') FORMAT JSON")
        until(lambda: db.metrics()["s"].error is not None)
        shown = [str(db.status()), repr(db.topology())]
        for show in ("SHOW CREATE s", "SHOW SOURCES", "DESCRIBE s", "SHOW LOG"):
            shown.append(str(db.sql(show).fetchall()))
        error = refused(db, "SELECT 1 FROM s WHERE nope = 1")
        assert "127.0.0.1:9" in str(db.metrics()["s"].error)
    assert "s3cr3t" not in " ".join([*shown, error.render(), caplog.text])
    assert "${FEED_TOKEN}" in (folder / "catalog.json").read_text()
    assert [f for f in folder.rglob("*") if f.is_file() and b"s3cr3t" in f.read_bytes()] == []
