"""Sources that Spark knows by name, of journals, Kafka and other pipelines: reordered, added and taken out, every row once."""

import json
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.checkpoint.explanation import explain
from penstock.checkpoint.inspection import inspect_checkpoint
from penstock.checkpoint.verification import verify_checkpoint
from penstock.errors import Refused
from penstock.journal.event import Event
from penstock.journal.journal import Journal, JournalLimits
from penstock.run.rebuilding import rebuild_checkpoint
from tests.servers.fixtures import server, unique
from tests.servers.kafka import await_settled
from tests.spark.streams import forget_commit, put

SOURCES = ("a", "b", "c")


class Feed(ABC):
    """Brings events into sources of one kind, each by its name."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.directory, self.spark = directory, spark

    @abstractmethod
    def settings(self, name: str) -> Mapping[str, Any]:
        """The source as a pipeline file has it; its column `value` has the events."""

    @abstractmethod
    def add(self, name: str, text: str) -> None:
        """Bring one event."""


class Journals(Feed):
    def settings(self, name: str) -> Mapping[str, Any]:
        return {"format": "journal", "path": str(self.directory / "journals" / name)}

    def add(self, name: str, text: str) -> None:
        limits = JournalLimits(least_free_bytes=0)
        journal = Journal(self.directory / "journals" / name, now_us=lambda: 1_700_000_000_000_000, limits=limits)
        journal.append([Event(value=text.encode())])
        journal.commit()
        journal.close()


class Topics(Feed):
    def __init__(self, directory: Path, spark: SparkSession) -> None:
        super().__init__(directory, spark)
        self._topics = {name: unique("named") for name in SOURCES}
        for name in SOURCES:
            server("kafka").topic(self._topics[name])
        self._producer = Producer({"bootstrap.servers": server("kafka").bootstrap})

    def settings(self, name: str) -> Mapping[str, Any]:
        options = {
            "kafka.bootstrap.servers": server("kafka").bootstrap,
            "subscribe": self._topics[name],
            "startingOffsets": "earliest",
        }
        return {"format": "kafka", "reader": "python", "options": options}

    def add(self, name: str, text: str) -> None:
        self._producer.produce(self._topics[name], text.encode())
        self._producer.flush()
        await_settled(server("kafka").bootstrap, self._topics[name], 1)


class Tables(Feed):
    """Each source is the table of a pipeline of its own."""

    def settings(self, name: str) -> Mapping[str, Any]:
        return {"format": "penstock", "path": str(self._file(name))}

    def add(self, name: str, text: str) -> None:
        folder = self.directory / "in" / name
        put(folder, f"{len(list(folder.glob('*')))}.csv", text)
        lake = {"type": "parquet", "accounts": {"all": str(self.directory / "lakes" / name)}}
        settings = {
            "pipeline": f"of_{name}",
            "home": str(self.directory / f"state-{name}"),
            "sources": {"lines": {"format": "csv", "path": str(folder), "schema": "value STRING"}},
            "sinks": {"lake": lake},
            "trigger": {"available_now": True},
        }
        self._file(name).write_text(json.dumps(settings))
        Pipeline.from_file(self._file(name)).start(self.spark).awaitTermination()

    def _file(self, name: str) -> Path:
        return self.directory / f"of_{name}.yaml"


class Events:
    """A pipeline that unites some of the sources."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.directory, self.spark = feed, feed.directory, feed.spark
        self.checkpoint = self.directory / "state/checkpoint"
        self.expected: Counter[str] = Counter()

    def add(self, *names: str) -> None:
        for name in names:
            text = f"{name} {sum(self.expected.values())}"
            self.feed.add(name, text)
            self.expected[text] += 1

    def reading(self, *names: str) -> Pipeline:
        settings = {
            "pipeline": "events",
            "home": str(self.directory / "state"),
            "named_sources": True,
            "sources": {name: self.feed.settings(name) for name in names},
            "transform": {"sql": " UNION ALL ".join(f"SELECT CAST(value AS STRING) AS t FROM {name}" for name in names)},
            "sinks": {"table": {"type": "sqlite", "url": f"sqlite:///{self.directory}/events.db", "table": "events"}},
            "trigger": {"available_now": True},
        }
        file = self.directory / "events.yaml"
        file.write_text(json.dumps(settings))
        return Pipeline.from_file(file)

    def deliver(self, pipeline: Pipeline) -> None:
        pipeline.start(self.spark).awaitTermination()
        with closing(sqlite3.connect(self.directory / "events.db")) as connection:
            assert Counter(text for (text,) in connection.execute("SELECT t FROM events")) == self.expected
        assert pipeline.verify().ok


@pytest.mark.parametrize(
    "kind", [pytest.param(Journals, id="journal"), pytest.param(Topics, id="kafka"), pytest.param(Tables, id="penstock")]
)
def test_sources_are_reordered_added_and_taken_out(kind: type[Feed], tmp_path: Path, spark: SparkSession) -> None:
    events = Events(kind(tmp_path, spark))
    events.add("a", "b")
    events.deliver(events.reading("a", "b"))
    events.add("a", "b", "b")
    events.deliver(events.reading("b", "a"))
    forget_commit(events.checkpoint, 1)
    events.deliver(events.reading("a", "b"))  # a batch comes again, with its sources in another order
    events.add("a", "c", "c")
    events.deliver(events.reading("c", "b", "a"))
    events.add("c")
    fewer = events.reading("c", "a")
    events.deliver(fewer)
    found = inspect_checkpoint(str(events.checkpoint))
    assert not found.anomalies
    assert {line.split()[1] for line in explain(found).input} == {"a:", "c:"}
    assert [one.meaning for one in verify_checkpoint(str(events.checkpoint)).findings] == []
    with pytest.raises(Refused, match="Earlier batches read a source b"):
        events.reading("c", "a", "b").start(spark)
    events.add("a")
    pipeline = events.reading("a", "c")
    assert rebuild_of_lost(events, pipeline)
    events.deliver(pipeline)


def rebuild_of_lost(events: Events, pipeline: Pipeline) -> bool:
    events.checkpoint.rename(events.directory / "lost")
    return rebuild_checkpoint(pipeline, session=lambda: events.spark, yes=True).done
