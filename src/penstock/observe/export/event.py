"""An event of a run, for whoever is on call, as JSON in the form of Standard Webhooks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from penstock.core.model import Json, Nonce
from penstock.spec.export import EventName


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `event_id` is the same however often it is sent. `cause`: what is sent once only; not sent itself.

    `message` and `remedy` are those of the error.
    """

    event_id: Nonce
    name: EventName
    at_ms: int
    pipeline: str
    text: str
    owner: str
    generation: int | None = None
    batch_id: int | None = None
    error: str | None = None
    exit_code: int | None = None
    message: str | None = None
    remedy: str | None = None
    cause: str = ""

    def without_message(self) -> "Event":
        """Return the event without what can quote a value of a row."""
        return replace(self, message=None, remedy=None)

    @property
    def body(self) -> bytes:
        """The event as JSON. What is not known of it is left out."""
        known: Mapping[str, Json] = {
            "pipeline": self.pipeline,
            "owner": self.owner,
            "generation": self.generation,
            "batch_id": self.batch_id,
            "error": self.error,
            "exit_code": self.exit_code,
            "message": self.message,
            "remedy": self.remedy,
        }
        at = datetime.fromtimestamp(self.at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
        data = {name: value for name, value in known.items() if value is not None}
        whole = {"type": f"pipeline.{self.name}", "timestamp": at.replace("+00:00", "Z"), "text": self.text, "data": data}
        return json.dumps(whole).encode()
