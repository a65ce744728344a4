"""Avro: maps schemas to Spark types, and reads and writes values in Avro's binary encoding.

Types map as in Spark's own Avro connector (https://spark.apache.org/docs/latest/sql-data-sources-avro.html), except that a union
must be of one type and null, or of numbers alone: any other would give rows that no sink takes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, TypeAlias

import fastavro

from penstock.core.model import Json
from penstock.errors import Usage
from penstock.registry.wire import HEAD, Registered, Undecodable, first_line

Schema: TypeAlias = Any
Make: TypeAlias = Callable[[Any], Any]

_LONGEST_DECIMAL = 38
_EXACT = Context(prec=2 * _LONGEST_DECIMAL)
_PLAIN: Mapping[str, str] = {
    **{name: name for name in ("boolean", "long", "float", "double", "string")},
    "int": "integer",
    "bytes": "binary",
}
WIDER = (("int", "long"), ("float", "double"))
"""Unions of two types of numbers, which are read as the second one."""
_RECORDS = frozenset({"record", "error"})


@dataclass(frozen=True, slots=True)
class AvroType:
    """How a column maps: `spark` is its type, `make` converts fastavro's value to one that Arrow takes, and `unmake` back.

    `unmake` raises for a value that fastavro would write as another one. None: there is nothing to do.
    """

    spark: Json
    make: Make | None = None
    unmake: Make | None = None


def parsed(schema: Registered, named: dict[str, Schema] | None = None, *, logical: bool = True) -> Schema:
    """Return the schema as parsed by fastavro, and add its named types to `named`. Raises Usage.

    Without `logical` it has no logical types: its values are the numbers, texts and bytes that were written.
    """
    names = {} if named is None else named
    loaded: Callable[[str], Any] = json.loads if logical else lambda text: json.loads(text, object_hook=_without_logical_type)
    try:
        for reference in schema.references:
            fastavro.parse_schema(loaded(reference.text), named_schemas=names)
        return fastavro.parse_schema(loaded(schema.text), named_schemas=names)
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise Usage(
            f"The schema with id {schema.schema_id} is no schema of Avro: {first_line(error)}.",
            remedy="Name another `subject` or `version`, or its real `format`.",
        ) from error


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "logicalType"}


class AvroReader:
    """Reads values written by any schema of the registry as values of `reader`, by Avro's schema resolution.

    The constructor raises Usage if `reader` has no Spark type, naming the field.
    """

    kind = "AVRO"

    def __init__(self, reader: Registered, *, subject: str) -> None:
        named: dict[str, Schema] = {}
        self._reader, self._schema = reader, parsed(reader, named)
        self._type = _Types(named, subject).of(self._schema, "", ())
        self._writers: dict[int, Schema] = {}

    @property
    def spark(self) -> Json:
        return self._type.spark

    def read(self, value: bytes, writer: Registered) -> Any:
        written = self._written_by(writer)
        same = writer.schema_id == self._reader.schema_id
        source = BytesIO(value)
        source.seek(HEAD)
        try:  # malformed bytes can raise any exception
            found = fastavro.schemaless_reader(source, written, None if same else self._schema)
            made = found if self._type.make is None else self._type.make(found)
        except (MemoryError, OSError):  # a failure of the machine says nothing about the value
            raise
        except Exception as error:
            raise Undecodable(self._reason(error), schema_id=writer.schema_id) from error
        _require_end(source, value, writer)
        return made

    def write(self, value: Any) -> bytes:
        written = BytesIO()
        given = value if self._type.unmake is None else self._type.unmake(value)
        fastavro.schemaless_writer(written, self._schema, given)
        return written.getvalue()

    def _written_by(self, writer: Registered) -> Schema:
        if writer.schema_id not in self._writers:
            try:
                self._writers[writer.schema_id] = parsed(writer)
            except Usage as error:
                raise Undecodable(_reason(error), schema_id=writer.schema_id) from error
        return self._writers[writer.schema_id]

    def _reason(self, error: Exception) -> str:
        if isinstance(error, fastavro.read.SchemaResolutionError):
            return f"it cannot be read by the schema with id {self._reader.schema_id}: {first_line(error)}"
        return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | IndexError):
        return f"it ends too early for its schema: {first_line(error)}"
    return f"it is no value of its schema: {first_line(error)}"


def _require_end(source: BytesIO, value: bytes, writer: Registered) -> None:
    left = len(value) - source.tell()
    if left:
        raise Undecodable(f"{left} bytes are left over behind it", schema_id=writer.schema_id)


class WrittenReader:
    """Reads values by the schema that wrote them alone, without its logical types, and so without any conversion."""

    def __init__(self, writer: Registered) -> None:
        self._writer, self._schema = writer, parsed(writer, logical=False)

    def read(self, value: bytes) -> Any:
        """Return the value of the wire format, as numbers, texts, bytes, lists and dicts. Raises Undecodable."""
        source = BytesIO(value)
        source.seek(HEAD)
        try:  # malformed bytes can raise any exception
            found = fastavro.schemaless_reader(source, self._schema)
        except (MemoryError, OSError):  # a failure of the machine says nothing about the value
            raise
        except Exception as error:
            raise Undecodable(_reason(error), schema_id=self._writer.schema_id) from error
        _require_end(source, value, self._writer)
        return found


class _Types:
    """Maps one schema to Spark types, recursively."""

    def __init__(self, named: Mapping[str, Schema], subject: str) -> None:
        self._named, self._subject = named, subject

    def of(self, schema: Schema, path: str, above: tuple[str, ...]) -> AvroType:
        if isinstance(schema, str):
            return self._named_or_plain(schema, path, above)
        if isinstance(schema, list):
            return self._union(schema, path, above)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, path, above)
        if kind == "array":
            return _array(self.of(schema["items"], f"{path}.element", above))
        if kind == "map":
            return _map(self.of(schema["values"], f"{path}.value", above))
        return self._record(schema, path, above) if kind in _RECORDS else self._of_logical(schema, kind, path)

    def _named_or_plain(self, name: str, path: str, above: tuple[str, ...]) -> AvroType:
        if name in _PLAIN:
            return AvroType(_PLAIN[name], _bytes if name == "bytes" else None, _no_null if name == "boolean" else None)
        if name in above:
            raise self._refused(path, f"{name} contains itself", "Leave such a field out of the schema that is read by.")
        if name not in self._named:
            raise self._refused(path, f"{name} is a type without values", "Take the field out of the schema.")
        return self.of(self._named[name], path, above)

    def _of_logical(self, schema: Schema, kind: str, path: str) -> AvroType:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in {"bytes", "fixed"}:
            return self._decimal(schema, path)
        return _LOGICAL.get((kind, logical)) or _LOGICAL.get((kind, None)) or self._named_or_plain(kind, path, ())

    def _record(self, schema: Schema, path: str, above: tuple[str, ...]) -> AvroType:
        inside = (*above, schema["name"])
        fields = {
            field["name"]: self.of(field["type"], f"{path}.{field['name']}".lstrip("."), inside) for field in schema["fields"]
        }
        spark = [{"name": name, "type": field.spark, "nullable": True, "metadata": {}} for name, field in fields.items()]
        make = _each_field({name: field.make for name, field in fields.items()})
        unmake = _each_field({name: field.unmake for name, field in fields.items()})
        kind: Any = {"type": "struct", "fields": spark}
        return AvroType(kind, make, unmake)

    def _union(self, branches: Sequence[Schema], path: str, above: tuple[str, ...]) -> AvroType:
        others = [branch for branch in branches if branch != "null"]
        for wider in WIDER:
            if sorted(map(str, others)) == sorted(wider):
                return AvroType(wider[1])
        if len(others) != 1:
            kinds = ", ".join(one if isinstance(one, str) else str(one.get("name", one["type"])) for one in branches)
            raise self._refused(path, f"it is a union of {kinds}", "Give it one type, and null if it may be missing.")
        inner = self.of(others[0], path, above)
        unmake = inner.unmake if "null" not in branches else _unless_null(inner.unmake)
        return AvroType(inner.spark, _unless_null(inner.make), unmake)

    def _decimal(self, schema: Schema, path: str) -> AvroType:
        precision, scale = schema["precision"], schema.get("scale", 0)
        if precision > _LONGEST_DECIMAL:
            raise self._refused(
                path, f"it is a decimal of {precision} digits", f"Spark has decimals of at most {_LONGEST_DECIMAL} digits."
            )
        return AvroType(f"decimal({precision},{scale})", _decimal(scale))

    def _refused(self, path: str, because: str, remedy: str) -> Usage:
        where = f"Field {path!r} of" if path else "The schema of"
        return Usage(f"{where} subject {self._subject!r} has no Spark type: {because}.", remedy=remedy)


def _array(element: AvroType) -> AvroType:
    spark: Json = {"type": "array", "elementType": element.spark, "containsNull": True}
    return AvroType(spark, _each(element.make), _each(element.unmake))


def _map(value: AvroType) -> AvroType:
    """Return the type of a map, which Arrow takes, and gives, as pairs."""
    spark: Json = {"type": "map", "keyType": "string", "valueType": value.spark, "valueContainsNull": True}
    make, unmake = value.make or _as_it_is, value.unmake or _as_it_is
    return AvroType(
        spark,
        lambda values: [(key, make(inner)) for key, inner in values.items()],
        lambda pairs: {key: unmake(inner) for key, inner in pairs},
    )


def _each_field(acts: Mapping[str, Make | None]) -> Make | None:
    """Return a function that applies `acts` to a record's fields in place, None if there is nothing to apply."""
    wanted = [(name, act) for name, act in acts.items() if act is not None]

    def made(value: dict[str, Any]) -> dict[str, Any]:
        for name, act in wanted:
            value[name] = act(value[name])
        return value

    return made if wanted else None


def _each(act: Make | None) -> Make | None:
    return None if act is None else lambda values: [act(value) for value in values]


def _unless_null(act: Make | None) -> Make | None:
    return None if act is None else lambda value: None if value is None else act(value)


def _as_it_is(value: Any) -> Any:
    return value


def _no_null(value: Any) -> Any:
    """Return `value`. Raises ValueError for None, which fastavro would write as false."""
    if value is None:
        raise ValueError("a boolean is null, which the schema does not allow")
    return value


def _decimal(scale: int) -> Make:
    """Return a converter to Decimal. A default, or a value whose writer did not declare it a decimal, arrives as bytes."""

    def made(value: Decimal | bytes | str) -> Decimal:
        if isinstance(value, Decimal):
            return value
        return Decimal(int.from_bytes(_bytes(value), "big", signed=True)).scaleb(-scale, _EXACT)

    return made


def _bytes(value: bytes | str) -> bytes:
    """Return `value` as bytes. A default of bytes is text in the schema."""
    return value.encode("iso-8859-1") if isinstance(value, str) else value


def _of_thousandths(value: datetime | int) -> datetime | int:
    """Return a timestamp. If the writer did not declare it one it is a number of milliseconds, and Arrow takes microseconds."""
    return value if isinstance(value, datetime) else value * 1000


def _millis_of_day(value: time | int) -> int:
    return _micros_of_day(value) // 1000 if isinstance(value, time) else value


def _micros_of_day(value: time | int) -> int:
    if not isinstance(value, time):
        return value
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


_LOGICAL: Mapping[tuple[str, str | None], AvroType] = {
    ("enum", None): AvroType("string"),
    ("fixed", None): AvroType("binary", _bytes),
    ("string", "uuid"): AvroType("string", str),
    ("int", "date"): AvroType("date"),
    ("int", "time-millis"): AvroType("integer", _millis_of_day),
    ("long", "time-micros"): AvroType("long", _micros_of_day),
    ("long", "timestamp-millis"): AvroType("timestamp", _of_thousandths),
    ("long", "timestamp-micros"): AvroType("timestamp"),
    ("long", "local-timestamp-millis"): AvroType("timestamp_ntz", _of_thousandths),
    ("long", "local-timestamp-micros"): AvroType("timestamp_ntz"),
}
"""Types without fields, by Avro's type and logical type; others map like their plain type."""
