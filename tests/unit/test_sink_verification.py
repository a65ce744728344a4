"""A sink is looked at again while its place changes too much."""

import pytest
from tests.unit.test_table_verification import publication

from penstock.commit.verification import TRIES, verify_sink
from penstock.core.model import Position, SinkReport
from penstock.errors import Retryable
from penstock.protocols import SinkDecisions
from penstock.testing.conformance.bench import DecidedBatches


class BusySink:
    """Is written to during its first looks."""

    def __init__(self, busy: int) -> None:
        self.busy, self.looks = busy, 0

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        self.looks += 1
        if self.looks <= self.busy:
            raise Retryable("Rows were being written.", remedy="Verify again.")
        return SinkReport(accounts={}, problems=(), as_of=decisions.published_at)


def decisions() -> DecidedBatches:
    """Two batches of ten rows, at positions 2 and 3; nobody knows of the second one that it is published."""
    decided = DecidedBatches([publication(2), publication(3)])
    decided.published_at = Position(2)
    return decided


def look(sink: BusySink) -> SinkReport:
    return verify_sink(sink, decisions(), sleep=lambda _: None)


def test_a_busy_sink_is_looked_at_again_and_not_for_ever() -> None:
    assert look(BusySink(TRIES - 1)).as_of == 2
    with pytest.raises(Retryable, match="Rows were being written"):
        look(BusySink(TRIES))
