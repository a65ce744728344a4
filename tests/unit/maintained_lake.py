"""A pipeline into a Delta or an Iceberg table that it maintains, without Spark: one driver after the other, who may die."""

import json
import logging
import time
from pathlib import Path

from tests.attack.growing_lake import GrowingLake
from tests.conformance.iceberg_rig import local

from penstock.commit.verification import LedgerDecisions
from penstock.core.model import SinkName
from penstock.ledger.log import LogLedger
from penstock.sink.delta.vacuum import Vacuum
from penstock.sink.iceberg.expiry import Expiry
from penstock.sink.lake.maintenance import Maintenance
from penstock.sink.parquet.layout import is_parquet
from penstock.testing.conformance import PIPELINE

HOUR_MS = 3_600_000
BY_KEY = {"write": "upsert", "key": ["id"]}
BATCHES = 6


class Died(BaseException):
    """The driver is killed there, as in tests/attack/test_grown_lakes.py."""


class MaintainedLake(GrowingLake):
    """`now_ms`: the clock of maintenance, by default `ahead_ms` of the real one. `every`, `compacts`, `cleans`: what is done."""

    def __init__(self, directory, kind, *, every=1, compacts=True, cleans=False, **settings):
        self.kind, self.every, self.compacts, self.cleans = kind, every, compacts, cleans
        self.ahead_ms, self.retain_last, self.now_ms, self.target_bytes = 0, 1, self._real_ms, 1_000_000
        super().__init__(directory, kind, maintenance=self._maintenance, **settings)

    def _real_ms(self):
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def _maintenance(self, log):
        target_bytes = self.target_bytes if self.compacts else None
        return Maintenance(every=self.every, target_bytes=target_bytes, cleaner=self._cleaner(log) if self.cleans else None)

    def _cleaner(self, log):
        if self.kind == "delta":
            return Vacuum(log=log, after_ms=HOUR_MS, now_ms=self.now_ms)
        return Expiry(log=log, after_ms=HOUR_MS, retain_last=self.retain_last, now_ms=self.now_ms)

    # --- looking

    def active(self):
        """The names of the files of the newest version."""
        return {Path(path).name for path in self.rig.files()}

    def stored(self):
        """The names of all files of rows in the table's directory."""
        root = self.rig.root if self.kind == "delta" else self.rig.root / "data"
        return {path.name for path in root.iterdir() if path.is_file() and is_parquet(path.name)}

    def garbage(self):
        """Staging, and files that no version has or had."""
        had = self.rig.had()
        return [name for name in self.rig.leftovers() if Path(name).name not in had]

    def version(self):
        table = self.rig.table()
        return table.version() if self.kind == "delta" else table.metadata.last_sequence_number

    def is_last_commit_a_rewriting(self):
        """Whether who follows the table's changes passes over its last commit."""
        table = self.rig.table()
        if self.kind == "iceberg":
            return table.current_snapshot().summary.operation.value == "replace"
        text = (self.rig.root / "_delta_log" / f"{table.version():020d}.json").read_text()
        actions = [action for line in text.splitlines() for action in json.loads(line).items()]
        changes = [action["dataChange"] for name, action in actions if name in {"add", "remove"}]
        return bool(changes) and not any(changes)

    def others_changed(self):
        """What somebody else commits, which changes no row."""
        if self.kind == "iceberg":
            transaction = self.rig.table().transaction()
            with transaction.update_snapshot().fast_append():
                pass
            transaction.commit_transaction()
        else:
            table = self.rig.table()
            table.create_write_transaction([], "append", table.schema())

    # --- one driver's part by hand

    def publications(self):
        """What was decided for the sink, the oldest first."""
        ledger = LogLedger(self.store, pipeline=PIPELINE)
        return [*LedgerDecisions(ledger, SinkName("lake"), tail=ledger.tail()).publications()][::-1]

    def maintain_after(self, publication):
        """A round of a driver that published so much, and may be an older one; its warnings."""
        sink = self.rig.make(**self.settings)
        try:
            sink.prepare(pipeline=PIPELINE, schema=None)
            return sink.maintain_target(publication)
        finally:
            sink.close()


def delivered(table, batches=BATCHES):
    """So many batches, each of which replaces the one row."""
    for number in range(batches):
        table.deliver((1, str(number)))
    return table


def files_at(table, version):
    """The names of the files of one version of a Delta table, or of one snapshot of an Iceberg table."""
    if table.kind == "delta":
        return {file.path for file in table.rig.log().at(version).files()}
    tasks = table.rig.table().scan(snapshot_id=version).plan_files()
    return {local(task.file).name for task in tasks}


def failures(caplog):
    """What was said of maintenance that failed, or that left something behind. The log is kept from its level INFO on."""
    said = [record for record in caplog.records if record.name.startswith("penstock.sink.lake")]
    messages = [(record.levelno, record.getMessage()) for record in said]
    return [message for level, message in messages if level >= logging.WARNING or "was not maintained" in message]
