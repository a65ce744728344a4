"""Rows of a real query, written by a schema of a real registry into a real topic; killed in the middle of a commit, too."""

import io
import signal
from collections import Counter
from pathlib import Path

import fastavro
import pytest

from penstock.registry.wire import HEAD, schema_id_of
from tests.servers.fixtures import server, unique
from tests.servers.kafka import records
from tests.spark.page import Done, run, run_beside
from tests.spark.test_readme import feed
from tests.spark.test_registry_page import PAGE
from tests.unit.registry_values import record

pytestmark = pytest.mark.usefixtures("spark")

PIPELINE = PAGE.blocks("yaml")[2]
FLIGHT = record(
    {"name": "id", "type": "int"},
    {"name": "origin", "type": ["null", "string"]},
    {"name": "month", "type": "int"},
    {"name": "delay", "type": ["null", "double"]},
    name="Flight",
)


class Flights:
    """The page's pipeline in a directory, into a topic of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.topic = server("kafka").topic(unique("encoded"), 1, retention_ms="-1", retention_bytes="-1")
        text = PIPELINE.replace("topic: flights", f"topic: {self.topic}").replace("flights-out", self.topic)
        (directory / "out.yaml").write_text(text)

    def register(self, schema: object) -> int:
        return int(server("registry").register(f"{self.topic}-value", schema))

    def run(self, verb: str, *, faults: str = "") -> Done:
        places = {"KAFKA": server("kafka").bootstrap, "REGISTRY": server("registry").url}
        command = f"penstock {verb} out.yaml"
        if faults:
            return run(self.directory, command, faults=faults, environment=places)
        return run_beside(self.directory, command, environment=places)

    def rows(self, schema_id: int) -> "Counter[tuple[object, ...]]":
        found = Counter[tuple[object, ...]]()
        for message in records(server("kafka").bootstrap, self.topic):
            assert schema_id_of(message.value()) == schema_id
            row = fastavro.schemaless_reader(io.BytesIO(message.value()[HEAD:]), fastavro.parse_schema(FLIGHT), None)
            assert isinstance(row, dict)
            assert message.key().decode() == row["origin"]
            found[row["id"], row["origin"], row["month"], row["delay"]] += 1
        return found


def test_rows_are_written_by_the_schema_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    schema_id, sent = flights.register(FLIGHT), feed(tmp_path / "incoming")
    killed = flights.run("run", faults="kafka.rows=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    newer = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "more", "type": ["null", "string"], "default": None}]}
    assert flights.register(newer) != schema_id
    recovered = flights.run("recover")  # by the bytes that are decided, whatever the registry says now
    assert recovered.returncode == 0, recovered.stdout + recovered.stderr
    assert flights.rows(schema_id) == sent
    verified = flights.run("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, "does not have a subject"),
        (record({"name": "id", "type": "long"}, name="Flight"), "value.id is integer, expected long"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_the_start(tmp_path: Path, schema: object, told: str) -> None:
    flights = Flights(tmp_path)
    feed(tmp_path / "incoming")
    if schema is not None:
        flights.register(schema)
    refused = flights.run("run")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert told in " ".join((refused.stdout + refused.stderr).split())
