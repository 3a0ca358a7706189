"""Errors of an object that are raised in its subscribers."""

from __future__ import annotations


class Suspension:
    """An error that may heal, shared by all subscribers and raised after `epoch`. `healed` is set once, when the object works again."""

    def __init__(self, error: BaseException, epoch: int) -> None:
        self.error = error
        self.epoch = epoch
        self.healed = False


def raisable(error: BaseException) -> BaseException:
    """A copy of a shared error. Raising the error itself would extend its traceback each time and keep the frames of readers alive."""
    kind = type(error)
    try:
        copy = kind.__new__(kind, *error.args)
    except Exception:
        # The class cannot be created from its arguments. Raising the error itself only lengthens its traceback.
        return error
    copy.__dict__.update(error.__dict__)
    copy.__cause__, copy.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copy.with_traceback(error.__traceback__)
