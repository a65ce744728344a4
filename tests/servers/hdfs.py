"""HDFS itself: NameNode and DataNode in one JVM, spoken to through WebHDFS."""

import json
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.maven import fetch
from tests.servers.server import HOME, START_S, NotInstalledError, Place, free_port, started, stop

VERSION = "3.5.0"
FOLDER = HOME / "hdfs"
READY = FOLDER / f"{VERSION}.ready"
MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_CLUSTER = ((f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}", ()),)


def install() -> None:
    """Fetch its jars, unless they are there."""
    if not READY.exists():
        fetch(FOLDER / "jars", _CLUSTER)
        READY.touch()


class HdfsServer:
    """One running cluster. Each account is a directory of its own."""

    kind = "hdfs"

    def __init__(self, port: int, http_port: int) -> None:
        self._port, self._http = port, f"http://127.0.0.1:{http_port}"

    @property
    def options(self) -> dict[str, str]:
        return {"webhdfs": self._http, "user": "penstock"}

    def place(self, name: str) -> Place:
        """A directory that is not there yet."""
        return Place(f"hdfs://127.0.0.1:{self._port}/{name}/table", self.options)

    def outside(self, place: Place) -> "HdfsOutside":
        """That account, looked at from outside."""
        return HdfsOutside(self._http, "/" + place.url.removeprefix("hdfs://").partition("/")[2])


@dataclass(frozen=True)
class HdfsOutside:
    """As `Outside`, by the standard library alone."""

    endpoint: str
    root: str

    def listing(self) -> dict[str, object]:
        return {path.removeprefix(f"{self.root}/"): version for path, version in self._files(self.root)}

    def get(self, key: str) -> bytes:
        return self._ask("GET", f"{self.root}/{key}", "OPEN")

    def put(self, key: str, data: bytes) -> None:
        self._ask("PUT", f"{self.root}/{key}", "CREATE", data, overwrite="true")

    def set_modified(self, key: str, unix_ms: str) -> None:
        self._ask("PUT", f"{self.root}/{key}", "SETTIMES", modificationtime=unix_ms)

    def delete(self, key: str) -> None:
        self._ask("DELETE", f"{self.root}/{key}", "DELETE")

    def uploads(self) -> list[str]:
        return [path for path, _ in self._files(self._staging)]

    def lose_uploads(self) -> None:
        for path in self.uploads():
            self._ask("DELETE", path, "DELETE")

    @property
    def _staging(self) -> str:
        above, _, name = self.root.rpartition("/")
        return f"{above}/.penstock-staging/{name}"

    def _files(self, directory: str) -> Iterator[tuple[str, object]]:
        try:
            answer = json.loads(self._ask("GET", directory, "LISTSTATUS"))
        except urllib.error.HTTPError as absent:
            if absent.code != 404:
                raise
            return
        for status in answer["FileStatuses"]["FileStatus"]:
            path = f"{directory}/{status['pathSuffix']}"
            if status["type"] == "DIRECTORY":
                yield from self._files(path)
            else:
                yield path, (status["length"], status["fileId"])

    def _ask(self, method: str, path: str, operation: str, data: bytes | None = None, **asked: str) -> bytes:
        query = urllib.parse.urlencode({"op": operation, "user.name": "penstock", "noredirect": "true", **asked})
        url = f"{self.endpoint}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            said = answer.read()
        if operation in {"OPEN", "CREATE"}:
            request = urllib.request.Request(json.loads(said)["Location"], data=data, method=method)
            request.add_header("Content-Type", "application/octet-stream")
            with urllib.request.urlopen(request, timeout=30) as answer:
                said = answer.read()
        return bytes(said)


@contextmanager
def running(directory: Path) -> Iterator[HdfsServer]:
    """A cluster with one DataNode that keeps its data below `directory`."""
    java = shutil.which("java")
    if java is None or not READY.exists():
        raise NotInstalledError("HDFS is not there: run `make servers`")
    port, http_port = free_port(), free_port()
    settings = {
        "dfs.replication": "1",
        "hdfs.minidfs.basedir": str(directory / "dfs"),
        "dfs.permissions.enabled": "false",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
        "dfs.client.block.write.locateFollowingBlock.retries": "10",
        "dfs.namenode.fs-limits.min-block-size": "0",
        "dfs.namenode.block.deletion.unlock.interval.ms": "500",  # not 10, which is half of what an idle NameNode computes
    }
    jvm = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{FOLDER}/jars/*", MAIN]
    ports = ["-format", "-nnport", str(port), "-httpport", str(http_port), "-datanodes", "1"]
    log = directory / "hdfs.log"
    process = started([*jvm, *ports, *(f"-D{name}={value}" for name, value in settings.items())], port=http_port, log=log)
    server = HdfsServer(port, http_port)
    try:
        _await_writable(server, log)
        yield server
    finally:
        stop(process)


def _await_writable(server: HdfsServer, log: Path) -> None:
    """The NameNode answers before a DataNode has joined it."""
    probe = server.outside(Place("hdfs://any/ready", {}))
    deadline = time.monotonic() + START_S
    while True:
        try:
            probe.put("probe", b"1")
        except OSError:
            if time.monotonic() > deadline:
                raise AssertionError(f"HDFS did not start: {log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.1)
        else:
            return
