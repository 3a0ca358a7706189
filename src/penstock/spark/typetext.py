"""Types as text that Spark and the catalogue can parse."""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def type_text(kind: DataType) -> str:
    """PySpark's own text of a type, with field names quoted where necessary."""
    match kind:
        case StructType():
            fields = (f"{_name(f.name)}:{type_text(f.dataType)}" for f in kind.fields)
            return f"struct<{','.join(fields)}>"
        case ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case MapType():
            return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
        case _:
            return kind.simpleString()


def _name(name: str) -> str:
    quoted = name.replace("`", "``")
    return name if _PLAIN.fullmatch(name) else f"`{quoted}`"
