"""PYTHON: a sink that calls a function or a transactional object of this process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.options import check_options, required
from penstock.connect.sinks import Capabilities, Sink, register_sink
from penstock.errors import PenstockError, fail

Receiver = Callable[[int, pa.Table], Any]


@runtime_checkable
class Transactional(Protocol):
    """An object that takes part in transactions; see `penstock.connect.sinks.Sink` for their steps.

    What is pre-committed must survive a crash. After one, `commit` is called again with the last epoch that was decided, and then `rollback` with the next: both
    must do nothing if there is nothing to do. If it also has `take_back(after, up_to)`, which removes the epochs in (`after`, `up_to`], the database can be restored to before them.
    """

    def begin(self, epoch: int) -> object:
        """Starts a transaction with this epoch or a later one."""

    def write(self, epoch: int, table: pa.Table) -> object:
        """Writes one epoch."""

    def pre_commit(self, epoch: int) -> object:
        """Makes everything that was written durable, but not visible. This is the last epoch of the transaction."""

    def commit(self, epoch: int) -> object:
        """Makes every epoch up to this one visible. Does nothing for those that already are."""

    def rollback(self, epoch: int) -> object:
        """Discards what was written from this epoch on and is not committed."""


_OPTIONS = ("callable",)
_CALLABLES: dict[str, Receiver | Transactional] = {}
_REGISTER = "Register the function with db.register_callable('name', function) and write callable = 'name'."


def register_callable(name: str, receiver: Receiver | Transactional) -> None:
    """Registers a function, or a transactional object, for `INTO PYTHON (callable = 'name')`."""
    _CALLABLES[name] = receiver


def find_callable(name: str, *, imports: bool) -> Receiver | Transactional:
    """Returns what is registered or, if `imports` allows it, the function or transactional object at `module:name`."""
    if name in _CALLABLES:
        return _CALLABLES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise fail("PSK-1011", f"PYTHON: there is no callable {name!r}.", hint=_REGISTER)
    if not imports:
        raise fail(
            "PSK-0012",
            f"PYTHON: {name!r} would have to be imported, but the setting security.allow_python_imports is false.",
            hint=f"{_REGISTER} Or set security.allow_python_imports in penstock.open(config=…).",
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as why:
        raise fail("PSK-1011", f"PYTHON: {name!r} cannot be imported: {why}.") from why
    if not callable(found) and not isinstance(found, Transactional):
        raise fail("PSK-1011", f"PYTHON: {name!r} is not callable.")
    receiver: Receiver | Transactional = found
    return receiver


class PythonSink(Sink):
    """Calls `receiver(epoch, table)`; the table of a changelog includes `__weight`.

    At least once: after a crash, an epoch may be delivered again, with the same number and the same rows.
    """

    capabilities = Capabilities(changelog=True)

    def __init__(self, name: str, receiver: Receiver) -> None:
        self._name = name
        self._receiver = receiver

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        _called(self._name, self._receiver, epoch, table)


class TransactionalPythonSink(Sink):
    """Passes every step to a `Transactional` object. Exactly once, if the object keeps the contract."""

    def __init__(self, name: str, receiver: Transactional) -> None:
        takes_back = callable(getattr(receiver, "take_back", None))
        self.capabilities = Capabilities(changelog=True, exactly_once=True, prepares=True, takes_back=takes_back)
        self._name = name
        self._receiver = receiver

    def begin(self, epoch: int) -> None:
        _called(self._name, self._receiver.begin, epoch)

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        _called(self._name, self._receiver.write, epoch, table)

    def pre_commit(self, epoch: int) -> None:
        _called(self._name, self._receiver.pre_commit, epoch)

    def commit(self, epoch: int) -> None:
        _called(self._name, self._receiver.commit, epoch)

    def rollback(self, epoch: int) -> None:
        _called(self._name, self._receiver.rollback, epoch)

    def take_back(self, after: int, up_to: int) -> None:
        _called(self._name, self._receiver.take_back, after, up_to)  # type: ignore[attr-defined]


def _called(name: str, call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except PenstockError:
        raise
    except Exception as why:
        raise fail("PSK-5002", f"PYTHON: {name} raised {type(why).__name__}: {why}") from why


@register_sink("PYTHON", _OPTIONS, exactly_once=True)
def _make(connector: Connector, access: Access) -> Sink:
    check_options("PYTHON", connector.options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "PYTHON does not support FORMAT: the function receives an Arrow table.")
    name = required("PYTHON", connector.options, "callable")
    receiver = find_callable(name, imports=access.python_imports)
    if isinstance(receiver, Transactional):
        return TransactionalPythonSink(name, receiver)
    return PythonSink(name, receiver)
