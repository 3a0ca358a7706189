"""The checkpoint manager: what it captures, retains, restores, and finds again in its folder."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.disk.filling import largest_file

from penstock.checkpoint import (
    NO_WATERMARK,
    CheckpointErrorKind,
    OverflowPolicy,
    SharedCounter,
    StreamChangelogEntry,
    StreamChangeOp,
    StreamCheckpointConfig,
    StreamCheckpointManager,
    WalMode,
)
from penstock.errors import CODES, CheckpointError, PenstockError


def enabled() -> StreamCheckpointConfig:
    return StreamCheckpointConfig(interval_ms=1000)


def push(sequence: int, source_id: int = 0) -> StreamChangelogEntry:
    return StreamChangelogEntry(source_id, StreamChangeOp.PUSH, sequence)


def test_checkpoint_disabled_by_default() -> None:
    # The default configuration is valid, so the manager is enabled; it only has no interval.
    assert StreamCheckpointManager(StreamCheckpointConfig()).is_enabled
    assert not StreamCheckpointManager.disabled().is_enabled


def test_the_default_configuration_has_everything_off() -> None:
    assert StreamCheckpointConfig() == StreamCheckpointConfig(
        interval_ms=None,
        wal_mode=None,
        data_dir=None,
        changelog_capacity=None,
        max_retained=None,
        overflow_policy=OverflowPolicy.DROP_NEW,
    )


def test_checkpoint_no_op_when_disabled() -> None:
    manager = StreamCheckpointManager.disabled()
    assert not manager.is_enabled
    assert manager.last_checkpoint_id is None
    assert manager.trigger() is None
    assert not manager.is_due
    for call in (manager.checkpoint, manager.restore, lambda: manager.prune(1), lambda: manager.record(push(1))):
        with pytest.raises(CheckpointError, match="checkpointing is disabled"):
            call()


def test_checkpoint_config_requires_data_dir(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="WAL mode requires data_dir to be set"):
        StreamCheckpointConfig(wal_mode=WalMode.SYNC).validate()
    StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=tmp_path).validate()


def test_wal_requires_checkpoint() -> None:
    config = StreamCheckpointConfig(wal_mode=WalMode.ASYNC)
    with pytest.raises(CheckpointError) as refused:
        config.validate()
    assert refused.value.code == CheckpointErrorKind.INVALID_CONFIG.code
    manager = StreamCheckpointManager(config)
    assert not manager.is_enabled
    with pytest.raises(CheckpointError, match="WAL mode requires checkpointing"):
        manager.record(push(1))
    with pytest.raises(CheckpointError, match="WAL mode requires data_dir to be set"):
        manager.checkpoint()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (StreamCheckpointConfig(changelog_capacity=0), "changelog_capacity must be > 0"),
        (StreamCheckpointConfig(interval_ms=-1), "interval_ms must be >= 0"),
        (StreamCheckpointConfig(max_retained=-1), "max_retained must be >= 0"),
    ],
)
def test_a_bad_configuration_is_refused(config: StreamCheckpointConfig, message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        config.validate()
    assert refused.value.detail == f"invalid checkpoint config: {message}"
    assert not StreamCheckpointManager(config).is_enabled


def test_every_kind_of_error_has_its_code_and_text() -> None:
    assert {kind: (kind.error().code, kind.error("m").detail) for kind in CheckpointErrorKind} == {
        CheckpointErrorKind.DISABLED: ("PSK-6010", "checkpointing is disabled: m"),
        CheckpointErrorKind.DATA_DIR_REQUIRED: ("PSK-6011", "data directory is required: m"),
        CheckpointErrorKind.WAL_REQUIRES_CHECKPOINT: ("PSK-6012", "WAL mode requires checkpointing: m"),
        CheckpointErrorKind.NO_CHECKPOINT: ("PSK-6013", "no checkpoint available: m"),
        CheckpointErrorKind.TIMEOUT: ("PSK-6014", "checkpoint operation timed out: m"),
        CheckpointErrorKind.INVALID_CONFIG: ("PSK-6015", "invalid checkpoint config: m"),
        CheckpointErrorKind.IO_ERROR: ("PSK-6016", "checkpoint I/O error: m"),
    }
    assert all(kind.code in CODES and kind.error().detail == kind.text for kind in CheckpointErrorKind)


def test_register_source() -> None:
    manager = StreamCheckpointManager(enabled())
    manager.register_source("trades", SharedCounter().load, SharedCounter(NO_WATERMARK).load)
    assert manager.is_enabled
    assert "sources=1" in repr(manager)


def test_trigger_checkpoint() -> None:
    manager = StreamCheckpointManager(enabled())
    assert [manager.trigger(), manager.trigger()] == [1, 2]
    assert manager.epoch == 2


def test_checkpoint_captures_sequences() -> None:
    manager = StreamCheckpointManager(enabled())
    sequence = SharedCounter()
    manager.register_source("src1", sequence.load, SharedCounter(NO_WATERMARK).load)
    sequence.store(42)
    found = manager.get_checkpoint(manager.checkpoint())
    assert found is not None and found.source_sequences == {"src1": 42}


def test_checkpoint_captures_watermarks() -> None:
    manager = StreamCheckpointManager(enabled())
    manager.register_source("src1", SharedCounter().load, SharedCounter(5000).load)
    found = manager.get_checkpoint(manager.checkpoint())
    assert found is not None and found.watermarks == {"src1": 5000}


def test_a_checkpoint_captures_sinks_and_operators() -> None:
    manager = StreamCheckpointManager(enabled())
    position = SharedCounter(7)
    manager.register_sink("fixed", 3)
    manager.register_sink("moving", position.load)
    manager.register_operator("agg", lambda: b"state")
    manager.checkpoint()
    position.store(8)
    manager.unregister("fixed")
    manager.checkpoint()
    assert [c.sink_positions for c in manager.checkpoints] == [{"fixed": 3, "moving": 7}, {"moving": 8}]
    assert manager.restore().operator_states == {"agg": b"state"}


def test_restore_from_checkpoint() -> None:
    manager = StreamCheckpointManager(enabled())
    manager.register_source("src1", SharedCounter(10).load, SharedCounter(1000).load)
    manager.trigger()
    restored = manager.restore()
    assert restored.source_sequences == {"src1": 10}
    assert restored.watermarks == {"src1": 1000}


def test_there_is_nothing_to_restore_before_the_first_checkpoint() -> None:
    manager = StreamCheckpointManager(enabled())
    for id in (None, 1):
        with pytest.raises(CheckpointError, match="no checkpoint available"):
            manager.restore(id)


def test_checkpoint_prune_old() -> None:
    manager = StreamCheckpointManager(StreamCheckpointConfig(interval_ms=1000, max_retained=2))
    for _ in range(3):
        manager.trigger()
    assert [c.id for c in manager.checkpoints] == [2, 3]
    assert manager.get_checkpoint(1) is None
    assert manager.prune(1) == [2]
    assert manager.restore().id == 3


def test_source_sequence_counter() -> None:
    sequence = SharedCounter()
    assert sequence.load() == 0
    assert [sequence.add(1) for _ in range(3)] == [0, 1, 2]
    assert sequence.load() == 3


def test_source_clone_shares_sequence() -> None:
    first = SharedCounter()
    second = first
    first.add(1)
    assert second.load() == 1
    second.add(5)
    assert first.load() == 6


def test_a_counter_loses_no_addition() -> None:
    counter = SharedCounter()
    threads = [threading.Thread(target=lambda: [counter.add(1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.load() == 4000


def test_a_checkpoint_is_due_when_its_interval_has_passed() -> None:
    assert StreamCheckpointManager(StreamCheckpointConfig(interval_ms=0)).is_due
    assert not StreamCheckpointManager(StreamCheckpointConfig(interval_ms=3_600_000)).is_due
    assert not StreamCheckpointManager(StreamCheckpointConfig()).is_due


def test_a_checkpoint_that_waits_for_another_times_out() -> None:
    manager = StreamCheckpointManager(enabled())
    inside, done = threading.Event(), threading.Event()

    def slow() -> int:
        inside.set()
        done.wait()
        return 1

    manager.register_source("slow", slow, lambda: 0)
    thread = threading.Thread(target=manager.trigger)
    thread.start()
    inside.wait()
    with pytest.raises(CheckpointError, match="timed out"):
        manager.checkpoint(timeout=0)
    done.set()
    thread.join()
    assert manager.last_checkpoint_id == 1


def test_a_manager_continues_with_the_checkpoints_in_its_folder(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path / "c", max_retained=2)
    first = StreamCheckpointManager(config)
    first.register_source("s", lambda: 5, lambda: 50)
    for _ in range(3):
        first.trigger()
    second = StreamCheckpointManager(config)
    assert second.checkpoints == first.checkpoints
    assert (second.epoch, second.trigger(), second.epoch) == (3, 4, 4)
    assert sorted(p.name for p in (tmp_path / "c").glob("*.bin")) == [f"checkpoint-{i:020d}.bin" for i in (3, 4)]


def test_a_damaged_checkpoint_is_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path)
    first = StreamCheckpointManager(config)
    for _ in range(3):
        first.trigger()
    first.close()
    last = tmp_path / f"checkpoint-{3:020d}.bin"
    last.write_bytes(last.read_bytes()[:-1])
    (tmp_path / f"checkpoint-{2:020d}.bin").write_bytes((tmp_path / f"checkpoint-{1:020d}.bin").read_bytes())
    second = StreamCheckpointManager(config)
    assert second.restore().id == 1
    assert sorted(second.damaged) == [2, 3]
    assert last.name in caplog.text
    with pytest.raises(CheckpointError, match=r"CRC mismatch: stored=0x[0-9a-f]{8} computed=0x[0-9a-f]{8}"):
        second.restore(3)
    with pytest.raises(CheckpointError, match="has checkpoint 1"):
        second.restore(2)
    # Neither the id nor the epoch of a damaged checkpoint is used again.
    assert (second.trigger(), second.epoch) == (4, 4)


def test_a_checkpoint_that_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    nowhere = StreamCheckpointManager(StreamCheckpointConfig(data_dir=tmp_path / "f" / "c"))
    with pytest.raises(CheckpointError, match="checkpoint I/O error"):
        nowhere.checkpoint()
    (tmp_path / "f").unlink()
    assert nowhere.checkpoint() == 1
    manager = StreamCheckpointManager(StreamCheckpointConfig(data_dir=tmp_path / "c"))
    with largest_file(0), pytest.raises(CheckpointError, match="checkpoint I/O error"):
        manager.checkpoint()
    assert manager.checkpoints == () and not list((tmp_path / "c").glob("*.bin*"))


@pytest.mark.parametrize("mode", list(WalMode))
def test_recorded_entries_survive_until_the_next_checkpoint(tmp_path: Path, mode: WalMode) -> None:
    config = StreamCheckpointConfig(wal_mode=mode, data_dir=tmp_path, changelog_capacity=2)
    first = StreamCheckpointManager(config)
    assert [first.record(push(i)) for i in (1, 2, 3)] == [True, True, False]
    assert first.changelog is not None and first.changelog.overflow_count == 1
    first.close()
    second = StreamCheckpointManager(config)
    assert [e.sequence for e in second.recorded()] == [1, 2, 3]
    second.record(push(4))
    second.trigger()
    assert second.recorded() == []
    second.record(push(5))
    second.close()
    with StreamCheckpointManager(config) as third:
        assert [e.sequence for e in third.recorded()] == [5]


def test_without_a_folder_nothing_is_recorded() -> None:
    manager = StreamCheckpointManager(StreamCheckpointConfig(changelog_capacity=1))
    assert manager.record(push(1))
    with pytest.raises(CheckpointError, match="data directory is required"):
        manager.recorded()


def test_a_torn_record_is_dropped_and_damage_before_it_is_an_error(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=tmp_path)
    first = StreamCheckpointManager(config)
    for i in (1, 2, 3):
        first.record(push(i))
    first.close()
    wal = tmp_path / "changelog.wal"
    whole = wal.read_bytes()
    for length in range(len(whole)):
        wal.write_bytes(whole[:length])
        again = StreamCheckpointManager(config)
        kept = list(range(1, length // 28 + 1))
        assert [e.sequence for e in again.recorded()] == kept
        again.record(push(9))
        assert [e.sequence for e in again.recorded()] == [*kept, 9]
        again.close()
    wal.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(CheckpointError, match="CRC mismatch at 0"):
        StreamCheckpointManager(config).recorded()


def test_an_entry_that_was_refused_is_not_in_the_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller records it again."""
    config = StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=tmp_path)

    def broken(fd: int) -> None:
        raise OSError("Input/output error")

    with StreamCheckpointManager(config) as first:
        first.record(push(1))
        with monkeypatch.context() as patch:
            patch.setattr("penstock.checkpoint.wal.datasync", broken)
            with pytest.raises(CheckpointError, match="Input/output error"):
                first.record(push(2))
        assert [e.sequence for e in first.recorded()] == [1]
        first.record(push(2))
    with StreamCheckpointManager(config) as second:
        assert [e.sequence for e in second.recorded()] == [1, 2]


def test_nothing_is_written_to_a_damaged_wal(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=tmp_path)
    first = StreamCheckpointManager(config)
    for i in (1, 2, 3):
        first.record(push(i))
    first.close()
    wal = tmp_path / "changelog.wal"
    damaged = bytes([wal.read_bytes()[0] ^ 1]) + wal.read_bytes()[1:]
    wal.write_bytes(damaged)
    second = StreamCheckpointManager(config)
    for call in (lambda: second.record(push(9)), lambda: second.record(push(10)), second.checkpoint, second.recorded):
        with pytest.raises(CheckpointError, match="CRC mismatch at 0"):
            call()
    assert wal.read_bytes() == damaged
    wal.unlink()
    assert (second.checkpoint(), second.recorded()) == (2, [])


def test_a_checkpoint_is_made_although_what_it_replaces_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=str(tmp_path), max_retained=1)
    manager = StreamCheckpointManager(config)
    manager.record(push(1))
    with monkeypatch.context() as patch:
        refused = CheckpointErrorKind.IO_ERROR.error("no")
        for what in ("wal.ChangelogWal.clear", "files.CheckpointFiles.remove"):
            patch.setattr(f"penstock.checkpoint.{what}", lambda *_: (_ for _ in ()).throw(refused))
        assert [manager.checkpoint(), manager.checkpoint()] == [1, 2]
    assert "What checkpoint 2 replaces was not removed" in caplog.text
    assert [c.id for c in manager.checkpoints] == [1, 2] and manager.recorded() == []
    manager.close()
    again = StreamCheckpointManager(config)
    assert again.recorded() == [] and again.checkpoint() == 3 and [c.id for c in again.checkpoints] == [3]


def test_a_crash_after_the_checkpoint_and_before_the_wal_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StreamCheckpointConfig(wal_mode=WalMode.SYNC, data_dir=tmp_path)
    first = StreamCheckpointManager(config)
    first.record(push(1))

    def crash(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("penstock.checkpoint.wal.ChangelogWal.clear", crash)
        with pytest.raises(KeyboardInterrupt):
            first.trigger()
    second = StreamCheckpointManager(config)
    assert second.restore().id == 1
    assert second.recorded() == []


def test_a_newer_manager_takes_the_folder_over(tmp_path: Path) -> None:
    """Both would use the same ids, and each would remove and overwrite what the other has written."""
    config = StreamCheckpointConfig(data_dir=tmp_path / "c", wal_mode=WalMode.SYNC)
    first = StreamCheckpointManager(config)
    assert first.checkpoint() == 1
    first.record(push(1))
    second = StreamCheckpointManager(config)
    assert [e.sequence for e in second.recorded()] == [1]
    assert second.checkpoint() == 2
    # Others are not concerned.
    assert StreamCheckpointManager(StreamCheckpointConfig(data_dir=tmp_path / "d")).checkpoint() == 1
    assert StreamCheckpointManager().checkpoint() == 1
    writes = (
        first.checkpoint,
        first.trigger,
        first.recorded,
        lambda: first.prune(1),
        lambda: first.record(push(2)),
    )
    for call in writes:
        with pytest.raises(PenstockError, match="A newer checkpoint manager has taken over") as refused:
            call()
        assert refused.value.code == "PSK-0004"
    assert first.restore().id == 1
    first.close()
    assert second.checkpoint() == 3
    second.close()
    with pytest.raises(PenstockError, match="The checkpoint manager is closed"):
        second.checkpoint()


def test_two_that_begin_at_once_do_not_both_write(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path)
    start = threading.Barrier(8)
    made: list[StreamCheckpointManager] = []

    def begin() -> None:
        start.wait()
        made.append(StreamCheckpointManager(config))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = 0
    for manager in made:
        with suppress(PenstockError):
            written += manager.checkpoint() or 0
    assert (len(made), written) == (8, 1)


def test_a_manager_that_is_garbage_holds_no_folder(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path)
    first: StreamCheckpointManager | None = StreamCheckpointManager(config)
    assert first is not None and first.checkpoint() == 1
    first = None
    gc.collect()
    assert StreamCheckpointManager(config).checkpoint() == 2


def test_a_folder_that_cannot_be_read_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", lambda self: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(CheckpointError, match="checkpoint I/O error: no"):
            StreamCheckpointManager(config)
    assert StreamCheckpointManager(config).checkpoint() == 1


KILLED = """
import os, signal, sys
from penstock.checkpoint import StreamCheckpointConfig, StreamCheckpointManager
manager = StreamCheckpointManager(StreamCheckpointConfig(data_dir=sys.argv[1]))
manager.checkpoint()
print("made", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_holds_no_folder(tmp_path: Path) -> None:
    config = StreamCheckpointConfig(data_dir=tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout is not None and other.stdout.readline() == b"made\n"
        with pytest.raises(PenstockError, match=f"in use by process {other.pid}") as refused:
            StreamCheckpointManager(config)
        assert refused.value.code == "PSK-0005"
        other.kill()
        other.wait()
    assert StreamCheckpointManager(config).checkpoint() == 2


def test_errors_can_be_caught_as_errors_of_penstock() -> None:
    with pytest.raises(PenstockError):
        StreamCheckpointManager.disabled().restore()
