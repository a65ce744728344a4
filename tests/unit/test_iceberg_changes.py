"""Rows of an Iceberg table that others replace, where the format matters. What holds for all is in `test_lake_changes`."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from tests.conformance.iceberg_rig import (
    ChangingRig,
    IcebergRig,
    OverlappingIfAbsentRig,
    OverlappingRig,
    OverwriteRig,
    ReplaceRig,
    expired,
    local,
)

from penstock.errors import PublishFailed, Refused
from penstock.sink.lake.batch_keys import BatchKeys
from penstock.sink.lake.log import Change
from penstock.testing.conformance import PIPELINE, Bench, require_equal


def opened(rig: IcebergRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


@pytest.fixture(params=[OverlappingRig], ids=lambda rig: rig.__name__)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from opened(request.param(tmp_path))


def by(*rigs: type[IcebergRig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", rigs, indirect=True, ids=[rig.__name__ for rig in rigs])


class TestWhatAKeyMeans:
    @by(OverlappingIfAbsentRig)
    def test_a_batch_that_changes_nothing_moves_the_marker(self, bench: Bench) -> None:
        """By a snapshot of its own: a commit on an older one is refused."""
        sink = bench.sink()
        rows = [{**row, "id": 1} for row in bench.rows(range(9))]
        bench.deliver(sink, rows, batch_id=0)
        stale = sink._log.newest()
        last = bench.deliver(sink, rows[3:7], batch_id=1)
        require_equal(bench.rig.read_back(), rows[:1])
        assert [len(bench.rig.active()), len(bench.rig.table().snapshots())] == [1, 2]
        assert stale is not None
        with pytest.raises(Exception, match="has changed"):
            stale.commit(Change(), last.publication)
        assert bench.sink().publish(last.publication).already

    @pytest.mark.parametrize("column", ["day", "flag", "place"])
    def test_a_file_of_a_partition_without_the_keys_is_not_read(self, tmp_path: Path, column: str) -> None:
        rig = ChangingRig(tmp_path)
        rig.partition_by, rig.key = (column,), (column, "id")
        for bench in opened(rig):
            sink = bench.sink()
            rows = [row for row in bench.rows(range(60)) if row[column] is not None]
            bench.deliver(sink, rows, batch_id=0)
            snapshot = sink._log.newest()
            assert snapshot is not None
            keys = keys_of(rows[:1], column, bench)
            [found] = snapshot.files(keys.range([column]))
            assert len(rig.active()) > 1
            bench.deliver(sink, [{**rows[0], "amount": 0.5}], batch_id=1)
            bench.require_shown(*bench.decided)
            assert found.path not in {local(file).name for file in rig.active()}


def keys_of(rows: list[dict[str, object]], column: str, bench: Bench) -> BatchKeys:
    [file, *_] = bench.rig.active()
    schema = pa.schema([bench.rig.table().schema().as_arrow().field(name) for name in (column, "id")])
    assert file
    batch = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
    return BatchKeys.of(batch.to_batches(), batch.schema, (column, "id"), last=True)


class TestBesideOtherWriters:
    @by(OverlappingRig, ReplaceRig)
    def test_a_commit_that_landed_and_raised_is_not_repeated(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(40)), batch_id=0)
        rows = bench.rows(range(1000, 1040))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        real, calls = Table._do_commit, []

        def landed(self: Table, **given: object) -> None:
            calls.append(given)
            real(self, **given)  # type: ignore[arg-type]
            raise CommitStateUnknownException("502")

        monkeypatch.setattr(Table, "_do_commit", landed)
        assert not sink.publish(shown.publication).already
        assert bench.sink().publish(shown.publication).already
        assert len(calls) == 1
        bench.require_shown(*bench.decided)
        assert bench.rig.leftovers() == []
        assert bench.verify(bench.sink()).ok

    def test_what_the_marker_counts_outlives_snapshots(self, bench: Bench) -> None:
        sink = bench.sink()
        for at in range(3):
            bench.deliver(sink, bench.rows(range(at * 7, at * 7 + 20)), batch_id=at)
        assert expired(bench.rig) == 2
        bench.deliver(bench.sink(), bench.rows(range(9)), batch_id=3)
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok

    def test_a_table_that_lost_a_column_is_only_appended_to(self, bench: Bench) -> None:
        """A column that is removed and added again has another number, and none of the values that older files have for it."""
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(20)), batch_id=0)
        rows = bench.rows(range(10))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        before = bench.rig.renumber("name")
        with pytest.raises(PublishFailed, match="has lost a column, beside write: upsert"):
            sink.publish(shown.publication)
        with pytest.raises(Refused, match="has lost a column"):
            bench.sink()
        bench.rig.write = "append"
        bench.rig.make().prepare(pipeline=PIPELINE, schema=bench.rig.schema)
        bench.rig.write = "upsert"
        bench.rig.register(before)
        assert not bench.sink().publish(shown.publication).already
        bench.require_shown(*bench.decided)

    def test_partitions_are_not_overwritten_beside_files_from_before_they_were_made(self, tmp_path: Path) -> None:
        """Rows of the partition could be in any of them, and would stay. Once they are rewritten nothing keeps it."""
        rig = OverwriteRig(tmp_path)
        rig.partition_by = ("flag",)
        for bench in opened(rig):
            rows = [row for row in bench.rows(range(40)) if row["flag"] is not None]
            bench.deliver(bench.sink(), rows, batch_id=0)
            with rig.table().update_spec() as update:
                update.add_identity("place")
            rig.partition_by = ("flag", "place")
            with pytest.raises(Refused, match="files from before its partitioning was changed, beside write: overwrite_part"):
                bench.sink()
            rig.compact()
            bench.deliver(bench.sink(), rows[:3], batch_id=1)
            touched = {rig.partition_of(row) for row in rows[:3]}
            require_equal(rig.read_back(), [row for row in rows if rig.partition_of(row) not in touched] + rows[:3])
            assert bench.verify(bench.sink()).ok

    def test_files_from_before_the_table_was_partitioned_are_rewritten_too(self, tmp_path: Path) -> None:
        rig = ChangingRig(tmp_path)
        rig.key = ("flag", "id")
        for bench in opened(rig):
            rows = [row for row in bench.rows(range(40)) if row["flag"] is not None]
            bench.deliver(bench.sink(), rows, batch_id=0)
            with rig.table().update_spec() as update:
                update.add_identity("flag")
            rig.partition_by = ("flag",)
            bench.deliver(bench.sink(), [{**row, "amount": 0.5} for row in rows[:30]], batch_id=1)
            bench.require_shown(*bench.decided)
            assert bench.verify(bench.sink()).ok
