"""A Kafka transaction that is open on a partition and blocks its `read_committed` readers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One open transaction on one partition: readers of committed records stop at `offset`.

    `transactional_id` is None for a hanging transaction: no coordinator knows it, so only an operator can end it. `open_ms`
    counts from its begin, or from the newest record of a hanging one. `timeout_ms` is when its coordinator ends it, None if it
    hangs.
    """

    topic: str
    partition: int
    offset: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    open_ms: int
    timeout_ms: int | None

    @property
    def hangs(self) -> bool:
        """Whether Kafka will never end it by itself."""
        return self.transactional_id is None

    @property
    def name(self) -> str:
        """The name that `penstock doctor --end` accepts for it."""
        return self.transactional_id or f"{self.topic}/{self.partition}/{self.producer_id}"
