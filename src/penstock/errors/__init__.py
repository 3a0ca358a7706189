"""Penstock's error type, its subclasses by code range, and `fail`, which builds the right one."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors.catalogue import CODES

__all__ = [
    "CODES",
    "CheckpointError",
    "ConfigError",
    "ConnectorError",
    "ExecutionError",
    "InternalError",
    "JoinError",
    "PenstockError",
    "Position",
    "SqlError",
    "StateError",
    "TimeError",
    "fail",
]


@dataclass(frozen=True)
class Position:
    """A place in SQL text: 1-based line and column, and the length of the offending span."""

    line: int
    column: int
    length: int = 1


class PenstockError(Exception):
    """`code`, `detail` (what went wrong), `position` in the SQL, and `hint` (what to do)."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        position: Position | None = None,
        sql: str | None = None,
    ) -> None:
        self.code = code
        self.detail = detail
        self.hint = hint if hint is not None else CODES[code].hint
        self.position = position
        self.sql = sql
        super().__init__(code, detail)

    def __str__(self) -> str:
        at = f" (line {self.position.line}, column {self.position.column})" if self.position else ""
        hint = f"\nHint: {self.hint}" if self.hint else ""
        return f"{self.code}: {self.detail}{at}{hint}"

    def render(self) -> str:
        """The message with the offending line and a caret, for a terminal."""
        if self.position is None or self.sql is None:
            return str(self)
        lines = self.sql.splitlines() or [""]
        line = lines[min(self.position.line, len(lines)) - 1]
        prefix = f"{self.position.line} | "
        caret = " " * (len(prefix) + self.position.column - 1) + "^" * max(1, self.position.length)
        hint = f"\nHint: {self.hint}" if self.hint else ""
        return f"{self.code}: {self.detail}\n{prefix}{line}\n{caret}{hint}"


class ConfigError(PenstockError):
    """0: configuration and API use."""


class SqlError(PenstockError):
    """1: parsing and names."""


class TimeError(PenstockError):
    """2: time and windows."""


class JoinError(PenstockError):
    """3: joins."""


class StateError(PenstockError):
    """4: state."""


class ConnectorError(PenstockError):
    """5: connectors and delivery."""


class CheckpointError(PenstockError):
    """6: checkpoints and recovery."""


class ExecutionError(PenstockError):
    """7: execution."""


class InternalError(PenstockError):
    """8: internal."""


_BY_RANGE: dict[str, type[PenstockError]] = {
    "0": ConfigError,
    "1": SqlError,
    "2": TimeError,
    "3": JoinError,
    "4": StateError,
    "5": ConnectorError,
    "6": CheckpointError,
    "7": ExecutionError,
    "8": InternalError,
}


def fail(
    code: str,
    detail: str,
    *,
    hint: str | None = None,
    position: Position | None = None,
    sql: str | None = None,
) -> PenstockError:
    """Returns the error for a code: `raise fail("PSK-1002", "…")`."""
    return _BY_RANGE[code[4]](code, detail, hint=hint, position=position, sql=sql)
