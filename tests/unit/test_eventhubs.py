"""Connection strings of Event Hubs."""

import pytest

from penstock.errors import Usage
from penstock.kafka.event_hubs import event_hubs_of
from penstock.support.secret import scrub

KEY = "c2VjcmV0LWtleS1vZi0zMi1ieXRlcy1sb25nISE="
NAMESPACE = f"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey={KEY}"


def test_one_for_a_namespace() -> None:
    found = event_hubs_of(NAMESPACE)
    assert found.bootstrap == "shop.servicebus.windows.net:9093"
    assert found.hub is None
    assert found.options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": NAMESPACE,
    }


def test_one_for_a_hub_in_any_order_and_case() -> None:
    found = event_hubs_of(
        f"entitypath=orders;sharedaccesskey={KEY};SharedAccessKeyName=send;Endpoint=sb://shop.servicebus.windows.net;"
    )
    assert (found.hub, found.bootstrap) == ("orders", "shop.servicebus.windows.net:9093")


def test_the_emulator_is_spoken_to_without_tls() -> None:
    found = event_hubs_of(f"{NAMESPACE.replace('shop.servicebus.windows.net', 'localhost')};UseDevelopmentEmulator=true")
    assert found.bootstrap == "localhost:9092"
    assert found.options["security.protocol"] == found.spark_options["kafka.security.protocol"] == "SASL_PLAINTEXT"


def test_spark_logs_in_as_librdkafka_does() -> None:
    jaas = event_hubs_of(NAMESPACE).spark_options["kafka.sasl.jaas.config"]
    assert jaas.endswith(f'PlainLoginModule required username="$ConnectionString" password="{NAMESPACE}";')


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "lacks Endpoint and SharedAccessKeyName and SharedAccessKey"),
        (NAMESPACE.replace("SharedAccessKeyName=send;", ""), "lacks SharedAccessKeyName"),
        (NAMESPACE.replace("sb://", "https://"), "found https://…"),
        (f"{NAMESPACE};Colour=red", "UseDevelopmentEmulator only"),
        (f"{NAMESPACE};{KEY[:-1]}", "UseDevelopmentEmulator only"),
        (f'{NAMESPACE};EntityPath=a"b', "no quotes"),
    ],
)
def test_a_wrong_one_is_told_without_its_key(given: str, told: str) -> None:
    with pytest.raises(Usage, match=told) as raised:
        event_hubs_of(given)
    assert KEY[:-1] not in str(raised.value)


def test_it_is_never_shown() -> None:
    found = event_hubs_of(NAMESPACE)
    assert KEY not in repr(found)
    assert KEY not in repr(found.options)
    assert KEY not in repr(found.spark_options)
    assert KEY not in scrub(f"the broker said: {NAMESPACE}")
    assert KEY not in scrub(f"the broker said: key {KEY}")
