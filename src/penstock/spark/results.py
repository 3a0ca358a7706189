"""Transfers Arrow tables to and from Spark as files, so neither inputs nor results have to fit into the heap.

This needs tasks on this machine. On a cluster, PySpark sends tables through the driver, within `spark.driver.maxResultSize`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.catalog.declared import declared, without_lengths
from penstock.spark.configuration import Master
from penstock.spark.session import jvm

_IN_HEAP_BYTES = 32 << 20
"""Up to this size, Spark holds a table itself: it then knows the size, and broadcasts small tables."""

_BATCH_BYTES = 4 << 20

_AT_LEAST_BYTES = 1 << 20
_SENT_ROWS = 10_000


@contextmanager
def exchange(spark: SparkSession) -> Iterator[Path | None]:
    """A folder for the files of one query; None if tasks cannot access this machine's disk."""
    context = spark.sparkContext
    if not Master.of(str(context.master)).here:
        yield None
        return
    # Where Spark also spills.
    folder = Path(tempfile.mkdtemp(dir=context._temp_dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def given(session: SparkSession, table: pa.Table, folder: Path | None) -> DataFrame:
    """A table as a DataFrame. The files in `folder` must exist as long as it is used."""
    known = from_arrow_schema(table.schema)
    struct = StructType([_declared(f, a) for f, a in zip(known.fields, table.schema, strict=True)])
    if table.num_rows == 0:
        return session.createDataFrame([], struct)
    own = struct != known
    if not own and (folder is None or table.nbytes <= _IN_HEAP_BYTES):
        # Without the schema, PySpark converts TIMESTAMP_NTZ to TIMESTAMP.
        return session.createDataFrame(table, known)
    table = table.cast(
        to_arrow_schema(
            known, timezone="UTC", error_on_duplicated_field_names_in_struct=True, prefers_large_types=False
        )
    )
    if folder is None:
        return _sent(session, table, struct)
    rows = max(1, table.num_rows * _BATCH_BYTES // table.nbytes)
    offsets = []
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        for batch in table.to_batches(max_chunksize=rows):
            offsets.append(str(file.tell()))
            file.write(batch.serialize())
    return DataFrame(
        jvm().ArrowFiles.read(session._jsparkSession, file.name, "\n".join(offsets), struct.json()), session
    )


def _declared(field: StructField, source: pa.Field) -> StructField:
    """The field with its declared type. A type and the Arrow type that holds it have the same layout in memory."""
    kind = declared(source)
    if kind is None:
        return field
    plain = without_lengths(kind)
    found = StructType.fromDDL(f"c {plain}")
    assert isinstance(found, StructType)
    # Spark's metadata key for CHAR(n) and VARCHAR(n).
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": kind} if plain != kind else None
    return StructField(field.name, found.fields[0].dataType, field.nullable, metadata)


def _sent(session: SparkSession, table: pa.Table, struct: StructType) -> DataFrame:
    """As `createDataFrame`, which is limited to the types that PySpark can convert."""
    gateway = session._jvm
    assert gateway is not None
    batches = session.sparkContext._serialize_to_jvm(
        table.to_batches(max_chunksize=_SENT_ROWS),
        ArrowStreamSerializer(),
        gateway.PythonSQLUtils.readArrowStreamFromFile,
        gateway.ArrowIteratorServer,
    )
    return DataFrame(gateway.PythonSQLUtils.toDataFrame(batches, struct.json(), session._jsparkSession), session)


def taken(df: DataFrame, folder: Path | None) -> pa.Table:
    """The rows of a DataFrame, in mapped files that are deleted with the table."""
    if folder is None:
        return df.toArrow()
    schema = to_arrow_schema(
        df.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=False, prefers_large_types=False
    )
    out = Path(tempfile.mkdtemp(dir=folder))
    names = jvm().ArrowFiles.write(df._jdf, str(out), _room(out)).split()
    parts = [_mapped(out / name) for name in names]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _mapped(path: Path) -> pa.Table:
    # The mapping lives as long as the table, even though the file is closed and deleted.
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _room(folder: Path) -> int:
    """The maximum size of a result, which is first written to disk and then used in memory."""
    return max(_AT_LEAST_BYTES, min([shutil.disk_usage(folder).free // 2, *_memory()]))


def _memory() -> Iterator[int]:
    """The available memory of the machine, and of the container if it has a limit."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        yield int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    with suppress(OSError, ValueError, KeyError):
        group = Path("/sys/fs/cgroup")
        used = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # The page cache counts as used, but can be reclaimed.
        yield int((group / "memory.max").read_text()) - int(used["anon"])
