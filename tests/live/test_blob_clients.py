"""What the stores' client libraries do by themselves: who they say we are, how often and when they ask again, whom they trust."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import google.api_core.exceptions as google
import pytest
import requests
from azure.core.pipeline.transport import HttpTransport
from botocore.exceptions import CredentialRetrievalError, TokenRetrievalError, UnauthorizedSSOTokenError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.servers.certificates import certify
from tests.servers.fixtures import accounts_on
from tests.servers.proxy import before
from tests.servers.serving import serving
from urllib3.util.retry import Retry

from penstock.blob.client import error_for
from penstock.blob.gcs import GcsStore
from penstock.blob.s3 import S3Store
from penstock.blob.store import open_store
from penstock.errors import Failed, Retryable

NOBODY = "http://127.0.0.1:1"


def have_netrc(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own file has a password for every host."""
    (directory / "netrc").write_text("default login bob password word\n")
    monkeypatch.setenv("NETRC", str(directory / "netrc"))


def test_azure_is_shown_the_account_key_whatever_a_netrc_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place, _) = accounts_on(netrc="az")["netrc"]
    have_netrc(tmp_path, monkeypatch)
    store = open_store(place.url, options={**place.options, "attempts": "1"})
    store.put("name", b"content", tag="t")
    assert store.get("name") == b"content"


@contextmanager
def google_like() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """It gives tokens and has no objects; what it was asked for, and what it was shown of who asks."""
    shown: list[tuple[str, str | None]] = []

    class Like(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            shown.append((self.command, self.headers["Authorization"]))
            token = self.path == "/token"
            body = json.dumps({"access_token": "abc", "expires_in": 3600} if token else {}).encode()
            self.send_response(200 if token else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _handle  # noqa: N815 - named by http.server

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Like)
    with serving(running):
        yield f"http://127.0.0.1:{running.server_port}", shown


def key_file(directory: Path, url: str) -> str:
    """A service account's, whose tokens come from `url`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
    named = {"type": "service_account", "project_id": "p", "client_email": "a@b", "private_key": pem, "token_uri": f"{url}/token"}
    (directory / "key.json").write_text(json.dumps(named))
    return str(directory / "key.json")


def test_google_is_shown_the_token_whatever_a_netrc_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where tokens are had, nothing of the file either."""
    have_netrc(tmp_path, monkeypatch)
    with google_like() as (url, shown):
        store = open_store("gs://bucket/table", options={"endpoint": url, "credentials_file": key_file(tmp_path, url)})
        assert store.head("name") is None
    assert shown == [("POST", None), ("GET", "Bearer abc")]


def test_azure_is_asked_as_often_as_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pauses that do not grow for ever."""
    pauses: list[float] = []
    monkeypatch.setattr(HttpTransport, "sleep", lambda _, pause_s: pauses.append(pause_s))
    (place, _) = accounts_on(often="az")["often"]
    with before(place.options["endpoint"]) as proxy:
        there = proxy.endpoint + "/" + place.options["endpoint"].rpartition("/")[2]
        store = open_store(place.url, options={**place.options, "endpoint": there, "attempts": "8"})
        proxy.arm("slow down", lambda method, _: method == "GET", times=7)
        assert store.get("name") is None
    assert proxy.hits == len(pauses) == 7
    assert max(pauses) == 20
    assert proxy.connections == 1


def test_webhdfs_does_not_wait_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our limit of time would be none."""
    monkeypatch.setattr(Retry, "sleep_for_retry", lambda *_: pytest.fail("it waits for as long as the server says"))
    with before(NOBODY) as proxy:
        store = open_store("hdfs://namenode/table", options={"webhdfs": proxy.endpoint, "attempts": "2"})
        proxy.arm("slow down", lambda *_: True, times=9)
        with pytest.raises(Retryable):
            store.get("name")
    assert proxy.hits == 2


def test_google_is_asked_again_on_the_connection_that_it_refused_on() -> None:
    """Else each refusal costs a new connection, and the old one stays open until the garbage collector finds it."""
    with before(NOBODY) as proxy:
        store = open_store("gs://bucket/table", options={"endpoint": proxy.endpoint})
        proxy.arm("slow down", lambda *_: True, times=2)
        proxy.tell(lambda *_: proxy.hits == 2, b"content")
        assert store.get("name") == b"content"
    assert (proxy.hits, proxy.connections) == (2, 1)


# --- certificates


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """A server with a certificate of an authority that this machine does not know."""
    certify(tmp_path / "ca.pem", tmp_path / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with before(NOBODY, tls=context) as proxy:
        yield proxy.endpoint


@pytest.mark.parametrize(
    ("url", "address", "more"),
    [
        ("s3://bucket/table", "endpoint", {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}),
        ("az://container@account/table", "endpoint", {"account_key": "a2V5"}),
        ("hdfs://namenode/table", "webhdfs", {}),
    ],
)
def test_a_certificate_that_is_not_trusted_does_not_pass(untrusted: str, url: str, address: str, more: dict[str, str]) -> None:
    store = open_store(url, options={address: untrusted, "attempts": "1", **more})
    with pytest.raises(Failed, match="CERTIFICATE_VERIFY_FAILED") as caught:
        store.put("name", b"content", tag="t")
    assert caught.value.remedy.startswith("Have this machine trust the authority")


def test_googles_certificate_that_is_not_trusted_does_not_pass(untrusted: str) -> None:
    """Its client asks again for two minutes first."""
    with pytest.raises(requests.ConnectionError) as caught:
        requests.get(f"{untrusted}/storage", timeout=5)
    for cause in (caught.value, google.RetryError("Timeout of 120.0s exceeded", cause=caught.value)):
        error = error_for(*GcsStore._failure_of(cause), act="write", where="there", changes=True)
        assert isinstance(error, Failed)
        assert error.remedy.startswith("Have this machine trust the authority")


@pytest.mark.parametrize(
    "cause",
    [
        UnauthorizedSSOTokenError(),
        TokenRetrievalError(provider="sso", error_msg="Token has expired and refresh failed"),
    ],
)
def test_a_login_to_aws_that_has_run_out_is_told_as_such(cause: Exception) -> None:
    error = error_for(*S3Store._failure_of(cause), act="write", where="there", changes=True)
    assert isinstance(error, Failed)
    assert "credentials" in error.remedy


def test_credentials_that_a_machine_does_not_give_now_it_may_give_in_a_moment() -> None:
    cause = CredentialRetrievalError(provider="iam-role", error_msg="no answer")
    assert isinstance(error_for(*S3Store._failure_of(cause), act="write", where="there", changes=True), Retryable)
