"""Runs of a real pipeline that tell others: a collector, a catalog, and whoever is on call; also where each of them is broken."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.commandline import penstock
from tests.unit.receivers import Receiver, closed_url, receiving
from tests.unit.test_lineage import checked
from tests.unit.test_telemetry import metrics, spans, values

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FILE = """\
pipeline: shop
home: ./state
sources: {{orders: {{format: rate-micro-batch, options: {{rowsPerBatch: 5}}}}}}
transform: {{sql: "SELECT value, 'geheim-row' AS word FROM orders WHERE {where}"}}
sinks:
  warehouse: {{type: sqlite, url: "sqlite:///warehouse.db", table: orders}}
  lake: {{type: parquet, accounts: {{all: ./lake}}}}
on_event: {{pager: {{url: "{pager}/services/geheim-path-0001", headers: {{X-Key: geheim-header}}, timeout: 1s}}}}
opentelemetry: {{endpoint: "{collector}", headers: {{X-Key: geheim-header}}, timeout: 1s}}
openlineage: {{url: "{catalog}", token: geheim-token, timeout: 1s}}
"""


@pytest.fixture(name="receivers")
def _receivers() -> Iterator[tuple[Receiver, Receiver, Receiver]]:
    with ExitStack() as opened:
        pager, collector, catalog = (opened.enter_context(receiving()) for _ in range(3))
        yield pager, collector, catalog


def test_a_collector_a_catalog_and_a_pager_hear_of_a_run_and_its_failure(
    tmp_path: Path, receivers: tuple[Receiver, Receiver, Receiver]
) -> None:
    pager, collector, catalog = receivers
    urls = {"pager": pager.url, "collector": collector.url, "catalog": catalog.url}
    (tmp_path / "f.yaml").write_text(FILE.format(where="assert_true(value < 12) IS NULL", **urls))
    done = penstock("run", "f.yaml", "--json", directory=tmp_path)
    assert done.code == 1, str(done)
    assert [each.json["type"] for each in pager.requests] == ["pipeline.failed"]
    found = spans(collector)
    roots = [span for span in found if span.name == "deliver batch"]
    assert [values(span.attributes)["penstock.batch.id"] for span in roots] == [0, 1]
    first = [span for span in found if span.trace_id == roots[0].trace_id and span.parent_span_id]
    assert {"stage", "publish warehouse", "publish lake", "write offset log"} <= {span.name for span in first}
    assert [values(span.attributes)["error.type"] for span in found if span.name == "end run"] != []
    measured = metrics(collector)
    rows = {values(each.attributes)["sink"]: each.as_double for each in measured["penstock_sink_rows"].sum.data_points}
    assert rows == {"warehouse": 10, "lake": 10}
    events = [checked(each) for each in catalog.requests]
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    counts = {each["name"]: each["outputFacets"]["outputStatistics"]["rowCount"] for each in events[-1]["outputs"]}
    assert counts == {f"{tmp_path}/warehouse.db/orders": 10, f"{tmp_path}/lake": 10}
    fields = events[-1]["outputs"][0]["facets"]["schema"]["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("value", "bigint"), ("word", "string")]
    bodies = b"".join(each.body for receiver in receivers for each in receiver.requests)
    assert b"geheim" not in bodies

    (tmp_path / "f.yaml").write_text(FILE.format(where="true", **urls))
    done = penstock("run", "f.yaml", "--batches", "1", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    assert [each.json["type"] for each in pager.requests] == ["pipeline.failed", "pipeline.recovered"]
    assert "geheim" not in done.out + done.err


def test_receivers_that_hang_or_are_away_hold_up_no_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.observe.export.observation.FLUSH_S", 0.5)
    with receiving(hangs=True) as hanging:
        urls = {"pager": closed_url(), "collector": hanging.url, "catalog": hanging.url}
        (tmp_path / "f.yaml").write_text(FILE.format(where="true", **urls))
        done = penstock("run", "f.yaml", "--batches", "2", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    verified = penstock("verify", "f.yaml", directory=tmp_path)
    assert verified.code == 0, str(verified)
    for name in ("opentelemetry", "openlineage"):
        assert f"{name}: " in caplog.text
    assert "geheim" not in caplog.text
