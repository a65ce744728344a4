"""The Spark SQL expression of a row's hash, equal to `penstock.core.row_hash.row_hashes` of the same rows."""

from collections.abc import Sequence
from itertools import count

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from penstock.core.model import RowDigest
from penstock.core.row_hash import NULL_ELEMENT, presence_masks
from penstock.errors import Usage
from penstock.spark.column_name import quoted

_HASHED = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal",
    "string", "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz", "time", "daytimeinterval", "void",
})  # fmt: skip
_BINARY_COLLATION = "UTF8_BINARY"


def rowhash_sql(schema: StructType, row_digest: RowDigest, *, columns: Sequence[str] | None = None) -> str:
    """Return `xxhash64` over all columns in their order and, with `XXHASH64_NULLS`, over which values are NULL.

    `columns` are the names to compute from, by default the schema's. Raises Usage for a type that no sink could verify.
    """
    hashed = _RowHash(marks=row_digest is RowDigest.XXHASH64_NULLS)
    names = [quoted(name) for name in (columns or schema.names)]
    return f"xxhash64({', '.join(hashed.fields(names, schema, path=''))})"


class _RowHash:
    """Builds the arguments of `xxhash64`. All arguments for a NULL value are NULL, so that it does not count."""

    def __init__(self, *, marks: bool) -> None:
        self._marks, self._names = marks, (f"e{number}" for number in count())

    def fields(self, values: Sequence[str], data_type: StructType, *, path: str) -> list[str]:
        """Return the arguments for all columns, or for a struct's fields, and then one for which of them are not NULL."""
        parts = [
            part
            for sql, field in zip(values, data_type.fields, strict=True)
            for part in self._value(sql, field.dataType, path + field.name)
        ]
        return [*parts, _presence(values, data_type.names)] if self._marks else parts

    def _value(self, sql: str, data_type: DataType, path: str) -> list[str]:
        """Return `sql`, rewritten where Spark would refuse to hash it (maps) or would not hash its bytes (collations)."""
        if isinstance(data_type, StructType):
            return self._struct(sql, data_type, path)
        if isinstance(data_type, ArrayType):
            return self._array(sql, data_type, path)
        if isinstance(data_type, MapType):
            return self._map(sql, data_type, path)
        if isinstance(data_type, StringType) and getattr(data_type, "collation", _BINARY_COLLATION) != _BINARY_COLLATION:
            return [f"collate({sql}, '{_BINARY_COLLATION}')"]
        if data_type.typeName() not in _HASHED:
            raise Usage(
                f"Column {path!r} has the Spark type {data_type.simpleString()}, which has no content hash.",
                remedy="Cast it in the transform, to STRING or to a number, say.",
            )
        return [sql]

    def _struct(self, sql: str, data_type: StructType, path: str) -> list[str]:
        plain = [f"{sql}.{quoted(name)}" for name in data_type.names]
        parts = self.fields(plain, data_type, path=f"{path}.")
        if not self._marks:
            return [sql] if parts == plain else [f"if({sql} IS NULL, NULL, struct({', '.join(parts)}))"]
        presence = f"if({sql} IS NULL, NULL, {parts[-1]})"
        return [sql, presence] if parts[:-1] == plain else [*parts[:-1], presence]

    def _array(self, sql: str, data_type: ArrayType, path: str) -> list[str]:
        name = next(self._names)
        element = _one(self._value(name, data_type.elementType, f"{path}.element"))
        elements = sql if element == name else f"transform({sql}, {name} -> {element})"
        return [elements, *self._elements(sql, sql, contains_null=data_type.containsNull)]

    def _map(self, sql: str, data_type: MapType, path: str) -> list[str]:
        entry, entries = next(self._names), f"map_entries({sql})"
        plain = [f"{entry}.key", f"{entry}.value"]
        key = self._value(plain[0], data_type.keyType, f"{path}.key")
        parts = [*key, *self._value(plain[1], data_type.valueType, f"{path}.value")]
        hashed = entries if parts == plain else f"transform({entries}, {entry} -> struct({', '.join(parts)}))"
        return [hashed, *self._elements(sql, f"map_values({sql})", contains_null=data_type.valueContainsNull)]

    def _elements(self, sql: str, elements: str, *, contains_null: bool) -> list[str]:
        """Return the arguments for where elements are NULL and for how many there are."""
        if not self._marks:
            return []
        size = f"if({sql} IS NULL, NULL, size({sql}))"
        if not contains_null:
            return [size]
        name, index = next(self._names), next(self._names)
        return [f"transform({elements}, ({name}, {index}) -> if({name} IS NULL, {index} + {NULL_ELEMENT}L, NULL))", size]


def _one(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"struct({', '.join(parts)})"


def _presence(values: Sequence[str], names: Sequence[str]) -> str:
    words = zip(values, presence_masks(tuple(names)), strict=True)
    return _either([f"if({sql} IS NULL, 0L, {word}L)" for sql, word in words] or ["0L"])


def _either(words: Sequence[str]) -> str:
    """Return the exclusive or of all `words` as a balanced tree, because Spark walks through expressions by recursion."""
    if len(words) == 1:
        return words[0]
    half = len(words) // 2
    return f"({_either(words[:half])} ^ {_either(words[half:])})"
