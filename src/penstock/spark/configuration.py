"""The configuration of Spark's JVM: settings, Java options, environment."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from enum import Enum
from importlib.resources import files
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from penstock.config import Settings
from penstock.errors import fail
from penstock.spark import compilation
from penstock.spark.kernel import CHECKPOINT_FILES, END_WITH_CONTEXT, SESSION_EXTENSION
from penstock.spark.process import HEAP_EXIT

LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c{1} %m%n%ex
"""


RECURSION_STEPS = 1_000
"""The maximum depth of recursion in a one-shot SELECT; a view is allowed more."""


class Master(Enum):
    """The kinds of cluster manager. All except `LOCAL` run tasks outside the driver process."""

    LOCAL = "local"
    LOCAL_CLUSTER = "local-cluster["
    STANDALONE = "spark://"
    YARN = "yarn"
    KUBERNETES = "k8s://"

    @classmethod
    def of(cls, address: str) -> Master:
        return next(m for m in (*list(cls)[1:], cls.LOCAL) if address.startswith(m.value))

    @property
    def here(self) -> bool:
        """Whether everything runs on this machine, and no other machine needs access."""
        return self in (Master.LOCAL, Master.LOCAL_CLUSTER)


_FIXED = {
    "spark.sql.variable.substitute": (
        "false",
        "Spark would replace ${…} in the text of a statement, and in the values bound to it.",
    ),
}
"""Spark settings that cannot be changed, and why."""

_JOINED = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.extraListeners": ",",
    "spark.sql.extensions": ",",
}
"""List settings to which a database's own value is appended."""

_HEAP_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def kernel_jar() -> Path:
    """The jar of the Java kernel in the package."""
    jar = Path(str(files("penstock.spark") / "penstock-kernel.jar"))
    if not jar.is_file():
        raise fail("PSK-0007", f"The kernel {jar.name} is missing.", hint="Build it: python kernel/build.py.")
    return jar


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuses settings that would break Penstock's guarantees (PSK-0002)."""
    for key, (value, why) in _FIXED.items():
        if conf.get(key, value).strip().lower() != value:
            raise fail("PSK-0002", f"{key} cannot be {conf[key]}.", hint=why)
    if "spark.master" in conf:
        raise fail(
            "PSK-0002", "spark.master cannot be set in spark.conf.", hint="Use the separate setting spark.master."
        )


def spark_conf(settings: Settings, scratch: Path, classes: str = "") -> dict[str, str]:
    """Spark settings that must be fixed before the first checkpoint, and those that keep epochs short."""
    check_conf(settings.spark.conf)
    streaming = "spark.sql.streaming."
    master = Master.of(settings.spark.master)
    java = f"-Xss16m {HEAP_EXIT}"
    conf = {
        "spark.app.name": "penstock",
        "spark.master": settings.spark.master,
        "spark.driver.memory": settings.spark.heap,
        # The maximum that one query may collect in the driver, which also plans and serves all others.
        "spark.driver.maxResultSize": f"{_heap_bytes(settings.spark.heap) // 4}b",
        "spark.driver.extraClassPath": str(kernel_jar()),
        "spark.driver.defaultJavaOptions": (
            # Sort pages must be smaller than half a region: larger ones make the collector start marking.
            # Classes beyond MetaspaceSize make it mark too; a session has some 130 MB of them.
            f'{java} -XX:+UseG1GC -XX:G1HeapRegionSize=8m -XX:MetaspaceSize=256m "-Djava.io.tmpdir={scratch}"'
            f" -Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()} {compilation.java_options(scratch)} {classes}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Limits Spark's history of completed work, for a UI that is not served.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.ui.explainMode": "simple",
        # Otherwise PySpark sends the JVM the line of code of every expression, which is half of the calls of a CREATE VIEW.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # The maximum number of steps of a recursive SELECT. Each is a Spark job, so an endless recursion should fail soon.
        "spark.sql.cteRecursionLevelLimit": str(RECURSION_STEPS),
        "spark.sql.shuffle.partitions": str(settings.spark.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": SESSION_EXTENSION,
        "spark.extraListeners": END_WITH_CONTEXT,
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Every sort of every epoch allocates a page before its first row, by default 32 MiB or more.
        "spark.buffer.pageSize": "2m",
        # Every stage of every epoch allocates a block for its tasks before the first byte, by default 4 MiB.
        "spark.broadcast.blockSize": "128k",
        "spark.scheduler.mode": "FAIR",
        streaming + "stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        streaming + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        streaming + "stateStore.rocksdb.boundedMemoryUsage": "true",
        streaming + "stateStore.rocksdb.maxMemoryUsageMB": "512",
        streaming + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
        streaming + "stateStore.checkpointFormatVersion": "2",
        # A change log has room for the names of about 860 versions since the last snapshot, which maintenance writes.
        streaming + "stateStore.maintenanceInterval": "10s",
        streaming + "checkpointFileManagerClass": CHECKPOINT_FILES,
        streaming + "checkpoint.fileChecksum.enabled": "false",
        streaming + "minBatchesToRetain": "10",
        streaming + "numRecentProgressUpdates": "2",
        streaming + "metricsEnabled": "false",
        streaming + "pollingDelay": "1ms",
        streaming + "noDataProgressEventInterval": "60s",
        **{key: value for key, (value, _) in _FIXED.items()},
    }
    if master is Master.LOCAL:
        conf["spark.locality.wait"] = "0"
        # The only executor is the driver's own process. Spark would consider it lost after two minutes without a heartbeat, as when a laptop sleeps, and exit some ten minutes later.
        conf["spark.storage.blockManagerHeartbeatTimeoutMs"] = "365d"
        conf["spark.executor.heartbeat.maxFailures"] = str(2**31 - 1)
    else:
        conf["spark.jars"] = str(kernel_jar())
        conf["spark.executor.defaultJavaOptions"] = java
    if master.here:
        conf["spark.driver.host"] = "localhost"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
    # A standalone cluster has one shared secret, which only its operator knows. Elsewhere Spark generates one for each
    # application, except for a cluster in one process.
    if master is not Master.STANDALONE:
        conf["spark.authenticate"] = "true"
    if master is Master.LOCAL_CLUSTER:
        conf["spark.authenticate.secret"] = secrets.token_hex(32)
    for key, value in settings.spark.conf.items():
        ours = conf.get(key)
        conf[key] = f"{ours}{_JOINED[key]}{value}" if ours is not None and key in _JOINED else value
    return conf


def environment(settings: Settings, scratch: Path) -> dict[str, str]:
    """The environment variables that the JVM needs besides those of this process."""
    master = Master.of(settings.spark.master)
    # These options are for the small JVM that builds the command line of the real one.
    out = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "PYSPARK_PYTHON": sys.executable}
    out = {key: os.environ.get(key, value) for key, value in out.items()}
    if master.here:
        out |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    if master is Master.LOCAL_CLUSTER:
        out["SPARK_HOME"] = str(_home(scratch))
    return out


def _home(scratch: Path) -> Path:
    """A Spark home in which its workers can create folders; the installed one may not be writable."""
    home = scratch / "home"
    home.mkdir()
    for part in Path(_find_spark_home()).iterdir():
        (home / part.name).symlink_to(part)
    return home


def _heap_bytes(heap: str) -> int:
    return int(heap[:-1]) << _HEAP_UNITS[heap[-1].lower()]
