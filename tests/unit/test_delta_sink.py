"""The delta sink where the suite of all sinks does not reach: what the library would accept, and what others do to a table."""

import datetime as dt
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from tests.conformance.delta_rig import DeltaRig, PartitionedRig

from penstock.core.model import LedgerId, PipelineName, Position, Staged
from penstock.errors import (
    Conflict,
    ContentConflict,
    LedgerMismatch,
    OutcomeUnknown,
    PublishFailed,
    StagedDataLost,
)
from penstock.sink.delta import place as delta_place
from penstock.sink.delta.log import DeltaLog, delta_log
from penstock.sink.delta.place import place_of
from penstock.sink.lake.log import Change
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.staged_files import _checked
from penstock.sink.lake.statistics import footer_notes
from penstock.sink.parquet import directory_account
from penstock.sink.parquet.directory.area import DirectoryArea
from penstock.testing.conformance import PIPELINE, Bench, Shown, require_equal
from penstock.testing.conformance.bench import publish
from penstock.testing.conformance.rig import LEDGER_ID, SCHEMA

RIGS = {"plain": DeltaRig, "partitioned": PartitionedRig}


@pytest.fixture(params=["plain"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRig:
    return RIGS[request.param](tmp_path)


@pytest.fixture
def bench(rig: DeltaRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


def decided(bench: Bench, *, batch_id: int = 0) -> tuple[LakeSink, Shown]:
    sink, rows = bench.sink(), bench.rows(range(batch_id * 1000, batch_id * 1000 + 60))
    assert isinstance(sink, LakeSink)
    return sink, bench.decide((rows, bench.stage(sink, rows, batch_id=batch_id)), batch_id=batch_id)


def table_at(rig: DeltaRig) -> DeltaTable:
    return DeltaTable(str(rig.root))


class TestTheMarkerIsComparedAndSet:
    def test_a_commit_on_a_snapshot_from_before_another_one_fails(self, bench: Bench) -> None:
        """Whoever read the marker first and commits last is refused by the log itself."""
        sink, shown = decided(bench)
        stale = DeltaLog(place=place_of(directory_account(bench.rig.root))).newest()
        assert stale is not None
        publish(sink, shown.publication)
        with pytest.raises(Conflict):
            stale.commit(Change(), shown.publication)
        with pytest.raises(Conflict):
            stale.commit(Change(), replace(shown.publication, position=Position(9)))
        bench.require_shown(shown)

    def test_a_commit_beside_somebody_elses_lands(self, bench: Bench) -> None:
        """The version of another application is no conflict."""
        sink, shown = decided(bench)
        stale = DeltaLog(place=place_of(directory_account(bench.rig.root))).newest()
        assert stale is not None
        other = table_at(bench.rig)
        properties = CommitProperties(app_transactions=[Transaction("somebody else", 7)])
        other.create_write_transaction([], "append", other.schema(), commit_properties=properties)
        stale.commit(Change(), shown.publication)
        mark = sink.high_water_mark(sink.accounts[0], pipeline=PIPELINE)
        assert mark is not None
        assert mark.position == shown.publication.position

    def test_a_commit_that_landed_and_raised_is_not_repeated(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where the checkpoint after it fails: the marker tells."""
        sink, shown = decided(bench)
        real, calls = DeltaTable.create_write_transaction, []

        def landed(self: DeltaTable, *given: object, **named: object) -> None:
            calls.append(given)
            real(self, *given, **named)  # type: ignore[arg-type]
            raise DeltaError("the checkpoint failed")

        monkeypatch.setattr(DeltaTable, "create_write_transaction", landed)
        assert not sink.publish(shown.publication).already
        assert sink.publish(shown.publication).already
        assert len(calls) == 1
        bench.require_shown(shown)

    def test_a_commit_that_failed_is_reported_as_unknown_and_made_by_the_next_try(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, shown = decided(bench)

        def failed(*given: object, **named: object) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "create_write_transaction", failed)
            with pytest.raises(OutcomeUnknown, match="no space left"):
                sink.publish(shown.publication)
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)

    def test_a_marker_outlives_its_log(self, bench: Bench) -> None:
        """After clean-up only a checkpoint is left: position and ledger are in it, the notes are not."""
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows([number]), batch_id=number) for number in range(21)]
        table = table_at(bench.rig)
        for _ in range(15):
            table.create_write_transaction([], "append", table.schema())
        table_at(bench.rig).create_checkpoint()
        for path in (bench.rig.root / "_delta_log").glob("*.json"):
            if int(path.stem) < table_at(bench.rig).version():
                path.unlink()
        mark = bench.sink().high_water_mark(sink.accounts[0], pipeline=PIPELINE)
        assert mark is not None
        assert (mark.position, mark.ledger_id, mark.batch_id) == (shown[-1].publication.position, LEDGER_ID, None)
        assert [bench.sink().publish(one.publication).already for one in (shown[3], shown[-1])] == [True, True]
        shutil.rmtree(bench.rig.root.parent / ".penstock-staging")  # where it is noted, too, whose the table is
        foreign = replace(shown[-1].publication, ledger_id=LedgerId("a7" * 16), position=Position(99))
        with pytest.raises(LedgerMismatch):
            bench.sink().publish(foreign)
        bench.require_shown(*shown)

    def test_what_is_too_old_in_the_log_leaves_it_once_in_a_hundred_commits(self, bench: Bench) -> None:
        sink = bench.sink()
        table_at(bench.rig).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        first = bench.rig.root / "_delta_log" / f"{0:020d}.json"
        is_there = dict[int, bool]()
        while table_at(bench.rig).version() < 97:
            table, nothing = table_at(bench.rig), PostCommitHookProperties(cleanup_expired_logs=False)
            table.create_write_transaction([], "append", table.schema(), post_commithook_properties=nothing)
        for number in range(4):
            bench.deliver(sink, bench.rows([number]), batch_id=number)
            is_there[table_at(bench.rig).version()] = first.exists()
        assert is_there == {98: True, 99: True, 100: False, 101: False}
        assert bench.verify(bench.sink()).ok

    def test_the_marker_says_which_batch_is_newest(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = bench.deliver(sink, bench.rows(range(9)), batch_id=4)
        mark = sink.high_water_mark(sink.accounts[0], pipeline=PIPELINE)
        assert mark is not None
        assert (mark.position, mark.batch_id, mark.query_id) == (2, 4, shown.publication.batch.query_id)
        assert sink.high_water_mark(sink.accounts[0], pipeline=PipelineName("other")) is None

    def test_a_table_that_is_restored_gets_nothing_twice(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 20)), batch_id=at) for at in (0, 100)]
        table_at(bench.rig).restore(1)
        assert bench.sink().publish(shown[1].publication).already
        require_equal(bench.rig.read_back(), shown[0].rows)
        report = bench.verify(bench.sink())
        assert 100 in {problem.batch_id for problem in report.problems}

    def test_an_older_copy_under_a_run_that_goes_on_is_noticed(self, bench: Bench, tmp_path: Path) -> None:
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(20)), batch_id=0)
        shutil.copytree(bench.rig.root, tmp_path / "copy")
        bench.deliver(sink, bench.rows(range(100, 120)), batch_id=1)
        shutil.rmtree(bench.rig.root)
        shutil.copytree(tmp_path / "copy", bench.rig.root)
        rows = bench.rows(range(200, 220))
        third = bench.decide((rows, bench.stage(sink, rows, batch_id=2)), batch_id=2)
        with pytest.raises(LedgerMismatch, match="an older copy is in its place"):
            sink.publish(third.publication)

    def test_a_commit_is_durable_before_it_counts(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also one that an earlier run made and died before it was durable."""
        synced: list[str] = []
        real = delta_place.sync_file
        monkeypatch.setattr(delta_place, "sync_file", lambda path: (synced.append(Path(path).stem.lstrip("0")), real(path))[1])
        sink, shown = decided(bench)
        publish(sink, shown.publication)
        assert "1" in synced
        synced.clear()
        assert bench.sink().publish(shown.publication).already
        assert "1" in synced

    def test_a_commit_behind_somebody_elses_is_durable_too(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """It has another version than the next one of the snapshot that it was made on."""
        synced: list[str] = []
        monkeypatch.setattr(delta_place, "sync_file", lambda path: synced.append(Path(path).stem.lstrip("0")))
        sink, shown = decided(bench)
        real = DirectoryArea.show

        def overtaken(self: DirectoryArea, pieces: list[Staged]) -> object:
            other = table_at(bench.rig)
            other.create_write_transaction([], "append", other.schema())
            return real(self, pieces)

        monkeypatch.setattr(DirectoryArea, "show", overtaken)
        publish(sink, shown.publication)
        assert table_at(bench.rig).version() == 2
        assert "2" in synced

    def test_a_flush_that_failed_ends_the_run(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """To flush once more could succeed although nothing is on the disk."""

        def failed(path: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

        sink, shown = decided(bench)
        with monkeypatch.context() as patched:
            patched.setattr(delta_place, "sync_file", failed)
            with pytest.raises(PublishFailed, match="may not be durable"):
                sink.publish(shown.publication)
        assert bench.sink().publish(shown.publication).already
        bench.require_shown(shown)


class TestWhatTheLibraryWouldAccept:
    def test_a_file_that_is_removed_before_the_commit(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """By a vacuum without any retention; the library would commit it, and the table could not be read any more."""
        sink, shown = decided(bench)
        real = DirectoryArea.show

        def vacuumed(self: DirectoryArea, pieces: list[Staged]) -> object:
            gone = real(self, pieces)
            (bench.rig.root / pieces[0].name).rename(bench.rig.root / "moved")
            return gone

        with monkeypatch.context() as patched:
            patched.setattr(DirectoryArea, "show", vacuumed)
            with pytest.raises(StagedDataLost, match="was removed before it was committed"):
                sink.publish(shown.publication)
        assert list(bench.rig.read_back()) == []
        (bench.rig.root / "moved").rename(bench.rig.root / shown.publication.staged[0].name)
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)

    def test_a_file_of_another_size(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        sink, shown = decided(bench)
        real = DirectoryArea.show

        def truncated(self: DirectoryArea, pieces: list[Staged]) -> object:
            gone = real(self, pieces)
            (bench.rig.root / pieces[0].name).write_bytes(b"PAR1")
            return gone

        monkeypatch.setattr(DirectoryArea, "show", truncated)
        with pytest.raises(ContentConflict):
            sink.publish(shown.publication)
        assert list(bench.rig.read_back()) == []

    @pytest.mark.parametrize("rig", ["partitioned"], indirect=True)
    @pytest.mark.parametrize(
        ("old", "new"), [("flag=true", "flag=maybe"), ("flag=", "day="), ("flag=true/", "")], ids=["value", "column", "missing"]
    )
    def test_a_partition_value_that_readers_cannot_parse(self, bench: Bench, old: str, new: str) -> None:
        """The library would commit it, and the table could not be loaded any more, for ever."""
        sink, shown = decided(bench)
        pieces = list(shown.publication.staged)
        at = max(place for place, piece in enumerate(pieces) if old in piece.name)
        pieces[at] = replace(pieces[at], name=pieces[at].name.replace(old, new))
        with pytest.raises(PublishFailed, match="does not fit the table"):
            sink.publish(replace(shown.publication, staged=tuple(pieces)))
        assert list(bench.rig.read_back()) == []
        publish(sink, shown.publication)
        bench.require_shown(shown)

    def test_statistics_that_are_no_json(self, bench: Bench) -> None:
        _, shown = decided(bench)
        piece = shown.publication.staged[0]
        assert _checked(piece, []).statistics.startswith('{"numRecords":60')
        with pytest.raises(PublishFailed):
            _checked(replace(piece, ref={**piece.ref, "statistics": "{"}), [])

    def test_a_table_that_was_altered_under_a_decided_batch(self, bench: Bench) -> None:
        """The library would commit the files, and a reader would see null, or fail. Altered back, it gets the batch."""
        sink, shown = decided(bench)
        kept = bench.rig.root.with_name("kept")
        bench.rig.root.rename(kept)
        schema = json.loads(DeltaTable(str(kept)).schema().to_json())
        schema["fields"][3]["type"] = "string"
        DeltaTable.create(str(bench.rig.root), Schema.from_json(json.dumps(schema)))
        with pytest.raises(PublishFailed, match="has the type string in column 'number', and the rows have long"):
            sink.publish(shown.publication)
        shutil.rmtree(bench.rig.root)
        kept.rename(bench.rig.root)
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)

    def test_a_table_that_is_gone(self, bench: Bench) -> None:
        sink, shown = decided(bench)
        shutil.rmtree(bench.rig.root)
        with pytest.raises(PublishFailed, match="is gone"):
            sink.publish(shown.publication)


@pytest.mark.parametrize("rig", ["plain", "partitioned"], indirect=True)
class TestBesideOthers:
    def test_compaction_and_vacuum_beside_a_pipeline(self, bench: Bench) -> None:
        """Even without any retention nothing that is decided or staged is touched, and `verify` agrees."""
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 40)), bench.rows([at + 500]), batch_id=at) for at in (0, 1000)]
        rows = bench.rows(range(2000, 2040))
        staged = bench.stage(sink, rows, batch_id=2)
        last = bench.decide((rows, staged), batch_id=2)
        table_at(bench.rig).optimize.compact()
        table_at(bench.rig).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        publish(sink, last.publication)
        bench.require_shown(*shown, last)
        assert bench.sink().publish(shown[1].publication).already
        report = bench.verify(bench.sink())
        assert report.ok, report
        assert len(DeltaTable(str(bench.rig.root)).file_uris()) < sum(len(one.publication.staged) for one in bench.decided)

    def test_no_reader_misses_a_row_by_its_statistics(self, bench: Bench) -> None:
        """Every value of every row is found by the reader that skips files."""
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows([number]), batch_id=number) for number in range(24)]
        for one in shown:
            [row] = one.rows
            table = table_at(bench.rig)
            found = pa.table(table.scan(predicate=f"id = {row['id']}")).to_pylist()
            require_equal(found, [row])
            for name, cast in (("day", "DATE"), ("seen", "TIMESTAMP"), ("price", "DECIMAL(12,2)"), ("number", "BIGINT")):
                if row[name] is not None and getattr(row[name], "year", 2000) in range(1000, 9999):
                    found = pa.table(table.scan(predicate=f"{name} = CAST('{row[name]}' AS {cast})")).to_pylist()
                    assert row["id"] in [each["id"] for each in found], (name, row)


def test_statistics_bound_the_values_and_nothing_else() -> None:
    """Bounds are rounded away from the values, and left out where a reader may take them in another way."""
    moments = [dt.datetime(2026, 1, 2, 3, 4, 5, microsecond=us, tzinfo=dt.timezone.utc) for us in (999, 1001)]
    table = pa.table(
        {
            "number": [3, None],
            "moment": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "local": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
            "end": pa.array(
                [dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc).replace(tzinfo=None)] * 2,
                pa.timestamp("us"),
            ),
            "day": [dt.date(2026, 1, 2), dt.date(1, 1, 1)],
            "text": ["a" * 40, "b" * 40],
            "short": ["é", "a"],
            "price": pa.array([Decimal("1.10"), Decimal("-2.20")], pa.decimal128(10, 2)),
            "long_price": pa.array([Decimal("1234567890123456.78")] * 2, pa.decimal128(18, 2)),
            "ratio": [float("nan"), 1.0],
            "flag": [True, False],
            "raw": [b"a", b"b"],
            "nothing": pa.array([None, None], pa.int64()),
            "inside": [{"x": 1}, {"x": 2}],
            "list": [[1], [2, 3]],
        }
    )
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(pa.BufferOutputStream(), table.schema, metadata_collector=footers) as writer:
        for row in range(2):
            writer.write_table(table.slice(row, 1))
    told = json.loads(str(footer_notes(footers[0], table.schema)["statistics"]))
    assert told["numRecords"] == 2
    assert told["minValues"] == {
        "number": 3,
        "moment": "2026-01-02T03:04:05.000Z",
        "local": "2026-01-02 03:04:05.000",
        "end": "9999-12-31 23:59:59.999",
        "day": "0001-01-01",
        "text": "a" * 32,
        "short": "a",
        "price": -2.2,
    }
    assert told["maxValues"] == {
        "number": 3,
        "moment": "2026-01-02T03:04:05.002Z",
        "local": "2026-01-02 03:04:05.002",
        "day": "2026-01-02",
        "short": "é",
        "price": 1.1,
    }
    counts = {name: 0 for name in table.column_names if name not in {"inside", "list"}}
    assert told["nullCount"] == {**counts, "number": 1, "nothing": 2}


class TestHowLongTheLogIsKept:
    @pytest.mark.parametrize(
        ("vacuum_after_ms", "kept"), [(None, None), (3_600_000, "interval 7200 seconds"), (15 * 24 * 3_600_000, None)]
    )
    def test_a_new_table_keeps_its_log_twice_as_long_as_its_versions(
        self, tmp_path: Path, vacuum_after_ms: int | None, kept: str | None
    ) -> None:
        class Vacuumed(DeltaRig):
            def log(self) -> DeltaLog:
                return delta_log(self.account(), vacuum_after_ms=vacuum_after_ms)

        rig = Vacuumed(tmp_path)
        rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)
        assert table_at(rig).metadata().configuration.get("delta.logRetentionDuration") == kept

    def test_a_version_is_read_whose_own_entry_alone_is_young(self, bench: Bench) -> None:
        """The library keeps the checkpoint before the oldest entry that it keeps."""
        sink = bench.sink()
        table_at(bench.rig).alter.set_table_properties({"delta.logRetentionDuration": "interval 7200 seconds"})
        shown = [bench.deliver(sink, bench.rows([number]), batch_id=number) for number in range(34)]
        log = bench.rig.root / "_delta_log"
        old = time.time() - 2 * 7200
        for entry in log.iterdir():
            if entry.name[:20].isdecimal() and int(entry.name[:20]) <= 25:
                os.utime(entry, (old, old))
        table_at(bench.rig).cleanup_metadata()
        assert not (log / f"{0:020d}.json").exists()
        young = DeltaLog(place=place_of(directory_account(bench.rig.root))).at(26)
        assert young.marker(PIPELINE, sink.name) is not None
        bench.require_shown(*shown)
