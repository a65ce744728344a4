"""Client settings for Azure Event Hubs over its Kafka endpoint, derived from a connection string.

https://learn.microsoft.com/azure/event-hubs/azure-event-hubs-kafka-overview: SASL PLAIN over TLS on port 9093, the user is the
literal `$ConnectionString` and the password the whole string. The emulator speaks SASL without TLS on port 9092.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import Usage
from penstock.support.secret import Secret, remember, scheme_only

_ENDPOINT = re.compile(r"(?i:sb)://([A-Za-z0-9.-]+)(:\d+)?/?")
_USER = "$ConnectionString"
_NEEDED = ("Endpoint", "SharedAccessKeyName", "SharedAccessKey")
_KNOWN = (*_NEEDED, "EntityPath", "UseDevelopmentEmulator")
_SHAPE = "Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY;EntityPath=HUB"
_COPY = f"Copy it from the namespace's shared access policies; it reads {_SHAPE}."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHubs:
    """An Event Hubs namespace. `hub` is the one that the connection string is for, None if it is for all of them.

    `connection_string` is never shown.
    """

    host: str
    hub: str | None
    connection_string: str = field(repr=False)
    emulated: bool = False

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{9092 if self.emulated else 9093}"

    @property
    def options(self) -> Mapping[str, str]:
        """Connection properties for librdkafka."""
        return {
            "security.protocol": self._protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": Secret(self.connection_string),
        }

    @property
    def spark_options(self) -> Mapping[str, str]:
        """Connection options for Spark's connector, which uses Kafka's own Java client."""
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "kafka.security.protocol": self._protocol,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": Secret(f'{login} required username="{_USER}" password="{self.connection_string}";'),
        }

    @property
    def _protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.emulated else "SASL_SSL"


def is_event_hubs(bootstrap: str) -> bool:
    """Return whether `bootstrap` is the Kafka endpoint of an Event Hubs namespace."""
    return ".servicebus." in bootstrap.partition(",")[0]


def event_hubs_of(connection_string: str) -> EventHubs:
    """Parse `connection_string`. Raises Usage, which names its parts and never shows the key."""
    remember(Secret(connection_string))
    parts = _parts(connection_string)
    missing = [name for name in _NEEDED if not parts.get(name)]
    if missing:
        raise Usage(
            f"A connection string of Event Hubs needs {', '.join(_NEEDED)}; it lacks {' and '.join(missing)}.", remedy=_COPY
        )
    remember(Secret(parts["SharedAccessKey"]))
    if '"' in connection_string or "\\" in connection_string:
        raise Usage("A connection string of Event Hubs has no quotes and no backslashes; this one has.", remedy=_COPY)
    endpoint = _ENDPOINT.fullmatch(parts["Endpoint"])
    if endpoint is None:
        shown = scheme_only(parts["Endpoint"])
        raise Usage(f"Endpoint should be sb://NAMESPACE.servicebus.windows.net/, found {shown}.", remedy=_COPY)
    return EventHubs(
        host=endpoint[1].lower(),
        hub=parts.get("EntityPath") or None,
        connection_string=connection_string,
        emulated=parts.get("UseDevelopmentEmulator", "").lower() == "true",
    )


def _parts(connection_string: str) -> Mapping[str, str]:
    names = {name.lower(): name for name in _KNOWN}
    found: dict[str, str] = {}
    for part in filter(None, connection_string.strip().split(";")):
        name, equals, value = part.partition("=")
        if not equals or name.strip().lower() not in names:
            raise Usage(f"A connection string of Event Hubs has the parts {', '.join(_KNOWN)} only.", remedy=_COPY)
        found[names[name.strip().lower()]] = value.strip()
    return found
