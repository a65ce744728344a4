"""A table is compared with the ledger as of its marker's position, which may be ahead of the ledger's end when the look began."""

import pytest
from tests.unit.parquet_target import decide

from penstock.core.model import ONLY_ACCOUNT, PipelineName, Position, Publication, SinkName, SinkReport, Staged, Totals
from penstock.errors import Retryable
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.verification import compare
from penstock.testing.conformance.bench import DecidedBatches

SINK = SinkName("orders")
ROWS = 10


def of_rows(rows: int) -> Totals:
    return Totals(rows=rows, digest=rows)


def publication(position: int) -> Publication:
    piece = Staged(sink=SINK, account=ONLY_ACCOUNT, name=f"{position}", attempt=f"{position}", totals=of_rows(ROWS))
    return decide([piece], position=position, batch_id=position - 2)


def look(*, rows: int, marked: int, published_at: int, whole_batches: bool = True, digest: int | None = None) -> SinkReport:
    """Batches 0, 1 and 2 of ten rows are at positions 2, 3 and 4; the marker counts those up to `marked`."""
    decisions = DecidedBatches([publication(position) for position in (2, 3, 4)])
    decisions.published_at = Position(published_at)
    counted = of_rows(ROWS * (marked - 1))
    marker = TableMarker(
        pipeline=PipelineName("shop"),
        sink=SINK,
        table_name="t",
        write="append",
        position=Position(marked),
        decided=counted,
        after=counted,
    )

    def content(_: TableMarker) -> Totals:
        return of_rows(rows) if digest is None else Totals(rows=rows, digest=digest)

    return compare(marker, sink=SINK, table="t", decisions=decisions, content=content, whole_batches=whole_batches)


@pytest.mark.parametrize(("rows", "marked"), [(10, 2), (20, 3), (30, 4)])
def test_what_a_driver_published_meanwhile_and_what_it_has_not_yet_are_no_difference(rows: int, marked: int) -> None:
    report = look(rows=rows, marked=marked, published_at=2)
    assert report.ok, report
    assert report.as_of == marked
    assert report.accounts[ONLY_ACCOUNT].expected.rows == rows


def test_what_was_published_before_the_look_began_must_be_there() -> None:
    report = look(rows=10, marked=2, published_at=3)
    assert report.as_of == 3
    assert [problem.batch_id for problem in report.problems] == [1]


@pytest.mark.parametrize(
    ("rows", "said"), [(19, "lacks 1 of the rows"), (21, "holds 1 rows more"), (30, "Batch 1 with 10 rows is twice")]
)
def test_a_difference_beside_a_running_driver_is_found(rows: int, said: str) -> None:
    report = look(rows=rows, marked=3, published_at=2)
    assert not report.ok
    assert said in report.problems[0].message


def test_rows_that_two_tables_exchanged_are_found() -> None:
    """Each holds as many as before."""
    (problem,) = look(rows=20, marked=3, published_at=3, digest=21).problems
    assert "holds as many rows as were published into it, but other values" in problem.message


@pytest.mark.parametrize("rows", [14, 20])
def test_a_batch_that_is_there_in_part_is_neither_loss_nor_foreign(rows: int) -> None:
    """Where rows become visible before their marker does, nobody can tell them apart while a batch is outstanding."""
    with pytest.raises(Retryable, match="Batch 2 was being written into table 't' while its rows were read") as raised:
        look(rows=rows, marked=2, published_at=2, whole_batches=False)
    assert "penstock recover" in raised.value.remedy
    assert look(rows=10, marked=2, published_at=2, whole_batches=False).ok
    assert not look(rows=29, marked=4, published_at=3, whole_batches=False).ok
