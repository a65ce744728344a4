"""Debezium's change events in Avro: the columns that a registry's schema gives, and their values."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

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
    with pytest.raises(Undecodable, match="at is a number without a unit") as raised:
        read(newer, event("c", {"at": 5}, source=SOURCE), written=plain)
    assert raised.value.schema_id == 2


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
