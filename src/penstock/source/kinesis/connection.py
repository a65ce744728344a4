"""Connects to the API of a stream, once for all that a process asks of it."""

from typing import TYPE_CHECKING

from penstock.source.kinesis.settings import KinesisSettings, no_client

if TYPE_CHECKING:
    from penstock.source.kinesis.shard import Kinesis

_clients: dict[tuple[object, ...], "Kinesis"] = {}
"""Clients of this process by what they were made of: one costs as much as reading some thousand records."""


def connect(settings: KinesisSettings) -> "Kinesis":
    """Return the client of the stream's API, the same one for the same settings. Raises DependencyMissing, Failed."""
    which = (settings.name, settings.stream, *sorted(settings.connection.items()))
    if which not in _clients:
        _clients[which] = _connected(settings)
    return _clients[which]


def _connected(settings: KinesisSettings) -> "Kinesis":
    try:
        from penstock.source.kinesis.client import StreamClient  # noqa: PLC0415 - whether its package is there is the question
    except ImportError as cause:
        raise no_client(cause) from cause
    return StreamClient(settings)
