"""Semantic types of Kafka Connect, Debezium's among them, and the conversion of their values to Spark's types.

A semantic type is the name of a field's schema. It says what the field's number, text or bytes stand for; without it a number is
no point in time. Every conversion is exact: what the column's type does not hold is a `Misfit`.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

import binascii
import re
import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import inf, isfinite
from typing import Any, Final, TypeAlias

from penstock.core.model import Json
from penstock.registry.json_schema import Misfit, misfit, number, taken, whole

Convert: TypeAlias = Callable[[Any, str], Any]
"""Converts one value that is not null; the second argument is its place, for messages. Raises Misfit."""

_TIME, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
DATE, NANO_TIMESTAMP, ZONED_TIMESTAMP = f"{_TIME}Date", f"{_TIME}NanoTimestamp", f"{_TIME}ZonedTimestamp"
DECIMAL, VARIABLE_DECIMAL = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
TEXT: Final = "string"
"""Connect's type of texts, for a field without a name: a decimal that is written as text."""
_GEOMETRY = "io.debezium.data.geometry."

POINTS: Mapping[str, int] = {
    f"{_TIME}Timestamp": 1_000_000,
    f"{_TIME}MicroTimestamp": 1000,
    NANO_TIMESTAMP: 1,
    f"{_CONNECT}Timestamp": 1_000_000,
}
"""Nanoseconds in one unit of the types that count since 1970, and that a user can name."""
_OF_AVRO: Mapping[str, int] = {
    f"{zone}timestamp-{unit}s": nanos
    for zone in ("", "local-")
    for unit, nanos in (("milli", 1_000_000), ("micro", 1000), ("nano", 1))
}
"""The same for Avro's logical types, which count since 1970 where Connect's name is missing."""
UNITS: tuple[Mapping[str, int], ...] = (
    {**POINTS, **_OF_AVRO},
    {
        f"{_TIME}Time": 1_000_000,
        f"{_TIME}MicroTime": 1000,
        f"{_TIME}NanoTime": 1,
        f"{_CONNECT}Time": 1_000_000,
        "time-millis": 1_000_000,
        "time-micros": 1000,
    },
    {f"{_TIME}MicroDuration": 1000, f"{_TIME}NanoDuration": 1},
)
"""Nanoseconds in one unit of the types of points in time, times of a day, and durations: types of one group differ in it only."""
DATE_NAMES = frozenset({DATE, f"{_CONNECT}Date", f"{_TIME}IsoDate", "date", TEXT})
WHOLE_NUMBERS = frozenset({"int8", "int16", "int32", "int64"})
NUMBERS = WHOLE_NUMBERS | {"float", "double"}
"""Connect's plain types of numbers."""

AMBIGUOUS: Mapping[str, tuple[str, ...]] = {
    "date": (DATE,),
    "timestamp": (*POINTS, ZONED_TIMESTAMP),
    "timestamp_ntz": tuple(POINTS),
    "decimal": (DECIMAL, VARIABLE_DECIMAL, TEXT),
    "string": (VARIABLE_DECIMAL,),
}
"""Semantic types that a user can name for a column, by its kind. Other columns hold what their values are."""
_WRITTEN_AS: Mapping[str, str] = {
    **dict.fromkeys(POINTS, "int64"),
    DATE: "int32",
    ZONED_TIMESTAMP: "string",
    DECIMAL: "bytes",
    VARIABLE_DECIMAL: "struct",
    TEXT: "string",
}
"""Connect's plain type of their values."""

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-](?:0\d|1[0-8]):[0-5]\d)?", re.ASCII)
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)Z?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|[+-]?Infinity", re.ASCII)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, as the texts are parsed
_INTEGRALS: Mapping[str, int] = {"byte": 2**7, "short": 2**15, "integer": 2**31, "long": 2**63}
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_DECIMAL_TYPE = re.compile(r"decimal\((\d+),(\d+)\)")
_SINGLE = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class SemanticType:
    """The semantic type of a field: the `name` of its schema, else Connect's plain type, None if neither is known.

    `scale`: that of a decimal. `element`: the semantic type of an array's elements, or of a map's values. `kind`: Connect's plain
    type, None if it is not known. `fields`: those of a struct.
    """

    name: str | None = None
    scale: int | None = None
    element: "SemanticType | None" = None
    kind: str | None = None
    fields: "tuple[tuple[str, SemanticType], ...]" = ()

    @property
    def is_plain(self) -> bool:
        """Whether it has no other name than that of its values' type."""
        return self.name is None or self.name == self.kind

    @property
    def described(self) -> str:
        """Its name, and the type of its values."""
        return str(self.name) if self.is_plain else f"{self.name} ({self.kind})"

    def called(self, named: "SemanticType") -> "SemanticType":
        """Return what a user `named`, where the schema says no more than the plain type of such values, else itself."""
        if self.element is not None and named.element is not None:
            return replace(self, element=self.element.called(named.element))
        fits = self.is_plain and named.name is not None and self.kind == _WRITTEN_AS.get(named.name)
        return replace(self, name=named.name) if fits else self

    @property
    def is_geometry(self) -> bool:
        """Whether it is a shape, for which Spark has no type that sinks take."""
        return self.name is not None and self.name.startswith(_GEOMETRY)


UNKNOWN = SemanticType()
Semantics: TypeAlias = Mapping[str, SemanticType]
"""Semantic types by column."""


def converter(semantic: SemanticType, spark: Json) -> Convert:
    """Return the conversion of values of `semantic` to the Spark type `spark`, one of those that `is_convertible` takes.

    Values are those of JSON, with decimals in place of floating numbers, or those that `WrittenReader` reads.
    """
    if semantic.is_geometry:
        return _never(f"is a {semantic.name}, for which there is no type: leave its column out of `schema`")
    return _of_plain(semantic, spark) if isinstance(spark, str) else _of_nested(semantic, spark)


def _of_nested(semantic: SemanticType, spark: Any) -> Convert:
    kind = spark["type"]
    inner = converter(semantic.element or UNKNOWN, spark["elementType" if kind == "array" else "valueType"])
    return array_of(inner) if kind == "array" else map_of(inner)


def _of_plain(semantic: SemanticType, spark: str) -> Convert:
    misplaced = _MISPLACED.get((semantic.kind, spark.partition("(")[0]))
    if misplaced is not None and semantic.name != DECIMAL:
        return _never(f"has the type {semantic.described} by its schema, and is {misplaced}")
    if found := _DECIMAL_TYPE.fullmatch(spark):
        return _decimal(semantic, precision=int(found[1]), scale=int(found[2]))
    if spark in _INTEGRALS:
        return _integral(_INTEGRALS[spark])
    if spark in {"timestamp", "timestamp_ntz"}:
        return _timestamp(semantic, zoned=spark == "timestamp")
    if spark in {"float", "double"}:
        return _floating(semantic, spark)
    return {"date": _date(semantic), "string": _text(semantic)}.get(spark) or _PLAIN[spark]


_MISPLACED: Mapping[tuple[str | None, str], str] = {
    ("string", "binary"): "no bytes: set binary.handling.mode of the connector to bytes, or take STRING",
    ("bytes", "string"): "no text: take BINARY, or set binary.handling.mode of the connector to base64 or hex",
    ("bytes", "decimal"): "no decimal: take BINARY",
}
"""What is wrong with values of a plain type in a column: bytes that are written as text may be in base64 or in hex."""


def _never(reason: str) -> Convert:
    """Return the refusal of all values, of which `reason` says what they are."""

    def made(value: Any, place: str) -> Any:  # noqa: ARG001 - no value is taken
        raise Misfit(f"{place} {reason}")

    return made


def nameable(spark: Json) -> tuple[str, ...]:
    """Return the semantic types that a user can name for a column, which are those of its elements if it has some."""
    kind: Any = spark
    while isinstance(kind, dict):
        kind = kind.get("elementType") or kind.get("valueType") or ""
    return AMBIGUOUS.get(kind.partition("(")[0], ())


def is_convertible(spark: Json) -> bool:
    """Return whether `converter` takes the type: a plain one, and arrays and maps with text keys of plain ones."""
    if isinstance(spark, str):
        return spark in _KINDS or _DECIMAL_TYPE.fullmatch(spark) is not None
    kind: Any = spark
    if kind["type"] == "array":
        return is_convertible(kind["elementType"])
    return kind["type"] == "map" and kind["keyType"] == "string" and is_convertible(kind["valueType"])


def array_of(inner: Convert) -> Convert:
    """Return the conversion of arrays, of whose elements `inner` is that of one."""

    def made(value: Any, place: str) -> Any:
        items = enumerate(taken(value, list, "an array", place))
        return [None if one is None else inner(one, f"{place}[{index}]") for index, one in items]

    return made


def map_of(inner: Convert) -> Convert:
    """Return the conversion of maps to pairs, of whose values `inner` is that of one."""

    def made(value: Any, place: str) -> Any:
        pairs = taken(value, dict, "an object", place).items()
        return [(key, None if one is None else inner(one, f"{place}.{key}")) for key, one in pairs]

    return made


def _integral(limit: int) -> Convert:
    def made(value: Any, place: str) -> int:
        found = whole(value, place)
        if not -limit <= found < limit:
            raise misfit(value, f"a whole number of {limit.bit_length()} bits", place)
        return found

    return made


def _floating(semantic: SemanticType, spark: str) -> Convert:
    """Return the conversion to FLOAT or DOUBLE: exact for whole numbers, else the nearest. What is finite stays so."""
    held = _float32 if spark == "float" else float
    whole_ones = semantic.kind not in {"float", "double"}

    def made(value: Any, place: str) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return float(value)
        if isinstance(value, float) and not isfinite(value):  # only Avro has such
            return value
        near = number(float(value) if isinstance(value, Decimal) else value, place)
        found = held(near)
        if not isfinite(found) or (whole_ones and isinstance(value, int) and found != value):
            raise misfit(value, f"a number that {spark.upper()} holds", place)
        return near

    return made


def _float32(value: float) -> float:
    """Return the nearest number of 32 bits, an infinite one if it is beyond them."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return inf


def _boolean(value: Any, place: str) -> Any:
    return taken(value, bool, "true or false", place)


def _bytes(value: Any, place: str) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(taken(value, str, "bytes in base64", place), validate=True)
    except (binascii.Error, ValueError) as error:
        raise misfit(value, "bytes in base64", place) from error


def _text(semantic: SemanticType) -> Convert:
    def made(value: Any, place: str) -> str:
        if semantic.name == VARIABLE_DECIMAL:
            return format(_variable(value, place), "f")
        if semantic.name == DECIMAL:
            if semantic.scale is None:
                raise Misfit(f"{place} is a {DECIMAL} without a scale: take DECIMAL")
            return format(_number_of(semantic, semantic.scale, value, place), "f")
        return str(taken(value, str, "a text", place))

    return made


def _date(semantic: SemanticType) -> Convert:
    def made(value: Any, place: str) -> int:
        if semantic.name is not None and semantic.name not in DATE_NAMES:
            remedy = f": {_NAME_IT} {DATE}" if semantic.name == "int32" else ""
            raise Misfit(f"{place} is a {semantic.name}, and no date{remedy}")
        if isinstance(value, date):
            return (value - _EPOCH.date()).days
        if isinstance(value, str):
            return (_day(value, place) - _EPOCH.date()).days
        return int(_integral(_INTEGRALS["integer"])(value, place))

    return made


def _day(text: str, place: str) -> date:
    found = _DAY.fullmatch(text)
    try:
        if found is not None:
            return date.fromisoformat(found[1])
    except ValueError:
        pass
    raise misfit(text, "a date like 2026-01-31", place)


def _timestamp(semantic: SemanticType, *, zoned: bool) -> Convert:
    unit = UNITS[0].get(semantic.name or "")

    def made(value: Any, place: str) -> int:
        if isinstance(value, str):
            return _moment(value, place, zoned=zoned)
        if unit is None and not (semantic.name is None or semantic.name == "int64"):
            raise Misfit(f"{place} is a {semantic.name}, and no point in time")
        if unit is None:
            raise Misfit(f"{place} is a number without a unit, found {value}: {_NAME_IT} {AMBIGUOUS['timestamp_ntz'][0]}, say")
        micros, rest = divmod(whole(value, place) * unit, 1000)
        if rest:
            raise Misfit(f"{place} has nanoseconds, which a timestamp cannot hold, found {value}: BIGINT can")
        return whole(micros, place)

    return made


_NAME_IT = "name its semantic type in `semantic_types`,"


def _moment(text: str, place: str, *, zoned: bool) -> int:
    """Return microseconds since 1970 of an ISO text, which must have a zone if `zoned`, and else none."""
    found = _MOMENT.fullmatch(text)
    expected = "a time like 2026-01-31T12:30:00.5Z" if zoned else "a time like 2026-01-31T12:30:00.5, without a zone"
    if found is None or (found[3] is not None) != zoned:
        raise misfit(text, expected, place)
    fraction = (found[2] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise Misfit(f"{place} has nanoseconds, which a timestamp cannot hold, found {text}: STRING can")
    try:
        micros = (datetime.fromisoformat(found[1]) - _EPOCH) // timedelta(microseconds=1)
    except ValueError as error:
        raise misfit(text, expected, place) from error
    return micros + int(fraction[:6]) - _offset(found[3] or "Z")


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000


def _decimal(semantic: SemanticType, *, precision: int, scale: int) -> Convert:
    exact = Context(prec=precision, traps=[InvalidOperation, Inexact])
    unit = Decimal((0, (1,), -scale))

    def made(value: Any, place: str) -> Decimal:
        found = _number_of(semantic, scale, value, place)
        try:
            if found.is_finite():
                return found.quantize(unit, context=exact)
        except (InvalidOperation, Inexact):
            pass
        raise misfit(found, f"a number that DECIMAL({precision},{scale}) holds", place)

    return made


def _number_of(semantic: SemanticType, scale: int, value: Any, place: str) -> Decimal:
    """Return the number that `value` stands for. `scale`: that of the column, where the schema names none."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, dict):
        return _variable(value, place)
    if semantic.name == DECIMAL:
        return _unscaled(value, scale if semantic.scale is None else semantic.scale, place)
    if isinstance(value, str) and semantic.name is None:
        raise Misfit(f"{place} is a text that can be a number or base64, found {value[:60]!r}: {_NAME_IT} {DECIMAL} or {TEXT}")
    try:
        if _NUMBER.fullmatch(taken(value, str, "a number", place)):
            return Decimal(value)
    except InvalidOperation:  # an exponent that no decimal has
        pass
    raise misfit(value, "a number", place)


def _variable(value: Any, place: str) -> Decimal:
    given = taken(value, dict, "an object with scale and value", place)
    scale = _integral(_INTEGRALS["short"])(given.get("scale"), f"{place}.scale")
    return _unscaled(given.get("value"), scale, f"{place}.value")


def _unscaled(value: Any, scale: int, place: str) -> Decimal:
    raw = _bytes(value, place)
    if not raw:
        raise misfit(value, "the bytes of a number", place)
    digits = int.from_bytes(raw, "big", signed=True)
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


_PLAIN: Mapping[str, Convert] = {"boolean": _boolean, "binary": _bytes}
_KINDS = frozenset({*_PLAIN, *_INTEGRALS, "float", "double", "string", "date", "timestamp", "timestamp_ntz"})
