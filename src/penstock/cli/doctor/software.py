"""Checks of the software: Python, Java, PySpark, the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.cli.doctor.check import Check

MIN_PYTHON = (3, 11)
MIN_JAVA = 17
MIN_PYSPARK = (4, 2, 1)

# a JVM that takes longer than this is broken
_JAVA_TIMEOUT_S = 30


def check_python() -> Check:
    """Python is new enough."""
    found = ".".join(str(n) for n in sys.version_info[:3])
    ok = sys.version_info[:2] >= MIN_PYTHON
    return Check("Python", ok, found, "" if ok else "Install Python 3.11 or newer.")


def check_java() -> Check:
    """The Java that Spark will use exists and is new enough."""
    java = find_tool("java")
    advice = "Install a JDK 17 or 21 and put it on PATH, or set JAVA_HOME."
    if java is None:
        return Check("Java", False, "not found", advice)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Java", False, f"{java} does not run: {error}", advice)
    major = java_major(answer.stderr + answer.stdout)
    if major is None:
        return Check("Java", False, f"{java} does not report a version", advice)
    return Check("Java", major >= MIN_JAVA, f"{major} ({java})", "" if major >= MIN_JAVA else advice)


def check_javac(*, needed: bool) -> Check:
    """The compiler is available, if the kernel must be compiled."""
    javac = find_tool("javac")
    if javac is not None:
        return Check("javac", True, javac)
    if not needed:
        return Check("javac", None, "not found, and not needed: the kernel is already compiled")
    return Check("javac", False, "not found", "Install a JDK, not just a Java runtime: javac compiles the kernel.")


def check_pyspark() -> Check:
    """PySpark is new enough."""
    advice = "Install it: pip install 'pyspark>=4.2.1'."
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Check("PySpark", False, "not found", advice)
    ok = version_tuple(found) >= MIN_PYSPARK
    return Check("PySpark", ok, found, "" if ok else advice)


def check_kernel() -> Check:
    """The package contains the compiled Java kernel."""
    jar = kernel_jar()
    if jar is not None:
        return Check("kernel", True, f"{jar.name}, {jar.stat().st_size / 1024:.0f} KiB")
    return Check(
        "kernel",
        False,
        "the jar is not in the package",
        "Reinstall Penstock; in a source tree, run: python kernel/build.py.",
    )


def kernel_jar() -> Path | None:
    """The kernel's jar, if it has been built."""
    jar = Path(__file__).resolve().parents[2] / "spark" / "penstock-kernel.jar"
    return jar if jar.is_file() else None


def find_tool(name: str) -> str | None:
    """A Java tool, from JAVA_HOME if it is set (as in Spark), otherwise from PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(name, path=str(Path(home) / "bin"))
    return shutil.which(name)


def java_major(text: str) -> int | None:
    """The major version in the output of `java -version`; `1.8.0` is 8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first = int(found.group(1))
    return int(found.group(2)) if first == 1 and found.group(2) else first


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `4.3.0.dev1` is (4, 3, 0)."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(n) for n in numbers.group().split(".")) if numbers else ()
