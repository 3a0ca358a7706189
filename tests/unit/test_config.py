from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config import FILE_NAME, Settings, changed, load_settings, substitute
from penstock.errors import ConfigError, Position


def refusal(folder: Path | None = None, config: dict[str, Any] | None = None, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_settings(folder, config, environ=environ)
    return caught.value


def write(folder: Path, text: str) -> Path:
    path = folder / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults() -> None:
    settings = load_settings(environ={})
    assert settings == Settings()
    assert settings.spark.master == "local[*]"
    assert settings.log.wal_mode == "sync"
    assert settings.origin("spark.heap") == "default"


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    file = write(tmp_path, '[spark]\nheap = "3g"\nshuffle_partitions = 4\n[log]\nwal_mode = "async"\n')
    settings = load_settings(
        tmp_path,
        {"spark.heap": "5g"},
        environ={"PENSTOCK__SPARK__HEAP": "4g", "PENSTOCK__SPARK__SHUFFLE_PARTITIONS": "8", "OTHER": "x"},
    )
    assert (settings.spark.heap, settings.spark.shuffle_partitions, settings.log.wal_mode) == ("5g", 8, "async")
    assert settings.origin("spark.heap") == "config"
    assert settings.origin("spark.shuffle_partitions") == "PENSTOCK__SPARK__SHUFFLE_PARTITIONS"
    assert settings.origin("log.wal_mode") == str(file)
    assert settings.origin("engine.poll_timeout_ms") == "default"


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK__LOG__SEGMENT_BYTES", "8192")
    assert load_settings().log.segment_bytes == 8192


def test_a_folder_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "not there yet", environ={}) == Settings()


@pytest.mark.parametrize(
    "config",
    [
        {"spark": {"conf": {"spark.ui.enabled": True}}},
        {"spark": {"conf.spark.ui.enabled": "true"}},
        {"spark.conf": {"spark.ui.enabled": "true"}},
        {"spark.conf.spark.ui.enabled": "true"},
        {"spark": {"conf": {"spark": {"ui": {"enabled": True}}}}},
    ],
)
def test_a_map_can_be_written_nested_or_dotted(config: dict[str, Any]) -> None:
    settings = load_settings(config=config, environ={})
    assert settings.spark.conf == {"spark.ui.enabled": "true"}
    assert settings.origin("spark.conf.spark.ui.enabled") == settings.origin("spark.conf") == "config"
    assert settings.origin("spark.conf.spark.other") == "default"


def test_maps_are_merged_entry_by_entry(tmp_path: Path) -> None:
    file = write(tmp_path, '[spark.conf]\nspark.sql.a = 1\n"spark.sql.b" = 2\n[variables]\nHOST = "db0"\n')
    settings = load_settings(
        tmp_path,
        {"spark.conf.spark.sql.c": 3.5},
        environ={
            "PENSTOCK__SPARK__CONF": '{"spark.sql.b": "20"}',
            "PENSTOCK__VARIABLES__HOST": "db1",
            "PENSTOCK__VARIABLES__Mixed__Case": "kept",
        },
    )
    assert settings.spark.conf == {"spark.sql.a": "1", "spark.sql.b": "20", "spark.sql.c": "3.5"}
    assert settings.variables == {"HOST": "db1", "Mixed__Case": "kept"}
    assert settings.origin("spark.conf") == ", ".join(sorted(["PENSTOCK__SPARK__CONF", "config", str(file)]))


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"spark.haep": "1g"}, "Did you mean 'spark.heap'?"),
        ({"spark": {"Heap": "1g"}}, "Did you mean 'spark.heap'?"),
        ({"sparc": {"heap": "1g"}}, "Did you mean 'spark.heap'?"),
        ({"heap": "1g"}, "Did you mean 'spark.heap'?"),
        ({"engine": {"wal_mode": "sync"}}, "Did you mean 'log.wal_mode'?"),
        ({"q": 1}, "The settings are: spark.master, "),
        ({"nothing": {}}, "The settings are: spark.master, "),
        ({"spark.conf.": "1"}, "Did you mean 'spark.conf'?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(config: dict[str, Any], hint: str) -> None:
    error = refusal(config=config)
    assert error.code == "PSK-0001"
    assert error.hint is not None and error.hint.startswith(hint)


def test_an_unknown_key_is_refused_in_every_layer(tmp_path: Path) -> None:
    error = refusal(PENSTOCK__SPARK__HAEP="1g")
    assert error.code == "PSK-0001"
    assert "'spark.haep'" in error.detail and "PENSTOCK__SPARK__HAEP" in error.detail
    file = write(tmp_path, "[log]\nwalmode = 1\n")
    error = refusal(tmp_path)
    assert (error.code, error.hint) == ("PSK-0001", "Did you mean 'log.wal_mode'?")
    assert str(file) in error.detail


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.master", "lokal[2]"),
        ("spark.heap", "2 gigabytes"),
        ("spark.heap", "0g"),
        ("spark.heap", {"max": "2g"}),
        ("spark.shuffle_partitions", 0),
        ("spark.shuffle_partitions", True),
        ("spark.conf", "spark.ui.enabled"),
        ("spark.conf.spark.x", ["a"]),
        ("spark", 1),
        ("log.wal_mode", "sometimes"),
        ("log.segment_bytes", "64mb"),
        ("engine.max_rows_per_epoch", 1.5),
        ("engine.max_future_skew_ms", -1),
        ("subscribe.buffer_messages", None),
    ],
)
def test_a_bad_value_is_refused(key: str, value: object) -> None:
    error = refusal(config={key: value})
    assert error.code == "PSK-0002"
    assert key in error.detail and "(from config)" in error.detail


def test_a_bad_value_names_where_it_came_from(tmp_path: Path) -> None:
    file = write(tmp_path, "[spark]\nshuffle_partitions = 0\n")
    assert str(file) in refusal(tmp_path).detail
    assert "PENSTOCK__LOG__WAL_MODE" in refusal(PENSTOCK__LOG__WAL_MODE="").detail
    assert refusal(PENSTOCK__SPARK__CONF="spark.a=1").code == "PSK-0002"


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "[spark\n")
    error = refusal(tmp_path)
    assert error.code == "PSK-0002"
    assert error.detail.startswith(f"{file} is not TOML")


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[*]", "local[2, 3]", "spark://h:7077", "k8s://h", "yarn"]
)
def test_masters(master: str) -> None:
    assert load_settings(config={"spark.master": master}, environ={}).spark.master == master


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().spark.heap = "1g"


def test_the_origin_of_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().origin("spark.haep")
    assert caught.value.code == "PSK-0001"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("plain $5 and $HOME", "plain $5 and $HOME"),
        ("${A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${A:-two}", "one"),
        ("${FROM_ENV}", "outside"),
        ("${BOTH}", "inside"),
        ("${MISSING:-two}", "two"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b$c{d}", "a:-b$c{d"),
        ("${EMPTY}", ""),
        ("${EMPTY:-two}", "two"),
        ("${NESTED}", "${A}"),
        ("${MISSING:-${A}}", "${A}"),
    ],
)
def test_substitute(text: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_ENV", "outside")
    monkeypatch.setenv("BOTH", "outside")
    monkeypatch.delenv("MISSING", raising=False)
    variables = {"A": "one", "BOTH": "inside", "EMPTY": "", "NESTED": "${A}"}
    assert substitute(text, variables) == result


@pytest.mark.parametrize("text", ["${MISSING}", "${", "${}", "${A", "${A-b}", "${1}", "${ A }", "ok ${A} ${MISSING}"])
def test_what_cannot_be_substituted_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(ConfigError) as caught:
        substitute(text, {"A": "one"}, position=Position(1, 7))
    assert caught.value.code == "PSK-0003"
    assert caught.value.hint is not None
    assert caught.value.position == Position(1, 7)


@given(st.text().filter(lambda text: "${" not in text))
def test_text_without_references_is_left_alone(text: str) -> None:
    assert substitute(text, {}) == text


def test_one_setting_can_be_changed_later(tmp_path: Path) -> None:
    write(tmp_path, "[log]\nretain_bytes = 1\n")
    before = load_settings(tmp_path, {"engine.poll_timeout_ms": 7}, environ={})
    after = changed(before, "LOG.retain_bytes", "2000")
    assert (before.log.retain_bytes, after.log.retain_bytes, after.engine.poll_timeout_ms) == (1, 2000, 7)
    assert (after.origin("log.retain_bytes"), after.origin("engine.poll_timeout_ms")) == ("SET", "config")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log.retain", "1", "PSK-0001"),
        ("log.retain_bytes", "-1", "PSK-0002"),
        ("log.retain_bytes", "many", "PSK-0002"),
        ("spark.heap", "4g", "PSK-0011"),
        ("variables.HOST", "x", "PSK-0011"),
    ],
)
def test_a_later_change_can_be_refused(name: str, value: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(Settings(), name, value)
    assert caught.value.code == code
