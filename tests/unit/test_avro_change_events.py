"""Debezium's change events in Avro: the columns that a registry's schema gives, and their values."""

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.change_events import POSTGRES, avro_column, avro_envelope, event
from tests.unit.registry_values import avro, record, registered
from tests.unit.test_semantic_types import CONNECT, MICROS, NOON, TIME, UTC

from penstock.errors import Usage
from penstock.registry.change_event import CHANGE_TYPE
from penstock.registry.change_reader import AvroChangeReader
from penstock.registry.decoding import arrow_type
from penstock.registry.wire import Undecodable

SOURCE = {name: POSTGRES[name] for name in ("connector", "ts_ms", "snapshot", "txId", "lsn")}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
DECIMAL = connect("bytes", f"{CONNECT}.Decimal", logicalType="decimal", precision=10, scale=2)
COLUMNS: Mapping[str, tuple[Any, Any, Any, Any]] = {
    "id": ("long", "long", 1, 1),
    "name": ("string", "string", "ann", "ann"),
    "day": (connect("int", f"{TIME}.Date"), "date", 19_753, dt.date(2024, 1, 31)),
    "at": (connect("long", f"{TIME}.MicroTimestamp"), "timestamp_ntz", MICROS, NOON),
    "seen": (connect("long", f"{TIME}.Timestamp"), "timestamp_ntz", MICROS // 1000, NOON),
    "nanos": (connect("long", f"{TIME}.NanoTimestamp"), "long", MICROS * 1000 + 1, MICROS * 1000 + 1),
    "zoned": (connect("string", f"{TIME}.ZonedTimestamp"), "timestamp", "2024-01-31T12:00:00.25Z", NOON.replace(tzinfo=UTC)),
    "clock": (connect("long", f"{TIME}.MicroTime"), "long", 5, 5),
    "amount": (DECIMAL, "decimal(10,2)", Decimal("12.34"), Decimal("12.34")),
    "number": (VARIABLE, "string", {"scale": 1, "value": b"\x05"}, "0.5"),
    "other": ("io.debezium.data.VariableScaleDecimal", "string", {"scale": -1, "value": b"\x05"}, "50"),
    "kind": (connect("string", "io.debezium.data.Enum"), "string", "red", "red"),
    "days": ({"type": "array", "items": connect("int", f"{TIME}.Date")}, None, [19_753], [dt.date(2024, 1, 31)]),
    "numbers": ({"type": "array", "items": "io.debezium.data.VariableScaleDecimal"}, None, [{"scale": 0, "value": b"\1"}], ["1"]),
}


def reader(schema: Any) -> AvroChangeReader:
    made = avro_column(registered(schema)).reader()
    assert isinstance(made, AvroChangeReader)
    return made


def read(schema: Any, *values: Any, written: Any = None) -> list[dict[str, Any] | None]:
    """Events by the schema with id 1, `written` by that with id 2 if it is given."""
    given = registered(schema) if written is None else registered(written, 2)
    taken = reader(schema)
    found = [taken.read(avro(written or schema, value, given.schema_id), given) for value in values]
    return list(pa.array(found, arrow_type(taken.spark)).to_pylist())


ORDER = avro_envelope({"name": "id", "type": "long"}, optional("name", "string"))


def of_columns(names: Any = COLUMNS) -> Any:
    return avro_envelope(*(optional(name, COLUMNS[name][0]) for name in names))


def test_columns_have_the_types_that_their_values_stand_for() -> None:
    spark: Any = reader(of_columns()).spark
    row, change = spark["fields"]
    types = {each["name"]: each["type"] for each in row["type"]["fields"]}
    plain = {name: kind for name, (_, kind, _, _) in COLUMNS.items() if kind is not None}
    assert {name: types[name] for name in plain} == plain
    assert (types["days"]["elementType"], types["numbers"]["elementType"]) == ("date", "string")
    assert (change["name"], change["type"]) == ("change", CHANGE_TYPE)


def test_values_become_what_they_stand_for() -> None:
    row = {name: value for name, (_, _, value, _) in COLUMNS.items()}
    schema = of_columns()
    [created, nothing] = read(schema, event("c", row, source=SOURCE), event("d", dict.fromkeys(COLUMNS), source=SOURCE))
    assert created is not None
    assert created["value"] == {name: expected for name, (_, _, _, expected) in COLUMNS.items()}
    assert created["change"]["position"] == "00000000000024023128"
    assert nothing is not None
    assert (nothing["value"], nothing["change"]["op"]) == (dict.fromkeys(COLUMNS), "d")


def test_a_value_is_converted_by_what_it_stood_for_when_it_was_written() -> None:
    """Both are a long of Avro, which resolves them without a word."""
    older = avro_envelope(optional("at", connect("long", f"{TIME}.Timestamp")), optional("zoned", "string"))
    newer = avro_envelope(
        optional("at", connect("long", f"{TIME}.MicroTimestamp")),
        optional("zoned", COLUMNS["zoned"][0]),
        optional("name", "string"),
    )
    given = event("c", {"at": MICROS // 1000, "zoned": "2024-01-31T12:00:00.25Z"}, source=SOURCE)
    [found] = read(newer, given, written=older)
    assert found is not None
    assert found["value"] == {"at": NOON, "zoned": NOON.replace(tzinfo=UTC), "name": None}
    plain = avro_envelope(optional("at", "long"))
    with pytest.raises(Undecodable, match=r"at was written as int64, and its column is .*MicroTimestamp") as raised:
        read(newer, event("c", {"at": 5}, source=SOURCE), written=plain)
    assert raised.value.schema_id == 2
    assert "undecodable: quarantine" in (raised.value.remedy or "")


def time(name: str, kind: str = "long") -> dict[str, Any]:
    return connect(kind, f"{TIME}.{name}")


def changed(written: Any, column: Any, value: Any) -> Any:
    """The value of a column that is `column` by now, of a record from when it was `written`."""
    given = event("c", {"x": value}, source=SOURCE)
    [found] = read(avro_envelope(optional("x", column)), given, written=avro_envelope(optional("x", written)))
    assert found is not None
    return found["value"]["x"]


def millis(kind: str, name: str, logical: str) -> dict[str, Any]:
    return connect(kind, f"{CONNECT}.{name}", logicalType=logical)


CONNECT_TIMESTAMP, CONNECT_TIME = millis("long", "Timestamp", "timestamp-millis"), millis("int", "Time", "time-millis")
CONNECT_DATE = millis("int", "Date", "date")
ZONED_NOON, WIDE = NOON.replace(tzinfo=UTC), {**DECIMAL, "precision": 12, "scale": 4}
MOMENT, CLOCK = [{"name": "at", "type": time("MicroTimestamp")}], [{"name": "at", "type": CONNECT_TIMESTAMP}]


@pytest.mark.parametrize(
    ("written", "column", "value", "expected"),
    [
        pytest.param(time("MicroTimestamp"), CONNECT_TIMESTAMP, MICROS, ZONED_NOON, id="microseconds to connect"),
        pytest.param(time("Timestamp"), CONNECT_TIMESTAMP, MICROS // 1000, ZONED_NOON, id="milliseconds to connect"),
        pytest.param(time("NanoTimestamp"), CONNECT_TIMESTAMP, MICROS * 1000, ZONED_NOON, id="nanoseconds to connect"),
        pytest.param(CONNECT_TIMESTAMP, time("MicroTimestamp"), ZONED_NOON, NOON, id="connect to microseconds"),
        pytest.param(CONNECT_DATE, time("Date", "int"), dt.date(2024, 1, 31), dt.date(2024, 1, 31), id="connect to days"),
        pytest.param(time("Time", "int"), time("MicroTime"), 43_200_000, 43_200_000_000, id="times of a day"),
        pytest.param(CONNECT_TIME, time("NanoTime"), dt.time(12), 43_200_000_000_000, id="times of a day of connect"),
        pytest.param(time("MicroTime"), time("Time", "int"), 43_200_000_000, 43_200_000, id="times of a day without a rest"),
        pytest.param(time("MicroTimestamp"), time("NanoTimestamp"), MICROS, MICROS * 1000, id="micro- to nanoseconds"),
        pytest.param(time("Timestamp"), time("NanoTimestamp"), MICROS // 1000, MICROS * 1000, id="milli- to nanoseconds"),
        pytest.param("string", DECIMAL, "5.00", Decimal("5.00"), id="texts to decimals"),
        pytest.param(DECIMAL, WIDE, Decimal("12.34"), Decimal("12.3400"), id="another scale"),
        pytest.param(DECIMAL, "string", Decimal("12.00"), "12.00", id="decimals to texts"),
        pytest.param(DECIMAL, VARIABLE, Decimal("12.00"), "12.00", id="decimals to those of any scale"),
        pytest.param("long", DECIMAL, 5, Decimal("5.00"), id="whole numbers to decimals"),
        pytest.param("int", "long", 5, 5, id="wider whole numbers"),
        pytest.param("int", "double", 5, 5.0, id="whole numbers to floating ones"),
        pytest.param(["int", "long"], "long", 2**40, 2**40, id="either of two numbers"),
        pytest.param(connect("string", "io.debezium.data.Enum"), "string", "a", "a", id="texts"),
        pytest.param(
            {"type": "array", "items": time("MicroTimestamp")},
            {"type": "array", "items": CONNECT_TIMESTAMP},
            [MICROS],
            [ZONED_NOON],
            id="arrays",
        ),
        pytest.param(
            {"type": "map", "values": time("Time", "int")},
            {"type": "map", "values": time("MicroTime")},
            {"a": 1},
            [("a", 1000)],
            id="maps",
        ),
        pytest.param(
            record(*MOMENT, name="Inner"), record(*CLOCK, name="Inner"), {"at": MICROS}, {"at": ZONED_NOON}, id="records"
        ),
    ],
)
def test_a_record_from_before_a_setting_changed_has_the_same_value(written: Any, column: Any, value: Any, expected: Any) -> None:
    assert changed(written, column, value) == expected


@pytest.mark.parametrize(
    ("written", "column", "value"),
    [
        pytest.param("string", "bytes", "deadbeef", id="hex in place of bytes"),
        pytest.param("bytes", "string", b"\1", id="bytes in place of texts"),
        pytest.param("bytes", DECIMAL, b"\4\xd2", id="bytes that are no decimal"),
        pytest.param(DECIMAL, "bytes", Decimal("12.34"), id="a decimal's digits"),
        pytest.param("long", time("MicroTimestamp"), 5, id="a number without a unit"),
        pytest.param(time("MicroTimestamp"), "long", 5, id="a unit of which the column says nothing"),
        pytest.param(time("Date", "int"), "long", 5, id="days as a number"),
        pytest.param("int", time("Date", "int"), 5, id="a number as days"),
        pytest.param(time("MicroTimestamp"), time("ZonedTimestamp", "string"), MICROS, id="a time without a zone"),
        pytest.param(time("MicroTime"), time("MicroTimestamp"), 5, id="a time of a day"),
        pytest.param(time("MicroTimestamp"), "double", 5, id="a time as a floating number"),
        pytest.param(["string", "long"], "string", "a", id="a text or a number"),
        pytest.param({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, [5], id="another container"),
        pytest.param(
            record(*MOMENT, name="Inner"), record(*CLOCK, optional("more", "int"), name="Inner"), {"at": 5}, id="records"
        ),
    ],
)
def test_a_record_from_before_a_change_that_says_nothing_of_its_value_is_refused(written: Any, column: Any, value: Any) -> None:
    with pytest.raises(Undecodable, match=r"x was written as .*, and its column is "):
        changed(written, column, value)


def test_a_unit_that_the_column_has_not_is_refused_where_something_would_be_cut_off() -> None:
    with pytest.raises(Undecodable, match=r"x is a io.debezium.time.MicroTime that no whole number of io.debezium.time.Time is"):
        changed(time("MicroTime"), time("Time", "int"), 43_200_000_001)
    with pytest.raises(Undecodable, match="x has nanoseconds"):
        changed(time("NanoTimestamp"), time("MicroTimestamp"), MICROS * 1000 + 1)
    with pytest.raises(Undecodable, match=r"found 12\.3456"):
        changed(WIDE, DECIMAL, Decimal("12.3456"))


def test_a_whole_number_that_a_floating_column_does_not_hold_is_refused() -> None:
    for kind, number in (("double", 2**53), ("float", 2**24)):
        assert changed("long", kind, number) == number
        with pytest.raises(Undecodable, match=f"x should be a number that {kind.upper()} holds, found {number + 1}"):
            changed("long", kind, number + 1)
    assert changed("float", "double", math.inf) == math.inf
    assert changed("double", "float", 0.1) == float(np.float32(0.1))


class TestColumnsThatOlderRecordsLack:
    """Avro's rules count for names: a default, or an older name."""

    OLDER = avro_envelope({"name": "old", "type": time("Timestamp")})

    def values(self, *columns: Any, row: Any, **more: Any) -> Any:
        given = event("u", row, source=SOURCE, **more)
        [found] = read(avro_envelope(*columns), given, written=self.OLDER)
        assert found is not None
        return found["value"]

    def test_a_column_with_another_name(self) -> None:
        column = {**optional("x", time("MicroTimestamp")), "aliases": ["other", "old"]}
        assert self.values(column, row={"old": MICROS // 1000}, before={"old": 5}) == {"x": NOON}

    def test_a_default(self) -> None:
        raw = {"name": "raw", "type": "bytes", "default": "\u00ff"}
        at = {"name": "at", "type": CONNECT_TIMESTAMP, "default": MICROS // 1000}
        many = {"name": "many", "type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]}
        amount = {"name": "amount", "type": DECIMAL, "default": "\u0004\u00d2"}
        map_of_bytes = {"name": "map", "type": {"type": "map", "values": "bytes"}, "default": {"a": "\u00ff"}}
        assert self.values(raw, at, many, amount, map_of_bytes, optional("none", "long"), row={"old": 5}) == {
            "raw": b"\xff",
            "at": ZONED_NOON,
            "many": [b"\xff"],
            "amount": Decimal("12.34"),
            "map": [("a", b"\xff")],
            "none": None,
        }

    def test_neither(self) -> None:
        with pytest.raises(Undecodable, match="it has no column x, which has no default"):
            self.values({"name": "x", "type": "long"}, row={"old": 5})

    def test_records_that_are_no_events_are_told(self) -> None:
        with pytest.raises(Undecodable, match="it should be an object, found str"):
            read(ORDER, "text", written="string")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("io.debezium.connector.common.TransactionMetadataValue", "it tells boundaries of transactions"),
        ("io.debezium.connector.mysql.SchemaChangeValue", "it tells changes of schemas"),
    ],
)
def test_records_of_other_topics_are_told(name: str, told: str) -> None:
    other = {**record({"name": "id", "type": "long"}, name="Value"), "connect.name": name}
    with pytest.raises(Undecodable, match=told) as raised:
        read(ORDER, {"id": 1}, written=other)
    assert raised.value.remedy is not None


def test_a_heartbeat_changes_nothing() -> None:
    heartbeat = {**record({"name": "ts_ms", "type": "long"}), "connect.name": "io.debezium.connector.common.Heartbeat"}
    assert read(ORDER, {"ts_ms": 5}, written=heartbeat) == [None]


@pytest.mark.parametrize("column", [optional("name", "string"), optional("raw", "bytes")])
def test_an_unavailable_value_is_none(column: Any) -> None:
    text = "__debezium_unavailable_value"
    value = text if column["name"] == "name" else text.encode()
    with pytest.raises(Undecodable, match="is unavailable"):
        read(avro_envelope(column), event("u", {column["name"]: value}, source=SOURCE))
    [gone] = read(avro_envelope(column), event("d", {column["name"]: value}, source=SOURCE))
    assert gone is not None
    assert gone["value"] == {column["name"]: None}


POINT = {**VARIABLE, "name": "Point", "namespace": "io.debezium.data.geometry", "connect.name": "io.debezium.data.geometry.Point"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (record({"name": "id", "type": "long"}), "is shop.Order, and no envelope of Debezium: expected fields before, after"),
        ("string", "and no envelope of Debezium"),
        (
            avro_envelope(optional("place", POINT)),
            "Field 'place' of subject 'orders-value' has no Spark type: it is a io.debezium",
        ),
    ],
)
def test_what_is_no_envelope_is_refused_before_the_start(schema: Any, told: str) -> None:
    with pytest.raises(Usage) as raised:
        reader(schema)
    assert told in str(raised.value)
