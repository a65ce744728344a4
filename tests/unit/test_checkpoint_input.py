"""Input files that are not what Spark planned the batch with."""

import os
from pathlib import Path

import pytest

from penstock.checkpoint.input_check import as_found, require_unchanged
from penstock.checkpoint.source_log import InputFile
from penstock.errors import InputChanged
from penstock.model import BatchId, SourceName

S = SourceName("s")


def listed(path: Path) -> InputFile:
    return InputFile(path.as_uri(), path.stat().st_mtime_ns // 1_000_000)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("plain.csv", "with space.csv", "#?%20ü.csv")]
    for path in paths:
        path.write_text("1\n")
        os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    return paths


def test_unchanged_files_pass(files: list[Path]) -> None:
    require_unchanged(BatchId(3), {S: [listed(path) for path in files], SourceName("none"): []})


def test_a_file_that_is_gone(files: list[Path]) -> None:
    inputs = [listed(path) for path in files]
    files[1].unlink()

    with pytest.raises(InputChanged) as raised:
        require_unchanged(BatchId(3), {S: inputs})
    assert raised.value.message == f"Input of batch 3 was changed under source s: {files[1]} is gone."


def test_a_file_that_was_written_again(files: list[Path]) -> None:
    inputs = [listed(path) for path in files]
    os.utime(files[2], ns=(0, 1_700_000_000_124_000_000))

    with pytest.raises(InputChanged, match=r"was modified at 1700000000\.124, expected 1700000000\.123"):
        require_unchanged(BatchId(3), {S: inputs})


def test_many_changes_are_counted(tmp_path: Path) -> None:
    inputs = [InputFile((tmp_path / str(number)).as_uri(), 0) for number in range(5)]

    with pytest.raises(InputChanged, match=r"/2 is gone and 2 more\. "):
        require_unchanged(BatchId(3), {S: inputs})


def test_other_stores_are_not_looked_at() -> None:
    require_unchanged(BatchId(3), {S: [InputFile("s3a://bucket/a.csv", 1), InputFile("hdfs://name/b.csv", 1)]})


def test_files_that_were_mended_before_the_run_are_taken_as_they_are(files: list[Path]) -> None:
    inputs = {S: (*map(listed, files), InputFile("s3a://bucket/a.csv", 1))}
    os.utime(files[2], ns=(0, 1_700_000_000_124_000_000))
    files[1].unlink()

    found = as_found(inputs)

    assert [file.modified_ms for file in found[S]] == [1_700_000_000_123, 1_700_000_000_123, 1_700_000_000_124, 1]
    with pytest.raises(InputChanged) as raised:
        require_unchanged(BatchId(3), found)
    assert raised.value.message == f"Input of batch 3 was changed under source s: {files[1]} is gone."
