"""`verify`: every way to damage an account is named with account, file and batch; what maintenance may do is not."""

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet_target import ARROW, LEDGER_ID, SCHEMA, Target, decide, expected, rows, stage

from penstock.core import faults
from penstock.core.model import AccountName, Generation, Problem, Publication, SinkReport
from penstock.errors import PublishFailed, Refused
from penstock.protocols import SCHEMA_KEY
from penstock.sink.parquet import ParquetSink
from penstock.testing.conformance.bench import DecidedBatches


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path, "a", "b", partition_by=["place"])


def deliver(sink: ParquetSink, batches: int = 3) -> list[Publication]:
    published = []
    for batch_id in range(batches):
        ids = range(batch_id * 10, batch_id * 10 + 5)
        staged = stage(sink, rows(*ids), routes=["a", "b", "a", "b", "a"], batch_id=batch_id)
        published.append(decide(staged, position=batch_id + 2, batch_id=batch_id))
        sink.publish(published[-1])
    return published


def verify(sink: ParquetSink, decided: Sequence[Publication], *, retained: int | None = None) -> SinkReport:
    return sink.verify(DecidedBatches(decided[-(retained or len(decided)) :], totals=expected(*decided)))


def file_of(target: Target, publication: Publication, account: str = "a") -> Path:
    (piece,) = [piece for piece in publication.staged if piece.account == account]
    return target.root(account) / piece.name


def only(report: SinkReport) -> Problem:
    assert not report.ok
    (problem,) = report.problems
    return problem


def test_files_of_others_before_the_first_batch_are_said_to_be_foreign(target: Target) -> None:
    sink = target.sink()
    pq.write_table(pa.table({"id": [1]}), target.root("a") / "theirs.parquet")
    problem = only(sink.verify(DecidedBatches([], totals={})))
    assert "theirs.parquet is foreign" in problem.message
    assert problem.message.endswith("no batch was published yet that says which columns they have.")


def test_good_content_is_good(target: Target) -> None:
    sink = target.sink()
    report = verify(sink, deliver(sink))
    assert report.ok
    assert {account: found.found.rows for account, found in report.accounts.items()} == {"a": 9, "b": 6}
    assert all(found.expected == found.found for found in report.accounts.values())


def test_files_whose_marker_is_not_there_yet_are_no_difference(target: Target) -> None:
    """A driver that is publishing has given them their names, and has the marker still to write."""
    sink = target.sink()
    [published] = deliver(sink, 1)
    outstanding = decide(stage(sink, rows(*range(10, 15)), routes=list("aaaaa"), batch_id=1), position=3, batch_id=1)
    faults.arm("parquet.marker.write=error")
    with pytest.raises(PublishFailed):
        sink.publish(outstanding)
    faults.arm("")
    assert file_of(target, outstanding).exists()
    decisions = DecidedBatches([published, outstanding])
    decisions.published_at = published.position
    report = sink.verify(decisions)
    assert report.ok, report
    assert {account: found.found.rows for account, found in report.accounts.items()} == {"a": 3, "b": 2}


def test_a_copied_file(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[1])
    shutil.copy(victim, victim.with_name(f"copy-of-{victim.name}"))
    problem = only(verify(sink, decided))
    assert problem.account == "a"
    assert problem.batch_id == 1
    assert problem.file == f"place=here/copy-of-{victim.name}"
    assert f"is a copy of place=here/{victim.name} of account 'a', 3 rows twice" in problem.message


def test_a_file_copied_under_a_foreign_name_and_one_copied_to_another_account(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[0])
    shutil.copy(victim, victim.with_name("x.parquet"))
    assert f"is a copy of place=here/{victim.name}" in only(verify(sink, decided)).message
    victim.with_name("x.parquet").unlink()
    shutil.copy(victim, target.root("b") / "place=here" / victim.name)
    problem = only(verify(sink, decided))
    assert problem.account == "b"
    assert "of account 'a'" in problem.message


def test_a_removed_file(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    file_of(target, decided[2], "b").unlink()
    problem = only(verify(sink, decided))
    assert (problem.account, problem.batch_id) == ("b", 2)
    assert problem.message.endswith("is missing, with 2 rows.")


@pytest.mark.parametrize("size_bytes", [0, 1, 200])
def test_a_truncated_file(target: Target, size_bytes: int) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[1])
    with victim.open("r+b") as file:
        file.truncate(size_bytes)
    report = verify(sink, decided)
    truncated = [problem for problem in report.problems if "was truncated" in problem.message]
    assert [(problem.account, problem.batch_id, problem.file) for problem in truncated] == [("a", 1, f"place=here/{victim.name}")]
    assert f"to {size_bytes} bytes" in truncated[0].message


def test_a_changed_value_and_a_lost_row(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[1])
    table = pq.ParquetFile(victim).read()
    pq.write_table(table.set_column(0, "id", pa.array([10, 12, 99], pa.int64())), victim)
    assert "the content of its 3 rows is another one" in only(verify(sink, decided)).message
    pq.write_table(table.slice(0, 2), victim)
    assert "it holds 2 rows, 3 were decided" in only(verify(sink, decided)).message


def move(source: Path, target: Path) -> None:
    """Exchange the first rows of two files: neither has more rows than before, nor fewer."""
    ours, theirs = (pq.ParquetFile(file).read() for file in (source, target))
    pq.write_table(pa.concat_tables([theirs[:1], ours[1:]]), source)
    pq.write_table(pa.concat_tables([ours[:1], theirs[1:]]), target)


def test_rows_that_two_accounts_exchanged_are_found_in_both(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    move(file_of(target, decided[0]), file_of(target, decided[1], "b"))
    report = verify(sink, decided)
    assert not report.ok
    assert [(problem.account, problem.batch_id) for problem in report.problems] == [("a", 0), ("b", 1)]
    assert all(problem.message.endswith("is another one.") for problem in report.problems)


def test_rows_that_two_partitions_exchanged_are_found_in_both(target: Target) -> None:
    sink = target.sink()
    pieces = [*stage(sink, rows(1, 2, place="here"), routes=["a"] * 2), *stage(sink, rows(3, 4, place="there"), routes=["a"] * 2)]
    publication = decide(pieces)
    sink.publish(publication)
    move(*(target.root("a") / piece.name for piece in pieces))
    report = verify(sink, [publication])
    assert not report.ok
    assert {problem.file for problem in report.problems} == {piece.name for piece in pieces}


def test_rows_that_moved_between_files_and_batches_of_one_directory_are_found_in_both(target: Target) -> None:
    """The account holds what was decided for it. A file of a batch does not."""
    sink = target.sink()
    decided = deliver(sink)
    move(file_of(target, decided[0]), file_of(target, decided[2]))
    report = verify(sink, decided)
    assert not report.ok
    assert report.accounts["a"].ok
    assert [(problem.account, problem.batch_id) for problem in report.problems] == [("a", 0), ("a", 2)]
    assert all("so rows moved from one file to another" in problem.message for problem in report.problems)


def test_a_row_that_moved_to_the_file_of_another_batch_is_found_in_both(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    ours, theirs = file_of(target, decided[0]), file_of(target, decided[1])
    rows_of_ours, rows_of_theirs = (pq.ParquetFile(file).read() for file in (ours, theirs))
    pq.write_table(rows_of_ours[1:], ours)
    pq.write_table(pa.concat_tables([rows_of_theirs, rows_of_ours[:1]]), theirs)
    messages = [problem.message for problem in verify(sink, decided).problems]
    assert len(messages) == 2
    assert "holds 2 rows, 3 were decided" in messages[0]
    assert "holds 4 rows, 3 were decided" in messages[1]


def test_rows_that_moved_between_files_that_nobody_decided_are_the_same_content(target: Target) -> None:
    """Those of batches that the ledger has forgotten, and those that maintenance wrote, are compared in sum."""
    sink = target.sink()
    decided = deliver(sink)
    move(file_of(target, decided[0]), file_of(target, decided[1]))
    assert verify(sink, decided, retained=1).ok
    for number, publication in enumerate(decided[:2]):
        file = file_of(target, publication)
        file.rename(file.with_name(f"rewritten-{number}.parquet"))
    assert verify(sink, decided).ok


def test_rows_that_two_accounts_exchanged_in_files_of_other_names_are_found(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    ours, theirs = file_of(target, decided[0]), file_of(target, decided[1], "b")
    move(ours, theirs)
    for file in (ours, theirs):
        file.rename(file.with_name("rewritten.parquet"))
    report = verify(sink, decided)
    assert not report.ok
    assert {account for account, found in report.accounts.items() if not found.ok} == {"a", "b"}
    assert {problem.account for problem in report.problems} == {"a", "b"}


def test_flipped_bytes(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[0])
    data = bytearray(victim.read_bytes())
    data[4:40] = bytes(36)
    victim.write_bytes(data)
    report = verify(sink, decided)
    assert not report.ok
    assert {problem.file for problem in report.problems} == {f"place=here/{victim.name}"}
    assert "was changed" in report.problems[0].message


def test_a_file_moved_to_another_partition(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    victim = file_of(target, decided[0])
    other = target.root("a") / "place=there"
    other.mkdir()
    victim.rename(other / victim.name)
    report = verify(sink, decided)
    assert not report.ok
    assert sorted(problem.message.split(" ", 1)[1].split(",")[0][:9] for problem in report.problems) == ["is a copy", "is missin"]


@pytest.mark.parametrize("name", ["notes.txt", "place=here/x.csv", "loose.parquet", "odd/x.parquet", "nope=1/x.parquet"])
def test_foreign_files(target: Target, name: str) -> None:
    sink = target.sink()
    decided = deliver(sink)
    path = target.root("b") / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"y": [1]}), path)
    else:
        path.write_text("hello")
    problem = only(verify(sink, decided))
    assert (problem.account, problem.file) == ("b", name)
    assert "is foreign" in problem.message


def test_rows_that_no_batch_decided(target: Target) -> None:
    """The published name of an attempt that was never decided, and rows of a stranger with the right columns."""
    sink = target.sink()
    decided = deliver(sink)
    (piece, _) = stage(sink, rows(100, 101), routes=["a", "b"], batch_id=2)
    staged = next(path for path in target.staged() if path.name.startswith(Path(piece.name).name))
    shutil.copy(staged, target.root("a") / piece.name)
    problem = only(verify(sink, decided))
    assert "is foreign: no batch decided its 1 rows" in problem.message
    assert problem.batch_id == 2


def test_hidden_files_are_no_content(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    for name in ("_SUCCESS", ".part.crc", "_temporary/x.parquet"):
        path = target.root("a") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert verify(sink, decided).ok


def test_maintenance_that_keeps_the_rows_is_no_damage(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    directory = target.root("a") / "place=here"
    small = sorted(directory.iterdir())
    whole = pa.concat_tables([pq.ParquetFile(path).read() for path in small])
    pq.write_table(whole, directory / "compacted.parquet")
    assert not verify(sink, decided).ok
    for path in small:
        path.unlink()
    report = verify(sink, decided)
    assert report.ok
    assert report.accounts["a"].found.files == 1


def test_beyond_what_the_ledger_retains_sums_tell(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink, batches=5)
    assert verify(sink, decided, retained=2).ok
    file_of(target, decided[0]).unlink()
    problem = only(verify(sink, decided, retained=2))
    assert problem.account == "a"
    assert "holds 12 rows where 15 were decided" in problem.message
    assert "older than the ledger's memory" in problem.message


def test_content_of_another_pipeline_is_told(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    report = sink.verify(DecidedBatches([]))
    assert not report.ok
    assert len(report.problems) == sum(len(publication.staged) for publication in decided)


def test_an_account_that_the_file_no_longer_names_is_told_and_is_no_difference(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    rows = verify(sink, decided).accounts[AccountName("b")].expected.rows
    fewer = Target(target.directory, "a", partition_by=["place"]).sink()
    report = verify(fewer, decided)
    assert report.ok, report.problems
    assert {account: totals.rows for account, totals in report.unnamed.items()} == {"b": rows}
    assert not verify(sink, decided).unnamed


def test_an_account_that_has_another_name_in_the_file_is_different(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    target.root("b").rename(target.root("c"))
    report = verify(Target(target.directory, "a", "c", partition_by=["place"]).sink(), decided)
    assert not report.ok
    assert list(report.unnamed) == ["b"]


def test_every_batch_is_read_with_its_own_columns(tmp_path: Path) -> None:
    """The transform changed: other columns, another order, and older batches than the ledger retains."""
    target = Target(tmp_path, partition_by=["place"])
    first = deliver_plain(target, SCHEMA, ARROW, {"id": 1, "place": "x", "day": dt.date(2020, 1, 1)}, batch_id=0)
    wider = json.loads(SCHEMA)
    wider["fields"].insert(0, {"name": "price", "type": "decimal(20,2)", "nullable": True, "metadata": {}})
    arrow = pa.schema([("price", pa.decimal128(20, 2)), *ARROW])
    row = {"price": None, "id": 2, "place": "x", "day": None}
    second = deliver_plain(target, json.dumps(wider), arrow, row, batch_id=1)
    third = deliver_plain(target, json.dumps(wider), arrow, row, batch_id=2)
    sink = target.sink()
    assert verify(sink, [first, second, third]).ok
    assert verify(sink, [first, second, third], retained=1).ok


def deliver_plain(target: Target, schema: str, arrow: pa.Schema, row: dict[str, object], *, batch_id: int) -> Publication:
    sink = target.sink(schema=schema)
    batch = pa.RecordBatch.from_pylist([row], schema=arrow.with_metadata({SCHEMA_KEY: schema.encode()}))
    publication = decide(stage(sink, batch, batch_id=batch_id), position=batch_id + 2, batch_id=batch_id, schema=schema)
    publication = replace(publication, generation=Generation(1))
    sink.publish(publication)
    return publication


def put_file_of_a_job(
    target: Target, name: str = "place=here/part-00000-3f877a07-87b4-49e7-bf81-bf1260128d4b.c000.snappy.parquet"
) -> Path:
    """What a `foreachBatch` of plain Spark left in an account, with other rows than any batch of Penstock's."""
    path = target.root("a") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([901, 902], pa.int64()), "day": pa.array([None, None], pa.date32())}), path)
    return path


def test_files_of_a_job_are_refused_before_anything_is_staged_unless_they_are_kept(tmp_path: Path, target: Target) -> None:
    put_file_of_a_job(target)
    for start in (target.sink, lambda: target.sink(schema=None).claim(LEDGER_ID)):  # the second one is what `adopt` does
        with pytest.raises(Refused, match="holds files that Penstock did not write") as refused:
            start()
        assert "existing_rows: keep" in refused.value.remedy
    assert not target.staged()
    kept = Target(tmp_path, "a", "b", partition_by=["place"], keeps_files=True)
    kept.sink().claim(LEDGER_ID)


def test_files_of_a_job_that_are_kept_are_left_out_and_counted(tmp_path: Path) -> None:
    target = Target(tmp_path, "a", "b", partition_by=["place"], keeps_files=True)
    put_file_of_a_job(target)
    (target.root("a") / "place=here/notes.txt").write_text("of the team")
    sink = target.sink()
    decided = deliver(sink)
    report = verify(sink, decided)
    assert report.ok, report.problems
    assert {name: each.kept.files for name, each in report.accounts.items()} == {"a": 2, "b": 0}
    victim = file_of(target, decided[1])
    shutil.copy(victim, victim.with_name("x.parquet"))
    assert "is a copy of" in only(verify(sink, decided)).message
    victim.with_name("x.parquet").unlink()
    victim.unlink()
    assert only(verify(sink, decided)).message.endswith("is missing, with 3 rows.")


def test_a_file_of_others_in_an_account_that_has_no_rows_yet_refuses_no_start(target: Target) -> None:
    target.sink().claim(LEDGER_ID)
    put_file_of_a_job(target, "x.parquet")
    target.sink()


def test_files_of_a_job_that_are_kept_have_the_sinks_partitions(tmp_path: Path) -> None:
    target = Target(tmp_path, "a", "b", partition_by=["id"], keeps_files=True)
    put_file_of_a_job(target)
    with pytest.raises(Refused, match="are partitioned by place, and partition_by is id") as refused:
        target.sink()
    assert "Put partition_by back" in refused.value.remedy
    assert not target.staged()


def test_an_account_that_is_filled_already_is_not_refused_for_files_that_came_later(target: Target) -> None:
    sink = target.sink()
    sink.claim(LEDGER_ID)
    decided = deliver(sink)
    put_file_of_a_job(target)
    assert "is foreign" in only(verify(target.sink(), decided)).message
