"""The settings file of a database folder cannot run code, reach servers or open the database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.config import FILE_NAME, Settings, changed, load_settings
from penstock.errors import ConfigError

REFUSED = [
    "[security]\nallow_programs = true",
    "[security]\nallow_python_imports = true",
    '[security]\nallowed_roots = ["/"]',
    '[spark]\nmaster = "spark://elsewhere:7077"',
    '[spark]\nmaster = "k8s://elsewhere"',
    '[spark.conf]\n"spark.driver.extraJavaOptions" = "-javaagent:agent.jar"',
    '[spark.conf]\n"spark.driver.extraClassPath" = "evil.jar"',
    '[spark.conf]\n"spark.jars" = "evil.jar"',
    '[spark.conf]\n"spark.jars.packages" = "a:b:1"',
    '[spark.conf]\n"spark.plugins" = "evil.Plugin"',
    '[spark.conf]\n"spark.extraListeners" = "evil.Listener"',
    '[spark.conf]\n"spark.sql.extensions" = "evil.Extension"',
    '[spark.conf]\n"spark.sql.streaming.stateStore.providerClass" = "evil.Provider"',
    '[spark.conf]\n"spark.sql.catalog.evil" = "evil.Catalog"',
    '[spark.conf]\n"spark.sql.execution.pyspark.python" = "./evil"',
    '[spark.conf]\n"spark.pyspark.python" = "./evil"',
    '[spark.conf]\n"spark.pyspark.driver.python" = "./evil"',
    '[spark.conf]\n"spark.hadoop.fs.evil.impl" = "evil.FileSystem"',
    '[spark.conf]\n"spark.executorEnv.LD_PRELOAD" = "evil.so"',
    '[spark.conf]\n"spark.metrics.conf.*.sink.x.class" = "evil.Sink"',
    '[spark.conf]\n"spark.eventLog.dir" = "/somewhere"',
    '[spark.conf]\n"spark.sql.warehouse.dir" = "/somewhere"',
    '[spark.conf]\n"spark.sql.variable.substitute" = true',
    '[spark.conf]\n"spark.sql.runSQLOnFiles" = true',
    '[spark.conf]\n"spark.authenticate" = false',
    '[spark.conf]\n"spark.ui.enabled" = true',
    '[spark.conf]\n"spark.shuffle.service.enabled" = true',
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text.replace("\n", " "))
def test_a_folder_cannot_set(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path, environ={})
    assert caught.value.code == "PSK-0012"
    assert str(tmp_path) in caught.value.detail
    assert "config" in str(caught.value.hint)


def test_a_folder_can_set_what_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(
        '[spark]\nmaster = "local[3]"\nheap = "3g"\n'
        '[spark.conf]\n"spark.sql.ansi.enabled" = false\n"spark.sql.autoBroadcastJoinThreshold" = "10m"\n"spark.memory.fraction" = 0.5\n'
    )
    settings = load_settings(tmp_path, environ={})
    assert settings.spark.master == "local[3]"
    assert settings.spark.conf == {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "10m",
        "spark.memory.fraction": "0.5",
    }


def test_the_program_can_set_all_of_it() -> None:
    config = {"security.allow_programs": True, "spark.conf.spark.sql.extensions": "mine.Extension"}
    settings = load_settings(None, config, environ={})
    assert settings.security.allow_programs
    assert settings.spark.conf == {"spark.sql.extensions": "mine.Extension"}


@pytest.mark.parametrize(
    ("given", "roots"),
    [
        (["/a", Path("/b")], ("/a", "/b")),
        ("/a", ("/a",)),
        (os.pathsep.join(["/a", "/b"]), ("/a", "/b")),
        ('["/a", "/b:c"]', ("/a", "/b:c")),
        ([], ()),
        (None, None),
    ],
)
def test_allowed_roots(given: object, roots: tuple[str, ...] | None) -> None:
    assert load_settings(None, {"security.allowed_roots": given}, environ={}).security.allowed_roots == roots


def test_allowed_roots_from_the_environment() -> None:
    settings = load_settings(environ={"PENSTOCK__SECURITY__ALLOWED_ROOTS": '["/a"]'})
    assert settings.security.allowed_roots == ("/a",)


@pytest.mark.parametrize("given", [5, [5], "[5]", "[", {"a": 1}])
def test_roots_that_are_no_folders(given: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {"security": {"allowed_roots": given}}, environ={})
    assert caught.value.code in ("PSK-0001", "PSK-0002")


@pytest.mark.parametrize("name", ["allow_programs", "allow_python_imports", "allowed_roots"])
def test_sql_cannot_change_them(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(Settings(), f"security.{name}", "true")
    assert caught.value.code == "PSK-0011"
