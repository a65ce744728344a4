"""Types of the paths and URLs in a pipeline file, which become absolute relative to the file.

File URLs are taken literally, as Hadoop does: `%20` is three characters of the name.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from penstock.blob.url import MISSPELT, is_blob, is_misspelt, parse, scheme_of
from penstock.errors import Usage
from penstock.spec.complaint import complaint_error, described
from penstock.support.secret import remember, scheme_only

_SUPPORTED = "This version supports directories on this machine or mounted on it: a path or file:///path"
_STORES = ", and stores: s3://bucket/prefix, az://container@account/prefix, gs://bucket/prefix or hdfs://namenode:8020/prefix"
_HALF_A_SCHEME = re.compile(r"(?i)(s3a?|gs|az|abfss?|wasbs|hdfs|https?)(:(?!//)|//)")
"""A misspelt URL, which would be a directory of that name."""
_IN_NO_PATH = re.compile(r"[\x00\ud800-\udfff]")
_LET_IN = re.compile(r"[^/.][^@]*:.*@", re.DOTALL)
"""`user:password@host` without a scheme would be a directory of that name, which is shown with the password in it."""
_LACKS_ITS_SCHEME = re.compile(r"//[^/@]*:.*@", re.DOTALL)
"""A path may begin with two slashes, but hardly with a user and a password after them."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_HOST = re.compile(r"([^:\[\]]*|\[[^\]]*\])(:\d*)?")
_OF_HADOOP = frozenset(
    {"abfs", "abfss", "adl", "alluxio", "cosn", "dbfs", "gs", "har", "hdfs", "maprfs", "obs", "oci", "ofs", "oss", "s3", "s3a"}
    | {"s3n", "swebhdfs", "viewfs", "wasb", "wasbs", "webhdfs"}
)
"""File systems that Spark reads if their connector is installed; Spark itself reports a missing one."""
_MOUNTED = frozenset({"dbfs"})
"""File systems that are mounted as directories on every machine that has them: `dbfs:/x` is `/dbfs/x`."""
_SQLITE, _DUCKDB = "sqlite:///", "duckdb:///"
_POSTGRES = ("postgresql://", "postgres://")
_MYSQL = ("mysql://", "mariadb://")
_CASSANDRA = "cassandra://"


def local_path(place: str) -> Path | None:
    """Return the directory or file that a path, `file://`, `sqlite://` or `duckdb://` URL names; None if it is not local."""
    if place.startswith((_SQLITE, _DUCKDB)):
        return Path(place[len(_SQLITE) :])
    if scheme_of(place) == "file":
        return Path("/" + place[len("file:") :].removeprefix("//localhost").lstrip("/"))
    return None if scheme_of(place) else Path(place)


def same_or_nested(one: str, other: str) -> bool:
    """Return whether two absolute places are the same or one lies inside the other. Symbolic links are followed."""
    first, second = _resolved(one), _resolved(other)
    return first == second or first.startswith(second + "/") or second.startswith(first + "/")


def is_read_from(url: str, pattern: str) -> bool:
    """Return whether a file source at `pattern`, a path or URL with or without wildcards, reads `url` or a part of it."""
    place, *patterns = (_resolved(one).replace("[^", "[!").split("/") for one in (url, *_alternatives(pattern)))
    return any(all(map(fnmatchcase, place, one)) for one in patterns)


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield one pattern for each choice of `{a,b}`: a choice may hold slashes."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _alternatives(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _resolved(place: str) -> str:
    path = local_path(place)
    if path is not None:
        return os.path.realpath(path).rstrip("/")
    try:
        return str(parse(place)) if is_blob(place) else place.rstrip("/")
    except Usage:  # a URL that Spark accepts all the same
        return place.rstrip("/")


def _absolute(path: str, info: ValidationInfo) -> str:
    if scheme_of(path):
        raise _unknown(path)
    if _LACKS_ITS_SCHEME.match(path):
        raise _user_and_password(path)
    if is_misspelt(path):
        raise complaint_error(f"is neither a URL nor likely a directory, found {scheme_only(path)}", remedy=MISSPELT)
    if _IN_NO_PATH.search(path):
        raise complaint_error("holds a character that no path has: NUL, or half of a pair", remedy="Write it without.")
    expanded = Path(path).expanduser()
    if not expanded.is_absolute():
        expanded = (info.context["base"] if info.context and "base" in info.context else Path.cwd()) / expanded
    return os.path.normpath(expanded)


def _file_path(url: str, info: ValidationInfo) -> str:
    rest = url[len("file:") :]
    if not rest.startswith("//"):
        return _absolute(rest, info)
    rest = rest[2:].removeprefix("localhost") if rest.startswith("//localhost/") else rest[2:]
    if rest.startswith(("/", "./", "../")) or rest in {".", ".."}:
        return _absolute(rest, info)
    if "@" in rest:
        raise _user_and_password(url)
    host = rest.partition("/")[0]
    raise complaint_error(
        f"should be a file URL with a path, found the host {host!r}",
        remedy=f"Write file:///{rest} for an absolute path or file://./{rest} for one relative to the pipeline file.",
    )


def _directory(value: str, info: ValidationInfo, *, also: str = "") -> str:
    if not value.strip():
        raise complaint_error("should be a directory, found an empty text", remedy="Write a path such as ./state/flights.")
    if scheme_of(value) == "file":
        return _file_path(value, info)
    if _LET_IN.match(value):
        raise _user_and_password(value)
    half = _HALF_A_SCHEME.match(value)
    if half:
        raise complaint_error(
            f"begins with {half[0]}, which is neither a URL nor likely a directory", remedy=f"Write {half[1]}://, or ./{half[0]}."
        )
    if f"{scheme_of(value)}://" == value[: len(scheme_of(value)) + 3].lower() and scheme_of(value) not in _MOUNTED:
        raise complaint_error(
            f"is at {scheme_of(value)}://, which is not supported by this version", remedy=f"{_SUPPORTED}{also}."
        )
    return _absolute(value, info)


def _user_and_password(place: str) -> PydanticCustomError:
    """Return the refusal of a text that would be a directory of this name, with a password in it."""
    return complaint_error(
        f"looks like user:password@host, found {scheme_only(place)}",
        remedy="Write the scheme of what is there, such as postgresql://, or ./ before the name of a directory.",
    )


def _unknown(place: str) -> PydanticCustomError:
    """Return the refusal of a place that Penstock cannot reach, and that would be a directory of this name."""
    found = scheme_of(place)
    message = f"begins with {found}:, which is no directory and no store that Penstock knows"
    rest = place[len(found) + 1 :]
    if found in _MOUNTED:
        mounted = f"/{found}/{rest.lstrip('/')}"
        return complaint_error(message, remedy=f"Write {mounted}, the same place where it is mounted.")
    return complaint_error(
        message, remedy="Write the path where it is mounted on this machine, or ./ before the name of a directory."
    )


def _account_url(value: str, info: ValidationInfo) -> str:
    return _blob_url(value) if is_blob(value) else f"file://{_directory(value, info, also=_STORES)}"


def _blob_url(value: str) -> str:
    try:
        return str(parse(value))
    except Usage as mistake:
        raise complaint_error(f"is no URL of a place at {scheme_of(value)}://", remedy=mistake.remedy) from mistake


def _checkpoint_url(value: str, info: ValidationInfo) -> str:
    if is_blob(value):
        _blob_url(value)
        return value.rstrip("/")  # not normalised: Spark distinguishes s3:// and s3a://
    scheme = scheme_of(value)
    is_elsewhere = scheme not in {"", "file", *_MOUNTED} and ("://" in value or scheme in _OF_HADOOP)
    if is_elsewhere and not _HALF_A_SCHEME.match(value):
        raise complaint_error(
            f"is at {scheme}:, where Penstock cannot read it, and Penstock reads the checkpoint as Spark does",
            remedy="Write a directory, the path where that file system is mounted, or a URL at s3a://, abfss://, gs:// or hdfs://.",
        )
    return _directory(value, info)


def _spool_url(value: str, info: ValidationInfo) -> str:
    return _blob_url(value) if is_blob(value) else _directory(value, info, also=_STORES)


def _file_url(value: str, info: ValidationInfo, *, prefix: str, database: str) -> str:
    if not value.startswith(prefix) or not value[len(prefix) :].strip("/"):
        raise complaint_error(
            f"should be a {database} URL, found {scheme_only(value) if ':' in value else described(value)}",
            remedy=f"Write {prefix}state/data.db (relative to the pipeline file) or {prefix}/data/data.db (absolute).",
        )
    return prefix + _absolute(value[len(prefix) :], info)


_sqlite_url = partial(_file_url, prefix=_SQLITE, database="SQLite")
_duckdb_url = partial(_file_url, prefix=_DUCKDB, database="DuckDB")


def is_postgres(place: str) -> bool:
    """Return whether `place` is the URL of a PostgreSQL database."""
    return place.startswith(_POSTGRES)


def _server_url(value: str, *, prefixes: tuple[str, ...], database: str, port: int) -> str:
    remember(value)
    authority, _, path = value.partition("://")[2].partition("?")[0].partition("/")
    if not value.startswith(prefixes) or not path.strip("/") or not _has_hosts(authority):
        raise complaint_error(
            f"should be a {database} URL with a database, found {scheme_only(value)}",
            remedy=f"Write {prefixes[0]}user:password@host:{port}/database, the password best as ${{VARIABLE}}.",
        )
    return value


_postgres_url = partial(_server_url, prefixes=_POSTGRES, database="PostgreSQL", port=5432)
_mysql_url = partial(_server_url, prefixes=_MYSQL, database="MySQL", port=3306)
_redshift_url = partial(_server_url, prefixes=("redshift://",), database="Redshift", port=5439)
_sqlserver_url = partial(_server_url, prefixes=("sqlserver://",), database="SQL Server", port=1433)


def _has_hosts(authority: str) -> bool:
    """Return whether `authority` ends with hosts and ports, and not with a password whose host was left out."""
    return all(map(_HOST.fullmatch, authority.rpartition("@")[2].split(",")))


def _cassandra_url(value: str) -> str:
    remember(value)
    nodes, _, keyspace = value.removeprefix(_CASSANDRA).partition("?")[0].rpartition("/")
    if not value.startswith(_CASSANDRA) or not nodes or not keyspace or not _has_hosts(nodes):
        raise complaint_error(
            f"should be a Cassandra URL with a keyspace, found {scheme_only(value)}",
            remedy="Write cassandra://user:password@host:9042,otherhost:9042/keyspace, the password best as ${VARIABLE}.",
        )
    return value


def _ledger(value: str, info: ValidationInfo) -> str:
    if scheme_of(value) == "sqlite":
        return _sqlite_url(value, info)
    if is_blob(value):
        return _blob_url(value)
    if is_postgres(value):
        return _postgres_url(value)
    if value.startswith(_MYSQL):
        return _mysql_url(value)
    if scheme_of(value) not in {"", "file", *_MOUNTED} and "://" in value:
        raise complaint_error(
            f"is at {scheme_of(value)}://, which is not supported by this version",
            remedy="Keep the ledger in a SQLite file (sqlite:///path), a directory, or at postgresql://, mysql://, s3://, az://, "
            "gs://, hdfs://.",
        )
    return _directory(value, info)


def _catalog_url(value: str, info: ValidationInfo) -> str:
    if is_postgres(value):
        return _postgres_url(value)
    remember(value)
    if scheme_of(value) in {"https", "http"}:
        return _rest_url(value)
    if scheme_of(value) != "sqlite":
        raise complaint_error(
            f"should be the URL of a catalog, found {scheme_only(value) if ':' in value else described(value)}",
            remedy="Write sqlite:///catalog.db, postgresql://user:password@host:5432/database, or https://host/path of a REST "
            "server. Other catalogs (Glue, Hive) are not supported by this version.",
        )
    return _sqlite_url(value, info)


_REST = re.compile(r"https?://([^\s/@:?#\[\]]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[^\s?#@]*)?")
"""Without user and password, which messages might show."""


def _rest_url(value: str) -> str:
    if not _REST.fullmatch(value):
        raise complaint_error(
            f"should be https://host/path, found {scheme_only(value)}", remedy="Give user, password and token as catalog_options."
        )
    return value.rstrip("/")


def _source_path(value: str, info: ValidationInfo) -> str:
    remember(value)
    if scheme_of(value) == "file":
        return f"file://{_file_path(value, info)}"
    known_to_spark = "://" in value or (scheme_of(value) in _OF_HADOOP and value[len(scheme_of(value)) + 1 :].startswith("/"))
    return value if scheme_of(value) and known_to_spark else _absolute(value, info)


def _like(example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": [example]})


_TEXT = BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value)

Directory = Annotated[str, _TEXT, AfterValidator(_directory), _like("./state/flights")]
"""A directory of Penstock's own: an absolute plain path."""

FilePath = Annotated[str, _TEXT, AfterValidator(_directory), _like("./merge.sql")]
"""A file of the user's: an absolute plain path."""

AccountUrl = Annotated[str, _TEXT, AfterValidator(_account_url), _like("file:///data/ewr")]
"""Root of an account: `file://` and an absolute path, or a URL of a store as `penstock.blob.url` writes it."""

SqliteUrl = Annotated[str, _TEXT, AfterValidator(_sqlite_url), _like("sqlite:///state/flights.db")]
"""A SQLite file: always `sqlite:///` and an absolute path (so four slashes)."""

DuckdbUrl = Annotated[str, _TEXT, AfterValidator(_duckdb_url), _like("duckdb:///state/flights.duckdb")]
"""A DuckDB file: always `duckdb:///` and an absolute path (so four slashes)."""

PostgresUrl = Annotated[str, AfterValidator(_postgres_url), _like("postgresql://user:${PASSWORD}@db.example.com:5432/shop")]
"""A PostgreSQL database, as libpq takes it."""

MysqlUrl = Annotated[str, AfterValidator(_mysql_url), _like("mysql://user:${PASSWORD}@db.example.com:3306/shop")]
"""A database of MySQL or MariaDB."""

RedshiftUrl = Annotated[str, AfterValidator(_redshift_url), _like("redshift://user:${PASSWORD}@cluster.example.com:5439/shop")]
"""A database of Redshift."""

SqlServerUrl = Annotated[str, AfterValidator(_sqlserver_url), _like("sqlserver://user:${PASSWORD}@db.example.com:1433/shop")]
"""A database of SQL Server or Azure SQL."""

CassandraUrl = Annotated[str, AfterValidator(_cassandra_url), _like("cassandra://user:${PASSWORD}@node1:9042,node2/shop")]
"""A keyspace of Cassandra."""

CheckpointUrl = Annotated[str, _TEXT, AfterValidator(_checkpoint_url), _like("./state/flights/checkpoint")]
"""Spark's checkpoint: an absolute plain path, or a URL of a store, unchanged."""

CatalogUrl = Annotated[str, _TEXT, AfterValidator(_catalog_url), _like("sqlite:///state/catalog.db")]
"""A catalog of Iceberg: an absolute `sqlite:////path`, or a URL of PostgreSQL or of a REST server."""

LedgerUrl = Annotated[str, _TEXT, AfterValidator(_ledger), _like("sqlite:///state/flights/ledger.db")]
"""Where the ledger is: an absolute `sqlite:////path`, an absolute directory, a URL of PostgreSQL, MySQL or of a store."""

SpoolUrl = Annotated[str, _TEXT, AfterValidator(_spool_url), _like("./state/flights/spool")]
"""Where the spool is: an absolute directory, or a URL of a store."""

SourcePath = Annotated[str, _TEXT, AfterValidator(_source_path), _like("./incoming")]
"""What Spark reads: an absolute path or any URL that Spark understands; wildcards are allowed."""
