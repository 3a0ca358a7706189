"""A fast path for record batches of one row. Most of the cost of a small insert is the number of Arrow calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.catalog.convert import Misfit, converter
from penstock.catalog.declared import declared

_MISSING = object()


class RowEncoder:
    """Builds one-row batches of a schema. One call converts all columns, as the fields of a struct."""

    def __init__(self, schema: pa.Schema) -> None:
        self._struct = pa.struct(list(schema))
        self._columns = [(f.name, converter(f.type)) for f in schema]
        self._names = frozenset(schema.names)
        # Only `coerce` handles these types.
        self._declared = any(declared(f) for f in schema)
        self._not_null = [i for i, f in enumerate(schema) if not f.nullable]

    def encode(self, row: Mapping[str, Any], defaults: Mapping[str, object]) -> pa.RecordBatch | None:
        """Returns the same batch as `coerce`. Returns None if the row is invalid or a name differs
        in case; `coerce` then converts it or raises the error.
        """
        if self._declared or not self._names.issuperset(row):
            return None
        fields = {}
        try:
            for name, convert in self._columns:
                value = row.get(name, _MISSING)
                if value is _MISSING:
                    value = defaults.get(name)
                    if callable(value):
                        value = value()
                fields[name] = value if value is None or convert is None else convert(value)
            batch = pa.RecordBatch.from_struct_array(pa.array([fields], self._struct))
        except (Misfit, pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if any(batch.column(i).null_count for i in self._not_null):
            return None
        return batch
