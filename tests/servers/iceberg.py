"""A catalog of Iceberg behind the REST API: the server that Iceberg's own tests start, which keeps its tables in memory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.servers.maven import fetch
from tests.servers.server import HOME, NotInstalledError, free_port, started, stop

VERSION = "1.11.0"
FOLDER = HOME / "iceberg" / VERSION
READY = FOLDER.with_suffix(".ready")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_NEEDED = (
    f"org.apache.iceberg:iceberg-open-api:{VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{VERSION}",
    f"org.apache.iceberg:iceberg-core:{VERSION}:tests",
    f"org.apache.iceberg:iceberg-api:{VERSION}:tests",
    "org.xerial:sqlite-jdbc:3.46.1.3",
    "org.slf4j:slf4j-simple:2.0.16",
    "org.eclipse.jetty:jetty-server:12.1.14",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.14",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.14",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.14",
    "org.junit.jupiter:junit-jupiter-api:5.11.0",
    "org.assertj:assertj-core:3.26.0",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
)


def install() -> None:
    """Fetch it, unless it is there."""
    if not READY.exists():
        fetch(FOLDER, [(coordinate, ()) for coordinate in _NEEDED])
        READY.touch()


class CatalogServer:
    """One running catalog. Namespaces are shared by all tests: give each its own."""

    kind = "iceberg"

    def __init__(self, java: str, directory: Path) -> None:
        self._java, self._directory = java, directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As the pipeline file has it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """What it held before is gone."""
        warehouse = self._directory / "warehouse"
        warehouse.mkdir()
        settings = {
            "REST_PORT": self.port,
            "WAREHOUSE": warehouse,
            "CLIENTS": 1,
        }  # more of them fail in its SQLite, which is locked
        env = {**os.environ, **{f"CATALOG_{name}": str(value) for name, value in settings.items()}}
        command = [self._java, *_JVM, f"-Djava.io.tmpdir={self._directory}", "-cp", f"{FOLDER}/*", _MAIN]
        self._process = started(command, port=self.port, log=self._directory / "catalog.log", env=env)
        requests.get(f"{self.url}/v1/config", timeout=60).raise_for_status()

    def stop(self) -> None:
        """As it should be."""
        if self._process is not None:
            stop(self._process)


@contextmanager
def running(directory: Path) -> Iterator[CatalogServer]:
    """A catalog without any tables."""
    java = shutil.which("java", path=os.environ.get("PATH"))
    if java is None or not READY.exists():
        raise NotInstalledError("The catalog of Iceberg is not there: run `make servers`")
    server = CatalogServer(java, directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()
