"""Rows that a sink cannot take go into the quarantine in the pass that stages the others, and are decided with them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql.types import StructType

from penstock.commit.recent_rows import rows_since
from penstock.commit.summary import after_decision
from penstock.core.bad_record import SCHEMA
from penstock.core.codec import TaskMessage, decode_message
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    AccountName,
    Attempt,
    Batch,
    BatchId,
    Decision,
    Generation,
    PipelineName,
    Position,
    QueryId,
    SinkName,
    SourceName,
    Staged,
    Summary,
    Totals,
    new_nonce,
)
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import StageFailed
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import Sink
from penstock.sink.parquet import ParquetSink, directory_account
from penstock.sink.quarantine import QuarantineSink
from penstock.sink.spool.writer import refused_rows
from penstock.sink.sqlite import SqliteSink
from penstock.spark.schema import arrow_schema
from penstock.spec.location import Quarantine
from penstock.stage.aside import RefusedRows, row_as_json
from penstock.stage.combining import combined
from penstock.stage.projection import Projection, route_of
from penstock.stage.quarantine import QuarantineMember
from penstock.stage.rules import Violations
from penstock.stage.staging import SinkShare, StagePass
from penstock.testing.entries import chain

FLIGHTS, LAKE, TABLE = PipelineName("flights"), SinkName("lake"), SinkName("table")
COLUMNS = {"origin": "string", "delay": "long"}
ROWS_SCHEMA = json.dumps({
    "type": "struct",
    "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()],
})  # fmt: skip


def rows(*pairs: tuple[str | None, int | None]) -> pa.Table:
    columns = [pa.array(values, kind) for values, kind in zip(zip(*pairs, strict=True), (pa.string(), pa.int64()), strict=True)]
    return pa.Table.from_arrays(columns, names=list(COLUMNS))


class World:
    """A lake of two accounts, a table with a key, and a quarantine, in one directory."""

    def __init__(self, root: Path, *, max_rows: int = 100, max_share: float = 1.0) -> None:
        accounts = {AccountName(name): directory_account(root / name) for name in ("EWR", "JFK")}
        lake = ParquetSink(name=LAKE, pipeline=FLIGHTS, accounts=accounts, route_sql="CAST(`origin` AS STRING)")
        table = SqliteSink(
            name=TABLE, path=str(root / "t.db"), table="t", spool=str(root / "spool"), write="upsert", key=["origin"]
        )
        aside = QuarantineSink(pipeline=FLIGHTS, account=directory_account(root / "bad"))
        self.sinks: Sequence[Sink] = (lake, table)
        for sink in (*self.sinks, aside):
            sink.prepare(pipeline=FLIGHTS, schema=ROWS_SCHEMA)
        limits = Quarantine(url=str(root / "bad"), max_rows=max_rows, max_share=max_share)
        self.member = QuarantineMember(sink=aside, settings=limits, sources={}, passes={}, puts_aside=frozenset({LAKE, TABLE}))

    def staged(self, given: pa.Table) -> tuple[StagePass, TaskMessage]:
        projection = Projection.of(StructType.fromJson(json.loads(ROWS_SCHEMA)), self.sinks, NEWEST_ROW_DIGEST)
        shares = tuple(
            SinkShare(
                sink=sink.name,
                stager=sink.stager(),
                route=projection.route_index(route_of(sink, None)),
                form=form,
                puts_aside=sink.name in self.member.puts_aside,
            )
            for sink, form in zip(self.sinks, projection.form_of, strict=True)
        )
        made = StagePass(
            generation=Generation(1),
            batch_id=BatchId(0),
            forms=projection.forms,
            shares=shares,
            quarantine=self.member.share(NEWEST_ROW_DIGEST),
        )
        return made, decode_message(made.run(list(projection.of_arrow(given)), partition=0, task_attempt=0))


def counts(pieces: Sequence[Staged]) -> Mapping[tuple[str, str], int]:
    return {(piece.sink, piece.account): piece.totals.rows for piece in pieces}


def aside(pieces: Sequence[Staged], root: Path) -> list[dict[str, Any]]:
    [piece] = [each for each in pieces if each.sink == "quarantine"]
    [file] = root.rglob(str(piece.ref["staged"]))
    table = pyarrow.parquet.read_table(file)
    in_utc = table.cast(arrow_schema(SCHEMA))
    found = sum(digest(row_hashes(batch, NEWEST_ROW_DIGEST)) for batch in in_utc.to_batches()) % 2**64
    assert piece.totals.digest == found
    return list(table.to_pylist())


AT = "11476-08-15 05:20:00.000000Z"
ATTEMPT = Attempt(generation=Generation(1), batch_id=BatchId(0), partition=0, task_attempt=0, nonce=new_nonce())
GIVEN = rows(("EWR", 1), ("LGA", 2), (None, 3), ("JFK", 4))


def test_each_sink_gets_the_rows_that_it_can_take_and_the_quarantine_gets_the_others(tmp_path: Path) -> None:
    stage_pass, message = World(tmp_path).staged(GIVEN)
    pieces = combined(message.pieces, stage_pass)
    assert counts(pieces) == {("lake", "EWR"): 1, ("lake", "JFK"): 1, ("table", ""): 3, ("quarantine", "records"): 3}
    assert message.rows == 4
    found = sorted((row["sink"], json.loads(row["row"])["delay"], row["error"]) for row in aside(pieces, tmp_path))
    assert found == [
        ("lake", 2, "A row routes to the account 'LGA', but sink 'lake' has EWR, JFK."),
        ("lake", 3, "A row routes to the account null, but sink 'lake' has EWR, JFK."),
        ("table", 3, "Sink 'table' cannot store these rows in table 't': found NULL in column 'origin', which allows none."),
    ]


def test_without_bad_rows_nothing_is_put_aside(tmp_path: Path) -> None:
    _, message = World(tmp_path).staged(rows(("EWR", 1), ("JFK", 4)))
    assert counts(message.pieces) == {("lake", "EWR"): 1, ("lake", "JFK"): 1, ("table", ""): 2}


@pytest.mark.parametrize(("limits", "said"), [({"max_rows": 2}, "max_rows: 2"), ({"max_share": 0.5}, "max_share: 0.5")])
def test_too_many_of_them_fail_the_batch(tmp_path: Path, limits: dict[str, Any], said: str) -> None:
    world = World(tmp_path, **limits)

    def stage() -> None:
        _, message = world.staged(GIVEN)
        world.member.require_few_refused(message.pieces, rows=message.rows)

    with pytest.raises(StageFailed, match=f"`quarantine: {{{said}}}` allows fewer"):
        stage()


def test_rows_against_a_rule_count_with_those_that_sinks_refuse(tmp_path: Path) -> None:
    world = World(tmp_path, max_rows=3)
    _, message = world.staged(GIVEN)
    world.member.require_few_refused(message.pieces, rows=4)
    with pytest.raises(StageFailed, match="max_rows: 3"):
        world.member.require_few_refused(message.pieces, rows=4, others=1)


def test_rows_against_a_rule_are_put_aside(tmp_path: Path) -> None:
    member, found = World(tmp_path, max_rows=2).member, arrow_schema(SCHEMA).empty_table()
    assert member.put_aside(None, Violations()) is None
    assert member.put_aside(None, Violations(aside=found)) is not None
    three = pa.Table.from_pylist([{"rule": "r"}] * 3, schema=arrow_schema(SCHEMA))
    with pytest.raises(StageFailed, match="3 records of the batch"):
        member.put_aside(None, Violations(aside=three))


def test_few_refused_rows_are_found_in_many_by_few_checks() -> None:
    asked = list[int]()

    def check(batch: pa.RecordBatch) -> None:
        asked.append(batch.num_rows)
        bad = [value for value in batch.column(0).to_pylist() if value in {5, 700}]
        if bad:
            raise StageFailed(f"found {bad[0]}", remedy="None.")

    given = pa.RecordBatch.from_pydict({"n": list(range(1000))})
    assert refused_rows(given, check) == {5: "found 5", 700: "found 700"}
    assert len(asked) < 50


def test_a_row_of_any_type_has_json() -> None:
    given = {"f": float("nan"), "b": b"\0", "d": date(2020, 1, 2), "n": Decimal("1.50"), "l": [{"x": None}], "t": "caf\u00e9"}
    expected = '{"f": "nan", "b": "AA==", "d": "2020-01-02", "n": "1.50", "l": [{"x": null}], "t": "caf\u00e9"}'
    assert row_as_json(given) == expected


def test_a_row_beyond_the_years_of_python_goes_into_the_quarantine(tmp_path: Path) -> None:
    """Such a row is the likeliest that a sink cannot take."""
    far = [pa.array([9_999_999, None], pa.int32()).cast(pa.date32()), pa.array([3 * 10**17, 0], pa.timestamp("us", tz="UTC"))]
    columns = {"d": far[0], "t": far[1], "s": pa.StructArray.from_arrays(far, ["d", "t"]), "text": pa.array(["a", "b"])}
    refused = RefusedRows(World(tmp_path).member.share(NEWEST_ROW_DIGEST), ATTEMPT)
    refused.take(LAKE, pa.RecordBatch.from_pydict(columns), ["far", "near"])
    first, second = (json.loads(row["row"]) for row in aside(refused.finish(), tmp_path))
    assert first == {"d": "29349-01-25", "t": AT, "s": {"d": "29349-01-25", "t": AT}, "text": "a"}
    assert (second["d"], second["text"]) == (None, "b")


def test_the_ledger_counts_what_was_dropped_ever() -> None:
    batch = Batch(query_id=QueryId("q"), batch_id=BatchId(0), offsets=())
    decision = Decision(batch=batch, staged=(), rows_in=0, schema="{}", dropped={SourceName("s"): {"a": 2, "b": 1}})
    summary = after_decision(Summary(), decision, position=Position(2))
    later = replace(decision, dropped={SourceName("s"): {"a": 5}, SourceName("t"): {"a": 1}})
    assert after_decision(summary, later, position=Position(3)).dropped == {"s": {"a": 7, "b": 1}, "t": {"a": 1}}
    assert decision.dropped == {"s": {"a": 2, "b": 1}}


def test_the_rows_of_the_last_hour_are_those_of_the_entries_written_since() -> None:
    ledger, flights = LogLedger(MemoryStore(), pipeline=FLIGHTS), chain(pipeline=FLIGHTS)
    for number in range(1, 12):
        totals = {LAKE: {AccountName("a"): Totals(rows=number * 10)}}
        entry = next(flights)
        ledger.append(replace(entry, written_at_ms=number * 1000, summary=replace(entry.summary, totals=totals)))
    assert [rows_since(ledger, LAKE, since) for since in (0, 1000, 1001, 7500, 11_000, 11_001)] == [110, 110, 100, 40, 10, 0]
    assert rows_since(ledger, TABLE, 0) == 0
    ledger.prune(below=Position(9))
    assert rows_since(ledger, LAKE, 10_000) == 20
    assert rows_since(ledger, LAKE, 0) == 20
