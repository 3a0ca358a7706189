"""One Spark per process, with a separate session for each open database."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.errors import PenstockError, fail
from penstock.spark.calls import interruptible
from penstock.spark.classes import ClassArchive
from penstock.spark.configuration import Master, check_conf, kernel_jar
from penstock.spark.kernel import Kernel
from penstock.spark.lifecycle import Phase, Spark, Watcher

_spark = Spark()

# Registered before that of the databases, so it runs after it.
atexit.register(_spark.exit)


def get_session(settings: Settings) -> SparkSession:
    """The process's Spark session. The first call, and the first call after the JVM exited, start it with the given settings."""
    return _spark.start(settings).session


def database_session(settings: Settings) -> SparkSession:
    """A session for one database: other databases do not see its functions, nor its settings that Spark can change at run time.

    A fixed setting that differs from that of the running Spark is refused (PSK-0008).
    """
    check_conf(settings.spark.conf)
    running = _spark.start(settings)
    shared = running.session
    session = shared.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(settings.spark.shuffle_partitions))
    if Master.of(settings.spark.master) is not Master.YARN:
        jvm().HadoopSettings.withoutYarn(shared.sparkContext._jsc.hadoopConfiguration())
    heap = {} if settings.origin("spark.heap") == "default" else {"spark.driver.memory": settings.spark.heap}
    actual = shared.sparkContext.getConf()
    for key, value in (heap | settings.spark.conf).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif running.settings.spark.conf.get(key, actual.get(key)) != value:
            raise fail(
                "PSK-0008",
                f"This process already runs Spark with {key} = {actual.get(key)}; a database with {value} cannot share it.",
                hint="Give the setting to the first database of the process, or use another process.",
            )
    return session


def begin(settings: Settings) -> None:
    """Starts Spark on another thread if it is not running; `get_session` waits for it and raises its error."""
    if _spark.phase in (Phase.ABSENT, Phase.DEAD):

        def attempt() -> None:
            with suppress(Exception):
                get_session(settings)

        threading.Thread(target=attempt, name="penstock-spark", daemon=True).start()


def watch(watcher: Watcher) -> Callable[[], None]:
    """Registers `watcher`: it is called with a PSK-7005, on a separate thread, each time a JVM exits. Returns a function that unregisters it.

    Register before requesting a session, so that no exit is missed. It is not called when this process exits.
    """
    return _spark.watch(watcher)


def ended(soon: bool = False) -> PenstockError | None:
    """PSK-7005 if the JVM exited and no new one was started; None otherwise.

    `soon` is for a caller whose connection broke: it waits briefly for the exit to be detected.
    """
    return _spark.end(soon)


@contextmanager
def releasing() -> Iterator[None]:
    """For releasing resources of a JVM. Does nothing if the JVM exited."""
    try:
        yield
    except PenstockError as error:
        if error.code != "PSK-7005":
            raise


def classes_kept() -> bool:
    """Whether this machine has an archive of the classes that Spark loads."""
    return ClassArchive(kernel_jar()).path.exists()


def keep_classes() -> None:
    """Writes the archive of loaded classes, once per machine, so that later processes start faster. It takes some seconds."""
    with releasing():
        running = _spark.running()
        if running.classes is not None:
            dump = running.kernel.ClassArchive.dump
            running.classes.keep(lambda path: interruptible(lambda: dump(path)))


def first_warm_up() -> bool:
    """True for the first caller after each start of a JVM."""
    warming = _spark.running().warming
    if warming.is_set():
        return False
    warming.set()
    return True


def scratch_folder() -> Path:
    """The folder of the running JVM. It is removed with it, or by the next start if the process is killed."""
    return _spark.running().scratch.path


def cpu_ms() -> int:
    """The CPU time of the JVM, including its compilers; -1 if the system does not report it."""
    return int(jvm().CpuTime.ms())


def jvm() -> Kernel:
    """The kernel's classes in the JVM of the running session."""
    return _spark.running().kernel
