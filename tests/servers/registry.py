"""A schema registry that speaks Confluent's protocol: Apicurio, which keeps its schemas in memory."""

import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.servers.server import HOME, NotInstalledError, free_port, started, stop

VERSION = "2.6.13.Final"
FOLDER = HOME / "registry"
READY = FOLDER / f"{VERSION}.ready"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_COPIER = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def install() -> None:
    """Fetch it, unless it is there."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise NotInstalledError("Apicurio is fetched by Maven and runs on Java, and mvn or java is not on PATH")
    if not READY.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run([maven, "-q", "-B", _COPIER, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={FOLDER}"], check=True)
        [packed] = FOLDER.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(FOLDER / "app", filter="data")
        packed.unlink()
        READY.touch()


class RegistryServer:
    """One running registry. Subjects are shared by all tests: give each its own."""

    kind = "registry"

    def __init__(self, java: str, directory: Path) -> None:
        self._java, self._directory = java, directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As the pipeline file has it."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """What it held before is gone."""
        settings = {"quarkus.http.port": self.port, "quarkus.http.host": "127.0.0.1", "java.io.tmpdir": self._directory}
        given = [f"-D{name}={value}" for name, value in settings.items()]
        [main] = (FOLDER / "app").rglob("*-runner.jar")
        command = [self._java, *_JVM, *given, "-jar", str(main)]
        self._process = started(command, port=self.port, log=self._directory / "registry.log")
        requests.get(f"{self.url}/subjects", timeout=60).raise_for_status()

    def stop(self) -> None:
        """As it should be."""
        if self._process is not None:
            stop(self._process)

    def freeze(self) -> None:
        """It answers nobody until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def register(self, subject: str, schema: object, *, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """The id that a schema gets; what was registered is never another one's."""
        text = str(schema) if kind == "PROTOBUF" else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        return int(self._post(f"subjects/{subject}/versions", body)["id"])

    def _post(self, path: str, body: object) -> Any:
        answer = requests.post(f"{self.url}/{path}", json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json()


@contextmanager
def running(directory: Path) -> Iterator[RegistryServer]:
    """A registry without any schemas."""
    java = shutil.which("java", path=os.environ.get("PATH"))
    if java is None or not READY.exists():
        raise NotInstalledError("The schema registry is not there: run `make servers`")
    server = RegistryServer(java, directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()
