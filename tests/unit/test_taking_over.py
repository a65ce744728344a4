"""`penstock adopt --from`: a query that exists is taken over with its checkpoint and the directory that it filled."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from tests.unit.chained_world import batches
from tests.unit.file_sink_world import Query, Successor
from tests.unit.parquet_target import SCHEMA
from tests.unit.test_chain_backfilled import reader

import penstock
from penstock.checkpoint.file_sink_log import read_file_sink_log
from penstock.checkpoint.files import LocalFiles
from penstock.cli.app import main
from penstock.core import faults
from penstock.core.model import AccountName, AccountReport, Adopted, SinkName, SinkReport
from penstock.errors import BatchGap, CheckpointDamaged, InputLost, PenstockError, Refused, Usage
from penstock.run.assembly import assemble
from penstock.run.operations import verify
from penstock.run.reading import read_table
from penstock.run.removal import accept_removed


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path).run(0, 1, 2, 3)


@pytest.fixture
def pipeline(tmp_path: Path, query: Query) -> Successor:
    return Successor(tmp_path, query)


def verified(pipeline: Successor) -> tuple[SinkReport, AccountReport]:
    """What `verify` finds in the sink, and in its account."""
    report = verify(pipeline.plan).sinks[SinkName("lake")]
    return report, report.accounts[AccountName("all")]


class TestSparksFileSink:
    def test_the_account_begins_with_the_files_of_committed_batches(self, query: Query, pipeline: Successor) -> None:
        query.write(7, "failed")
        before = query.files()
        asked = pipeline.adopt(yes=False)
        (lake,) = asked.sinks
        assert (asked.next_batch_id, asked.refused, asked.replayed) == (4, False, None)
        assert "names 4 files" in lake.known
        assert "No batch has 1 file, place=h%3Aere/part-00000-7-failed.snappy.parquet for one" in lake.known
        assert "the log does not name it" in (lake.trusted or "")
        assert query.files() == before
        assert pipeline.entries() == []

        done = pipeline.adopt()
        assert (done.done, done.next_batch_id) == (True, 4)
        assert query.files() == [name for name in before if "failed" not in name]
        assert not (query.table / "_spark_metadata").exists()
        assert [path.name for path in (pipeline.staging / "left-out").rglob("*.parquet")] == [
            "part-00000-7-failed.snappy.parquet"
        ]
        newest = pipeline.entries()[0].body
        assert isinstance(newest, Adopted)
        assert (newest.query_id, newest.next_batch_id, newest.reason) == ("query", 4, "a test")
        found, account = verified(pipeline)
        assert (found.ok, account.adopted.files, account.adopted.rows, account.found.rows) == (True, 4, 8, 0)

        pipeline.deliver(4, 5)
        found, account = verified(pipeline)
        assert (found.ok, account.adopted.files, account.adopted.rows, account.found.rows) == (True, 4, 8, 2)
        assert len(query.files()) == 6

    def test_the_querys_own_checkpoint_is_only_read(self, query: Query, pipeline: Successor) -> None:
        before = {path: path.read_bytes() for path in query.checkpoint.rglob("*") if path.is_file()}
        pipeline.adopt()
        assert {path: path.read_bytes() for path in query.checkpoint.rglob("*") if path.is_file()} == before

    def test_a_start_without_it_is_refused_and_names_it(self, query: Query, pipeline: Successor) -> None:
        shutil.copytree(query.checkpoint, pipeline.home / "checkpoint")
        with pytest.raises(Refused, match="has the log of Spark's file sink") as refused:
            pipeline.deliver(4)
        assert "penstock adopt FILE --from" in refused.value.remedy

    @pytest.mark.parametrize("damage", ["gone", "longer", "foreign"])
    def test_verify_finds_what_happened_to_a_file_since(self, query: Query, pipeline: Successor, damage: str) -> None:
        pipeline.adopt()
        pipeline.deliver(4)
        path = next(query.table.rglob("part-00000-2-*.parquet"))
        if damage == "gone":
            path.unlink()
        elif damage == "longer":
            path.write_bytes(path.read_bytes() + b"x")
        else:
            shutil.copy(path, path.with_name("part-copy.parquet"))
        found, _ = verified(pipeline)
        expected = {"gone": "is missing: the account was taken over", "longer": "was changed: it has", "foreign": "is foreign"}
        assert len(found.problems) == 1
        assert expected[damage] in found.problems[0].message
        if damage == "gone":
            assert accept_removed(pipeline.plan, sink=None, before=None, forgotten=False, reason="a test", yes=True).done
            assert verified(pipeline)[0].ok
            shutil.copy(next(query.table.rglob("part-00000-1-*.parquet")), path)
            assert "was accepted as removed on purpose" in verified(pipeline)[0].problems[0].message

    def test_a_batch_that_is_in_the_log_and_not_committed(self, query: Query, pipeline: Successor) -> None:
        query.plan(4).note(4, query.write(4))
        assert pipeline.adopt(yes=False).refused
        with pytest.raises(Refused, match="the query ran one batch further than its commit log") as refused:
            pipeline.adopt()
        assert refused.value.remedy.startswith("Start the query once more")
        query.commit(4)  # the remedy: the query recognises the batch
        assert pipeline.adopt().next_batch_id == 5

    def test_a_batch_that_is_planned_and_not_in_the_log_comes_here(self, query: Query, pipeline: Successor) -> None:
        query.plan(4).write(4)
        done = pipeline.adopt()
        assert (done.replayed, done.next_batch_id) == (4, 4)
        assert "part-00000-4-c000.snappy.parquet" not in query.files()
        pipeline.deliver(4)
        assert verify(pipeline.plan).ok

    def test_another_directory_or_checkpoint_than_those_of_the_query(
        self, tmp_path: Path, query: Query, pipeline: Successor
    ) -> None:
        query.log("offsets/4", (query.checkpoint / "offsets/3").read_text())
        query.commit(4)
        with pytest.raises(Refused, match="has batches up to 3 only, but the checkpoint committed batch 4"):
            pipeline.adopt()
        for batch_id in (4, 3, 2):
            (query.checkpoint / f"offsets/{batch_id}").unlink()
            (query.checkpoint / f"commits/{batch_id}").unlink()
        with pytest.raises(Refused, match="has batch 3, but the checkpoint goes on with batch 2"):
            pipeline.adopt()

    def test_a_directory_that_was_moved(self, tmp_path: Path, query: Query) -> None:
        query.table = query.table.rename(tmp_path / "elsewhere")
        with pytest.raises(Refused, match="which is not below it: the directory was moved or copied"):
            Successor(tmp_path, query).adopt()

    def test_a_file_that_the_log_names_is_gone(self, query: Query, pipeline: Successor) -> None:
        next(query.table.rglob("part-00000-1-*.parquet")).unlink()
        with pytest.raises(Refused, match="is not there, and the log of Spark's file sink names it with"):
            pipeline.adopt()

    def test_readers_of_the_table_find_both(self, query: Query, pipeline: Successor) -> None:
        pipeline.adopt()
        pipeline.deliver(4)
        found = read_table(pipeline.plan, "lake", None, None, added=False, counted=False)
        assert sorted(found.arrow().column("id").to_pylist()) == [0, 1, 4, 10, 11, 20, 21, 30, 31]

    def test_a_batch_is_read_with_the_files_before_it(self, query: Query, pipeline: Successor) -> None:
        pipeline.adopt()
        pipeline.deliver(4, 5)
        found = read_table(pipeline.plan, "lake", None, 4, added=False, counted=False)
        assert sorted(found.arrow().column("id").to_pylist()) == [0, 1, 4, 10, 11, 20, 21, 30, 31]
        path = next(query.table.rglob("part-00000-1-*.parquet"))
        shutil.copy(path, path.with_name("part-compacted.parquet"))
        with pytest.raises(Refused, match=r"part-compacted\.parquet tells no batch"):
            read_table(pipeline.plan, "lake", None, 4, added=False, counted=False)

    def test_a_pipeline_that_reads_the_batches_is_told_of_the_files_before_them(self, pipeline: Successor) -> None:
        pipeline.adopt()
        pipeline.deliver(4, 5)
        found = reader(pipeline.plan, "lake")
        with pytest.raises(InputLost, match="was taken over from another query, with 4 files that are in no batch") as lost:
            found.advance(found.begin())
        assert lost.value.remedy.startswith("Begin with the option startingBatch: 4, and load these files")
        later = reader(pipeline.plan, "lake", start=4)  # the remedy
        table = read_table(pipeline.plan, "lake", None, None, added=False, counted=False)
        assert list(batches(later, later.begin())) == [[4, 5]]
        assert len([file for file in table.files if file.batch_id is None]) == 4
        lossy = reader(pipeline.plan, "lake", fails_on_loss=False)
        assert list(batches(lossy, lossy.begin())) == [[4, 5]]

    @pytest.mark.parametrize("partition_by", [[], ["day"]])
    def test_files_that_are_partitioned_otherwise(self, tmp_path: Path, query: Query, partition_by: list[str]) -> None:
        pipeline = Successor(tmp_path, query)
        lake = penstock.Parquet(accounts={"all": query.table}, partition_by=partition_by)
        pipeline.plan = penstock.Delivery("flights", home=pipeline.home, sinks={"lake": lake}).plan
        with pytest.raises(Refused, match=r"are partitioned by place, and partition_by is (nothing|day): no reader"):
            pipeline.adopt()

    def test_rows_of_other_types_are_refused_by_the_first_start(self, query: Query, pipeline: Successor) -> None:
        pipeline.adopt()
        with closing(assemble(pipeline.plan)) as runtime:
            sink = runtime.sinks[0]
            with pytest.raises(Refused, match="Column 'id' is int64 in the files of account 'all'"):
                sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA.replace('"long"', '"string"'))
            sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)

    def test_the_query_runs_again_beside_the_pipeline(self, query: Query, pipeline: Successor) -> None:
        pipeline.adopt()
        pipeline.deliver(4)
        query.plan(4).note(4, query.write(4, "again"))
        with pytest.raises(Refused, match="though Penstock delivers there: another query writes into it") as refused:
            pipeline.deliver(5)
        log = refused.value.remedy.partition("`mv ")[2].partition(" DIRECTORY`")[0]
        shutil.move(log, query.checkpoint)  # the remedy
        pipeline.deliver(5)
        [problem] = verified(pipeline)[0].problems
        assert "part-00000-4-again.snappy.parquet is foreign" in problem.message

    def test_a_deleted_file_is_no_file_of_the_table(self, query: Query, pipeline: Successor) -> None:
        path = next(query.table.rglob("part-00000-1-*.parquet"))
        entry = query.table / "_spark_metadata/3"
        entry.write_text(f"{entry.read_text()}\n{query.line(path, 'delete')}")
        pipeline.adopt()
        assert path.name not in query.files()
        assert verified(pipeline)[1].adopted.files == 3


POINTS = (
    *("adopt.copy", "adopt.files", "adopt.list_write", "adopt.list_place", "adopt.file_move", "adopt.log_move"),
    "adopt.record",
)
UNDECIDED = {("adopt.copy", "error"), ("adopt.record", "lost")}
"""Nothing was done yet, and everything."""


@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("point", POINTS)
def test_the_same_command_finishes_what_was_interrupted(query: Query, pipeline: Successor, point: str, kind: str) -> None:
    query.write(7, "failed")
    faults.arm(f"{point}={kind}")
    try:
        pipeline.adopt()
    except (PenstockError, OSError):
        faults.arm("")
        if (point, kind) not in UNDECIDED:
            with pytest.raises(BatchGap):  # nothing starts in between
                pipeline.start()
    assert pipeline.adopt().done
    pipeline.deliver(4)
    found, account = verified(pipeline)
    assert (found.ok, account.adopted.files, account.found.rows) == (True, 4, 1)
    assert len([entry for entry in pipeline.entries() if isinstance(entry.body, Adopted)]) == 1


@pytest.mark.parametrize("point", ["adopt.list_place", "adopt.log_move", "adopt.record"])
@pytest.mark.parametrize("kind", ["error", "lost"])
def test_the_query_ran_once_more_between_two_tries(query: Query, pipeline: Successor, point: str, kind: str) -> None:
    faults.arm(f"{point}={kind}")
    with pytest.raises(PenstockError):
        pipeline.adopt()
    faults.arm("")
    query.run(4)
    if not (query.table / "_spark_metadata/3").exists():  # the log had moved
        with pytest.raises(Refused, match="the old query ran since") as refused:
            pipeline.adopt()
        source, target = refused.value.remedy.partition("`cp -n ")[2].removesuffix("`").split("/* ")
        shutil.copytree(source, target, dirs_exist_ok=True)
    pipeline.adopt()
    pipeline.deliver(5)
    found, account = verified(pipeline)
    assert (found.ok, account.adopted.files) == (True, 5)


class TestTheLog:
    def test_an_entry_after_the_newest_compacted_one_is_missing(self, query: Query) -> None:
        query.run(4)
        (query.table / "_spark_metadata/3").unlink()
        with pytest.raises(CheckpointDamaged, match="has no entry 3, neither by itself nor compacted"):
            read_file_sink_log(LocalFiles(query.table / "_spark_metadata"))

    @pytest.mark.parametrize("text", ["", "v2", 'v1\n{"path": "file:///a"', "v1\n[]", 'v1\n{"size": 1}'])
    def test_an_entry_that_is_torn_or_of_another_kind(self, query: Query, pipeline: Successor, text: str) -> None:
        (query.table / "_spark_metadata/3").write_text(text)
        with pytest.raises(Refused, match="holds 3, which"):
            pipeline.adopt()

    def test_entries_before_a_compacted_one_are_not_read(self, query: Query) -> None:
        (query.table / "_spark_metadata/0").write_text("")
        found = read_file_sink_log(LocalFiles(query.table / "_spark_metadata"))
        assert found is not None
        assert (found.newest, len(found.sizes)) == (3, 4)


class TestWhatIsRefused:
    def test_a_pipeline_that_delivered_batches(self, query: Query, pipeline: Successor) -> None:
        pipeline.adopt()
        pipeline.deliver(4)
        with pytest.raises(Usage, match="has delivered batches itself"):
            pipeline.adopt()

    def test_no_checkpoint_and_one_without_a_committed_batch(self, tmp_path: Path, query: Query, pipeline: Successor) -> None:
        shutil.rmtree(query.checkpoint)
        with pytest.raises(Usage, match="holds no checkpoint of Spark"):
            pipeline.adopt()
        query.log("metadata", '{"id":"query"}')
        query.plan(0)
        with pytest.raises(Refused, match="has no committed batch"):
            pipeline.adopt()

    def test_a_checkpoint_of_the_pipeline_that_is_another_querys(self, query: Query, pipeline: Successor) -> None:
        shutil.copytree(query.checkpoint, pipeline.home / "checkpoint")
        (pipeline.home / "checkpoint/metadata").write_text('{"id":"another"}')
        with pytest.raises(Refused, match="is not empty, and not of query query"):
            pipeline.adopt()

    def test_a_sink_that_there_is_not(self, pipeline: Successor) -> None:
        with pytest.raises(Usage, match="has no sink 'other' to trust"):
            pipeline.adopt(trusted=("other",))


class TestTrust:
    """Sinks that cannot tell what they have of the query."""

    def plan(self, tmp_path: Path, query: Query, **sinks: Any) -> Successor:
        pipeline = Successor(tmp_path, query)
        pipeline.plan = penstock.Delivery("flights", home=pipeline.home, sinks=sinks).plan
        return pipeline

    def test_a_database_is_trusted_and_a_planned_batch_only_by_name(self, tmp_path: Path, query: Query) -> None:
        url = f"sqlite:///{tmp_path}/orders.db"
        table = penstock.SQLite(url=url, table="orders")
        keyed = penstock.SQLite(url=url, table="keyed", write="upsert", key=["id"])
        pipeline = self.plan(tmp_path, query, table=table, keyed=keyed)
        asked = pipeline.adopt(yes=False)
        assert [sink.trusted for sink in asked.sinks] == ["that it has every row of the batches up to 3 once, or is new."] * 2
        assert not asked.refused
        query.plan(4)
        asked = pipeline.adopt(yes=False)
        assert [sink.refused is not None for sink in asked.sinks] == [True, False]
        with pytest.raises(Refused, match="The query planned batch 4 and did not commit it") as refused:
            pipeline.adopt()
        assert refused.value.remedy.endswith("say so with --trust table.")
        assert pipeline.adopt(trusted=("table",)).next_batch_id == 4

    @pytest.mark.parametrize("version", [3, 4, None])
    def test_a_table_of_sparks_own_delta_sink(self, tmp_path: Path, query: Query, version: int | None) -> None:
        """Its versions are those of the query id."""
        properties = CommitProperties(app_transactions=[] if version is None else [Transaction("query", version)])
        write_deltalake(f"{tmp_path}/delta", pa.table({"id": [1]}), commit_properties=properties)
        pipeline = self.plan(tmp_path, query, table=penstock.Delta(path=tmp_path / "delta", existing_rows="keep"))
        query.plan(4)
        (table,) = pipeline.adopt(yes=False).sinks
        if version == 3:
            assert "up to 3, the last one that the checkpoint committed" in table.known
            assert (table.trusted, table.refused) == (None, None)
            assert pipeline.adopt().done
        else:
            wrong = "has batch 4 of application 'query'" if version else "planned batch 4 and did not commit it"
            assert wrong in (table.refused or "")

    def test_accounts_with_files_and_empty_ones(self, tmp_path: Path, query: Query) -> None:
        (tmp_path / "filled").mkdir()
        shutil.copy(next(query.table.rglob("*.parquet")), tmp_path / "filled")
        accounts = {"filled": tmp_path / "filled", "empty": tmp_path / "empty"}
        route = {"column": "place"}
        refusing = self.plan(tmp_path, query, lake=penstock.Parquet(accounts=accounts, route=route))
        assert "set existing_rows: keep" in (refusing.adopt(yes=False).sinks[0].remedy or "")
        keeping = penstock.Parquet(accounts=accounts, route=route, existing_rows="keep")
        (lake,) = self.plan(tmp_path, query, lake=keeping).adopt(yes=False).sinks
        assert "which `verify` counts and does not compare" in lake.known
        assert "empty is empty: it gets batches from 4 on." in lake.known
        assert lake.trusted == "that it has every row of the batches up to 3 once."


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it printed, in one line."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0), " ".join(capsys.readouterr().out.split())


def test_the_command_line(query: Query, pipeline: Successor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "flights.yaml")
    Path(file).write_text(
        f"""pipeline: flights
home: {pipeline.home}
sources: {{events: {{format: json, path: {tmp_path}/in, schema: "id BIGINT, place STRING, day DATE"}}}}
sinks: {{lake: {{type: parquet, accounts: {{all: "{query.table}"}}, partition_by: [place]}}}}
"""
    )
    query.write(7, "failed")
    origin = ("--from", str(query.checkpoint))
    code, asked = said(capsys, "adopt", file, *origin)
    assert (code, "to be trusted: that the query of this checkpoint filled the directory" in asked) == (0, True)
    assert "Nothing was changed." in asked
    for wrong in (["--trust", "lake"], ["--option", "a=b"]):
        assert said(capsys, "adopt", file, *wrong)[0] == 2
    code, done = said(capsys, "adopt", file, *origin, "--yes", "--reason", "took over", "--json")
    found = json.loads(done)
    assert (code, found["done"], found["next_batch_id"]) == (0, True, 4)
    [lake] = found["sinks"]
    assert lake["files"]["all"]["left_out"] == ["place=h%3Aere/part-00000-7-failed.snappy.parquet"]
    assert "lake: 4 files of 8 rows that it was taken over with, by name and size." in said(capsys, "verify", file)[1]
    verified = json.loads(said(capsys, "verify", file, "--json")[1])
    assert verified["sinks"]["lake"]["accounts"]["all"]["files_adopted"] == 4
    query.plan(4).note(4, query.write(4))
    assert said(capsys, "adopt", file, *origin)[0] == 3
