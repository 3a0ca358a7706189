"""Every function of the installed Spark is known to reach nothing outside the database, or is forbidden."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.spark.reach import close_off
from penstock.sql.programs import FORBIDDEN

ALLOWED = frozenset(Path(__file__).with_name("functions.txt").read_text().split())
REACHING = (
    "java/lang/reflect/", "java/lang/Process", "java/io/File", "java/nio/file/", "java/net/", "java/lang/ClassLoader", "javax/script",
    "org/apache/hadoop/", "org/apache/spark/SparkFiles", "org/apache/spark/SparkContext", "org/apache/spark/SparkEnv", "scala/sys/process",
    "CallMethodViaReflection", "classForName", "forName", "loadClass", "getenv",
)  # fmt: skip
"""Parts of names that a class which calls reflection, starts processes or opens files or addresses refers to."""


def _names(code: bytes) -> Iterator[str]:
    """All texts in a class file: names of classes and methods, and literals."""
    (count,) = struct.unpack(">H", code[8:10])
    at, number = 10, 1
    while number < count:
        tag = code[at]
        if tag == 1:
            (length,) = struct.unpack(">H", code[at + 1 : at + 3])
            yield code[at + 3 : at + 3 + length].decode(errors="replace")
            at += 3 + length
        else:
            at += {15: 4, 7: 3, 8: 3, 16: 3, 19: 3, 20: 3, 5: 9, 6: 9}.get(tag, 5)
            number += tag in (5, 6)
        number += 1


@pytest.fixture(scope="module")
def builtin(spark: SparkSession) -> dict[str, str]:
    """Names and classes of Spark's own functions, as a session has them that nobody has touched."""
    session = spark.newSession()
    found: dict[str, str] = {}
    state: Any = session._jsparkSession.sessionState()
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        names = registry.listFunction().iterator()
        while names.hasNext():
            name = names.next()
            found[name.funcName()] = registry.lookupFunction(name).get().getClassName()
    return found


def test_each_function_is_known(builtin: dict[str, str]) -> None:
    assert len(builtin) > 500
    assert not ALLOWED & set(FORBIDDEN)
    unknown = {n: c for n, c in builtin.items() if n not in ALLOWED and n not in FORBIDDEN}
    assert unknown == {}, "Read what they do: they belong into tests/spark/functions.txt or into penstock.sql.programs"


def test_no_allowed_function_reaches_out(builtin: dict[str, str]) -> None:
    jars = [ZipFile(j) for j in sorted(Path(pyspark.__file__).parent.glob("jars/spark-*.jar"))]
    entries = {n: jar for jar in jars for n in jar.namelist() if n.endswith(".class")}
    reaching = set()
    for name, kind in builtin.items():
        path = kind.replace(".", "/")
        own = [n for n in (f"{path}.class", f"{path}$.class") if n in entries]
        assert own, kind
        texts = [text for n in own for text in _names(entries[n].read(n))]
        if any(part in text for text in texts for part in REACHING):
            reaching.add(name)
    for jar in jars:
        jar.close()
    assert {"reflect", "java_method", "try_reflect", "from_avro", "from_protobuf"} <= reaching
    assert reaching <= set(FORBIDDEN)


def test_a_session_has_no_forbidden_function(spark: SparkSession, first_database: penstock.Database) -> None:
    fresh = spark.newSession()
    assert fresh.sql("SELECT reflect('java.lang.String', 'valueOf', 1) AS x").collect()[0].x == "1"
    close_off(fresh)
    for session in (fresh, first_database.spark):
        for call in (
            "reflect",
            "builtin.reflect",
            "system.builtin.reflect",
            "`REFLECT`",
            "IDENTIFIER('reflect')",
            "try_reflect",
        ):
            with pytest.raises(Exception, match=r"UNRESOLVED_ROUTINE|cannot resolve|REQUIRES_SINGLE_PART_NAMESPACE"):
                session.sql(f"SELECT {call}('java.lang.String', 'valueOf', 1)").collect()
        with pytest.raises(Exception, match=r"UNSUPPORTED|NOT_FOUND|not found"):
            session.sql("SELECT * FROM text.`/etc/hostname`").collect()
