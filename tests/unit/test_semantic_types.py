"""What values of Debezium's semantic types become in columns of Spark, and what no column holds."""

import datetime as dt
import json
import math
from base64 import b64encode
from collections.abc import Mapping
from decimal import Context, Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.change_events import connect_schema, event, json_pass, records, rows_of
from tests.unit.change_events import spark_row as row_of
from tests.unit.test_change_events import refused, rows

from penstock.errors import Usage
from penstock.registry.decoding import Decoder
from penstock.registry.semantic_type import AMBIGUOUS, is_convertible, nameable
from penstock.source.kafka.decode import decode_passes
from penstock.spec.registry import Decode
from penstock.spec.source import Source

TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
UTC = dt.timezone.utc
DECIMAL = {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2", "connect.decimal.precision": "10"}}
VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 250_000)  # noqa: DTZ001 - a time without a zone
MICROS = 1_706_702_400_250_000


def named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1}


def base64(number: int) -> str:
    return b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def array(spark: str) -> dict[str, Any]:
    return {"type": "array", "elementType": spark, "containsNull": True}


def with_schema(schema: str | Mapping[str, Any], value: Any) -> dict[str, Any]:
    return {"schema": connect_schema(x=schema), "payload": event("c", {"x": value})}


CONVERTED = [
    (named("int32", f"{TIME}.Date"), "date", 19_753, dt.date(2024, 1, 31)),
    (named("int32", f"{CONNECT}.Date"), "date", -1, dt.date(1969, 12, 31)),
    (named("string", f"{TIME}.IsoDate"), "date", "2024-01-31Z", dt.date(2024, 1, 31)),
    (named("int64", f"{TIME}.Timestamp"), "timestamp_ntz", MICROS // 1000, NOON),
    (named("int64", f"{TIME}.MicroTimestamp"), "timestamp_ntz", MICROS, NOON),
    (named("int64", f"{TIME}.MicroTimestamp"), "timestamp", MICROS, NOON.replace(tzinfo=UTC)),
    (named("int64", f"{TIME}.NanoTimestamp"), "timestamp_ntz", MICROS * 1000, NOON),
    (named("int64", f"{TIME}.NanoTimestamp"), "long", MICROS * 1000 + 1, MICROS * 1000 + 1),
    (named("int64", f"{CONNECT}.Timestamp"), "timestamp", -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (named("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-01-31T14:00:00.25+02:00", NOON.replace(tzinfo=UTC)),
    (named("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-01-31T12:00:00.250000000Z", NOON.replace(tzinfo=UTC)),
    (named("string", f"{TIME}.ZonedTimestamp"), "string", "2024-01-31T12:00:00.000000001Z", "2024-01-31T12:00:00.000000001Z"),
    (named("int32", f"{TIME}.Time"), "integer", 43_200_000, 43_200_000),
    (named("int64", f"{TIME}.MicroTime"), "long", 43_200_000_000, 43_200_000_000),
    (named("string", f"{TIME}.ZonedTime"), "string", "12:00:00Z", "12:00:00Z"),
    (DECIMAL, "decimal(10,2)", base64(1234), Decimal("12.34")),
    (DECIMAL, "decimal(10,2)", base64(-1), Decimal("-0.01")),
    (DECIMAL, "decimal(12,4)", base64(1234), Decimal("12.3400")),
    (DECIMAL, "string", base64(-1200), "-12.00"),
    (DECIMAL, "decimal(10,2)", 12.34, Decimal("12.34")),
    ("string", "decimal(10,2)", "12.340", Decimal("12.34")),
    ("double", "decimal(10,2)", 12.3, Decimal("12.30")),
    ("int64", "decimal(10,2)", 12, Decimal("12.00")),
    (VARIABLE, "decimal(38,3)", {"scale": 3, "value": base64(10**30)}, Decimal("1e27").quantize(Decimal(1))),
    (VARIABLE, "decimal(5,0)", {"scale": -2, "value": base64(12)}, Decimal(1200)),
    (VARIABLE, "string", {"scale": 5, "value": base64(12)}, "0.00012"),
    (named("string", "io.debezium.data.Json"), "string", '{"a": 1}', '{"a": 1}'),
    (
        named("string", "io.debezium.data.Uuid"),
        "string",
        "09e1ad6e-0000-4000-8000-000000000001",
        "09e1ad6e-0000-4000-8000-000000000001",
    ),
    (named("string", "io.debezium.data.Enum"), "string", "red", "red"),
    (named("bytes", "io.debezium.data.Bits"), "binary", "/wE=", b"\xff\x01"),
    ("bytes", "binary", "", b""),
    ("int16", "short", -(2**15), -(2**15)),
    ("int64", "long", 2**63 - 1, 2**63 - 1),
    ("double", "double", 1e300, 1e300),
    ("double", "double", "NaN", None),
    ("double", "double", 5, 5.0),
    ("double", "double", -0.0, -0.0),
    ("float", "float", 0.5, 0.5),
    ("boolean", "boolean", False, False),
    ({"type": "array", "items": named("int64", f"{TIME}.MicroTimestamp")}, array("timestamp_ntz"), [MICROS, None], [NOON, None]),
    ({"type": "array", "items": DECIMAL}, array("decimal(10,2)"), [base64(5)], [Decimal("0.05")]),
]


@pytest.mark.parametrize(("schema", "spark", "value", "expected"), CONVERTED)
def test_a_value_becomes_what_it_stands_for(schema: Any, spark: Any, value: Any, expected: Any) -> None:
    [found] = rows(with_schema(schema, value), row=row_of(x=spark))
    assert found["x"] == expected or (value == "NaN" and found["x"] != found["x"])
    assert not isinstance(expected, float) or math.copysign(1, found["x"]) == math.copysign(1, expected)
    assert rows(with_schema(schema, None), row=row_of(x=spark))[0]["x"] is None


@pytest.mark.parametrize(
    ("schema", "spark", "value", "told"),
    [
        (named("int64", f"{TIME}.NanoTimestamp"), "timestamp_ntz", 1001, "x has nanoseconds, which a timestamp cannot hold"),
        (named("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-01-31T12:00:00.0000001Z", "STRING can"),
        (named("string", f"{TIME}.ZonedTimestamp"), "timestamp_ntz", "2024-01-31T12:00:00Z", "without a zone"),
        (named("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-02-31T12:00:00Z", "x should be a time like"),
        (named("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-01-31T12:00:00+25:99", "x should be a time like"),
        ("string", "decimal(10,2)", " 1_0.5", "x should be a number"),
        ("string", "decimal(10,2)", "١٢", "x should be a number"),
        ("string", "timestamp", "2024-01-31T12:00:00", "x should be a time like 2026-01-31T12:30:00.5Z"),
        ("int64", "timestamp_ntz", MICROS, "is a number without a unit"),
        (named("int32", f"{TIME}.Time"), "timestamp_ntz", 5, "x is a io.debezium.time.Time, and no point in time"),
        ("int32", "timestamp_ntz", 5, "x is a int32, and no point in time"),
        ("int32", "date", 2024, f"x is a int32, and no date: name its semantic type in `semantic_types`, {TIME}.Date"),
        (named("int32", f"{TIME}.Year"), "date", 2024, f"x is a {TIME}.Year, and no date"),
        ("string", "binary", "deadbeef", "x has the type string by its schema, and is no bytes: set binary.handling.mode"),
        ("bytes", "string", "3q2+7w==", "x has the type bytes by its schema, and is no text: take BINARY"),
        (named("bytes", "io.debezium.data.Bits"), "string", "/wE=", "x has the type io.debezium.data.Bits (bytes) by its schema"),
        ("bytes", "decimal(10,2)", "1234", "x has the type bytes by its schema, and is no decimal"),
        ({"type": "array", "items": {"type": "bytes"}}, array("string"), ["3q2+7w=="], "x[0] has the type bytes"),
        (DECIMAL, "decimal(10,2)", "", "x should be the bytes of a number"),
        (DECIMAL, "string", "", "x should be the bytes of a number"),
        (VARIABLE, "string", {"scale": 0, "value": ""}, "x.value should be the bytes of a number"),
        (named("bytes", f"{CONNECT}.Decimal"), "string", base64(1234), "Decimal without a scale: take DECIMAL"),
        (named("int64", f"{TIME}.Timestamp"), "timestamp_ntz", 2**62, "whole number of 64 bits"),
        (named("int64", f"{TIME}.MicroTimestamp"), "date", MICROS, f"x is a {TIME}.MicroTimestamp, and no date"),
        (named("int32", f"{TIME}.Date"), "date", 2**31, "a whole number of 32 bits"),
        ("string", "date", "2024-02-31", "x should be a date like"),
        (DECIMAL, "decimal(10,1)", base64(1234), "x should be a number that DECIMAL(10,1) holds"),
        (DECIMAL, "decimal(3,2)", base64(1234), "x should be a number that DECIMAL(3,2) holds"),
        (DECIMAL, "decimal(10,2)", "12.34", "bytes in base64"),
        (DECIMAL, "double", base64(1234), "x should be a number"),
        ("double", "decimal(10,2)", 0.30000000000000004, "a number that DECIMAL(10,2) holds"),
        ("string", "decimal(10,2)", "NaN", "a number that DECIMAL(10,2) holds"),
        ("string", "decimal(10,2)", "1e999999", "a number that DECIMAL(10,2) holds"),
        ("string", "decimal(10,2)", "1e99999999999999999999", "x should be a number"),
        ("string", "decimal(10,2)", "twelve", "x should be a number"),
        (VARIABLE, "decimal(10,2)", {"value": base64(1)}, "x.scale should be a whole number"),
        (named("struct", "io.debezium.data.geometry.Point"), "string", {"x": 1}, "is a io.debezium.data.geometry.Point"),
        ("int64", "integer", 2**31, "a whole number of 32 bits"),
        ("int64", "long", "5", "a whole number"),
        ("int16", "boolean", 1, "true or false"),
        ("string", "string", 5, "a text"),
        ("double", "double", 10**400, "a number that a double holds"),
        ("bytes", "binary", "?", "bytes in base64"),
        ({"type": "array", "items": "x"}, array("long"), {}, "an array"),
    ],
)
def test_what_a_column_cannot_hold_is_no_value(schema: Any, spark: Any, value: Any, told: str) -> None:
    assert told in refused(with_schema(schema, value), row=row_of(x=spark)).message


def written(number: str, schema: str | None = None) -> bytes:
    """An event with a number as a text of JSON has it."""
    given = event("c", {"x": "@"}) if schema is None else with_schema(schema, "@")
    return json.dumps(given).replace('"@"', number).encode()


def of_number(number: str, spark: str, schema: str | None = None) -> Any:
    return rows_of(json_pass(row_of(x=spark)), records([written(number, schema)]))[0]["x"]


def is_refused(number: str, spark: str, schema: str | None = None) -> bool:
    found = Decoder(json_pass(row_of(x=spark))).decoded(records([written(number, schema)]))
    return [str(bad.reason).startswith("it does not fit its columns: x should be") for bad in found.bad.values()] == [True]


class TestNumbers:
    """Whole numbers are exact in every column, and other numbers the nearest that FLOAT and DOUBLE hold."""

    @pytest.mark.parametrize(
        "number",
        ["9007199254740993.25", "0.99999999999999999999", "1.00000000000000000001", "1e-400", "-1e-999999", "1e99", "9.5"],
    )
    def test_what_is_no_whole_number_is_not_made_one(self, number: str) -> None:
        assert is_refused(number, "long")

    @pytest.mark.parametrize(
        ("number", "expected"),
        [("9007199254740993.0", 2**53 + 1), ("1.5e1", 15), ("9223372036854775807.00", 2**63 - 1), ("-0.0", 0), ("0e9999", 0)],
    )
    def test_a_whole_number_may_have_a_point(self, number: str, expected: int) -> None:
        assert of_number(number, "long") == expected

    @pytest.mark.parametrize("schema", ["int64", None])
    def test_a_whole_number_is_never_rounded(self, schema: str | None) -> None:
        assert is_refused("16777217", "float", schema)
        assert is_refused("9007199254740993", "double", schema)
        assert of_number("16777216", "float", schema) == 2.0**24
        assert of_number("9007199254740992", "double", schema) == 2.0**53

    @pytest.mark.parametrize("number", ["1e39", "-3.5e38", "3.4028236e38"])
    def test_a_finite_number_stays_finite(self, number: str) -> None:
        assert is_refused(number, "float")
        assert is_refused(number, "float", "double")
        assert of_number(number, "double") == float(number)

    def test_other_numbers_are_the_nearest(self) -> None:
        assert of_number("3.4028235e38", "float", "float") == float(np.finfo(np.float32).max)
        assert of_number("0.1", "float") == float(np.float32(0.1))
        assert of_number("123456789.123456789012345", "double") == 123456789.12345679
        assert of_number("1e-400", "double") == 0
        assert of_number("9007199254740993", "double", "double") == 2.0**53, "a double that another program wrote so"

    def test_what_the_process_does_with_decimals_makes_no_difference(self) -> None:
        cases = [
            (named("int64", f"{TIME}.Timestamp"), "timestamp_ntz", MICROS // 1000, NOON),
            (named("int64", f"{TIME}.NanoTimestamp"), "timestamp_ntz", MICROS * 1000, NOON),
            (DECIMAL, "decimal(20,2)", base64(123_456_789_012_345), Decimal("1234567890123.45")),
            ("double", "long", 1234567890.0, 1_234_567_890),
        ]
        with localcontext(Context(prec=6)):
            for schema, spark, value, expected in cases:
                assert rows(with_schema(schema, value), row=row_of(x=spark))[0]["x"] == expected


class TestWithoutSchema:
    """The values do not say what they stand for."""

    @pytest.mark.parametrize(
        ("name", "spark", "value", "expected"),
        [
            (f"{TIME}.Timestamp", "timestamp_ntz", MICROS // 1000, NOON),
            (f"{TIME}.MicroTimestamp", "timestamp", MICROS, NOON.replace(tzinfo=UTC)),
            (f"{CONNECT}.Decimal", "decimal(10,2)", base64(1234), Decimal("12.34")),
            ("string", "decimal(10,2)", "1234", Decimal(1234)),
        ],
    )
    def test_the_settings_say_so(self, name: str, spark: str, value: Any, expected: Any) -> None:
        row = row_of(x=spark)
        assert rows(event("c", {"x": value}), row=row, semantic_types={"x": name})[0]["x"] == expected
        told = "without a unit" if spark.startswith("timestamp") else "can be a number or base64"
        assert (
            f"x is a {'number' if spark.startswith('timestamp') else 'text'}"
            in refused(event("c", {"x": value}), row=row).message
        )
        assert told in refused(event("c", {"x": value}), row=row).message
        assert name in AMBIGUOUS[spark.partition("(")[0]]

    def test_its_schema_counts_if_there_is_one(self) -> None:
        given = with_schema(named("int64", f"{TIME}.MicroTimestamp"), MICROS)
        settings = {"x": f"{TIME}.Timestamp"}
        assert rows(given, row=row_of(x="timestamp_ntz"), semantic_types=settings)[0]["x"] == NOON

    @pytest.mark.parametrize(
        ("kind", "name", "spark", "value", "expected"),
        [
            ("int64", f"{TIME}.MicroTimestamp", "timestamp_ntz", MICROS, NOON),
            ("int32", f"{TIME}.Date", "date", 19_753, dt.date(2024, 1, 31)),
            ("bytes", f"{CONNECT}.Decimal", "decimal(10,2)", base64(1234), Decimal("12.34")),
            ("string", f"{CONNECT}.Decimal", "decimal(10,2)", "1234", Decimal(1234)),
        ],
    )
    def test_a_name_counts_where_the_schema_has_the_plain_type_of_such_values(
        self, kind: str, name: str, spark: str, value: Any, expected: Any
    ) -> None:
        assert rows(with_schema(kind, value), row=row_of(x=spark), semantic_types={"x": name})[0]["x"] == expected

    @pytest.mark.parametrize("schema", [None, {"type": "array", "items": {"type": "int64"}}])
    def test_a_name_counts_for_the_elements_of_a_column(self, schema: Any) -> None:
        settings, spark = {"x": f"{TIME}.MicroTimestamp"}, array("timestamp_ntz")
        given = event("c", {"x": [MICROS]}) if schema is None else with_schema(schema, [MICROS])
        assert "x[0] is a number without a unit" in refused(given, row=row_of(x=spark)).message
        assert rows(given, row=row_of(x=spark), semantic_types=settings)[0]["x"] == [NOON]
        assert f"{TIME}.MicroTimestamp" in nameable(spark)

    def test_a_decimal_that_says_its_scale_can_become_a_text(self) -> None:
        given, row = event("c", {"x": {"scale": 2, "value": base64(1234)}}), row_of(x="string")
        assert rows(given, row=row, semantic_types={"x": VARIABLE["name"]})[0]["x"] == "12.34"
        assert nameable("string") == (VARIABLE["name"],)
        assert nameable({"type": "map", "keyType": "string", "valueType": "decimal(5,1)"}) == AMBIGUOUS["decimal"]
        assert nameable("long") == ()

    def test_two_schemas_in_one_batch(self) -> None:
        one = with_schema(named("int64", f"{TIME}.MicroTimestamp"), MICROS)
        other = with_schema(named("int64", f"{TIME}.Timestamp"), MICROS // 1000)
        assert [row["x"] for row in rows(one, other, one, row=row_of(x="timestamp_ntz"))] == [NOON] * 3

    @pytest.mark.parametrize(
        ("spark", "value", "expected"),
        [
            ("date", 19_753, dt.date(2024, 1, 31)),
            ("timestamp", "2024-01-31T12:00:00.25Z", NOON.replace(tzinfo=UTC)),
            ("decimal(10,2)", {"scale": 1, "value": base64(5)}, Decimal("0.50")),
            ("decimal(20,2)", 0.1, Decimal("0.10")),
        ],
    )
    def test_what_can_be_one_thing_only_is_that(self, spark: str, value: Any, expected: Any) -> None:
        assert rows(event("c", {"x": value}), row=row_of(x=spark))[0]["x"] == expected


class TestNames:
    """What `semantic_types` of a source may say of a column, before anything is read."""

    def passes(self, spark: Any, name: str) -> Any:
        session: Any = SimpleNamespace(createDataFrame=lambda _, schema: SimpleNamespace(schema=schema))
        value = {"format": "json", "envelope": "debezium", "schema": row_of(x=spark), "semantic_types": {"x": name}}
        options = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}
        return decode_passes(session, {"changes": Source(format="kafka", options=options, decode=Decode(value=value))})

    @pytest.mark.parametrize(
        ("spark", "name"),
        [
            ("string", "io.debezium.data.VariableScaleDecimal"),
            (array("timestamp_ntz"), f"{TIME}.MicroTimestamp"),
            ({"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True}, f"{TIME}.Date"),
        ],
    )
    def test_a_name_that_values_can_have(self, spark: Any, name: str) -> None:
        [made] = self.passes(spark, name).values()
        assert made.coded[0].semantic_types == {"x": name}

    @pytest.mark.parametrize(
        ("spark", "told"),
        [
            ("string", "the column has the type string. Write one of io.debezium.data.VariableScaleDecimal."),
            (array("date"), f"the column has the type array<date>. Write one of {TIME}.Date."),
            (array("long"), "the column has the type array<bigint>. Take it out"),
        ],
    )
    def test_a_name_that_they_cannot_have(self, spark: Any, told: str) -> None:
        with pytest.raises(Usage) as raised:
            self.passes(spark, f"{CONNECT}.Decimal")
        assert f"sources.changes.decode.value.semantic_types.x is {CONNECT}.Decimal, and {told}" in str(raised.value)


def test_types_that_no_column_of_a_database_is_are_told() -> None:
    nested: Any = {"type": "map", "keyType": "string", "valueType": array("long"), "valueContainsNull": True}
    assert all(map(is_convertible, ["byte", "decimal(38,18)", "timestamp_ntz", nested]))
    struct: Any = {"type": "struct", "fields": []}
    assert not any(
        map(is_convertible, ["variant", "void", "decimal(10,-2)", struct, array("void"), {**nested, "keyType": "long"}])
    )
