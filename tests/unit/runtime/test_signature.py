"""Queries that another version, or another configuration, has begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError
from penstock.plan import nodes as p
from penstock.runtime.jobs.signature import Difference, Signature, earlier
from penstock.spark.kernel import STATE_FORMATS

KEPT = Signature(
    "p", (("Aggregate", "a"), ("Join", "j")), {"Aggregate": 3, "Join": 3}, ("kernel", "kernel"), 2, "4.3.0"
)


def test_every_node_with_state_has_a_format() -> None:
    nodes = [c for c in vars(p).values() if isinstance(c, type) and issubclass(c, p.Node) and is_dataclass(c)]
    assert set(STATE_FORMATS) == {c.__name__ for c in nodes if c is not p.Node and not issubclass(c, p.Linear)}


def test_a_signature_is_what_it_was() -> None:
    assert Signature.from_text(KEPT.to_text()) == KEPT and Signature.from_text("0123456789abcdef") is None
    assert KEPT.differences(KEPT) == []


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (replace(KEPT, plan="q"), Difference("its plan, above its stateful operators", False)),
        (replace(KEPT, partitions=8), Difference("8 partitions are set, and it keeps its 2", False)),
        (replace(KEPT, spark="4.4.1"), Difference("it ran on Spark 4.3.0, this is 4.4.1", False)),
        (replace(KEPT, spark="4.2.0"), Difference("it ran on Spark 4.3.0, this is 4.2.0", True)),
        (
            replace(KEPT, states=(("Aggregate", "a"), ("Join", "k"))),
            Difference("the plan of its operator Join, or of what it reads", True),
        ),
        (
            replace(KEPT, states=(("Aggregate", "a"),), path=("kernel",)),
            Difference("its operators with state were Aggregate, Join, and are Aggregate", True),
        ),
        (
            replace(KEPT, formats={"Aggregate": 3, "Join": 4}),
            Difference("the state of Join has format 3, this version has 4", True),
        ),
        (
            replace(KEPT, path=("native", "kernel")),
            Difference("its operators ran as kernel, kernel, and would run as native, kernel", True),
        ),
    ],
)
def test_what_differs_is_said(now: Signature, expected: Difference) -> None:
    assert KEPT.differences(now) == [expected]
    # Without state there is only a position, with which every plan goes on.
    bare = replace(KEPT, states=(), formats={}, path=())
    assert [d for d in bare.differences(replace(now, states=(), formats={}, path=())) if d.lost] == []


def test_the_state_of_native_operators_has_a_format_too() -> None:
    before = Signature("p", (("Aggregate", "a"),), {"Aggregate": 3}, ("native",), 2, "4.3.0")
    now = replace(before, formats={"Aggregate": 3, "Spark's own operators": 2})
    (found,) = before.differences(now)
    assert found == ("the state of Spark's own operators has format 1, this version has 2", True)
    assert now.differences(now) == [] and now.by_earlier() == before


def test_the_partitions_stay_those_of_the_state() -> None:
    assert KEPT.carried_on(replace(KEPT, partitions=8, spark="4.4.0")) == replace(KEPT, spark="4.4.0")


def began(db: Database) -> None:
    db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
    db.run("CREATE MATERIALIZED VIEW a AS SELECT DISTINCT k FROM t")
    db.run("CREATE MATERIALIZED VIEW b AS SELECT k FROM t")
    db.engine.start()
    db.insert("t", (1, "x"), (2, "y"))
    assert db.rows("a") == db.rows("b") == {(1,): 1, (2,): 1}


def edited(db: Database, name: str, change: Callable[[dict[str, Any]], object] | str) -> None:
    """Makes the stored signature of a query another one."""
    info = db.engine.catalog.get(name)
    assert info is not None
    with db.engine.catalog.edit():
        text = change
        if not isinstance(text, str):
            stored = json.loads(db.engine.catalog.plans[info.id])
            change(stored)  # type: ignore[operator]
            text = json.dumps(stored)
        db.engine.catalog.plans[info.id] = text


def test_a_compatible_change_keeps_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database(tmp_path, monkeypatch) as db:
        began(db)
        edited(db, "a", lambda s: s.update(plan="other", partitions=7, spark="4.0.1"))
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        assert "a goes on with its state; changed: its plan, above its stateful operators; " in caplog.text
        db.insert("t", (3, "z"))
        assert db.rows("a") == {(k,): 1 for k in (1, 2, 3)}
        info = db.engine.catalog.get("a")
        assert info is not None and json.loads(db.engine.catalog.plans[info.id])["partitions"] == 7
    caplog.clear()
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        assert db.rows("a") == {(k,): 1 for k in (1, 2, 3)}
        # The partitions that are set are still others.
        assert caplog.text.count("goes on with its state") == 1


@pytest.mark.parametrize(
    "way",
    ["RESTART MATERIALIZED VIEW a FROM BEGINNING", "ALTER MATERIALIZED VIEW a AS SELECT DISTINCT k FROM t REBUILD"],
)
def test_an_incompatible_change_refuses_one_query_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with database(tmp_path, monkeypatch) as db:
        began(db)
        edited(db, "a", lambda s: s["formats"].update(Distinct=2))
    for key in (3, 4):
        with database(tmp_path, monkeypatch) as db:
            db.engine.start()
            db.insert("t", (key, "z"))
            info = db.engine.catalog.get("a")
            assert info is not None
            trouble = db.engine.jobs.trouble(info)
            assert trouble is not None and trouble.error is not None and trouble.error.code == "PSK-6003"
            assert "the state of Distinct has format 2, this version has 3" in trouble.error.detail
            assert "FROM BEGINNING" in str(trouble.error.hint)
            with pytest.raises(PenstockError, match="PSK-7006"):
                db.run("SELECT * FROM a")
            b = db.engine.catalog.get("b")
            assert b is not None and db.engine.jobs.trouble(b) is None
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        db.run(way)
        assert db.rows("a") == {(k,): 1 for k in (1, 2, 3, 4)}
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        db.insert("t", (5, "z"))
        assert db.rows("a") == db.rows("b") == {(k,): 1 for k in (1, 2, 3, 4, 5)}


def test_the_fingerprint_of_an_earlier_version_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        began(db)
        a = db.engine.catalog.get("a")
        assert a is not None
        edited(db, "a", earlier(db.engine.jobs.plan(a).query))
        edited(db, "b", "0123456789abcdef")
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        b = db.engine.catalog.get("b")
        assert b is not None and (trouble := db.engine.jobs.trouble(b)) is not None and trouble.error is not None
        assert "an earlier version has planned it otherwise" in trouble.error.detail
        db.insert("t", (3, "z"))
        assert db.engine.catalog.plans[a.id].startswith("{") and db.engine.jobs.trouble(a) is None


def test_a_signature_of_the_first_format_is_compared_in_that_format_and_noted_in_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
        db.run("CREATE MATERIALIZED VIEW a AS SELECT DISTINCT CAST(k + 1 AS STRING) AS s FROM t WHERE NOT v IS NULL")
        db.run("CREATE MATERIALIZED VIEW b AS SELECT DISTINCT k FROM t")
        infos = {name: db.engine.catalog.get(name) for name in "ab"}
        first = {}
        for name, info in infos.items():
            assert info is not None
            planned = db.engine.jobs.plan(info)
            first[name], now = planned.signature_of(1), planned.signature
            assert first[name].format == 1 and now.format == 2 and (name == "b" or first[name].plan != now.plan)
        edited(db, "a", first["a"].to_text())
        edited(db, "b", replace(first["b"], states=(("Distinct", "other"),)).to_text())
    with database(tmp_path, monkeypatch) as db:
        db.engine.start()
        a, b = db.engine.catalog.get("a"), db.engine.catalog.get("b")
        assert a is not None and b is not None
        assert "goes on with its state" not in caplog.text and db.engine.jobs.trouble(a) is None
        assert json.loads(db.engine.catalog.plans[a.id])["format"] == 2
        trouble = db.engine.jobs.trouble(b)
        assert trouble is not None and trouble.error is not None and trouble.error.code == "PSK-6003"
