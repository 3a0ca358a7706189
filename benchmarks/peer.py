"""Where the competitors are installed that Penstock itself has no need of, if they can be."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.flink import JARS
from benchmarks.work import FLINK, LAMINAR

FOLDER = Path(__file__).resolve().parent
INSTALL_S = 600.0
FETCH = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session.config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2]).getOrCreate().stop()
"""


@dataclass(frozen=True)
class Peer:
    """A package with dependencies of its own, in a virtual environment of its own."""

    package: str
    module: str
    folder: Path
    packages: tuple[str, ...]
    newest: tuple[int, int] | None = None
    """The newest Python that it can be installed into."""
    jars: tuple[str, ...] = ()
    """What it needs beside its packages: Maven coordinates."""

    def interpreter(self) -> tuple[str | None, str]:
        """A Python that has it, and its version; or None, and why there is none."""
        own = self.folder / "bin" / "python"
        for python in (sys.executable, str(own)):
            version = self._version(python)
            if version is not None:
                return self._with_jars(python, version)
        base = self._base()
        if base is None:
            return None, f"needs Python {'.'.join(map(str, self.newest or ()))} or older"
        try:
            subprocess.run([base, "-m", "venv", str(self.folder)], check=True, capture_output=True)
            pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *self.packages], check=True, capture_output=True, timeout=INSTALL_S)
        except (OSError, subprocess.SubprocessError) as error:
            return None, f"cannot be installed ({type(error).__name__})"
        version = self._version(str(own))
        return self._with_jars(str(own), version) if version is not None else (None, "cannot be imported")

    def _with_jars(self, python: str, version: str) -> tuple[str | None, str]:
        """Spark's own downloader brings the jars, and Spark has the Hadoop classes that they need."""
        folder = self.folder / JARS
        if self.jars and not folder.is_dir():
            import pyspark

            with tempfile.TemporaryDirectory() as ivy:
                packages = ",".join(self.jars)
                program = [sys.executable, "-c", FETCH, packages, ivy]
                try:
                    subprocess.run(program, check=True, capture_output=True, timeout=INSTALL_S)
                except (OSError, subprocess.SubprocessError) as error:
                    return None, f"{packages} cannot be fetched ({type(error).__name__})"
                found = [
                    *Path(ivy).rglob("*.jar"),
                    *(Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"),
                ]
                folder.mkdir(parents=True)
                for jar in found:
                    shutil.copy(jar, folder)
        return python, version

    def _base(self) -> str | None:
        if self.newest is None or sys.version_info[:2] <= self.newest:
            return sys.executable
        names = (f"python3.{minor}" for minor in range(self.newest[1], 9, -1))
        return next((found for name in names if (found := shutil.which(name))), None)

    def _version(self, python: str) -> str | None:
        program = f"import psutil, pyarrow, {self.module}; from importlib.metadata import version; print(version('{self.package}'))"
        try:
            done = subprocess.run([python, "-c", program], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None


PEERS = {
    LAMINAR: Peer("laminardb", "laminardb", FOLDER / ".venv", ("laminardb", "numpy", "psutil", "pyarrow")),
    FLINK: Peer(
        "apache-flink",
        "pyflink.table",
        FOLDER / ".venv-flink",
        ("apache-flink==2.3.0", "psutil"),
        newest=(3, 12),
        jars=("org.apache.flink:flink-sql-parquet:2.3.0",),
    ),
}
