"""Options and URLs of stores that cannot work, as they are told before anything is asked; and what no message may show."""

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from unittest.mock import MagicMock

import google.api_core.exceptions as google
import pytest
import requests

from penstock.blob.client import Failure, error_for
from penstock.blob.gcs import GcsStore
from penstock.blob.hdfs import HdfsStore, RefusedError
from penstock.blob.store import open_store
from penstock.errors import PenstockError, Retryable, Usage

PLACES = {
    "s3": "s3://bucket/table",
    "az": "az://container@account/table",
    "gs": "gs://bucket/table",
    "hdfs": "hdfs://namenode:8020/table",
}
OURS = "AccountName=account;AccountKey=a2V5"
SAS_OF_OTHER = "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sig"


@pytest.mark.parametrize(
    ("kind", "options", "said", "remedy"),
    [
        ("s3", {"regoin": "us-east-1"}, "s3://bucket/table has no option 'regoin'.", "Did you mean region?"),
        ("s3", {"endpoint": "127.0.0.1:9000"}, "a text without scheme://, expected a URL without", "Write http://HOST:PORT"),
        ("az", {"endpoint": "host/account"}, "a text without scheme://, expected a URL without", "Write http://HOST:PORT"),
        ("gs", {"endpoint": "host:1"}, "a text without scheme://, expected a URL without", "Write http://HOST:PORT"),
        ("hdfs", {"webhdfs": "http://a:1,b:1"}, "http://…, expected a URL without", "Write http://HOST:PORT"),
        (
            "az",
            {"connection_string": "AccountName=other;AccountKey=a2V5"},
            "account 'other', expected 'account'.",
            "correct the URL",
        ),
        ("az", {"connection_string": SAS_OF_OTHER}, "account 'other', expected 'account'.", "correct the URL"),
        ("az", {"connection_string": OURS, "endpoint": "http://host/account"}, "and 'endpoint' too", "Keep one"),
        ("az", {"connection_string": OURS, "account_key": "a2V5"}, "and 'account_key' too", "Keep one"),
        ("az", {"connection_string": OURS, "sas_token": "sig=x"}, "and 'sas_token' too", "Keep one"),
        ("hdfs", {"attempts": "many"}, "The option 'attempts' of hdfs://namenode:8020/table is 'many'", "Correct it."),
    ],
)
def test_an_option_that_cannot_work(kind: str, options: Mapping[str, str], said: str, remedy: str) -> None:
    with pytest.raises(Usage) as caught:
        open_store(PLACES[kind], options=options)
    assert said in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "connection",
    [
        OURS,
        "defaultendpointsprotocol=https;accountname=Account;AccountKey=a2V5;",
        SAS_OF_OTHER.replace("other", "account"),
        "BlobEndpoint=http://127.0.0.1:10000/account;SharedAccessSignature=sig",
        "AccountName=account;AccountKey=a2V5;BlobEndpoint=https://blobs.example.com",
        "UseDevelopmentStorage=true",
    ],
)
def test_a_connection_string_of_the_account_or_of_none(connection: str) -> None:
    assert open_store(PLACES["az"], options={"connection_string": connection, "attempts": "2"}).url == PLACES["az"]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("s3", {"addressing_style": "paht", "region": "us-east-1"}, "S3 addressing style paht is invalid."),
        ("s3", {"profile": "nobody-of-this-name"}, "profile (nobody-of-this-name) could not be found"),
        ("az", {"connection_string": "nonsense"}, "Connection string is either blank or malformed."),
        ("gs", {"credentials_file": "/no/such/key.json"}, "No such file or directory: '/no/such/key.json'"),
    ],
)
def test_a_client_that_cannot_be_made(kind: str, options: Mapping[str, str], said: str) -> None:
    with pytest.raises(Usage) as caught:
        open_store(PLACES[kind], options=options).get("x")
    assert caught.value.message.startswith(f"No connection to {PLACES[kind]} can be made: ")
    assert said in caught.value.message
    assert caught.value.remedy.startswith("Correct the account's options")


@pytest.mark.parametrize(
    ("kind", "options", "step"),
    [
        ("s3", {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}, "_client"),
        ("az", {"account_key": "a2V5"}, "_container"),
        ("gs", {"endpoint": "http://127.0.0.1:1"}, "_bucket"),
        ("hdfs", {"webhdfs": "http://127.0.0.1:1"}, "_hdfs"),
    ],
    ids=PLACES,
)
def test_threads_that_begin_at_once_make_one_client(
    kind: str, options: Mapping[str, str], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a client library a tenth of a second, and all but one would be thrown away."""
    store, made, start = open_store(PLACES[kind], options=options), [], threading.Barrier(8)
    another = threading.Event()

    def make(process: int, *settings: object) -> MagicMock:
        made.append(process)
        if len(made) > 1:
            another.set()
        another.wait(0.05)  # while the other threads come
        return MagicMock()

    def client(_: int) -> object:
        start.wait()
        return getattr(store, step)

    monkeypatch.setattr(sys.modules[type(store).__module__], "_client", lru_cache(make))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    assert made == [os.getpid()]


def test_a_name_that_no_bucket_can_have() -> None:
    store = open_store("s3://no bucket/x", options={"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"})
    with pytest.raises(PenstockError, match="no bucket can have this name"):
        store.get("x")


def test_a_request_is_told_without_its_query() -> None:
    error = error_for(
        Failure.UNCHANGED,
        "404 GET http://host/b/o?prefix=x%2F&sig=geheim%2Fnis: Not Found",
        act="list",
        where="gs://b/x",
        changes=False,
    )
    assert error.message == "Could not list gs://b/x: 404 GET http://host/b/o: Not Found."


def test_a_token_never_gets_into_a_message() -> None:
    options = {"webhdfs": "http://127.0.0.1:1", "attempts": "1", "delegation_token": "GEHEIM/TOKEN=="}
    with pytest.raises(PenstockError) as caught:
        open_store(PLACES["hdfs"], options=options).get("x")
    assert "127.0.0.1" in caught.value.message
    assert "GEHEIM" not in str(caught.value)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_an_hdfs_that_is_not_there_is_told_in_plain_words_and_nothing_was_changed() -> None:
    store = open_store(PLACES["hdfs"], options={"webhdfs": closed_port(), "attempts": "1"})
    with pytest.raises(Retryable) as caught:
        store.put_if_absent("name", b"content", tag="t")
    assert re.search(r"name: 127\.0\.0\.1:\d+: [^()]*Connection refused\.$", caught.value.message), caught.value.message


@pytest.mark.parametrize(
    ("exception", "remedy"), [("IOException", "Start again"), ("AccessControlException", "credentials"), ("", "credentials")]
)
def test_what_hdfs_forbids_and_what_it_could_not_do_have_one_status(exception: str, remedy: str) -> None:
    """WebHDFS answers 403 for both; the name of the exception says which it is."""
    answer = requests.Response()
    answer.status_code, answer.reason = 403, "Forbidden"
    answer._content = json.dumps({"RemoteException": {"exception": exception, "message": "so"}} if exception else {}).encode()
    failure = HdfsStore._failure_of(RefusedError(answer))
    assert remedy in error_for(*failure, act="write", where="there", changes=True).remedy


def test_what_google_asked_in_vain_is_told_in_plain_words() -> None:
    """Its client asks again for two minutes, and tells of that and of the last answer."""
    with pytest.raises(requests.ConnectionError) as caught:
        requests.get(f"{closed_port()}/storage", timeout=5)
    gave_up = google.RetryError("Timeout of 120.0s exceeded", cause=caught.value)
    _, reason = GcsStore._failure_of(gave_up)
    assert re.search(r"^127\.0\.0\.1:\d+: [^()]*Connection refused$", reason), reason
