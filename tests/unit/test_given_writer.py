"""A writer that is handed to `Delivery.start` may come from a query of plain Spark, and says then where the rows go."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import Usage
from penstock.run.given_writer import note_started, require_no_place, require_writer, sink_in


class Writer:
    def foreachBatch(self, function: object) -> "Writer":  # noqa: N802 - Spark's name
        return self


def ask(writer: Any = None, *, checkpoint: str = "/jobs/state/checkpoint", sink: str | None = None, **options: str) -> None:
    require_no_place(writer or Writer(), sink=sink, options=options, checkpoint=checkpoint)  # type: ignore[arg-type]


def test_anything_else_than_a_writer_is_refused_with_the_line_to_write() -> None:
    require_writer(Writer())
    with pytest.raises(Usage, match=r"takes a DataStreamWriter, found an object of class SimpleNamespace") as refused:
        require_writer(SimpleNamespace())
    assert "delivery.start(df.writeStream" in refused.value.remedy


@pytest.mark.parametrize(
    ("given", "checkpoint"),
    [
        ("/old/checkpoint", "/jobs/state/checkpoint"),
        ("s3a://lake/old", "s3a://lake/state"),
        ("s3a://lake/state", "s3a://other/state"),
        ("hdfs:///old", "hdfs://name:8020/state"),
    ],
)
def test_a_checkpoint_of_its_own_is_refused(given: str, checkpoint: str) -> None:
    with pytest.raises(
        Usage, match=r"has the option checkpointLocation, .*old|has the option checkpointLocation, s3a"
    ) as refused:
        ask(checkpoint=checkpoint, checkpointlocation=given)
    assert f'checkpoint="{given}"' in refused.value.remedy


@pytest.mark.parametrize(
    ("given", "checkpoint"),
    [
        ("/jobs/state/checkpoint/", "file:///jobs/state/checkpoint"),
        ("file:/jobs/a b", "file:///jobs/a%20b"),
        ("/state", "hdfs://name:8020/state"),
        ("s3a://lake/state/", "s3a://lake/state"),
    ],
)
def test_the_delivery_s_own_checkpoint_may_be_named(given: str, checkpoint: str) -> None:
    ask(checkpoint=checkpoint, checkpointlocation=given)


def test_a_relative_checkpoint_and_one_behind_a_link_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    ask(checkpoint=f"file://{tmp_path}/real/c", checkpointlocation="link/c")


@pytest.mark.parametrize("options", [{"sink": "`foreachBatch`"}, {"path": "/lake"}])
def test_a_sink_of_its_own_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(Usage, match=r"writes somewhere itself \(.*(foreachBatch|path).*\), which would get no rows"):
        ask(**options)


def test_a_writer_that_a_delivery_has_started_may_be_started_again() -> None:
    writer: Any = Writer()
    note_started(writer)
    ask(writer, sink="`foreachBatch`", checkpointlocation="/elsewhere")


@pytest.mark.parametrize(
    ("source", "called"),
    [("foreachBatch", "`foreachBatch`"), ("foreach", "`foreach`"), ("delta", "`format('delta')`"), ("parquet", None), ("", None)],
)
def test_how_a_person_calls_the_sink(source: str, called: str | None) -> None:
    assert sink_in(source, default="parquet") == called
