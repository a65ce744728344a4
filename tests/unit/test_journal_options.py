"""What a source `format: journal` may say in the pipeline file."""

from typing import Any

import pytest

from penstock.errors import Usage
from penstock.spec.source import Source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "reads a journal but has neither path nor url"),
        ({"path": "s3://b/j"}, "path should be a directory on this machine or mounted on it"),
        ({"path": "j", "schema": "a INT"}, "schema does not go with format: journal"),
        ({"path": "j", "options": {"maxFilesPerTrigger": 1}}, "maxFilesPerTrigger is not an option of a journal"),
        ({"path": "j", "options": {"startingOffsets": "first"}}, "startingOffsets should be earliest or latest, found 'first'"),
        ({"path": "j", "options": {"maxBytesPerTrigger": "1MB"}}, "maxBytesPerTrigger should be a whole number"),
        ({"path": "j", "url": "http://h:1"}, "url is there beside path"),
        ({"path": "j", "token": "t"}, "token is for url only"),
        ({"path": "j", "tls": {}}, "tls is for url only"),
        ({"url": "h:1"}, "should be the URL of an endpoint"),
        ({"url": ["http://u:p@h:1"]}, "holds a user"),
        ({"url": "http://h:65536"}, "a port that cannot be"),
        ({"url": "http://a..b:1"}, "has a host or a port that cannot be"),
        ({"url": "http://h:1?journal=2"}, "has a query or what is not ASCII"),
        ({"url": "http://h:1/\u00e9"}, "has a query or what is not ASCII"),
        ({"url": ["https://h:1", "http://g:1"], "tls": {}}, "tls is given, but a url begins with http://, where nothing is encr"),
        ({"path": "j", "reader": "python"}, "reader is for format: kafka only"),
    ],
)
def test_a_wrong_source_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises((Usage, ValueError), match=message):
        Source(format="journal", **given)


@pytest.mark.parametrize("key", ["url", "token", "tls"])
def test_receivers_are_for_journals(key: str) -> None:
    given: dict[str, Any] = {"url": "http://h:1", "token": "t", "tls": {}}
    with pytest.raises((Usage, ValueError), match=f"{key} is for format: journal only"):
        Source(format="rate", **{key: given[key]})


@pytest.mark.parametrize("url", ["http://h:1", ["http://h:1", "https://g"], ("http://h:1",)], ids=str)
def test_a_source_reads_one_receiver_or_several(url: Any) -> None:
    assert Source(format="journal", url=url).url == ((url,) if isinstance(url, str) else tuple(url))
