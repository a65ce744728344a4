"""Where things are: local paths, `file://` and `sqlite:///` URLs, made absolute relative to the pipeline file.

File URLs are taken literally, as Hadoop does: `%20` is three characters of the name.
"""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from penstock.bloburl import is_blob, parse
from penstock.errors import Usage
from penstock.secret import redact, remember
from penstock.spec.complaint import wrong
from penstock.spec.describe import described

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(//)?")
_SUPPORTED = "This version supports directories on this machine or mounted on it: a path or file:///path"
_STORES = ", and stores: s3://bucket/prefix, az://container@account/prefix, gs://bucket/prefix or hdfs://namenode:8020/prefix"
_HALF_A_SCHEME = re.compile(r"(?i)(s3a?|gs|az|abfss?|wasbs|hdfs|https?)(:|//)")
"""A URL with a slip of the pen, which would be a directory of that name."""
_SQLITE, _DUCKDB = "sqlite:///", "duckdb:///"
_POSTGRES = ("postgresql://", "postgres://")
_MYSQL = ("mysql://", "mariadb://")
_CASSANDRA = "cassandra://"
_REDSHIFT, _SQLSERVER = "redshift://", "sqlserver://"


def scheme(place: str) -> str:
    """The URL scheme of `place` in lower case, empty for a plain path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found and (found[2] or found[1].lower() == "file") else ""


def local_path(place: str) -> Path | None:
    """The directory or file that an absolute path, `file://`, `sqlite://` or `duckdb://` URL names; None if it is elsewhere."""
    if place.startswith((_SQLITE, _DUCKDB)):
        return Path(place[len(_SQLITE) :])
    if scheme(place) == "file":
        return Path(place[len("file://") :])
    return None if scheme(place) else Path(place)


def same_or_nested(one: str, other: str) -> bool:
    """Whether two absolute places are one, or one lies inside the other. Symbolic links are followed."""
    first, second = _resolved(one), _resolved(other)
    return first == second or first.startswith(second + "/") or second.startswith(first + "/")


def _resolved(place: str) -> str:
    path = local_path(place)
    if path is not None:
        return os.path.realpath(path).rstrip("/")
    return str(parse(place)) if is_blob(place) else place.rstrip("/")


def _base(info: ValidationInfo) -> Path:
    context = info.context
    return context["base"] if isinstance(context, dict) and "base" in context else Path.cwd()


def _absolute(path: str, info: ValidationInfo) -> str:
    return os.path.normpath(_base(info) / Path(path).expanduser())


def _plain(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _file_path(url: str, info: ValidationInfo) -> str:
    rest = url[len("file:") :]
    if not rest.startswith("//"):
        return _absolute(rest, info)
    rest = rest[2:].removeprefix("localhost") if rest.startswith("//localhost/") else rest[2:]
    if rest.startswith(("/", "./", "../")) or rest in {".", ".."}:
        return _absolute(rest, info)
    host = rest.partition("/")[0]
    raise wrong(
        f"should be a file URL with a path, found the host {host!r}",
        remedy=f"Write file:///{rest} for an absolute path or file://./{rest} for one relative to the pipeline file.",
    )


def _directory(value: str, info: ValidationInfo, *, also: str = "") -> str:
    if not value.strip():
        raise wrong("should be a directory, found an empty text", remedy="Write a path such as ./state/flights.")
    if scheme(value) == "file":
        return _file_path(value, info)
    if scheme(value):
        raise wrong(f"is at {scheme(value)}://, which is not supported by this version", remedy=f"{_SUPPORTED}{also}.")
    half = _HALF_A_SCHEME.match(value)
    if half:
        raise wrong(
            f"begins with {half[0]}, which is neither a URL nor likely a directory", remedy=f"Write {half[1]}://, or ./{half[0]}."
        )
    return _absolute(value, info)


def _own_directory(value: str, info: ValidationInfo) -> str:
    return _directory(value, info)


def _account_url(value: str, info: ValidationInfo) -> str:
    return _blob_url(value) if is_blob(value) else f"file://{_directory(value, info, also=_STORES)}"


def _blob_url(value: str) -> str:
    try:
        return str(parse(value))
    except Usage as mistake:
        raise wrong(f"is no URL of a place at {scheme(value)}://", remedy=mistake.remedy) from mistake


def _checkpoint_url(value: str, info: ValidationInfo) -> str:
    if not is_blob(value):
        return _directory(value, info, also=", or s3a://, abfss://, gs:// and hdfs://")
    _blob_url(value)
    return value.rstrip("/")  # else as it is: Spark tells s3:// and s3a:// apart


def _spool_url(value: str, info: ValidationInfo) -> str:
    return _blob_url(value) if is_blob(value) else _directory(value, info, also=_STORES)


def _sqlite_url(value: str, info: ValidationInfo) -> str:
    return _file_url(value, info, prefix=_SQLITE, database="SQLite")


def _duckdb_url(value: str, info: ValidationInfo) -> str:
    return _file_url(value, info, prefix=_DUCKDB, database="DuckDB")


def _file_url(value: str, info: ValidationInfo, *, prefix: str, database: str) -> str:
    if not value.startswith(prefix) or not value[len(prefix) :].strip("/"):
        raise wrong(
            f"should be a {database} URL, found {described(value)}",
            remedy=f"Write {prefix}state/data.db (relative to the pipeline file) or {prefix}/data/data.db (absolute).",
        )
    return prefix + _absolute(value[len(prefix) :], info)


def is_postgres(place: str) -> bool:
    """Whether `place` is a database of PostgreSQL."""
    return place.startswith(_POSTGRES)


def _postgres_url(value: str) -> str:
    return _server_url(value, _POSTGRES, database="PostgreSQL", port=5432)


def _mysql_url(value: str) -> str:
    return _server_url(value, _MYSQL, database="MySQL", port=3306)


def _redshift_url(value: str) -> str:
    return _server_url(value, (_REDSHIFT,), database="Redshift", port=5439)


def _sqlserver_url(value: str) -> str:
    return _server_url(value, (_SQLSERVER,), database="SQL Server", port=1433)


def _server_url(value: str, prefixes: tuple[str, ...], *, database: str, port: int) -> str:
    remember(value)
    parts = urlsplit(value) if value.startswith(prefixes) else None
    if parts is None or not parts.path.strip("/"):
        raise wrong(
            f"should be a {database} URL with a database, found {described(redact(value))}",
            remedy=f"Write {prefixes[0]}user:password@host:{port}/database, the password best as ${{VARIABLE}}.",
        )
    return value


def _cassandra_url(value: str) -> str:
    remember(value)
    nodes, _, keyspace = value.removeprefix(_CASSANDRA).partition("?")[0].rpartition("/")
    if not value.startswith(_CASSANDRA) or not nodes or not keyspace:
        raise wrong(
            f"should be a Cassandra URL with a keyspace, found {described(redact(value))}",
            remedy="Write cassandra://user:password@host:9042,otherhost:9042/keyspace, the password best as ${VARIABLE}.",
        )
    return value


def _ledger(value: str, info: ValidationInfo) -> str:
    if scheme(value) == "sqlite":
        return _sqlite_url(value, info)
    if is_blob(value):
        return _blob_url(value)
    if is_postgres(value):
        return _postgres_url(value)
    if value.startswith(_MYSQL):
        return _mysql_url(value)
    if scheme(value) not in {"", "file"}:
        raise wrong(
            f"is at {scheme(value)}://, which is not supported by this version",
            remedy="Keep the ledger in a SQLite file (sqlite:///path), a directory, or at postgresql://, mysql://, s3://, az://, "
            "gs://, hdfs://.",
        )
    return _directory(value, info)


def _source_path(value: str, info: ValidationInfo) -> str:
    remember(value)
    if scheme(value) == "file":
        return f"file://{_file_path(value, info)}"
    return value if scheme(value) else _absolute(value, info)


def _kind(example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": [example]})


_TEXT = BeforeValidator(_plain)

Directory = Annotated[str, _TEXT, AfterValidator(_own_directory), _kind("./state/flights")]
"""A directory of Penstock's own: an absolute plain path."""

FilePath = Annotated[str, _TEXT, AfterValidator(_own_directory), _kind("./merge.sql")]
"""A file of the user's: an absolute plain path."""

AccountUrl = Annotated[str, _TEXT, AfterValidator(_account_url), _kind("file:///data/ewr")]
"""Root of an account: `file://` and an absolute path, or a URL of a store as `bloburl` writes it."""

SqliteUrl = Annotated[str, _TEXT, AfterValidator(_sqlite_url), _kind("sqlite:///state/flights.db")]
"""A SQLite file: always `sqlite:///` and an absolute path (so four slashes)."""

DuckdbUrl = Annotated[str, _TEXT, AfterValidator(_duckdb_url), _kind("duckdb:///state/flights.duckdb")]
"""A DuckDB file: always `duckdb:///` and an absolute path (so four slashes)."""

PostgresUrl = Annotated[str, AfterValidator(_postgres_url), _kind("postgresql://user:${PASSWORD}@db.example.com:5432/shop")]
"""A PostgreSQL database, as libpq takes it."""

MysqlUrl = Annotated[str, AfterValidator(_mysql_url), _kind("mysql://user:${PASSWORD}@db.example.com:3306/shop")]
"""A database of MySQL or MariaDB."""

RedshiftUrl = Annotated[str, AfterValidator(_redshift_url), _kind("redshift://user:${PASSWORD}@cluster.example.com:5439/shop")]
"""A database of Redshift."""

SqlServerUrl = Annotated[str, AfterValidator(_sqlserver_url), _kind("sqlserver://user:${PASSWORD}@db.example.com:1433/shop")]
"""A database of SQL Server or Azure SQL."""

CassandraUrl = Annotated[str, AfterValidator(_cassandra_url), _kind("cassandra://user:${PASSWORD}@node1:9042,node2/shop")]
"""A keyspace of Cassandra."""

CheckpointUrl = Annotated[str, _TEXT, AfterValidator(_checkpoint_url), _kind("./state/flights/checkpoint")]
"""Spark's checkpoint: an absolute plain path, or a URL of a store as it was given."""

LedgerUrl = Annotated[str, _TEXT, AfterValidator(_ledger), _kind("sqlite:///state/flights/ledger.db")]
"""Where the ledger is: an absolute `sqlite:////path`, an absolute directory, a URL of PostgreSQL, MySQL or of a store."""

SpoolUrl = Annotated[str, _TEXT, AfterValidator(_spool_url), _kind("./state/flights/spool")]
"""Where the spool is: an absolute directory, or a URL of a store."""

SourcePath = Annotated[str, _TEXT, AfterValidator(_source_path), _kind("./incoming")]
"""What Spark reads: an absolute path or any URL that Spark understands; wildcards are allowed."""
