"""Options of the JVM's compilers.

The optimizing compiler uses half of the CPU time until the first result of a new process, most of it on code that runs while queries are
parsed, analysed and loaded, and seldom afterwards. Such code is left to the fast compiler, and other code is optimized a little later: code on the path of
rows exceeds any threshold within tenths of a second.
"""

from __future__ import annotations

import json
from pathlib import Path

_FILE = "compiler.json"

_PREPARATION = (
    "org/antlr/",
    "org/codehaus/",
    "org/json4s/",
    "org/apache/hadoop/",
    "org/apache/logging/",
    "org/apache/xbean/",
    "org/apache/spark/sql/catalyst/analysis/",
    "org/apache/spark/sql/catalyst/optimizer/",
    "org/apache/spark/sql/catalyst/parser/",
    "org/apache/spark/sql/catalyst/expressions/codegen/Code",
    "org/apache/spark/sql/catalyst/expressions/codegen/Generate",
    "org/apache/spark/util/ClosureCleaner",
    "org/apache/spark/util/SizeEstimator",
    "com/fasterxml/",
    "py4j/",
    "scala/reflect/",
    "java/lang/invoke/",
    "java/lang/reflect/",
    "java/util/Formatter",
    "java/util/jar/",
    "java/util/zip/ZipFile",
    "jdk/internal/loader/",
    "jdk/internal/org/objectweb/asm/",
    "jdk/internal/reflect/",
    "sun/util/locale/",
)
"""Name prefixes of classes that prepare queries."""

_TASKS = ("java/io/Object",)
"""The same for Java's serialization of tasks, which takes the optimizing compiler seconds without making the epochs of small commits faster."""

_THRESHOLDS = {
    "Tier4InvocationThreshold": 15_000,
    "Tier4MinInvocationThreshold": 1_800,
    "Tier4CompileThreshold": 45_000,
    "Tier4BackEdgeThreshold": 120_000,
    # While the optimizing compiler is busy, compile code without the profiling that it would need.
    "Tier3DelayOn": 1,
}
"""Three times the JVM's defaults."""


def write_directives(folder: Path) -> None:
    """Writes the file that `java_options` refers to."""
    match = [f"{start}*.*" for start in (*_PREPARATION, *_TASKS)]
    (folder / _FILE).write_text(json.dumps([{"match": match, "c2": {"Exclude": True}}], indent=2))


def java_options(folder: Path) -> str:
    thresholds = " ".join(f"-XX:{name}={value}" for name, value in _THRESHOLDS.items())
    return f'{thresholds} -XX:+UnlockDiagnosticVMOptions "-XX:CompilerDirectivesFile={folder / _FILE}"'
