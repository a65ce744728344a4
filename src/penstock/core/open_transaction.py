"""A transaction that is open on a partition of a topic: what keeps its readers waiting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One that is open on a partition: readers of committed records stop at `offset`.

    `transactional_id` is None where no coordinator knows it: it hangs, and nothing but a hand will end it. `open_ms` counts from
    its begin, or from the newest record of a hanging one; `timeout_ms` is when its coordinator ends it, None if it hangs.
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
        """Whether Kafka will never end it."""
        return self.transactional_id is None

    @property
    def name(self) -> str:
        """By what `penstock doctor --end` takes it."""
        return self.transactional_id or f"{self.topic}/{self.partition}/{self.producer_id}"
