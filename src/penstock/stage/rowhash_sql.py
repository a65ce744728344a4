"""The Spark SQL expression of a row's hash, equal to `penstock.rowhash.row_hashes` of the same rows."""

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from penstock.errors import Usage
from penstock.sparkname import quoted

_HASHED = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
        *("string", "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz", "time", "daytimeinterval", "void"),
    }
)
_BINARY_COLLATION = "UTF8_BINARY"


def rowhash_sql(schema: StructType) -> str:
    """`xxhash64` over all columns in their order. Raises Usage for a type that no sink could verify."""
    names = _lambda_names()
    return f"xxhash64({', '.join(_hashable(quoted(field.name), field.dataType, field.name, names) for field in schema.fields)})"


def _lambda_names() -> Iterator[str]:
    number = 0
    while True:
        yield f"e{number}"
        number += 1


def _hashable(sql: str, kind: DataType, path: str, names: Iterator[str]) -> str:
    """`sql`, rewritten where Spark would refuse to hash it (maps) or would not hash its bytes (collations)."""
    if isinstance(kind, StructType):
        return _hashable_struct(sql, kind, path, names)
    if isinstance(kind, ArrayType):
        name = next(names)
        element = _hashable(name, kind.elementType, f"{path}.element", names)
        return sql if element == name else f"transform({sql}, {name} -> {element})"
    if isinstance(kind, MapType):
        return _hashable_map(sql, kind, path, names)
    if isinstance(kind, StringType) and getattr(kind, "collation", _BINARY_COLLATION) != _BINARY_COLLATION:
        return f"collate({sql}, '{_BINARY_COLLATION}')"
    if kind.typeName() not in _HASHED:
        raise Usage(
            f"Column {path!r} has the Spark type {kind.simpleString()}, which has no content hash.",
            remedy="Cast it in the transform, to STRING or to a number, say.",
        )
    return sql


def _hashable_struct(sql: str, kind: StructType, path: str, names: Iterator[str]) -> str:
    plain = [f"{sql}.{quoted(field.name)}" for field in kind.fields]
    hashed = [
        _hashable(field_sql, field.dataType, f"{path}.{field.name}", names)
        for field_sql, field in zip(plain, kind.fields, strict=True)
    ]
    return sql if hashed == plain else f"if({sql} IS NULL, NULL, struct({', '.join(hashed)}))"


def _hashable_map(sql: str, kind: MapType, path: str, names: Iterator[str]) -> str:
    entry = next(names)
    plain = [f"{entry}.key", f"{entry}.value"]
    hashed = [
        _hashable(plain[0], kind.keyType, f"{path}.key", names),
        _hashable(plain[1], kind.valueType, f"{path}.value", names),
    ]
    entries = f"map_entries({sql})"
    return entries if hashed == plain else f"transform({entries}, {entry} -> struct({', '.join(hashed)}))"
