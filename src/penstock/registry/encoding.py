"""Spark pass that encodes columns by schemas of a registry, in the tasks that computed the rows. It registers nothing."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.core.model import Json
from penstock.errors import StageFailed, Usage
from penstock.registry.decoding import CodedColumn, Reader
from penstock.registry.wire import first_line, framed
from penstock.support.error_transport import errors_through_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodePass:
    """Encodes with `mapInArrow` over rows that `schema_after_encoding` accepts. Picklable: holds schemas as text, no client."""

    coded: tuple[CodedColumn, ...]

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with errors_through_spark():
            columns = [(coded, coded.reader()) for coded in self.coded]
            for batch in batches:
                arrays = list(batch.columns)
                for coded, reader in columns:
                    place = batch.schema.names.index(coded.column)
                    arrays[place] = pa.array(_encoded(arrays[place].to_pylist(), coded, reader), pa.binary())
                yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _encoded(values: list[Any], coded: CodedColumn, reader: Reader) -> Iterator[bytes | None]:
    for value in values:
        try:  # a value that the schema does not allow can raise any exception
            yield None if value is None else framed(coded.schema.schema_id, reader.write(value))
        except Exception as error:
            raise StageFailed(
                f"A value of column {coded.column!r} cannot be written by the schema with id {coded.schema.schema_id} of subject "
                f"{coded.subject!r}: {first_line(error)}.",
                remedy="Nothing of the batch was decided. Correct the value in the transform.",
            ) from error


def schema_after_encoding(schema: Mapping[str, Json], coded: Iterable[CodedColumn]) -> str:
    """Return the rows' columns after encoding, in Spark's JSON. Raises Usage if a column has not the type of its schema."""
    expected = {each.column: each for each in coded}
    fields: Any = schema["fields"]
    found = {field["name"]: field["type"] for field in fields}
    for column, each in expected.items():
        _require_fitting(found.get(column), each)
    changed = [{**field, "type": "binary" if field["name"] in expected else field["type"]} for field in fields]
    return json.dumps({**schema, "fields": changed})


def _require_fitting(found: Json, coded: CodedColumn) -> None:
    if found is None:
        raise Usage(
            f"There is no column {coded.column!r}, which `encode` names.",
            remedy=f"Select it in the transform: … AS {coded.column}.",
        )
    misfit = _misfit(coded.reader().spark, found, coded.column)
    if misfit is not None:
        raise Usage(
            f"The rows do not fit the schema of subject {coded.subject!r}, version {coded.schema.version}: {misfit}.",
            remedy="CAST it in the transform, or name another `version`; fields are found by name: named_struct('id', id, …).",
        )


def _misfit(expected: Any, found: Any, path: str) -> str | None:
    """Return the first difference of the type `found` from the expected one, None if there is none. Nullability is ignored."""
    if not isinstance(expected, dict) or not isinstance(found, dict) or expected["type"] != found["type"]:
        found_kind, kind = (str(each["type"]) if isinstance(each, dict) else str(each) for each in (found, expected))
        return None if expected == found else f"{path} is {found_kind}, expected {kind}"
    if expected["type"] == "struct":
        return _misfit_of_fields(expected["fields"], found["fields"], path)
    inner = {"array": ("elementType",), "map": ("keyType", "valueType")}[expected["type"]]
    return next((misfit for key in inner if (misfit := _misfit(expected[key], found[key], path))), None)


def _misfit_of_fields(expected: list[Any], found: list[Any], path: str) -> str | None:
    wanted, given = ({field["name"]: field["type"] for field in fields} for fields in (expected, found))
    for name in wanted:
        if name not in given:
            return f"{path} has no field {name!r}"
    for name, kind in given.items():
        if name not in wanted:
            return f"{path} has a field {name!r} that the schema has not"
        misfit = _misfit(wanted[name], kind, f"{path}.{name}")
        if misfit is not None:
            return misfit
    return None
