"""Rows that the driver has staged itself: published from memory, as the file has them; no one else has them there."""

import gc
import weakref

import pyarrow as pa
import pytest
from tests.unit.test_spool import PIPELINE, SCHEMA, attempt, files, read, row_hashes, rows, spool_in, stage, staged_by

from penstock.core import faults
from penstock.errors import Retryable, StagedDataLost, StageFailed
from penstock.sink.spool.writer import RowCache
from penstock.testing.conformance.bench import travelled


def stage_here(spool, *batches):
    """As a driver does that stages a small batch itself."""
    [piece] = staged_by(spool.stager(), *batches)
    return piece


def pieces_in(directory):
    return [directory / name for name in files(directory) if name.endswith(".arrow")]


def damage(directory):
    """Other bytes, as many as before."""
    for file in pieces_in(directory):
        file.write_bytes(bytes(file.stat().st_size))


def test_what_was_staged_here_is_not_read_back(tmp_path):
    spool = spool_in(tmp_path)
    piece = stage_here(spool, rows(10), rows(0), rows(20, 10))
    assert piece.inline is None
    before = read(spool_in(tmp_path), [piece])
    damage(tmp_path)
    assert read(spool, [piece]) == before == [rows(10), rows(20, 10)]
    assert read(spool, [piece]) == before
    with pytest.raises(StagedDataLost):
        read(spool_in(tmp_path), [piece])


@pytest.mark.parametrize(("size", "found"), [(None, "it is missing"), (0, "it has 0 bytes"), (1 << 20, "it has 1048576 bytes")])
def test_a_file_that_is_gone_was_published_by_somebody_else(tmp_path, size, found):
    """Then the marker is looked at again; a sink that nothing fences would show the rows once more."""
    spool = spool_in(tmp_path)
    piece = stage_here(spool, rows(10))
    [file] = pieces_in(tmp_path)
    file.unlink()
    if size is not None:
        file.write_bytes(bytes(size))
    with pytest.raises(StagedDataLost, match=found):
        read(spool, [piece])


def test_what_a_task_staged_is_read_from_its_file(tmp_path):
    spool = spool_in(tmp_path)
    pieces = stage(spool, rows(10))
    damage(tmp_path)
    with pytest.raises(StagedDataLost):
        read(spool, pieces)


def test_a_task_has_nowhere_to_hold_rows(tmp_path):
    stager = spool_in(tmp_path).stager()
    assert isinstance(stager.cache, RowCache)
    assert travelled(stager).cache is None


def test_held_and_other_pieces_come_in_their_frozen_order(tmp_path):
    spool = spool_in(tmp_path)
    pieces = [*stage(spool, rows(3)), stage_here(spool, rows(3, 3)), *stage(spool, rows(3, 6)), stage_here(spool, rows(3, 9))]
    assert read(spool, pieces) == [rows(3, start) for start in (0, 3, 6, 9)]


def test_rows_of_another_labelling_are_held_as_the_file_has_them(tmp_path):
    spool = spool_in(tmp_path)
    writer = spool.stager().open(attempt(), SCHEMA.with_metadata({"made": "by Spark"}))
    writer.write(rows(5), hashes=row_hashes(rows(5)), accounts=None)
    pieces = writer.finish()
    [here], [elsewhere] = read(spool, pieces), read(spool_in(tmp_path), pieces)
    assert here.schema.equals(elsewhere.schema, check_metadata=True)
    assert here == elsewhere


def test_published_rows_are_let_go(tmp_path):
    spool, batch = spool_in(tmp_path), rows(10)
    alive = weakref.ref(batch)
    piece = stage_here(spool, batch)
    spool.discard([piece], pipeline=PIPELINE)
    del batch
    gc.collect()
    assert alive() is None
    with pytest.raises(StagedDataLost, match="it is missing"):
        read(spool, [piece])


def test_no_more_is_held_than_is_published_and_staged(tmp_path):
    """The rest is where it is anyway."""
    spool, batches = spool_in(tmp_path), [rows(3, 3 * start) for start in range(4)]
    alive = [weakref.ref(batch) for batch in batches]
    expected = [batch.to_pylist() for batch in batches]
    pieces = [stage_here(spool, batches.pop(0)) for _ in range(4)]
    gc.collect()
    assert [one() is not None for one in alive] == [False, False, True, True]
    assert [batch.to_pylist() for batch in read(spool, pieces)] == expected


def test_a_piece_that_is_too_large_is_not_held(tmp_path, monkeypatch):
    """Where a transform makes many rows of few, memory is what is short."""
    spool, batch = spool_in(tmp_path), rows(10)
    monkeypatch.setattr("penstock.sink.spool.writer._MOST_BYTES", batch.nbytes)
    fits, _ = stage_here(spool, batch), stage_here(spool, batch, rows(1))
    assert list(spool.stager().cache._rows) == [fits.name]


def test_inline_rows_are_in_the_decision(tmp_path):
    spool = spool_in(tmp_path, 1 << 20)
    batch = rows(10)
    alive = weakref.ref(batch)
    piece = stage_here(spool, batch)
    del batch
    gc.collect()
    assert piece.inline is not None
    assert alive() is None
    assert read(spool, [piece]) == [rows(10)]


def test_an_attempt_that_failed_holds_nothing(tmp_path):
    spool = spool_in(tmp_path)
    faults.arm("spool.sync=error")
    try:
        batch = rows(10)
        with pytest.raises(StageFailed, match="cannot be written") as failed:
            stage_here(spool, batch)
    finally:
        faults.arm("")
    del failed
    alive = weakref.ref(batch)
    del batch
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_trouble_with_the_spool_is_told_here_too(tmp_path, kind):
    spool = spool_in(tmp_path)
    piece = stage_here(spool, rows(10))
    faults.arm(f"spool.read={kind}")
    try:
        with pytest.raises(Retryable, match="cannot be read"):
            read(spool, [piece])
    finally:
        faults.arm("")
    assert read(spool, [piece]) == [rows(10)]


def test_slices_are_held_as_they_are(tmp_path):
    """Arrow's slices share memory, and say where they begin."""
    spool, whole = spool_in(tmp_path), rows(100)
    piece = stage_here(spool, whole.slice(7, 20), whole.slice(90))
    assert pa.Table.from_batches(read(spool, [piece])) == pa.Table.from_batches(read(spool_in(tmp_path), [piece]))
