"""The part of Google Cloud Storage's XML API that the emulator lacks and the library for Delta tables speaks.

Requests go to the emulator's JSON API: https://cloud.google.com/storage/docs/xml-api/reference-methods. Any other is passed on.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import count
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import unescape

from tests.servers.proxy import Answer, Handler, Proxy
from tests.servers.server import free_port, started, stop

ROOT = Path(__file__).parents[2]

_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


class XmlApi(Proxy):
    """Before the emulator at `target`."""

    def __init__(self, target: str, *, port: int) -> None:
        super().__init__(target, port=port)
        self.RequestHandlerClass = _XmlHandler
        self.parts: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Of each upload that is not complete."""
        self.uploads = count()


class _XmlHandler(Handler):
    server: XmlApi

    def _forward(self, body: bytes) -> Answer:
        self.headers.replace_header("Host", self.server.target)  # by which the emulator knows such requests
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        bucket, _, key = unquote(path[1:]).partition("/")
        if bucket in {"storage", "upload"} or self.command in {"HEAD", "DELETE"} or (self.command == "GET" and key):
            return super()._forward(body)
        if self.command == "GET":
            return self._listed(query)
        if "uploads" in query:
            return _answer(
                f"<InitiateMultipartUploadResult><UploadId>{next(self.server.uploads)}</UploadId></InitiateMultipartUploadResult>"
            )
        if "partNumber" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = body
            return HTTPStatus.OK, [("ETag", f'"{query["partNumber"]}"')], b""
        if "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"])
            status, headers, _ = self._put(bucket, key, b"".join(parts[number] for number in sorted(parts)))
            done = _answer("<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>")
            return status, [*headers, *done[1]], done[2]
        return self._put(bucket, key, body)

    def _listed(self, query: dict[str, str]) -> Answer:
        """The emulator lists all, whatever `start-after` says."""
        status, headers, data = super()._forward(b"")
        after = query.get("start-after", "")
        return status, headers, _CONTENTS.sub(lambda each: each[0] if _key(each[0]) > after else b"", data)

    def _put(self, bucket: str, key: str, data: bytes) -> Answer:
        if "x-goog-copy-source" in self.headers:
            self.command, self.path = "GET", "/" + self.headers["x-goog-copy-source"].lstrip("/")
            data = super()._forward(b"")[2]
        condition = self.headers.get("x-goog-if-generation-match")
        query = {"uploadType": "media", "name": key, **({} if condition is None else {"ifGenerationMatch": condition})}
        del self.headers["Content-Length"]
        self.headers["Content-Length"] = str(len(data))
        self.command, self.path = "POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}"
        status, headers, answer = super()._forward(data)
        return status, [*headers, ("ETag", '"whole"')], answer


def _answer(document: str) -> Answer:
    return HTTPStatus.OK, [("Content-Type", "application/xml")], f'<?xml version="1.0" encoding="UTF-8"?>{document}'.encode()


def _key(contents: bytes) -> str:
    found = _KEY.search(contents)
    assert found is not None
    return unescape(found[1].decode(), {"&#34;": '"', "&#39;": "'"})


@contextmanager
def xml_api(target: str, directory: Path) -> Iterator[str]:
    """Yield its address. It is a process of its own, since the library holds Python's lock while it waits for some answers."""
    port = free_port()
    environment = {"PYTHONPATH": str(ROOT)}
    process = started([sys.executable, "-m", __name__, str(port), target], port=port, log=directory / "xml.log", env=environment)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


if __name__ == "__main__":
    XmlApi(sys.argv[2], port=int(sys.argv[1])).serve_forever()
