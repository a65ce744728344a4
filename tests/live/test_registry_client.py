"""A real registry asked; what other servers may answer in its place; and the records that a task decodes by it."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
from tests.servers.fixtures import server, unique
from tests.servers.server import free_port
from tests.servers.serving import serving
from tests.unit.registry_values import ORDER, avro, record

from penstock.errors import Failed, Retryable, StageFailed, Usage
from penstock.registry.client import Registry, SchemaUnknown
from penstock.registry.decoding import CodedColumn, DecodePass
from penstock.registry.wire import RegistryPlace, framed
from penstock.support.error_transport import TaskFailed, from_task


def place(*urls: str, **more: str) -> RegistryPlace:
    return RegistryPlace(urls=urls or (server("registry").url,), name="http://registry", **more)


@pytest.fixture
def subject() -> str:
    return unique("orders-value")


def test_schemas_are_found_by_subject_version_and_id(subject):
    first = server("registry").register(subject, ORDER)
    wider = record(*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None})
    second = server("registry").register(subject, wider)
    client = Registry(place())
    assert (client.of_subject(subject, None).schema_id, client.of_subject(subject, 1).schema_id) == (second, first)
    assert (client.by_id(first).kind, client.by_id(first).text) == ("AVRO", client.of_subject(subject, 1).text)
    with pytest.raises(SchemaUnknown):
        client.by_id(999_999)
    with pytest.raises(Usage, match=f"does not have a subject '{subject}-no'"):
        client.of_subject(f"{subject}-no", None)
    with pytest.raises(Usage, match="does not have version 7 of a subject"):
        client.of_subject(subject, 7)


def test_what_a_schema_refers_to_comes_with_it(subject):
    city = record({"name": "name", "type": "string"}, name="shop.City")
    address = record({"name": "city", "type": "shop.City"}, name="shop.Address")
    schema = record({"name": "to", "type": "shop.Address"}, {"name": "born", "type": "shop.City"})

    def refer(name: str) -> dict[str, object]:
        return {"name": name, "subject": f"{subject}-{name}", "version": 1}

    server("registry").register(f"{subject}-shop.City", city)
    server("registry").register(f"{subject}-shop.Address", address, references=[refer("shop.City")])
    schema_id = server("registry").register(subject, schema, references=[refer("shop.Address"), refer("shop.City")])
    found = Registry(place()).by_id(schema_id)
    assert [reference.name for reference in found.references] == ["shop.City", "shop.Address"]


def test_a_registry_that_is_not_there_is_asked_again_by_another_url(subject):
    schema_id = server("registry").register(subject, ORDER)
    nobody = f"http://127.0.0.1:{free_port()}"
    assert Registry(place(nobody, server("registry").url)).of_subject(subject, None).schema_id == schema_id
    with pytest.raises(Retryable, match=r"The schema registry http://registry does not answer: .*refused"):
        Registry(place(nobody)).of_subject(subject, None)


def test_a_schema_is_unknown_only_if_every_node_says_so(subject):
    schema_id = server("registry").register(subject, ORDER)
    nobody = f"http://127.0.0.1:{free_port()}"
    with answering(404, b'{"error_code": 40403, "message": "no such schema"}') as (behind, _):
        assert Registry(place(behind, server("registry").url)).by_id(schema_id).kind == "AVRO"
        for urls in ((behind, nobody), (nobody, behind)):
            with pytest.raises(Retryable, match="does not answer"):
                Registry(place(*urls)).by_id(schema_id)
        with pytest.raises(SchemaUnknown, match="no such schema"):
            Registry(place(behind, behind)).by_id(schema_id)


def test_a_registry_that_hangs_is_told(subject):
    server("registry").register(subject, ORDER)
    server("registry").freeze()
    try:
        with pytest.raises(Retryable, match=r"does not answer: .*timed out"):
            Registry(place(timeout_s=0.2)).of_subject(subject, None)
    finally:
        server("registry").thaw()


@contextmanager
def answering(status: int, body: bytes = b"", **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """Some other server, in front of the registry or in its place; what it was shown of who asks."""
    shown: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    with serving(running):
        yield f"http://127.0.0.1:{running.server_port}", shown


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (404, b"<html>no such page</html>", Failed, "What answers at the URL http://registry is not a schema registry: HTTP 404"),
        (404, b'{"error_code": 404, "message": "no route"}', Failed, "is not a schema registry: HTTP 404 Not Found, no route"),
        (200, b"<html>welcome</html>", Failed, "is not a schema registry: HTTP 200"),
        (200, b'{"hello": 1}', Failed, "is not a schema registry: HTTP 200 OK, without a schema"),
        (200, b'{"schema": {"type": "long"}}', Failed, "is not a schema registry: HTTP 200 OK, without a schema"),
        (200, b'{"schema": "x", "references": [{"name": "a"}]}', Failed, "is not a schema registry: HTTP 200"),
        (401, b"", Failed, "refuses access: HTTP 401"),
        (503, b"", Retryable, "does not answer: HTTP 503"),
    ],
)
def test_only_the_registry_itself_can_say_that_there_is_no_such_schema(status, body, kind, told):
    with answering(status, body) as (url, _), pytest.raises(kind, match=told):
        Registry(place(url)).by_id(1)
    with answering(404, b'{"error_code": 40403, "message": "no such schema"}') as (url, _), pytest.raises(SchemaUnknown):
        Registry(place(url)).by_id(1)


def test_a_subjects_schema_without_an_id_is_none_of_a_registry():
    with answering(200, b'{"schema": "x"}') as (url, _), pytest.raises(Failed, match="a schema without its id"):
        Registry(place(url)).of_subject("orders-value", None)


@pytest.mark.parametrize(
    ("given", "sent"),
    [({"user": "ann", "password": "pass"}, "Basic YW5uOnBhc3M="), ({"token": "abc"}, "Bearer abc"), ({}, "Basic Ym9iOndvcmQ=")],
)
def test_it_is_shown_who_asks(given, sent, tmp_path, monkeypatch):
    """By the pipeline file, and else by what the user's own file has for the machine."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login bob password word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with answering(200, b'{"schema": "\\"long\\"", "id": 1}') as (url, shown):
        assert Registry(place(url, **given)).by_id(1).kind == "AVRO"
    assert shown == [sent]


# --- records decoded as a task does it


def records(*values: bytes | None, key: bytes | None = None) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "key": pa.array([key] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": ["orders"] * count,
        "partition": pa.array([2] * count, pa.int32()),
        "offset": pa.array(range(40, 40 + count), pa.int64()),
        "timestamp": [datetime(2026, 1, 1, tzinfo=timezone.utc)] * count,
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def decode_pass(*columns: tuple[str, str], at: RegistryPlace | None = None) -> DecodePass:
    newest = {subject: Registry(place()).of_subject(subject, None) for _, subject in columns}
    coded = [CodedColumn(column=column, format="avro", subject=subject, schema=newest[subject]) for column, subject in columns]
    return DecodePass(source="orders", place=at or place(), coded=tuple(coded))


def decoded(given: DecodePass, *batches: pa.RecordBatch) -> pa.Table:
    travelled = pickle.loads(pickle.dumps(given))
    return pa.Table.from_batches(list(travelled(iter(batches))))


def failed(given: DecodePass, *batches: pa.RecordBatch) -> Exception:
    with pytest.raises(TaskFailed) as raised:
        decoded(given, *batches)
    told = from_task(str(raised.value))
    assert told is not None
    return told


def test_keys_and_values_of_older_and_newer_schemas_become_columns(subject):
    first = server("registry").register(subject, ORDER)
    wider = record(*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None})
    second = server("registry").register(subject, wider)
    keys = server("registry").register(f"{subject}-key", "long")
    order = {"id": 1, "customer": "ann", "amount": 0.5}
    batch = records(avro(ORDER, order, first), avro(wider, {**order, "note": "x"}, second), None, key=avro("long", 7, keys))
    table = decoded(decode_pass(("key", f"{subject}-key"), ("value", subject)), batch, batch.slice(0, 0))
    assert table["value"].to_pylist() == [{**order, "note": None}, {**order, "note": "x"}, None]
    assert table["key"].to_pylist() == [7, 7, 7]
    assert table["offset"].to_pylist() == [40, 41, 42]
    assert table.schema.names == batch.schema.names


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"plain", "cannot be decoded: it begins with the byte 0x70"),
        (framed(999_998, b"x"), "cannot be decoded by the schema with id 999998: the registry has no such schema"),
        (b"\0", "cannot be decoded: it has 1 bytes"),
        ("truncated", "it ends too early for its schema"),
        ("other kind", "its schema is of JSON, expected AVRO"),
        ("misfit", "it does not fit the schema it is read by"),
    ],
)
def test_a_record_that_cannot_be_decoded_is_told_with_its_coordinates(subject, value, told):
    priced = record({"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}})
    exact = server("registry").register(subject, priced)
    coarse = record({"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}})
    server("registry").register(f"{subject}-coarse", coarse)
    good = avro(priced, {"p": Decimal("1.5")}, exact)
    other = server("registry").register(
        f"{subject}-json", {"type": "object", "properties": {"id": {"type": "integer"}}}, kind="JSON"
    )
    made = {"truncated": good[:-1], "other kind": framed(other, b"{}"), "misfit": avro(priced, {"p": Decimal("1.234")}, exact)}
    bad = made[value] if isinstance(value, str) else value
    error = failed(decode_pass(("value", f"{subject}-coarse")), records(good, bad, good))
    assert isinstance(error, StageFailed)
    assert str(error).startswith("The value of the record at offset 41 of partition 2 of topic 'orders' (source 'orders') ")
    assert told in str(error)


def test_a_registry_that_does_not_answer_makes_no_record_undecodable(subject):
    schema_id = server("registry").register(subject, ORDER)
    away = place(f"http://127.0.0.1:{free_port()}")
    error = failed(decode_pass(("value", subject), at=away), records(framed(schema_id, b"x")))
    assert type(error) is Retryable


def test_a_schema_of_another_format_is_refused(subject):
    server("registry").register(subject, {"type": "object", "properties": {"id": {"type": "integer"}}}, kind="JSON")
    [coded] = decode_pass(("value", subject)).coded
    with pytest.raises(Usage, match="is of JSON, expected AVRO"):
        coded.reader()
