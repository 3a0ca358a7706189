"""The checkpoint manager."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from penstock.checkpoint.changelog import StreamChangelogBuffer
from penstock.checkpoint.config import StreamCheckpointConfig, WalMode
from penstock.checkpoint.entry import StreamChangelogEntry, StreamChangeOp
from penstock.checkpoint.files import CheckpointFiles
from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.checkpoint.snapshot import StreamCheckpoint
from penstock.checkpoint.wal import ChangelogWal
from penstock.disk import FolderLock
from penstock.errors import CheckpointError, PenstockError, fail

_LOCK = "manager.lock"
_holders: weakref.WeakValueDictionary[Path, StreamCheckpointManager] = weakref.WeakValueDictionary()
"""The managers of this process, by their folders."""
_holding = threading.Lock()

_logger = logging.getLogger(__name__)

Reading = Callable[[], int]
State = Callable[[], bytes]


class _RegisteredSource(NamedTuple):
    sequence: Reading
    watermark: Reading


class StreamCheckpointManager:
    """Takes, retains and returns checkpoints of registered sources, sinks and operators. Thread-safe.

    A manager with an invalid configuration is disabled: `trigger` returns None, and `checkpoint`, `restore` and `record` raise. With `data_dir`, checkpoints are files, and
    the manager continues with those that it finds there: ids and epochs are never used twice. It has the folder for itself until it is closed or garbage, or its process ends. Other
    processes are refused (PSK-0005). A newer manager in the same process takes the folder over; the older one then raises PSK-0004 wherever it would write.
    """

    def __init__(self, config: StreamCheckpointConfig | None = None) -> None:
        self._config = config or StreamCheckpointConfig()
        self._invalid = _refusal(self._config)
        self._enabled = self._invalid is None
        self._lock = threading.Lock()
        self._sources: dict[str, _RegisteredSource] = {}
        self._sinks: dict[str, Reading] = {}
        self._operators: dict[str, State] = {}
        self._checkpoints: list[StreamCheckpoint] = []
        self._damaged: dict[int, PenstockError] = {}
        self._next_id = 1
        self._epoch = 0
        self._last_at = time.monotonic()
        self._changelog: StreamChangelogBuffer | None = None
        self._files: CheckpointFiles | None = None
        self._wal: ChangelogWal | None = None
        self._ended: tuple[str, str] | None = None
        """Why nothing can be written any more, and what to do."""
        self._release: weakref.finalize[[], StreamCheckpointManager] | None = None
        if self._enabled:
            self._prepare()

    @classmethod
    def disabled(cls) -> StreamCheckpointManager:
        """A manager that does nothing."""
        made = cls()
        made._enabled = False
        return made

    def _prepare(self) -> None:
        config = self._config
        if config.changelog_capacity is not None:
            self._changelog = StreamChangelogBuffer(config.changelog_capacity, config.overflow_policy)
        if config.data_dir is None:
            return
        folder = Path(config.data_dir)
        try:
            self._hold(folder)
        except CheckpointError as why:
            # Whoever writes is told.
            _logger.warning("%s cannot have checkpoints: %s", folder, why.detail)
        try:
            self._open(folder)
        except BaseException:
            self._let_go()
            raise

    def _hold(self, folder: Path) -> None:
        """Locks the folder. Raises PSK-0005 if another process has it, PSK-6016 if it cannot be written."""
        with _holding:
            place = folder.resolve()
            before = _holders.pop(place, None)
            if before is not None:
                before._end(
                    f"A newer checkpoint manager has taken over {folder}.",
                    "Use that one, or give each a data_dir of its own.",
                )
            lock = FolderLock(folder, _LOCK)
            try:
                lock.acquire()
            except PenstockError as why:
                if why.code == "PSK-0005":
                    hint = "Close the other manager first, or give each a data_dir of its own."
                    raise fail(why.code, why.detail, hint=hint) from why
                raise CheckpointErrorKind.IO_ERROR.error(why.detail) from why
            self._release = weakref.finalize(self, lock.release)
            _holders[place] = self

    def _let_go(self) -> None:
        if self._release is not None:
            self._release()

    def _open(self, folder: Path) -> None:
        config = self._config
        self._checkpoints, self._damaged = [], {}
        self._files = CheckpointFiles(folder)
        for id in self._files.ids():
            self._next_id = id + 1
            try:
                found = self._files.read(id)
            except PenstockError as why:
                self._damaged[id] = why
                _logger.warning("Checkpoint %d is skipped: %s", id, why.detail)
            else:
                self._checkpoints.append(found)
                self._epoch = max(self._epoch, found.epoch)
        # The epoch of a damaged checkpoint is not known, but epochs grow with ids.
        self._epoch = max(self._epoch, self._next_id - 1)
        if config.wal_mode is not None:
            self._wal = ChangelogWal(folder / "changelog.wal", sync=config.wal_mode is WalMode.SYNC)

    @property
    def is_enabled(self) -> bool:
        return self._enabled

    @property
    def epoch(self) -> int:
        """The epoch of the last checkpoint; 0 before the first."""
        return self._epoch

    @property
    def changelog(self) -> StreamChangelogBuffer | None:
        """The changelog buffer, if `changelog_capacity` is set."""
        return self._changelog

    @property
    def checkpoints(self) -> tuple[StreamCheckpoint, ...]:
        """The retained checkpoints, the oldest first."""
        return tuple(self._checkpoints)

    @property
    def damaged(self) -> dict[int, PenstockError]:
        """The checkpoints in `data_dir` that could not be read, with the reasons. They are neither returned nor pruned."""
        return dict(self._damaged)

    @property
    def last_checkpoint_id(self) -> int | None:
        return self._checkpoints[-1].id if self._checkpoints else None

    @property
    def is_due(self) -> bool:
        """True if `interval_ms` has passed since the last checkpoint, or since the manager was created."""
        interval = self._config.interval_ms
        return self._enabled and interval is not None and (time.monotonic() - self._last_at) * 1000 >= interval

    def register_source(self, name: str, sequence: Reading, watermark: Reading) -> None:
        """`sequence` and `watermark` return the current values of the source; each checkpoint calls them."""
        with self._lock:
            self._sources[name] = _RegisteredSource(sequence, watermark)

    def register_sink(self, name: str, position: int | Reading) -> None:
        """Registers a sink, or sets its position."""
        with self._lock:
            self._sinks[name] = position if callable(position) else lambda: position

    def register_operator(self, name: str, state: State) -> None:
        """`state` returns the state of the operator as bytes; each checkpoint calls it."""
        with self._lock:
            self._operators[name] = state

    def unregister(self, name: str) -> None:
        """Forgets a source, sink or operator that was dropped. Retained checkpoints keep it."""
        with self._lock:
            self._sources.pop(name, None)
            self._sinks.pop(name, None)
            self._operators.pop(name, None)

    def trigger(self) -> int | None:
        """Takes a checkpoint and returns its id; None if checkpointing is disabled. Raises PSK-6016 if it cannot be written."""
        return self.checkpoint() if self._enabled else None

    def checkpoint(self, timeout: float | None = None) -> int:
        """Takes a checkpoint and returns its id.

        Raises PSK-6010 if checkpointing is disabled, PSK-6014 if another checkpoint takes longer than `timeout` seconds, PSK-6016 if it cannot be
        written: then there is no such checkpoint, and its id is not used again.
        """
        self._require_enabled()
        with self._exclusive(timeout):
            # 1. The id and the epoch are used up, whatever happens.
            id, self._next_id = self._next_id, self._next_id + 1
            self._epoch += 1
            # 2. The barrier: what was recorded before it is in the checkpoint.
            if self._wal is not None:
                self._wal.append(StreamChangelogEntry(0, StreamChangeOp.BARRIER, id), sync=True)
            # 3. The checkpoint, durable.
            made = self._capture(id)
            if self._files is not None:
                self._files.write(made)
            self._checkpoints.append(made)
            self._last_at = time.monotonic()
            # 4. What it replaces.
            self._clean_up()
            return id

    def _clean_up(self) -> None:
        """The checkpoint is there, whatever becomes of this: the next one removes what is left, and a WAL with a barrier is known to be in it."""
        try:
            if self._wal is not None:
                self._wal.clear()
            if self._config.max_retained is not None:
                self._prune(self._config.max_retained)
        except PenstockError as why:
            _logger.warning("What checkpoint %d replaces was not removed: %s", self._next_id - 1, why.detail)

    def _capture(self, id: int) -> StreamCheckpoint:
        return StreamCheckpoint(
            id=id,
            epoch=self._epoch,
            source_sequences={name: source.sequence() for name, source in self._sources.items()},
            sink_positions={name: position() for name, position in self._sinks.items()},
            watermarks={name: source.watermark() for name, source in self._sources.items()},
            operator_states={name: state() for name, state in self._operators.items()},
            created_at=time.time_ns() // 1_000_000,
        )

    def restore(self, id: int | None = None) -> StreamCheckpoint:
        """The checkpoint with an id; None: the most recent one.

        Raises PSK-6010 if checkpointing is disabled, PSK-6013 if there is no such checkpoint, PSK-6016 if it is damaged.
        """
        self._require_enabled()
        if id is None:
            if self._checkpoints:
                return self._checkpoints[-1]
        else:
            found = self.get_checkpoint(id)
            if found is not None:
                return found
            if id in self._damaged:
                raise self._damaged[id]
        raise CheckpointErrorKind.NO_CHECKPOINT.error()

    def get_checkpoint(self, id: int) -> StreamCheckpoint | None:
        return next((c for c in self._checkpoints if c.id == id), None)

    def prune(self, keep: int) -> list[int]:
        """Removes all but the last `keep` checkpoints and returns the removed ids."""
        self._require_enabled()
        with self._exclusive():
            return self._prune(keep)

    def _prune(self, keep: int) -> list[int]:
        removed: list[int] = []
        while len(self._checkpoints) > max(keep, 0):
            oldest = self._checkpoints[0]
            if self._files is not None:
                self._files.remove(oldest.id)
            removed.append(self._checkpoints.pop(0).id)
        return removed

    def record(self, entry: StreamChangelogEntry) -> bool:
        """Adds an entry to the WAL, if there is one, and to the changelog buffer. False if there is no room in the buffer, or no buffer.

        Raises PSK-6012 if the configuration has a WAL but checkpointing is disabled, PSK-6010 if it is disabled otherwise, PSK-6016 if the WAL cannot be written.
        """
        if not self._enabled and self._config.wal_mode is not None:
            raise CheckpointErrorKind.WAL_REQUIRES_CHECKPOINT.error()
        self._require_enabled()
        with self._exclusive():
            if self._wal is not None:
                self._wal.append(entry)
            return self._changelog is not None and self._changelog.push(entry)

    def recorded(self) -> list[StreamChangelogEntry]:
        """The entries in the WAL since the last checkpoint: after a restart, what a replay has to go through.

        Raises PSK-6011 without a `data_dir`. Without `wal_mode` there are none.
        """
        self._require_enabled()
        if self._config.data_dir is None:
            raise CheckpointErrorKind.DATA_DIR_REQUIRED.error()
        with self._exclusive():
            return [] if self._wal is None else self._wal.entries(self.last_checkpoint_id or 0)

    def close(self) -> None:
        """Closes the WAL and lets other managers use the folder. Checkpoints stay where they are; later calls that write, or read the WAL, raise PSK-0004."""
        self._end("The checkpoint manager is closed.", "Make another one.")

    def _end(self, why: str, instead: str) -> None:
        with self._lock:
            self._ended = self._ended or (why, instead)
            if self._wal is not None:
                self._wal.close()
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_enabled(self) -> None:
        if not self._enabled:
            raise CheckpointErrorKind.DISABLED.error(hint=self._invalid)

    @contextmanager
    def _exclusive(self, timeout: float | None = None) -> Iterator[None]:
        if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            raise CheckpointErrorKind.TIMEOUT.error()
        try:
            if self._ended is not None:
                why, instead = self._ended
                raise fail("PSK-0004", why, hint=instead)
            if self._config.data_dir is not None and self._release is None:
                folder = Path(self._config.data_dir)
                self._hold(folder)
                self._open(folder)
            yield
        finally:
            self._lock.release()

    def __repr__(self) -> str:
        return (
            f"StreamCheckpointManager(enabled={self._enabled}, sources={len(self._sources)}, sinks={len(self._sinks)}, "
            f"checkpoints={len(self._checkpoints)}, epoch={self._epoch})"
        )


def _refusal(config: StreamCheckpointConfig) -> str | None:
    try:
        config.validate()
    except PenstockError as why:
        return why.detail
    return None
