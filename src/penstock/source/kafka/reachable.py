"""Whether any broker of a source accepts a connection: found out in seconds, and before a client is made."""

from penstock.kafka.reachable import require_reachable
from penstock.source.kafka.options import client_options
from penstock.spec.source import Source


def require_brokers(name: str, source: Source) -> None:
    """Raise Retryable if none of the source's brokers accepts a connection, Usage for its options."""
    servers = client_options(name, source).get("bootstrap.servers")
    if servers is not None:  # without it, the client says what is missing
        require_reachable(servers, where=f"Kafka of source {name!r} at {servers}")
