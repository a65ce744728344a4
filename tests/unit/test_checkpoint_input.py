"""Input files that are not what Spark planned the batch with."""

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from penstock.blob.store import Found
from penstock.checkpoint.input_listing import FileState, InputListing, require_unchanged
from penstock.core.model import BatchId, SourceName
from penstock.core.topics import InputFile
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


def test_files_that_are_gone_for_good_count_as_empty_once_the_remedies_are_carried_out(files: list[Path]) -> None:
    """Each refusal names one of them."""
    inputs = {S: [listed(path) for path in files]}
    for path in files:
        path.unlink()
    for _ in files:
        with pytest.raises(InputChanged, match="gone") as raised:
            require_unchanged(BatchId(3), inputs)
        subprocess.run(raised.value.remedy.rpartition(": ")[2].removesuffix("."), shell=True, check=True)  # as a person would
    require_unchanged(BatchId(3), inputs)
    assert [path.read_text() for path in files] == [""] * len(files)


def test_the_remedy_for_a_file_on_hdfs_names_its_time() -> None:
    assert refused("hdfs://name:8020/in/a.csv", seen=FileState(size_bytes=1, modified_ms=7)).endswith(
        "expected: 1700000000123 ms, by the operation SETTIMES of WebHDFS."
    )


PLANNED_MS = 1_700_000_000_123


def refused(url: str, *, seen: FileState, delivered: bool = False) -> str:
    """The remedy of the refusal."""
    look = InputListing()
    look.at = lambda files: [seen] * len(files)  # type: ignore[method-assign]
    with pytest.raises(InputChanged) as raised:
        require_unchanged(BatchId(3), {S: [InputFile(url, PLANNED_MS)]}, look=look, delivered=delivered)
    return raised.value.remedy


COMMANDS = {
    "s3a://bucket/in/a%20b.csv": "aws s3 cp 's3://bucket/in/a b.csv' 's3://bucket/in/a b.csv' "
    "--metadata-directive REPLACE --metadata penstock=1700000000123",
    "abfss://incoming@shop.dfs.core.windows.net/in/a.csv": "az storage blob metadata update --account-name shop "
    "--container-name incoming --name in/a.csv --metadata penstock=1700000000123",
    "gs://bucket/in/a.csv": "gcloud storage objects update gs://bucket/in/a.csv --update-custom-metadata=penstock=1700000000123",
}


@pytest.mark.parametrize(("url", "command"), COMMANDS.items())
@pytest.mark.parametrize(
    "seen", [FileState(size_bytes=None), FileState(size_bytes=1, modified_ms=PLANNED_MS + 1000, step_ms=1000)]
)
def test_the_remedy_for_an_object_is_a_command_of_its_store(url: str, command: str, seen: FileState) -> None:
    """Its time cannot be set: what is put back has a new one."""
    undecided, delivered = (refused(url, seen=seen, delivered=delivered) for delivered in (False, True))
    assert undecided.startswith("Put the files back as they were, or mended, and let nothing write to them. Then note on each ")
    assert delivered.startswith("Put the files back as they were, and let nothing write to them. Then note on each ")
    assert f" `{command}`. Then start again: nothing of the batch was decided." in undecided
    assert f" `{command}`. Then start again: the batch's rows are delivered," in delivered


class Store:
    """Answers for one object that was written, and noted, as given."""

    def __init__(self, written_ms: int, noted: str | None = None) -> None:
        self._found = Found(key="a.csv", size_bytes=1, modified_ms=written_ms, tag=noted)

    def head(self, key: str) -> Found | None:
        return self._found if key == "a.csv" else None


IN_SECONDS = ("s3://bucket", "az://incoming@shop", "gs://bucket")
HDFS = "hdfs://name:8020"


@pytest.mark.parametrize(
    ("written_ms", "noted", "planned_in"),
    [
        (1_700_000_000_123, None, (*IN_SECONDS, HDFS)),
        (1_700_000_000_000, None, IN_SECONDS),
        (1_700_000_001_000, None, ()),
        (1_699_999_999_000, None, ()),
        (1_700_000_001_000, "1700000000123", (*IN_SECONDS, HDFS)),
        (1_700_000_001_000, "1700000001000", ()),
        (1_700_000_001_000, "the tag of a task", ()),
    ],
)
@pytest.mark.parametrize("store", [*IN_SECONDS, HDFS])
def test_the_time_of_an_object_is_compared_as_exactly_as_its_store_tells_it(
    monkeypatch: pytest.MonkeyPatch, store: str, written_ms: int, noted: str | None, planned_in: tuple[str, ...]
) -> None:
    monkeypatch.setattr("penstock.checkpoint.input_listing.open_store", lambda url, options: Store(written_ms, noted))
    inputs = {S: [InputFile(f"{store}/in/a.csv", PLANNED_MS)]}
    expected = nullcontext() if store in planned_in else pytest.raises(InputChanged, match=r"in/a\.csv was modified at")
    with expected:
        require_unchanged(BatchId(3), inputs, look=InputListing(f"{store}/checkpoint"))
