"""Whether any broker of a cluster accepts a connection, without a client, which would try for half a minute."""

from typing import Final

from penstock.errors import Retryable
from penstock.support.reachable import why_unreachable

_PORT: Final = 9092
_ANSWER_S: Final = 3.0


def require_reachable(servers: str, *, where: str) -> None:
    """Raise Retryable if none of `bootstrap.servers` accepts a connection.

    `where` names them in the message, such as "Kafka at HOST:PORT".
    """
    addresses = [part.strip().rpartition("://")[2] for part in servers.split(",")]
    reason = why_unreachable(addresses, port=_PORT, answer_s=_ANSWER_S)
    if reason is not None:
        raise Retryable(
            f"{where} does not answer: {reason}.", remedy="See whether the brokers are up and within reach, then try again."
        )
