"""Spark passes that decode the records of a topic, or collect those that cannot be decoded, in the tasks that read them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.bad_record import HISTORY, PACKED, RAW, SCHEMA_CHECKED
from penstock.core.model import Json
from penstock.errors import DependencyMissing, StageFailed, Usage
from penstock.registry.avro import AvroReader
from penstock.registry.change_event import CHANGE
from penstock.registry.change_reader import ROW, AvroChangeReader, JsonChangeReader
from penstock.registry.client import Registry, SchemaUnknown, registry
from penstock.registry.json_schema import JsonReader
from penstock.registry.unavailable import PLACEHOLDER
from penstock.registry.wire import Registered, RegistryPlace, Undecodable, first_line, schema_id_of
from penstock.spark.schema import arrow_schema
from penstock.support.error_transport import errors_through_spark
from penstock.support.extras import install_command


class Reader(Protocol):
    """Reads and writes values of one format by one schema."""

    @property
    def kind(self) -> str:
        """The registry's name of the format."""

    @property
    def spark(self) -> Json:
        """The type of the values in Spark's JSON."""

    def read(self, value: bytes, writer: Registered) -> Any:
        """Decode a whole value of the wire format, written by `writer`, into one that Arrow takes. Raises Undecodable."""

    def write(self, value: Any) -> bytes:
        """Encode a value from Arrow, without the schema's id. Raises what its library raises for a value that does not fit."""


def _protobuf(schema: Registered, *, subject: str) -> Reader:
    try:
        from penstock.registry.protobuf import ProtobufReader  # noqa: PLC0415 - an extra of its own
    except ImportError as cause:
        raise DependencyMissing(
            f"Values of Protobuf are decoded with the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: {install_command('protobuf')}",
        ) from cause
    return ProtobufReader(schema, subject=subject)


READERS: Mapping[str, Callable[..., Reader]] = {"avro": AvroReader, "json": JsonReader, "protobuf": _protobuf}
"""Factories by the name of the format in a pipeline file, called with the schema and its `subject`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedColumn:
    """A column, and the schema by which its values are decoded or encoded."""

    column: str
    format: str
    subject: str
    schema: Registered

    def reader(self) -> Reader:
        """Return the reader of the schema. Raises Usage if the schema has no Spark type or is of another format."""
        self.require_kind()
        return READERS[self.format](self.schema, subject=self.subject)

    def require_kind(self) -> None:
        """Raise Usage unless the schema is of the format that the settings name."""
        if self.schema.kind != self.format.upper():
            raise Usage(
                f"The schema of subject {self.subject!r} is of {self.schema.kind}, expected {self.format.upper()}.",
                remedy=f"Write {self.column}: {self.schema.kind.lower()}, or name another `subject`.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn:
    """The column of Debezium's change events, which becomes two: the row, and how it changed. Picklable.

    `by_registry`: the column as written by schemas of a registry. Otherwise the values are JSON, `row` are the columns to read,
    in Spark's JSON, and `semantic_types` those of columns that the values do not name. `placeholder`: the text that stands for
    values which the database did not log.
    """

    by_registry: CodedColumn | None = None
    row: str = ""
    semantic_types: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = PLACEHOLDER

    @property
    def column(self) -> str:
        """The column of the events, ROW."""
        return ROW

    def reader(self) -> "AvroChangeReader | JsonChangeReader":
        """Return the reader of the events. Raises Usage if the schema is no envelope, or a column has no Spark type."""
        coded = self.by_registry
        if coded is None:
            return JsonChangeReader(json.loads(self.row), named=self.semantic_types, placeholder=self.placeholder)
        coded.require_kind()
        return AvroChangeReader(coded.schema, subject=coded.subject, placeholder=self.placeholder)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePass:
    """Decodes with `mapInArrow` over the columns of Spark's Kafka source. Picklable: holds schemas as text, and no client."""

    source: str
    place: RegistryPlace | None
    coded: tuple[CodedColumn | ChangeColumn, ...]
    passes_over: bool = False
    """Whether an undecodable record is left out; otherwise it fails the task."""

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with errors_through_spark():
            decoder = Decoder(self)
            for batch in batches:
                yield self._taken(decoder.decoded(batch))

    def _taken(self, found: "Decoded") -> "pa.RecordBatch":
        if found.bad and not self.passes_over:
            raise _failed(self.source, found.batch, *next(iter(found.bad.items())))
        if not found.bad and not found.dropped:
            return found.batch
        kept = [row for row in range(found.batch.num_rows) if row not in found.bad and row not in found.dropped]
        return found.batch.take(pa.array(kept, pa.int64()))


@dataclass(frozen=True, slots=True)
class Bad:
    """Why a record cannot be decoded, and in which of its columns."""

    column: str
    reason: Undecodable


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch with its columns decoded, null where that failed, and the reason for each such row, in row order.

    `dropped`: the rows of a topic of change events that change nothing.
    """

    batch: "pa.RecordBatch"
    bad: Mapping[int, Bad]
    dropped: frozenset[int] = frozenset()


class Decoder:
    """Decodes the batches of one task."""

    def __init__(self, decode_pass: DecodePass) -> None:
        asked = None if decode_pass.place is None else registry(decode_pass.place)
        self._columns = [_Column(coded, asked) for coded in decode_pass.coded]

    def decoded(self, batch: "pa.RecordBatch") -> Decoded:
        """Decode all rows of `batch`. Raises Usage, and the registry's error if it does not answer."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bad, dropped = dict[int, Bad](), frozenset[int]()
        for column in self._columns:
            found, wrong = column.decoded(columns[column.name])
            bad = {**{row: Bad(column.name, reason) for row, reason in wrong.items()}, **bad}
            if column.holds_changes:
                dropped = frozenset(np.flatnonzero(found.is_null()).tolist()) - wrong.keys()
                columns |= {name: pc.struct_field(found, name) for name in (ROW, CHANGE)}
            else:
                columns[column.name] = found
        decoded = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return Decoded(decoded, dict(sorted(bad.items())), dropped)


class _Column:
    """Decodes one column. An id that the registry does not know is requested once per task."""

    def __init__(self, coded: CodedColumn | ChangeColumn, asked: Registry | None) -> None:
        self.name = coded.column
        self.holds_changes = isinstance(coded, ChangeColumn)
        reader = coded.reader()
        self._type = arrow_type(reader.spark)
        self._names_schema = not isinstance(reader, JsonChangeReader)
        self._read = reader.read if isinstance(reader, JsonChangeReader) else _ByRegistry(reader, asked).read

    def decoded(self, values: "pa.Array") -> "tuple[pa.Array, Mapping[int, Undecodable]]":
        """Return the column, null where it cannot be decoded, and the reasons by row."""
        found = list[Any]()
        bad = dict[int, Undecodable]()
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else self._read(value))
            except Undecodable as reason:
                found.append(None)
                bad[row] = reason
        return self._typed(found, values, bad), bad

    def _typed(self, found: list[Any], values: "pa.Array", bad: dict[int, Undecodable]) -> "pa.Array":
        """Return an Arrow array. A value that a writer's schema allows and the type cannot hold spoils its own row only."""
        try:
            return pa.array(found, self._type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for row, value in enumerate(found):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as misfit:
                    found[row] = None
                    schema_id = schema_id_of(values[row].as_py()) if self._names_schema else None
                    bad[row] = Undecodable(f"it does not fit the schema it is read by: {first_line(misfit)}", schema_id=schema_id)
        return pa.array(found, self._type)


class _ByRegistry:
    """Reads values that name their schema."""

    def __init__(self, reader: "Reader | AvroChangeReader", asked: Registry | None) -> None:
        self._reader, self._registry = reader, asked
        self._unknown: dict[int, str] = {}

    def read(self, value: bytes) -> Any:
        """Decode a value of the wire format. Raises Undecodable, and the registry's error if it does not answer."""
        schema_id = schema_id_of(value)
        writer = self._written_by(schema_id)
        if writer.kind != self._reader.kind:
            raise Undecodable(f"its schema is of {writer.kind}, expected {self._reader.kind}", schema_id=schema_id)
        return self._reader.read(value, writer)

    def _written_by(self, schema_id: int) -> Registered:
        try:
            if schema_id not in self._unknown and self._registry is not None:
                return self._registry.by_id(schema_id)
        except SchemaUnknown as unknown:
            self._unknown[schema_id] = str(unknown)
        reason = f"the registry has no such schema: {self._unknown[schema_id]}"
        raise Undecodable(reason, schema_id=schema_id, unknown=True)


def arrow_type(spark: Json) -> "pa.DataType":
    """Return Arrow's type for one of Spark's, given as JSON."""
    field = {"name": "value", "type": spark, "nullable": True, "metadata": {}}
    return arrow_schema(json.dumps({"type": "struct", "fields": [field]})).field(0).type


_GENERAL = "Register the schema if it is missing, correct `decode`, or put such records aside by `undecodable: quarantine`."


def _failed(source: str, batch: "pa.RecordBatch", row: int, bad: Bad) -> StageFailed:
    reason = bad.reason
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    named = "" if reason.schema_id is None else f" by the schema with id {reason.schema_id}"
    return StageFailed(
        f"The {bad.column} of the record at offset {offset} of partition {partition} of topic {topic!r} (source {source!r}) "
        f"cannot be decoded{named}: {reason.reason}.",
        remedy=f"Nothing of the batch was decided. {reason.remedy or _GENERAL}",
    )


def schema_after(schema: Mapping[str, Json], coded: Sequence[CodedColumn | ChangeColumn]) -> str:
    """Return a source's columns after decoding, in Spark's JSON. Raises Usage."""
    fields: Any = schema["fields"]
    columns = {each["name"]: each for each in fields}
    for each in coded:
        spark: Any = each.reader().spark
        made = spark["fields"] if isinstance(each, ChangeColumn) else [{**columns[each.column], "type": spark}]
        columns |= {one["name"]: one for one in made}
    return json.dumps({**schema, "fields": list(columns.values())})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePass:
    """Finds undecodable records with `mapInArrow` over the columns of Spark's Kafka source, headers included. Picklable.

    Yields rows of SCHEMA_CHECKED as Arrow IPC bytes in the one column PACKED: Spark cannot pass on every null that they may hold.
    A task yields no more once it has found more than `at_most`.
    """

    decode: DecodePass
    at_most: int

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with errors_through_spark():
            decoder = Decoder(self.decode)
            left = self.at_most
            for batch in batches:
                decoded = decoder.decoded(batch)
                if decoded.bad and left >= 0:
                    left -= len(decoded.bad)
                    yield _packed(_bad_rows(self.decode.source, batch, decoded))


def _packed(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_batch(rows)
    return pa.RecordBatch.from_pydict({PACKED: [written.getvalue().to_pybytes()]})


def _bad_rows(source: str, batch: "pa.RecordBatch", decoded: Decoded) -> "pa.RecordBatch":
    """Return the undecodable rows of `batch`, each with its reason."""
    rows = pa.array(decoded.bad.keys(), pa.int64())
    schema = arrow_schema(SCHEMA_CHECKED)
    bad = list(decoded.bad.values())
    columns = {
        "source": [source] * len(bad),
        **{name: batch.column(name).take(rows) for name in (*RAW, HISTORY) if name in batch.schema.names},
        "undecodable": [each.column for each in bad],
        "schema_id": [each.reason.schema_id for each in bad],
        "error": [each.reason.reason for each in bad],
        "unknown": [each.reason.unknown for each in bad],
    }
    arrays = [
        pa.array(values, field.type) if isinstance(values, list) else values.cast(field.type)
        for field in schema
        for values in (columns.get(field.name, [None] * len(bad)),)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def unpacked(found: Iterable[bytes]) -> "pa.Table":
    """Return the rows that the tasks of the pass found, as one table."""
    tables = [pa.ipc.open_stream(one).read_all() for one in found]
    return pa.concat_tables([arrow_schema(SCHEMA_CHECKED).empty_table(), *tables])
