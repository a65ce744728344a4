"""Where a sink into Kafka leads: brokers by name, or a connection string of Event Hubs."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Usage
from penstock.run.assembly import sinks_of
from penstock.run.pipeline import Pipeline
from penstock.spec.kafka import Kafka
from penstock.spec.load import load

KEY = "c2VjcmV0LWtleS1vZi0zMi1ieXRlcy1sb25nISE="
HUB = f"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=orders"


def sink(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"pipeline: orders\nhome: ./state\nsources: {{events: {{format: rate}}}}\nsinks:\n  out: {{type: kafka, {text}}}\n"
    )
    return load(file).sinks["out"]


def test_a_connection_string_names_brokers_credentials_and_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_HUBS", HUB)
    made = sink(tmp_path, "connection_string: '${EVENT_HUBS}', options: {compression.type: lz4}")
    assert (made.bootstrap, made.topic) == ("shop.servicebus.windows.net:9093", "orders")
    assert made.options["sasl.password"] == HUB
    assert made.options["compression.type"] == "lz4"
    assert KEY not in repr(made)


def test_a_topic_that_is_named_counts(tmp_path: Path) -> None:
    assert sink(tmp_path, f"connection_string: '{HUB}', topic: other").topic == "other"
    assert Kafka(connection_string=HUB, topic="other").topic == "other"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topic: orders", "names no brokers"),
        ("bootstrap: 'shop:9092'", "names no topic"),
        (f"connection_string: '{HUB}', bootstrap: 'shop:9092'", "together with `bootstrap`"),
        ("connection_string: 'Endpoint=sb://shop/', topic: a", "it lacks SharedAccessKeyName and SharedAccessKey."),
        ("connection_string: 7, topic: a", "connection_string should be a text, found the number 7"),
    ],
)
def test_what_leads_nowhere_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Usage, match=told) as raised:
        sink(tmp_path, text)
    assert KEY not in str(raised.value)


def test_what_a_sink_says_of_itself_hides_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_HUBS", HUB)
    sink(tmp_path, "connection_string: '${EVENT_HUBS}'")
    [made] = sinks_of(Pipeline.from_file(str(tmp_path / "orders.yaml")).plan)
    shown = str(made.describe())
    assert "shop.servicebus.windows.net:9093" in shown
    assert KEY not in shown
