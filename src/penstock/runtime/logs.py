"""Reports of the process as JSON lines in the database folder."""

from __future__ import annotations

import datetime as dt
import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from penstock.config import LoggingSettings
from penstock.errors import PenstockError

NAME = "penstock.jsonl"
_BYTES = 10_000_000
_FILES = 2
"""Besides the current one."""
_ROOT = logging.getLogger("penstock")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when,
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = error.code if isinstance(error, PenstockError) else type(error).__name__
            line["trace"] = self.formatException(record.exc_info)  # type: ignore[arg-type]
        return json.dumps(line, ensure_ascii=False)


class Reports:
    """Writes what the process reports while a database is open. A disk that refuses a line never disturbs anybody."""

    def __init__(self, folder: Path, settings: LoggingSettings) -> None:
        self._handler: logging.Handler | None = None
        if not settings.file:
            return
        path = log_file(folder)
        path.parent.mkdir(exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=_BYTES, backupCount=_FILES, encoding="utf-8", delay=True)
        handler.handleError = lambda record: None  # type: ignore[method-assign]
        handler.setFormatter(_Lines())
        handler.setLevel(settings.level.upper())
        self._before = _ROOT.level
        if _ROOT.getEffectiveLevel() > handler.level:
            _ROOT.setLevel(handler.level)
        _ROOT.addHandler(handler)
        self._handler = handler

    def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            _ROOT.removeHandler(handler)
            _ROOT.setLevel(self._before)
            handler.close()


def log_file(folder: Path) -> Path:
    return folder / "logs" / NAME


def status_file(folder: Path) -> Path:
    """The figures of a database that is open."""
    return folder / "logs" / "status.json"
