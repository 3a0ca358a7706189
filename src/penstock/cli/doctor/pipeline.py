"""An end-to-end check: opens a database and runs a row through a pipeline."""

from __future__ import annotations

import time

from penstock.cli.doctor.check import Check
from penstock.cli.session import database
from penstock.errors import PenstockError

_SETUP = """
CREATE SOURCE doctor_in (n BIGINT);
CREATE MATERIALIZED VIEW doctor_out AS SELECT sum(n) AS total FROM doctor_in;
"""

# the first epoch compiles everything in a cold JVM, which takes seconds, not a minute
_FLUSH_TIMEOUT_S = 60.0


def check_pipeline() -> Check:
    """A row inserted into a source of a temporary database arrives in a view."""
    began = time.perf_counter()
    try:
        with database(None) as db:
            opened = time.perf_counter()
            db.execute(_SETUP)
            db.insert("doctor_in", [{"n": 42}])
            db.flush(timeout=_FLUSH_TIMEOUT_S)
            rows = db.sql("SELECT total FROM doctor_out").fetchall()
            done = time.perf_counter()
    except PenstockError as error:
        return Check("pipeline", False, f"{error.code}: {error.detail}", error.hint or "")
    found = f"started in {opened - began:.1f} s, first row through in {done - opened:.1f} s"
    ok = [tuple(row) for row in rows] == [(42,)]
    return Check(
        "pipeline", ok, found if ok else f"expected 42, got {rows}", "" if ok else "This is a bug in Penstock."
    )
