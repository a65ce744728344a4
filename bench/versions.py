"""What a part was measured with: versions of the libraries and of the servers, and the number of cores. No machine's name."""

import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from tests.servers import cassandra, hdfs, kafka
from tests.servers.fixtures import server

_LIBRARIES = {"PySpark": "pyspark", "PyArrow": "pyarrow"}


def versions(servers: tuple[str, ...], libraries: tuple[str, ...]) -> Mapping[str, str]:
    """Of everything that a part needs; its servers must still run."""
    named = {name: version(package) for name, package in [*_LIBRARIES.items(), *zip(libraries, libraries, strict=True)]}
    known = {name: of() for kind in servers if kind in _SERVERS for name, of in [_SERVERS[kind]]}
    return {**named, "Python": platform.python_version(), **known, "cores": f"{os.cpu_count()}"}


def _postgres() -> str:
    import psycopg

    with psycopg.connect(server("postgres").database("version")) as connection:
        return str(connection.info.parameter_status("server_version")).split()[0]


def _mysql() -> str:
    name = urlsplit(server("mysql").database("version")).path[1:]
    with server("mysql").admin(name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        return str(cursor.fetchone()[0]).split("-")[0]


_SERVERS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "postgres": ("PostgreSQL", _postgres),
    "mysql": ("MariaDB", _mysql),
    "cassandra": ("Cassandra", lambda: cassandra.VERSION),
    "kafka": ("Kafka", lambda: kafka.VERSION),
    "hdfs": ("Hadoop", lambda: hdfs.VERSION),
}
