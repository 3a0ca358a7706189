"""`penstock prepare`: what makes later processes start faster is written now, instead of by the first of them."""

from __future__ import annotations

from penstock.cli import console
from penstock.cli.session import status
from penstock.config import load_settings
from penstock.spark.session import classes_kept


def run_prepare() -> int:
    """Does nothing if everything is there."""
    if load_settings(None, {}).spark.class_archive and not classes_kept():
        from penstock.api.warmup import prepare

        with status("Preparing …"):
            prepare()
    if not classes_kept():
        console.out().print("Nothing was prepared: the class archive is switched off, or could not be written.")
        return 1
    console.out().print("Penstock is prepared: later processes start faster.")
    return 0
