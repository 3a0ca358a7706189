from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.disk.filling import largest_file

from penstock.catalog.objects import (
    Column,
    Connector,
    Hosting,
    Kind,
    ObjectInfo,
    Role,
    Slot,
    Solo,
    Watermark,
)
from penstock.catalog.store import Catalog
from penstock.errors import PenstockError
from penstock.plan.nodes import TimeAttr

COLUMNS = (Column("k", "bigint", nullable=False), Column("ts", "timestamp", default="now()"))


def info(object_id: int, name: str, kind: Kind = Kind.STREAM, **more: Any) -> ObjectInfo:
    return ObjectInfo(id=object_id, name=name, kind=kind, columns=COLUMNS, **more)


SOURCE = info(
    1,
    "Trades",
    Kind.SOURCE,
    times=(TimeAttr("ts", 500),),
    watermark=Watermark("ts", 2000),
    connector=Connector("websocket", {"url": "wss://žluť"}, "json", {"x": "y"}),
    options={"a": "b"},
    sql="CREATE SOURCE Trades …",
)
VIEW = info(2, "totals", Kind.VIEW, key=("k",), changelog=True, depends_on=(1,))
PROBE = info(3, "__probe_0_totals", role=Role.PROBE, owner_id=2, lookup_id=9, depends_on=(1,))


def filled(path: Path) -> Catalog:
    catalog = Catalog(path)
    assert [catalog.new_id() for _ in range(3)] == [1, 2, 3]
    catalog.add(SOURCE)
    with catalog.edit():
        catalog.add(VIEW, PROBE)
        catalog.plans |= {2: "abc", 3: "def"}
        catalog.solo[3] = Solo(5, 1 << 40)
        catalog.hosted["1-2"] = Hosting(2, 11, 4, {3: Slot(4, 1 << 40)})
        catalog.home = "/somewhere"
    return catalog


def state(catalog: Catalog) -> tuple[object, ...]:
    """All that it says, in copies."""
    named = [catalog.get(n) for n in ("trades", "totals", "__probe_0_totals", "new")]
    kept = (dict(catalog.plans), dict(catalog.solo), catalog.home)
    return (catalog.objects(), named, *kept)


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    before = filled(path)
    after = Catalog(path)
    assert state(after) == state(before)
    assert (after.objects(), after.home) == ([SOURCE, VIEW, PROBE], "/somewhere")
    assert after.plans == {2: "abc", 3: "def"}
    assert after.solo == {3: Solo(5, 1 << 40)}
    assert after.hosted == {"1-2": Hosting(2, 11, 4, {3: Slot(4, 1 << 40)})}
    assert after.get("TRADES") == SOURCE
    assert (after.objects(Kind.VIEW), after.dependents(1)) == ([VIEW], [VIEW, PROBE])
    assert after.new_id() == 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "catalog.serial"]


def test_what_is_removed_takes_its_plan_with_it(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    filled(path).remove(3)
    after = Catalog(path)
    assert after.objects() == [SOURCE, VIEW]
    assert (after.get("__probe_0_totals"), after.has_id(3)) == (None, False)
    assert (after.plans, after.solo) == ({2: "abc"}, {})
    assert after.new_id() == 4


def test_replacing_keeps_the_place(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    catalog = filled(path)
    wider = replace(SOURCE, name="Deals", columns=(*COLUMNS, Column("x", "int")))
    catalog.replace(wider)
    assert Catalog(path).objects() == catalog.objects() == [wider, VIEW, PROBE]
    assert (catalog.get("trades"), catalog.get("deals")) == (None, wider)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    catalog = filled(tmp_path / "catalog.json")
    for infos in ([info(4, "new"), info(5, "TOTALS")], [info(4, "new"), info(5, "NEW")]):
        before = state(catalog)
        with pytest.raises(PenstockError, match="already exists") as error:
            catalog.add(*infos)
        assert error.value.code == "PSK-1003"
        assert state(catalog) == before


def edited(catalog: Catalog) -> None:
    with catalog.edit():
        catalog.solo.clear()
        catalog.remove(3)
        assert not catalog.has_id(3)
        catalog.add(info(4, "new"))
        catalog.plans[4] = "x"
        catalog.home = None


def saved(catalog: Catalog) -> None:
    catalog.solo[2] = Solo(1, 2)
    catalog.save()


CHANGES: dict[str, Callable[[Catalog], None]] = {
    "add": lambda c: c.add(info(4, "new")),
    "replace": lambda c: c.replace(replace(VIEW, name="new")),
    "remove": lambda c: c.remove(2, 3),
    "change": lambda c: c.change(add=[info(4, "Totals")], remove=[2], replace=[replace(SOURCE, sql="")]),
    "edit": edited,
    "save": saved,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_cannot_be_written_has_not_happened(tmp_path: Path, change: str) -> None:
    path = tmp_path / "catalog.json"
    catalog = filled(path)
    before = state(catalog)
    with largest_file(1), pytest.raises(PenstockError, match=str(path)) as error:
        CHANGES[change](catalog)
    assert error.value.code == "PSK-7004"
    assert state(catalog) == state(Catalog(path)) == before
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "catalog.serial"]
    CHANGES[change](catalog)
    assert state(Catalog(path)) == state(catalog) != before


def test_an_error_within_an_edit_takes_everything_back(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    catalog = filled(path)
    before, written = state(catalog), path.read_bytes()

    def fails() -> None:
        with catalog.edit():
            edited(catalog)
            catalog.remove(77)

    with pytest.raises(KeyError):
        fails()
    assert (state(catalog), path.read_bytes()) == (before, written)
    edited(catalog)
    assert state(Catalog(path)) == state(catalog) != before


def test_an_inner_edit_that_fails_leaves_the_outer_one(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    catalog = filled(path)
    with catalog.edit():
        catalog.plans[2] = "changed"
        with pytest.raises(PenstockError, match="already exists"):
            catalog.change(remove=[3], add=[info(4, "new"), info(5, "Totals")])
    assert (Catalog(path).objects(), Catalog(path).plans) == ([SOURCE, VIEW, PROBE], {2: "changed", 3: "def"})


def test_others_see_an_edit_when_it_is_written(tmp_path: Path) -> None:
    catalog = filled(tmp_path / "catalog.json")
    seen: list[ObjectInfo | None] = []
    reader = threading.Thread(target=lambda: seen.append(catalog.get("new")))
    with catalog.edit():
        catalog.add(info(4, "new"))
        reader.start()
        catalog.remove(4)
    reader.join()
    assert seen == [None]


def test_a_missing_file_is_a_new_catalogue_only_where_none_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    assert Catalog(path).objects() == []
    with pytest.raises(PenstockError, match=f"{path} is missing") as error:
        Catalog(path, expected=True)
    assert error.value.code == "PSK-6001"
    assert list(tmp_path.iterdir()) == []
    filled(path)
    assert Catalog(path, expected=True).objects() == [SOURCE, VIEW, PROBE]


def test_damage_is_reported_or_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    whole = state(filled(path))
    data = path.read_bytes()
    reported: list[PenstockError] = []
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            found = state(Catalog(path))
        except PenstockError as error:
            reported.append(error)
        else:
            assert found == whole
    assert len(reported) > len(data) // 6
    assert {e.code for e in reported} <= {"PSK-6001", "PSK-6002"}
    assert all(str(path) in str(e) for e in reported)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"7", b"\xff", b'{"format": 2}', b"[" * 100_000])
def test_anything_else_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "catalog.json"
    path.write_bytes(content)
    with pytest.raises(PenstockError, match=f"{path} is damaged") as error:
        Catalog(path)
    assert error.value.code == "PSK-6001"
    assert path.read_bytes() == content


def test_a_cut_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    filled(path)
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(PenstockError) as error:
            Catalog(path)
        assert error.value.code == "PSK-6001"


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.mkdir()
    with pytest.raises(PenstockError, match=f"{path} cannot be read: Is a directory") as error:
        Catalog(path)
    assert error.value.code == "PSK-6001"


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps({"format": 3, "whatever": 1}))
    with pytest.raises(PenstockError, match="format 3; this version reads up to 2") as error:
        Catalog(path)
    assert error.value.code == "PSK-6002"


def first_format(*objects: ObjectInfo, **facts: object) -> str:
    """The file as the version before wrote it."""

    def plain(o: ObjectInfo) -> dict[str, Any]:
        return {
            "id": o.id,
            "name": o.name,
            "kind": o.kind.value,
            "columns": [vars(c) for c in o.columns],
            "key": o.key,
            "changelog": o.changelog,
            "times": [],
            "watermark": None,
            "connector": None,
            "options": o.options,
            "depends_on": o.depends_on,
            "sql": o.sql,
        }

    return json.dumps({"format": 1, "next_id": 9, "objects": [plain(o) for o in objects], "facts": facts}, indent=1)


def test_the_first_format_is_read_and_its_names_become_roles(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(
        first_format(
            info(1, "s", Kind.SOURCE),
            info(2, "by_name", sql="CREATE STREAM by_name …", depends_on=(1,)),
            info(3, "late", sql="LATE DATA TO late", depends_on=(2,)),
            info(4, "__probe_0_by_name", options={"lookup": "6"}),
            info(5, "__sink_out"),
            info(6, "d", Kind.LOOKUP),
            info(7, "out", Kind.SINK),
            info(8, "__subscription_1", Kind.VIEW),
            plans={"2": "abc"},
            checkpoints=[{"id": 1, "lsn": 5, "time_ms": 6}],
            shared={"1": {"number": 3, "start": 4, "members": [2]}},
            solo={"5": [7, 8]},
        )
    )
    catalog = Catalog(path)
    assert [(o.id, o.role, o.owner_id, o.lookup_id) for o in catalog.objects() if o.role is not Role.USER] == [
        (3, Role.LATE_ROWS, 2, None),
        (4, Role.PROBE, 2, 6),
        (5, Role.SINK_QUERY, 7, None),
        (8, Role.SUBSCRIPTION, None, None),
    ]
    assert [o.name for o in catalog.objects() if not o.hidden] == ["s", "by_name", "late", "d", "out"]
    assert [o.name for o in catalog.objects() if o.has_contents] == ["d", "__subscription_1"]
    assert (catalog.plans, catalog.home) == ({2: "abc"}, None)
    assert catalog.solo == {5: Solo(7, 8)}
    assert catalog.new_id() == 9
    before = state(catalog)
    catalog.replace(catalog.by_id(1))
    assert state(Catalog(path)) == before
    assert json.loads(path.read_text())["format"] == 2


def test_the_first_format_of_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(first_format(info(1, "s", Kind.SOURCE)))
    assert (Catalog(path).plans, Catalog(path).names()) == ({}, ["s"])


def test_threads_add_and_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    path = tmp_path / "catalog.json"
    catalog = Catalog(path)

    def run(thread: int) -> None:
        for n in range(10):
            object_id = catalog.new_id()
            with catalog.edit():
                catalog.add(info(object_id, f"o{thread}_{n}"))
                catalog.plans[object_id] = "p"
            if n % 2:
                catalog.remove(object_id)

    threads = [threading.Thread(target=run, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = {f"o{t}_{n}" for t in range(4) for n in range(0, 10, 2)}
    assert set(Catalog(path).names()) == set(catalog.names()) == expected
    assert set(catalog.plans) == {o.id for o in catalog.objects()}
    assert Catalog(path).new_id() == 41


def test_an_older_catalogue_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    filled(path)
    older = path.read_bytes()
    catalog = Catalog(path)
    catalog.remove(3)
    newest = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(PenstockError, match="is an older one") as error:
        Catalog(path)
    assert error.value.code == "PSK-6001"
    path.unlink()
    with pytest.raises(PenstockError, match="is missing"):
        Catalog(path)
    path.write_bytes(newest)
    assert not Catalog(path).has_id(3)
    # Without its witness there is nothing to compare with.
    (tmp_path / "catalog.serial").unlink()
    path.write_bytes(older)
    assert Catalog(path).has_id(3)
