"""Writes the figures of an open database to a file, for `penstock top` in another process."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from dataclasses import asdict

from penstock.runtime.engine import Engine
from penstock.runtime.logs import status_file
from penstock.runtime.statements.inspect import epochs, status
from penstock.runtime.statements.totals import database_status

_logger = logging.getLogger(__name__)
_EVERY_S = 1.0


class StatusFile:
    """Replaces the file once a second, in its own thread, while the database is open. Failed writes only log a warning."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._path = status_file(engine.folder)
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="penstock-status", daemon=True)
        self._thread.start()

    def write(self) -> None:
        engine = self._engine
        objects = status(engine)
        facts = {
            "time": time.time(),
            "database": asdict(database_status(engine, objects)),
            "objects": [asdict(s) | {"epochs": epochs(engine, s.name)} for s in objects],
            "subscriptions": [asdict(s.figures) for s in engine.hub.subscriptions()],
        }
        self._path.parent.mkdir(exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(facts))
        os.replace(fresh, self._path)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                self.write()
                self._failed = False
            except Exception as error:
                if not self._failed and not self._stop.is_set():
                    _logger.warning("the figures could not be written: %s", error)
                self._failed = True

    def close(self) -> None:
        """Removes the file, whose existence means that the database is open."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._path.unlink(missing_ok=True)
