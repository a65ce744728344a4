"""fake-gcs-server, an emulator of Google Cloud Storage, in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.servers.gs_xml import xml_api
from tests.servers.server import HOME, NotInstalledError, Place, build, free_port, started, stop

MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
BINARY = HOME / "bin" / "fake-gcs-server"


def install() -> None:
    """Build it, unless it is there."""
    build(MODULE, BINARY)


class GcsServer:
    """One running server. Each account is a bucket of its own, with a prefix in it."""

    kind = "gs"

    def __init__(self, port: int, xml: str) -> None:
        self._endpoint, self._xml = f"http://127.0.0.1:{port}", xml

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self._endpoint, "project": "test"}

    def place(self, name: str) -> Place:
        """An empty bucket with a prefix."""
        self.client().create_bucket(name)
        return Place(f"gs://{name}/lake/table", self.options)

    def place_with_xml(self, name: str) -> Place:
        """An empty bucket with a prefix, for the library for Delta tables, too."""
        place = self.place(name)
        return Place(place.url, {**place.options, "endpoint": self._xml})

    def outside(self, place: Place) -> "GcsOutside":
        """That account, looked at from outside."""
        bucket, _, prefix = place.url.removeprefix("gs://").partition("/")
        return GcsOutside(self._endpoint, bucket, prefix)

    def client(self):
        return _client(self._endpoint)


@dataclass(frozen=True)
class GcsOutside:
    """As `Outside`."""

    endpoint: str
    bucket: str
    prefix: str

    def listing(self) -> dict[str, object]:
        """A generation changes when the same parts are put together again."""
        found = _client(self.endpoint).list_blobs(self.bucket, prefix=f"{self.prefix}/")
        return {blob.name.removeprefix(f"{self.prefix}/"): (blob.size, blob.md5_hash, str(blob.metadata)) for blob in found}

    def get(self, key: str) -> bytes:
        return self._blob(key).download_as_bytes()

    def put(self, key: str, data: bytes) -> None:
        self._blob(key).upload_from_string(data)

    def delete(self, key: str) -> None:
        self._blob(key).delete()

    def uploads(self) -> list[str]:
        return [blob.name for blob in self._staged()]

    def lose_uploads(self) -> None:
        for blob in self._staged():
            blob.delete()

    def _staged(self):
        above, _, name = self.prefix.rpartition("/")
        return list(_client(self.endpoint).list_blobs(self.bucket, prefix=f"{above}/.penstock-staging/{name}/"))

    def _blob(self, key: str):
        return _client(self.endpoint).bucket(self.bucket).blob(f"{self.prefix}/{key}")


@cache
def _client(endpoint: str):
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(project="test", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})


@contextmanager
def running(directory: Path) -> Iterator[GcsServer]:
    """A server that keeps its data in memory."""
    if not BINARY.exists():
        raise NotInstalledError("fake-gcs-server is not there: run `make servers`")
    port = free_port()
    here = f"127.0.0.1:{port}"
    addresses = ["-host", "127.0.0.1", "-port", str(port), "-public-host", here, "-external-url", f"http://{here}"]
    command = [str(BINARY), "-scheme", "http", "-backend", "memory", *addresses]
    process = started(command, port=port, log=directory / "gcs.log")
    try:
        with xml_api(f"http://{here}", directory) as xml:
            yield GcsServer(port, xml)
    finally:
        stop(process)
