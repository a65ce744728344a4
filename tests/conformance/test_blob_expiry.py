"""What a store says of its own lifecycle rules, in the words of the real stores.

Neither versitygw nor fake-gcs-server keeps lifecycle rules, so a proxy before them answers what the manuals of S3 and of Google
Cloud Storage show; clients and HTTP are the real ones. That versitygw does not answer at all is a test, too.
"""

import json
from collections.abc import Iterator

import pytest
from tests.servers.fixtures import accounts_on
from tests.servers.proxy import Proxy, before
from tests.servers.server import Place

from penstock.core.model import AccountName, Finding, PipelineName, SinkName
from penstock.sink.parquet import object_account
from penstock.sink.spool import SpoolRoot

XML = '<?xml version="1.0"?><LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{}</LifecycleConfiguration>'
ABORT = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>{}</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
EXPIRE = "<Expiration><Days>{}</Days></Expiration>"
BY_DATE = "<Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>"
MARKERS = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
TAGGED = "<Tag><Key>temporary</Key><Value>yes</Value></Tag>"


def rule(action: str, *, prefix: str = "", only: str = "", status: str = "Enabled", old: bool = False) -> str:
    """Old configurations have the prefix outside of a filter."""
    named = f"<Prefix>{prefix}</Prefix>"
    chosen = named if old else f"<Filter>{f'<And>{named}{only}</And>' if only else named}</Filter>"
    return f"<Rule><ID>tidy</ID>{chosen}<Status>{status}</Status>{action}</Rule>"


@pytest.fixture
def amazon() -> Iterator[tuple[Proxy, Place]]:
    (place, _) = accounts_on(lifecycle="s3")["lifecycle"]
    with before(place.options["endpoint"]) as proxy:
        yield proxy, Place(place.url, {**place.options, "endpoint": proxy.endpoint})


@pytest.fixture
def google() -> Iterator[tuple[Proxy, Place]]:
    (place, _) = accounts_on(lifecycle="gs")["lifecycle"]
    with before(place.options["endpoint"]) as proxy:
        yield proxy, Place(place.url, {**place.options, "endpoint": proxy.endpoint})


def found(place: Place) -> Finding:
    area = object_account(place.url, options=place.options).area(
        pipeline=PipelineName("flights"), sink=SinkName("lake"), account=AccountName("only")
    )
    reached, lifecycle = area.check()
    assert reached.ok, reached
    assert [lifecycle] == area.lifecycle()
    assert lifecycle.ok
    assert lifecycle.subject == f"lifecycle of {place.url}"
    return lifecycle


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (rule(ABORT.format(3)), "ends uploads 3 days after"),
        (rule(ABORT.format(1), prefix="table/month=3/"), "ends uploads 1 day after"),
        (rule(ABORT.format(6), prefix="tab", old=True), "ends uploads 6 days after"),
        (rule(EXPIRE.format(365)), "_penstock/flights/lake/"),
        (rule(EXPIRE.format(3650), prefix="table/_penstock/"), "3650 days after"),
        (rule(BY_DATE, prefix="table/"), "on a fixed date"),
        (rule(ABORT.format(9)) + rule(EXPIRE.format(30)), "30 days after"),
        (rule(ABORT.format(7)), ""),
        (rule(ABORT.format(1), status="Disabled"), ""),
        (rule(ABORT.format(1), prefix="other/"), ""),
        (rule(EXPIRE.format(30), prefix="table/month="), ""),
        (rule(EXPIRE.format(30), prefix="table/", only=TAGGED), ""),
        (rule(MARKERS), ""),
    ],
)
def test_rules_of_s3_that_would_hurt_are_told(amazon: tuple[Proxy, Place], rules: str, said: str) -> None:
    proxy, place = amazon
    bucket = place.url.split("/")[2]
    proxy.tell(lambda method, path: (method, path) == ("GET", f"/{bucket}?lifecycle"), XML.format(rules).encode())
    finding = found(place)
    assert (finding.warns, said in finding.message) == (bool(said), True), finding
    assert said or "nothing that must stay is deleted" in finding.message


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"age": 3}, "_penstock/flights/lake/"),
        ({"age": 3, "matchesPrefix": ["lake/.penstock-staging/"]}, "ends uploads 3 days after"),
        ({"age": 30, "matchesPrefix": ["other/", "lake/table/_penstock"]}, "30 days after"),
        ({"createdBefore": "2030-01-01"}, "on a fixed date"),
        ({"age": 7, "matchesPrefix": ["lake/.penstock-staging/"]}, ""),
        ({"age": 1, "matchesPrefix": ["lake/table/month="]}, ""),
        ({"age": 1, "isLive": False}, ""),
        ({"numNewerVersions": 3}, ""),
        ({"daysSinceCustomTime": 1}, ""),
    ],
)
def test_rules_of_google_that_would_hurt_are_told(google: tuple[Proxy, Place], condition: dict[str, object], said: str) -> None:
    proxy, place = google
    bucket = place.url.split("/")[2]
    rules = [
        {"action": {"type": "Delete"}, "condition": condition},
        {"action": {"type": "SetStorageClass", "storageClass": "NEARLINE"}, "condition": {"age": 1}},
        {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 1}},
    ]
    answer = {"kind": "storage#bucket", "id": bucket, "name": bucket, "lifecycle": {"rule": rules}}
    wanted = f"/storage/v1/b/{bucket}"
    proxy.tell(lambda method, path: method == "GET" and path.partition("?")[0] == wanted, json.dumps(answer).encode())
    finding = found(place)
    assert (finding.warns, said in finding.message) == (bool(said), True), finding


def test_a_bucket_without_rules_is_fine(google: tuple[Proxy, Place]) -> None:
    _, place = google
    assert not found(place).warns


@pytest.mark.parametrize(
    ("kind", "said"), [("az", "deleted after 7 days"), ("hdfs", "nothing that must stay is deleted."), ("s3", "cannot be read")]
)
def test_what_other_stores_say(kind: str, said: str) -> None:
    """versitygw: NotImplemented, as a store says that has no such rules or does not let us see them."""
    (place, _) = accounts_on(lifecycle=kind)["lifecycle"]
    finding = found(place)
    assert not finding.warns
    assert said in finding.message


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (rule(EXPIRE.format(3)), "deletes objects 3 days after they were written: rows that are decided"),
        (rule(EXPIRE.format(1), prefix="table/flights/"), "deletes objects 1 day after"),
        (rule(BY_DATE, prefix="table/"), "on a fixed date"),
        (rule(EXPIRE.format(7)), "deletes objects 7 days after they were written: rows that are decided"),
        (rule(EXPIRE.format(365), prefix="table/flights/db/"), "365 days after"),
        (rule(ABORT.format(1)), ""),
        (rule(EXPIRE.format(1), prefix="other/"), ""),
    ],
)
def test_rules_that_would_empty_a_spool_are_told(amazon: tuple[Proxy, Place], rules: str, said: str) -> None:
    """However long they let a batch wait: the outage that is longer comes one day."""
    proxy, place = amazon
    bucket = place.url.split("/")[2]
    proxy.tell(lambda method, path: (method, path) == ("GET", f"/{bucket}?lifecycle"), XML.format(rules).encode())
    reached, lifecycle = SpoolRoot(url=place.url, options=place.options).check()
    assert (reached.ok, lifecycle.ok) == (True, True)
    assert (lifecycle.warns, said in lifecycle.message) == (bool(said), True), lifecycle


def test_a_spool_whose_store_does_not_tell_is_left_to_its_owner() -> None:
    (place, _) = accounts_on(lifecycle="s3")["lifecycle"]
    [lifecycle] = SpoolRoot(url=place.url, options=place.options).lifecycle()
    assert not lifecycle.warns
    assert "cannot be read" in lifecycle.message
