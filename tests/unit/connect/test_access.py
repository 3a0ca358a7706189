"""Path options reach the allowed folders and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.catalog.objects import Column, Connector
from penstock.config import load_settings
from penstock.connect import Access, LookupSource, Opening, Sink, find_lookup, make_sink, register_callable
from penstock.errors import PenstockError

COLUMNS = [Column("k", "bigint")]
ROWS = pa.table({"k": [1]})


def sink(path: str, access: Access | None = None) -> Sink:
    made = make_sink(Connector("files", {"path": path, "format": "csv"}), changelog=False, access=access)
    made.open(Opening("one", ROWS.schema))
    return made


def lookup(path: str, access: Access | None = None) -> LookupSource:
    made = find_lookup("files").factory(Connector("files", {"path": path, "format": "csv"}), COLUMNS, ["k"], access)
    made.scan()
    return made


def refused(use: object, path: str, access: Access) -> PenstockError:
    assert callable(use)
    with pytest.raises(PenstockError) as caught:
        use(path, access)
    return caught.value


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "a.csv").write_text("k\n1\n")
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "b.csv").write_text("k\n2\n")
    return folder


@pytest.mark.parametrize(
    "path",
    ["{outside}", "{outside}/b.csv", "{outside}/*.csv", "{inside}/../outside", "{inside}/../outside/*.csv", "{inside}/../*/*.csv",
     "{inside}x", "/", "/etc", "/etc/passwd", "/etc/*", "/nowhere/*.csv", "{inside}/link", "{inside}/link/b.csv", "{inside}/link/*.csv",
     "{inside}/**/*.csv", "{inside}/file.csv"],
)  # fmt: skip
def test_nothing_outside_is_read(path: str, inside: Path, outside: Path) -> None:
    (inside / "link").symlink_to(outside)
    (inside / "file.csv").symlink_to(outside / "b.csv")
    error = refused(lookup, path.format(inside=inside, outside=outside), Access(roots=(inside,)))
    assert error.code == "PSK-0012"
    assert "security.allowed_roots" in str(error.hint)


def test_a_link_in_a_folder_is_followed_before_it_is_read(inside: Path, outside: Path) -> None:
    (inside / "file.csv").symlink_to(outside / "b.csv")
    assert refused(lookup, str(inside), Access(roots=(inside,))).code == "PSK-0012"
    lookup(str(inside), Access(roots=(inside, outside)))


@pytest.mark.parametrize("path", ["{outside}/new", "{inside}/../outside", "/etc", "{inside}/link/new", "{inside}/link"])
def test_nothing_outside_is_written(path: str, inside: Path, outside: Path) -> None:
    (inside / "link").symlink_to(outside)
    error = refused(sink, path.format(inside=inside, outside=outside), Access(roots=(inside,)))
    assert error.code == "PSK-0012"
    assert sorted(os.listdir(outside)) == ["b.csv"]


def test_a_folder_that_becomes_a_link_is_not_written_to(inside: Path, outside: Path) -> None:
    made = sink(str(inside / "out"), Access(roots=(inside,)))
    made.write(1, 1, ROWS)
    (inside / "out").rename(inside / "before")
    (inside / "out").symlink_to(outside)
    with pytest.raises(PenstockError) as caught:
        made.write(2, 2, ROWS)
    assert caught.value.code == "PSK-0012"
    with pytest.raises(PenstockError, match="PSK-0012"):
        made.commit(1)
    assert sorted(os.listdir(outside)) == ["b.csv"]


def test_what_is_inside_is_reached(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(roots=(inside,))
    (inside / "x").mkdir()
    for path in (inside, inside / "a.csv", inside / "*.csv", inside / "x" / ".." / "a.csv"):
        lookup(str(path), access)
    monkeypatch.chdir(inside)
    lookup("a.csv", access)
    made = sink("new/folder", access)
    made.write(1, 1, ROWS)
    made.commit(1)
    assert (inside / "new/folder/epoch-000000000001.csv").is_file()


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_what_is_no_path(path: str, inside: Path) -> None:
    for use in (sink, lookup):
        assert refused(use, path, Access(roots=(inside,))).code in ("PSK-1011", "PSK-5002", "PSK-0012")


def test_roots_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, database, temporary = (tmp_path / n for n in ("work", "database", "temporary"))
    for folder in (work, database, temporary):
        folder.mkdir()
        (folder / "a.csv").write_text("k\n1\n")
    monkeypatch.chdir(work)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    access = Access.of(load_settings(None, environ={}), database)
    for folder in (work, database, temporary):
        lookup(str(folder), access)
    assert refused(lookup, str(tmp_path), access).code == "PSK-0012"
    assert refused(lookup, str(database), Access()).code == "PSK-0012"
    monkeypatch.chdir("/")
    assert refused(lookup, "/etc", Access()).code == "PSK-0012"


def test_roots_from_the_settings(inside: Path, outside: Path) -> None:
    settings = load_settings(None, {"security.allowed_roots": [outside], "variables.X": "y"}, environ={})
    access = Access.of(settings, inside)
    assert access.substitute("${X}") == "y"
    lookup(str(outside), access)
    assert refused(lookup, str(inside), access).code == "PSK-0012"
    assert refused(lookup, str(inside), Access(roots=())).code == "PSK-0012"


@pytest.mark.parametrize("name", ["passfile", "sslkey", "sslcert", "sslrootcert"])
def test_files_in_the_parameters_of_a_url(name: str, inside: Path) -> None:
    def make(path: Path, access: Access) -> None:
        url = f"postgresql://reader@h/d?{name}={path}"
        find_lookup("postgres").factory(Connector("postgres", {"url": url, "table": "t"}), COLUMNS, ["k"], access)

    access = Access(roots=(inside,))
    make(inside / "key", access)
    assert refused(make, "/etc/passwd", access).code == "PSK-0012"


@pytest.mark.parametrize(
    "name", ["os:system", "penstock.connect.python:register_callable", "subprocess:run", "builtins:exec"]
)
def test_callables_are_not_imported(name: str) -> None:
    connector = Connector("python", {"callable": name})
    with pytest.raises(PenstockError) as caught:
        make_sink(connector, changelog=True)
    assert caught.value.code == "PSK-0012"
    assert "allow_python_imports" in str(caught.value)


def test_callables_can_be_allowed_or_registered() -> None:
    allowed = Access.of(load_settings(None, {"security.allow_python_imports": True}, environ={}), Path())
    make_sink(Connector("python", {"callable": "operator:truediv"}), changelog=True, access=allowed)
    register_callable("os:mine", lambda epoch, table: None)
    make_sink(Connector("python", {"callable": "os:mine"}), changelog=True)
