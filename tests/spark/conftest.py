"""One Spark session for the whole tier, and databases that come and go in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock

MASTER = "local[2]"
CONFIG = {"spark.heap": "2g"}

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


@pytest.fixture
def opener(first_database: penstock.Database) -> Iterator[Opener]:
    """Opens databases that are closed at the end of the test; without a path, temporary ones."""
    with ExitStack() as stack:

        def open_one(path: Path | None = None, **options: object) -> penstock.Database:
            given = {"master": MASTER, "config": CONFIG, **options}
            return stack.enter_context(penstock.open(path, **given))  # type: ignore[arg-type]

        yield open_one


@pytest.fixture
def db(opener: Opener) -> penstock.Database:
    return opener()
