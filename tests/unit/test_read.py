"""`penstock.read` and `penstock files`: whole batches, whatever was published where, by whom, and after which act."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.lake import ROWS, Lake
from tests.unit.parquet_target import ARROW, QUERY, SCHEMA

import penstock
from penstock.cli.app import main
from penstock.commit.publication import decided_entry
from penstock.core.model import Adopted, BatchId, Entry, PipelineName, Position, QueryId, SinkName
from penstock.errors import BatchForgotten, Failed, PublishFailed, Refused, Retryable, Usage
from penstock.ledger.open import open_ledger
from penstock.observe.status import CheckpointPosition, status
from penstock.run.assembly import assemble, ledger_of
from penstock.run.reading import Reading
from penstock.run.runtime import coordinator_of, opened_by_this_process, prepare

OTHER_QUERY = "5f0c9f0e-0000-4000-8000-000000000002"


@pytest.fixture(params=["sqlite:///ledger.db", "./ledger"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, ledger=request.param)


def ids(found: Reading) -> list[int]:
    return sorted(found.arrow().column("id").to_pylist())


def stuck_in_b(lake: Lake, number: int) -> Path:
    """Batch `number` is decided and shown in account a, but not in b."""
    obstacle = lake.obstacle("b", number)
    with pytest.raises(PublishFailed):
        lake.run([number])
    assert any(f"-b{number}-" in path.name for path in lake.listed("a"))
    assert not any(f"-b{number}-" in path.name for path in lake.listed("b"))
    return obstacle


def test_verify_tells_a_batch_that_an_account_does_not_show_yet_from_one_that_was_harmed(lake: Lake) -> None:
    lake.run([0, 1])
    assert lake.pipeline.verify().unsettled is None
    lake.listed("b")[-1].unlink()
    harmed = lake.pipeline.verify()
    assert (harmed.ok, harmed.unsettled) == (False, None)
    stuck_in_b(lake, 2)
    assert lake.pipeline.verify().unsettled == 2


def test_verify_leaves_out_a_batch_that_an_account_does_not_show_yet(lake: Lake) -> None:
    lake.run([0, 1])
    stuck_in_b(lake, 2).unlink()
    found = lake.pipeline.verify()
    assert (found.ok, found.unsettled) == (True, 2)
    report = found.sinks[SinkName("lake")]
    assert report.as_of is not None
    assert found.batches[report.as_of] == 1
    assert {account: one.found.rows for account, one in report.accounts.items()} == {"a": 6, "b": 4}
    lake.listed("a")[-1].unlink()  # of batch 2, which account a shows
    assert [problem.batch_id for problem in lake.pipeline.verify().sinks[SinkName("lake")].problems] == [2]


def test_status_beside_a_driver_that_moves_on_between_two_looks_is_no_conflict(lake: Lake) -> None:
    """The checkpoint is read after one look at the ledger and before another one."""
    lake.run([0, 1])
    with closing(ledger_of(lake.pipeline.plan)) as ledger:
        before = ledger.tail()
        old = CheckpointPosition(query_id=QueryId(QUERY), planned=BatchId(2), committed=BatchId(1))
        lake.run([2, 3, 4])
        seen = partial(status, pipeline="shop", ledger=ledger)
        assert seen(checkpoint=old, before=before).health == "ok"
        assert seen(checkpoint=old, before=ledger.tail()).health == "conflict"
        older = replace(old, planned=BatchId(0), committed=None)
        assert seen(checkpoint=older, before=before).health == "conflict"


def test_verify_after_an_adoption_says_since_when_every_record_is_there_once(lake: Lake) -> None:
    lake.run([0, 1])
    assert lake.pipeline.verify().adopted_at is None
    assert lake.pipeline.adopt(reason="a test", yes=True).done
    lake.run([0, 1], query=OTHER_QUERY)
    found = lake.pipeline.verify()
    assert found.ok
    assert sorted(lake.pipeline.read().arrow().column("id").to_pylist()) == sorted(lake.ids(2) * 2)
    assert found.adopted_at is not None


def test_a_batch_that_one_account_does_not_show_yet_is_seen_in_none(lake: Lake) -> None:
    lake.run([0, 1])
    obstacle = stuck_in_b(lake, 2)
    found = lake.pipeline.read()
    assert found.as_of is not None
    assert found.as_of.batch_id == 1
    assert ids(found) == lake.ids(2)
    assert ids(penstock.read(lake.file, accounts=["b"])) == [row for row in lake.ids(2) if row % 2]
    assert ids(penstock.read(lake.file, "lake", ["a"])) == [row for row in lake.ids(3) if not row % 2]
    with pytest.raises(Retryable, match=r"Batch 2 is not published .* yet: the newest that is published everywhere is 1"):
        lake.pipeline.read(batch=2)
    obstacle.unlink()
    lake.pipeline.recover()
    assert ids(lake.pipeline.read()) == lake.ids(3)


def test_the_newest_batch_is_seen_before_the_ledger_notes_that_it_is_published(lake: Lake) -> None:
    lake.run([0])
    assert lake.pipeline.status().unsettled == 0
    assert ids(lake.pipeline.read()) == lake.ids(1)


def test_the_table_as_of_every_batch_is_what_was_decided_until_then(lake: Lake) -> None:
    """Delivered, replayed, opened again, stuck and recovered: names of files tell the order in which batches were decided."""
    lake.run([0, 1, 1])
    lake.run([1, 2])
    lake.run([])
    stuck_in_b(lake, 3).unlink()
    lake.run([3, 4, 5])
    for number in range(6):
        found = lake.pipeline.read(batch=number)
        assert found.as_of is not None
        assert (found.as_of.batch_id, found.as_of.query_id) == (number, QUERY)
        assert ids(found) == lake.ids(number + 1)
        assert ids(lake.pipeline.read(batch=number, added=True)) == lake.ids(number + 1)[-ROWS:]


def test_batches_of_an_adopted_checkpoint_come_after_all_before_it(lake: Lake) -> None:
    lake.run([0, 1, 2])
    assert lake.pipeline.adopt(reason="a test", yes=True).done
    assert ids(lake.pipeline.read()) == lake.ids(3)
    with pytest.raises(Retryable, match="Batch 2 is not published in every account yet: none is"):
        lake.pipeline.read(batch=2)
    lake.run([3, 4], query=OTHER_QUERY, first=3)
    assert [ids(lake.pipeline.read(batch=number)) for number in (0, 1)] == [lake.ids(4), lake.ids(5)]
    assert ids(lake.pipeline.read()) == lake.ids(5)
    with pytest.raises(Retryable, match="everywhere is 1"):
        lake.pipeline.read(batch=2)


def test_a_batch_of_before_an_accepted_gap_is_not_told_to_come(lake: Lake) -> None:
    """The same query goes on, and batches before the adoption are published long since."""
    lake.run([0, 1, 2])
    with closing(assemble(lake.pipeline.plan)) as runtime:
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        coordinator.adopt(Adopted(query_id=QueryId(QUERY), next_batch_id=BatchId(3), reason="a gap", operator="penstock"))
    assert ids(lake.pipeline.read()) == lake.ids(3)
    with pytest.raises(BatchForgotten, match="files are of batch 1: it is from before the last adoption"):
        lake.pipeline.read(batch=1)
    with pytest.raises(Retryable, match="Batch 3 is not published in every account yet: none is since the last adoption"):
        lake.pipeline.read(batch=3)


def test_a_batch_that_the_ledger_forgot_is_refused(lake: Lake) -> None:
    lake.run([0, 1, 2])
    ledger = open_ledger(lake.pipeline.settings.ledger.url, pipeline=PipelineName("shop"))
    ledger.prune(below=Position(3))
    ledger.close()
    with pytest.raises(BatchForgotten, match="files are of batch 0"):
        lake.pipeline.read(batch=0)
    assert ids(lake.pipeline.read(batch=1)) == lake.ids(2)


def test_a_batch_of_a_checkpoint_that_is_adopted_meanwhile_is_not_taken_for_the_one_asked_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not published everywhere, and another query's."""
    lake.run([0, 1, 2])

    def late(*asked: Any) -> Entry | None:
        assert lake.pipeline.adopt(reason="a test", yes=True).done
        lake.obstacle("b", 3)
        with pytest.raises(PublishFailed):
            lake.run([3], query=OTHER_QUERY, first=3)
        return decided_entry(*asked)

    monkeypatch.setattr("penstock.commit.as_of.decided_entry", late)
    with pytest.raises(BatchForgotten, match="files are of batch 0"):
        lake.pipeline.read(batch=0)


def test_adopting_is_refused_between_two_batches_of_a_run(lake: Lake) -> None:
    """Else a later batch would have a lower number in the same generation, for readers and for the sweep."""
    with closing(assemble(lake.pipeline.plan)) as runtime:
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        lake.deliver(runtime, coordinator, 0, query=QUERY)
        with pytest.raises(Failed, match="Open the pipeline again"):
            coordinator.adopt(Adopted(query_id=None, next_batch_id=BatchId(0), reason="a test", operator="a test"))


def test_nothing_is_published_yet(lake: Lake) -> None:
    found = lake.pipeline.read()
    assert (found.as_of, found.files) == (None, ())
    with pytest.raises(Retryable, match="Nothing is published in sink 'lake' yet"):
        found.arrow()
    lake.replace("type: parquet", "type: parquet, existing_rows: keep")  # the obstacle is there before the account has an owner
    stuck_in_b(lake, 0)
    assert lake.pipeline.read().files == ()


def test_rows_of_files_come_from_the_manifests(lake: Lake) -> None:
    lake.run([0, 1])
    counted, plain = lake.pipeline.read(counted=True), lake.pipeline.read()
    assert [file.rows for file in counted.files] == [pq.ParquetFile(file.url).metadata.num_rows for file in counted.files]
    assert {file.rows for file in plain.files} == {None}
    assert [file.url for file in plain.files] == [str(path) for account in ("a", "b") for path in lake.listed(account)]
    assert [file.size_bytes for file in plain.files] == [Path(file.url).stat().st_size for file in plain.files]


def test_partition_columns_have_the_type_and_the_value_that_was_delivered(lake: Lake) -> None:
    lake.run([7], first=7)
    rows = lake.pipeline.read().arrow()
    assert rows.schema.types == ARROW.types
    assert set(rows.column("place").to_pylist()) == {"007/x y"}


def test_columns_come_and_go(lake: Lake) -> None:
    lake.run([0])
    fields = json.loads(SCHEMA)["fields"]
    later = json.dumps({"type": "struct", "fields": [fields[1], fields[0], {**fields[2], "name": "when"}]})
    with closing(assemble(lake.pipeline.plan)) as runtime:
        found = runtime.sinks[0].tables()["a"]  # type: ignore[attr-defined]
        rows = found.read(lake.pipeline.read(accounts=["a"]).files[0], schema=later)
    assert rows.schema.types == [pa.string(), pa.int64(), pa.date32()]
    assert rows.to_pylist() == [{"place": "000/x y", "id": row, "when": None} for row in (0, 2)]


def test_files_that_maintenance_wrote_belong_to_the_newest_batch_only(lake: Lake) -> None:
    lake.run([0, 1])
    (first, second) = lake.listed("a")
    first.rename(second.with_name("compacted.parquet"))
    found = lake.pipeline.read()
    assert [file.batch_id for file in found.files if file.account == "a"] == [None, 1]
    assert ids(lake.pipeline.read(batch=1)) == ids(found)
    with pytest.raises(Refused, match=r"compacted\.parquet tells no batch"):
        lake.pipeline.read(batch=0)
    assert [file.url for file in lake.pipeline.read(accounts=["a"], batch=0, added=True).files] == [str(first)]
    with pytest.raises(Failed, match=r"cannot be read: .*No such file"):
        lake.pipeline.read(batch=0, added=True).arrow()


def test_files_of_another_pipeline_below_the_same_root_are_none_of_the_table(lake: Lake) -> None:
    lake.run([0, 1])
    found = lake.pipeline.read()
    newest = lake.listed("a")[-1]
    stem, dot, suffixes = newest.name.partition(".")
    shutil.copyfile(newest, newest.with_name(f"{stem.rpartition('-')[0]}-0badc0de{dot}{suffixes}"))
    assert lake.pipeline.read() == found
    assert ids(lake.pipeline.read(batch=1)) == lake.ids(2)


def test_files_of_before_names_told_an_owner_are_of_the_table(lake: Lake) -> None:
    """As an earlier version of Penstock left them."""
    lake.run([0, 1])
    for path in [*lake.listed("a"), *lake.listed("b")]:
        path.rename(path.with_name(re.sub(r"-[0-9a-f]{8}(?=\.)", "", path.name)))
    lake.run([2])
    assert ids(lake.pipeline.read()) == lake.ids(3)
    assert ids(lake.pipeline.read(batch=0)) == lake.ids(1)


def test_an_account_that_is_not_mounted_is_not_taken_for_empty(lake: Lake) -> None:
    lake.run([0])
    staging = lake.directory / ".penstock-staging"
    shutil.copytree(staging, lake.directory / "older")
    lake.run([1, 2])
    for account in ("a", "b"):
        shutil.rmtree(staging / account)
        with pytest.raises(Refused, match=f"Account '{account}' of sink 'lake' shows no trace of the 4 rows"):
            lake.pipeline.read(accounts=[account])
        shutil.copytree(lake.directory / "older" / account, staging / account)
        with pytest.raises(Refused, match="an older copy is in its place"):
            lake.pipeline.read(accounts=[account], batch=0)


def test_a_place_that_cannot_be_listed_is_not_taken_for_empty(lake: Lake) -> None:
    lake.run([0])
    shutil.rmtree(lake.directory / "a")
    (lake.directory / "a").touch()
    with pytest.raises(Failed, match="a cannot be listed: "):
        lake.pipeline.read()


def test_a_token_in_a_directory_is_not_taken_for_the_file_s(lake: Lake) -> None:
    lake.run([0, 1])
    old = lake.listed("a")[1]
    directory = lake.directory / "a" / f"place={old.name.split('.')[0].replace('-b1-', '-b9-')}"
    directory.mkdir()
    old.rename(directory / old.name)
    assert [file.batch_id for file in lake.pipeline.read(accounts=["a"]).files] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sink": "warehouse"}, "The pipeline has no sink 'warehouse'."),
        ({"accounts": ["c"]}, "The sink has no account 'c'."),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(Usage, match=message):
        Lake(tmp_path).pipeline.read(**arguments)  # type: ignore[arg-type]


# --- the command


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code, capsys.readouterr().out


def test_files_prints_one_path_a_line(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.run([0, 1])
    code, out = said(capsys, "files", str(lake.file))
    assert (code, out.splitlines()) == (0, [str(path) for account in ("a", "b") for path in lake.listed(account)])
    _, out = said(capsys, "files", str(lake.file), "--account", "b", "--batch", "1", "--added", "--sink", "lake")
    assert out.splitlines() == [str(lake.listed("b")[1])]


def test_files_as_json(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = said(capsys, "files", str(lake.file), "--json")
    assert json.loads(out) == {"pipeline": "shop", "sink": "lake", "as_of": None, "files": []}
    lake.run([0])
    _, out = said(capsys, "files", str(lake.file), "--json", "--account", "a")
    path = lake.listed("a")[0]
    assert json.loads(out) == {
        "pipeline": "shop",
        "sink": "lake",
        "as_of": {"position": 2, "generation": 1, "batch_id": 0, "query_id": QUERY},
        "files": [
            {
                "sink": "lake",
                "account": "a",
                "url": str(path),
                "name": f"{path.parent.name}/{path.name}",
                "rows": ROWS // 2,
                "size_bytes": path.stat().st_size,
                "batch_id": 0,
                "generation": 1,
            }
        ],
    }
    code, out = said(capsys, "files", str(lake.file), "--json", "--batch", "5")
    assert (code, json.loads(out)["error"]["kind"]) == (75, "Retryable")


def test_files_needs_neither_spark_nor_java(lake: Lake) -> None:
    lake.run([0])
    code = f"""
import sys
from penstock.cli.app import main
from penstock.commit.publication import decided_entry
try:
    main(["files", {str(lake.file)!r}])
except SystemExit as ended:
    assert not ended.code
import penstock
assert penstock.read({str(lake.file)!r}).arrow().num_rows == {ROWS}
sys.exit("pyspark" in sys.modules)
"""
    environment = {**os.environ, "JAVA_HOME": "/none"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
