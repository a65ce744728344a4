"""A sink is looked at again while its place changes too much, and one written for an earlier Penstock by its own method."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.unit.test_table_verification import of_rows, publication

from penstock.commit.verification import TRIES, verify_sink
from penstock.core.model import ONLY_ACCOUNT, AccountName, AccountReport, Position, Publication, SinkReport, Totals
from penstock.errors import Retryable
from penstock.protocols import SinkDecisions
from penstock.testing.conformance.bench import DecidedBatches


class OlderSink:
    """Shows so many rows; is given what is expected before it looks."""

    def __init__(self, rows: int) -> None:
        self.rows, self.looks = rows, 0

    def verify(self, *, expected: Mapping[AccountName, Totals], known: Iterator[Publication]) -> SinkReport:
        self.looks += 1
        assert sum(publication.totals.rows for publication in known) == expected[ONLY_ACCOUNT].rows
        account = AccountReport(expected=expected[ONLY_ACCOUNT], found=of_rows(self.rows))
        return SinkReport(accounts={ONLY_ACCOUNT: account}, problems=())


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


def look(sink: Any) -> SinkReport:
    return verify_sink(sink, decisions(), sleep=lambda _: None)


@pytest.mark.parametrize(("rows", "as_of"), [(10, 2), (20, 3)])
def test_an_older_sink_may_show_the_newest_batch_or_not(rows: int, as_of: int) -> None:
    report = look(OlderSink(rows))
    assert (report.ok, report.as_of) == (True, as_of)


def test_an_older_sink_that_lacks_a_row_is_told() -> None:
    sink = OlderSink(19)
    report = look(sink)
    assert (report.ok, report.as_of) == (False, 3)
    assert sink.looks == 2, "nothing was decided meanwhile, so that looking again would not help"


def test_a_busy_sink_is_looked_at_again_and_not_for_ever() -> None:
    assert look(BusySink(TRIES - 1)).as_of == 2
    with pytest.raises(Retryable, match="Rows were being written"):
        look(BusySink(TRIES))
