"""The task side: which files are staged, how they look inside, how much memory waits, and what a bad disk makes of it."""

import errno
import json
import os
import resource
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet_target import ARROW, PIPELINE, SCHEMA, SINK, Target, attempt, rows, stage

from penstock.core.faults import arm
from penstock.core.model import AccountName, Attempt, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import PublishFailed, StageFailed, Usage
from penstock.protocols import SCHEMA_KEY
from penstock.sink.parquet.encoding import Encodings
from penstock.sink.parquet.layout import owner_of
from penstock.sink.parquet.splitting import Group, Lease, WriteSettings
from penstock.sink.parquet.stager import CHUNK_ROWS, Buffer, ParquetStager


def numbers(start: int, count: int) -> pa.RecordBatch:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.RecordBatch.from_arrays([ids, pa.array(["x"] * count), pa.nulls(count, pa.date32())], schema=ARROW)


def stager_of(target: Target, **settings: int) -> ParquetStager:
    made = target.sink().stager()
    plain = {name: getattr(made.settings, name) for name in ("sink", "owner", "accounts", "partition_by", "compression")}
    return ParquetStager(settings=WriteSettings(**plain, **settings), areas=made.areas)


def test_staged_files_are_outside_of_the_table_and_tell_their_attempt(tmp_path: Path) -> None:
    target = Target(tmp_path, "a", "b")
    batch = rows(1, 2, 3)
    pieces = stage(target.sink(), batch, routes=["a", "b", "a"])
    assert target.files() == []
    assert [path.parent.parent.relative_to(tmp_path) for path in target.staged()] == [
        Path("lake/.penstock-staging/a/flights/lake"),
        Path("lake/.penstock-staging/b/flights/lake"),
    ]
    assert {piece.account: piece.totals.rows for piece in pieces} == {"a": 2, "b": 1}
    for piece in pieces:
        found = Attempt.find(piece.name)
        assert found is not None
        assert found.token == piece.attempt
        assert piece.name.endswith(".zstd.parquet")
    assert sum(piece.totals.digest for piece in pieces) % 2**64 == digest(row_hashes(batch))
    assert sum(piece.totals.size_bytes for piece in pieces) == sum(path.stat().st_size for path in target.staged())


def test_files_roll_by_size_and_row_groups_are_whole(tmp_path: Path) -> None:
    target = Target(tmp_path, target_file_size_bytes=400_000)
    stager = ParquetStager(
        settings=WriteSettings(
            sink=SinkName("lake"),
            owner="1a2b3c4d",
            accounts=(AccountName("only"),),
            target_file_size_bytes=400_000,
            encoding=Encodings(default="dictionary"),
            row_group_rows=2 * CHUNK_ROWS,
        ),
        areas=target.sink().stager().areas,
    )
    writer = stager.open(attempt(), ARROW)
    for start in range(0, 6 * CHUNK_ROWS, 1 << 14):
        batch = numbers(start, 1 << 14)
        writer.write(batch, hashes=row_hashes(batch), accounts=None)
    pieces = list(writer.finish())
    assert len(pieces) > 1
    assert len({piece.name for piece in pieces}) == len(pieces)
    groups = Counter[int]()
    for path in target.staged():
        metadata = pq.ParquetFile(path).metadata
        groups.update(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    assert groups == {2 * CHUNK_ROWS: 3}
    assert sum(piece.totals.rows for piece in pieces) == 6 * CHUNK_ROWS


def test_memory_that_waits_is_bounded_over_all_places() -> None:
    settings = WriteSettings(sink=SinkName("lake"), owner="1a2b3c4d", accounts=(AccountName("a"),), buffer_bytes=100_000)
    buffer, written = Buffer(settings), Counter[str]()
    table = pa.table({"id": pa.array(range(100), pa.int64())})
    most_waiting = 0
    waiting = 0
    for number in range(1000):
        place = f"p={number % 10}" if number % 2 else "p=often"
        lease = Lease(table)
        buffer.add(
            Group(account=AccountName("a"), directories=place, rows=table, digest=1, size_bytes=lease.share_of(100), lease=lease)
        )
        waiting += table.nbytes
        for group in buffer.due():
            written[group.place[1]] += len(group.rows)
            waiting -= group.rows.nbytes
        most_waiting = max(most_waiting, waiting)
    for group in buffer.rest():
        written[group.place[1]] += len(group.rows)
    assert most_waiting <= 100_000
    assert written == {"p=often": 50_000, **{f"p={n}": 10_000 for n in (1, 3, 5, 7, 9)}}


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    """Rows of 30 places in turn, memory for few of them: each place gets several files rather than 30 open ones."""
    target = Target(tmp_path, partition_by=["place"])
    stager = stager_of(target, row_group_rows=1, open_files=4)
    writer = stager.open(attempt(), ARROW)
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(2):
        for start in range(0, CHUNK_ROWS, 1 << 14):
            ids = pa.array(range(start, start + (1 << 14)), pa.int64())
            places = pa.array([f"p{n % 30}" for n in range(1 << 14)])
            batch = pa.RecordBatch.from_arrays([ids, places, pa.nulls(1 << 14, pa.date32())], schema=ARROW)
            writer.write(batch, hashes=row_hashes(batch), accounts=None)
        assert len(writer._open) == 4, turn
    pieces = writer.finish()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert sum(piece.totals.rows for piece in pieces) == 2 * CHUNK_ROWS
    assert len(pieces) == 60


def test_partition_columns_are_in_the_path_and_nowhere_else(tmp_path: Path) -> None:
    target = Target(tmp_path, partition_by=["day", "place"])
    (piece,) = stage(target.sink(), rows(1, place="a/b"))
    assert piece.name.startswith("day=__HIVE_DEFAULT_PARTITION__/place=a%2Fb/part-")
    assert pq.ParquetFile(target.staged()[0]).schema_arrow.names == ["id"]


@pytest.mark.parametrize(
    ("compression", "ending"),
    [("zstd", ".zstd.parquet"), ("none", ".parquet"), ("snappy", ".snappy.parquet"), ("lz4", ".lz4.parquet")],
)
def test_compression(tmp_path: Path, compression: str, ending: str) -> None:
    target = Target(tmp_path, compression=compression)
    (piece,) = stage(target.sink(), rows(1))
    assert piece.name.partition(f"-00000-{owner_of(PIPELINE, SINK)}")[2] == ending
    found = pq.ParquetFile(target.staged()[0]).metadata.row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_the_footer_tells_spark_and_verify_what_the_rows_were(tmp_path: Path) -> None:
    target = Target(tmp_path, partition_by=["place"])
    schema = ARROW.with_metadata({SCHEMA_KEY: SCHEMA.encode()})
    stage(target.sink(), rows(1).cast(schema))
    notes = pq.ParquetFile(target.staged()[0]).metadata.metadata
    assert notes[SCHEMA_KEY].decode() == SCHEMA
    spark = json.loads(notes[b"org.apache.spark.sql.parquet.row.metadata"])
    assert [field["name"] for field in spark["fields"]] == ["id", "day"]


def test_columns_that_parquet_cannot_hold_are_refused(tmp_path: Path) -> None:
    sink = Target(tmp_path).sink()
    for kind in (pa.null(), pa.month_day_nano_interval()):
        with pytest.raises(Usage, match=r"'odd' has the type .*, which Parquet cannot hold"):
            sink.stager().open(attempt(), pa.schema([("id", pa.int64()), ("odd", kind)]))


def test_a_directory_that_only_looks_like_the_drivers_is_refused(tmp_path: Path) -> None:
    target = Target(tmp_path)
    sink = target.sink()
    (identity,) = tmp_path.rglob("*.id")
    identity.rename(identity.with_name("0123456789abcdef.id"))
    with pytest.raises(StageFailed, match="is not the one of the driver"):
        stage(sink, rows(1))


def test_a_file_that_cannot_grow_fails_the_attempt_in_plain_words(tmp_path: Path) -> None:
    target = Target(tmp_path)
    sink = target.sink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StageFailed, match="failed: the file is larger than allowed"):
            stage(sink, rows(*range(1000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.files() == []


@pytest.mark.parametrize("step", ["open", "write", "sync", "seal"])
@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_broken_disk_fails_the_attempt_and_leaves_the_rest_to_the_sweep(tmp_path: Path, step: str, kind: str) -> None:
    target = Target(tmp_path, "a", "b")
    sink = target.sink()
    arm(f"parquet.stage.{step}={kind}")
    try:
        with pytest.raises(StageFailed, match="the disk reports an input/output error"):
            stage(sink, rows(1, 2), routes=["a", "a"])
    finally:
        arm("")
    assert target.files() == []
    assert bool(target.staged()) is not ((step, kind) == ("open", "error"))


def test_a_full_disk_is_told_plainly() -> None:
    from penstock.sink.parquet.directory.rename import publishing
    from penstock.support.filesystem_errors import problem_of

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert problem_of(full).reason == "the disk is full"
    with pytest.raises(PublishFailed) as failed, publishing("Claiming x"):  # before anything may be decided
        raise full
    assert failed.value.remedy.endswith("start again: what is decided stays decided, and the next start publishes it.")


@pytest.mark.parametrize("column", ["place", "nested"])
def test_texts_that_are_no_utf8_are_refused(tmp_path: Path, column: str) -> None:
    """Spark makes them of any bytes, and readers of Parquet fail on them, or show other letters."""
    damaged = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    texts = damaged if column == "place" else pa.array(["a"])
    nested = pa.ListArray.from_arrays([0, 1], damaged if column == "nested" else pa.array(["a"]))
    batch = pa.record_batch({"id": pa.array([1]), "place": texts, "nested": nested})
    writer = Target(tmp_path).sink().stager().open(attempt(), batch.schema.with_metadata({SCHEMA_KEY: SCHEMA.encode()}))
    with pytest.raises(StageFailed, match=f"damaged values in column '{column}'") as refused:
        writer.write(batch, hashes=pa.array([1], pa.uint64()), accounts=None)
    assert "decode(column, 'UTF-8')" in refused.value.remedy
    assert Target(tmp_path).staged() == []
