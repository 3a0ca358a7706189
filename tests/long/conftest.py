"""The long tier shares the fixtures of the Spark tier."""

from tests.spark.conftest import db, first_database, interpreted, opener, spark

__all__ = ["db", "first_database", "interpreted", "opener", "spark"]
