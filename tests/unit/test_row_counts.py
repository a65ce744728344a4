"""Rows in = rows out + put aside + dropped, by the entries of a ledger and what lies in the quarantine."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from tests.unit.test_run_operations import Driver

import penstock
from penstock.cli.row_counts import row_fields, row_text
from penstock.commit.row_counts import AsideRows, RowCounts, SinkRows, count_rows
from penstock.commit.summary import after_decision, after_replayed
from penstock.core.bad_record import NAME
from penstock.core.model import BatchId, Decided, Entry, Position, Rewound, SinkName, SourceName, Staged
from penstock.core.replay import Replayed
from penstock.run.operations import verify
from penstock.testing.entries import SINK, decided_entry, opened_entry

FLIGHTS = SourceName("flights")
QUARANTINE_FILE = "part-of-the-quarantine"


def piece(sink: SinkName, rows: int, like: Staged) -> Staged:
    return replace(like, sink=sink, name=f"{QUARANTINE_FILE}-{rows}", totals=replace(like.totals, rows=rows))


def batch(after: Entry, *, read: int, dropped: int, aside: int, out: int, staged: int | None = None) -> Entry:
    """A batch of `out` rows, of which the sink has `staged`, and what was left out of the rows that were read."""
    entry = decided_entry(after=after, rows=out if staged is None else staged)
    assert isinstance(entry.body, Decided)
    decision = entry.body.decision
    decision = replace(
        decision,
        rows_in=out,
        rows_read={FLIGHTS: read},
        dropped={FLIGHTS: {"late": dropped}} if dropped else {},
        staged=(*decision.staged, *([piece(NAME, aside, decision.staged[0])] if aside else [])),
    )
    summary = after_decision(after.summary, decision, position=entry.position)
    return replace(entry, body=Decided(decision=decision), summary=summary)


def replayed(after: Entry, *, records: int, out: int, again: int) -> Entry:
    entry = decided_entry(after=after, rows=out)
    assert isinstance(entry.body, Decided)
    decision = replace(
        entry.body.decision, staged=(*entry.body.decision.staged, piece(NAME, records + again, entry.body.decision.staged[0]))
    )
    body = Replayed(decision=decision, records=records, previous=after.position)
    return replace(entry, body=body, summary=after_replayed(after.summary, body, position=entry.position))


def counts(entries: "list[Entry]", aside: Mapping[int, AsideRows]) -> RowCounts:
    """Count entries, of which `aside` has what those at its positions brought into the quarantine."""

    def aside_of(entry: Entry) -> AsideRows | None:
        return aside.get(entry.position, AsideRows())

    return count_rows(reversed(entries), aside_of, counted={SINK})


def ledger() -> "list[Entry]":
    opened = opened_entry()
    first = batch(opened, read=100, dropped=10, aside=5, out=85, staged=83)
    second = batch(first, read=50, dropped=0, aside=0, out=50)
    return [opened, first, second, replayed(second, records=4, out=3, again=1)]


ASIDE = {
    2: AsideRows(sources={FLIGHTS: 5}, sinks={SINK: 2}),
    4: AsideRows(sources={FLIGHTS: 1}, receipts=4, again=1),
}


def test_every_row_is_somewhere() -> None:
    found = counts(ledger(), ASIDE)
    assert found.ok
    assert (found.first, found.last, found.read, found.to_transform(FLIGHTS)) == (0, 1, {FLIGHTS: 150}, 135)
    assert (found.rows_out, found.sinks) == (135, {SINK: SinkRows(rows_in=135, rows_out=133, aside=2)})
    assert (found.replayed, found.replayed_rows, found.again, found.waiting) == (4, 3, 1, 5 + 2 + 1 - 4)
    fields = row_fields(found)
    assert fields["sources"] == {FLIGHTS: {"rows_in": 150, "dropped": 10, "aside": 5, "to_transform": 135}}
    assert fields["replays"] == {"records": 4, "rows_out": 3, "aside": 1}


def text(found: RowCounts) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(row_text(found))
    return captured.get()


def test_people_see_the_sums() -> None:
    shown = text(counts(ledger(), ASIDE))
    assert "source flights: 150 in = 135 to the transform + 5 in the quarantine + 10 dropped." in shown
    assert f"sink {SINK}: 135 in = 133 out + 2 in the quarantine." in shown
    assert "replays: 4 records of the quarantine: 3 out, 1 in the quarantine again." in shown
    assert "quarantine: 4 records wait." in shown


def test_a_row_that_is_nowhere_shows_with_its_batch() -> None:
    found = counts(ledger(), {**ASIDE, 2: AsideRows(sources={FLIGHTS: 5}, sinks={SINK: 1})})
    assert not found.ok
    assert found.wrong == ((BatchId(0), SINK),)
    assert f"Batch 0: sink {SINK} and the quarantine together do not have the rows" in text(found)
    assert row_fields(found)["wrong"] == [{"batch_id": 0, "sink": SINK}]


def test_a_row_that_is_twice_shows() -> None:
    assert not counts(ledger(), {**ASIDE, 3: AsideRows(sinks={SINK: 1})}).ok


def test_more_put_aside_than_was_read_shows() -> None:
    found = counts(ledger(), {**ASIDE, 2: AsideRows(sources={FLIGHTS: 500}, sinks={SINK: 2})})
    assert not found.ok
    assert "more rows were dropped and put aside than were read" in text(found)


def test_what_was_taken_back_does_not_count() -> None:
    entries = ledger()[:3]
    act = Rewound(batch_id=BatchId(0), to=Position(2), kept=(), reason="", operator="ann")
    entries.append(replace(entries[-1], position=Position(4), body=act))
    found = counts(entries, ASIDE)
    assert (found.ok, found.last, found.read) == (True, 0, {FLIGHTS: 100})


def test_a_sink_that_takes_a_part_or_came_later_is_not_judged() -> None:
    opened, first, *_ = ledger()
    assert isinstance(first.body, Decided)
    selecting = replace(first, body=Decided(decision=replace(first.body.decision, schemas={SINK: "{}"})))
    assert counts([opened, selecting], {}).sinks == {}
    absent = replace(first, body=Decided(decision=replace(first.body.decision, staged=())))
    assert counts([opened, absent], {}).sinks == {}


def test_a_batch_without_its_count_makes_the_source_unknown() -> None:
    opened, first, *_ = ledger()
    assert isinstance(first.body, Decided)
    uncounted = replace(first, body=Decided(decision=replace(first.body.decision, rows_read={})))
    assert counts([opened, uncounted], ASIDE).read == {}
    assert counts([opened, uncounted, batch(uncounted, read=5, dropped=0, aside=0, out=5)], ASIDE).read == {}
    hidden = count_rows([first, opened], lambda _: None, counted={SINK})
    assert (hidden.unknown, hidden.first, hidden.ok) == (1, None, True)
    assert "Not counted: 1 decision" in text(hidden)


FILE = """\
pipeline: flights
home: ./home
sources:
  flights:
    {format: csv, path: ./incoming, schema: "id INT", expect: {known: {sql: id IS NOT NULL, on_violation: quarantine}}}
sinks:
  lake: {type: parquet, accounts: {all: ./lake}}
quarantine: ./aside
"""


def test_a_damaged_file_of_the_quarantine_is_reported_and_ends_no_verification(tmp_path: Path) -> None:
    file = tmp_path / "flights.yaml"
    file.write_text(FILE)
    plan = penstock.Pipeline.from_file(file).plan
    driver = Driver(plan, tmp_path / "home" / "checkpoint")
    with closing(driver.runtime):
        driver.plan(0)
        driver.go_on(0)
    (tmp_path / "aside").mkdir(exist_ok=True)
    (tmp_path / "aside" / "torn.parquet").write_text("PAR1")
    found = verify(plan)
    assert [name for name, report in found.sinks.items() if report.ok] == ["lake"]
    assert "torn.parquet is foreign" in found.sinks[NAME].problems[0].message
    assert found.rows is not None
    assert (found.rows.ok, found.rows.rows_out) == (True, 1)
