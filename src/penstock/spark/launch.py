"""Caches the command that starts Spark's JVM.

`spark-submit` is a shell script that starts a small JVM to build the command, which takes a third of a second and gives the same command each time. So the first process
stores the command of its JVM, and later ones run that. The cache is used only if nothing but its key can affect the command: not with a Spark configuration
folder, whose scripts may do anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from penstock.spark.classes import cache_folder, java

_SCRATCH = "<scratch>"

_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Variables that a shell sets for itself."""

_READ = ("HADOOP_", "JAVA_", "JDK_", "PYSPARK_", "SPARK_", "YARN_", "_JAVA_", "_PYSPARK_", "_SPARK_")
"""Name prefixes of variables that the launcher may read."""


@dataclass(frozen=True)
class Command:
    """A command, and the environment variables to add for it."""

    words: tuple[str, ...]
    variables: Mapping[str, str]


class Launch:
    """The command for one configuration. `scratch` is the folder in it that differs between processes."""

    def __init__(self, submit: Command, conf: Mapping[str, str], scratch: Path, remember: bool = True) -> None:
        self._submit = submit
        self._scratch = str(scratch)
        self._file = cache_folder() / f"launch-{self._key(conf)}.json"
        home = Path(submit.words[0]).parent.parent
        configured = "SPARK_CONF_DIR" in submit.variables or (home / "conf").exists()
        self._usable = remember and not configured and conf["spark.master"].startswith("local[")
        self._remembered = False

    def _key(self, conf: Mapping[str, str]) -> str:
        given = self._submit.variables
        parts = [
            pyspark.__version__,
            *java(),
            given.get("PATH", ""),
            *self._submit.words,
            *(f"{k}={v}" for k, v in sorted(conf.items())),
            *(f"{k}={v}" for k, v in sorted(given.items()) if k.startswith(_READ)),
        ]
        return hashlib.sha256("\n".join(parts).replace(self._scratch, _SCRATCH).encode()).hexdigest()[:16]

    def command(self) -> Command:
        """The cached command, or `spark-submit`."""
        if self._usable:
            with suppress(OSError, ValueError, KeyError, TypeError):
                known = json.loads(self._file.read_text().replace(_SCRATCH, self._scratch))
                words = tuple(map(str, known["words"]))
                os.utime(self._file)
                self._remembered = True
                return Command(words, {**self._submit.variables, **known["variables"]})
        return self._submit

    def keep(self, pid: int) -> None:
        """Stores the command of a started JVM, if the system exposes it. The file is private, because options may have secrets."""
        if self._remembered or not self._usable:
            return
        with suppress(OSError, UnicodeDecodeError):
            words = _read(pid, "cmdline")
            pairs = (word.partition("=")[::2] for word in _read(pid, "environ"))
            added = {k: v for k, v in pairs if k not in _SHELL and self._submit.variables.get(k) != v}
            text = json.dumps({"words": words, "variables": added}, indent=1).replace(self._scratch, _SCRATCH)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._file.parent, delete=False) as beside:
                beside.write(text)
            Path(beside.name).replace(self._file)

    def forget(self) -> None:
        """Drops a cached command that did not work; the next start uses `spark-submit`."""
        if self._remembered:
            with suppress(OSError):
                self._file.unlink()


def _read(pid: int, what: str) -> list[str]:
    return Path(f"/proc/{pid}/{what}").read_bytes().decode().rstrip("\0").split("\0")
