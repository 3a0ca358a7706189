"""PYTHON: a function of this process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyarrow as pa

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.options import check_options, required
from penstock.connect.sinks import register_sink
from penstock.errors import PenstockError, fail

Receiver = Callable[[int, pa.Table], Any]
_OPTIONS = ("callable",)
_CALLABLES: dict[str, Receiver] = {}
_REGISTER = "Register the function with db.register_callable('name', function), and write callable = 'name'."


def register_callable(name: str, receiver: Receiver) -> None:
    """Makes a function known to `INTO PYTHON (callable = 'name')`."""
    _CALLABLES[name] = receiver


def find_callable(name: str, *, imports: bool) -> Receiver:
    """A registered function, or, if `imports` allows it, the one at `module:function`."""
    if name in _CALLABLES:
        return _CALLABLES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise fail("PSK-1011", f"PYTHON: there is no callable {name!r}.", hint=_REGISTER)
    if not imports:
        raise fail(
            "PSK-0012",
            f"PYTHON: {name!r} would be imported, and the setting security.allow_python_imports is false.",
            hint=f"{_REGISTER} Or set security.allow_python_imports in penstock.open(config=…).",
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as why:
        raise fail("PSK-1011", f"PYTHON: {name!r} cannot be imported: {why}.") from why
    if not callable(found):
        raise fail("PSK-1011", f"PYTHON: {name!r} is not callable.")
    receiver: Receiver = found
    return receiver


class PythonSink:
    """Calls `receiver(epoch, table)`; changelogs come with `__weight`.

    At least once: an epoch that is replayed after a crash comes again, with the same number and the same rows.
    """

    def __init__(self, name: str, receiver: Receiver) -> None:
        self._name = name
        self._receiver = receiver

    @property
    def accepts_changelog(self) -> bool:
        return True

    def open(self, schema: pa.Schema, resume_epoch: int) -> None:
        """Nothing to prepare."""

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        try:
            self._receiver(epoch, table)
        except PenstockError:
            raise
        except Exception as why:
            raise fail("PSK-5002", f"PYTHON: {self._name} raised {type(why).__name__}: {why}") from why

    def flush(self) -> None:
        """A write is over when the function returns."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def last_epoch(self) -> int:
        return 0


@register_sink("PYTHON", _OPTIONS)
def _make(connector: Connector, access: Access) -> PythonSink:
    check_options("PYTHON", connector.options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "PYTHON has no FORMAT: the function gets an Arrow table.")
    name = required("PYTHON", connector.options, "callable")
    return PythonSink(name, find_callable(name, imports=access.python_imports))
