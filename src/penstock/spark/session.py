"""One Spark per process, started quietly; each database that is open in it has a session of its own."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.errors import PenstockError, fail
from penstock.spark.calls import interruptible
from penstock.spark.configuration import Master, check_conf
from penstock.spark.kernel import Kernel
from penstock.spark.lifecycle import Phase, Spark, Watcher

_spark = Spark()

# Before that of the databases, which is registered later and runs earlier.
atexit.register(_spark.exit)


def get_session(settings: Settings) -> SparkSession:
    """The process's Spark session, started at the first call, and at the first one after the JVM has ended, with the settings given then."""
    return _spark.start(settings).session


def database_session(settings: Settings) -> SparkSession:
    """A session for one database: its functions, and those of its settings that Spark can change, are not seen by others in the process.

    A setting that cannot be changed, and is another one in the Spark that runs, is refused (PSK-0008).
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
    """Starts Spark on another thread if it is not running; `get_session` waits for it, and raises what went wrong."""
    if _spark.phase in (Phase.ABSENT, Phase.DEAD):

        def attempt() -> None:
            with suppress(Exception):
                get_session(settings)

        threading.Thread(target=attempt, name="penstock-spark", daemon=True).start()


def watch(watcher: Watcher) -> Callable[[], None]:
    """Has `watcher` called with a PSK-7005 each time that a JVM ends from now on, on a thread of its own; the result unregisters it.

    Whoever registers before it asks for a session misses no death. The exit of the process is none.
    """
    return _spark.watch(watcher)


def ended(soon: bool = False) -> PenstockError | None:
    """PSK-7005 if the JVM has ended and no new one has been started; None otherwise.

    `soon` is for a caller that saw a connection break: it waits a moment for the end to be known.
    """
    return _spark.end(soon)


@contextmanager
def releasing() -> Iterator[None]:
    """For giving back what a JVM holds. One that has ended holds nothing."""
    try:
        yield
    except PenstockError as error:
        if error.code != "PSK-7005":
            raise


def keep_classes() -> None:
    """Writes the archive of loaded classes, the first time on a machine: later processes start faster. It takes some seconds."""
    with releasing():
        running = _spark.running()
        if running.classes is not None:
            dump = running.kernel.ClassArchive.dump
            running.classes.keep(lambda path: interruptible(lambda: dump(path)))


def jvm() -> Kernel:
    """The kernel's classes in the JVM of the running session."""
    return _spark.running().kernel
