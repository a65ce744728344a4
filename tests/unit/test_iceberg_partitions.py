"""Hidden partitions of Iceberg tables: what manifests say, which files readers and writers skip, and what is refused."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, VoidTransform, parse_transform
from pyiceberg.types import LongType
from tests.conformance.iceberg_layout_rig import (
    TransformedMaintainedRig,
    TransformedOverwriteRig,
    TransformedRig,
    TransformedUpsertRig,
)
from tests.conformance.iceberg_rig import NAME, IcebergRig, local

from penstock.errors import PublishFailed, Refused, StageFailed, Usage
from penstock.sink.iceberg.table_schema import iceberg_schema
from penstock.sink.lake.batch_keys import BatchKeys
from penstock.testing.conformance import PIPELINE, SCHEMA, Bench, Row, require_equal

ALL = ("bucket(4, id)", "truncate(1, name)", "months(day)", "hours(seen)", "bucket(3, price)", "flag")


def opened(rig: IcebergRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


@pytest.fixture(params=[TransformedRig], ids=lambda rig: rig.__name__)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from opened(request.param(tmp_path))


def by(rig: type[IcebergRig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", [rig], indirect=True, ids=[rig.__name__])


def partitioned(bench: Bench, *names: str) -> Bench:
    bench.rig.partition_by = names
    return bench


def require_values_of_the_library(table: Table) -> None:
    """Every file has one value of each field, and it is what the library makes of each of its rows."""
    schema, fields = table.schema(), table.spec().fields
    for task in table.scan().plan_files():
        own = pa.parquet.ParquetFile(local(task.file)).read()
        for at, field in enumerate(fields):
            name = schema.find_column_name(field.source_id)
            if name not in own.column_names:
                assert str(field.transform) == "identity"
                continue
            column = own[name]
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
            value = field.transform.transform(schema.find_type(field.source_id))
            assert {value(each) for each in column.to_pylist()} == {task.file.partition[at]}


def is_far_from_the_least(row: Row) -> bool:
    """Whether its numbers have multiples below them that their types hold."""
    return row["number"] != -(2**63) and row["price"] != Decimal("-9999999999.99")


def created(rig: IcebergRig, *fields: PartitionField) -> None:
    """A table that somebody else has made."""
    catalog = rig.catalog()
    catalog.create_namespace("shop")
    columns = Schema.model_validate_json(iceberg_schema(SCHEMA))
    spec = PartitionSpec(*fields)
    properties = {"format-version": "2"}
    catalog.create_table(NAME, columns, location=f"file://{rig.root}", partition_spec=spec, properties=properties)


class TestWhatManifestsSay:
    def test_fields_have_the_names_that_spark_gives(self, bench: Bench) -> None:
        partitioned(bench, *ALL, "truncate(2, raw)").sink()
        fields = [(field.name, str(field.transform)) for field in bench.rig.table().spec().fields]
        assert fields == [
            ("id_bucket", "bucket[4]"),
            ("name_trunc", "truncate[1]"),
            ("day_month", "month"),
            ("seen_hour", "hour"),
            ("price_bucket", "bucket[3]"),
            ("flag", "identity"),
            ("raw_trunc", "truncate[2]"),
        ]

    @pytest.mark.parametrize(
        "names",
        [
            ALL,
            ("days(seen)", "truncate(100, number)", "truncate(10, price)"),
            ("years(seen)", "days(day)", "truncate(300, name)"),
        ],
        ids=["all", "days", "years"],
    )
    def test_values_are_those_of_the_library(self, bench: Bench, names: tuple[str, ...]) -> None:
        """A text of more than 255 bytes too, which could be no directory; and the empty one, `null`, and what stands for NULL."""
        rows = [row for row in partitioned(bench, *names).rows(range(80)) if is_far_from_the_least(row)]
        rows.append({**rows[0], "id": 999, "name": "é" * 400})
        bench.deliver(bench.sink(), rows, batch_id=0)
        require_equal(bench.rig.read_back(), rows)
        require_values_of_the_library(bench.rig.table())
        assert bench.verify(bench.sink()).ok

    def test_a_value_without_a_partition_fails_the_batch_in_the_task(self, bench: Bench) -> None:
        rows = [{**bench.rows([1])[0], "number": -(2**63)}]
        with pytest.raises(StageFailed, match=r"column 'number' has no partition by truncate\(100, number\)"):
            bench.stage(partitioned(bench, "truncate(100, number)").sink(), rows, batch_id=0)


class TestFilesAreSkipped:
    def test_readers_skip_files_by_the_columns(self, bench: Bench) -> None:
        """Of a few partitions, by the library's own plan; another engine reads the same rows of them."""
        rows = partitioned(bench, "bucket(8, id)", "days(seen)").rows(range(200))
        bench.deliver(bench.sink(), rows, batch_id=0)
        table, at = bench.rig.table(), rows[0]["seen"]
        every = len(list(table.scan().plan_files()))
        one = table.scan(row_filter=EqualTo("id", 7))
        [file] = [local(task.file) for task in one.plan_files() if 7 in bench.rig.rows_of(task.file)["id"].to_pylist()]
        assert len(list(one.plan_files())) < every
        assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{file}') WHERE id = 7").fetchall() == [(1,)]
        day = GreaterThanOrEqual("seen", "2013-01-31T00:00:00+00:00") & LessThan("seen", "2013-02-01T00:00:00+00:00")
        assert len(list(table.scan(row_filter=day).plan_files())) == 8
        require_equal(table.scan(row_filter=day).to_arrow().to_pylist(), [row for row in rows if row["seen"] == at])

    @by(TransformedUpsertRig)
    @pytest.mark.parametrize("name", ["bucket(16, id)", "truncate(50, id)"])
    def test_a_file_of_a_partition_without_the_keys_is_not_read(self, bench: Bench, name: str) -> None:
        rows = partitioned(bench, name).rows(range(400))
        sink = bench.sink()
        bench.deliver(sink, rows, batch_id=0)
        snapshot, ids = sink._log.newest(), pa.table({"id": [rows[5]["id"]]})
        assert snapshot is not None
        keys = BatchKeys.of(ids.to_batches(), ids.schema, ("id",), last=True).range(snapshot.partition_by)
        assert [*keys.partitions] == [name]
        keys = type(keys)(partitions=keys.partitions, bounds={})  # by the partition alone
        assert len(list(snapshot.files(keys))) == 1 < len(bench.rig.active())
        bench.deliver(sink, [{**rows[5], "amount": 0.25}], batch_id=1)
        bench.require_shown(*bench.decided)
        require_values_of_the_library(bench.rig.table())

    @by(TransformedUpsertRig)
    def test_keys_are_found_in_every_bucket(self, bench: Bench) -> None:
        rows = [{**row, "id": at} for at, row in enumerate(partitioned(bench, "bucket(16, id)").rows(range(60)))]
        sink = bench.sink()
        bench.deliver(sink, rows, batch_id=0)
        bench.deliver(sink, [{**row, "amount": 0.25} for row in rows], batch_id=1)
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok


class TestTablesOfOthers:
    def test_a_table_with_other_names_of_its_fields_is_written(self, bench: Bench) -> None:
        """By what the values are made of, whatever the fields are called."""
        fields = PartitionField(8, 1000, DayTransform(), "eventtime"), PartitionField(1, 1001, BucketTransform(4), "shard")
        created(bench.rig, *fields)
        rows = partitioned(bench, "days(seen)", "bucket(4, id)").rows(range(60))
        bench.deliver(bench.sink(), rows, batch_id=0)
        require_equal(bench.rig.read_back(), rows)
        require_values_of_the_library(bench.rig.table())
        assert [field.name for field in bench.rig.table().spec().fields] == ["eventtime", "shard"]

    @pytest.mark.parametrize(
        ("names", "shown"),
        [
            (("bucket(8, id)", "days(seen)"), "bucket(8, id), days(seen)"),
            (("days(seen)", "bucket(4, id)"), "days(seen), bucket(4, id)"),
            (("id",), "id"),
            ((), "nothing"),
        ],
    )
    def test_one_that_is_partitioned_otherwise_is_refused(self, bench: Bench, names: tuple[str, ...], shown: str) -> None:
        created(bench.rig, PartitionField(1, 1000, BucketTransform(4), "a"), PartitionField(8, 1001, DayTransform(), "b"))
        with pytest.raises(Refused) as refused:
            partitioned(bench, *names).sink()
        assert f"is partitioned by bucket(4, id), days(seen), and partition_by is {shown}." in refused.value.message
        assert refused.value.remedy == "Set partition_by to what the table has, or name another table."

    def test_a_field_of_another_kind_is_refused(self, bench: Bench) -> None:
        created(bench.rig, PartitionField(1, 1000, VoidTransform(), "gone"))
        with pytest.raises(Refused, match=r"is partitioned by void\(gone\), which this version does not write"):
            partitioned(bench).sink()

    def test_a_decided_batch_waits_until_the_partitions_are_what_they_were(self, bench: Bench) -> None:
        """Its files would else be listed under values of another function."""
        sink = partitioned(bench, "bucket(4, id)").sink()
        rows = bench.rows(range(20))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        changed(bench.rig.table(), "id_bucket", "bucket[8]")
        with pytest.raises(PublishFailed, match=r"is partitioned by bucket\(8, id\), and partition_by is bucket\(4, id\)"):
            sink.publish(shown.publication)
        changed(bench.rig.table(), "id_bucket", "bucket[4]")
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)
        require_values_of_the_library(bench.rig.table())

    @by(TransformedOverwriteRig)
    def test_partitions_are_not_overwritten_beside_files_of_other_buckets(self, bench: Bench) -> None:
        """The field that was replaced has the name of the former one."""
        bench.deliver(partitioned(bench, "bucket(4, id)").sink(), bench.rows(range(40)), batch_id=0)
        changed(bench.rig.table(), "id_bucket", "bucket[8]")
        with pytest.raises(Refused, match="files from before its partitioning was changed, beside write: overwrite_part"):
            partitioned(bench, "bucket(8, id)").sink()

    def test_rows_of_other_buckets_are_still_read_and_counted(self, bench: Bench) -> None:
        bench.deliver(partitioned(bench, "bucket(4, id)").sink(), bench.rows(range(40)), batch_id=0)
        changed(bench.rig.table(), "id_bucket", "bucket[8]")
        bench.deliver(partitioned(bench, "bucket(8, id)").sink(), bench.rows(range(100, 140)), batch_id=1)
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok

    def test_a_column_that_a_former_partitioning_was_made_of_may_be_gone(self, bench: Bench) -> None:
        partitioned(bench).sink()
        with bench.rig.table().update_schema() as columns:
            columns.add_column("extra", LongType())
        with bench.rig.table().update_spec() as update:
            update.add_identity("extra")
        with bench.rig.table().update_spec() as update:
            update.remove_field("extra")
        with bench.rig.table().update_schema(allow_incompatible_changes=True) as columns:
            columns.delete_column("extra")
        for at in range(2):
            bench.deliver(bench.sink(), bench.rows(range(at * 20, at * 20 + 20)), batch_id=at)
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok


def changed(table: Table, name: str, transform: str) -> None:
    """Replace a partition field by another one of that name, as other writers do."""
    source = table.schema().find_column_name(table.spec().fields[0].source_id)
    with table.update_spec() as update:
        update.remove_field(name)
    with table.refresh().update_spec() as update:
        update.add_field(source, parse_transform(transform), name)


class TestMaintenance:
    @by(TransformedMaintainedRig)
    def test_a_compaction_keeps_files_inside_of_a_partition(self, bench: Bench) -> None:
        for at in range(3):
            bench.deliver(bench.sink(), bench.rows(range(at * 60, at * 60 + 60)), batch_id=at)
        files = bench.rig.active()
        assert len({tuple(file.partition) for file in files}) == len(files)
        assert any(local(file).name.startswith("compact-") for file in files)
        require_values_of_the_library(bench.rig.table())
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (("days(wen)",), "partition_by names the column 'wen', but the rows have id, place,"),
            (("days(id)",), "partition_by has 'days(id)', but column 'id' has the type int64, expected a date or timestamp."),
            (("hours(day)",), "has the type date32[day], expected a timestamp."),
            (("truncate(4, seen)",), "expected a whole number, decimal, string or binary."),
            (("bucket(4, amount)",), "has the type double, expected a whole number, decimal, date, timestamp, string or binary."),
            (("bucket(4, flag)",), "has the type bool, expected"),
            (("weeks(seen)",), "partition_by has 'weeks(seen)', expected a column or one of bucket"),
            (("bucket(0, id)",), "expected N from 1 to 2147483647, found 0."),
            (
                ("days(seen)", "months(seen)"),
                "partition_by has 'days(seen)' and 'months(seen)', expected one partition of that kind",
            ),
            (("flag", "flag"), "partition_by has 'flag' and 'flag', expected one"),
        ],
    )
    def test_before_anything_is_written(self, bench: Bench, names: tuple[str, ...], message: str) -> None:
        with pytest.raises(Usage) as refused:
            partitioned(bench, *names).rig.make().require_schema_accepted(pipeline=PIPELINE, schema=SCHEMA)
        assert message in refused.value.message
        assert refused.value.remedy
        assert not bench.rig.warehouse.exists()

    def test_a_column_that_is_named_like_a_term(self, bench: Bench) -> None:
        schema = with_column("days(seen)")
        with pytest.raises(Usage, match=r"'days\(seen\)', which is a column of the rows as well"):
            partitioned(bench, "days(seen)").rig.make().require_schema_accepted(pipeline=PIPELINE, schema=schema)

    def test_a_column_that_is_named_like_a_field(self, bench: Bench) -> None:
        """A new table gives its field another name; one that is there is refused."""
        schema = with_column("id_bucket")
        partitioned(bench, "bucket(4, id)").rig.make().prepare(pipeline=PIPELINE, schema=schema)
        assert [field.name for field in bench.rig.table().spec().fields] == ["id_bucket_"]
        bench.rig.catalog().drop_table(NAME)
        bench.rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)
        with pytest.raises(Refused, match="has a partition named 'id_bucket', as a column of the rows is"):
            bench.rig.make().prepare(pipeline=PIPELINE, schema=schema)


def with_column(name: str) -> str:
    rows: dict[str, Any] = json.loads(SCHEMA)
    return json.dumps({**rows, "fields": [*rows["fields"], {"name": name, "type": "long", "nullable": True, "metadata": {}}]})
