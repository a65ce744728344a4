"""Change events as Debezium's connectors write them, after its documentation, and the passes that decode them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.registry.decoding import ChangeColumn, CodedColumn, DecodePass
from penstock.registry.wire import Registered

POSTGRES = {
    "version": "3.0.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1_559_033_904_863,
    "ts_us": 1_559_033_904_863_123,
    "ts_ns": 1_559_033_904_863_123_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "orders",
    "txId": 555,
    "lsn": 24_023_128,
    "xmin": None,
}
MYSQL = {
    "version": "2.7.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_465_581_029_100,
    "snapshot": "false",
    "db": "inventory",
    "table": "orders",
    "server_id": 223_344,
    "gtid": "c0ffee00-0000-11f0-8000-000000000001:17",
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 2,
    "thread": 7,
    "query": None,
}
SQL_SERVER = {
    "version": "2.7.0.Final",
    "connector": "sqlserver",
    "name": "shop",
    "ts_ms": 1_559_729_468_470,
    "snapshot": "false",
    "db": "shop",
    "schema": "dbo",
    "table": "orders",
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": 1,
}


def event(op: str, row: Mapping[str, Any] | None, *, source: Mapping[str, Any] = POSTGRES, **more: Any) -> dict[str, Any]:
    """The payload of one change, with `before` null unless the row is gone."""
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**sides, "source": dict(source), "op": op, "ts_ms": 1_559_033_904_961, "transaction": None, **more}


def connect_schema(**columns: str | Mapping[str, Any]) -> dict[str, Any]:
    """The `schema` that Connect's JSON converter writes around a payload."""
    fields = [{**({"type": kind} if isinstance(kind, str) else kind), "field": name} for name, kind in columns.items()]
    row = {"type": "struct", "optional": True, "name": "shop.public.orders.Value", "fields": fields}
    others = [{"type": "string", "optional": False, "field": "op"}]
    sides: list[dict[str, Any]] = [{**row, "field": "before"}, {**row, "field": "after"}]
    return {"type": "struct", "optional": False, "name": "shop.public.orders.Envelope", "fields": [*sides, *others]}


def spark_row(**columns: Any) -> str:
    """Columns in Spark's JSON."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def records(values: Sequence[bytes | None], *, partition: int = 0, begin: int = 0) -> pa.RecordBatch:
    """What Spark's Kafka source gives of a topic."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"key"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(begin, begin + count), pa.int64()),
        }
    )


def json_pass(row: str, *, passes_over: bool = False, **settings: Any) -> DecodePass:
    column = ChangeColumn(row=row, **settings)
    return DecodePass(source="orders", place=None, coded=(column,), passes_over=passes_over)


def encoded(*values: Any) -> list[bytes | None]:
    return [None if value is None else json.dumps(value).encode() for value in values]


def rows_of(given: DecodePass, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows with their changes, as the transform gets them."""
    return [
        {**(row["value"] or {}), **{f"change.{name}": value for name, value in (row["change"] or {}).items()}}
        for batch in given(iter(batches))
        for row in batch.to_pylist()
    ]


def avro_envelope(*fields: Mapping[str, Any], name: str = "shop.public.orders") -> dict[str, Any]:
    """The schema that Confluent's Avro converter registers for a table's topic."""
    row = {"type": "record", "name": "Value", "fields": list(fields), "connect.name": f"{name}.Value"}
    snapshot = {"type": "string", "connect.name": "io.debezium.data.Enum", "connect.parameters": {"allowed": "true,false"}}
    source = [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [snapshot, "null"], "default": "false"},
        {"name": "txId", "type": ["null", "long"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": name,
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.name": f"{name}.Envelope",
    }


def avro_column(schema: Registered, **settings: Any) -> ChangeColumn:
    coded = CodedColumn(column="value", format="avro", subject="orders-value", schema=schema)
    return ChangeColumn(by_registry=coded, **settings)
