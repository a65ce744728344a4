"""The page about Kafka, its sink: command by command, killed in the middle of a commit, finished by the next run."""

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT
from tests.crash.forked import Forked
from tests.servers.fixtures import server, unique
from tests.servers.kafka import records
from tests.spark.page import Done, assert_told, run, run_beside
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "kafka.md").read_text().partition("## Into Kafka")[2].partition("\n## ")[0]
PIPELINE = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]


class Place:
    """A directory with the page's pipeline in it, and a topic of its own."""

    file, pipeline, name = "kafka.yaml", PIPELINE, "flights-kafka"

    def __init__(self, directory: Path, *, partitions: int = 1, **changes: str) -> None:
        self.directory, self.running = directory, server("kafka")
        self.topic = self.running.topic(unique("page"), partitions, retention_ms="-1", retention_bytes="-1")
        text = self.pipeline.replace("topic: flights", f"topic: {self.topic}").replace(self.name, self.topic)
        for old, new in changes.items():
            text = text.replace(f"{old}:", f"{new}\n    {old}:")
        (directory / self.file).write_text(text)
        self.environment = {**os.environ, "KAFKA_SERVERS": self.running.bootstrap}

    def run(self, command: str, *, faults: str = "", forked: bool = False) -> Done:
        if faults:
            return run(self.directory, command, faults=faults, environment=self.environment, forked=forked)
        return run_beside(self.directory, command, environment=self.environment)

    def start(self) -> "subprocess.Popen[str]":
        words = ["-m", "penstock", "run", self.file, "--json"]
        return Forked(words, cwd=self.directory, env=self.environment, new_session=True)

    def rows(self) -> "Counter[tuple[object, ...]]":
        found = Counter[tuple[object, ...]]()
        for message in records(self.running.bootstrap, self.topic):
            row = json.loads(message.value())
            assert message.key().decode() == row["origin"]
            found[row["id"], row["origin"], row["month"], row.get("delay")] += 1
        return found


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path)
    sent = feed(tmp_path / "incoming")
    explained = place.run("penstock explain kafka.yaml")
    assert explained.returncode == 0, explained.stderr
    assert "one transaction: rows and marker into topic" in " ".join(explained.stdout.split())
    assert place.run("penstock run kafka.yaml", faults="kafka.commit=kill").returncode != 0
    for command in COMMANDS:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    again = place.run("penstock run kafka.yaml --json")
    assert json.loads(again.stdout.splitlines()[-1])["sinks"]["out"]["rows"] == 0


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    place = Place(tmp_path)
    feed(tmp_path / "incoming")
    text = (tmp_path / "kafka.yaml").read_text()
    (tmp_path / "kafka.yaml").write_text(text.replace("to_json(struct(*)) AS value", "delay"))
    assert_told(place.run("penstock run kafka.yaml"), 2, "have a column 'delay', expected value", "to_json(struct(*)) AS value")
    (tmp_path / "kafka.yaml").write_text(text.replace(f"topic: {place.topic}", "topic: never"))
    assert_told(place.run("penstock run kafka.yaml"), 3, "There is no topic 'never'", "kafka-topics --create")
    assert place.rows() == Counter()
