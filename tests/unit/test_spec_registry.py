"""`decode` of a Kafka source: what is taken, and what is refused with its remedy."""

import pytest

from penstock.errors import Usage
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.registry import Coded
from penstock.spec.sink import Parquet
from penstock.spec.source import Source
from penstock.support.secret import scrub

NEEDED = {"kafka.bootstrap.servers": "host:9092"}
URL = "http://registry:8081"


def source(options=None, **decode):
    given = {"value": "avro", "registry": {"url": URL}, **decode}
    return Source(format="kafka", options={**NEEDED, **(options or {"subscribe": "orders"})}, decode=given)


def test_a_format_is_enough():
    coded = source(key={"format": "avro", "subject": "order-keys", "version": 3}).decode.columns
    assert {name: (each.format, each.subject, each.version) for name, each in coded.items()} == {
        "key": ("avro", "order-keys", 3),
        "value": ("avro", None, None),
    }


@pytest.mark.parametrize("options", [{"subscribe": "a,b"}, {"subscribePattern": "a.*"}, {"assign": '{"a": [0], "b": [0]}'}])
def test_a_subject_must_be_named_where_there_may_be_several_topics(options):
    with pytest.raises(Usage, match="value names no subject, and there may be several topics"):
        source(options)
    assert source(options, value={"format": "avro", "subject": "orders-value"})
    assert source({"assign": '{"a": [0, 1]}'})


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        ({"value": "avor"}, "should be avro, json or protobuf"),
        ({"value": None}, "names neither value nor key"),
        ({"registry": {"url": "registry:8081"}}, "should be the URL of a schema registry"),
        ({"registry": {"url": "http://ann:geheimnis@registry:8081"}}, "holds a user"),
        ({"registry": {"url": URL, "user": "ann"}}, "has one of user and password"),
        ({"registry": {"url": URL, "user": "ann", "password": "x", "token": "y"}}, "Keep one of them"),
        ({"registry": {"url": URL, "key_file": "key.pem"}}, "is there without certificate_file"),
        ({"value": {"format": "avro", "version": 0}}, "greater than or equal to 1"),
        ({"undecodable": "ignore"}, "should be fail or quarantine"),
        ({"values": "avro"}, "Did you mean value?"),
    ],
)
def test_what_makes_no_sense_is_refused(decode, told):
    with pytest.raises(Usage) as raised:
        source(**decode)
    assert told in str(raised.value)
    assert "geheimnis" not in str(raised.value)


def test_it_is_for_kafka_only_and_its_secrets_are_never_shown():
    with pytest.raises(Usage, match="decode is for format: kafka only"):
        Source(format="rate", decode={"value": "avro", "registry": {"url": URL}})
    given = source(registry={"url": f"{URL},http://other:8081", "user": "ann", "password": "geheimnis"})
    assert "geheimnis" not in repr(given) + str(given.shown())
    assert scrub("the registry said no to geheimnis") == "the registry said no to ***"


def pipeline(tmp_path, undecodable="quarantine", sinks=None, **more):
    given = {"lake": Parquet(accounts={"all": tmp_path / "lake"}), **(sinks or {})}
    sources = {"orders": source(undecodable=undecodable)}
    return PipelineSettings(pipeline="p", home=tmp_path / "state", sources=sources, sinks=given, **more)


def test_a_quarantine_is_needed_where_records_are_put_aside(tmp_path):
    assert pipeline(tmp_path, "fail").quarantine is None
    with pytest.raises(Usage, match=r"sources\.orders\.decode\.undecodable is quarantine, and the pipeline has none"):
        pipeline(tmp_path)
    made = pipeline(tmp_path, quarantine={"url": str(tmp_path / "bad"), "max_rows": 5, "max_share": 0.5}).quarantine
    assert (made.max_rows, made.max_share, made.directory) == (5, 0.5, tmp_path / "bad")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"quarantine": "./lake/bad"}, "overlaps with"),
        ({"quarantine": "./state/spool"}, "overlaps with spool"),
        ({"quarantine": {"url": "./bad", "max_share": 0}}, "max_share should be greater than 0"),
        ({"quarantine": {"url": "./bad", "max_rows": 0}}, "max_rows should be greater than or equal to 1"),
        ({"quarantine": "./bad", "sinks": {"quarantine": {"type": "memory"}}}, "is the name of the quarantine"),
    ],
)
def test_a_quarantine_has_a_place_and_a_name_of_its_own(tmp_path, monkeypatch, given, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Usage) as raised:
        pipeline(tmp_path, **given)
    assert told in str(raised.value)


def sink(topic="out", **encode):
    more = {"topics": encode.pop("topics", [])}
    return Kafka(bootstrap="host:9092", topic=topic, encode={"value": "avro", "registry": {"url": URL}, **encode}, **more)


def test_rows_do_not_delete_by_columns_that_are_encoded():
    """NULL in the column `value` is a tombstone, too."""
    with pytest.raises(Usage, match="delete_when does not go with `encode`") as raised:
        Kafka(bootstrap="host:9092", topic="out", encode={"value": "avro", "registry": {"url": URL}}, delete_when="gone")
    assert "Select NULL as value" in raised.value.remedy


def test_records_that_a_sink_makes_are_not_encoded():
    given = {"value": "avro", "registry": {"url": URL}}
    with pytest.raises(Usage, match=r"encode does not go with `value`"):
        Kafka(bootstrap="host:9092", topic="out", encode=given, value="json")


def test_what_is_encoded_is_the_same_for_all_sinks(tmp_path):
    named = {"format": "avro", "subject": "orders-value"}
    assert pipeline(tmp_path, "fail", {"a": sink("a", value=named), "b": sink("b", value=named)})
    for other in (sink("b"), sink("b", value=named)):
        with pytest.raises(Usage, match=r"sinks\.b\.encode differs from that of sinks\.a"):
            pipeline(tmp_path, "fail", {"a": sink("a"), "b": other})
    with pytest.raises(Usage, match="names no subject, and there may be several topics"):
        sink(topics=["more"])
    with pytest.raises(Usage, match="names neither value nor key"):
        sink(value=None)


def changes(**value):
    return {"value": {"format": "json", "envelope": "debezium", "schema": "id INT", **value}, "registry": None}


def test_a_value_in_code_is_given_as_a_key_is():
    given = source(value=Coded(format="avro", subject="orders", version=3)).decode.columns["value"]
    assert (given.format, given.subject, given.version) == ("avro", "orders", 3)


def test_change_events_in_json_need_no_registry():
    decode = source(**changes()).decode
    assert (decode.columns, decode.changes.unavailable_value) == ({}, "__debezium_unavailable_value")
    assert source(value={"format": "avro", "envelope": "debezium"}).decode.columns.keys() == {"value"}
    assert source({"subscribe": "a,b"}, **changes()).decode.changes.schema_ddl == "id INT"


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        (changes(schema=None), "value reads change events as json, and has no schema"),
        (changes(subject="orders"), "value.subject is given, and change events in json are read by `schema`"),
        (changes(format="protobuf", schema=None), "value.format is protobuf, and change events are read as json or avro"),
        (changes(format="avro"), "value.schema is given, and Avro's schema has it"),
        (changes(unavailable_value="hex:5f5"), "value.unavailable_value should have pairs of hexadecimal digits behind hex:"),
        (changes(unavailable_value="hex:"), "value.unavailable_value should have pairs of hexadecimal digits behind hex:"),
        (changes(envelope="canal"), "envelope should be debezium"),
        (changes(envelope=None), "value.schema is there without envelope"),
        (changes(semantic_types={"id": "io.debezium.time.Microtimestamp"}), "Did you mean io.debezium.time.MicroTimestamp?"),
        ({**changes(), "registry": {"url": URL}}, "registry is given, and no schema is read from it"),
        ({"registry": None}, "has no registry"),
        ({"key": {"format": "avro", "envelope": "debezium"}}, "decode.key.envelope is not a known key"),
    ],
)
def test_settings_of_change_events_that_make_no_sense_are_refused(decode, told):
    with pytest.raises(Usage) as raised:
        source(**decode)
    assert told in str(raised.value)


def test_keys_beside_change_events_are_decoded_by_the_registry():
    assert source(**{**changes(), "key": "avro", "registry": {"url": URL}}).decode.columns.keys() == {"key"}
