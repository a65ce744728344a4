"""`penstock run` serves metrics from before its query starts until it has ended: the transform of a real run asks for them."""

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

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
