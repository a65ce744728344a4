"""Debezium's change events in JSON: what a record is, its row and how it changed, and what is no change of a row."""

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.change_events import (
    MYSQL,
    POSTGRES,
    SQL_SERVER,
    connect_schema,
    encoded,
    event,
    json_pass,
    records,
    rows_of,
    spark_row,
)

from penstock.errors import PenstockError, StageFailed
from penstock.registry.decoding import Decoder, QuarantinePass, unpacked
from penstock.support.error_transport import TaskFailed, decode_error

ORDER = spark_row(id="long", name="string")
ANN = {"id": 1, "name": "ann"}
UTC = dt.timezone.utc


def rows(*values: Any, row: str = ORDER, **settings: Any) -> list[dict[str, Any]]:
    return rows_of(json_pass(row, **settings), records(encoded(*values)))


def refused(value: Any, *, row: str = ORDER, **settings: Any) -> PenstockError:
    with pytest.raises(TaskFailed) as raised:
        rows(value, row=row, **settings)
    found = decode_error(str(raised.value))
    assert isinstance(found, StageFailed)
    return found


@pytest.mark.parametrize(
    ("source", "change"),
    [
        pytest.param(
            POSTGRES,
            {
                "position": "00000000000024023128",
                "timestamp": dt.datetime(2019, 5, 28, 8, 58, 24, 863_123, UTC),
                "transaction": "555",
            },
            id="postgresql",
        ),
        pytest.param(
            MYSQL,
            {
                "position": "0000000003/00000000000000000484/0000000002",
                "timestamp": dt.datetime(2016, 6, 10, 17, 50, 29, 100_000, UTC),
                "transaction": "c0ffee00-0000-11f0-8000-000000000001:17",
            },
            id="mysql",
        ),
        pytest.param({**MYSQL, "connector": "mariadb", "gtid": None}, {"transaction": None}, id="mariadb"),
        pytest.param(
            SQL_SERVER,
            {"position": "00000027:00000758:0005/00000027:00000758:0003/0000000001", "transaction": None},
            id="sqlserver",
        ),
        pytest.param(
            {**POSTGRES, "connector": "oracle"}, {"position": None}, id="a connector whose positions have no known order"
        ),
        pytest.param({"connector": "postgresql", "ts_usec": 5, "lsn": None}, {"position": None}, id="an old version, and no lsn"),
    ],
)
@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_the_row_and_how_it_changed(source: dict[str, Any], change: dict[str, Any], op: str) -> None:
    [found] = rows(event(op, ANN, source=source))
    expected = {f"change.{name}": value for name, value in change.items()}
    assert {name: found[name] for name in expected} == expected
    assert (found["id"], found["name"], found["change.op"], found["change.snapshot"]) == (1, "ann", op, False)


def test_a_payload_with_its_schema_around_it_is_the_same() -> None:
    given = event("u", ANN, transaction={"id": "555:24023128", "total_order": 1, "data_collection_order": 1})
    plain, wrapped = rows(given, {"schema": connect_schema(id="int64", name="string"), "payload": given})
    assert plain == wrapped
    assert wrapped["change.transaction"] == "555:24023128"


@pytest.mark.parametrize("snapshot", ["true", "last", "incremental", True])
def test_rows_of_a_snapshot_say_so(snapshot: Any) -> None:
    assert rows(event("r", ANN, source={**POSTGRES, "snapshot": snapshot}))[0]["change.snapshot"] is True
    assert not rows(event("c", ANN, source={**POSTGRES, "snapshot": None}))[0]["change.snapshot"]


def test_positions_sort_as_their_numbers() -> None:
    def of(source: dict[str, Any], **changed: Any) -> str:
        return str(rows(event("u", ANN, source={**source, **changed}))[0]["change.position"])

    assert of(POSTGRES, lsn=9) < of(POSTGRES, lsn=10) < of(POSTGRES, lsn=2**63 - 1)
    assert of(MYSQL, file="binlog.999999") < of(MYSQL, file="binlog.1000000")
    assert of(MYSQL, pos=999) < of(MYSQL, pos=1000, row=0) < of(MYSQL, pos=1000, row=10) < of(MYSQL, file="mysql-bin.000004")
    snapshot = of(SQL_SERVER, change_lsn=None, event_serial_no=None, commit_lsn="00000027:00000758:0004")
    assert snapshot < of(SQL_SERVER) < of(SQL_SERVER, event_serial_no=2) < of(SQL_SERVER, commit_lsn="0000002A:00000000:0001")


def test_what_changes_nothing_is_left_out() -> None:
    heartbeat, tombstones = {"ts_ms": 5}, (None, {"schema": None, "payload": None})
    assert [row.get("id") for row in rows(*tombstones, event("c", ANN), heartbeat)] == [1]
    assert rows(*tombstones, heartbeat) == []


@pytest.mark.parametrize(
    ("value", "reason", "remedy"),
    [
        (event("t", None), "the table was truncated (op t, at position 00000000000024023128)", "lower `change.position`"),
        ({"op": "m", "source": POSTGRES, "message": {"prefix": "p"}}, "a message of logical decoding", "the table alone"),
        ({"source": MYSQL, "databaseName": "inventory", "ddl": "ALTER TABLE …"}, "a change of a schema", "the table alone"),
        ({"status": "END", "id": "5", "event_count": 2}, "the END of a transaction", "the table alone"),
        (event("c", None, source={"connector": "mongodb"}), "a change of MongoDB", "as text"),
        (ANN, "no fields op and source, found id, name", "ExtractNewRecordState"),
        ([1], "should be an object, found list", "undecodable: quarantine"),
        (event("x", ANN), "its op is 'x'", "undecodable: quarantine"),
        (event("d", None), "its op is d, and `before` is null", "REPLICA IDENTITY"),
        (event("u", None), "its op is u, and `after` is null", "REPLICA IDENTITY"),
        ({**event("c", ANN), "op": ["c"]}, "its `op` should be a text, found list", "undecodable: quarantine"),
        (
            event("c", ANN, source={**POSTGRES, "snapshot": ["x"]}),
            "its `source.snapshot` should be a text, found list",
            "undecodable: quarantine",
        ),
        (event("c", ANN, source={**POSTGRES, "snapshot": {"a": 1}}), "found dict", "undecodable: quarantine"),
        ({"status": {"a": 1}, "id": 1}, "it is no change event: it has no fields op and source", "ExtractNewRecordState"),
        *(
            (
                {"schema": connect_schema(id=wrong), "payload": event("c", ANN)},
                "its `schema` is none of Connect's: type, name and scale should be texts",
                "undecodable: quarantine",
            )
            for wrong in (
                {"type": ["int64"]},
                {"type": "int64", "name": {"a": 1}},
                {"type": "bytes", "parameters": {"scale": 1.5}},
            )
        ),
        ({**event("c", ANN), "source": "x"}, "its `source` should be an object", "undecodable: quarantine"),
        ({**event("c", ANN), "after": "{}"}, "its `after` should be an object", "undecodable: quarantine"),
        ({"schema": {"fields": [5]}, "payload": event("c", ANN)}, "its `schema` is none of Connect's", "undecodable: quarantine"),
    ],
)
def test_what_is_no_change_of_a_row_fails_its_batch_with_what_to_do(value: Any, reason: str, remedy: str) -> None:
    found = refused(value)
    assert "at offset 0 of partition 0 of topic 'orders' (source 'orders') cannot be decoded: " in found.message
    assert reason in found.message
    assert remedy in (found.remedy or "")


def test_what_is_put_aside_leaves_the_others() -> None:
    values = [
        *encoded(event("t", None), None, event("c", ANN)),
        b"{",
        b'{"a":1e9999999999999999999999}',
        *encoded(event("d", ANN)),
    ]
    found = rows_of(json_pass(ORDER, passes_over=True), records(values))
    assert [(row["change.op"], row["id"]) for row in found] == [("c", 1), ("d", 1)]


def test_what_is_put_aside_is_kept_as_it_came() -> None:
    given = records([*encoded(event("t", None), None, event("c", ANN)), b"{"])
    headers = pa.nulls(given.num_rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    timestamps = pa.array([0] * given.num_rows, pa.timestamp("us", "UTC"))
    whole = given.append_column("headers", headers).append_column("timestamp", timestamps)
    found = QuarantinePass(decode=json_pass(ORDER, passes_over=True), at_most=5)(iter([whole]))
    bad = unpacked(value for batch in found for value in batch["records"].to_pylist()).to_pylist()
    assert [(row["offset"], row["value"], row["schema_id"]) for row in bad] == [
        (0, given["value"][0].as_py(), None),
        (3, b"{", None),
    ]


def test_what_has_objects_in_the_place_of_texts_is_put_aside() -> None:
    """Whether as records that are left out, or those that are collected: neither fails the task."""
    wrong = ({**event("c", ANN), "op": ["c"]}, event("c", ANN, source={"snapshot": {}}), {"status": [1], "id": 1})
    given = records(encoded(event("c", ANN), *wrong))
    quarantine = json_pass(ORDER, passes_over=True)
    assert [row["id"] for row in rows_of(quarantine, given)] == [1]
    assert list(Decoder(quarantine).decoded(given).bad) == [1, 2, 3]


def test_columns_are_found_by_name_and_those_of_another_case_are_no_nulls() -> None:
    assert rows(event("c", {"more": [1], "name": "ann"}))[0]["id"] is None
    assert "it has no column id, but ID" in refused(event("c", {"ID": 1, "name": "ann"})).message


PLACEHOLDER = "__debezium_unavailable_value"


class TestUnavailable:
    """Unchanged values that PostgreSQL keeps apart and does not log."""

    ROW = spark_row(id="long", text="string", raw="binary", tags={"type": "array", "elementType": "string", "containsNull": True})
    FORMS = (
        ("text", PLACEHOLDER),
        ("text", json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
        ("raw", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("tags", [PLACEHOLDER]),
    )

    @pytest.mark.parametrize(("column", "value"), FORMS[:4])
    @pytest.mark.parametrize("before", [None, {"id": 1}, "the placeholder"])
    def test_it_is_never_a_value(self, column: str, value: Any, before: Any) -> None:
        given = {column: value} if before == "the placeholder" else before
        found = refused({**event("u", {"id": 1, column: value}), "before": given}, row=self.ROW)
        assert f"the value of column '{column}' is unavailable (op u)" in found.message
        assert "REPLICA IDENTITY FULL" in (found.remedy or "")

    def test_it_is_taken_from_the_row_before(self) -> None:
        given = {**event("u", {"id": 1, "text": PLACEHOLDER}), "before": {"id": 1, "text": "long"}}
        assert rows(given, row=self.ROW)[0]["text"] == "long"

    @pytest.mark.parametrize(("column", "value"), FORMS)
    def test_a_row_that_is_gone_needs_none(self, column: str, value: Any) -> None:
        [found] = rows(event("d", {"id": 1, column: value}), row=self.ROW)
        assert (found["id"], found[column]) == (1, None)

    def test_a_number_of_a_row_that_is_gone(self) -> None:
        decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
        given = {"schema": connect_schema(amount=decimal), "payload": event("d", {"amount": self.FORMS[2][1]})}
        assert rows(given, row=spark_row(amount="decimal(10,2)"))[0]["amount"] is None

    @pytest.mark.parametrize(("column", "value"), FORMS)
    def test_it_can_be_set_in_hex_as_in_the_connector(self, column: str, value: Any) -> None:
        placeholder = f"hex:{PLACEHOLDER.encode().hex().upper()}"
        found = refused(event("u", {"id": 1, column: value}), row=self.ROW, placeholder=placeholder)
        assert "is unavailable" in found.message
        raw = event("u", {"id": 1, "raw": "/wE="})
        assert "is unavailable" in refused(raw, row=self.ROW, placeholder="hex:ff01").message

    def test_another_one_can_be_set(self) -> None:
        assert rows(event("u", {"id": 1, "text": PLACEHOLDER}), row=self.ROW, placeholder="?")[0]["text"] == PLACEHOLDER
        assert "unavailable" in refused(event("u", {"id": 1, "text": "?"}), row=self.ROW, placeholder="?").message

    @pytest.mark.parametrize(
        ("value", "element"), [(list(PLACEHOLDER.encode()), "integer"), ([PLACEHOLDER], "string")], ids=["numbers", "texts"]
    )
    def test_arrays(self, value: list[Any], element: str) -> None:
        row = spark_row(many={"type": "array", "elementType": element, "containsNull": True})
        assert "unavailable" in refused(event("u", {"many": value}), row=row).message
        assert rows(event("u", {"many": value[:-1]}), row=row)[0]["many"] == value[:-1]

    def test_maps(self) -> None:
        row = spark_row(more={"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True})
        assert "unavailable" in refused(event("u", {"more": {PLACEHOLDER: PLACEHOLDER}}), row=row).message
        assert rows(event("u", {"more": {"a": None}}), row=row)[0]["more"] == [("a", None)]


def test_changes_of_keys_leave_one_row_whatever_the_order_of_partitions() -> None:
    """An update of the key is a delete of the old one and a create of the new one, each in the partition of its own key."""
    old, new = {"id": 1, "name": "ann"}, {"id": 2, "name": "ann"}
    first = records(encoded(event("c", old), event("d", old), None, event("c", old), event("d", old), None))
    second = records(encoded(event("c", new), event("d", new), None, event("c", new)), partition=1)
    for batches in ((first, second), (second, first)):
        table: dict[int, str] = {}
        for row in rows_of(json_pass(ORDER), *batches):
            table.pop(row["id"], None) if row["change.op"] == "d" else table.update({row["id"]: row["name"]})
        assert table == {2: "ann"}
