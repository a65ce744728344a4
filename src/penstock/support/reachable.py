"""Whether anything listens at one of several addresses, found out in seconds: clients of servers try for much longer."""

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor


def why_unreachable(addresses: Sequence[str], *, port: int, answer_s: float) -> str | None:
    """Return why nothing accepts a connection at the first of `addresses`, None if any of them does.

    An address is `HOST` or `HOST:PORT`, and `port` that of one without. Waits `answer_s` at most; nothing is sent.
    """
    with ThreadPoolExecutor(len(addresses)) as threads:
        refusals = list(threads.map(lambda address: _refusal(address, port, answer_s), addresses))
    return None if None in refusals else refusals[0]


def _refusal(address: str, port: int, answer_s: float) -> str | None:
    host, _, given = address.rpartition(":") if ":" in address else (address, "", str(port))
    try:
        with socket.create_connection((host.strip("[]"), int(given)), timeout=answer_s):
            return None
    except (OSError, ValueError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
