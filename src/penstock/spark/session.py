"""One Spark per process, started quietly; each database that is open in it has a session of its own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.errors import fail
from penstock.spark.calls import drop_interrupted, interruptible
from penstock.spark.classes import ClassArchive
from penstock.spark.kernel import CHECKPOINT_FILES, SESSION_EXTENSION, Kernel

_lock = threading.Lock()
_session: SparkSession | None = None
_kernel: Kernel | None = None
_master: str | None = None
_classes: ClassArchive | None = None

LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c{1} %m%n%ex
"""

_ASKED_OFTEN = (
    "PythonSQLUtils",
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.functions",
)
"""Names that PySpark asks the JVM for at every call. The JVM looks for a class of that name through all jars; here it is told once."""


def kernel_jar() -> Path:
    """The jar of the Java kernel that is shipped with the package."""
    jar = Path(str(files("penstock.spark") / "penstock-kernel.jar"))
    if not jar.is_file():
        raise fail("PSK-0007", f"The kernel {jar.name} is missing.", hint="Build it: python kernel/build.py.")
    return jar


def get_session(settings: Settings) -> SparkSession:
    """The process's Spark session, started at the first call with the settings given then."""
    global _session, _kernel, _master
    with _lock:
        if _session is not None and _session.sparkContext._jsc is not None:
            if settings.spark.master != _master:
                raise fail(
                    "PSK-0008",
                    f"This process already runs Spark on {_master}; a database on {settings.spark.master} cannot share it.",
                    hint="Use the same master, or another process.",
                )
            return _session
        _session = _start(settings)
        _kernel = Kernel(_session.sparkContext._jvm)
        _master = settings.spark.master
        return _session


def database_session(settings: Settings) -> SparkSession:
    """A session for one database: its functions, and those of its settings that Spark can change, are not seen by others in the process.

    A setting that cannot be changed, and is another one in the Spark that runs, is refused (PSK-0008).
    """
    shared = get_session(settings)
    session = shared.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(settings.spark.shuffle_partitions))
    if not settings.spark.master.startswith("yarn"):
        jvm().HadoopSettings.withoutYarn(shared.sparkContext._jsc.hadoopConfiguration())
    heap = {} if settings.origin("spark.heap") == "default" else {"spark.driver.memory": settings.spark.heap}
    running = shared.sparkContext.getConf()
    for key, value in (heap | settings.spark.conf).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif running.get(key) != value:
            raise fail(
                "PSK-0008",
                f"This process already runs Spark with {key} = {running.get(key)}; a database with {value} cannot share it.",
                hint="Give the setting to the first database of the process, or use another process.",
            )
    return session


def begin(settings: Settings) -> None:
    """Starts Spark on another thread if it is not running; `get_session` waits for it, and raises what went wrong."""
    if _session is None:

        def attempt() -> None:
            with suppress(Exception):
                get_session(settings)

        threading.Thread(target=attempt, name="penstock-spark", daemon=True).start()


def keep_classes() -> None:
    """Writes the archive of loaded classes, the first time on a machine: later processes start faster. It takes some seconds."""
    if _classes is not None:
        _classes.keep(lambda path: interruptible(lambda: jvm().ClassArchive.dump(path)))


def _start(settings: Settings) -> SparkSession:
    global _classes
    # PySpark prints each error of a query as JSON on the terminal; ours say it once, where it belongs.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Spark asks a small JVM for the command line of the real one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    scratch = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    (scratch / "log4j2.properties").write_text(LOG4J)
    conf = SparkConf(loadDefaults=False)
    _classes = ClassArchive(kernel_jar()) if settings.spark.class_archive else None
    for key, value in spark_conf(settings, scratch, _classes.options if _classes else "").items():
        conf.set(key, value)
    stderr = (scratch / "spark.log").open("wb")
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": stderr, "stderr": stderr})
        drop_interrupted(gateway._gateway_client)
        with _own_interrupts():
            context = SparkContext(gateway=gateway, conf=conf)
        for name in _ASKED_OFTEN:
            setattr(context._jvm, name, getattr(context._jvm, name))
        return SparkSession(context)
    except Exception as error:
        stderr.flush()
        tail = (scratch / "spark.log").read_text(errors="replace").strip().splitlines()[-3:]
        raise fail("PSK-0007", "Spark could not be started: " + (" ".join(tail) or str(error))) from error
    finally:
        stderr.close()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark makes Ctrl-C cancel every job of the session, streaming queries too; the program's own handler is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def spark_conf(settings: Settings, scratch: Path, classes: str = "") -> dict[str, str]:
    """Spark settings that must be right before the first checkpoint exists, and those that keep epochs short."""
    jar = str(kernel_jar())
    streaming = "spark.sql.streaming."
    local = settings.spark.master.startswith("local")
    conf = {
        "spark.app.name": "penstock",
        "spark.master": settings.spark.master,
        "spark.driver.memory": settings.spark.heap,
        "spark.driver.extraClassPath": jar,
        "spark.driver.extraJavaOptions": (
            # A page of a sort is smaller than half a region, so that the collector does not begin to mark for it.
            f"-Xss16m -XX:+UseG1GC -XX:G1HeapRegionSize=8m -Dlog4j2.configurationFile=file:{scratch}/log4j2.properties"
            f" -Djava.io.tmpdir={scratch} {classes}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark remembers of work that is done, for a page that nobody sees.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.spark.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": SESSION_EXTENSION,
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Every sort of every epoch takes a page before its first row, by default of 32 MiB and more.
        "spark.buffer.pageSize": "2m",
        "spark.scheduler.mode": "FAIR",
        streaming + "stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        streaming + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        streaming + "stateStore.rocksdb.boundedMemoryUsage": "true",
        streaming + "stateStore.rocksdb.maxMemoryUsageMB": "512",
        streaming + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
        streaming + "stateStore.checkpointFormatVersion": "2",
        streaming + "checkpointFileManagerClass": CHECKPOINT_FILES,
        streaming + "checkpoint.fileChecksum.enabled": "false",
        streaming + "minBatchesToRetain": "10",
        streaming + "numRecentProgressUpdates": "2",
        streaming + "metricsEnabled": "false",
        streaming + "pollingDelay": "1ms",
        streaming + "noDataProgressEventInterval": "60s",
    }
    if local:
        conf["spark.locality.wait"] = "0"
        conf["spark.driver.host"] = "localhost"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        conf["spark.jars"] = jar
    conf.update(settings.spark.conf)
    return conf


def jvm() -> Kernel:
    """The kernel's classes in the JVM of the running session."""
    if _kernel is None:
        raise fail("PSK-8001", "Spark is not running.")
    return _kernel
