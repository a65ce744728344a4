"""URLs of accounts in stores: what they name, and what is no such URL."""

import pytest

from penstock.blob.url import is_blob, parse
from penstock.errors import Usage


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a%20b", "s3://bucket/a%20b"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("az://container@account/x", "az://container@account/x"),
        ("abfss://container@account.dfs.core.windows.net/x", "az://container@account/x"),
        ("wasbs://container@account.blob.core.windows.net/x", "az://container@account/x"),
        ("abfss://c@account.dfs.core.chinacloudapi.cn/x", "az://c@account.blob.core.chinacloudapi.cn/x"),
        ("hdfs://namenode:8020/a/b", "hdfs://namenode:8020/a/b"),
    ],
)
def test_a_url_is_told_in_one_way(url: str, canonical: str) -> None:
    assert is_blob(url)
    assert str(parse(url)) == canonical
    assert parse(canonical) == parse(url)


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("s3://bucket/a b", "s3a://bucket/a b"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("az://container@account/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("az://account@account", "abfss://account@account.dfs.core.windows.net"),
        ("az://c@account.blob.core.chinacloudapi.cn/x", "abfss://c@account.dfs.core.chinacloudapi.cn/x"),
        ("hdfs://namenode:8020/a", "hdfs://namenode:8020/a"),
    ],
)
def test_a_url_as_spark_spells_it(url: str, spelled: str) -> None:
    assert parse(url).for_hadoop == spelled


@pytest.mark.parametrize("url", ["file:///x", "/x", "x", "postgresql://h/d", "s3:/bucket"])
def test_other_places_are_none(url: str) -> None:
    assert not is_blob(url)


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "az://account/x", "az://@account/x", "hdfs:///x", "s3://b/a/../c", "gs://b/a//c"]
)
def test_a_url_that_names_no_place_is_told(url: str) -> None:
    with pytest.raises(Usage, match="no URL of a place"):
        parse(url)


def test_a_key_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(Usage) as caught:
        parse("s3://AKIA:geheim@bucket/x")
    assert "geheim" not in str(caught.value)


def test_names_and_keys() -> None:
    place = parse("s3://bucket/a/b")
    assert place.key("x/y") == "a/b/x/y"
    assert place.name("a/b/x/y") == "x/y"
    assert parse("s3://bucket").name(parse("s3://bucket").key("x")) == "x"
