"""Damaged ledgers, markers, spools and staging: a start delivers exactly, or is refused and does so once that is undone."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.attack.places import TABLES, pipelines
from tests.attack.reading import expected
from tests.seed import SEED

from penstock.errors import PenstockError

__all__ = ["pipelines"]

DECIDED = 3
"""Batches 0 and 1 are published, batch 2 is outstanding."""
FLIPS = 24
"""Of how many bits of the newest decision one is changed, each in a case of its own."""


def rows_of(number):
    return [(100 * number + at, f"batch {number} " + "x" * at) for at in range(30)]


def flipped(at, bit=0):
    def damage(file, _):
        data = bytearray(file.read_bytes())
        place = int(at * max(0, len(data) - 1))
        data[place : place + 1] = bytes(byte ^ 1 << bit for byte in data[place : place + 1])
        file.write_bytes(data)

    return damage


def truncated(file, _):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file, _):
    file.write_bytes(b"")


def removed(file, _):
    file.unlink()


def zeroed(file, _):
    """As a file whose bytes did not get to the disk before the power failed."""
    file.write_bytes(bytes(file.stat().st_size))


def exchanged(file, _):
    """With its neighbour."""
    siblings = sorted(other for other in file.parent.iterdir() if other.is_file() and other != file)
    if siblings:
        data = file.read_bytes()
        file.write_bytes(siblings[-1].read_bytes())
        siblings[-1].write_bytes(data)


def doubled(file, _):
    """The entry of the next position is this one."""
    file.with_name(f"{int(file.name) + 1:012d}").write_bytes(file.read_bytes())


def foreign(file, other):
    """What another home of the same pipeline has there, or nothing."""
    theirs = sorted(other.glob(f"**/{file.name}")) or sorted(other.glob(f"**/*{file.suffix}"))
    file.write_bytes(theirs[0].read_bytes() if theirs else b"")


OF_FILES = (removed, emptied, truncated, flipped(0.5), flipped(0.9), zeroed, exchanged, foreign)


def is_other(before, after):
    """Content of the same length."""
    return before != after and len(before) == len(after)


class Scene:
    """A pipeline with an outstanding decision, which can be put back as it was."""

    def __init__(self, pipelines, tmp_path, kind, **settings):
        self.pipeline = pipelines(kind, **settings)
        self._kept = tmp_path / "kept"
        self.directories = [self.pipeline.home, Path(self.pipeline.rig.directory)]
        self.set_up(self.pipeline)
        other = pipelines(kind, **settings)
        self.set_up(other, first=50)
        self.other = other.home.parent
        for directory in self.directories:
            shutil.copytree(directory, self._kept / directory.name)
        self._served = kind in {"postgres", "mysql"}
        for table in OWN if self._served else ():
            self.pipeline.rig.sql(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")

    def set_up(self, pipeline, first=0):
        for _ in range(4):
            pipeline.run()
        pipeline.run(rows_of(first), rows_of(first + 1))
        pipeline.run(rows_of(first + 2), is_dying=True)

    def files(self, pattern):
        return [path for directory in self.directories for path in sorted(directory.glob(pattern)) if path.is_file()]

    def put_back(self):
        for directory in self.directories:
            shutil.rmtree(directory)
            shutil.copytree(self._kept / directory.name, directory)
        for table in OWN if self._served else ():
            self.pipeline.rig.sql(f"DELETE FROM {table}")
            self.pipeline.rig.sql(f"INSERT INTO {table} SELECT * FROM kept_{table}")

    def judge(self, told, *, is_unseen=False):
        """Start, and have Spark deliver up to batch 3. Gives whether it was refused.

        What `is_unseen` has the size that was decided: nobody reads it before it is published, but then `verify` tells.
        """
        refusal = None
        try:
            self.go_on()
        except PenstockError as found:
            refusal = found
        if refusal is not None:
            assert refusal.remedy, told
            assert self.pipeline.content() in (self.content(2), self.content(3), self.content(4)), told
        elif is_unseen:
            assert not self.pipeline.verify().ok, told
        else:
            assert self.pipeline.content() == self.content(4), told
        return refusal is not None

    def go_on(self):
        """As Spark does: whatever is not decided by the ledger comes again."""
        self.pipeline.recover()
        while (number := self.pipeline.decided()) < DECIDED + 1:
            self.pipeline.run(rows_of(number))

    def content(self, batches):
        return sum((expected(self.pipeline.batch(rows_of(number))) for number in range(batches)), Counter())


OWN = ("t", "penstock_marker", "penstock_batch")
MARKER = "UPDATE penstock_marker SET "
MARKERS = {
    "removed": "DELETE FROM penstock_marker",
    "of another pipeline": f"{MARKER} pipeline = 'another'",
    "of another sink": f"{MARKER} sink = 'another'",
    "of another table": f"{MARKER} table_name = 'another'",
    "of another ledger": f"{MARKER} ledger_id = '{'a7' * 16}'",
    "of a newer format": f"{MARKER} format_version = 99",
    "of the opening before": f"{MARKER} position = 1",
    "of no position": f"{MARKER} position = 0",
    "a position before": f"{MARKER} position = position - 1",
    "a position after": f"{MARKER} position = position + 1",
    "far beyond": f"{MARKER} position = position + 100",
    "of an older generation": f"{MARKER} generation = generation - 1",
    "of a newer generation": f"{MARKER} generation = generation + 1",
    "of another query": f"{MARKER} query_id = '5f0c9f0e-0000-4000-8000-000000000002'",
    "of the batch before": f"{MARKER} batch_id = batch_id - 1",
    "of the batch after": f"{MARKER} batch_id = batch_id + 1",
    "another number of rows": f"{MARKER} rows_after = rows_after + 1",
    "another digest": f"{MARKER} digest_after = '0000000000000000'",
    "of the batch before, whole": f"{MARKER} position = position - 1, batch_id = batch_id - 1, rows_after = 30",
    "rows removed": "DELETE FROM t WHERE id = 3",
    "rows changed": "UPDATE t SET name = 'other' WHERE id = 3",
    "rows doubled": "INSERT INTO t SELECT * FROM t WHERE id = 3",
}
SEEN_BY_VERIFY = {"rows removed", "rows changed", "rows doubled"}


@pytest.mark.parametrize("kind", TABLES)
def test_a_damaged_marker_is_refused_or_does_no_harm(pipelines, tmp_path, kind):
    scene = Scene(pipelines, tmp_path, kind, inline_limit_bytes=0)
    for case, statement in MARKERS.items():
        scene.pipeline.rig.sql(statement)
        if case in SEEN_BY_VERIFY:
            scene.go_on()
            assert not scene.pipeline.verify().ok, case
        else:
            scene.judge(case)
        scene.put_back()
    scene.go_on()
    assert scene.pipeline.content() == scene.content(4)
    assert scene.pipeline.verify().ok


WHERE = {
    "entries": ("ledger/entries/*/*", (*OF_FILES, doubled)),
    "hint": ("ledger/hint", OF_FILES),
    "spool": ("spool/**/*", OF_FILES),
    "staging": ("lake/.penstock-staging/**/*", OF_FILES),
}


@pytest.mark.parametrize(
    ("kind", "where", "inline_limit_bytes"),
    [
        ("sqlite", "entries", 0),
        ("sqlite", "entries", 100_000),
        ("sqlite", "hint", 0),
        ("sqlite", "spool", 0),
        ("parquet", "entries", 0),
        ("parquet", "staging", 0),
    ],
)
def test_a_damaged_file_is_refused_or_does_no_harm(pipelines, tmp_path, kind, where, inline_limit_bytes):
    scene = Scene(pipelines, tmp_path, kind, inline_limit_bytes=inline_limit_bytes)
    pattern, damages = WHERE[where]
    files = scene.files(pattern)
    assert files
    refused = Counter()
    for file in files[:2] + files[-4:] if where == "entries" else files:
        for damage in damages:
            told = f"{damage.__name__} {file}"
            before = file.read_bytes()
            damage(file, scene.other)
            is_unseen = file.suffix == ".staged" and file.exists() and is_other(before, file.read_bytes())
            refused[scene.judge(told, is_unseen=is_unseen)] += 1
            scene.put_back()
    scene.go_on()
    assert scene.pipeline.content() == scene.content(4)
    assert scene.pipeline.verify().ok
    assert refused[True] or where == "hint"


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
@pytest.mark.parametrize("inline_limit_bytes", [0, 100_000], ids=["spooled", "inline"])
def test_a_bit_of_the_newest_decision_that_is_flipped(pipelines, tmp_path, kind, inline_limit_bytes):
    scene = Scene(pipelines, tmp_path, kind, inline_limit_bytes=inline_limit_bytes)
    newest = scene.files("ledger/entries/*/*")[-1]
    for number in range(FLIPS):
        damage = flipped((number + 0.5) / FLIPS, bit=(SEED + number) % 8)
        damage(newest, scene.other)
        scene.judge(f"bit {(SEED + number) % 8} at {number} of {FLIPS}, {SEED=}")
        scene.put_back()
