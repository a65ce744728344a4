"""Tables that another program filled by `foreachBatch`, with the `txnAppId` and `txnVersion` of Delta, and its checkpoint."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from tests.conformance.delta_rig import DeltaRig, NewestRig, OverlappingRig, ReplaceRig

import penstock
from penstock.core.model import Publication
from penstock.errors import Refused, Usage
from penstock.run.assembly import DeliveryPlan
from penstock.run.operations import adopt
from penstock.sink.delta.log import Snapshot
from penstock.sink.lake.log import Change
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import Bench, Row, require_equal
from penstock.testing.conformance.bench import publish

JOB = "orders-job"


def write(table: Path, ids: list[int], *, version: int, application: str = JOB) -> None:
    """As the program does: a batch, with its number as the version."""
    properties = CommitProperties(app_transactions=[Transaction(application, version)])
    write_deltalake(str(table), pa.table({"id": ids}), mode="append", commit_properties=properties)


class Job:
    """A program with its table and its checkpoint, and the pipeline that takes over from it."""

    def __init__(self, directory: Path, *, committed: int, planned: int) -> None:
        self.table = directory / "table"
        sinks = {"table": penstock.Delta(path=self.table, existing_rows="keep")}
        self.plan: DeliveryPlan = penstock.Delivery("orders", home=directory / "home", sinks=sinks).plan
        self.checkpoint = Path(self.plan.spark_checkpoint)
        self._log("metadata", '{"id":"5f0c9f0e-0000-4000-8000-000000000001"}')
        for number in range(planned + 1):
            self._log(f"offsets/{number}", f'v1\n{{}}\n{{"t":{{"0":{number}}}}}')
        for number in range(committed + 1):
            self._log(f"commits/{number}", "v1\n{}")

    def _log(self, name: str, text: str) -> None:
        (self.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / name).write_text(text)


class TestAdopting:
    def test_all_that_was_committed_is_in_the_table(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        write(job.table, [1, 2], version=4)
        said = adopt(job.plan, reason="", yes=False, txn_app_id=JOB)
        assert (said.needed, said.done, said.next_batch_id) == (True, False, 5)
        assert said.consequences[1].endswith(
            "has every batch of application 'orders-job' up to 4, the last one that the checkpoint committed: nothing comes "
            "twice, and nothing is lost."
        )
        assert not any("TWICE" in line or "LOST" in line for line in said.consequences)
        assert adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB).done

    def test_a_batch_that_was_planned_and_not_written_is_the_next_one(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=5)
        write(job.table, [1, 2], version=4)
        assert adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB).next_batch_id == 5

    def test_a_batch_that_was_written_and_not_committed_would_come_twice(self, tmp_path: Path) -> None:
        """The program died between Delta's commit and Spark's."""
        job = Job(tmp_path, committed=4, planned=5)
        write(job.table, [1, 2], version=5)
        with pytest.raises(Refused, match="the checkpoint has no commits/5: Spark would run that batch again") as refused:
            adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB)
        assert refused.value.remedy.startswith("Start the program once more")
        job._log("commits/5", "v1\n{}")  # the remedy
        assert adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB).next_batch_id == 6

    def test_an_older_copy_of_the_checkpoint(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        write(job.table, [1, 2], version=7)
        with pytest.raises(Refused, match="has batch 7 of application 'orders-job', but the checkpoint goes on with batch 5"):
            adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB)

    def test_the_job_may_go_on_after_an_adoption_until_the_first_batch_here(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        write(job.table, [1, 2], version=4)
        assert adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB).next_batch_id == 5
        job._log("offsets/5", 'v1\n{}\n{"t":{"0":5}}')
        write(job.table, [3], version=5)
        with pytest.raises(Refused, match="has no commits/5"):  # though the checkpoint continues the ledger
            adopt(job.plan, reason="", yes=False, txn_app_id=JOB)
        job._log("commits/5", "v1\n{}")
        assert adopt(job.plan, reason="a test", yes=True, txn_app_id=JOB).next_batch_id == 6

    def test_what_was_adopted_is_not_to_be_adopted_again(self, tmp_path: Path) -> None:
        """The ledger holds no decision of the job's last batch, and needs none."""
        job = Job(tmp_path, committed=4, planned=4)
        assert adopt(job.plan, reason="a test", yes=True).done
        said = adopt(job.plan, reason="", yes=False)
        assert (said.needed, said.next_batch_id) == (False, 5)
        assert said.consequences == ("The checkpoint continues the ledger: there is nothing to adopt.",)

    @pytest.mark.parametrize("planned", [-1, 0])
    def test_the_first_batch(self, tmp_path: Path, planned: int) -> None:
        """To the ledger the checkpoint is new."""
        job = Job(tmp_path, committed=-1, planned=planned)
        assert "has no batch of application" in adopt(job.plan, reason="", yes=False, txn_app_id=JOB).consequences[1]
        write(job.table, [1, 2], version=0)
        with pytest.raises(Refused, match="would be there twice" if planned else "has no commits/0"):
            adopt(job.plan, reason="", yes=False, txn_app_id=JOB)

    def test_batches_that_the_table_lacks(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        write(job.table, [1, 2], version=2)
        said = adopt(job.plan, reason="", yes=False, txn_app_id=JOB).consequences
        assert "up to 2 only, and the checkpoint goes on with batch 5" in said[1]
        assert said[1].endswith("their records are LOST.")

    @pytest.mark.parametrize("is_there", [False, True])
    def test_a_table_without_that_application(self, tmp_path: Path, *, is_there: bool) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        if is_there:
            write(job.table, [1], version=4, application="another")
        with pytest.raises(Refused, match="The table of sink 'table' has no version of application 'orders-job'"):
            adopt(job.plan, reason="", yes=False, txn_app_id=JOB)

    def test_sinks_whose_tables_keep_no_versions(self, tmp_path: Path) -> None:
        job = Job(tmp_path, committed=4, planned=4)
        lake = penstock.Parquet(accounts={"only": tmp_path / "lake"})
        other = penstock.Delivery("orders", home=tmp_path / "home", sinks={"lake": lake}).plan
        with pytest.raises(Usage, match="no sink fills a Delta table"):
            adopt(other, reason="", yes=False, txn_app_id=JOB)
        both = {"lake": lake, "table": penstock.Delta(path=job.table)}
        write(job.table, [1], version=4)
        said = adopt(penstock.Delivery("orders", home=tmp_path / "home", sinks=both).plan, reason="", yes=False, txn_app_id=JOB)
        assert "Sink 'lake' has no versions of other programs" in said.consequences[1]
        assert "nothing is lost" in said.consequences[2]


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(request.param(tmp_path))
    bench.rig.keeps_rows = True
    yield bench
    bench.close()


def by(*rigs: type[DeltaRig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", rigs, indirect=True, ids=[rig.__name__ for rig in rigs])


def nullable(schema: str) -> "pa.Schema":
    return pa.schema([field.with_nullable(True) for field in arrow_schema(schema)])  # noqa: FBT003 - pyarrow's


def filled(bench: Bench, ids: range) -> list[Row]:
    """The rows that the program wrote."""
    rows = bench.rows(ids)
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=nullable(bench.rig.schema))
    write_deltalake(str(bench.rig.root), table, mode="append")
    return rows


class TestKeepingRows:
    @by(DeltaRig)
    def test_rows_that_were_there_are_counted_with_the_first_batch(self, bench: Bench) -> None:
        there = [*filled(bench, range(20)), *filled(bench, range(20, 30))]
        assert bench.verify(bench.sink()).ok
        for batch_id in range(3):
            shown = bench.deliver(bench.sink(), bench.rows(range(100 * batch_id + 100, 100 * batch_id + 120)), batch_id=batch_id)
            there += shown.rows
            assert bench.sink().publish(shown.publication).already
            require_equal(bench.rig.read_back(), there)
            assert bench.verify(bench.sink()).ok
        filled(bench, range(7000, 7001))
        assert any("1 rows more" in problem.message for problem in bench.verify(bench.sink()).problems)
        DeltaTable(str(bench.rig.root)).delete("id IN (1, 2, 7000)")
        assert any("lacks 2 of the rows" in problem.message for problem in bench.verify(bench.sink()).problems)

    @by(DeltaRig)
    def test_rows_that_come_before_the_first_commit_are_counted(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """The job may still be at work: what it adds while the rows are counted is counted, too."""
        there, sink = filled(bench, range(20)), bench.sink()
        rows = bench.rows(range(100, 120))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        real, late = Snapshot.commit, iter([range(20, 25)])

        def overtaken(self: Snapshot, change: Change, publication: Publication) -> int:
            for ids in late:
                there.extend(filled(bench, ids))
            return real(self, change, publication)

        monkeypatch.setattr(Snapshot, "commit", overtaken)
        publish(sink, shown.publication)
        require_equal(bench.rig.read_back(), [*there, *rows])
        assert bench.verify(bench.sink()).ok

    @by(OverlappingRig)
    def test_rows_that_were_there_are_replaced_by_key(self, bench: Bench) -> None:
        there = filled(bench, range(20))
        shown = bench.deliver(bench.sink(), bench.rows(range(1000, 1010)), batch_id=0)
        require_equal(bench.rig.read_back(), list(bench.rig.settle([there, shown.rows])))
        assert bench.verify(bench.sink()).ok

    @by(NewestRig)
    def test_rows_of_before_the_column_of_the_sequence_came_are_older(self, bench: Bench) -> None:
        """Their files lack it."""
        rows = bench.rows([1, 3])
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=nullable(bench.rig.schema))
        write_deltalake(str(bench.rig.root), table.drop_columns(["number"]), mode="append")
        added = [field for field in Schema.from_arrow(table.schema).fields if field.name == "number"]
        DeltaTable(str(bench.rig.root)).alter.add_columns(added)
        for batch_id, number in enumerate((5, 4)):
            bench.deliver(bench.sink(), [{**rows[0], "number": number}], batch_id=batch_id)
            assert {row["id"]: row["number"] for row in bench.rig.read_back()} == {1: 5, 3: None}
            assert bench.verify(bench.sink()).ok

    @by(ReplaceRig)
    def test_rows_that_were_there_are_replaced_as_a_whole(self, bench: Bench) -> None:
        filled(bench, range(20))
        shown = bench.deliver(bench.sink(), bench.rows(range(1000, 1010)), batch_id=0)
        require_equal(bench.rig.read_back(), shown.rows)
        assert bench.verify(bench.sink()).ok

    @by(DeltaRig)
    def test_a_batch_keeps_what_it_was_decided_to_keep(self, bench: Bench) -> None:
        there = filled(bench, range(20))
        rows = bench.rows(range(100, 120))
        shown = bench.decide((rows, bench.stage(bench.sink(), rows, batch_id=0)), batch_id=0)
        bench.rig.keeps_rows = False
        publish(bench.rig.make(), shown.publication)
        require_equal(bench.rig.read_back(), [*there, *rows])
        assert bench.verify(bench.sink()).ok

    @by(DeltaRig)
    def test_rows_of_others_are_refused_unless_they_are_to_be_kept(self, bench: Bench) -> None:
        filled(bench, range(20))
        bench.rig.keeps_rows = False
        with pytest.raises(Refused, match="did not deliver") as refused:
            bench.sink()
        assert "set existing_rows: keep" in refused.value.remedy


def test_a_job_that_did_not_write_into_delta_alone(tmp_path: Path) -> None:
    """Which batch comes next is said once, and of a batch that the job was killed in, that its rows may be there."""
    sinks = {"lake": penstock.Parquet(accounts={"all": tmp_path / "lake"}, existing_rows="keep")}
    job = Job(tmp_path, committed=4, planned=4)
    plan = penstock.Delivery("orders", home=tmp_path / "home", sinks=sinks).plan
    said = " ".join(adopt(plan, reason="", yes=False).consequences)
    assert "goes on with batch 5: batches before it are taken as delivered" in said
    assert "goes on with batch 4" not in said
    assert "TWICE" not in said
    assert f"`penstock checkpoint inspect {job.checkpoint}`" in said
    Job(tmp_path, committed=4, planned=5)
    said = " ".join(adopt(plan, reason="", yes=False).consequences)
    assert "Batch 5 is planned and not committed" in said
    assert "TWICE" in said
    assert f"`penstock checkpoint explain {job.checkpoint}` names the files or offsets of the batch" in said
