"""Protobuf: maps messages to Spark types, and reads and writes values in Protobuf's binary encoding.

A value names its message within its schema, and is read by the reader's message, as Protobuf does it: fields are found by number,
unknown ones are ignored, and missing ones have their default, or are null where the schema tells missing from default.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError
from grpc_tools import protoc

from penstock.core.model import Json
from penstock.errors import Retryable, Usage
from penstock.registry.wire import HEAD, Registered, Undecodable

Make: TypeAlias = Callable[[Any], Any]

_MAIN = "penstock.main.proto"
_GOOD = "penstock.good.proto"
_GOOD_TEXT = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Good {}'
_ROOM = 2**20
"""Bytes that must fit into the directory before a failure of protoc is taken as one of the schema."""
_KNOWN_FILES = Path(grpc_tools.__file__).parent / "_proto"
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SCALARS: Mapping[int, str] = {
    FieldDescriptor.CPPTYPE_INT32: "integer",
    FieldDescriptor.CPPTYPE_INT64: "long",
    FieldDescriptor.CPPTYPE_UINT32: "long",
    FieldDescriptor.CPPTYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
}
_WHOLE = frozenset({FieldDescriptor.CPPTYPE_UINT64})
_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LONGEST_VARINT = 5
_FIRST = b"\0"
"""Short form of the path to the first message of a file."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class ProtoType:
    """How a field maps: Spark's type, `make` from Protobuf's value to Arrow's, and `unmake` to an argument of its constructor."""

    spark: Json
    make: Make
    unmake: Make = lambda value: value


class ProtobufReader:
    """Reads and writes values as the first message of `reader`.

    The constructor raises Usage if that message has no Spark type, naming the field.
    """

    kind = "PROTOBUF"

    def __init__(self, reader: Registered, *, subject: str) -> None:
        messages = list(compiled(reader).message_types_by_name.values())
        if not messages:
            raise Usage(f"The schema of subject {subject!r} has no message.", remedy="Name another `subject` or `version`.")
        self._message: Descriptor = messages[0]
        self._class = message_factory.GetMessageClass(self._message)
        self._type = _message(self._message, subject, "", ())

    @property
    def spark(self) -> Json:
        return self._type.spark

    def read(self, value: bytes, writer: Registered) -> Any:
        try:
            path, begin = _path_in(value)
            written = _at(compiled(writer), path)
        except (Usage, IndexError) as error:
            reason = f"it names no message of its schema: {error}"
            raise Undecodable(reason, schema_id=writer.schema_id) from error
        if written.full_name != self._message.full_name:
            reason = f"it is a message {written.full_name}, expected {self._message.full_name}"
            raise Undecodable(reason, schema_id=writer.schema_id)
        try:
            return self._type.make(self._class.FromString(value[begin:]))
        except (DecodeError, ValueError, OverflowError) as error:
            raise Undecodable(f"it is no {written.full_name}: {error}", schema_id=writer.schema_id) from error

    def write(self, value: Any) -> bytes:
        """Encode a value from Arrow, without the schema's id but with the path of the message."""
        written: bytes = self._class(**self._type.unmake(value)).SerializeToString(deterministic=True)
        return _FIRST + written


@cache
def compiled(schema: Registered) -> FileDescriptor:
    """Compile a schema with all that it imports. Raises Usage for an invalid one, Retryable if protoc does not work here."""
    outside = [one.name for one in schema.references if Path(one.name).is_absolute() or ".." in Path(one.name).parts]
    if outside:
        raise Usage(
            f"The schema with id {schema.schema_id} imports {outside[0]!r}, which is no name of a file below another.",
            remedy="Register it with names like shop/address.proto.",
        )
    with TemporaryDirectory(prefix="penstock-protobuf-") as directory:
        for name, text in [*((one.name, one.text) for one in schema.references), (_MAIN, schema.text)]:
            file = Path(directory, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        _compile(schema, directory)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(directory, "out").read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for each in files:
        pool.Add(each)
    return pool.FindFileByName(_MAIN)


def _compile(schema: Registered, directory: str) -> None:
    """Compile the files in `directory` into its file `out`. The second failure counts: the cause of the first can be gone."""
    if _compiles(_MAIN, directory):
        return
    _require_working(directory)
    if not _compiles(_MAIN, directory):
        raise Usage(
            f"The schema with id {schema.schema_id} is no schema of Protobuf that protoc compiles.",
            remedy="Name another `subject` or `version`, or its real `format`.",
        )


def _compiles(name: str, directory: str) -> bool:
    places = [f"-I{directory}", f"-I{_KNOWN_FILES}"]
    code: int = protoc.main(["protoc", *places, "--include_imports", f"--descriptor_set_out={directory}/out", name])
    return code == 0


def _require_working(directory: str) -> None:
    """Raise Retryable if protoc may have failed because of this machine, which would make all records undecodable."""
    why = "it does not compile a schema that is right"
    try:
        Path(directory, _GOOD).write_text(_GOOD_TEXT, encoding="utf-8")
        with Path(directory, "room").open("wb") as room:
            room.write(bytes(_ROOM))
            room.flush()
            os.fsync(room.fileno())
        Path(directory, "room").unlink()
        if _compiles(_GOOD, directory):
            return
    except OSError as error:
        why = str(error)
    raise Retryable(
        f"Schemas of Protobuf cannot be compiled in {directory}: {why}.",
        remedy="Give the machine of this task room for temporary files (TMPDIR) and start again: no record was skipped.",
    )


def _path_in(value: bytes) -> tuple[list[int], int]:
    """Return the path to the message in its file, level by level, and where its bytes begin. Raises IndexError."""
    count, at = _varint(value, HEAD)
    if count == 0:
        return [0], at
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        path.append(index)
    return path, at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and where it ends."""
    found = 0
    for place in range(_LONGEST_VARINT):
        byte = value[at + place]
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise IndexError("its number has too many bytes")


def _at(file: FileDescriptor, path: list[int]) -> Descriptor:
    """Return the message at `path`. Raises IndexError."""
    if not path or min(path) < 0:
        raise IndexError("its number is negative")
    found: Descriptor = list(file.message_types_by_name.values())[path[0]]
    for index in path[1:]:
        found = found.nested_types[index]
    return found


def _message(message: Descriptor, subject: str, path: str, above: tuple[str, ...]) -> ProtoType:
    if message.full_name in above:
        raise Usage(
            f"Field {path!r} of subject {subject!r} has no Spark type: {message.full_name} contains itself.",
            remedy="Leave such a field out of the schema that is read by.",
        )
    inside = (*above, message.full_name)
    fields = [(field, _field(field, subject, f"{path}.{field.name}".lstrip("."), inside)) for field in message.fields]
    spark: Any = [{"name": field.name, "type": made.spark, "nullable": True, "metadata": {}} for field, made in fields]

    def made(value: Any) -> dict[str, Any]:
        return {
            field.name: None if field.has_presence and not value.HasField(field.name) else kind.make(getattr(value, field.name))
            for field, kind in fields
        }

    def unmade(value: Any) -> dict[str, Any]:
        for field, _ in fields:
            if value[field.name] is None and not field.has_presence:
                raise ValueError(f"field {field.name!r} is null, which its message cannot tell from the default")
        return {field.name: kind.unmake(value[field.name]) for field, kind in fields if value[field.name] is not None}

    return ProtoType({"type": "struct", "fields": spark}, made, unmade)


def _field(field: FieldDescriptor, subject: str, path: str, above: tuple[str, ...]) -> ProtoType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field.message_type, subject, path, above)
    one = _one(field, subject, path, above)
    if not field.is_repeated:
        return one
    spark: Json = {"type": "array", "elementType": one.spark, "containsNull": True}
    return ProtoType(
        spark,
        lambda values: [one.make(value) for value in values],
        lambda values: [one.unmake(_no_null(value, field)) for value in values],
    )


def _map(entry: Descriptor, subject: str, path: str, above: tuple[str, ...]) -> ProtoType:
    key = _one(entry.fields_by_name["key"], subject, f"{path}.key", above)
    inner = _one(entry.fields_by_name["value"], subject, f"{path}.value", above)
    spark: Json = {"type": "map", "keyType": key.spark, "valueType": inner.spark, "valueContainsNull": True}
    return ProtoType(
        spark,
        lambda values: [(key.make(name), inner.make(values[name])) for name in values],
        lambda pairs: {key.unmake(name): inner.unmake(_no_null(value, entry)) for name, value in pairs},
    )


def _no_null(value: Any, of: FieldDescriptor | Descriptor) -> Any:
    """Raise ValueError for a null element, which Protobuf would write as its default."""
    if value is None:
        raise ValueError(f"an element of {of.name!r} is null, which Protobuf has not")
    return value


def _one(field: FieldDescriptor, subject: str, path: str, above: tuple[str, ...]) -> ProtoType:
    """Return the type of one value of the field, repeated or not."""
    message = field.message_type
    if message is None:
        return _scalar(field)
    if message.full_name == _TIMESTAMP:
        return ProtoType("timestamp", lambda value: value.seconds * _MILLION + value.nanos // 1000, _of_moment)
    if message.full_name in _WRAPPERS:
        wrapped = _scalar(message.fields_by_name["value"])
        return ProtoType(wrapped.spark, lambda value: wrapped.make(value.value), lambda value: {"value": wrapped.unmake(value)})
    return _message(message, subject, path, above)


def _scalar(field: FieldDescriptor) -> ProtoType:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return ProtoType("binary", bytes)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return ProtoType("string", lambda number: names.get(number, str(number)), _of_name)
    unmake: Make = int if field.cpp_type in _WHOLE else lambda value: value
    return ProtoType(_SCALARS[field.cpp_type], lambda value: value, unmake)


def _of_name(name: str) -> str | int:
    """Return an enum's value as Protobuf takes it; one that the schema does not know is a number."""
    return int(name) if name.lstrip("-").isdecimal() else name


def _of_moment(value: datetime) -> dict[str, int]:
    since = value - _BEGINNING
    seconds, micros = since.days * 86_400 + since.seconds, since.microseconds
    return {"seconds": seconds, "nanos": micros * 1000}
