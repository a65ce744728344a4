"""Conversion of Avro values to columns whose type may have been another one when the values were written.

A connector's settings (`time.precision.mode`, `decimal.handling.mode`, `binary.handling.mode`) and a table's columns change, and
the older records stay in the topic. Avro would resolve them without a word, since a long is a long: here a value is converted
from what it stood for when it was written, or refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.model import Json
from penstock.registry.json_schema import Misfit, taken, whole
from penstock.registry.semantic_type import (
    DATE_NAMES,
    DECIMAL,
    NUMBERS,
    UNITS,
    UNKNOWN,
    VARIABLE_DECIMAL,
    WHOLE_NUMBERS,
    ZONED_TIMESTAMP,
    Convert,
    SemanticType,
    array_of,
    converter,
    map_of,
)
from penstock.registry.wire import Undecodable

_AS_WRITTEN = frozenset(
    {
        ("int32", "integer"),
        ("int64", "long"),
        ("float", "float"),
        ("double", "double"),
        ("boolean", "boolean"),
        ("bytes", "binary"),
        ("string", "string"),
    }
)
"""Types of values that are taken as they are, in columns whose values stand for the same."""


def column_converter(written: SemanticType, column: SemanticType, spark: Json) -> Convert:
    """Return the conversion of values that stood for `written` to a column of the Spark type `spark` that stands for `column`.

    It raises Undecodable for every value if it is not known what such values are in the column.
    """
    if isinstance(spark, dict):
        return _of_nested(written, column, spark)
    if written == column and (written.kind, spark) in _AS_WRITTEN:
        return _as_written
    if written.name == column.name and written.kind == column.kind:
        return converter(written, spark)
    units = next((group for group in UNITS if written.name in group and column.name in group), None)
    if spark in {"integer", "long"} and units is not None:
        return _scaled(written, column, spark, units)
    known = _KNOWN["decimal" if str(spark).startswith("decimal") else str(spark)]
    return converter(written, spark) if known(written, column) else _changed(written, column)


def _of_nested(written: SemanticType, column: SemanticType, spark: Any) -> Convert:
    kind = spark["type"]
    if written.kind != kind:
        return _changed(written, column)
    if kind == "struct":
        lacks = dict(column.fields).keys() - dict(written.fields)
        return _changed(written, column) if lacks else _struct(dict(written.fields), dict(column.fields), spark["fields"])
    inner = "elementType" if kind == "array" else "valueType"
    element = column_converter(written.element or UNKNOWN, column.element or UNKNOWN, spark[inner])
    if kind == "map":
        return map_of(element)
    return _as_written if element is _as_written else array_of(element)


def _struct(written: Mapping[str, SemanticType], columns: Mapping[str, SemanticType], fields: Any) -> Convert:
    names = {each["name"]: each["type"] for each in fields}
    of = {name: column_converter(written[name], columns[name], kind) for name, kind in names.items()}

    def made(value: Any, place: str) -> dict[str, Any]:
        given = taken(value, dict, "a record", place)
        return {name: None if given[name] is None else of[name](given[name], f"{place}.{name}") for name in of}

    return made


def _as_written(value: Any, place: str) -> Any:  # noqa: ARG001 - nothing is wrong with it
    return value


def _scaled(written: SemanticType, column: SemanticType, spark: str, units: Mapping[str, int]) -> Convert:
    """Return the conversion to whole numbers that count another unit of time."""
    unit, other = units[str(written.name)], units[str(column.name)]
    within = converter(column, spark)

    def made(value: Any, place: str) -> Any:
        found, rest = divmod(whole(value, place) * unit, other)
        if rest:
            raise Misfit(f"{place} is a {written.name} that no whole number of {column.name} is, found {value}")
        return within(found, place)

    return made


def _changed(written: SemanticType, column: SemanticType) -> Convert:
    """Return the refusal of values that stood for something else."""

    def made(value: Any, place: str) -> Any:  # noqa: ARG001 - no value is taken
        raise Undecodable(f"{place} was written as {written.described}, and its column is {column.described}", remedy=_CHANGED)

    return made


_CHANGED = (
    "The connector's settings or the table's column changed. Put such records aside by `undecodable: quarantine`, or have the "
    "connector write the table into a new topic by a snapshot."
)


def _is_number(kinds: frozenset[str]) -> Callable[[SemanticType, SemanticType], bool]:
    return lambda written, column: all(each.is_plain and each.kind in kinds for each in (written, column))


def _is_point(written: SemanticType, column: SemanticType) -> bool:
    if column.name == ZONED_TIMESTAMP:
        return written.kind == "string" and written.is_plain
    return written.name in UNITS[0] and column.name in UNITS[0]


def _is_decimal(written: SemanticType, _: SemanticType) -> bool:
    return written.name in {DECIMAL, VARIABLE_DECIMAL} or (written.is_plain and written.kind in {"string", *WHOLE_NUMBERS})


def _is_text(written: SemanticType, _: SemanticType) -> bool:
    return written.kind == "string" or written.name in {DECIMAL, VARIABLE_DECIMAL}


_KNOWN: Mapping[str, Callable[[SemanticType, SemanticType], bool]] = {
    "boolean": lambda written, _: written.kind == "boolean",
    "integer": _is_number(WHOLE_NUMBERS),
    "long": _is_number(WHOLE_NUMBERS),
    "float": _is_number(NUMBERS),
    "double": _is_number(NUMBERS),
    "binary": lambda written, _: written.kind == "bytes" and written.name != DECIMAL,
    "string": _is_text,
    "date": lambda written, _: written.name in DATE_NAMES,
    "timestamp": _is_point,
    "timestamp_ntz": _is_point,
    "decimal": _is_decimal,
}
"""By the column's type, whether it is known what values that stood for something else are in it."""
