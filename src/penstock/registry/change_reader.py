"""Readers of change events in Debezium's envelope: the row with the types of its columns, and how it changed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from penstock.core.model import Json
from penstock.errors import Usage
from penstock.registry.avro import AvroReader, parsed
from penstock.registry.change_event import CHANGE, CHANGE_TYPE, ENVELOPE_FIELDS, OF_TABLE, ChangeEvent, change_event
from penstock.registry.json_schema import Misfit, loaded
from penstock.registry.semantic_type import (
    DATE,
    MICROS,
    NANO_TIMESTAMP,
    UNKNOWN,
    VARIABLE_DECIMAL,
    ZONED_TIMESTAMP,
    Convert,
    SemanticType,
    converter,
)
from penstock.registry.unavailable import Placeholder
from penstock.registry.wire import Registered, Undecodable, first_line

ROW = "value"
"""The column of the row, which takes the place of the bytes."""
Semantics: TypeAlias = Mapping[str, SemanticType]
_HEARTBEAT = "io.debezium.connector.common.Heartbeat"
_NAMES_OF_OTHERS = {"TransactionMetadataValue": "boundaries of transactions", "SchemaChangeValue": "changes of schemas"}
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
    _converters: dict[tuple[str, SemanticType], Convert] = field(default_factory=dict)

    def values(self, event: ChangeEvent, semantics: Semantics) -> dict[str, Any]:
        """Return the row and the change as the struct `spark_type`. `semantics`: the semantic types that are known, by column."""
        try:
            row = {name: self._value(name, kind, event, semantics) for name, kind in self._columns()}
        except (ValueError, ArithmeticError) as error:
            raise Undecodable(f"it does not fit its columns: {first_line(error)}") from error
        return {ROW: row, CHANGE: event.change}

    def _columns(self) -> Iterator[tuple[str, Json]]:
        return ((each["name"], each["type"]) for each in self.row["fields"])

    def _value(self, name: str, kind: Json, event: ChangeEvent, semantics: Semantics) -> Any:
        value = event.row.get(name)
        if value is None:
            _require_absent(name, event.row)
            return None
        if not event.deletes and self.placeholder.stands_for(value):
            value = self._from_before(name, event)
        semantic = semantics.get(name, UNKNOWN)
        if (name, semantic) not in self._converters:
            self._converters[name, semantic] = self.conversion(semantic, kind, name)
        return self._converters[name, semantic](value, name)

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
        self._named: Semantics = {column: SemanticType(name) for column, name in named.items()}
        self._known: tuple[Any, Semantics] = (None, self._named)

    def read(self, value: bytes) -> dict[str, Any] | None:
        """Return the row and its change, None for a record that changes nothing. Raises Undecodable."""
        found = loaded(value, parse_float=_decimal)
        semantics = self._named
        if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
            semantics = self._semantics(found["schema"])
            found = found["payload"]
        if found is None:
            return None
        if not isinstance(found, dict):
            raise Undecodable(f"it is no change event: it should be an object, found {type(found).__name__}")
        event = change_event(found)
        return None if event is None else self._rows.values(event, semantics)

    def _semantics(self, schema: Any) -> Semantics:
        """Return the semantic types that the schema names. Those of the latest schema are kept."""
        if schema != self._known[0]:
            try:
                row: Mapping[str, Any] = next(
                    (one for one in (schema or {}).get("fields", ()) if one.get("field") == "after"), {}
                )
                found = {one["field"]: _of_connect(one) for one in row.get("fields", ())}
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise Undecodable(f"its `schema` is none of Connect's: {first_line(error)}") from error
            self._known = (schema, {**self._named, **found})
        return self._known[1]


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
    return SemanticType(
        schema.get("name") or schema["type"],
        None if scale is None else int(scale),
        _of_connect(inner) if isinstance(inner, Mapping) else None,
    )


class AvroChangeReader:
    """Reads change events that were written by schemas of a registry. The constructor raises Usage, naming the field.

    Each value is converted by what its semantic type was when it was written.
    """

    kind = "AVRO"

    def __init__(self, reader: Registered, *, subject: str, placeholder: str) -> None:
        self._avro, schema = AvroReader(reader, subject=subject), EnvelopeSchema(reader)
        schema.require_envelope(subject)
        self._semantics = schema.semantics()
        envelope: Any = self._avro.spark
        [after] = (each["type"] for each in envelope["fields"] if each["name"] == "after")
        typed = {each["name"]: _typed(self._semantics[each["name"]], each["type"]) for each in after["fields"]}
        row: dict[str, Any] = {**after, "fields": [{**each, "type": typed[each["name"]]} for each in after["fields"]]}
        self.spark = spark_type(row)
        self._as_read = frozenset(each["name"] for each in after["fields"] if each["type"] == typed[each["name"]])
        self._rows = RowReader(row, Placeholder(placeholder), self._conversion)
        self._writers: dict[int, EnvelopeSchema] = {}

    def read(self, value: bytes, writer: Registered) -> dict[str, Any] | None:
        """Return the row and its change, None for a record that changes nothing. Raises Undecodable."""
        try:
            written = self._written_by(writer)
            if written.is_heartbeat:
                return None
            event = change_event(self._avro.read(value, writer))
            return None if event is None else self._rows.values(event, {**self._semantics, **written.semantics()})
        except Undecodable as error:
            error.schema_id = writer.schema_id
            raise

    def _written_by(self, writer: Registered) -> "EnvelopeSchema":
        """Return the writer's schema. Raises Undecodable if it is that of other records than changes of rows."""
        if writer.schema_id not in self._writers:
            try:
                self._writers[writer.schema_id] = EnvelopeSchema(writer)
            except Usage as error:
                raise Undecodable(first_line(error)) from error
        found = self._writers[writer.schema_id]
        if found.others is not None:
            raise Undecodable(f"it tells {found.others}, and no change of a row", remedy=OF_TABLE)
        return found

    def _conversion(self, semantic: SemanticType, spark: Json, name: str) -> Convert:
        if name in self._as_read and semantic == self._semantics[name]:
            return lambda value, _: value
        return converter(semantic, spark)


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
    **{name: "timestamp_ntz" for name in MICROS if name.startswith("io.debezium.") and name != NANO_TIMESTAMP},
    ZONED_TIMESTAMP: "timestamp",
}
"""Types of columns by semantic type, where they differ from that of the plain value. Nanoseconds stay a number."""
_CONNECT = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}


class EnvelopeSchema:
    """An Avro schema of a topic of change events: what its records are, and the semantic types of the row's columns."""

    def __init__(self, schema: Registered) -> None:
        self._named: dict[str, Any] = {}
        self._root: Any = parsed(schema, self._named)
        root = self._root if isinstance(self._root, dict) else {}
        self._name = str(root.get("connect.name") or root.get("name"))
        self._fields = {each["name"]: each["type"] for each in root.get("fields", ())}
        self._semantics: Semantics | None = None

    @property
    def is_heartbeat(self) -> bool:
        return self._name == _HEARTBEAT

    @property
    def others(self) -> str | None:
        """What its records tell instead of changes of rows, None for an envelope."""
        return _NAMES_OF_OTHERS.get(self._name.rpartition(".")[2])

    def require_envelope(self, subject: str) -> None:
        """Raise Usage unless it is an envelope whose rows have columns that Spark has types for."""
        if not self._fields.keys() >= ENVELOPE_FIELDS or self._row() is None:
            raise Usage(
                f"The schema of subject {subject!r} is {self._name}, and no envelope of Debezium: expected fields before, after, "
                f"source and op, found {', '.join(self._fields) or 'none'}.",
                remedy="Name the `subject` of the table's topic, or take `envelope` out.",
            )
        shape = next((name for name, semantic in self.semantics().items() if semantic.is_geometry), None)
        if shape is not None:
            raise Usage(
                f"Field {shape!r} of subject {subject!r} has no Spark type: it is a {self.semantics()[shape].name}.",
                remedy="Have the connector leave the column out by column.exclude.list.",
            )

    def semantics(self) -> Semantics:
        """Return the semantic types of the row's columns."""
        if self._semantics is None:
            row = self._row() or {"fields": ()}
            self._semantics = {each["name"]: self._semantic(each["type"]) for each in row["fields"]}
        return self._semantics

    def _row(self) -> Any:
        """Return the record that `after` is, None if there is none."""
        found = self._one(self._fields.get("after"))
        return found if isinstance(found, dict) and "fields" in found else None

    def _one(self, schema: Any) -> Any:
        """Return the type beside null in a union, and the type that a name stands for."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            return self._one(others[0]) if len(others) == 1 else None
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _semantic(self, schema: Any) -> SemanticType:
        found = self._one(schema)
        if not isinstance(found, dict):
            return SemanticType(_CONNECT.get(str(found), str(found)))
        kind = found["type"]
        name = found.get("connect.name") or found.get("logicalType") or found.get("name") or _CONNECT.get(str(kind), str(kind))
        element = self._semantic(found["items"]) if kind == "array" else None
        return SemanticType(name, found.get("scale"), element)
