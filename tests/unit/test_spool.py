"""The spool: what is staged comes back exactly, and what is damaged is told before a single row of it."""

import hashlib
import os
import random
import resource
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core import faults
from penstock.core.codec import encode_document
from penstock.core.deletes import split_deletes, with_deletes
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    Attempt,
    BatchId,
    Generation,
    Nonce,
    PipelineName,
    SinkName,
    SweepCut,
    new_nonce,
)
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import Failed, FormatTooNew, Retryable, StagedDataLost, StageFailed
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool
from penstock.sink.spool.deletes import DeletesByKey
from penstock.testing.conformance.bench import travelled
from penstock.testing.conformance.rig import LEDGER_ID

PIPELINE, SINK = PipelineName("flights"), SinkName("warehouse")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def attempt(batch_id=1, generation=1, partition=0):
    return Attempt(
        generation=Generation(generation), batch_id=BatchId(batch_id), partition=partition, task_attempt=0, nonce=new_nonce()
    )


def rows(count, start=0):
    return pa.record_batch({"id": range(start, start + count), "text": [f"row {at} é\0" for at in range(count)]}, schema=SCHEMA)


def spool_in(directory, limit=0, **options):
    spool = Spool(root=str(directory / "spool"), sink=SINK, inline_limit_bytes=limit, **options)
    spool.prepare(PIPELINE)
    return spool


def stage(spool, *batches, of=None, schema=SCHEMA):
    """As a task does."""
    return staged_by(travelled(spool.stager()), *batches, of=of, schema=schema)


def staged_by(stager, *batches, of=None, schema=SCHEMA):
    writer = stager.open(of or attempt(), schema)
    try:
        for batch in batches:
            writer.write(batch, hashes=row_hashes(batch), accounts=None)
        return list(writer.finish())
    except BaseException:
        writer.abandon()
        raise


def read(spool, pieces):
    return list(spool.read(pieces, pipeline=PIPELINE))


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in (directory / "spool").rglob("*") if path.is_file())


@pytest.fixture
def armed():
    yield faults.arm
    faults.arm("")


def test_a_small_piece_travels_inline_and_leaves_the_disk_alone(tmp_path):
    spool = spool_in(tmp_path, INLINE_LIMIT_BYTES)
    before = files(tmp_path)
    pieces = stage(spool, rows(500))
    assert pieces[0].inline is not None
    assert files(tmp_path) == before
    assert read(spool, pieces) == [rows(500)]


def test_a_larger_piece_is_a_file_named_after_its_attempt(tmp_path):
    spool, of = spool_in(tmp_path), attempt()
    [piece] = stage(spool, rows(10), rows(20, 10), of=of)
    assert piece.inline is None
    assert files(tmp_path)[-1] == f"spool/flights/warehouse/{of.token}.arrow"
    assert read(spool, [piece]) == [rows(10), rows(20, 10)]
    assert piece.attempt == of.token
    assert piece.totals.rows == 30
    assert piece.totals.digest == digest(row_hashes(pa.Table.from_batches([rows(10), rows(20, 10)])))
    assert piece.totals.size_bytes == (tmp_path / files(tmp_path)[-1]).stat().st_size


@pytest.mark.parametrize("less", [0, 1])
def test_the_limit_is_the_size_of_the_whole_piece(tmp_path, less):
    size_bytes = len(stage(spool_in(tmp_path, 10**9), rows(300))[0].inline)
    [piece] = stage(spool_in(tmp_path, size_bytes - less), rows(300))
    assert (piece.inline is None) is bool(less)
    assert piece.totals.size_bytes == size_bytes


def test_no_rows_no_piece(tmp_path):
    spool = spool_in(tmp_path)
    assert stage(spool) == []
    assert stage(spool, rows(0)) == []
    assert files(tmp_path) == [f"spool/flights/warehouse/{spool.stager().claimed.identity}"]


def test_pieces_are_read_in_the_order_of_the_decision(tmp_path):
    spool = spool_in(tmp_path)
    pieces = [stage(spool, rows(3, start), of=attempt(partition=start))[0] for start in (0, 10, 20)]
    assert read(spool, pieces[::-1]) == [rows(3, 20), rows(3, 10), rows(3, 0)]


def test_rows_without_columns_are_counted(tmp_path):
    spool, empty = spool_in(tmp_path), pa.schema([])
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    [piece] = stage(spool, batch, schema=empty)
    assert [found.num_rows for found in read(spool, [piece])] == [5]


@pytest.mark.parametrize("inline", [False, True])
def test_every_damage_is_told_before_the_first_row(tmp_path, inline):
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    spool = spool_in(tmp_path, 10**9 if inline else 0)
    [piece] = stage(spool, rows(2000))
    path = tmp_path / "spool/flights/warehouse" / piece.name
    whole = piece.inline if inline else path.read_bytes()
    places = [0, len(whole) - 1, *(numbers.randrange(len(whole)) for _ in range(60))]
    damaged = [whole[:place] + bytes([whole[place] ^ 1 << numbers.randrange(8)]) + whole[place + 1 :] for place in places]
    damaged += [whole[:place] for place in places] + [whole + b"\0", b""]
    for data in damaged:
        bad = replace(piece, inline=data) if inline else piece
        if not inline:
            path.write_bytes(data)
        with pytest.raises(StagedDataLost, match=r"is lost: it(s checksum is| has) .* expected .*Mount or restore"):
            next(spool.read([bad], pipeline=PIPELINE))


def test_a_missing_piece_is_told(tmp_path):
    spool = spool_in(tmp_path)
    [piece] = stage(spool, rows(5))
    spool.discard([piece], pipeline=PIPELINE)
    with pytest.raises(StagedDataLost, match="is lost: it is missing"):
        read(spool, [piece])


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_piece_that_cannot_be_read_now_may_be_read_later_and_no_file_stays_open(tmp_path, armed, kind):
    spool = spool_in(tmp_path)
    [piece] = stage(spool, rows(5))
    armed(f"spool.read={kind}")
    with pytest.raises(Retryable):
        read(spool, [piece])
    assert open_files(tmp_path) == []
    assert read(spool, [piece]) == [rows(5)]


def open_files(directory):
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for target in (os.path.realpath(link) for link in links) if target.startswith(f"{directory}/")]


def test_a_format_of_the_future_is_not_guessed(tmp_path):
    spool = spool_in(tmp_path)
    [piece] = stage(spool, rows(5))
    path = tmp_path / "spool/flights/warehouse" / piece.name
    header, stream = path.read_bytes().split(b"\n", 1)
    assert header.startswith(b'{"attempt":')
    data = encode_document("penstock.spool", 2, {"sink": SINK}) + b"\n" + stream
    path.write_bytes(data)
    ref = {**piece.ref, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    with pytest.raises(FormatTooNew):
        read(spool, [replace(piece, ref=ref)])


@pytest.mark.parametrize("fault", ["spool.write=error", "spool.write=lost", "spool.sync=error", "spool.sync=lost"])
def test_a_disk_that_fails_while_staging_fails_the_attempt(tmp_path, armed, fault):
    spool = spool_in(tmp_path)
    armed(fault)
    with pytest.raises(StageFailed, match="nothing of the batch was decided"):
        stage(spool, rows(5))


def test_a_full_disk_fails_the_attempt(tmp_path):
    spool = spool_in(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(StageFailed, match="larger than allowed"):
            stage(spool, rows(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_task_that_does_not_see_the_drivers_spool_fails(tmp_path):
    """Its file would be decided, and could never be published."""
    spool = spool_in(tmp_path)
    stager = spool.stager()
    (tmp_path / "spool/flights/warehouse" / stager.claimed.identity).unlink()
    writer = stager.open(attempt(), SCHEMA)
    with pytest.raises(StageFailed, match="not the one the driver uses"):
        writer.write(rows(5), hashes=row_hashes(rows(5)), accounts=None)
    assert files(tmp_path) == []


def test_two_drivers_mean_the_same_spool(tmp_path):
    assert spool_in(tmp_path).stager().claimed == spool_in(tmp_path).stager().claimed


def test_a_spool_that_cannot_be_made_is_told(tmp_path, armed):
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(Failed, match="cannot be created or read"):
        spool_in(tmp_path)
    (tmp_path / "spool").unlink()
    armed("spool.claim=error")
    with pytest.raises(Failed, match="cannot be created or read"):
        spool_in(tmp_path)


def test_staging_before_preparing_is_a_mistake(tmp_path):
    with pytest.raises(Failed, match="was not prepared"):
        Spool(root=str(tmp_path), sink=SINK).stager()


@pytest.mark.parametrize("other", [("id", "TEXT"), ("text", "id"), ("id",)])
def test_rows_of_another_shape_are_refused(tmp_path, other):
    spool = spool_in(tmp_path)
    batch = pa.RecordBatch.from_arrays([rows(3).column(0)] * len(other), names=other)
    with pytest.raises(StageFailed, match=r"expected rows of \(id int64, text string\)"):
        stage(spool, batch)


def test_metadata_and_nullability_are_no_other_shape(tmp_path):
    spool = spool_in(tmp_path)
    marked = rows(3).replace_schema_metadata({"a": "b"})
    [piece] = stage(spool, rows(3), marked)
    assert read(spool, [piece]) == [rows(3), rows(3)]


def test_a_refusing_check_leaves_nothing_behind(tmp_path):
    spool = spool_in(tmp_path)

    def refuse(batch):
        raise StageFailed("no", remedy="none")

    writer = spool.stager(refuse).open(attempt(), SCHEMA)
    with pytest.raises(StageFailed):
        writer.write(rows(3), hashes=row_hashes(rows(3)), accounts=None)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("name", ["..", ".", "../../x", "a/b", "a\\b", "%2F", "a b", ".hidden", "é" * 20])
def test_names_cannot_leave_the_spool(tmp_path, name):
    spool = Spool(root=str(tmp_path / "spool"), sink=SinkName(name), inline_limit_bytes=0)
    spool.prepare(PipelineName(name))
    pieces = stage(spool, rows(3))
    assert list(spool.read(pieces, pipeline=PipelineName(name))) == [rows(3)]
    assert [len(Path(path).parts) for path in files(tmp_path)] == [4, 4]


def test_the_sweep_takes_dead_attempts_of_its_own_sink_only(tmp_path, armed):
    spool = spool_in(tmp_path)
    [kept] = stage(spool, rows(5), of=attempt(batch_id=3, generation=1))
    [dead] = stage(spool, rows(5), of=attempt(batch_id=3, generation=1))
    [alive] = stage(spool, rows(5), of=attempt(batch_id=3, generation=2))
    [next_one] = stage(spool, rows(5), of=attempt(batch_id=4, generation=2))
    [past] = stage(spool, rows(5), of=attempt(batch_id=2, generation=2))
    other = Spool(root=str(tmp_path / "spool"), sink=SinkName("other"), inline_limit_bytes=0)
    other.prepare(PIPELINE)
    stage(other, rows(5), of=attempt(batch_id=3, generation=1))
    (tmp_path / "spool/flights/warehouse/notes.txt").write_text("mine")
    cut = SweepCut(
        pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=BatchId(2), kept=frozenset({kept.attempt})
    )
    before = files(tmp_path)
    named = spool.sweep(cut, dry_run=True)
    assert files(tmp_path) == before
    armed("spool.sweep=error")
    with pytest.raises(Retryable):
        spool.sweep(cut, dry_run=False)
    assert spool.sweep(cut, dry_run=False) == named
    assert sorted(Path(path).name for path in named) == sorted([dead.name, past.name])
    assert read(spool, [kept, alive, next_one]) == [rows(5)] * 3
    assert len(files(tmp_path)) == len(before) - 2


def test_sweeping_a_spool_that_is_not_there_finds_nothing(tmp_path):
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=None, kept=frozenset())
    assert Spool(root=str(tmp_path / "none"), sink=SINK).sweep(cut, dry_run=False) == []


def test_what_cannot_be_discarded_is_told_once_until_it_works_again(tmp_path, armed, caplog):
    """It is garbage: whoever published is not kept back, and the sweep takes it."""
    spool = spool_in(tmp_path)
    pieces = [*stage(spool, rows(5)), *stage(spool, rows(5))]
    for told in (1, 1):
        armed("spool.discard=error")
        spool.discard(pieces[:1], pipeline=PIPELINE)
        assert len(caplog.records) == told
    assert "could not be removed from the spool" in caplog.text
    assert "penstock sweep" in caplog.text
    assert len(files(tmp_path)) == 3
    for _ in range(2):
        spool.discard(pieces, pipeline=PIPELINE)
        assert len(files(tmp_path)) == 1
    armed("spool.discard=lost")
    spool.discard(pieces, pipeline=PIPELINE)
    assert len(caplog.records) == 2


def test_a_mistake_while_discarding_is_no_garbage(tmp_path):
    spool = spool_in(tmp_path)
    with pytest.raises(AttributeError):
        spool.discard([object()], pipeline=PIPELINE)


def test_an_abandoned_attempt_is_left_to_the_sweep(tmp_path):
    spool = spool_in(tmp_path)
    writer = spool.stager().open(attempt(), SCHEMA)
    writer.abandon()
    writer.write(rows(5), hashes=row_hashes(rows(5)), accounts=None)
    writer.abandon()
    assert len(files(tmp_path)) == 2


def test_an_attempts_name_is_taken_once(tmp_path):
    spool = spool_in(tmp_path)
    of = replace(attempt(), nonce=Nonce("0" * 16))
    stage(spool, rows(5), of=of)
    with pytest.raises(StageFailed):
        stage(spool, rows(5), of=of)


def test_a_file_and_its_name_are_on_the_disk_before_the_attempt_reports_them(tmp_path, monkeypatch):
    spool, synced, sync = spool_in(tmp_path), [], os.fsync

    def noting(handle):
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    [piece] = stage(spool, rows(5))
    directory = tmp_path / "spool/flights/warehouse"
    assert synced == [directory / piece.name, directory]


def test_a_new_place_is_on_the_disk_with_the_directories_above_it(tmp_path, monkeypatch):
    synced, sync = set(), os.fsync

    def noting(handle):
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    spool_in(tmp_path / "state/of")
    place = tmp_path / "state/of/spool/flights/warehouse"
    assert synced >= {place, *(parent for parent in place.parents if parent.is_relative_to(tmp_path))}


def test_a_place_that_cannot_be_listed_is_an_error_of_penstocks_for_a_start_goes_on_without_a_sweep(tmp_path):
    spool = spool_in(tmp_path)
    (tmp_path / "spool/flights/warehouse/loop").symlink_to("loop")
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=None, kept=frozenset())
    for act in (lambda: spool.sweep(cut, dry_run=True), lambda: list(spool.waiting(PIPELINE))):
        with pytest.raises(Retryable, match="cannot be listed: links lead in a circle"):
            act()


def test_texts_that_are_no_utf8_are_refused_where_a_sink_has_no_check_of_its_own(tmp_path):
    damaged = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    batch = pa.record_batch({"id": pa.array([1]), "text": damaged}, schema=SCHEMA)
    spool = spool_in(tmp_path)
    with pytest.raises(StageFailed, match="damaged values in column 'text'"):
        staged_by(spool.stager(), batch)


@pytest.mark.parametrize("names", [("id", "word"), ("word", "id"), ("ID", "id"), ("Id", "word", "id", "ID")])
def test_a_row_that_deletes_has_the_hash_of_what_is_staged_of_it(names):
    """What a hash folds in for a column depends on those before it whose names differ in case only, NULL or not."""
    plain = pa.record_batch({name: [place, place + 7] for place, name in enumerate(names)})
    stager = DeletesByKey(key=("id",), row_digest=NEWEST_ROW_DIGEST)
    bare, hashes = stager.bare(with_deletes(plain, pa.array([True, False])), row_hashes(plain, NEWEST_ROW_DIGEST))
    staged = split_deletes(bare)[0]
    gone, left = staged.to_pylist()
    assert {name for name, value in gone.items() if value is not None} == {"id"}
    assert left == plain.to_pylist()[1]
    assert hashes.equals(row_hashes(staged, NEWEST_ROW_DIGEST))
