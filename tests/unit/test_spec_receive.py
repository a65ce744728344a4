"""Settings of a receiver that cannot be meant."""

from typing import Any

import pytest

from penstock.errors import Usage
from penstock.spec.receive import AmqpQueue, ClientTls, HttpListener, MqttSubscription, ReadListener, TcpListener


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"password": "p"}, "has one of user and password"),
        ({"user": "u"}, "has one of user and password"),
        ({"queue": ""}, "queue"),
        ({"prefetch": 0}, "prefetch"),
        ({"broker": "h"}, r"should be HOST:PORT of the broker\.[\s\S]*Write it like broker\.example\.com:5672"),
        ({"broker": "amqp://u:word@h:5672/v"}, r"should be HOST:PORT of the broker, found amqp://…\."),
    ],
)
def test_what_a_queue_cannot_be(more: dict[str, Any], message: str) -> None:
    with pytest.raises(Usage, match=message):
        AmqpQueue(**{"broker": "h:5672", "queue": "q", **more})


def test_the_network_reads_a_journal_only_with_a_token() -> None:
    with pytest.raises(Usage, match="shows all events to everyone who reaches that address"):
        ReadListener(listen="0.0.0.0:1")
    assert ReadListener(listen="0.0.0.0:1", without_token=True).token is None


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
