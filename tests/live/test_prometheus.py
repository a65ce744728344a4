"""A real Prometheus scrapes `penstock metrics`, evaluates its rules and answers what the dashboard asks."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
from tests.servers.prometheus import asked, first_alerts, scraping
from tests.servers.server import NotInstalledError

from penstock.core.model import PipelineName
from penstock.ledger.open import open_ledger
from penstock.observe.alerts import ALERTS, rule_file
from penstock.observe.dashboard import PANELS
from penstock.observe.endpoint import server_of
from penstock.observe.listening import Listening
from penstock.observe.page.watched import Watched
from penstock.run.pipeline import Pipeline
from penstock.testing.entries import decided_entry, opened_entry

TOKEN = "of-prometheus-alone"
FILE = """\
pipeline: {name}
home: ./{name}
sources: {{orders: {{format: csv, path: ./incoming, schema: id INT}}}}
sinks: {{lake: {{type: parquet, accounts: {{EWR: ./{name}-lake}}}}}}
"""


def watched(directory: Path, name: str, *, batches: int) -> Watched:
    """Of a pipeline whose ledger has that many decisions, of which its sink shows nothing."""
    file = directory / f"{name}.yaml"
    file.write_text(FILE.format(name=name))
    (directory / name).mkdir()
    with closing(open_ledger(f"sqlite:///{directory}/{name}/ledger.db", pipeline=PipelineName(name))) as ledger:
        entry = opened_entry(pipeline=PipelineName(name))
        ledger.append(entry)
        for _ in range(batches):
            entry = decided_entry(after=entry)
            ledger.append(entry)
    pipeline = Pipeline.from_file(file)
    return pipeline.watched()


@pytest.fixture(name="prometheus")
def _prometheus(tmp_path: Path) -> Iterator[str]:
    """It scrapes two pipelines every second: one has delivered nothing yet, of the other one an account is lost."""
    (tmp_path / "incoming").mkdir()
    pipelines = [watched(tmp_path, "fresh", batches=0), watched(tmp_path, "robbed", batches=3)]
    (tmp_path / "rules.yml").write_text(rule_file())
    with server_of(Listening(host="127.0.0.1", port=0, token=TOKEN), pipelines) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        job = {"job_name": "penstock", "authorization": {"credentials": TOKEN}}
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{**job, "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]}],
        }
        try:
            with scraping(tmp_path, settings=settings) as url:
                yield url
        except NotInstalledError as missing:
            pytest.skip(str(missing))
        finally:
            server.shutdown()
            thread.join()


def test_the_alert_of_a_lost_account_fires_and_every_rule_and_panel_is_evaluated(prometheus: str) -> None:
    (alert,) = first_alerts(prometheus)
    assert (alert["labels"]["alertname"], alert["labels"]["pipeline"]) == ("PenstockPlaceLost", "robbed")
    assert alert["annotations"]["summary"] == "Sink lake EWR of robbed is lost."
    (group,) = asked(f"{prometheus}/api/v1/rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert [rule for rule in group["rules"] if rule.get("lastError")] == []
    for panel in PANELS:
        for expression in panel.expressions.values():
            written = expression.replace("$__rate_interval", "4s").replace("$pipeline", ".*")
            assert asked(f"{prometheus}/api/v1/query?query={quote(written)}")["resultType"] == "vector"
