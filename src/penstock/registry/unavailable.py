"""Values that the database did not log, for which Debezium writes a placeholder: unchanged ones that PostgreSQL stores apart.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-toasted-values
"""

import json
from base64 import b64encode
from hashlib import md5
from typing import Any, Final
from uuid import UUID

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""The connector's default of `unavailable.value.placeholder`."""
_OF_A_NAME = 3
_HEX: Final = "hex:"


def octets(setting: str) -> bytes:
    """Return the bytes of `unavailable.value.placeholder`, which are given in hex behind `hex:`. Raises ValueError."""
    if not setting.startswith(_HEX):
        return setting.encode()
    return bytes.fromhex(setting.removeprefix(_HEX))


class Placeholder:
    """Recognises the placeholder in every form that the connector gives it: of texts, bytes, arrays and maps.

    The constructor takes the connector's setting.
    """

    def __init__(self, setting: str) -> None:
        raw = octets(setting)
        text = raw.decode(errors="replace")
        encoded, named = b64encode(raw).decode(), str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=_OF_A_NAME))
        self._plain = frozenset({text, raw, encoded, json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))})
        self._lists: tuple[list[Any], ...] = ([text], [encoded], [raw], [named], [(text, text)], list(memoryview(raw).cast("b")))
        self._map = {text: text}

    def stands_for(self, value: Any) -> bool:
        """Return whether `value`, as JSON or `AvroReader` gives it, is the placeholder."""
        if isinstance(value, str | bytes):
            return value in self._plain
        return value in self._lists if isinstance(value, list) else value == self._map
