"""`checkpoint:`, `ledger:` and `spool:`: a URL, or a mapping of a URL and the options of its store."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.blob.url import hadoop_url
from penstock.errors import Usage
from penstock.run.delivery import Delivery
from penstock.spec.load import load
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.sink import Memory
from penstock.support.secret import scrub

OPTIONS = {"region": "eu-west-1", "secret_access_key": "geheim-geheim", "attempts": 3}
SCHEMES = ["s3://b/x", "az://c@account/x", "gs://b/x", "hdfs://namenode:8020/x"]


def settings(**places: Any) -> DeliverySettings:
    return DeliverySettings(pipeline="p", home="/state", sinks={"m": Memory()}, **places)


@pytest.mark.parametrize("key", ["checkpoint", "ledger"])
@pytest.mark.parametrize("url", SCHEMES)
def test_a_url_and_a_mapping_are_the_same(key: str, url: str) -> None:
    short, long = (getattr(settings(**{key: value}), key) for value in (url, {"url": url}))
    assert short == long
    assert (short.url, short.options) == (url, {})


@pytest.mark.parametrize("key", ["checkpoint", "ledger"])
def test_options_are_texts_and_never_shown(key: str) -> None:
    made = settings(**{key: {"url": "s3://b/x", "options": OPTIONS}})
    assert getattr(made, key).options == {"region": "eu-west-1", "secret_access_key": "geheim-geheim", "attempts": "3"}
    for text in (repr(made), str(made), json.dumps(made.shown()), scrub("the key geheim-geheim is wrong")):
        assert "geheim" not in text
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_ledger_in_mysql_has_a_password_that_is_never_shown() -> None:
    for scheme in ("mysql", "mariadb"):
        url = f"{scheme}://ann:geheim-wort@host:3306/shop"
        made = settings(ledger=url)
        assert (made.ledger.url, made.ledger.options) == (url, {})
        for text in (repr(made), json.dumps(made.shown()), scrub("the word geheim-wort is wrong")):
            assert "geheim" not in text


def test_a_ledger_in_postgres_has_a_schema_and_a_password_that_is_never_shown() -> None:
    url = "postgresql://ann:geheim-wort@host:5432/shop"
    made = settings(ledger={"url": url, "options": {"schema": "ops"}})
    assert (made.ledger.url, made.ledger.options) == (url, {"schema": "ops"})
    assert settings(ledger=url).ledger.options == {}
    for text in (repr(made), json.dumps(made.shown()), scrub("the word geheim-wort is wrong")):
        assert "geheim" not in text


def test_a_checkpoint_keeps_the_scheme_that_spark_knows() -> None:
    for url in ("s3a://b/x", "abfss://c@account.dfs.core.windows.net/x", "hdfs://nameservice/x"):
        assert settings(checkpoint=f"{url}/").checkpoint.url == url
        assert Delivery("p", home="/state", sinks={"m": Memory()}, checkpoint=url).checkpoint == url


@pytest.mark.parametrize(
    ("url", "spark"),
    [
        ("az://c@account/x/y", "abfss://c@account.dfs.core.windows.net/x/y"),
        ("az://c@account.blob.core.chinacloudapi.cn/x", "abfss://c@account.dfs.core.chinacloudapi.cn/x"),
        ("s3://b/x", "s3://b/x"),
        ("/data/x", "/data/x"),
    ],
)
def test_azure_has_another_scheme_in_spark(url: str, spark: str) -> None:
    assert hadoop_url(url) == spark
    assert Delivery("p", home="/state", sinks={"m": Memory()}, checkpoint={"url": url}).checkpoint == spark


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (
            {"checkpoint": {"url": "/x", "options": {"region": "eu"}}},
            "checkpoint.options are given, but the place is in no store",
        ),
        ({"ledger": {"url": "sqlite:///x.db", "options": {"a": "b"}}}, "ledger.options are given, but the place is in no store"),
        ({"ledger": {"url": "postgresql://h/db", "options": {"sslmode": "require"}}}, "hold sslmode, expected schema alone"),
        (
            {"ledger": "postgresql://ann:geheim@h"},
            "should be a PostgreSQL URL with a database, found postgresql://…",
        ),
        ({"ledger": "mysql://ann:geheim@h"}, "should be a MySQL URL with a database, found mysql://…"),
        (
            {"ledger": {"url": "mysql://h/db", "options": {"schema": "x"}}},
            "ledger.options are given, but the place is in no store",
        ),
        ({"ledger": {"options": {}}}, "ledger.url is missing"),
        ({"ledger": {"url": "s3://b/x", "region": "eu"}}, "ledger.region is not a known key"),
        ({"spool": {"url": "/x", "options": {"region": "eu"}}}, "spool.options are given, but the place is in no store"),
        ({"spool": "ftp://x/y"}, "is at ftp://, which is not supported"),
        ({"spool": "s3://b/x/spool", "ledger": "s3://b/x"}, "overlaps with ledger"),
        ({"checkpoint": 5}, "checkpoint should be a URL, found the number 5"),
        ({"checkpoint": "dbfs://x/y"}, "begins with dbfs:, which is no directory"),
        ({"checkpoint": "s3://"}, "is no URL of a place at s3://"),
        ({"checkpoint": "s3a://b/x", "ledger": "s3://b/x/ledger"}, "overlaps with checkpoint"),
    ],
)
def test_what_cannot_be_is_refused(places: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage) as refused:
        settings(**places)
    assert said in refused.value.message


def test_in_a_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nhome: ./state\nsources: {r: {format: rate}}\nsinks: {m: {type: memory}}\n"
        "checkpoint: {url: ./c}\nledger:\n  url: s3://b/ledger\n  options: {region: eu-west-1}\nspool: gs://b/spool/\n"
    )
    assert load(file).checkpoint.url == f"{tmp_path}/c"
    assert load(file, ["ledger.options.endpoint=http://here"]).ledger.options == {
        "region": "eu-west-1",
        "endpoint": "http://here",
    }
    assert (load(file).spool.url, load(file).spool.options) == ("gs://b/spool", {})
    assert load(file, ["spool=./s"]).spool.url == f"{tmp_path}/s"
    assert load(file, ["ledger=./l"]).ledger.url == f"{tmp_path}/l"
