"""`penstock run` serves metrics from before its query starts until it has ended: the transform of a real run asks for them."""

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from penstock.core.model import BatchId
from penstock.observe.batch_record import DeliveryRecord, SparkRecord, records_of
from tests.crash.commandline import penstock
from tests.servers.server import free_port

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate-micro-batch, options: {rowsPerBatch: 5}}}
transform: {python: "asking:asked"}
sinks: {warehouse: {type: sqlite, url: "sqlite:///warehouse.db", table: orders}}
metrics: {listen: "127.0.0.1:PORT"}
"""
ASKING = """
from pathlib import Path
from urllib.request import urlopen

def asked(spark, sources):
    with urlopen("http://127.0.0.1:PORT/metrics", timeout=60) as answer, Path("seen").open("a") as seen:
        seen.write(answer.read().decode())
    with urlopen("http://127.0.0.1:PORT/pipelines/shop", timeout=60) as answer:
        Path("page").write_text(answer.read().decode())
    return sources["orders"]
"""


def test_a_run_answers_while_it_runs(tmp_path: Path) -> None:
    port = str(free_port())
    (tmp_path / "f.yaml").write_text(FILE.replace("PORT", port))
    (tmp_path / "asking.py").write_text(ASKING.replace("PORT", port))
    for before in ('penstock_health{pipeline="shop",state="new"} 1.0', 'penstock_decided_batch_id{pipeline="shop"} 1.0'):
        done = penstock("run", "f.yaml", "--batches", "2", "--json", directory=tmp_path)
        assert done.code == 0, str(done)
        assert before in (tmp_path / "seen").read_text()
        (tmp_path / "seen").unlink()
        with pytest.raises(URLError, match="refused"):
            urlopen(f"http://127.0.0.1:{port}/livez", timeout=10)
    assert_noted(tmp_path / "state")
    page = (tmp_path / "page").read_text()
    for text in ("batch 1: 5 rows in", "sink warehouse (sqlite)", "write offset log", "process", "runs"):
        assert text in page


def assert_noted(home: Path) -> None:
    """Each delivered batch was noted, and by Spark at least the first one of each run: a stop does not wait for its figures."""
    records = records_of(str(home), set(map(BatchId, range(4))))
    noted = [record for record in records if isinstance(record, DeliveryRecord)]
    delivered = [record for record in noted if not record.already]  # Spark may not have logged the end of a run's last batch
    assert [(record.generation, record.batch_id, set(record.sink_ms)) for record in delivered] == [
        (1, 0, {"warehouse"}),
        (1, 1, {"warehouse"}),
        (2, 2, {"warehouse"}),
        (2, 3, {"warehouse"}),
    ]
    of_spark = {record.batch_id: record for record in records if isinstance(record, SparkRecord)}
    assert {0, 2} <= of_spark.keys()
    first = of_spark[BatchId(0)]
    assert first.execute_ms >= delivered[0].stage_ms
    assert first.total_ms >= first.execute_ms + first.offset_log_ms + first.commit_log_ms
    assert (first.state_rows, first.watermark) == (None, None)
