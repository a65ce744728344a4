"""Readers of change events in Debezium's envelope: the row with the types of its columns, and how it changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from penstock.core.model import Json
from penstock.errors import Usage
from penstock.registry.avro import AvroReader
from penstock.registry.change_event import CHANGE, CHANGE_TYPE, OF_TABLE, ChangeEvent, change_event
from penstock.registry.column_conversion import column_converter
from penstock.registry.envelope_schema import Columns, EnvelopeSchema
from penstock.registry.json_schema import Misfit, loaded
from penstock.registry.semantic_type import (
    DATE,
    NANO_TIMESTAMP,
    POINTS,
    UNKNOWN,
    VARIABLE_DECIMAL,
    ZONED_TIMESTAMP,
    Convert,
    Semantics,
    SemanticType,
    converter,
)
from penstock.registry.unavailable import Placeholder
from penstock.registry.wire import Registered, Undecodable, first_line

ROW = "value"
"""The column of the row, which takes the place of the bytes."""
Conversions: TypeAlias = Mapping[str, Convert]
"""Conversions of values to those of columns, by column."""
_REPLICA_IDENTITY = (
    "The database did not log it: ALTER TABLE … REPLICA IDENTITY FULL. Updates that lack it already stay so: take a new snapshot "
    "of such rows, and put the records aside by `undecodable: quarantine`."
)


@dataclass(slots=True)
class RowReader:
    """Makes rows of the Spark type `row` of change events. Raises Undecodable for a value that does not fit its column."""

    row: Mapping[str, Any]
    placeholder: Placeholder
    conversion: "Callable[[SemanticType, Json, str], Convert]" = lambda semantic, spark, _: converter(semantic, spark)
    """How values of a semantic type become values of a column, which is named."""

    def conversions(self, semantics: Semantics) -> Conversions:
        """Return how values become those of each column. `semantics`: the semantic types that are known, by column."""
        columns = ((each["name"], each["type"]) for each in self.row["fields"])
        return {name: self.conversion(semantics.get(name, UNKNOWN), kind, name) for name, kind in columns}

    def values(self, event: ChangeEvent, conversions: Conversions) -> dict[str, Any]:
        """Return the row and the change as the struct `spark_type`."""
        try:
            row = {name: self._value(name, event, convert) for name, convert in conversions.items()}
        except (ValueError, ArithmeticError) as error:
            raise Undecodable(f"it does not fit its columns: {first_line(error)}") from error
        return {ROW: row, CHANGE: event.change}

    def _value(self, name: str, event: ChangeEvent, convert: Convert) -> Any:
        value = event.row.get(name)
        if value is None:
            _require_absent(name, event.row)
            return None
        if self.placeholder.stands_for(value):
            if event.deletes:
                return None
            value = self._from_before(name, event)
        return convert(value, name)

    def _from_before(self, name: str, event: ChangeEvent) -> Any:
        """Return the value before the change, which an unavailable one still has. Null says nothing: others may be left out."""
        value = (event.before or {}).get(name)
        if value is None or self.placeholder.stands_for(value):
            raise Undecodable(f"the value of column {name!r} is unavailable (op {event.change['op']})", remedy=_REPLICA_IDENTITY)
        return value


def spark_type(row: Json) -> Json:
    """Return the type of a change event, in Spark's JSON: the row's columns, and CHANGE."""
    return {
        "type": "struct",
        "fields": [{"name": ROW, "type": row, "nullable": True, "metadata": {}}, {**_OF_CHANGE, "type": CHANGE_TYPE}],
    }


_OF_CHANGE: dict[str, Json] = {"name": CHANGE, "nullable": True, "metadata": {}}


def _require_absent(name: str, row: Mapping[str, Any]) -> None:
    """Raise Misfit if the row has no such column, but one whose name differs in case only: it would be null in every row."""
    if name not in row:
        alike = next((other for other in row if other.lower() == name.lower()), None)
        if alike is not None:
            raise Misfit(f"it has no column {name}, but {alike}")


class JsonChangeReader:
    """Reads change events of Connect's JSON converter, with the `schema` around them or without.

    `row`: the columns that are read, in Spark's JSON. `named`: semantic types by column, for values without `schema`.
    """

    def __init__(self, row: Mapping[str, Any], *, named: Mapping[str, str], placeholder: str) -> None:
        self.spark = spark_type(dict(row))
        self._rows = RowReader(row, Placeholder(placeholder))
        columns = {each["name"]: each["type"] for each in row["fields"]}
        self._named: Semantics = {column: _named(name, columns.get(column)) for column, name in named.items()}
        self._without_schema = self._rows.conversions(self._named)
        self._known: tuple[Any, Conversions] = (None, self._without_schema)

    def read(self, value: bytes) -> dict[str, Any] | None:
        """Return the row and its change, None for a record that changes nothing. Raises Undecodable."""
        found = loaded(value, parse_float=_decimal)
        conversions = self._without_schema
        if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
            conversions = self._by_schema(found["schema"])
            found = found["payload"]
        if found is None:
            return None
        event = change_event(found)
        return None if event is None else self._rows.values(event, conversions)

    def _by_schema(self, schema: Any) -> Conversions:
        """Return the conversions of what the schema names. Those of the latest schema are kept."""
        if schema != self._known[0]:
            try:
                row: Mapping[str, Any] = next(
                    (one for one in (schema or {}).get("fields", ()) if one.get("field") == "after"), {}
                )
                found = {one["field"]: self._called(one["field"], _of_connect(one)) for one in row.get("fields", ())}
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise Undecodable(f"its `schema` is none of Connect's: {first_line(error)}") from error
            self._known = (schema, self._rows.conversions({**self._named, **found}))
        return self._known[1]

    def _called(self, column: str, found: SemanticType) -> SemanticType:
        return found.called(self._named[column]) if column in self._named else found


def _named(name: str, spark: Json) -> SemanticType:
    """Return the semantic type that is named for a column, which is that of its elements if it has some."""
    kind: Any = spark
    if not isinstance(kind, dict):
        return SemanticType(name)
    return SemanticType(element=_named(name, kind.get("elementType") or kind.get("valueType")))


def _decimal(text: str) -> Decimal:
    """Return a number with point or exponent as it is written. Raises ValueError for an exponent that no decimal has."""
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"the number {text[:60]} is out of range") from error


def _of_connect(schema: Mapping[str, Any]) -> SemanticType:
    """Return the semantic type of a field of Connect's schema, in JSON."""
    inner = schema.get("items") or schema.get("values")
    scale = (schema.get("parameters") or {}).get("scale")
    kind, name = schema["type"], schema.get("name")
    if not isinstance(kind, str) or not isinstance(name, str | None) or not isinstance(scale, str | int | None):
        raise TypeError(f"type, name and scale should be texts, found {kind!r}, {name!r} and {scale!r}")
    return SemanticType(
        name or kind,
        None if scale is None else int(scale),
        _of_connect(inner) if isinstance(inner, Mapping) else None,
        kind,
    )


class AvroChangeReader:
    """Reads change events that were written by schemas of a registry. The constructor raises Usage, naming the field.

    A record is read by the schema that wrote it alone. Each value is converted once: from what it was when it was written to
    the column's type, and refused where that is not known to be right.
    """

    kind = "AVRO"

    def __init__(self, reader: Registered, *, subject: str, placeholder: str) -> None:
        envelope: Any = AvroReader(reader, subject=subject).spark
        schema = EnvelopeSchema(reader)
        schema.require_envelope(subject)
        self._columns = schema.columns
        [after] = (each["type"] for each in envelope["fields"] if each["name"] == "after")
        typed = [{**each, "type": _typed(self._columns.semantics[each["name"]], each["type"])} for each in after["fields"]]
        row: dict[str, Any] = {**after, "fields": typed}
        self.spark = spark_type(row)
        self._rows = RowReader(row, Placeholder(placeholder), self._conversion)
        self._writers: dict[int, _Writer] = {}

    def read(self, value: bytes, writer: Registered) -> dict[str, Any] | None:
        """Return the row and its change, None for a record that changes nothing. Raises Undecodable."""
        try:
            written = self._written_by(writer)
            if written.schema.is_heartbeat:
                return None
            event = change_event(written.schema.read(value))
            return None if event is None else self._rows.values(written.completed(event), written.conversions)
        except Undecodable as error:
            error.schema_id = writer.schema_id
            raise

    def _written_by(self, writer: Registered) -> "_Writer":
        """Return the writer's schema. Raises Undecodable if it is that of other records than changes of rows."""
        if writer.schema_id not in self._writers:
            try:
                schema = EnvelopeSchema(writer)
            except Usage as error:
                raise Undecodable(first_line(error)) from error
            columns = self._columns.read_from(schema.columns)
            self._writers[writer.schema_id] = _Writer(schema, columns, self._rows.conversions(columns.semantics))
        found = self._writers[writer.schema_id]
        if found.schema.others is not None:
            raise Undecodable(f"it tells {found.schema.others}, and no change of a row", remedy=OF_TABLE)
        return found

    def _conversion(self, semantic: SemanticType, spark: Json, name: str) -> Convert:
        return column_converter(semantic, self._columns.semantics[name], spark)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema that wrote records, how the reader's `columns` are found in their rows, and the conversions of their values."""

    schema: EnvelopeSchema
    columns: Columns
    conversions: Conversions

    def completed(self, event: ChangeEvent) -> ChangeEvent:
        """Return the event with the columns that its rows have by another name, or not at all. Raises Undecodable."""
        if not self.columns.renamed and not self.columns.defaults:
            return event
        before = None if event.before is None else self.columns.completed(event.before)
        return replace(event, row=self.columns.completed(event.row), before=before)


def _typed(semantic: SemanticType, spark: Json) -> Json:
    """Return the Spark type of a column that `AvroReader` reads as `spark`."""
    kind: Any = spark
    if isinstance(spark, str):
        return _SPARK.get(semantic.name or "", spark)
    if semantic.name == VARIABLE_DECIMAL:
        return "string"
    return {**kind, "elementType": _typed(semantic.element or UNKNOWN, kind["elementType"])} if kind["type"] == "array" else spark


_SPARK: Mapping[str, Json] = {
    DATE: "date",
    **{name: "timestamp_ntz" for name in POINTS if name.startswith("io.debezium.") and name != NANO_TIMESTAMP},
    ZONED_TIMESTAMP: "timestamp",
}
"""Types of columns by semantic type, where they differ from that of the plain value. Nanoseconds stay a number."""
