"""versitygw, an S3 server with working conditional writes and multipart uploads, over a directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.servers.server import HOME, NotInstalledError, Place, build, free_port, started, stop

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BINARY = HOME / "bin" / "versitygw"
KEY, SECRET = "penstock-test", "penstock-test-secret"


def install() -> None:
    """Build it, unless it is there."""
    build(MODULE, BINARY)


class S3Server:
    """One running server. Each account is a bucket of its own, or a prefix in it."""

    kind = "s3"

    def __init__(self, port: int) -> None:
        self._endpoint = f"http://127.0.0.1:{port}"

    def place(self, name: str) -> Place:
        """An empty bucket with a prefix."""
        self.client().create_bucket(Bucket=name)
        return Place(f"s3://{name}/table", self.options)

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self._endpoint,
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "addressing_style": "path",
        }

    def outside(self, place: Place) -> "S3Outside":
        """That account, looked at from outside."""
        return S3Outside(self._endpoint, *place.url.removeprefix("s3://").split("/", 1))

    def client(self):
        return _client(self._endpoint)


@dataclass(frozen=True)
class S3Outside:
    """As `Outside`."""

    endpoint: str
    bucket: str
    prefix: str

    def listing(self) -> dict[str, object]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/")
        found = [object_ for page in pages for object_ in page.get("Contents", [])]
        return {one["Key"].removeprefix(f"{self.prefix}/"): (one["Size"], one["ETag"]) for one in found}

    def get(self, key: str) -> bytes:
        return self._client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")["Body"].read()

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}", Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")

    def uploads(self) -> list[str]:
        return [f"{upload['Key']}#{upload['UploadId']}" for upload in self._uploads()]

    def lose_uploads(self) -> None:
        for upload in self._uploads():
            self._client.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def _uploads(self):
        return self._client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])

    @property
    def _client(self):
        return _client(self.endpoint)


@cache
def _client(endpoint: str):
    import boto3

    secrets = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **secrets)


@contextmanager
def running(directory: Path) -> Iterator[S3Server]:
    """A server that keeps its data below `directory`."""
    if not BINARY.exists():
        raise NotInstalledError("versitygw is not there: run `make servers`")
    port = free_port()
    data = directory / "s3"
    data.mkdir(parents=True)
    # Without `--keep-alive`: with it, versitygw refuses some completions of multipart uploads as requests it cannot parse.
    command = [str(BINARY), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(data)]
    process = started(command, port=port, log=directory / "s3.log", env={"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET})
    try:
        yield S3Server(port)
    finally:
        stop(process)
