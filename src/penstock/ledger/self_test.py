"""The self-test of put-if-absent: writers race for one key, and exactly one may win.

Some stores ignore conditional headers, or check and write in two steps; on them nothing can fence anything.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Barrier

from penstock.core.model import new_nonce
from penstock.errors import StoreIgnoresConditions
from penstock.ledger.store import ConditionalStore

ROUNDS = 20
WRITERS = 4

Create = Callable[[bytes], bool]
Look = Callable[[], bytes | None]


def prove_conditions(store: ConditionalStore, *, folder: str) -> None:
    """Let writers race for scratch keys in a new folder beside `folder`, removed after success. Raises StoreIgnoresConditions."""
    proof = f"{folder}-{new_nonce()}"
    for number in range(ROUNDS):
        key = f"{proof}/{number:03d}"
        create = partial(store.put_if_absent, key)
        race([create] * WRITERS, look=partial(store.get, key), location=store.location)
        store.delete(key)


def race(writers: Sequence[Create], *, look: Look, location: str) -> None:
    """Let all `writers` create at once, then the first of them once more. Raises StoreIgnoresConditions unless one wins."""
    bodies = [f"writer {number}".encode() for number in range(len(writers))]
    barrier = Barrier(len(writers))

    def create(writer: Create, body: bytes) -> bool:
        barrier.wait()
        return writer(body)

    with ThreadPoolExecutor(len(writers)) as threads:
        tries: list[Future[bool]] = [threads.submit(create, writer, body) for writer, body in zip(writers, bodies, strict=True)]
    winners = [body for body, won in zip(bodies, tries, strict=True) if won.result()]
    again = writers[0](b"too late")
    if len(winners) != 1 or again or look() != winners[0]:
        raise StoreIgnoresConditions(
            f"{location} let {len(winners) + again} writers create the same object, expected exactly one: "
            "it does not honour put-if-absent, so two drivers could both succeed.",
            remedy="Keep the ledger elsewhere: an SQLite file on a local disk, or a database.",
        )
