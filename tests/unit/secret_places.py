"""Every place of a pipeline file that a secret can be at, as a file with a marker there, and the settings' fields that hold text.

In a file SECRET stands for the marker, QUOTED for the marker as URLs have it, `${S}` for a variable that holds it, and WEB for
the address of a server that refuses every request and repeats it in its answer.
"""

import json
import re
import threading
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any

from penstock.spec.pipeline import PipelineSettings
from penstock.spec.settings import Settings
from penstock.spec.sql import OF_SQL

MARKER = "mArKeR-se/c:r=et?"
QUOTED = "mArKeR-se%2Fc%3Ar%3Det%3F"
PARTS = (MARKER[:6], MARKER[-5:], QUOTED[-9:])
"""Of the marker: a text that is cut off holds one of them only, as does the marker in other signs."""

NOBODY = "127.0.0.1:1"
TOP = "pipeline: p\nhome: ./state\nguarantee: at_least_once\n"
SOURCE = "sources: {s: {format: rate}}\n"
SINK = "sinks: {m: {type: console}}\n"

ALWAYS_WAIT_FOR_BROKERS = frozenset({"check", "run"})
OF_SOURCES, OF_SINKS = frozenset({"doctor"}), frozenset({"verify", "doctor", "recover"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """A pipeline file with the marker at one place. `fields`: the fields of settings that it is at, as `text_fields` names them.

    `waits`: verbs that wait for brokers, which are not there. `loads`: whether the file is a valid one.
    """

    text: str
    fields: Collection[str] = ()
    waits: Collection[str] = field(default=frozenset())
    loads: bool = True

    def write(self, directory: Path, *, web: str = f"http://{NOBODY}") -> Path:
        file = directory / "pipeline.yaml"
        file.write_text(self.text.replace("SECRET", MARKER).replace("QUOTED", QUOTED).replace("WEB", web))
        return file


def sink(settings: str, *fields: str, waits: Collection[str] = frozenset()) -> Place:
    return Place(text=f"{TOP}{SOURCE}sinks: {{w: {{{settings}}}}}\n", fields=fields, waits=waits)


def source(settings: str, *fields: str, waits: Collection[str] = frozenset()) -> Place:
    return Place(text=f"{TOP}sources: {{s: {{{settings}}}}}\n{SINK}", fields=fields, waits=waits)


def top(lines: str, *fields: str) -> Place:
    return Place(text=f"{TOP}{SOURCE}{SINK}{lines}\n", fields=fields)


def refused(place: Place) -> Place:
    return Place(text=place.text, fields=place.fields, loads=False)


def kafka_source(more: str, *fields: str) -> Place:
    waits = ALWAYS_WAIT_FOR_BROKERS | OF_SOURCES
    return source(f"format: kafka, reader: python, options: {{{KAFKA}}}, {more}", *fields, waits=waits)


def kafka_sink(more: str, *fields: str) -> Place:
    return sink(f"type: kafka, {more}", *fields, waits=ALWAYS_WAIT_FOR_BROKERS | OF_SINKS)


KAFKA = f"kafka.bootstrap.servers: '{NOBODY}', subscribe: t"
SASL = "kafka.security.protocol: SASL_PLAINTEXT, kafka.sasl.mechanism: PLAIN"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'kafka.sasl.jaas.config: \'{LOGIN} required username="u" password="SECRET";\''
EVENT_HUBS = "'Endpoint=sb://nobody.invalid/;SharedAccessKeyName=me;SharedAccessKey=SECRET;EntityPath=h'"
S3 = "{access_key_id: '${S}', secret_access_key: SECRET, endpoint: 'WEB', region: eu, attempts: 1}"
KINESIS = "{streamName: s, access_key_id: '${S}', secret_access_key: SECRET, endpoint: 'WEB', region: eu}"
LOCAL = "type: sqlite, url: 'sqlite:///w.db', table: t"
UPSERT = f"{LOCAL}, write: upsert, key: [value]"
TWO = "type: parquet, accounts: {a: ./a, b: ./b}"

MQTT = f"mqtt: {{broker: '{NOBODY}', topics: [t], client_id: c"
RECEIVE = "journal: ./journal, http: {listen: '127.0.0.1:0'"

PLACES = {
    "token of a receiver": top(f"receive: {{{RECEIVE}, token: SECRET}}}}", "_Listener.token"),
    "token of metrics": top("metrics: {listen: '127.0.0.1:0', token: SECRET}", "GuardedEndpoint.token"),
    "url of who is told": top("on_event: {x: {url: 'WEB/SECRET'}}", "EventTarget.url"),
    "token of who is told": top("on_event: {x: {url: 'WEB', token: SECRET}}", "EventTarget.token"),
    "header of who is told": top("on_event: {x: {url: 'WEB', headers: {X-Api-Key: SECRET}}}", "_Receiver.headers"),
    "secret of who is told": top("on_event: {x: {url: 'WEB', signing_secret: SECRET}}", "EventTarget.signing_secret"),
    "argument of a command": top("on_event: {x: {command: ['true', '${S}']}}", "EventTarget.command"),
    "header of a collector": top("opentelemetry: {endpoint: 'WEB', headers: {X-Api-Key: SECRET}}", "_Receiver.headers"),
    "url of a collector": top("opentelemetry: {endpoint: 'WEB/SECRET'}", "OpenTelemetry.endpoint"),
    "token of openlineage": top("openlineage: {url: 'WEB', token: SECRET}", "OpenLineage.token"),
    "url of openlineage": top("openlineage: {url: 'WEB/SECRET'}", "OpenLineage.url"),
    "password of a receiver": top(f"receive: {{{RECEIVE}, user: u, password: SECRET}}}}", "HttpListener.password"),
    "password of a broker of MQTT": top(
        f"receive: {{journal: ./journal, {MQTT}, user: u, password: SECRET}}}}", "MqttSubscription.password"
    ),
    "password of a broker of AMQP": top(
        f"receive: {{journal: ./journal, amqp: {{broker: '{NOBODY}', queue: q, user: u, password: SECRET}}}}",
        "AmqpQueue.password",
    ),
    "token of those who read a journal": top(
        f"receive: {{{RECEIVE}}}, read: {{listen: '127.0.0.1:0', token: SECRET}}}}", "GuardedEndpoint.token"
    ),
    "token of the metrics of a receiver": top(
        f"receive: {{{RECEIVE}}}, metrics: {{listen: '127.0.0.1:0', token: SECRET}}}}", "GuardedEndpoint.token"
    ),
    "token of a source of journals": source("format: journal, url: 'WEB', token: SECRET", "Source.token"),
    "keys of a kinesis source": source(f"format: kinesis, options: {KINESIS}", "Source.options"),
    "spark.conf": Place(
        text=TOP + "spark: {conf: {spark.own: '${S}', spark.my.password: SECRET}}\n" + SOURCE + SINK, fields=["Spark.conf"]
    ),
    "source option": source("format: rate, options: {own: '${S}', password: SECRET}", "Source.options"),
    "path of a source": source("format: csv, schema: 'id INT', path: 'ftp://u:QUOTED@127.0.0.1:1/x'", "Source.path"),
    "schema of a source": source("format: csv, path: ./in, schema: \"id INT COMMENT '${S}'\"", "Source.schema_ddl"),
    "wrong schema of a source": source("format: csv, path: ./in, schema: \"id NOTHING COMMENT '${S}'\"", "Source.schema_ddl"),
    "kafka source": source(
        f"format: kafka, options: {{{KAFKA}, {SASL}, {JAAS}}}", "Source.options", waits=ALWAYS_WAIT_FOR_BROKERS | OF_SOURCES
    ),
    "client of a kafka source": kafka_source("client: {sasl.username: '${S}', sasl.password: SECRET}", "Source.client"),
    "event hubs source": source(
        f"format: kafka, connection_string: {EVENT_HUBS}",
        "Source.connection_string",
        waits=ALWAYS_WAIT_FOR_BROKERS | OF_SOURCES,
    ),
    "login of a registry": kafka_source(
        "decode: {value: avro, registry: {url: 'WEB', user: u, password: SECRET}}", "Registry.password"
    ),
    "token of a registry": kafka_source("decode: {value: avro, registry: {url: 'WEB', token: SECRET}}", "Registry.token"),
    "schema of change events": kafka_source(
        "decode: {value: {format: json, envelope: debezium, schema: \"id INT COMMENT '${S}'\"}}", "DecodedValue.schema_ddl"
    ),
    "wrong schema of change events": kafka_source(
        "decode: {value: {format: json, envelope: debezium, schema: \"id NOTHING COMMENT '${S}'\"}}", "DecodedValue.schema_ddl"
    ),
    "registry of a sink": kafka_sink(
        f"bootstrap: '{NOBODY}', topic: t, encode: {{value: avro, registry: {{url: 'WEB', token: SECRET}}}}", "Registry.token"
    ),
    "kafka sink": kafka_sink(
        f"bootstrap: '{NOBODY}', topic: t, options: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, "
        "sasl.username: u, sasl.password: SECRET}",
        "Kafka.options",
    ),
    "delete_when of a kafka sink": kafka_sink(
        f"bootstrap: '{NOBODY}', topic: t, key: value, value: json, delete_when: \"CAST(value AS STRING) = '${{S}}'\"",
        "Kafka.delete_when",
    ),
    "event hubs sink": kafka_sink(f"connection_string: {EVENT_HUBS}, topic: t", "Kafka.connection_string"),
    "amazon account": sink(f"type: parquet, accounts: {{a: {{url: 's3://bucket/x', options: {S3}}}}}", "Account.options"),
    "azure account": sink(
        "type: parquet, accounts: {a: {url: 'az://c@account/x', options: {sas_token: 'sv=1&sig=QUOTED', endpoint: 'WEB', "
        "attempts: 1}}}",
        "Account.options",
    ),
    "azure account by its key": sink(
        "type: parquet, accounts: {a: {url: 'az://c@account/x', options: {account_key: '${S}', endpoint: 'WEB', attempts: 1}}}",
        "Account.options",
    ),
    "azure account by a connection string": sink(
        "type: parquet, accounts: {a: {url: 'az://c@account/x', options: {attempts: 1, connection_string: "
        "'DefaultEndpointsProtocol=http;AccountName=account;AccountKey=SECRET;BlobEndpoint=WEB'}}}",
        "Account.options",
    ),
    "google account": sink(
        "type: parquet, accounts: {a: {url: 'gs://bucket/x', options: {credentials_file: '${S}'}}}", "Account.options"
    ),
    "hdfs account": sink(
        "type: parquet, accounts: {a: {url: 'hdfs://namenode/x', options: {webhdfs: 'WEB', delegation_token: SECRET, "
        "attempts: 1}}}",
        "Account.options",
    ),
    "delta table": sink(f"type: delta, path: 's3://bucket/t', options: {S3}", "LakeTable.options"),
    "iceberg table": sink(
        f"type: iceberg, catalog: 'sqlite:///c.db', table: a.b, warehouse: 's3://bucket/w', options: {S3}", "LakeTable.options"
    ),
    "iceberg catalog": sink(
        f"type: iceberg, catalog: 'postgresql://u:QUOTED@{NOBODY}/d', table: a.b, warehouse: ./w", "Iceberg.catalog"
    ),
    "token of an iceberg catalog": sink(
        "type: iceberg, catalog: 'WEB', catalog_options: {token: SECRET}, table: a.b, warehouse: ./w", "Iceberg.catalog_options"
    ),
    "login of an iceberg catalog": sink(
        "type: iceberg, catalog: 'WEB', catalog_options: {credential: 'id:${S}', oauth2-server-uri: 'WEB/token'}, table: a.b, "
        "warehouse: ./w",
        "Iceberg.catalog_options",
    ),
    "postgres sink": sink(f"type: postgres, url: 'postgresql://u:QUOTED@{NOBODY}/d', table: t", "PostgreSQL.url"),
    "mysql sink": sink(f"type: mysql, url: 'mysql://u:QUOTED@{NOBODY}/d', table: t", "MySQL.url"),
    "redshift sink": sink(
        f"type: redshift, url: 'redshift://u:QUOTED@{NOBODY}/d?sslmode=disable&connect_timeout=1', table: t", "Redshift.url"
    ),
    "sqlserver sink": sink(
        f"type: sqlserver, url: 'sqlserver://u:QUOTED@{NOBODY}/d?ssl_mode=disabled&connect_timeout=1', table: t", "SQLServer.url"
    ),
    "token of an endpoint": sink("type: http, url: 'WEB', token: SECRET", "HTTP.token"),
    "login of an endpoint": sink("type: http, url: 'WEB', user: u, password: SECRET", "HTTP.password"),
    "header of an endpoint": sink("type: http, url: 'WEB', headers: {X-Api-Key: SECRET}", "HTTP.headers"),
    "secret of an endpoint": sink("type: http, url: 'WEB', signing_secret: SECRET", "HTTP.signing_secret"),
    "url of an endpoint": sink("type: http, url: 'WEB/SECRET'", "HTTP.url"),
    "cassandra sink": sink(
        f"type: cassandra, url: 'cassandra://u:QUOTED@{NOBODY}/k', table: t, key: [id], wait: 1s", "Cassandra.url"
    ),
    "dbapi sink": sink(
        "type: dbapi, driver: psycopg, connect: {conninfo: 'host=127.0.0.1 port=1', password: SECRET}, table: t", "DBAPI.connect"
    ),
    "columns of a dbapi sink": sink(
        "type: dbapi, driver: sqlite3, connect: {database: ':memory:'}, table: t, "
        "columns: {value: \"TEXT CHECK (value <> '${S}')\"}",
        "DBAPI.columns",
    ),
    "postgres ledger": top(f"ledger: 'postgresql://u:QUOTED@{NOBODY}/d'", "LedgerPlace.url"),
    "mysql ledger": top(f"ledger: 'mysql://u:QUOTED@{NOBODY}/d'", "LedgerPlace.url"),
    "ledger in a store": top(f"ledger: {{url: 's3://bucket/l', options: {S3}}}", "StateLocation.options"),
    "checkpoint in a store": top(f"checkpoint: {{url: 's3a://bucket/c', options: {S3}}}", "StateLocation.options"),
    "spool in a store": top(f"spool: {{url: 's3://bucket/s', options: {S3}}}", "StateLocation.options"),
    "quarantine": top(f"quarantine: {{url: 's3://bucket/q', options: {S3}}}", "Account.options"),
    "rule": source("format: csv, path: ./in, schema: 'value INT', expect: {r: \"CAST(value AS STRING) <> '${S}'\"}", "Rule.sql"),
    "wrong rule": source("format: csv, path: ./in, schema: 'value INT', expect: {r: \"nothing = '${S}'\"}", "Rule.sql"),
    "rule of chance": source(
        "format: csv, path: ./in, schema: 'value INT', expect: {r: \"CAST(rand() AS STRING) = '${S}'\"}", "Rule.sql"
    ),
    "transform": top("transform: {sql: \"SELECT value, '${S}' AS a FROM s\"}", "Transform.sql"),
    "transform without a name": top("transform: {sql: \"SELECT concat('${S}', '1') FROM s\"}", "Transform.sql"),
    "wrong transform": top("transform: {sql: \"SELECT nothing, '${S}' AS a FROM s\"}", "Transform.sql"),
    "transform that is no query": top("transform: {sql: \"SELECT '${S}' '${S}' '${S}' FRM s\"}", "Transform.sql"),
    "where": sink(f"{LOCAL}, where: \"CAST(value AS STRING) <> '${{S}}'\"", "TakesRows.where"),
    "wrong where": sink("type: console, where: \"nothing = '${S}'\"", "TakesRows.where"),
    "where that is no predicate": sink("type: console, where: \"concat('${S}', '1')\"", "TakesRows.where"),
    "where of chance": sink("type: console, where: \"CAST(rand() AS STRING) = '${S}'\"", "TakesRows.where"),
    "select": sink("type: console, select: [value, \"concat(CAST(value AS STRING), '${S}') AS a\"]", "TakesRows.select"),
    "select without a name": sink("type: console, select: [\"concat(CAST(value AS STRING), '${S}')\"]", "TakesRows.select"),
    "wrong select": sink("type: console, select: [\"concat(nothing, '${S}') AS a\"]", "TakesRows.select"),
    "select of more than the row": sink("type: console, select: [\"max('${S}') AS a\"]", "TakesRows.select"),
    "select of one name twice": sink("type: console, select: ['1 AS `${S}`', '2 AS `${S}`']", "TakesRows.select"),
    "delete_when": sink(f"{UPSERT}, delete_when: \"CAST(value AS STRING) = '${{S}}'\"", "DeletesRows.delete_when"),
    "wrong delete_when": sink(f"{UPSERT}, delete_when: \"nothing = '${{S}}'\"", "DeletesRows.delete_when"),
    "delete_when that is no predicate": sink(f"{UPSERT}, delete_when: \"concat('${{S}}', '')\"", "DeletesRows.delete_when"),
    "route": sink(f"{TWO}, route: {{sql: \"IF(CAST(value AS STRING) = '${{S}}', 'a', 'b')\"}}", "Route.sql"),
    "wrong route": sink(f"{TWO}, route: {{sql: \"IF(nothing = '${{S}}', 'a', 'b')\"}}", "Route.sql"),
    "route of chance": sink(f"{TWO}, route: {{sql: \"IF(CAST(rand() AS STRING) = '${{S}}', 'a', 'b')\"}}", "Route.sql"),
    "merge": sink(
        f"type: postgres, url: 'postgresql://u:p@{NOBODY}/d', table: t, write: merge, "
        "merge: {sql: \"INSERT INTO {table} SELECT '${S}' FROM {staged}\"}",
        "Merge.sql",
    ),
    "wrong merge": sink(
        f"type: postgres, url: 'postgresql://u:p@{NOBODY}/d', table: t, write: merge, merge: {{sql: '(${{S}})'}}", "Merge.sql"
    ),
    "sink of one's own": sink("python: 'nowhere:Sink', token: SECRET, user: '${S}', deep: {pin: '${S}'}", "PythonSink.*"),
    "place of a registry": refused(kafka_source("decode: {value: avro, registry: {url: 'http://u:SECRET@h'}}", "Registry.url")),
    "brokers": refused(kafka_sink("bootstrap: 'u:SECRET@h:1', topic: t", "Kafka.bootstrap")),
    "url of an account": refused(sink("type: parquet, accounts: {a: 's3://u:SECRET@bucket/x'}", "Account.url")),
    "url of a checkpoint": refused(top("checkpoint: 's3a://u:SECRET@bucket/x'", "Checkpoint.url")),
    "url of a ledger": refused(top("ledger: 'ftp://u:SECRET@h/x'", "LedgerPlace.url")),
    "url of a spool": refused(top("spool: 's3://u:SECRET@bucket/x'", "SpoolPlace.url")),
    "path of a delta table": refused(sink("type: delta, path: 's3://u:SECRET@bucket/x'", "Delta.path")),
    "warehouse of iceberg": refused(
        sink("type: iceberg, catalog: 'sqlite:///c.db', table: a.b, warehouse: 's3://u:SECRET@bucket/x'", "Iceberg.warehouse")
    ),
    "url of sqlite": refused(sink("type: sqlite, url: 'sqlite://u:SECRET@h/x', table: t", "SQLite.url")),
    "url of duckdb": refused(sink("type: duckdb, url: 'duckdb://u:SECRET@h/x', table: t", "DuckDB.url")),
    "a key that is not known": refused(top("passwort: '${S}'")),
    "a wrong type": Place(text=TOP + "spark: '${S}'\n" + SOURCE + SINK, loads=False),
}

VALID = [name for name, place in PLACES.items() if place.loads]

NAMES = frozenset({
    *("DeliverySettings.pipeline", "DeliverySettings.home", "Spark.master", "Spark.packages", "Transform.python"),
    *("Source.format", "Source.table", "Source.mirror_offsets_to", "Watermark.column", "Coded.subject"),
    *("DecodedValue.semantic_types", "DecodedValue.unavailable_value"),
    *("Receive.journal", "Receive.copy_to", "_Server.listen", "SyslogUdpListener.listen", "HttpListener.user"),
    *("ServerTls.certificate_file", "ServerTls.key_file"),
    *("OpenLineage.endpoint", "OpenLineage.namespace"),
    *("_Receiver.ca_file", "_Receiver.certificate_file", "_Receiver.key_file"),
    *("ClientTls.ca_file", "ClientTls.certificate_file", "ClientTls.key_file"),
    *("AmqpQueue.broker", "AmqpQueue.queue", "AmqpQueue.virtual_host", "AmqpQueue.user", "GuardedEndpoint.listen", "Source.url"),
    *("Tables.names", "Tables.pattern"),
    *("MqttSubscription.broker", "MqttSubscription.topics", "MqttSubscription.client_id", "MqttSubscription.user"),
    *("HTTP.user", "HTTP.key", "HTTP.ca_file", "HTTP.certificate_file", "HTTP.key_file"),
    *("Registry.user", "Registry.ca_file", "Registry.certificate_file", "Registry.key_file"),
    *("TakesRows.exclude", "Parquet.unrouted", "Parquet.partition_by", "Route.column", "Route.hash"),
    *("LakeTable.key", "LakeTable.partition_by", "Iceberg.catalog_name", "UpsertsNewest.sequence_by", "Compares.update_when"),
    "TellsBatches.batch_column",
    *("Iceberg.table", "Iceberg.branch", "Iceberg.partition_by"),
    *("Table.table", "Table.key", "PostgreSQL.table", "MySQL.table", "Redshift.table", "SQLServer.table", "Cassandra.table"),
    *("Cassandra.key", "Cassandra.partition_by", "DBAPI.table", "DBAPI.key", "DBAPI.driver", "Merge.file"),
    *("Kafka.topic", "Kafka.topics", "Kafka.marker_topic", "Kafka.key", "Kafka.headers", "Kafka.partition"),
    *("RecordValue.json_of", "RecordValue.column", "PythonSink.python"),
})  # fmt: skip
"""Fields of names, users, addresses and files, which messages show: no secret belongs there."""


@dataclass(frozen=True)
class TextField:
    """A field of the settings that holds text. `marked`: whether its type says that it is SQL."""

    description: str
    marked: bool

    @property
    def is_sql(self) -> bool:
        return re.search(r"\b(SQL|DDL)\b", self.description) is not None


@cache
def text_fields() -> dict[str, TextField]:
    """All of them, called `Class.field` by the class that declares them; `Class.*` for options that a class takes besides."""
    found: dict[str, TextField] = {}
    for kind in settings_classes():
        for name, of in kind.model_fields.items():
            parts = [*parts_of(of.annotation), *of.metadata]
            if str in parts or Any in parts:
                found[f"{declaring(kind, name)}.{name}"] = TextField(of.description or "", any(part is OF_SQL for part in parts))
        if kind.model_config.get("extra") == "allow":
            found[f"{kind.__name__}.*"] = TextField("", marked=False)
    return found


def declaring(kind: type[Settings], name: str) -> str:
    return next(base.__name__ for base in kind.__mro__ if name in get_annotations(base))


def settings_classes() -> list[type[Settings]]:
    """Every class of settings that can be in a pipeline file."""
    found: list[type[Settings]] = []
    waiting: list[type[Settings]] = [PipelineSettings]
    while waiting:
        kind = waiting.pop()
        if kind in found:
            continue
        found.append(kind)
        parts = (part for of in kind.model_fields.values() for part in parts_of(of.annotation))
        waiting += [part for part in parts if isinstance(part, type) and issubclass(part, Settings)]
    return found


def parts_of(annotation: Any) -> Iterator[Any]:
    """The plain types in an annotation, without keys of mappings, and what is annotated."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        yield from parts_of(inner[0])
        yield from inner[1:]
    elif origin in {typing.Union, types.UnionType, tuple}:
        for part in inner:
            yield from parts_of(part)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from parts_of(inner[1])
    elif origin is None:
        yield annotation


@contextmanager
def refusing_server() -> Iterator[str]:
    """The address of a server that refuses every request, and says in words and headers what was asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Refusing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client went
            self.close_connection = True

    def do_GET(self) -> None:
        asked = f"{self.command} {self.path} of {self.headers.get('Authorization', 'nobody')}"
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if "json" in self.headers.get("Accept", "") or "/webhdfs/" in self.path:
            error = {"message": asked, "type": "Forbidden", "code": 403, "exception": "AccessControlException"}
            kind, body = "application/json", json.dumps({"error": error, "RemoteException": error, "error_code": 403, **error})
        else:
            asked = asked.replace("&", "&amp;").replace("<", "&lt;")
            kind, body = "application/xml", f"<Error><Code>AccessDenied</Code><Message>{asked}</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - as the base class calls them

    def log_message(self, *_: object) -> None:
        """Nothing goes to the terminal."""
