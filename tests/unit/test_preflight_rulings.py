"""What single changes mean, where no pipeline is needed to tell."""

import pytest

from penstock.run.preflight.change import PipelineChange, Preflight, Verdict, safe
from penstock.run.preflight.query_rules import COLUMNS, refused_by_sinks
from penstock.run.preflight.sink_rules import sink_ruling
from penstock.run.preflight.source_rules import source_ruling

SAFE, ACTION, BREAKS = Verdict.SAFE, Verdict.SAFE_WITH_ACTION, Verdict.BREAKS


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        pytest.param("/data/b", BREAKS, id="beside"),
        pytest.param("/data/a2", BREAKS, id="longer"),
        pytest.param("/da", BREAKS, id="begins alike"),
        pytest.param("/data/a/b", BREAKS, id="below"),
        pytest.param("/data", ACTION, id="above"),
        pytest.param("file:///data/", ACTION, id="above, as a URL"),
        pytest.param("/data/b/*", ACTION, id="pattern"),
        pytest.param("s3a://bucket/in", BREAKS, id="store"),
    ],
)
def test_another_path_of_files(now: str, verdict: Verdict) -> None:
    """Spark opens the newest batch's files with a plain path as their base, and fails if they lie elsewhere."""
    ruling = source_ruling("path", {"format": "csv", "path": "/data/a"}, {"format": "csv", "path": now}, stateful=False)
    assert ruling.verdict is verdict
    assert verdict is ACTION or f"`path: {now}/*`" in ruling.action


def test_a_plain_path_again_after_a_pattern() -> None:
    before, now = {"format": "csv", "path": "/data/b/*"}, {"format": "csv", "path": "/data/b"}
    assert source_ruling("path", before, now, stateful=False).verdict is ACTION


@pytest.mark.parametrize(("before", "now"), [(None, "merge"), ("upsert", "merge"), ("merge", None), ("merge", "replace")])
def test_rows_that_sql_of_the_user_wrote_or_will_write(before: str | None, now: str | None) -> None:
    values = [{} if write is None else {"write": write} for write in (before, now)]
    assert sink_ruling("write", *values, name="table", unsettled=None).verdict is BREAKS


@pytest.mark.parametrize(
    ("kind", "has_rows", "verdict"),
    [("parquet", True, BREAKS), ("delta", True, BREAKS), ("iceberg", True, ACTION), ("parquet", False, SAFE)],
)
def test_other_partitions(kind: str, verdict: Verdict, *, has_rows: bool) -> None:
    values = [{"type": kind, "partition_by": name} for name in ("day", "month")]
    assert sink_ruling("partition_by", *values, name="lake", unsettled=None, has_rows=has_rows).verdict is verdict


def test_what_a_sink_refuses_is_the_ruling_on_its_own_columns_and_on_all() -> None:
    parts = (COLUMNS, "sinks.one.exclude", "sinks.two.select.id", "sinks.other.exclude", "sinks.one.where", "trigger")
    changes = tuple(PipelineChange.by(safe("Fine."), part, before="a", now="b") for part in parts)
    found = refused_by_sinks(Preflight(changes=changes), {"one": "No column id.", "two": "No column n."})
    broken = {change.part: change.reason for change in found.changes if change.verdict is BREAKS}
    assert broken == {
        COLUMNS: "Sink 'one': No column id.",
        "sinks.one.exclude": "Sink 'one': No column id.",
        "sinks.two.select.id": "Sink 'two': No column n.",
    }
