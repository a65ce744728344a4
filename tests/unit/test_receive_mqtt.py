"""How publishers of MQTT number their messages, so that what a broker delivers again is recognised."""

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.errors import Usage
from penstock.receive.mqtt import event_of


def message(*properties: tuple[str, str]) -> MQTTMessage:
    made = MQTTMessage(topic=b"t")
    made.payload = b"v"
    if properties:
        made.properties = Properties(PacketTypes.PUBLISH)
        made.properties.UserProperty = list(properties)
    return made


def test_a_message_is_numbered_by_user_properties() -> None:
    event = event_of(message(("penstock-producer", "é"), ("penstock-sequence", "7")), remote="r")
    assert (event.producer, event.number) == ("é", 7)
    plain = event_of(message(), remote="r")
    assert (plain.producer, plain.number) == (None, None)


@pytest.mark.parametrize("properties", [(("penstock-sequence", "1"),), (("penstock-producer", "p"), ("penstock-sequence", "x"))])
def test_a_wrong_number_is_refused(properties: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(Usage):
        event_of(message(*properties), remote="r")
