"""A ledger is refused at the start on a store that does not honour conditions, on a real server."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.servers.fixtures import accounts_on

from penstock.blob import open_store
from penstock.blob.check import check_store
from penstock.blob.s3 import S3Store
from penstock.blob.url import parse
from penstock.errors import Failed, StoreIgnoresConditions, Usage
from penstock.ledger.log import LogLedger
from penstock.ledger.store import BlobLedgerStore
from penstock.sink.delta.place import StorePlace
from penstock.sink.parquet import object_account
from penstock.sink.spool import SpoolRoot
from penstock.testing.conformance.rig import PIPELINE


@dataclass(frozen=True, kw_only=True)
class IgnoringStore(S3Store):
    """As one behind a proxy that drops the header."""

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        self.put(key, data, tag=tag)
        return True


@dataclass(frozen=True, kw_only=True)
class LookingStore(S3Store):
    """Looks first and puts then, so that several racing writers win."""

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        if self.head(key) is not None:
            return False
        self.put(key, data, tag=tag)
        return True


@pytest.mark.parametrize("kind", [IgnoringStore, LookingStore])
def test_a_store_that_ignores_conditions_is_refused(kind: type[S3Store]) -> None:
    (place, _) = accounts_on(liar="s3")["liar"]
    store = kind(place=parse(place.url), options=place.options)
    with pytest.raises(StoreIgnoresConditions):
        LogLedger(BlobLedgerStore(store), pipeline=PIPELINE).prove()
    assert ("ignores If-None-Match" in check_store(store, subject="it", folder="").message) is (kind is IgnoringStore)


def test_an_honest_store_passes() -> None:
    (place, _) = accounts_on(honest="s3")["honest"]
    LogLedger(BlobLedgerStore(S3Store(place=parse(place.url), options=place.options)), pipeline=PIPELINE).prove()


@dataclass(frozen=True, kw_only=True)
class RepeatingStore(S3Store):
    """Sends every put twice, as its client does after a lost answer, and tells the second answer."""

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        super().put_if_absent(key, data, tag=tag)
        return super().put_if_absent(key, data, tag=tag)


def test_an_honest_store_passes_whose_client_meets_its_own_write() -> None:
    (place, _) = accounts_on(honest="s3")["honest"]
    store = RepeatingStore(place=parse(place.url), options=place.options)
    LogLedger(BlobLedgerStore(store), pipeline=PIPELINE).prove()
    assert check_store(store, subject="it", folder="").ok
    account = object_account(place.url, options=place.options)
    StorePlace(account=replace(account, store=store)).prove()
    assert not list(store.list())


def secrets_of(options: "Sequence[str] | object") -> list[str]:
    assert isinstance(options, dict)
    return [value for name, value in options.items() if "key" in name]


@pytest.mark.parametrize("kind", ["az", "s3"])
def test_wrong_credentials_are_told_and_not_shown(kind: str) -> None:
    (place, _) = accounts_on(wrong=kind)["wrong"]
    name = {"az": "account_key", "s3": "secret_access_key"}[kind]
    options = {**place.options, name: "d3Jvbmctc2VjcmV0LXdyb25nLXNlY3JldA=="}
    area = object_account(place.url, options=options).area(pipeline=PIPELINE, sink="lake", account="only")  # type: ignore[arg-type]
    with pytest.raises(Failed) as caught:
        area.prepare()
    assert "credentials" in caught.value.remedy
    assert not [secret for secret in secrets_of(options) if secret in str(caught.value)]


@pytest.mark.parametrize("url", ["s3://no-such-bucket/x", "az://nosuch@penstocktest/x"])
def test_a_bucket_that_is_not_there_is_told(url: str) -> None:
    kind = url.partition(":")[0]
    (place, _) = accounts_on(there=kind)["there"]
    area = object_account(url, options=place.options).area(pipeline=PIPELINE, sink="lake", account="only")  # type: ignore[arg-type]
    with pytest.raises(Failed, match=r"no-?such") as caught:
        area.prepare()
    assert "Create the bucket or container" in caught.value.remedy
    (finding,) = area.check()
    assert not finding.ok


def test_an_option_that_a_store_does_not_have_is_told() -> None:
    with pytest.raises(Usage, match="no option 'regio'"):
        object_account("s3://bucket/x", options={"regio": "x"})


@pytest.mark.parametrize(
    "staging", ["/lake/table", "/lake/table/", "/lake/other/../table/tmp", "//lake/table/tmp", "lake/staging", ""]
)
def test_staging_where_readers_would_see_it_is_refused(staging: str) -> None:
    with pytest.raises(Usage, match="expected an absolute path outside of /lake/table"):
        object_account("hdfs://namenode/lake/table", options={"staging": staging})


@pytest.mark.parametrize("url", ["hdfs://namenode:8020", "hdfs://namenode:8020/", "gs://bucket/"])
def test_a_root_that_leaves_no_room_beside_it_is_refused(url: str) -> None:
    for make in (object_account, lambda root: SpoolRoot(url=root).check()):
        with pytest.raises(Usage, match=r"is a whole (file system|bucket), and what is staged must lie outside") as told:
            make(url)
        assert told.value.remedy.endswith("/table.")


def test_staging_beside_a_table_is_fine() -> None:
    for staging in ("/lake/table-staging", "/lake/.staging/table", "/staging/"):
        object_account("hdfs://namenode/lake/table", options={"staging": staging})


def test_a_bucket_that_lists_in_no_order_is_refused() -> None:
    """The newest mark is the first in a listing. Source: Amazon S3 API reference, ListObjectsV2, "Directory buckets"."""
    with pytest.raises(Usage, match="a directory bucket"):
        object_account("s3://lake--use1-az4--x-s3/table")


@pytest.mark.parametrize("given", ["0", "-1", "many", "nan", "inf"])
@pytest.mark.parametrize("name", ["attempts", "timeout_s"])
def test_an_option_that_should_be_a_number_is_told(name: str, given: str) -> None:
    with pytest.raises(Usage, match=f"The option '{name}' of s3://bucket/x is '{given}', expected a"):
        object_account("s3://bucket/x", options={name: given})


@pytest.mark.parametrize(
    ("options", "dates"),
    [
        ({"account_key": "a2V5"}, True),
        ({"connection_string": "AccountName=a;AccountKey=a2V5"}, True),
        ({"connection_string": "BlobEndpoint=https://a;SharedAccessSignature=sig"}, False),
        ({"sas_token": "sig=x"}, False),
        ({}, False),
    ],
)
def test_azure_promises_to_refuse_late_requests_of_account_keys_only(options: dict[str, str], *, dates: bool) -> None:
    assert open_store("az://c@a/x", options=options).dates_requests is dates
