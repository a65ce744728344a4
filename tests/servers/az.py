"""Azurite, Microsoft's emulator of Azure Blob Storage, in memory: on disk it loses what it acknowledged when it is killed."""

import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.servers.server import HOME, NotInstalledError, Place, free_port, started, stop

PACKAGE = "azurite@3.35.0"
FOLDER = HOME / "azurite"
MAIN = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
ACCOUNT = "penstocktest"
KEY = base64.b64encode(b"secret-of-the-emulator-0123456789").decode()


def install() -> None:
    """Fetch it, unless it is there."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotInstalledError("Azurite runs on Node.js, and node or npm is not on PATH")
    if not MAIN.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        subprocess.run([npm, "install", "--prefix", str(FOLDER), *quiet, PACKAGE], check=True)


class AzureServer:
    """One running server. Each account of a pipeline is a container of its own, with a prefix in it."""

    kind = "az"

    def __init__(self, port: int) -> None:
        self._endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self._endpoint, "account_key": KEY}

    def place(self, name: str) -> Place:
        """An empty container with a prefix."""
        self.client().create_container(name)
        return Place(f"az://{name}@{ACCOUNT}/table", self.options)

    def outside(self, place: Place) -> "AzureOutside":
        """That account, looked at from outside."""
        container, _, rest = place.url.removeprefix("az://").partition("@")
        return AzureOutside(self._endpoint, container, rest.partition("/")[2])

    def client(self):
        return _client(self._endpoint)


@dataclass(frozen=True)
class AzureOutside:
    """As `Outside`. Blocks that are not committed cannot be removed: to lose them, no blocks are committed in their place."""

    endpoint: str
    container: str
    prefix: str

    def listing(self) -> dict[str, object]:
        """An ETag changes when the same blocks are committed again."""
        found = self._client.list_blobs(name_starts_with=f"{self.prefix}/", include=["metadata"])
        return {blob.name.removeprefix(f"{self.prefix}/"): (blob.size, str(blob.metadata)) for blob in found}

    def get(self, key: str) -> bytes:
        return self._client.download_blob(f"{self.prefix}/{key}").readall()

    def put(self, key: str, data: bytes) -> None:
        self._client.upload_blob(f"{self.prefix}/{key}", data, overwrite=True)

    def delete(self, key: str) -> None:
        self._client.delete_blob(f"{self.prefix}/{key}")

    def uploads(self) -> list[str]:
        return []

    def lose_uploads(self) -> None:
        every = self._client.list_blobs(name_starts_with=f"{self.prefix}/", include=["uncommittedblobs"])
        for name in sorted({blob.name for blob in every} - {f"{self.prefix}/{key}" for key in self.listing()}):
            self._client.get_blob_client(name).commit_block_list([])
            self._client.delete_blob(name)

    @property
    def _client(self):
        return _client(self.endpoint).get_container_client(self.container)


@cache
def _client(endpoint: str):
    from azure.storage.blob import BlobServiceClient

    return BlobServiceClient(endpoint, credential={"account_name": ACCOUNT, "account_key": KEY})


@contextmanager
def running(directory: Path) -> Iterator[AzureServer]:
    """A server that keeps its data in memory."""
    node = shutil.which("node")
    if node is None or not MAIN.exists():
        raise NotInstalledError("Azurite is not there: run `make servers`")
    port = free_port()
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
    command = [node, str(MAIN), "--blobHost", "127.0.0.1", "--blobPort", str(port), *quiet]
    process = started(command, port=port, log=directory / "azurite.log", env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"})
    try:
        yield AzureServer(port)
    finally:
        stop(process)
