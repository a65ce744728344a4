"""One decided file as Iceberg's manifests have it: partition values and bounds by field number, each in the format's encoding."""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from penstock.sink.iceberg.partitions import NamedField, named_fields
from penstock.sink.lake.log import TableFile
from penstock.sink.parquet.layout import text_of_value

_EPOCH = dt.date(1970, 1, 1)


def data_file(file: TableFile, schema: Schema, *, location: str, spec: PartitionSpec) -> DataFile:
    """Return the entry of `file` at `location`. Raises ValueError for statistics or values that do not fit the columns."""
    found = json.loads(file.statistics)
    nulls = _by_number(found["nullCount"], schema)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*(value_of(file.values[field.name], field.kind) for field in named_fields(spec, schema))),
        record_count=found["numRecords"],
        file_size_in_bytes=file.size_bytes,
        column_sizes={},
        value_counts=dict.fromkeys(nulls, found["numRecords"]),
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=_bounds(found["minValues"], schema),
        upper_bounds=_bounds(found["maxValues"], schema),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=spec.spec_id,
    )


def value_of(text: str | None, kind: PrimitiveType) -> Any:
    """Return a partition value as manifests hold it, made of its text in a decision."""
    if text is None or isinstance(kind, StringType):
        return text
    if isinstance(kind, BooleanType):
        return text == "true"
    if isinstance(kind, BinaryType):
        return bytes.fromhex(text)
    if isinstance(kind, DecimalType):
        return Decimal(text)
    return (dt.date.fromisoformat(text) - _EPOCH).days if isinstance(kind, DateType) else int(text)


def partition_texts(values: Record, fields: Iterable[NamedField]) -> Mapping[str, str | None]:
    """Return a file's partition values as decisions have them."""
    return {field.name: text_of(values[field.at], field.kind) for field in fields}


def text_of(value: Any, kind: PrimitiveType) -> str | None:
    """Return the text of a partition value that manifests hold, as decisions have it."""
    if isinstance(kind, DateType) and isinstance(value, int):
        return (_EPOCH + dt.timedelta(days=value)).isoformat()
    return None if value is None else text_of_value(value)


def primitive_of(field: NestedField) -> PrimitiveType:
    """Return the type of a column. Raises ValueError for one that is nested."""
    if not isinstance(field.field_type, PrimitiveType):
        raise ValueError(f"column {field.name!r} is nested")  # noqa: TRY004 - the decision is wrong, not the call
    return field.field_type


def _by_number(counts: Mapping[str, int], schema: Schema) -> dict[int, int]:
    return {schema.find_field(column).field_id: number for column, number in counts.items()}


def _bounds(bounds: Mapping[str, Any], schema: Schema) -> dict[int, bytes]:
    fields = {column: schema.find_field(column) for column in bounds}
    kinds = {column: primitive_of(field) for column, field in fields.items()}
    return {fields[column].field_id: to_bytes(kinds[column], _bound(value, kinds[column])) for column, value in bounds.items()}


def _bound(value: Any, kind: PrimitiveType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(repr(value)).quantize(Decimal(1).scaleb(-kind.scale))  # of so few digits that a float holds them
    if isinstance(kind, TimestampType | TimestamptzType):
        return dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    return dt.date.fromisoformat(value) if isinstance(kind, DateType) else value
