"""The configuration of Spark."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from penstock.config import load_settings
from penstock.errors import PenstockError
from penstock.spark.compilation import java_options, write_directives
from penstock.spark.configuration import Master, environment, kernel_jar, spark_conf

SCRATCH = Path("/scratch")
MASTERS = {
    "local": Master.LOCAL,
    "local[*]": Master.LOCAL,
    "local[2, 3]": Master.LOCAL,
    "local-cluster[2,1,1024]": Master.LOCAL_CLUSTER,
    "spark://host:7077": Master.STANDALONE,
    "yarn": Master.YARN,
    "k8s://https://host": Master.KUBERNETES,
}


def conf(**given: object) -> dict[str, str]:
    return spark_conf(load_settings(None, {k.replace("__", "."): v for k, v in given.items()}), SCRATCH)


@pytest.mark.parametrize("address", MASTERS)
def test_the_kernel_is_sent_to_every_other_process(address: str) -> None:
    master = Master.of(address)
    assert master is MASTERS[address]
    made = conf(spark__master=address)
    assert made["spark.driver.extraClassPath"] == str(kernel_jar())
    assert made.get("spark.jars") == (None if master is Master.LOCAL else str(kernel_jar()))


@pytest.mark.parametrize("address", MASTERS)
def test_nothing_on_one_machine_is_reached_from_another(address: str) -> None:
    made = conf(spark__master=address)
    here = Master.of(address) in (Master.LOCAL, Master.LOCAL_CLUSTER)
    assert made.get("spark.driver.bindAddress") == ("127.0.0.1" if here else None)


@pytest.mark.parametrize("address", MASTERS)
def test_connections_are_authenticated_where_the_secret_is_ours_to_make(address: str) -> None:
    made = conf(spark__master=address)
    master = Master.of(address)
    assert made.get("spark.authenticate") == (None if master is Master.STANDALONE else "true")
    assert ("spark.authenticate.secret" in made) is (master is Master.LOCAL_CLUSTER)
    assert conf(spark__master=address).get("spark.authenticate.secret", 1) != made.get("spark.authenticate.secret", 2)


@pytest.mark.parametrize("address", MASTERS)
def test_a_process_that_slept_does_not_take_itself_for_lost(address: str) -> None:
    made = conf(spark__master=address)
    limits = ("spark.storage.blockManagerHeartbeatTimeoutMs", "spark.executor.heartbeat.maxFailures")
    assert [key in made for key in limits] == [Master.of(address) is Master.LOCAL] * 2


@pytest.mark.parametrize(("heap", "collected"), [("512m", 128 << 20), ("2g", 512 << 20), ("4G", 1 << 30)])
def test_a_query_may_collect_a_part_of_the_heap(heap: str, collected: int) -> None:
    assert conf(spark__heap=heap)["spark.driver.maxResultSize"] == f"{collected}b"


def test_statements_are_carried_out_as_written() -> None:
    assert conf()["spark.sql.variable.substitute"] == "false"
    key = "spark.conf.spark.sql.variable.substitute"
    assert conf(**{key: False})["spark.sql.variable.substitute"] == "false"
    for value in (True, "TRUE", " true"):
        with pytest.raises(PenstockError) as refused:
            conf(**{key: value})
        assert refused.value.code == "PSK-0002"


def test_the_master_is_set_in_one_place() -> None:
    with pytest.raises(PenstockError) as refused:
        conf(**{"spark.conf.spark.master": "local"})
    assert refused.value.code == "PSK-0002"


def test_a_setting_of_the_user_goes_before_ours_and_a_list_is_added_to() -> None:
    made = conf(
        **{
            "spark.master": "yarn",
            "spark.conf.spark.locality.wait": "1s",
            "spark.conf.spark.jars": "/mine.jar",
            "spark.conf.spark.driver.extraClassPath": "/mine",
            "spark.conf.spark.driver.extraJavaOptions": "-Dmine=1",
        }
    )
    assert made["spark.locality.wait"] == "1s"
    assert made["spark.jars"] == f"{kernel_jar()},/mine.jar"
    assert made["spark.driver.extraClassPath"] == f"{kernel_jar()}{os.pathsep}/mine"
    assert made["spark.driver.extraJavaOptions"] == "-Dmine=1"
    assert "-XX:+ExitOnOutOfMemoryError" in made["spark.driver.defaultJavaOptions"]


def test_code_that_prepares_queries_is_not_optimized(tmp_path: Path) -> None:
    write_directives(tmp_path)
    options = java_options(tmp_path)
    (file,) = tmp_path.iterdir()
    assert f"-XX:CompilerDirectivesFile={file}" in options
    (rule,) = json.loads(file.read_text())
    assert "org/antlr/*.*" in rule["match"] and rule["c2"] == {"Exclude": True}
    # Rows go through these.
    data_path = (
        "dev/penstock/",
        "org/apache/spark/sql/catalyst/expressions/codegen/UnsafeRowWriter",
        "org/apache/arrow/",
    )
    assert not any(d.startswith(m.removesuffix("*.*")) for d in data_path for m in rule["match"])


def test_workers_in_this_process_write_into_its_own_folder(tmp_path: Path) -> None:
    made = environment(load_settings(None, {"spark.master": "local-cluster[1,1,512]"}), tmp_path)
    home = Path(made["SPARK_HOME"])
    assert home.parent == tmp_path
    assert (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir()
    assert made["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_tasks_run_the_python_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(None, {"spark.master": "spark://host:7077"})
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert environment(settings, tmp_path)["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    assert environment(settings, tmp_path)["PYSPARK_PYTHON"] == "/other/python"
