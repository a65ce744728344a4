"""Rows of a table that others replace: by key, by partition and as a whole, beside other writers; whatever the format."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from tests.conformance import delta_rig, iceberg_rig
from tests.conformance.lake_rig import LakeRig

from penstock.core.model import Publication
from penstock.core.row_hash import row_hashes
from penstock.errors import ContentConflict, LedgerMismatch, StageFailed, Usage
from penstock.protocols import Sink
from penstock.sink.lake.batch_keys import BatchKeys
from penstock.sink.lake.log import Change, TableLog, TableSnapshot
from penstock.sink.lake.row_validator import require_key, require_sequence
from penstock.sink.lake.sink import LakeSink
from penstock.sink.parquet.directory.area import DirectoryArea
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import Bench, require_equal
from penstock.testing.conformance.bench import attempt, publish
from penstock.testing.conformance.rig import make_rows as plain_rows

RIGS = {"delta": delta_rig, "iceberg": iceberg_rig}
FORMATS = pytest.mark.parametrize("rigs", RIGS.values(), ids=RIGS)


def opened(rig: LakeRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


def schema_of(**kinds: object) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


def plain(rigs: ModuleType) -> type[LakeRig]:
    """The rig that appends."""
    found: type[LakeRig] = getattr(rigs, {delta_rig: "DeltaRig", iceberg_rig: "IcebergRig"}[rigs])
    return found


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from opened(request.param(tmp_path))


def by(*names: str) -> pytest.MarkDecorator:
    """With these rigs of each format."""
    rigs = {f"{label}-{name}": getattr(module, name) for label, module in RIGS.items() for name in names}
    return pytest.mark.parametrize("bench", rigs.values(), indirect=True, ids=rigs)


def newest(sink: Sink) -> TableSnapshot:
    assert isinstance(sink, LakeSink)
    snapshot = sink._log.newest()
    assert snapshot is not None
    return snapshot


class TestWhatAKeyMeans:
    @by("OverlappingRig", "OverlappingPartitionedRig")
    def test_of_rows_with_one_key_the_last_one_counts(self, bench: Bench) -> None:
        """Within a piece, across pieces in their decided order, and across batches; whichever partition they are of."""
        sink = bench.sink()
        rows = [{**row, "id": 1} for row in bench.rows(range(90))]
        shown = bench.deliver(sink, rows[:50], rows[50:], batch_id=0)
        require_equal(bench.rig.read_back(), rows[-1:])
        later = bench.deliver(sink, rows[3:7], batch_id=1)
        require_equal(bench.rig.read_back(), [rows[6]])
        bench.require_shown(shown, later)
        assert bench.verify(bench.sink()).ok

    @by("OverlappingIfAbsentRig")
    def test_of_rows_with_one_key_the_first_one_counts(self, bench: Bench) -> None:
        sink = bench.sink()
        rows = [{**row, "id": 1} for row in bench.rows(range(90))]
        bench.deliver(sink, rows[:50], rows[50:], batch_id=0)
        require_equal(bench.rig.read_back(), rows[:1])
        version = newest(sink).version
        last = bench.deliver(sink, rows[3:7], batch_id=1)
        require_equal(bench.rig.read_back(), rows[:1])
        assert newest(sink).version == version + 1  # nothing changed, but the marker did
        assert bench.sink().publish(last.publication).already
        assert bench.verify(bench.sink()).ok

    @by("ChangingRig", "PartitionedUpsertRig")
    def test_a_row_without_a_key_is_refused_before_it_is_decided(self, bench: Bench) -> None:
        rows = [{**row, "place": None} for row in bench.rows([1])]
        with pytest.raises(StageFailed, match="found NULL in column 'place', which allows none"):
            bench.stage(bench.sink(), rows, batch_id=0)

    @by("PartitionedUpsertRig")
    def test_a_text_without_a_directory_is_refused_before_it_is_decided(self, bench: Bench) -> None:
        rows = [{**row, "place": ""} for row in bench.rows([1])]
        with pytest.raises(StageFailed, match="holds the text '' in 1 rows"):
            bench.stage(bench.sink(), rows, batch_id=0)

    @pytest.mark.parametrize(
        ("name", "kind", "says"),
        [
            ("id", pa.float64(), "has the type double"),
            ("id", pa.list_(pa.int64()), "tells no rows apart"),
            ("x", pa.int64(), "'id'"),
        ],
    )
    def test_keys_that_tell_no_rows_apart(self, name: str, kind: "pa.DataType", says: str) -> None:
        with pytest.raises(Usage, match=says):
            require_key(pa.schema([(name, kind)]), ["id"])

    @FORMATS
    @pytest.mark.parametrize("column", ["id", "place", "name", "number", "price", "day", "seen", "flag", "raw"])
    def test_values_of_every_type_are_keys(self, rigs: ModuleType, tmp_path: Path, column: str) -> None:
        """Each is found again, in files that bounds or partitions tell apart from others."""
        rig = rigs.ChangingRig(tmp_path)
        rig.key = (column,)
        for bench in opened(rig):
            sink = bench.sink()
            rows = [row for row in bench.rows(range(60)) if row[column] is not None]
            shown = [bench.deliver(sink, rows[at : at + 9], batch_id=at) for at in range(0, len(rows), 9)]
            again = [{**row, "amount": 0.5} for row in rows]
            shown.append(bench.deliver(sink, again, batch_id=99))
            bench.require_shown(*shown)
            assert len(list(rig.read_back())) == len({row[column] for row in rows})
            assert bench.verify(bench.sink()).ok

    @FORMATS
    def test_a_file_without_bounds_may_hold_any_key(self, rigs: ModuleType, tmp_path: Path) -> None:
        """Long texts have none; other writers may note none at all."""
        rig = rigs.ChangingRig(tmp_path)
        rig.key = ("name",)
        for bench in opened(rig):
            sink = bench.sink()
            rows = [{**row, "name": "z" * (198 + row["id"])} for row in bench.rows([1, 2])]
            bench.deliver(sink, rows, batch_id=0)
            bench.deliver(sink, [{**rows[0], "id": 9}], batch_id=1)
            bench.require_shown(*bench.decided)

    @FORMATS
    def test_dates_beyond_the_calendar_of_python_are_keys(self, rigs: ModuleType, tmp_path: Path) -> None:
        """A decided batch with one could not be published, ever."""
        rig = rigs.ChangingRig(tmp_path)
        rig.schema, rig.key = schema_of(day="date", number="long"), ("day",)
        days = pa.array([3_000_000, 2_000, 5], pa.int32()).cast(pa.date32())
        for bench in opened(rig):
            sink = bench.sink()
            for number in range(3):
                rows = pa.RecordBatch.from_arrays([days, pa.array([number] * 3)], schema=arrow_schema(rig.schema))
                writer = sink.stager().open(attempt(number, 1, 0, 0), rows.schema)
                writer.write(rows, hashes=row_hashes(rows, rig.row_digest), accounts=None)
                publish(sink, bench.decide(([], tuple(writer.finish())), batch_id=number).publication)
            report = bench.verify(bench.sink())
            assert (report.ok, [account.found.rows for account in report.accounts.values()]) == (True, [3])

    def test_a_field_inside_of_a_column_is_not_taken_for_the_key(self, tmp_path: Path) -> None:
        """Delta's readers list bounds under names with dots, which names of columns may have, too."""
        rig = delta_rig.ChangingRig(tmp_path)
        inside = {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": True, "metadata": {}}]}
        rig.schema, rig.key = schema_of(**{"a": inside, "a.b": "long"}), ("a.b",)
        for bench in opened(rig):
            sink = bench.sink()
            for number in range(3):
                bench.deliver(sink, [{"a": {"b": 1000 + at}, "a.b": at} for at in range(number, number + 5)], batch_id=number)
                rig.table().optimize.z_order(["a.b"])  # notes bounds of fields, too
            bench.require_shown(*bench.decided)
            assert bench.verify(bench.sink()).ok

    @by("OverlappingRig")
    def test_a_file_that_cannot_hold_a_key_is_not_read(self, bench: Bench) -> None:
        sink = bench.sink()
        for at in range(0, 50, 10):
            bench.deliver(sink, bench.rows(range(at, at + 10)), batch_id=at)
        batch = pa.table({"id": [23, 31]})
        keys = BatchKeys.of(batch.to_batches(), batch.schema, ("id",), last=True)
        found = [file.path for file in newest(sink).files(keys.range([]))]
        assert sorted(min(bench.rig.ids(path)) // 10 for path in found) == [2, 3]


class TestWhatIsNewer:
    """`sequence_by`: no older row wins over a newer one, in a batch and across batches."""

    @by("NewestRig")
    def test_an_older_row_leaves_the_newer_one_alone(self, bench: Bench) -> None:
        sink = bench.sink()
        [row] = bench.rows([1])
        bench.deliver(sink, [{**row, "number": 7, "name": "newest"}, {**row, "number": 3, "name": "late"}], batch_id=0)
        version = newest(sink).version
        files = [file.path for file in newest(sink).files()]
        late = bench.deliver(sink, [{**row, "number": 6, "name": "later"}], batch_id=1)
        assert [found["name"] for found in bench.rig.read_back()] == ["newest"]
        assert ([file.path for file in newest(sink).files()], newest(sink).version) == (files, version + 1)  # the marker moved
        assert bench.sink().publish(late.publication).already
        assert bench.verify(bench.sink()).ok
        bench.deliver(
            sink, [{**row, "number": 7, "name": "as new"}, {**row, "number": 7, "name": "as new, and last"}], batch_id=2
        )
        assert [found["name"] for found in bench.rig.read_back()] == ["as new, and last"]
        assert bench.verify(bench.sink()).ok

    @by("NewestRig")
    def test_a_batch_is_compared_again_with_rows_that_came_before_its_commit(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was newer when it looked first may be older than what is there when it commits."""
        sink, other = bench.sink(), bench.sink()
        [row] = bench.rows([1])
        bench.deliver(sink, [{**row, "number": 1}], batch_id=0)
        rows = [{**row, "number": 5}]
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        snapshot, before = type(newest(sink)), [file.path for file in newest(sink).files()]
        real, ahead = snapshot.commit, iter([other])

        def overtaken(self: TableSnapshot, change: Change, publication: Publication) -> int:
            for sink in ahead:
                assert not sink.publish(shown.publication).already
            return real(self, change, publication)

        monkeypatch.setattr(snapshot, "commit", overtaken)
        sink.publish(shown.publication)
        require_equal(bench.rig.read_back(), rows)
        assert [file.path for file in newest(sink).files()] != before
        assert bench.verify(bench.sink()).ok

    @FORMATS
    def test_a_batch_is_published_in_the_sequence_that_it_was_decided_with(self, rigs: ModuleType, tmp_path: Path) -> None:
        rig = rigs.NewestRig(tmp_path)
        for bench in opened(rig):
            [row] = bench.rows([1])
            bench.deliver(bench.sink(), [{**row, "number": 7}], batch_id=0)
            late = [{**row, "number": 3}]
            shown = bench.decide((late, bench.stage(bench.sink(), late, batch_id=1)), batch_id=1)
            rig.sequence_by = None
            publish(bench.sink(), shown.publication)
            assert [found["number"] for found in rig.read_back()] == [7]
            bench.deliver(bench.sink(), late, batch_id=2)
            assert [found["number"] for found in rig.read_back()] == [3]
            assert bench.verify(bench.sink()).ok

    @FORMATS
    def test_rows_without_a_value_are_older_than_all_others(self, rigs: ModuleType, tmp_path: Path) -> None:
        """They were there before `sequence_by` was set; new ones are refused."""
        rig = rigs.NewestRig(tmp_path)
        rig.sequence_by = None
        for bench in opened(rig):
            rows = [{**row, "number": None} for row in bench.rows([1, 3])]
            bench.deliver(bench.sink(), rows, batch_id=0)
            rig.sequence_by = "number"
            with pytest.raises(StageFailed, match="found NULL in column 'number', which allows none"):
                bench.stage(bench.sink(), rows, batch_id=1)
            bench.deliver(bench.sink(), [{**rows[0], "number": -(2**63)}], batch_id=1)
            assert {found["id"]: found["number"] for found in rig.read_back()} == {1: -(2**63), 3: None}
            assert bench.verify(bench.sink()).ok

    @FORMATS
    def test_of_several_rows_with_one_key_the_newer_one_stays(self, rigs: ModuleType, tmp_path: Path) -> None:
        """A table that was appended to may have them, in several files."""
        rig = rigs.NewestRig(tmp_path)
        rig.write = "append"
        for bench in opened(rig):
            [row] = bench.rows([1])
            for number in (3, 9):
                bench.deliver(bench.sink(), [{**row, "number": number}], batch_id=number)
            rig.write = "upsert"
            bench.deliver(bench.sink(), [{**row, "number": 5}], batch_id=10)
            assert [found["number"] for found in rig.read_back()] == [9]
            assert bench.verify(bench.sink()).ok

    @FORMATS
    @pytest.mark.parametrize("column", ["place", "number", "price", "day", "seen", "raw"])
    def test_values_of_every_type_have_an_order(self, rigs: ModuleType, tmp_path: Path, column: str) -> None:
        rig = rigs.NewestRig(tmp_path)
        rig.sequence_by = column
        for bench in opened(rig):
            sink = bench.sink()
            rows = [{**row, "id": 1} for row in plain_rows(range(60)) if row[column] is not None]
            for at in range(0, len(rows), 9):
                bench.deliver(sink, rows[at : at + 9], batch_id=at)
            greatest = max(row[column].encode() if column == "place" else row[column] for row in rows)
            [found] = rig.read_back()
            assert (found[column].encode() if column == "place" else found[column]) == greatest
            assert bench.verify(bench.sink()).ok

    @pytest.mark.parametrize(
        ("name", "kind", "says"),
        [
            ("at", pa.float64(), "has the type double, which puts rows in no order"),
            ("at", pa.bool_(), "has the type bool"),
            ("x", pa.int64(), "sequence_by names column 'at', but the rows have x"),
        ],
    )
    def test_columns_that_put_rows_in_no_order(self, name: str, kind: "pa.DataType", says: str) -> None:
        with pytest.raises(Usage, match=says):
            require_sequence(pa.schema([(name, kind)]), "at")


class TestVerify:
    @FORMATS
    @pytest.mark.parametrize("write", ["append", "upsert"])
    def test_rows_that_are_listed_twice_are_seen(self, rigs: ModuleType, tmp_path: Path, write: str) -> None:
        """By the name of its file the second entry cannot be told from the first one."""
        rig = plain(rigs)(tmp_path) if write == "append" else rigs.ChangingRig(tmp_path)
        for bench in opened(rig):
            shown = bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
            assert bench.verify(bench.sink()).ok
            rig.list_again()
            require_equal(rig.read_back(), [*shown.rows, *shown.rows])
            assert any("twice" in problem.message for problem in bench.verify(bench.sink()).problems)


class TestBesideOtherWriters:
    @by("OverlappingRig", "OverwriteRig", "ReplaceRig")
    def test_rows_that_came_between_the_look_and_the_commit_are_replaced(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A library that retried the commit on the newer snapshot would leave both."""
        sink = bench.sink()
        before = bench.deliver(sink, bench.rows(range(20)), batch_id=0)
        shown = bench.decide((before.rows, bench.stage(sink, before.rows, batch_id=1)), batch_id=1)
        snapshot, others = type(newest(sink)), iter([3])
        real = snapshot.commit

        def overtaken(self: TableSnapshot, change: Change, publication: Publication) -> int:
            for number in others:
                bench.rig.repeat(number)
            return real(self, change, publication)

        monkeypatch.setattr(snapshot, "commit", overtaken)
        publish(sink, shown.publication)
        bench.require_shown(before, shown)
        assert bench.rig.leftovers() == []

    @by("OverwriteRig")
    def test_partitions_without_new_rows_stay(self, bench: Bench) -> None:
        sink = bench.sink()
        for at, ids in enumerate((range(40), range(41, 44), [7], range(80, 90))):
            bench.deliver(sink, bench.rows(ids), batch_id=at)
            bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok

    @by("OverlappingRig", "ReplaceRig")
    def test_a_driver_that_comes_late_finds_what_the_other_one_published(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other one has removed the batch's pieces, or moved them, since this one read the marker."""
        late, other = bench.sink(), bench.sink()
        rows = bench.rows(range(40))
        shown = bench.decide((rows, bench.stage(late, rows, batch_id=0)), batch_id=0)
        log, ahead = type(late._log), iter([other])
        real = log.newest

        def overtaken(self: TableLog) -> TableSnapshot | None:
            snapshot = real(self)
            for sink in ahead:
                assert not sink.publish(shown.publication).already
            return snapshot

        monkeypatch.setattr(log, "newest", overtaken)
        late.publish(shown.publication)
        bench.require_shown(shown)
        assert bench.verify(bench.sink()).ok
        assert bench.rig.leftovers() == []

    @by("OverlappingRig")
    def test_files_that_a_sweep_takes_are_written_again(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """`penstock sweep` beside a run takes what no decision names."""
        sink = bench.sink()
        rows = bench.rows(range(40))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        real, swept = DirectoryArea.show, []

        def overtaken(self: DirectoryArea, pieces: object) -> object:
            if not swept:
                swept.extend(self.sweep(bench.cut(), dry_run=False))
            return real(self, pieces)  # type: ignore[arg-type]

        monkeypatch.setattr(DirectoryArea, "show", overtaken)
        assert not sink.publish(shown.publication).already
        assert len(swept) == 1
        bench.require_shown(shown)

    @FORMATS
    @pytest.mark.parametrize("compacted", [False, True])
    def test_a_marker_that_was_moved_back_lets_nothing_in_twice(
        self, rigs: ModuleType, tmp_path: Path, *, compacted: bool
    ) -> None:
        """A tool that writes back properties that it read before does that. The newest batch is published at every start."""
        rig = plain(rigs)(tmp_path)
        for bench in opened(rig):
            sink = bench.sink()
            shown = [bench.deliver(sink, bench.rows(range(at, at + 20)), batch_id=at) for at in (0, 100)]
            if compacted:
                rig.compact()
            before, newest = (one.publication.position for one in shown)
            rig.mark(before)
            with pytest.raises(LedgerMismatch, match=f"published position {newest} .* the marker stands at position {before}"):
                bench.sink().publish(shown[1].publication)
            rig.mark(newest)  # the remedy
            assert bench.sink().publish(shown[1].publication).already
            bench.require_shown(*shown)

    @by("OverlappingRig")
    def test_rows_that_are_fewer_than_were_decided_are_not_written(self, bench: Bench) -> None:
        sink = bench.sink()
        rows = bench.rows(range(40))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        piece = shown.publication.staged[0]
        more = replace(piece, totals=replace(piece.totals, rows=41))
        with pytest.raises(ContentConflict, match="has 41 rows, but 40 are staged"):
            sink.publish(replace(shown.publication, staged=(more,)))
