"""Options of a Kafka source that are refused, each with what was likely meant; and what is hidden of them."""

import pytest

from penstock.errors import Usage
from penstock.source.kafka.options import client_options, reader_options
from penstock.spec.source import Source
from penstock.support.secret import scrub

NEEDED = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="ge\\"heim-wort";'
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": LOGIN}


def source(*without: str, **settings: object) -> Source:
    options = {name: value for name, value in {**NEEDED, **settings.pop("options", {})}.items() if name not in without}  # type: ignore[dict-item]
    return Source(format="kafka", options=options, **settings)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest", "maxOffsetsPerTrigger": 1000, "includeHeaders": True, "failOnDataLoss": False},
        {"startingOffsets": '{"orders": {"0": 23, "1": -2}}', "minPartitions": "4", "kafka.client.id": "penstock"},
        {"startingOffsetsByTimestamp": '{"orders": {"0": 1767225600000}}', "startingOffsetsByTimestampStrategy": "latest"},
        {"STARTINGTIMESTAMP": 1767225600000, "kafka.my.plugin.setting": "x", "maxTriggerDelay": "15m"},
        {**SASL, "kafka.isolation.level": "read_uncommitted", "kafka.group.id": "mine"},
    ],
)
def test_what_spark_knows_is_taken(options: dict[str, object]) -> None:
    assert source(options=options).options.keys() == NEEDED.keys() | options.keys()


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("startingOffset", "earliest", "startingOffset is not a known key. Did you mean startingOffsets?"),
        ("maxOffsetPerTrigger", 5, "Did you mean maxOffsetsPerTrigger?"),
        ("topic", "orders", "The keys here are: subscribe, "),
        ("endingOffsets", "latest", "endingOffsets is for queries that are no streams"),
        ("kafka.isolation.leve", "read_committed", "Did you mean kafka.isolation.level?"),
        ("kafka.security.protocoll", "SSL", "Did you mean kafka.security.protocol?"),
        ("kafka.isolation.level", "committed", "(did you mean read_committed?), found"),
        ("kafka.enable.auto.commit", True, "is Spark's own to set"),
        ("kafka.auto.offset.reset", "earliest", "Say where to begin by startingOffsets."),
        ("startingOffsets", "first", "should be earliest, latest, or JSON"),
        ("startingOffsets", '{"orders": {"zero": 1}}', "should be earliest, latest, or JSON"),
        ("startingOffsets", '{"orders": {"0": 1.5}}', "should be earliest, latest, or JSON"),
        ("startingOffsetsByTimestamp", "yesterday", "in milliseconds"),
        ("maxOffsetsPerTrigger", 0, "should be a whole number above 0"),
        ("includeHeaders", "yes", "should be true or false"),
        ("subscribe", " ", "should be a value"),
        ("assign", '{"orders": [0]}', "name topics by one of subscribe, subscribePattern, assign, found subscribe and assign"),
    ],
)
def test_what_it_does_not_know_is_refused_with_the_nearest(option: str, value: object, told: str) -> None:
    with pytest.raises(Usage) as raised:
        source(options={option: value})
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("missing", "told"), [("subscribe", "found none of them"), (next(iter(NEEDED)), "kafka.bootstrap.servers: host")]
)
def test_what_is_missing_is_told(missing: str, told: str) -> None:
    with pytest.raises(Usage) as raised:
        source(missing)
    assert told in str(raised.value)


def test_assigned_partitions_are_json() -> None:
    assert source("subscribe", options={"assign": '{"orders": [0, 1]}'})
    with pytest.raises(Usage, match="should be JSON such as"):
        source("subscribe", options={"assign": "orders:0"})


def test_columns_and_paths_are_fixed_and_ours_are_for_kafka_only() -> None:
    with pytest.raises(Usage, match="schema does not go with format: kafka"):
        source(schema="n INT")
    with pytest.raises(Usage, match="on_gap is for format: kafka only"):
        Source(format="rate", on_gap="wait")
    with pytest.raises(Usage, match="should be fail, wait or accept"):
        source(on_gap="ignore")


def test_only_committed_rows_are_read_unless_said_otherwise() -> None:
    assert reader_options(source())["kafka.isolation.level"] == "read_committed"
    said = source(options={"Kafka.Isolation.Level": "read_uncommitted"})
    assert reader_options(said) == said.options
    assert reader_options(Source(format="rate")) == {}


def test_spark_stops_at_a_gap_unless_it_is_accepted() -> None:
    assert "failOnDataLoss" not in reader_options(source(on_gap="wait"))
    assert reader_options(source(on_gap="accept"))["failOnDataLoss"] == "false"
    assert reader_options(source(on_gap="accept", options={"failondataloss": True}))["failondataloss"] == "true"


def test_a_password_in_a_login_is_never_shown() -> None:
    given = source(options=SASL)
    assert "heim-wort" not in repr(given) + str(given.shown())
    assert scrub('the broker said no to ge\\"heim-wort') == "the broker said no to ***"


def test_the_client_library_is_told_the_same() -> None:
    given = source(options={**SASL, "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"})
    assert client_options("s", given) == {
        "bootstrap.servers": "host:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": 'ge"heim-wort',
        "ssl.ca.location": "/ca.pem",
    }


def test_certificates_of_a_client_are_handed_on() -> None:
    kept = {"type": "PKCS12", "location": "/client.p12", "password": "geheimnis"}
    given = source(options={f"kafka.ssl.keystore.{key}": value for key, value in kept.items()})
    assert client_options("s", given)["ssl.keystore.location"] == "/client.p12"
    pem = source(options={"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "/client.pem"})
    assert client_options("s", pem)["ssl.key.location"] == "/client.pem"


@pytest.mark.parametrize(
    ("options", "client", "told"),
    [
        ({"kafka.ssl.truststore.location": "/trust.jks"}, {"ssl.ca.location": "/ca.pem"}, "which only Java can read"),
        (
            {**SASL, "kafka.sasl.jaas.config": "Own required;"},
            {"sasl.username": "a", "sasl.password": "b"},
            "no username and password",
        ),
    ],
)
def test_what_only_java_understands_is_told_and_can_be_said_otherwise(
    options: dict[str, object], client: dict[str, str], told: str
) -> None:
    with pytest.raises(Usage, match=told):
        client_options("s", source(options=options))
    assert client.items() <= client_options("s", source(options=options, client=client)).items()


HUB = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=read;SharedAccessKey=bG9uZy1rZXktb2YtMzItYnl0ZXM=;EntityPath=orders"


def test_event_hubs_are_read_by_their_connection_string() -> None:
    made = Source(format="kafka", connection_string=HUB, options={"startingOffsets": "earliest"})
    assert made.options["kafka.bootstrap.servers"] == "shop.servicebus.windows.net:9093"
    assert made.options["subscribe"] == "orders"
    asked = client_options("events", made)
    assert (asked["sasl.username"], asked["sasl.password"]) == ("$ConnectionString", HUB)
    assert (asked["security.protocol"], asked["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert "bG9uZy1rZXk" not in repr(made)


def test_topics_that_are_named_count() -> None:
    made = Source(format="kafka", connection_string=HUB, options={"SubscribePattern": "a.*"})
    assert "subscribe" not in made.options


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"format": "kafka", "connection_string": HUB, "options": NEEDED}, "together with `kafka.bootstrap.servers`"),
        ({"format": "kafka", "connection_string": "Endpoint=sb://shop/"}, "it lacks SharedAccessKeyName and SharedAccessKey."),
        ({"format": "rate", "connection_string": HUB}, "is for format: kafka only"),
    ],
)
def test_a_connection_string_that_leads_nowhere_is_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(Usage) as raised:
        Source(**settings)
    assert told in str(raised.value)
    assert "bG9uZy1rZXk" not in str(raised.value)
