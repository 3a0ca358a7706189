"""The options of a watermark group: what is refused, and what is shown."""

from __future__ import annotations

import pytest
from tests.unit.runtime.alignment.sources import (
    refused,
    source,
)
from tests.unit.runtime.engines import Database


@pytest.mark.parametrize(
    ("statement", "code", "text"),
    [
        ("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (max_drift = '1 second')", "PSK-1012", "watermark_group"),
        ("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (on_drift = 'warn')", "PSK-1012", "watermark_group"),
        (
            "CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (watermark_group = 'x')",
            "PSK-1012",
            "max_drift = '10 seconds'",
        ),
        (source("s", watermark_group=" "), "PSK-1011", "empty"),
        (source("s", max_drift="soon"), "PSK-1011", "duration"),
        (source("s", max_drift="-1 second"), "PSK-1011", "negative"),
        (source("s", max_drift="1 month"), "PSK-1011", "duration"),
        (source("s", on_drift="stop"), "PSK-1011", "pause, reject, warn"),
        (source("s", columns="k BIGINT"), "PSK-1012", "WATERMARK FOR"),
        (source("s", columns="ts TIMESTAMP, WATERMARK FOR ts AS PROCTIME()"), "PSK-1012", "event time"),
        (source("s", feed="FROM WEBSOCKET (url = 'ws://h')", on_drift="REJECT"), "PSK-1012", "'pause' or 'warn'"),
        ("CREATE TABLE t (k BIGINT PRIMARY KEY) WITH (watermark_group = 'x')", "PSK-1010", "retain_history"),
    ],
)
def test_options_that_could_not_be_carried_out_are_refused(db: Database, statement: str, code: str, text: str) -> None:
    before = db.state()
    assert text in str(refused(lambda: db.run(statement), code))
    assert db.state() == before


def test_the_members_of_a_group_agree(db: Database) -> None:
    db.run(source("a") + source("b", max_drift="0.01 seconds", watermark_group="G"))
    error = refused(lambda: db.run(source("c", max_drift="11 milliseconds")), "PSK-1011")
    assert "source a of watermark group 'g' has '10 milliseconds'" in str(error)
    refused(lambda: db.run(source("b", max_drift="1 second").replace("CREATE", "CREATE OR REPLACE")), "PSK-1011")
    db.run(source("c", max_drift="1 second", watermark_group="other"))
    # The last member may say something else.
    db.run("DROP SOURCE a")
    db.run(source("b", max_drift="1 second").replace("CREATE", "CREATE OR REPLACE"))


def test_the_options_are_shown(db: Database) -> None:
    db.run(source("a", on_drift="warn") + source("b"))
    assert "on_drift = 'warn'" in db.run("SHOW CREATE SOURCE a").to_pylist()[0]["statement"]
    facts = {r["column"]: r["type"] for r in db.run("DESCRIBE EXTENDED a").to_pylist()}
    assert facts["# watermark group"] == "g" and facts["# max drift"] == "10 milliseconds"
    assert facts["# on drift"] == "warn" and facts["# drift ms"] == "0"
    facts = {r["column"]: r["type"] for r in db.run("DESCRIBE EXTENDED b").to_pylist()}
    assert facts["# on drift"] == "pause"
