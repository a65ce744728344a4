"""Numbers of columns in the schema of a Parquet file, as readers of Iceberg look columns up by number."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

_KEY = b"PARQUET:field_id"


def with_field_ids(schema: "pa.Schema", ids: Mapping[str, int]) -> "pa.Schema":
    """Return `schema` with the number of every field, at any depth; `ids` are by path: `tags.element`, `counts.value`.

    Raises KeyError for a field without a number.
    """
    return pa.schema([_numbered(field, field.name, ids) for field in schema], metadata=schema.metadata)


def is_numbered(schema: "pa.Schema") -> bool:
    """Return whether the columns of a file have numbers."""
    return any(number is not None for field in schema for number in _numbers(field))


def columns_by_number(schema: "pa.Schema", ids: Mapping[str, int]) -> Mapping[str, str]:
    """Return the columns of a file that readers of a table with the numbers `ids` find: the table's names, and the file's own."""
    names = {number: path for path, number in ids.items()}
    numbers = {field.name: next(_numbers(field)) for field in schema}
    return {names[number]: name for name, number in numbers.items() if number in names}


def has_numbers(schema: "pa.Schema", ids: Mapping[str, int]) -> bool:
    """Return whether every field of a file, at any depth, has the number that `ids` have for its path."""
    return all(ids.get(path) == number for field in schema for path, number in _by_path(field, field.name))


def require_found(schema: "pa.Schema", ids: Mapping[str, int]) -> None:
    """Raise ValueError if readers of a table with the numbers `ids` do not find all that a file has."""
    known = {None, *ids.values()}
    lost = next((field.name for field in schema if not known.issuperset(_numbers(field))), None)
    if lost is not None:
        raise ValueError(f"readers find NULL in its column {lost!r}, whose number the table has no more")


def _numbers(field: "pa.Field") -> Iterator[int | None]:
    """Yield the number of a field, and those inside of it."""
    return (number for _, number in _by_path(field, field.name))


def _by_path(field: "pa.Field", path: str) -> Iterator[tuple[str, int | None]]:
    """Yield path and number of a field, and of those inside of it."""
    text = (field.metadata or {}).get(_KEY)
    yield path, None if text is None else int(text)
    for name, inner in _fields_in(field.type).items():
        yield from _by_path(inner, f"{path}.{name}")


def _fields_in(kind: "pa.DataType") -> Mapping[str, "pa.Field"]:
    """Return the fields inside of a type, by their part of a path."""
    if pa.types.is_struct(kind):
        return {field.name: field for field in kind}
    if pa.types.is_map(kind):
        return {"key": kind.key_field, "value": kind.item_field}
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return {"element": kind.value_field} if is_list else {}


def _numbered(field: "pa.Field", path: str, ids: Mapping[str, int]) -> "pa.Field":
    metadata = {**(field.metadata or {}), _KEY: str(ids[path]).encode()}
    return field.with_type(_inside(field.type, path, ids)).with_metadata(metadata)


def _inside(kind: "pa.DataType", path: str, ids: Mapping[str, int]) -> "pa.DataType":
    if pa.types.is_struct(kind):
        return pa.struct([_numbered(field, f"{path}.{field.name}", ids) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_field, f"{path}.key", ids), _numbered(kind.item_field, f"{path}.value", ids))
    if pa.types.is_list(kind):
        return pa.list_(_numbered(kind.value_field, f"{path}.element", ids))
    return kind
