"""Where sources read and sinks write, as OpenTelemetry's semantic conventions and OpenLineage's naming of datasets call it.

Nothing here shows a user, a password, or the options of a store.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.blob.url import is_blob, parse
from penstock.core.model import SinkName
from penstock.spec.delta import Delta
from penstock.spec.http import HTTP
from penstock.spec.iceberg import Iceberg
from penstock.spec.kafka import Kafka
from penstock.spec.place import local_path
from penstock.spec.sink import Parquet, PythonSink
from penstock.spec.source import Source
from penstock.spec.table import TableAtURL
from penstock.support.secret import redact

_SYSTEMS = {
    "postgres": "postgresql",
    "mysql": "mysql",
    "redshift": "aws.redshift",
    "sqlserver": "microsoft.sql_server",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "cassandra": "cassandra",
}
"""`db.system.name` by the type of a sink; `duckdb` is not among the well-known values."""
_PORTS = {"postgres": 5432, "mysql": 3306, "redshift": 5439, "sqlserver": 1433, "cassandra": 9042}
_NAMESPACES = {"sqlserver": "mssql"}
_DEFAULT_SCHEMAS = {"postgres": "public", "redshift": "public", "sqlserver": "dbo"}


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset of OpenLineage: what holds it, and its name there."""

    namespace: str
    name: str


def attributes_of(sink: object) -> Mapping[str, str | int]:
    """Return the attributes of a span that publishes into the sink of these settings."""
    if isinstance(sink, TableAtURL):
        host, port, database = _server(sink)
        named = {"db.system.name": _SYSTEMS.get(sink.type, sink.type), "db.collection.name": sink.table}
        where: dict[str, str | int] = {"server.address": host, "server.port": port, "db.namespace": database}
        return {**named, **{key: value for key, value in where.items() if value}}
    if isinstance(sink, Kafka):
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "publish",
            "messaging.destination.name": sink.topic,
            **_address(sink.bootstrap),
        }
    if isinstance(sink, HTTP):
        split = urlsplit(sink.url)
        return {"http.request.method": "POST", "server.address": split.hostname or "", **_port(split.port)}
    return {}


def datasets_of(sink: object, name: SinkName) -> Iterator[tuple[str | None, DatasetName]]:
    """Yield the datasets that a sink writes, each with its account, or None for the whole sink. Consoles and memory have none."""
    if isinstance(sink, Parquet):
        for account, given in sink.accounts.items():
            yield account, dataset_at(given.url)
    elif isinstance(sink, Delta):
        yield None, dataset_at(sink.path)
    elif isinstance(sink, Iceberg):
        yield None, DatasetName(dataset_at(sink.warehouse).namespace, sink.table)
    elif isinstance(sink, TableAtURL):
        yield None, _table(sink)
    elif isinstance(sink, Kafka):
        yield None, DatasetName(f"kafka://{_first(sink.bootstrap)}", sink.topic)
    elif isinstance(sink, HTTP):
        split = urlsplit(sink.url)
        yield None, DatasetName(f"{split.scheme}://{split.netloc}", str(name))
    elif isinstance(sink, PythonSink):
        yield None, DatasetName("python", f"{sink.python if isinstance(sink.python, str) else name}.{name}")
    elif (kind := getattr(sink, "type", None)) == "dbapi":
        yield None, DatasetName(f"{kind}:{sink.driver}", sink.table)  # type: ignore[attr-defined]


def datasets_read(source: Source, name: str) -> Iterator[DatasetName]:
    """Yield the datasets that a source reads."""
    options = {option.lower(): str(value) for option, value in source.options.items()}
    if source.format == "kafka":
        brokers = _first(options.get("kafka.bootstrap.servers", ""))
        topics = options.get("subscribe", options.get("subscribepattern", options.get("assign", name)))
        for topic in topics.split(",") if "subscribe" in options else (topics,):
            yield DatasetName(f"kafka://{brokers}", topic.strip())
    elif source.path is not None:
        yield dataset_at(source.path)
    elif source.table is not None:
        yield DatasetName("spark", source.table)
    else:
        yield DatasetName(f"spark:{source.format}", name)


def dataset_at(place: str) -> DatasetName:
    """Return the dataset that is a directory, or a place in a store."""
    path = local_path(place)
    if path is not None:
        return DatasetName("file", str(path))
    if is_blob(place):
        place = str(parse(place))
    shown = urlsplit(redact(place))
    authority = shown.netloc.rpartition("@")[2] if shown.scheme not in {"az", "abfs", "abfss", "wasbs"} else shown.netloc
    return DatasetName(f"{shown.scheme}://{authority}", shown.path.strip("/") or "/")


def _table(sink: TableAtURL) -> DatasetName:
    path = local_path(sink.url)
    if path is not None:
        return DatasetName("file", f"{path}/{sink.table}")
    host, port, database = _server(sink)
    schema = _DEFAULT_SCHEMAS.get(sink.type)
    table = sink.table if schema is None or "." in sink.table else f"{schema}.{sink.table}"
    return DatasetName(f"{_NAMESPACES.get(sink.type, sink.type)}://{host}:{port}", f"{database}.{table}")


def _server(sink: TableAtURL) -> tuple[str, int, str]:
    """Return host, port and database of a URL, of several hosts the first one; host empty and port 0 of a file."""
    path = local_path(sink.url)
    if path is not None:
        return "", 0, str(path)
    rest = sink.url.partition("://")[2].partition("?")[0]
    authority, _, database = rest.rpartition("/")
    host, port = _split(_first(authority.rpartition("@")[2]))
    return host, port or _PORTS.get(sink.type, 0), database


def _address(servers: str) -> Mapping[str, str | int]:
    host, port = _split(_first(servers))
    return {"server.address": host, **_port(port)} if host else {}


def _port(port: int | None) -> Mapping[str, int]:
    return {"server.port": port} if port else {}


def _first(servers: str) -> str:
    return servers.partition(",")[0].strip()


def _split(address: str) -> tuple[str, int | None]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]") or not port.isdecimal():
        return address.strip("[]"), None
    return host.strip("[]"), int(port)
