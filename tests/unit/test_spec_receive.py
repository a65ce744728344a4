"""Settings of a receiver that cannot be meant."""

from typing import Any

import pytest

from penstock.errors import Usage
from penstock.spec.receive import ClientTls, HttpListener, MqttSubscription, TcpListener


def subscription(**more: Any) -> MqttSubscription:
    return MqttSubscription(**{"broker": "h:1883", "topics": ["t"], "client_id": "c", **more})


@pytest.mark.parametrize("topic", ["#", "+", "a/+/b", "a/#", "/", "a//b", "$share/group/a/#", "é"])
def test_topic_filters(topic: str) -> None:
    assert subscription(topics=[topic]).topics == (topic,)


@pytest.mark.parametrize("topic", ["", "#/a", "a#", "a/b+", "+a", "a/##", "a/#/"])
def test_what_is_no_topic_filter(topic: str) -> None:
    with pytest.raises(Usage, match="should be a topic filter"):
        subscription(topics=[topic])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"topics": []}, "topics"),
        ({"password": "p"}, "is there without user"),
        ({"client_id": ""}, "client_id"),
        ({"session_expiry": "10ms"}, "session_expiry"),
        ({"max_message": "64MB"}, "max_message"),
    ],
)
def test_what_a_subscription_cannot_be(more: dict[str, Any], message: str) -> None:
    with pytest.raises(Usage, match=message):
        subscription(**more)


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(Usage, match="is there without certificate_file"):
        ClientTls(key_file="/k.pem")


@pytest.mark.parametrize(
    ("listener", "open_to"),
    [
        (TcpListener(listen="0.0.0.0:1"), "all"),
        (TcpListener(listen="0.0.0.0:1", token="t0ken"), "those who know"),
        (TcpListener(listen="127.0.0.1:1"), "this machine"),
        (HttpListener(listen="[::]:1"), "all"),
        (HttpListener(listen="[::]:1", user="u", password="s3cret"), "those who know"),
    ],
)
def test_who_can_write_without_saying_who_they_are(listener: HttpListener | TcpListener, open_to: str) -> None:
    assert listener.is_open_to_the_network is (open_to == "all")
