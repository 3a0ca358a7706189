"""An archive of loaded classes, reused by later processes.

Most of the cost of Spark's start and first query is loading about ten thousand classes from jars. The JVM can write the classes
it has loaded to an archive and map them, parsed and verified, at the next start. The archive is in the user's cache folder, under a
name that identifies the Java version and the jars; the JVM checks it too and ignores one that does not match.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyspark

_logger = logging.getLogger(__name__)

_KEPT_S = 30 * 24 * 3600
"""Archives unused for this long are assumed to be of versions no longer installed."""


class ClassArchive:
    """The archive for one kernel jar and the Java version that Spark will start with."""

    def __init__(self, jar: Path) -> None:
        self.path = cache_folder() / f"classes-{_identity(jar)}.jsa"
        self._made = self._usable()

    def _usable(self) -> bool:
        try:
            os.utime(self.path)
        except OSError:
            return False
        return True

    @property
    def options(self) -> str:
        """The JVM options: to use the archive or, if there is none, to record the classes for one."""
        if self._made:
            return f'"-XX:SharedArchiveFile={self.path}"'
        return "-XX:+RecordDynamicDumpInfo"

    def keep(self, dump: Callable[[str], None]) -> None:
        """Calls `dump` to write the archive if there is none. It only affects speed, so a failure is only logged."""
        if self._made:
            return
        self._made = True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.path.parent) as beside:
                whole = Path(beside) / "classes.jsa"
                dump(str(whole))
                whole.replace(self.path)
            _remove_old(self.path.parent)
        except Exception:
            # The next process tries again, and starts as slowly as without an archive.
            _logger.debug("no class archive was written", exc_info=True)


def cache_folder() -> Path:
    """The folder for files that only speed up the start of later processes."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "penstock"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def java() -> list[str]:
    """Identifies the Java version that Spark will start with."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    with contextlib.suppress(OSError):
        program = program.resolve(strict=True)
    return _version(program)


def _identity(jar: Path) -> str:
    parts = [pyspark.__version__, pyspark.__path__[0], *java(), *_version(jar)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _version(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        found = file.stat()
        return [str(file), f"{found.st_size} {found.st_mtime_ns}"]
    return [str(file)]


def _remove_old(folder: Path) -> None:
    for old in (*folder.glob("classes-*.jsa"), *folder.glob("launch-*.json")):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink()
