"""paho's client, whose user acknowledges messages of QoS 2, too.

paho answers such a message with PUBREC before its user sees it, and the broker forgets it then: its `manual_ack` holds back
PUBCOMP only. Here the user gets the message at once, and sends PUBREC and PUBCOMP. It takes the place of three of paho's
methods that are not public, so no version is allowed that was not tried: PUBREC sent too early would lose messages in silence.
"""

from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

_PACKET_ID_BYTES = 2


class ManualClient(Client):
    """`on_release` is called in paho's thread with the packet identifier that the broker's PUBREL names."""

    def __init__(self, client_id: str, *, on_release: Callable[[int], None]) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)
        self._on_release = on_release

    def send_pubrec(self, packet_id: int) -> None:
        """Tell the broker that the message is durable. As with `ack`, from any thread."""
        super()._send_pubrec(packet_id)

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:  # noqa: ARG002 - as paho calls it
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        code = super()._handle_publish()
        with self._in_message_mutex:
            held, self._in_messages = list(self._in_messages.values()), type(self._in_messages)()
        for message in held:
            self._handle_on_message(message)
        return code

    def _handle_pubrel(self) -> MQTTErrorCode:
        packet: Any = self._in_packet["packet"]
        self._on_release(int.from_bytes(packet[:_PACKET_ID_BYTES], "big"))
        return MQTTErrorCode.MQTT_ERR_SUCCESS
