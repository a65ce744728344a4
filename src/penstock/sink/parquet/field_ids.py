"""Field ids in the schema of a Parquet file, by which readers of Iceberg find columns."""

from collections.abc import Mapping

import pyarrow as pa

_KEY = b"PARQUET:field_id"


def with_field_ids(schema: "pa.Schema", ids: Mapping[str, int]) -> "pa.Schema":
    """Return `schema` with the id of every field, at any depth; `ids` has them by path: `tags.element`, `counts.value`.

    Raises KeyError for a field without an id.
    """
    return pa.schema([_numbered(field, field.name, ids) for field in schema], metadata=schema.metadata)


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
