"""The rigs of the kafka sink: topics on a real broker, and how tests read and damage them with a client of their own."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.in_tasks import run_in_turn
from tests.conformance.table_rig import GONE, ForgottenSpool, Spooled, TableRig, TruncatedSpool
from tests.servers.fixtures import server, unique
from tests.servers.kafka import records, remove_first, send
from tests.unit.table_target import spark_schema

from penstock.core.model import SinkName
from penstock.sink.kafka.sink import KafkaSink
from penstock.sink.kafka.target import TopicTarget
from penstock.testing.conformance import PIPELINE, Row
from penstock.testing.conformance.rig import HOSTILE

HEADERS = {
    "type": "array",
    "containsNull": True,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}


class KafkaRig(TableRig):
    """A topic of one partition, so that a reader sees a batch at once. Small pieces inline."""

    schema = spark_schema(value="binary", key="string", headers=HEADERS)
    partitions = 1
    lanes = 1
    transaction_bytes = 1_000_000_000

    def __init__(self, directory: Path, bootstrap: str, topic: str) -> None:
        super().__init__(directory)
        self.bootstrap, self.topic = bootstrap, topic

    def make(self, **changed: Any) -> KafkaSink:
        settings: dict[str, Any] = {
            "name": SinkName(f"into_{self.topic}"),
            "pipeline": PIPELINE,
            "bootstrap": self.bootstrap,
            "target": TopicTarget(topic=self.topic, markers=f"{self.topic}.markers"),
            "spool": str(self.directory / "spool"),
            "lanes": self.lanes,
            "transaction_bytes": self.transaction_bytes,
            "inline_limit_bytes": self.inline_limit_bytes,
        }
        return KafkaSink(**{**settings, **changed})

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [self.row(number) for number in ids]

    def row(self, number: int) -> dict[str, Any]:
        """No two are alike, and none lacks its headers: a record without any and one with an empty list are the same."""
        hostile = HOSTILE[number % len(HOSTILE)]
        headers = [{"key": hostile.replace("\0", ""), "value": value} for value in (None, b"", b"\0\xff")[: number % 4]]
        value = None if number % 13 == 12 and number % 3 else f"{number} {hostile}".encode()
        return {"value": value, "key": f"{number}" if number % 3 else None, "headers": headers}

    def read_back(self) -> Iterable[Row]:
        return as_rows(records(self.bootstrap, self.topic))

    def damage(self, kind: str) -> None:
        if kind == "lost":
            remove_first(self.bootstrap, self.topic)
            return
        newest = records(self.bootstrap, self.topic)[-1]
        value = newest.value() if kind == "doubled" else b"foreign"
        send(self.bootstrap, self.topic, value=value, key=newest.key(), headers=newest.headers(), partition=newest.partition())

    def execute(self, statement: str) -> int:
        raise NotImplementedError(statement)


class SpooledRig(Spooled, KafkaRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, KafkaRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, KafkaRig):
    pass


class LanesRig(SpooledRig):
    """Two lanes into three partitions. Transactions of both are open in a partition at once, and readers of what is
    committed stop at the first record of the older one: what the other one has committed behind that appears later, row by row.
    """

    schema = spark_schema(key="string", value="binary", headers=HEADERS, partition="integer")
    partitions = 3
    lanes = 2
    whole_batches = False

    def row(self, number: int) -> dict[str, Any]:
        return {**super().row(number), "partition": number % self.partitions}

    def unit_of(self, row: Row) -> object:
        return row["partition"], row["value"], row["key"]

    def read_back(self) -> Iterable[Row]:
        found = records(self.bootstrap, self.topic)
        return [{**row, "partition": message.partition()} for row, message in zip(as_rows(found), found, strict=True)]


class InTasksRig(LanesRig):
    """The lanes are published as tasks of Spark do it, one after the other."""

    def make(self, **changed: Any) -> KafkaSink:
        sink = super().make(**changed)
        sink.publish_by(run_in_turn)
        return sink


class PartsRig(SpooledRig):
    """Transactions of a few rows, so that a batch takes several."""

    transaction_bytes = 1_000
    whole_batches = False

    def unit_of(self, row: Row) -> object:
        return row["value"], row["key"]


class Deleting(KafkaRig):
    """Some rows delete, and are shown as tombstones."""

    has_deletes = True

    def make(self, **changed: Any) -> KafkaSink:
        return super().make(**{"deletes": True, **changed})

    def row(self, number: int) -> dict[str, Any]:
        row = super().row(number)
        return {**row, "key": f"{number}", "value": f"{GONE} {number}".encode()} if number % 7 == 3 else row

    def deletes(self, row: Row) -> bool:
        return (row["value"] or b"").startswith(GONE.encode())

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return [{**row, "value": None} if self.deletes(row) else row for batch in batches for row in batch]


class DeleteRig(Deleting, SpooledRig):
    pass


class DeleteLanesRig(Deleting, LanesRig):
    pass


def as_rows(messages: Sequence[Any]) -> list[Row]:
    return [
        {
            "value": message.value(),
            "key": None if message.key() is None else message.key().decode(),
            "headers": [{"key": key, "value": value} for key, value in message.headers() or ()],
        }
        for message in messages
    ]


def rig_on_server(rig: type[KafkaRig], directory: Path) -> KafkaRig:
    """On the broker of this run, with a new topic that keeps everything."""
    running = server("kafka")
    topic = running.topic(unique("t"), rig.partitions, retention_ms="-1", retention_bytes="-1")
    (directory / "rig").mkdir()
    return rig(directory / "rig", running.bootstrap, topic)
