"""How much input a batch has, told from the checkpoint alone."""

from pathlib import Path

import pytest

from penstock.checkpoint.input_listing import PlannedInput, planned_input
from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.core.topics import InputFile


def batch(*ranges: tuple[str, str | None, str | None]) -> Batch:
    offsets = tuple(OffsetRange(source=SourceName(name), start=start, end=end) for name, start, end in ranges)
    return Batch(query_id=QueryId("query"), batch_id=BatchId(1), offsets=offsets)


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        ('{"offset":1000,"timestamp":5}', '{"offset":3500,"timestamp":9}', 2500),
        ('{"a":{"0":5,"1":7},"b":{"0":1}}', '{"a":{"0":6,"1":7},"b":{"0":11}}', 11),
        ('{"a":{"0":5}}', '{"a":{"0":5}}', 0),
        (None, None, 0),
    ],
)
def test_sources_that_count_records(start: str | None, end: str | None, records: int) -> None:
    assert planned_input(batch(("s", start, end)), {}) == PlannedInput(records=records)


@pytest.mark.parametrize(("start", "end"), [("3", "8"), (None, '{"a":{"0":5}}'), (None, '{"x":1}'), ("what", "ever")])
def test_sources_that_do_not_say(start: str | None, end: str | None) -> None:
    """Seconds of the rate source, a first Kafka batch, and whatever is not known."""
    assert planned_input(batch(("s", start, end)), {}) is None


def test_files_are_as_large_as_they_lie_there(tmp_path: Path) -> None:
    files = tuple(InputFile(f"file://{tmp_path}/{name}", 1) for name in ("a%20b", "c"))
    (tmp_path / "a b").write_bytes(b"x" * 30)
    (tmp_path / "c").write_bytes(b"y" * 12)
    planned = batch(("f", None, '{"logOffset":0}'), ("k", '{"t":{"0":1}}', '{"t":{"0":3}}'))
    assert planned_input(planned, {SourceName("f"): files}) == PlannedInput(records=2, size_bytes=42)


@pytest.mark.parametrize("url", ["s3://bucket/a", "file:///nowhere/at/all"])
def test_files_that_cannot_be_seen(url: str) -> None:
    assert planned_input(batch(("f", None, '{"logOffset":0}')), {SourceName("f"): (InputFile(url, 1),)}) is None
