"""The bytes of a checkpoint."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint import StreamCheckpoint
from penstock.errors import PenstockError

from ...effort import EFFORT

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CHECKPOINTS = st.builds(
    StreamCheckpoint,
    U64,
    U64,
    st.dictionaries(NAMES, U64, max_size=4),
    st.dictionaries(NAMES, U64, max_size=4),
    st.dictionaries(NAMES, I64, max_size=4),
    st.dictionaries(NAMES, st.binary(max_size=64), max_size=4),
    U64,
)

FULL = StreamCheckpoint(
    id=42,
    epoch=7,
    source_sequences={"src1": 100, "src2": 200},
    sink_positions={"sink1": 50},
    watermarks={"src1": 5000, "src2": 6000},
    operator_states={"op1": b"\x01\x02\x03\x04"},
    created_at=1_706_400_000_000,
)


def sealed(payload: bytes) -> bytes:
    return b"\x02" + payload + struct.pack("<I", google_crc32c.value(payload))


def test_checkpoint_serialization() -> None:
    assert StreamCheckpoint.from_bytes(FULL.to_bytes()) == FULL


def test_the_bytes_are_laid_out_as_documented() -> None:
    made = StreamCheckpoint(1, 2, {"a": 3}, {"bé": 4}, {"c": -5}, {"d": b"xyz"}, 6)
    payload = "".join(
        (
            "010000000000000002000000000000000600000000000000",
            "0100000001000000610300000000000000",
            "010000000300000062c3a90400000000000000",
            "010000000100000063fbffffffffffffff",
            "0100000001000000640300000078797a",
        )
    )
    assert made.to_bytes().hex() == "02" + payload + "bf3a75ee"


def test_equal_checkpoints_have_equal_bytes() -> None:
    assert StreamCheckpoint(1, 1, {"a": 1, "b": 2}).to_bytes() == StreamCheckpoint(1, 1, {"b": 2, "a": 1}).to_bytes()


def test_stream_checkpoint_crc_roundtrip() -> None:
    made = StreamCheckpoint(42, 10, {"kafka": 1000}, {}, {"src": 500}, {"agg": bytes([1, 2, 3])})
    assert StreamCheckpoint.from_bytes(made.to_bytes()) == made


@given(CHECKPOINTS)
@settings(max_examples=100 * EFFORT)
def test_a_checkpoint_comes_back_from_its_bytes(made: StreamCheckpoint) -> None:
    assert StreamCheckpoint.from_bytes(made.to_bytes()) == made


def test_stream_checkpoint_crc_corruption_detected() -> None:
    data = bytearray(StreamCheckpoint(1, 1).to_bytes())
    data[5] ^= 0xFF
    with pytest.raises(PenstockError, match="CRC mismatch"):
        StreamCheckpoint.from_bytes(bytes(data))


def test_stream_checkpoint_v1_rejected() -> None:
    with pytest.raises(PenstockError, match="unsupported checkpoint version: 1"):
        StreamCheckpoint.from_bytes(b"\x01" + bytes(40))


def test_every_flipped_byte_is_detected() -> None:
    data = FULL.to_bytes()
    for position in range(len(data)):
        for flip in range(1, 256):
            flipped = bytearray(data)
            flipped[position] ^= flip
            with pytest.raises(PenstockError, match="PSK-6016"):
                StreamCheckpoint.from_bytes(bytes(flipped))


def test_every_truncation_is_detected() -> None:
    data = FULL.to_bytes()
    for length in range(len(data)):
        with pytest.raises(PenstockError, match="PSK-6016"):
            StreamCheckpoint.from_bytes(data[:length])


def test_every_truncation_with_a_valid_checksum_is_detected() -> None:
    payload = FULL.to_bytes()[1:-4]
    for length in range(len(payload)):
        with pytest.raises(PenstockError, match="truncated"):
            StreamCheckpoint.from_bytes(sealed(payload[:length]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty checkpoint data"),
        (b"\x02abc", "checkpoint too short for CRC"),
        (sealed(FULL.to_bytes()[1:-4] + b"\0"), "bytes after the last operator state"),
        (sealed(struct.pack("<QQQIIBQ", 1, 1, 1, 1, 1, 0xFF, 0) + bytes(12)), "invalid utf8"),
    ],
)
def test_unreadable_bytes_are_named(data: bytes, message: str) -> None:
    with pytest.raises(PenstockError) as refused:
        StreamCheckpoint.from_bytes(data)
    assert (refused.value.code, refused.value.detail) == ("PSK-6016", f"checkpoint I/O error: {message}")


@pytest.mark.parametrize(
    "made",
    [
        StreamCheckpoint(-1, 0),
        StreamCheckpoint(0, 2**64),
        StreamCheckpoint(0, 0, source_sequences={"a": -1}),
        StreamCheckpoint(0, 0, watermarks={"a": 2**63}),
    ],
)
def test_a_number_that_does_not_fit_is_refused(made: StreamCheckpoint) -> None:
    with pytest.raises(PenstockError, match="is out of range"):
        made.to_bytes()


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"PSK-6016.*the name .* is not text"):
        StreamCheckpoint(0, 0, source_sequences={"a\ud800": 1}).to_bytes()
