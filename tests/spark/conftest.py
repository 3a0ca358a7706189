"""One Spark session for the whole tier, and databases that come and go in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.generated.sessions import PLAIN, batch_session

import penstock

MASTER = "local[2]"
# The tests warm the JVM up themselves.
CONFIG = {"spark.heap": "2g", "engine.warm_up_cpu_ms": 0}

Opener = Callable[..., penstock.Database]


@pytest.fixture(scope="session")
def first_database() -> Iterator[penstock.Database]:
    """The database that starts Spark; it stays open, so that the others only have to join."""
    with penstock.open(master=MASTER, config=CONFIG) as database:
        session = database.spark
        yield database
    session.stop()


@pytest.fixture(scope="session")
def spark(first_database: penstock.Database) -> SparkSession:
    session: SparkSession = first_database.spark
    return session


@pytest.fixture(scope="session")
def plain_spark(spark: SparkSession) -> SparkSession:
    """A session without generated code, with one task for each operator: for large plans over few rows."""
    return batch_session(spark)


@contextmanager
def opening(config: Mapping[str, object]) -> Iterator[Opener]:
    with ExitStack() as stack:

        def open_one(path: Path | None = None, **options: object) -> penstock.Database:
            given = {"master": MASTER, "config": config, **options}
            return stack.enter_context(penstock.open(path, **given))  # type: ignore[arg-type]

        yield open_one


@pytest.fixture
def opener(first_database: penstock.Database) -> Iterator[Opener]:
    """Opens databases that are closed at the end of the test; without a path, temporary ones."""
    with opening(CONFIG) as open_one:
        yield open_one


@pytest.fixture
def interpreted(first_database: penstock.Database) -> Iterator[Opener]:
    """The same, without generated code: for many queries over few rows."""
    with opening({**CONFIG, **PLAIN}) as open_one:
        yield open_one


@pytest.fixture
def db(opener: Opener) -> penstock.Database:
    return opener()
