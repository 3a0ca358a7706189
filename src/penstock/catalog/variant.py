"""VARIANT: converts between Spark's encoding (two byte strings) and Python values.

`metadata` is a dictionary of field names, `value` a tree whose objects refer to it. JSON null and NULL are both None in Python.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from penstock.catalog.declared import after_name, contains

_EPOCH = dt.datetime(1970, 1, 1)
_PRIMITIVE, _SHORT, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE, _INT1, _INT2, _INT4, _INT8, _DOUBLE, _DEC4, _DEC8, _DEC16, _DATE, _TS, _NTZ, _FLOAT, _BYTES, _STRING = range(17)  # fmt: skip
_INTS = {_INT1: 1, _INT2: 2, _INT4: 4, _INT8: 8}
_DECIMALS = {_DEC4: (4, 9), _DEC8: (8, 18), _DEC16: (16, 38)}
"""The bytes and digits of decimals."""
_DEEPEST = 1000

Convert = Callable[[Any], Any]


def decoded(value: bytes, metadata: bytes) -> Any:
    """The Python value of a variant. Raises ValueError if the bytes are not a variant."""
    try:
        return _read(value, 0, _names(metadata), 0)
    except (IndexError, struct.error, OverflowError, UnicodeDecodeError) as why:
        raise ValueError(f"a malformed VARIANT: {why}") from None


def _names(metadata: bytes) -> list[str]:
    if not metadata or metadata[0] & 0x0F != 1:
        raise ValueError("a malformed VARIANT: an unknown version")
    size = (metadata[0] >> 6) + 1
    count = _whole(metadata, 1, size)
    ends = [_whole(metadata, 1 + (i + 1) * size, size) for i in range(count + 1)]
    start = 1 + (count + 2) * size
    return [metadata[start + a : start + b].decode() for a, b in itertools.pairwise(ends)]


def _whole(data: bytes, at: int, size: int, *, signed: bool = False) -> int:
    if at + size > len(data):
        raise IndexError("its bytes end too early")
    return int.from_bytes(data[at : at + size], "little", signed=signed)


def _read(data: bytes, at: int, names: list[str], depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"a VARIANT is nested more than {_DEEPEST} levels deep")
    basic, info = data[at] & 3, data[at] >> 2
    if basic == _SHORT:
        return data[at + 1 : at + 1 + info].decode()
    if basic == _PRIMITIVE:
        return _primitive(data, at, info)
    large = bool(info & (16 if basic == _OBJECT else 4))
    width = (info & 3) + 1
    count = _whole(data, at + 1, 4 if large else 1)
    at += 5 if large else 2
    ids: list[int] = []
    if basic == _OBJECT:
        size = ((info >> 2) & 3) + 1
        ids = [_whole(data, at + i * size, size) for i in range(count)]
        at += count * size
    offsets = [_whole(data, at + i * width, width) for i in range(count)]
    start = at + (count + 1) * width
    found = [_read(data, start + o, names, depth + 1) for o in offsets]
    return dict(zip((names[i] for i in ids), found, strict=True)) if basic == _OBJECT else found


def _primitive(data: bytes, at: int, kind: int) -> Any:
    if kind in (_NULL, _TRUE, _FALSE):
        return {_NULL: None, _TRUE: True, _FALSE: False}[kind]
    if kind in _INTS:
        return _whole(data, at + 1, _INTS[kind], signed=True)
    if kind in (_DOUBLE, _FLOAT):
        (number,) = struct.unpack_from("<d" if kind == _DOUBLE else "<f", data, at + 1)
        return number
    if kind in _DECIMALS:
        return Decimal(_whole(data, at + 2, _DECIMALS[kind][0], signed=True)).scaleb(-data[at + 1])
    if kind == _DATE:
        return _EPOCH.date() + dt.timedelta(days=_whole(data, at + 1, 4, signed=True))
    if kind in (_TS, _NTZ):
        moment = _EPOCH + dt.timedelta(microseconds=_whole(data, at + 1, 8, signed=True))
        return moment.replace(tzinfo=dt.UTC) if kind == _TS else moment
    if kind in (_BYTES, _STRING):
        end = at + 5 + _whole(data, at + 1, 4)
        if end > len(data):
            raise IndexError("its bytes end too early")
        return data[at + 5 : end] if kind == _BYTES else data[at + 5 : end].decode()
    raise ValueError(f"a malformed VARIANT: type {kind} is unknown")


def json_text(value: Any) -> str:
    """The value of a variant, as written by Spark's `to_json`."""
    match value:
        case Mapping():
            return (
                "{"
                + ",".join(f"{json.dumps(str(k), ensure_ascii=False)}:{json_text(v)}" for k, v in value.items())
                + "}"
            )
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case Decimal():
            return f"{value:f}"
        case float() if value - value != 0:
            return json.dumps(str(value).replace("inf", "Infinity").replace("nan", "NaN"))
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case dt.date():
            return json.dumps(str(value))
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def encoded(value: Any) -> dict[str, bytes]:
    """A Python value as a variant. Raises TypeError for a value that a variant cannot hold."""
    names: dict[str, int] = {}
    made = _written(value, names, 0)
    texts = [n.encode() for n in names]
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    size = _width(max(offsets[-1], len(texts)))
    head = bytes([1 | (size - 1) << 6]) + len(texts).to_bytes(size, "little")
    metadata = head + b"".join(o.to_bytes(size, "little") for o in offsets) + b"".join(texts)
    return {"value": made, "metadata": metadata}


def _width(most: int) -> int:
    return max(1, (most.bit_length() + 7) // 8)


def _written(value: Any, names: dict[str, int], depth: int) -> bytes:
    if depth > _DEEPEST:
        raise TypeError(f"a VARIANT is nested more than {_DEEPEST} levels deep")
    match value:
        case None | bool():
            return bytes([{None: _NULL, True: _TRUE, False: _FALSE}[value] << 2])
        case int():
            kind = next((k for k, size in _INTS.items() if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1), None)
            if kind is None:
                return _written(Decimal(value), names, depth)
            number: bytes = value.to_bytes(_INTS[kind], "little", signed=True)
            return bytes([kind << 2]) + number
        case float():
            return bytes([_DOUBLE << 2]) + struct.pack("<d", value)
        case Decimal():
            return _decimal(value)
        case str():
            text = value.encode()
            short = len(text) < 64
            return (
                bytes([len(text) << 2 | _SHORT]) if short else bytes([_STRING << 2]) + len(text).to_bytes(4, "little")
            ) + text
        case bytes():
            return bytes([_BYTES << 2]) + len(value).to_bytes(4, "little") + value
        case dt.datetime():
            plain = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            micros = (plain - _EPOCH) // dt.timedelta(microseconds=1)
            return bytes([(_NTZ if value.tzinfo is None else _TS) << 2]) + micros.to_bytes(8, "little", signed=True)
        case dt.date():
            return bytes([_DATE << 2]) + (value - _EPOCH.date()).days.to_bytes(4, "little", signed=True)
        case Mapping():
            if not all(isinstance(k, str) for k in value):
                raise TypeError("the keys of a dict in a VARIANT are strings")
            # Spark looks fields up by binary search.
            keys = sorted(value, key=lambda k: k.encode("utf-16-be"))
            ids = [names.setdefault(k, len(names)) for k in keys]
            return _many([_written(value[k], names, depth + 1) for k in keys], ids)
        case list() | tuple():
            return _many([_written(v, names, depth + 1) for v in value], None)
        case _:
            raise TypeError(f"a VARIANT cannot hold {type(value).__name__}")


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"a VARIANT cannot hold {value}")
    scale = max(0, -exponent)
    unscaled: int = int("".join(map(str, digits))) * 10 ** max(0, exponent) * (-1 if sign else 1)
    for kind, (size, most) in _DECIMALS.items():
        if abs(unscaled) < 10**most and scale <= most:
            return bytes([kind << 2, scale]) + unscaled.to_bytes(size, "little", signed=True)
    raise TypeError(f"{value} has more than 38 digits")


def _many(parts: list[bytes], ids: list[int] | None) -> bytes:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    width, large = _width(offsets[-1]), len(parts) > 255
    if ids is None:
        head, listed = (large << 2 | width - 1) << 2 | _ARRAY, b""
    else:
        size = _width(max(ids, default=0))
        head = (large << 4 | size - 1 << 2 | width - 1) << 2 | _OBJECT
        listed = b"".join(i.to_bytes(size, "little") for i in ids)
    count = len(parts).to_bytes(4 if large else 1, "little")
    return bytes([head]) + count + listed + b"".join(o.to_bytes(width, "little") for o in offsets) + b"".join(parts)


def _is_encoded(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == {"value", "metadata"}
        and all(isinstance(v, bytes) for v in value.values())
    )


@lru_cache(maxsize=1024)
def reader(spark_type: str) -> Convert | None:
    """Decodes the variants in an Arrow value of a type; None if the type has none."""
    return _within(spark_type, lambda v: None if v is None else decoded(v["value"], v["metadata"]))


@lru_cache(maxsize=1024)
def writer(spark_type: str) -> Convert | None:
    """Encodes the variants in a Python value of a type, unless they already are; None if the type has none."""
    return _within(spark_type, lambda v: v if v is None or _is_encoded(v) else encoded(v))


def _within(spark_type: str, leaf: Convert) -> Convert | None:
    return _parsed(spark_type, 0, leaf)[0] if contains(spark_type, "variant") else None


def _parsed(text: str, at: int, leaf: Convert) -> tuple[Convert | None, int]:
    if text.startswith("array<", at):
        element, end = _parsed(text, at + len("array<"), leaf)
        return _list(element), end + 1
    if text.startswith("map<", at):
        _, end = _parsed(text, at + len("map<"), leaf)
        value, end = _parsed(text, end + 1, leaf)
        return _map(value), end + 1
    if text.startswith("struct<", at):
        at += len("struct<")
        fields: dict[str, Convert] = {}
        while text[at] != ">":
            begin = at + (text[at] == ",")
            at = after_name(text, begin)
            name = text[begin : at - 1].strip("`").replace("``", "`")
            field, at = _parsed(text, at, leaf)
            if field is not None:
                fields[name] = field
        return _struct(fields), at + 1
    end, depth = at, 0
    while end < len(text) and (depth or text[end] not in ",>"):
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    return leaf if text[at:end] == "variant" else None, end


def _list(element: Convert | None) -> Convert | None:
    return None if element is None else lambda v: [element(x) for x in v] if isinstance(v, (list, tuple)) else v


def _map(value: Convert | None) -> Convert | None:
    if value is None:
        return None

    def convert(v: Any) -> Any:
        if isinstance(v, Mapping):
            return {k: value(x) for k, x in v.items()}
        return [(k, value(x)) for k, x in v] if isinstance(v, list) else v

    return convert


def _struct(fields: dict[str, Convert]) -> Convert | None:
    if not fields:
        return None
    return lambda v: {k: fields[k](x) if k in fields else x for k, x in v.items()} if isinstance(v, Mapping) else v
