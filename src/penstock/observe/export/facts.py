"""What exporters send of a run: its start, its batches, and its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.model import Generation, SinkTotals
from penstock.observe.batch_record import DeliveryRecord, SparkRecord
from penstock.observe.progress import BatchProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run whose query is about to start. `source_columns` and `sink_columns`: name and type of each column, by source and sink.

    `totals`: what all runs before decided. `is_bounded`: whether it ends by itself once everything is delivered that is there.
    """

    generation: Generation
    at_ms: int
    is_bounded: bool = False
    spark_version: str = ""
    totals: SinkTotals = field(default_factory=dict)
    source_columns: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    sink_columns: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnded:
    """A batch that every sink shows: what was delivered, and what was measured of it. `totals`: all that was decided so far."""

    progress: BatchProgress
    record: DeliveryRecord | None = None
    totals: SinkTotals = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The end of a run. `error`: the class of the error that ended it, None after a run without one.

    `is_stop`: it was asked to end, before everything was delivered that was there.
    `message` and `remedy` are the error's: they can quote a value of a row, so they are sent only to targets with `with_message`.
    """

    at_ms: int
    error: str | None = None
    exit_code: int = 0
    message: str = ""
    remedy: str = ""
    is_stop: bool = False


class Exporter(Protocol):
    """Sends facts of a run to a receiver. Only `close` waits. `Observation` calls the methods, and catches what they raise."""

    def started(self, run: RunStarted) -> None:
        """The ledger is open, and what an earlier run decided is published. Called before the first batch."""
        ...

    def batch(self, batch: BatchEnded) -> None:
        """A batch was delivered, recognised as delivered before, or published by the start."""
        ...

    def steps(self, record: SparkRecord) -> None:
        """Spark reported how long its own steps of a batch took: after, or with `publish_behind` before, `batch`."""
        ...

    def ended(self, end: RunEnded) -> None:
        """The run has ended, or did not start. The last call but `close`."""
        ...

    def close(self, *, until_s: float) -> None:
        """Send what is left, at most until the monotonic time `until_s`, and end."""
        ...
