"""A source `format: penstock`: where it begins, what a batch reads, and what it refuses."""

import json
import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.chained_world import ChainedWorld, batches, delivered, ids, rows
from tests.unit.parquet_target import ARROW, SCHEMA
from tests.unit.removed_world import Run

from penstock.core.faults import arm
from penstock.core.model import Position
from penstock.errors import Failed, InputChanged, InputLost, LedgerMismatch, PublishFailed, Refused, Retryable, Usage
from penstock.run.assembly import ledger_of
from penstock.run.chain.data_source import PenstockDataSource
from penstock.run.chain.offset import read_offset
from penstock.run.chain.stream import TableStream
from penstock.run.operations import recover
from penstock.source.piece_reader import ReaderFailed

MORE = json.loads(SCHEMA)
MORE["fields"].append({"name": "note", "type": "string", "nullable": True, "metadata": {}})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ChainedWorld(tmp_path_factory.mktemp("filled")).go_on(*range(4)).root


@pytest.fixture
def world(tmp_path: Path, filled: Path) -> Iterator[ChainedWorld]:
    yield ChainedWorld(shutil.copytree(filled, tmp_path / "world"))
    arm("")


def prune(world: ChainedWorld, below: int) -> None:
    with closing(ledger_of(world.plan)) as ledger:
        ledger.prune(below=Position(below))


def test_every_batch_is_read_once_in_the_order_of_the_ledger(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=1)
    begin = reader.begin()
    assert list(batches(reader, begin)) == [delivered(number) for number in range(4)]
    end = reader.advance(begin)
    assert end | {"nonce": "", "ledger": ""} == {
        "ledger": "",
        "sink": "lake",
        "begin": 0,
        "position": 2,
        "nonce": "",
        "batch": 0,
        "rows": 5,
        "sources": {"flights": {"t": {"0": 0}}},
    }
    [row] = [row for row in rows(reader, begin, end) if row["id"] == 3]
    assert row == {"id": 3, "place": "there", "day": None}, "columns of directories are among them"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 1, 2, 3)]),
        ({"maxBatchesPerTrigger": 3}, [(0, 1, 2), (3,)]),
        ({"maxFilesPerTrigger": 9}, [(0, 1), (2, 3)]),
        ({"maxBytesPerTrigger": 1}, [(0,), (1,), (2,), (3,)]),
        ({"maxFilesPerTrigger": 1, "maxBatchesPerTrigger": 2}, [(0,), (1,), (2,), (3,)]),
    ],
)
def test_limits_cut_between_batches(world: ChainedWorld, options: dict[str, int], expected: list[tuple[int, ...]]) -> None:
    reader = world.reader(**options)
    assert list(batches(reader, reader.begin())) == [delivered(*numbers) for numbers in expected]


def test_a_query_begins_where_it_is_told(world: ChainedWorld) -> None:
    for start, expected in (("earliest", [0, 1, 2, 3]), ("2", [2, 3]), ("4", []), ("latest", [])):
        reader = world.reader(startingBatch=start)
        assert [row for batch in batches(reader, reader.begin()) for row in batch] == delivered(*expected)
    latest = world.reader(startingBatch="latest")
    begin = latest.begin()
    world.go_on(4)
    assert list(batches(latest, begin)) == [delivered(4)]
    with pytest.raises(Refused, match=r"is to begin with batch 6, which the ledger .* does not tell: its next batch is 5\."):
        world.reader(startingBatch="6").begin()


def test_a_first_batch_that_is_planned_again_reads_the_same(world: ChainedWorld) -> None:
    """Spark asks anew where the query begins, and the table has grown: what the batch's end says of it holds."""
    reader = world.reader(startingBatch="3")
    end = reader.advance(reader.begin())
    world.go_on(4)
    again = world.reader(startingBatch="latest")
    assert ids(again, again.begin(), end) == delivered(3)
    assert ids(again, {}, end) == delivered(3), "the checkpoint of a first batch notes no beginning"


def test_available_now_stops_at_what_is_there(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=1)
    begin = reader.begin()
    reader.stop_at_now()
    world.go_on(4)
    assert list(batches(reader, begin)) == [delivered(number) for number in range(4)]


def test_a_batch_is_read_once_every_account_shows_it(world: ChainedWorld) -> None:
    reader = world.reader()
    at = reader.advance(reader.begin())
    arm("parquet.marker.write=error@2")
    with pytest.raises(PublishFailed):
        world.go_on(4)
    arm("")
    assert reader.advance(at) == at
    recover(world.plan)
    assert list(batches(reader, at)) == [delivered(4)]


def test_of_one_account_is_read_what_it_got(world: ChainedWorld) -> None:
    reader = world.reader(accounts="b")
    assert list(batches(reader, reader.begin())) == [[number * 10 + row for number in range(4) for row in (2, 4)]]
    with pytest.raises(Usage, match=r"Sink 'lake' of .* has no account 'c'\. It has a, b\."):
        world.reader(accounts="a, c")


def test_an_account_that_the_file_lacks_is_not_left_out_in_silence(world: ChainedWorld) -> None:
    world.file.write_text(world.file.read_text().replace(", b: ./lake/b}", "}").replace("route: {column: place}, ", ""))
    lacking = TableStream(world.settings(**{"penstock.columns": SCHEMA}))
    with pytest.raises(Refused, match=r"Batch 0 of pipeline 'flights' has rows in account 'b', which its file no longer has"):
        lacking.begin()
    reader = world.reader(accounts="a")
    assert next(batches(reader, reader.begin())) == [row for row in delivered(0, 1, 2, 3) if row % 10 in {0, 1, 3}]


# --- what the ledger has forgotten


def test_batches_that_the_ledger_has_forgotten_are_refused_with_numbers(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=1)
    at = reader.advance(reader.begin())
    prune(world, 4)
    said = r"has forgotten the entries 3 to 3, which were not read: it begins with batch 2, at position 4\."
    with pytest.raises(InputLost, match=said):
        world.reader().advance(at)
    said = r"begins with batch 2, and 10 rows of the table are older.* startingBatch: 2"
    with pytest.raises(InputLost, match=said):
        world.reader().begin()
    later = world.reader(startingBatch=2)
    assert list(batches(later, later.begin())) == [delivered(2, 3)]
    passing = world.reader(failOnDataLoss="false")
    assert list(batches(passing, at)) == list(batches(passing, passing.begin())) == [delivered(2, 3)]


def test_a_reader_that_has_what_was_forgotten_goes_on(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=2)
    at = reader.advance(reader.begin())
    prune(world, 4)
    assert list(batches(world.reader(), at)) == [delivered(2, 3)]


# --- rewinds


def test_batches_that_were_taken_back_are_read_as_they_come_again(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=1)
    at = reader.advance(reader.begin())
    world.rewind(1)
    assert list(batches(reader, at)) == [delivered(1)]
    world.go_on(2, 3)
    assert list(batches(reader, at)) == [delivered(1), delivered(2), delivered(3)]


def test_a_reader_of_batches_that_were_taken_back_is_told_which(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=2)
    first = reader.advance(reader.begin())
    end = reader.advance(first)
    world.rewind(1)
    world.go_on(2)
    said = r"Pipeline 'flights' was rewound at position \d+ of its ledger: source 'flights' has read batches 2 to 3 \(10 rows\)"
    with pytest.raises(InputLost, match=said):
        world.reader().advance(end)
    with pytest.raises(InputLost, match=said):
        world.reader().planned(first, end)
    assert list(batches(world.reader(), first)) == [delivered(2)], "gone back behind them, it goes on"


def test_a_sink_that_kept_its_batches_lost_none(world: ChainedWorld) -> None:
    reader = world.reader()
    at = reader.advance(reader.begin())
    world.rewind(1, "lake")
    world.go_on(2, 3, 4)
    assert list(batches(world.reader(), at)) == [delivered(4)]


def test_nothing_new_is_read_while_a_rewind_is_carried_out(world: ChainedWorld) -> None:
    reader = world.reader(maxBatchesPerTrigger=1)
    at = reader.advance(reader.begin())
    arm("rewind.file_unlink=error")
    with pytest.raises(PublishFailed):
        world.rewind(1)
    arm("")
    assert reader.advance(at) == at
    world.rewind(1)
    assert list(batches(reader, at)) == [delivered(1)]


# --- identity


def test_another_ledger_is_refused(world: ChainedWorld, tmp_path: Path) -> None:
    reader = world.reader()
    at = reader.advance(reader.begin())
    (tmp_path / "other").mkdir()
    other = ChainedWorld(tmp_path / "other").go_on(0)
    with pytest.raises(LedgerMismatch, match=r"has read ledger \w{32}, and .* is ledger \w{32}\."):
        other.reader().advance(at)
    with pytest.raises(Refused, match="has read sink 'sea', and is to read 'lake'"):
        reader.advance({**at, "sink": "sea"})


def test_an_older_copy_of_the_ledger_and_one_that_went_on_by_itself_are_refused(world: ChainedWorld) -> None:
    home = world.root / "home"
    shutil.copytree(home, world.root / "copy")
    world.go_on(4)
    reader = world.reader()
    at = reader.advance(reader.begin())
    reader.close()
    shutil.rmtree(home)
    shutil.copytree(world.root / "copy", home)
    with pytest.raises(LedgerMismatch, match=r"up to position \d+, and it ends with position 5"):
        world.reader().advance(at)
    for account in "ab":
        for file in world.files(account, 4):
            file.unlink()
    opened = Run(world.plan, world.checkpoint)  # its entries are others
    opened.runtime.close()
    opened = Run(world.plan, world.checkpoint)
    opened.runtime.close()
    with pytest.raises(LedgerMismatch, match="and it has another entry there: a copy that went on"):
        world.reader().advance(at)


def test_a_ledger_that_is_gone_is_waited_for(world: ChainedWorld) -> None:
    reader = world.reader()
    at = reader.advance(reader.begin())
    reader.close()
    settings = world.settings()
    shutil.rmtree(world.root / "home")
    with pytest.raises(Retryable, match=r"The ledger at .* is empty, and source 'flights' has read it up to position 5\."):
        TableStream(settings).advance(at)


def test_a_pipeline_that_has_delivered_nothing_has_no_columns(tmp_path: Path) -> None:
    world = ChainedWorld(tmp_path)
    with pytest.raises(Retryable, match="Nothing is published in sink 'lake' of pipeline 'flights' yet"):
        world.reader()
    reader = TableStream(world.settings(**{"penstock.columns": SCHEMA}))
    begin = reader.begin()
    assert read_offset(begin) is not None
    assert reader.advance(begin) == begin
    world.go_on(0)
    assert list(batches(reader, begin)) == [delivered(0)]


# --- columns


def with_note(*numbers: int) -> pa.RecordBatch:
    values = [{"id": number, "place": "here", "day": None, "note": f"n{number}"} for number in numbers]
    return pa.RecordBatch.from_pylist(values, schema=ARROW.append(pa.field("note", pa.string())))


def test_a_column_that_comes_while_a_query_runs_ends_it_and_is_read_by_the_next(world: ChainedWorld) -> None:
    reader = world.reader()
    at = reader.advance(reader.begin())
    world.deliver_rows(4, with_note(40), json.dumps(MORE))
    with pytest.raises(Retryable, match=r"Batch 4 of pipeline 'flights' has the column 'note', which it had not when source"):
        reader.advance(at)
    newer = world.reader()
    assert rows(newer, at, newer.advance(at)) == [{"id": 40, "place": "here", "day": None, "note": "n40"}]
    first = rows(newer, {}, at)
    assert {row["note"] for row in first} == {None}
    assert len(first) == 20


def test_a_column_that_is_gone_is_not_left_out_in_silence(world: ChainedWorld) -> None:
    world.deliver_rows(4, with_note(40), json.dumps(MORE))
    world.go_on(5)
    reader = world.reader()
    with pytest.raises(Refused, match=r"Batch 4 .* has the column 'note', which its newest batch has not any more\."):
        reader.advance(reader.begin())
    fixed = TableStream(world.settings(**{"penstock.columns": json.dumps(MORE), "penstock.fixedColumns": "true"}))
    found = rows(fixed, {}, fixed.advance(fixed.begin()))
    assert sorted((row["id"], row["note"]) for row in found) == [
        (number, "n40" if number == 40 else None) for number in sorted([*delivered(0, 1, 2, 3, 5), 40])
    ]


# --- files


def test_a_file_that_is_gone_is_told_with_its_rows(world: ChainedWorld) -> None:
    reader = world.reader()
    begin = reader.begin()
    end = reader.advance(begin)
    world.remove(1, account="b")
    said = (
        r"/lake/b/place=here/.*\.parquet of batch 1 of pipeline 'flights' is gone, with 1 rows that source 'flights' had not read"
    )
    with pytest.raises(InputLost, match=said):
        rows(reader, begin, end)
    passing = world.reader(failOnDataLoss="false")
    assert len(rows(passing, begin, end)) == 18


def test_an_account_that_is_not_mounted_is_waited_for(world: ChainedWorld) -> None:
    reader = world.reader()
    begin = reader.begin()
    end = reader.advance(begin)
    (world.root / "lake").rename(world.root / "elsewhere")
    with pytest.raises(Retryable, match=r"Account 'a' of pipeline 'flights' is not at file:///"):
        rows(reader, begin, end)


def test_a_file_that_was_written_anew_is_not_read_as_what_was_decided(world: ChainedWorld) -> None:
    reader = world.reader()
    begin = reader.begin()
    end = reader.advance(begin)
    small, large = sorted(world.files("a", 0), key=lambda path: "there" in path.name or "there" in str(path))[::-1]
    shutil.copy(large, small)
    with pytest.raises(InputChanged, match=r"has 2 rows, and 1 were decided: it was written anew\."):
        rows(reader, begin, end)
    small.write_bytes(b"torn")
    with pytest.raises(Failed, match=r"of batch 0 of pipeline 'flights' cannot be read: "):
        rows(reader, begin, end)


def test_what_travels_to_tasks_is_pickled(world: ChainedWorld) -> None:
    reader = world.reader()
    end = reader.advance(reader.begin())
    again = pickle.loads(pickle.dumps(reader))
    assert ids(again, {}, end) == delivered(0, 1, 2, 3)
    piece = pickle.loads(pickle.dumps(next(iter(reader.planned({}, end)))))
    assert piece.account == "a"


def test_the_first_pipeline_s_home_is_only_read(world: ChainedWorld) -> None:
    def content() -> dict[str, Any]:
        with sqlite3.connect(world.root / "home" / "ledger.db") as connection:
            return {"entries": connection.execute("SELECT count(*) FROM sqlite_master").fetchall()}

    before, files = content(), sorted(str(path) for path in world.root.rglob("*") if "ledger" not in path.name)
    reader = world.reader()
    list(batches(reader, reader.begin()))
    reader.close()
    assert content() == before
    assert sorted(str(path) for path in world.root.rglob("*") if "ledger" not in path.name) == files


def test_spark_is_answered_as_the_stream_says(world: ChainedWorld) -> None:
    """What Spark's own process asks the data source, with options in lower case."""
    source = PenstockDataSource({"path": str(world.file), "maxbatchespertrigger": "3"})
    schema = source.schema()
    assert schema.simpleString() == "struct<id:bigint,place:string,day:date>"
    assert all(field.nullable for field in schema)
    reader = source.streamReader(schema)
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    found = [row for part in reader.partitions(begin, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in found) == delivered(0, 1, 2)
    assert reader.reportLatestOffset() == {"position": 5, "batch": 3}
    reader.stop()
    with pytest.raises(ReaderFailed, match=r"penstock\.errors\.Usage: There is no pipeline file"):
        PenstockDataSource({"path": "/none.yaml"}).schema()
