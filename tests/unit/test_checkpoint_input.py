"""Input files that are not what Spark planned the batch with."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.checkpoint.input_listing import FileState, InputListing, require_unchanged
from penstock.checkpoint.source_log import InputFile
from penstock.core.model import BatchId, SourceName
from penstock.errors import InputChanged, Retryable

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


def test_a_file_that_cannot_be_looked_at_is_told_and_not_taken_for_unchanged(files: list[Path]) -> None:
    inputs = {S: [listed(path) for path in files]}
    files[1].unlink()
    files[1].symlink_to(files[1].name)
    with pytest.raises(Retryable, match="cannot be looked at: links lead in a circle"):
        require_unchanged(BatchId(3), inputs)


def test_many_changes_are_counted(tmp_path: Path) -> None:
    inputs = [InputFile((tmp_path / str(number)).as_uri(), 0) for number in range(5)]

    with pytest.raises(InputChanged, match=r"/2 is gone and 2 more\. "):
        require_unchanged(BatchId(3), {S: inputs})


def test_other_stores_are_not_looked_at() -> None:
    require_unchanged(BatchId(3), {S: [InputFile("s3a://bucket/a.csv", 1), InputFile("hdfs://name/b.csv", 1)]})


def test_a_file_that_was_cut_short_is_delivered_again_once_the_remedy_is_carried_out(files: list[Path]) -> None:
    """The remedy for a file that was mended: its time says that the change is meant."""
    inputs = {S: [listed(path) for path in files]}
    files[1].write_text("")
    with pytest.raises(InputChanged, match=r"with space\.csv was modified at") as raised:
        require_unchanged(BatchId(3), inputs)
    command = raised.value.remedy.rpartition(": ")[2].removesuffix(".")
    assert command.startswith("touch -d @1700000000.123 ")
    subprocess.run(command, shell=True, check=True)  # as a person would
    require_unchanged(BatchId(3), inputs)


def test_the_remedy_for_a_file_on_hdfs_names_its_time() -> None:
    look = InputListing()
    look.at = lambda files: [FileState(size_bytes=1, modified_ms=7)] * len(files)  # type: ignore[method-assign]
    with pytest.raises(InputChanged) as raised:
        require_unchanged(BatchId(3), {S: [InputFile("hdfs://name:8020/in/a.csv", 1_700_000_000_123)]}, look=look)
    assert raised.value.remedy.endswith("expected: 1700000000123 ms, by the operation SETTIMES of WebHDFS.")
