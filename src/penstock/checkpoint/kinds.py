"""The kinds of checkpoint errors."""

from __future__ import annotations

from enum import Enum

from penstock.errors import PenstockError, fail


class CheckpointErrorKind(Enum):
    """Each kind has a code and a text; INVALID_CONFIG and IO_ERROR add a message to theirs."""

    DISABLED = ("PSK-6010", "checkpointing is disabled")
    DATA_DIR_REQUIRED = ("PSK-6011", "data directory is required")
    WAL_REQUIRES_CHECKPOINT = ("PSK-6012", "WAL mode requires checkpointing")
    NO_CHECKPOINT = ("PSK-6013", "no checkpoint available")
    TIMEOUT = ("PSK-6014", "checkpoint operation timed out")
    INVALID_CONFIG = ("PSK-6015", "invalid checkpoint config")
    IO_ERROR = ("PSK-6016", "checkpoint I/O error")

    @property
    def code(self) -> str:
        return self.value[0]

    @property
    def text(self) -> str:
        return self.value[1]

    def error(self, message: str | None = None, *, hint: str | None = None) -> PenstockError:
        """The error of this kind: `raise CheckpointErrorKind.DISABLED.error()`."""
        return fail(self.code, self.text if message is None else f"{self.text}: {message}", hint=hint)
