"""The iceberg sink where the suite of all sinks does not reach: what the library would do, and what others do to a table."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pyiceberg.table
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import LongType, NestedField
from tests.conformance.iceberg_rig import MARKER, NAME, IcebergRig, expired, local

from penstock.core.model import LedgerId, Position
from penstock.errors import Conflict, Failed, LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Usage
from penstock.sink.iceberg import log as iceberg_log
from penstock.sink.iceberg.table_schema import iceberg_schema
from penstock.sink.lake.log import Change
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.statistics import fingerprint
from penstock.testing.conformance import PIPELINE, SCHEMA, Bench, Shown, require_equal
from penstock.testing.conformance.bench import publish
from penstock.testing.conformance.rig import LEDGER_ID


@pytest.fixture
def rig(tmp_path: Path) -> IcebergRig:
    return IcebergRig(tmp_path)


@pytest.fixture
def bench(rig: IcebergRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


def decided(bench: Bench, *, batch_id: int = 0) -> tuple[LakeSink, Shown]:
    sink, rows = bench.sink(), bench.rows(range(batch_id * 1000, batch_id * 1000 + 60))
    assert isinstance(sink, LakeSink)
    return sink, bench.decide((rows, bench.stage(sink, rows, batch_id=batch_id)), batch_id=batch_id)


class TestTheMarkerIsComparedAndSet:
    def test_a_commit_on_a_snapshot_from_before_another_one_fails(self, bench: Bench) -> None:
        """Whoever read the marker first and commits last is refused by the catalog, and adds nothing."""
        sink, shown = decided(bench)
        stale = sink._log.newest()
        again = sink._log.newest()
        assert stale is not None
        assert again is not None
        publish(sink, shown.publication)
        with pytest.raises(Conflict):
            stale.commit(Change(), shown.publication)
        with pytest.raises(Conflict):
            again.commit(Change(), replace(shown.publication, position=Position(9)))
        bench.require_shown(shown)

    def test_a_commit_behind_somebody_elses_is_built_anew(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        sink, shown = decided(bench)
        real, calls = Table._do_commit, []

        def overtaken(self: Table, **given: object) -> None:
            calls.append(given)
            if len(calls) == 1:
                transaction = bench.rig.table().transaction()
                with transaction.update_snapshot().fast_append():
                    pass
                transaction.commit_transaction()
            real(self, **given)  # type: ignore[arg-type]

        monkeypatch.setattr(Table, "_do_commit", overtaken)
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)

    def test_a_commit_that_landed_and_raised_is_not_repeated(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where the answer of a catalog is lost: the marker tells."""
        sink, shown = decided(bench)
        real, calls = Table._do_commit, []

        def landed(self: Table, **given: object) -> None:
            calls.append(given)
            real(self, **given)  # type: ignore[arg-type]
            raise CommitStateUnknownException("502")

        monkeypatch.setattr(Table, "_do_commit", landed)
        assert not sink.publish(shown.publication).already
        assert sink.publish(shown.publication).already
        assert len(calls) == 1
        bench.require_shown(shown)

    def test_a_commit_that_failed_is_unknown_and_made_by_the_next_try(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, shown = decided(bench)

        def failed(*given: object, **named: object) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(Table, "_do_commit", failed)
            with pytest.raises(OutcomeUnknown, match="no space left"):
                sink.publish(shown.publication)
        assert not sink.publish(shown.publication).already
        bench.require_shown(shown)

    def test_a_marker_outlives_its_snapshots(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows([number]), batch_id=number) for number in range(4)]
        bench.rig.table().transaction().set_properties({"other": "7"}).commit_transaction()
        transaction = bench.rig.table().transaction()
        with transaction.update_snapshot().fast_append():
            pass
        transaction.commit_transaction()
        expired(bench.rig)
        assert len(bench.rig.table().snapshots()) == 1
        mark = bench.sink().high_water_mark(sink.accounts[0], pipeline=PIPELINE)
        assert mark is not None
        assert (mark.position, mark.ledger_id, mark.batch_id) == (shown[-1].publication.position, LEDGER_ID, 3)
        assert [bench.sink().publish(one.publication).already for one in (shown[1], shown[-1])] == [True, True]
        shutil.rmtree(bench.rig.root / ".penstock-staging")  # where it is noted, too, whose the table is
        foreign = replace(shown[-1].publication, ledger_id=LedgerId("a7" * 16), position=Position(99))
        with pytest.raises(LedgerMismatch):
            bench.sink().publish(foreign)
        bench.require_shown(*shown)

    def test_a_table_that_is_rolled_back_gets_nothing_twice(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 20)), batch_id=at) for at in (0, 100)]
        first = bench.rig.table().snapshots()[0].snapshot_id
        bench.rig.table().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
        assert bench.sink().publish(shown[1].publication).already
        require_equal(bench.rig.read_back(), shown[0].rows)
        assert 100 in {problem.batch_id for problem in bench.verify(bench.sink()).problems}

    def test_a_marker_that_is_gone_lets_nothing_in_twice(self, bench: Bench) -> None:
        """As long as a snapshot tells that the batch was published."""
        sink, shown = decided(bench)
        publish(sink, shown.publication)
        marker = bench.rig.table().properties[MARKER]
        with bench.rig.table().transaction() as transaction:
            transaction.remove_properties(MARKER)
        with pytest.raises(LedgerMismatch, match="but the marker is gone"):
            bench.sink().publish(shown.publication)
        with bench.rig.table().transaction() as transaction:
            transaction.set_properties({MARKER: marker})
        assert bench.sink().publish(shown.publication).already
        bench.require_shown(shown)

    def test_what_the_catalog_names_is_durable(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each file of the metadata is flushed, and its directory, before the catalog hears of it."""
        synced: set[tuple[str, int]] = set()
        real = os.fsync

        def noted(handle: int) -> None:
            synced.add((os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size))
            real(handle)

        monkeypatch.setattr(os, "fsync", noted)
        sink, shown = decided(bench)
        publish(sink, shown.publication)
        written = {(str(path), path.stat().st_size) for path in (bench.rig.root / "metadata").iterdir()}
        assert len(written) == 4  # metadata of the creation; manifest, list of manifests and metadata of the commit
        assert written <= synced
        assert str(bench.rig.root / "metadata") in {path for path, _ in synced}


class TestFiles:
    def test_files_have_the_numbers_of_the_table_and_bounds_that_hold(self, bench: Bench) -> None:
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(100, 160)), batch_id=0)
        [file] = bench.rig.active()
        schema = bench.rig.table().schema()
        found = pq.ParquetFile(local(file)).schema_arrow
        assert {field.name: int((field.metadata or {}).get(b"PARQUET:field_id", -1)) for field in found} == {
            field.name: field.field_id for field in schema.fields
        }
        number = schema.find_field("id").field_id
        assert (file.lower_bounds[number], file.upper_bounds[number]) == (
            (100).to_bytes(8, "little"),
            (159).to_bytes(8, "little"),
        )
        assert file.record_count == 60
        assert bench.rig.table().scan(row_filter="id = 159").to_arrow().num_rows == 1
        assert bench.rig.table().scan(row_filter="id = 99").to_arrow().num_rows == 0
        assert "float" not in {str(schema.find_type(column)) for column in file.lower_bounds}

    def test_the_number_of_a_column_counts_whatever_its_name(self) -> None:
        assert fingerprint({"a.b": 1}, ["a.b"]) != fingerprint({"a.b": 2}, ["a.b"])
        assert fingerprint({"a": 1, "a.b": 2}, ["a"]) != fingerprint({"a": 1, "a.b": 3}, ["a"])
        assert fingerprint({"a": 1, "ab": 2}, ["a"]) == fingerprint({"a": 1}, ["a"])

    def test_a_table_that_numbers_its_columns_anew_gets_no_file_of_before(self, bench: Bench) -> None:
        """Readers look columns up by number: they would find null."""
        sink, shown = decided(bench)
        before = bench.rig.renumber("name")
        with pytest.raises(PublishFailed, match="numbers its columns in another way") as refused:
            sink.publish(shown.publication)
        assert list(bench.rig.read_back()) == []
        assert "by registering its metadata of then in the catalog" in (refused.value.remedy or "")
        bench.rig.register(before)
        assert not bench.sink().publish(shown.publication).already
        bench.require_shown(shown)

    def test_verify_sees_that_readers_find_values_no_more(self, bench: Bench) -> None:
        """The column was removed and added again: it has another number than in the files."""
        bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
        assert bench.verify(bench.sink()).ok
        bench.rig.renumber("name")
        assert all(row["name"] is None for row in bench.rig.read_back())
        assert not bench.verify(bench.rig.make_hashing()).ok

    def test_columns_at_any_depth_have_a_type(self) -> None:
        kinds = {
            "texts": {"type": "array", "elementType": "string", "containsNull": True},
            "counts": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
            "point": {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]},
        }
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
        schema = json.loads(SCHEMA)
        schema["fields"] += fields
        parsed = Schema.model_validate_json(iceberg_schema(json.dumps(schema)))
        assert str(parsed.find_type("texts")) == "list<string>"
        assert str(parsed.find_type("counts.value")) == "int"
        assert str(parsed.find_type("point.x")) == "long"


class TestStarts:
    def test_a_table_is_created_so_that_commits_stay_cheap(self, bench: Bench) -> None:
        bench.sink()
        table = bench.rig.table()
        assert table.format_version == 2
        assert table.properties["commit.manifest-merge.enabled"] == "true"
        assert table.properties["write.metadata.delete-after-commit.enabled"] == "true"
        assert not any(field.required for field in table.schema().fields)

    def test_a_commit_copies_the_tables_metadata_a_few_times_only(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """It has every snapshot; the library makes a copy at each look that a transaction takes."""
        sink, shown = decided(bench)
        made, copied = list[object](), pyiceberg.table.update_table_metadata

        def counted(*arguments: object) -> object:
            made.append(copied(*arguments))
            return made[-1]

        monkeypatch.setattr(pyiceberg.table, "update_table_metadata", counted)
        publish(sink, shown.publication)
        assert len(made) <= 2

    def test_check_creates_nothing(self, rig: IcebergRig) -> None:
        rig.warehouse.mkdir()
        before = sorted(rig.directory.rglob("*"))
        assert [finding.message for finding in rig.make().check() if "will be created" in finding.message]
        assert [path for path in sorted(rig.directory.rglob("*")) if path.suffix == ".db"] == []
        assert before == [rig.warehouse]

    def test_a_table_with_rows_of_others(self, bench: Bench) -> None:
        rig = bench.rig
        bench.deliver(bench.sink(), bench.rows(range(9)), batch_id=0)
        table = rig.table()
        with table.transaction() as transaction:
            transaction.remove_properties(*[key for key in table.properties if key.startswith("penstock.")])
        shutil.rmtree(rig.root / ".penstock-staging")
        with pytest.raises(Refused, match="holds rows that sink 'lake'"):
            rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"properties": {"format-version": "1"}}, "is of format version 1"),
            ({"location": "elsewhere"}, "lies at file://.*/elsewhere, not at"),
            (
                {"partition_spec": PartitionSpec(PartitionField(1, 1000, VoidTransform(), "gone"))},
                r"is partitioned by void",
            ),
        ],
        ids=["format", "location", "void"],
    )
    def test_tables_that_are_refused(self, rig: IcebergRig, given: dict[str, object], message: str) -> None:
        where = (
            {"location": f"file://{rig.directory}/{given['location']}"}
            if "location" in given
            else {"location": f"file://{rig.root}"}
        )
        catalog = rig.catalog()
        catalog.create_namespace("shop")
        columns = Schema.model_validate_json(iceberg_schema(SCHEMA))
        catalog.create_table(NAME, columns, **{**given, **where})  # type: ignore[arg-type]
        with pytest.raises(Refused, match=message):
            rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)
        assert any(not finding.ok for finding in rig.make().check())

    def test_a_table_with_other_columns(self, rig: IcebergRig) -> None:
        catalog = rig.catalog()
        catalog.create_namespace("shop")
        catalog.create_table(
            NAME, Schema(NestedField(1, "id", LongType())), location=f"file://{rig.root}", properties={"format-version": "2"}
        )
        with pytest.raises(Refused, match="has no column 'place', which the rows have"):
            rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)

    @pytest.mark.parametrize("kind", ["void", "time(6)", "interval day", "varchar(3)"])
    def test_types_that_are_refused(self, kind: str) -> None:
        field = {"name": "odd", "type": kind, "nullable": True, "metadata": {}}
        with pytest.raises(Usage, match="'odd' has the type"):
            iceberg_schema(json.dumps({"type": "struct", "fields": [field]}))

    def test_a_library_without_the_commit_of_one_attempt(self, rig: IcebergRig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(Table, "_do_commit")
        with pytest.raises(Failed, match="has no _do_commit"):
            iceberg_log.require_known_library()
