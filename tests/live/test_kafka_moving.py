"""The recipe of docs/howto/take_over.md that takes over the offsets of a consumer group, on a real broker."""

import json
import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from tests.servers.fixtures import server, unique

from penstock.spec.source import Source

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "take_over.md"


def test_it_prints_where_a_group_stopped() -> None:
    running, group = server("kafka"), unique("old-job")
    topic = running.topic(unique("moved"), partitions=3)
    old = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group})
    old.commit(offsets=[TopicPartition(topic, 0, 4711), TopicPartition(topic, 2, 0)], asynchronous=False)
    old.close()
    recipe = re.search(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    assert recipe is not None
    said = recipe[1].replace('"host:9092", "old-job", ["orders"]', f"{running.bootstrap!r}, {group!r}, [{topic!r}]")
    assert said != recipe[1]
    starts = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True).stdout.strip()
    assert json.loads(starts) == {topic: {"0": 4711, "1": -2, "2": 0}}
    options = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": topic, "startingOffsets": starts}
    assert Source(format="kafka", options=options).options["startingOffsets"] == starts
