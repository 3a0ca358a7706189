"""Checkpoints of a streaming pipeline: configuration, the bytes of a checkpoint, the changelog between two, and their manager."""

from penstock.checkpoint.changelog import OverflowPolicy, StreamChangelogBuffer
from penstock.checkpoint.config import StreamCheckpointConfig, WalMode
from penstock.checkpoint.counter import SharedCounter
from penstock.checkpoint.entry import NO_WATERMARK, StreamChangelogEntry, StreamChangeOp
from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.checkpoint.manager import StreamCheckpointManager
from penstock.checkpoint.snapshot import StreamCheckpoint
from penstock.checkpoint.sourceids import SourceIds

__all__ = [
    "NO_WATERMARK",
    "CheckpointErrorKind",
    "OverflowPolicy",
    "SharedCounter",
    "SourceIds",
    "StreamChangeOp",
    "StreamChangelogBuffer",
    "StreamChangelogEntry",
    "StreamCheckpoint",
    "StreamCheckpointConfig",
    "StreamCheckpointManager",
    "WalMode",
]
