"""The example of docs/howto/eventhubs.md is a pipeline file that leads where the page says."""

import re
from pathlib import Path

import pytest
from tests.unit.test_eventhubs import KEY, NAMESPACE

from penstock.run.pipeline import Pipeline
from penstock.spec.kafka import Kafka

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "eventhubs.md"


def test_it_is_taken_and_shows_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS", f"{NAMESPACE};EntityPath=orders")
    monkeypatch.setenv("NAMESPACE", NAMESPACE)
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    file = tmp_path / "orders.yaml"
    file.write_text(example[1])
    pipeline = Pipeline.from_file(str(file))
    [sink], source = pipeline.settings.sinks.values(), pipeline.settings.sources["orders"]
    assert isinstance(sink, Kafka)
    assert source.options["subscribe"] == "orders"
    assert source.options["kafka.bootstrap.servers"] == sink.bootstrap == "shop.servicebus.windows.net:9093"
    assert KEY not in repr(pipeline.settings)
