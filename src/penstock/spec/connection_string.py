"""The setting `connection_string:` of Azure Event Hubs, which replaces brokers and credentials."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from penstock.errors import Usage
from penstock.kafka.event_hubs import EventHubs, event_hubs_of
from penstock.spec.complaint import complaint_error
from penstock.spec.describe import described


def _as_it_is(value: str) -> str:
    return value


ConnectionString = Annotated[str, PlainValidator(_as_it_is), WithJsonSchema({"type": "string"})]
"""A string that `hubs_of` accepted. What came from the environment stays a secret."""


def hubs_of(given: Mapping[str, Any], *, instead_of: Collection[str]) -> EventHubs:
    """Return the Event Hubs that `connection_string` names. Raises pydantic's custom error, also if `instead_of` is given too."""
    doubled = next((name for name in instead_of if given.get(name)), None)
    if doubled is not None:
        raise complaint_error(f"is there, and `{doubled}` too", remedy="Keep one of them.", at=("connection_string",))
    text = given["connection_string"]
    if not isinstance(text, str):
        message = f"should be a text, found {described(text)}"
        raise complaint_error(message, remedy="Write it like ${EVENT_HUBS}.", at=("connection_string",))
    try:
        return event_hubs_of(text)
    except Usage as refused:
        raise complaint_error(refused.message, remedy=refused.remedy, at=("connection_string",)) from refused
