"""Rows that delete in Kafka: each is a record of its key without a value, decided and counted as that."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from tests.conformance.topic_rig import HEADERS, as_rows
from tests.seed import SEED
from tests.servers.kafka import records
from tests.unit.kafka_target import topics
from tests.unit.table_target import GONE, spark_schema

from penstock.core import faults
from penstock.core.deletes import schema_with_deletes, with_deletes
from penstock.core.model import NEWEST_ROW_DIGEST
from penstock.core.row_hash import row_hashes
from penstock.errors import StageFailed, Usage
from penstock.sink.kafka.tombstones import Tombstones
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.rig import as_batch

topic = pytest.fixture(topics)

ROWS = spark_schema(value="string", key="string")
# Of a transaction only behind its commit: where a producer ends while librdkafka registers partitions once more, since the broker
# was not done with the transaction before, it ends the process (rdkafka_txnmgr.c: Assertion `rk->rk_eos.txn_req_cnt > 0').
FAULTS = {False: ["", "kafka.commit=lost"], True: ["", "kafka.mark=error", "kafka.mark=lost"]}


class Changes:
    """A topic of changes: rows of the value GONE delete. `there`: values by key, as a reader has them who applies all records."""

    def __init__(self, place):
        self.place, self.there = place, {}
        place.rig.has_deletes, place.rig.deletes = True, lambda row: row["value"] == GONE

    def decided(self, sink, *attempts, batch_id):
        """Each attempt has keys of its own, since only the rows of one task are in order."""
        named = [[{"value": value, "key": key} for key, value in rows] for rows in attempts]
        staged = [(rows, self.place.stage(sink, rows, batch_id=batch_id, partition=at)) for at, rows in enumerate(named)]
        for row in (row for rows in named for row in rows):
            self.there[row["key"]] = row["value"]
        return self.place.decide(*staged, batch_id=batch_id).publication

    @property
    def wanted(self):
        return {key: value for key, value in self.there.items() if value != GONE}

    def read(self):
        """The newest value of each key, by a client that knows nothing of Penstock."""
        newest = {message.key().decode(): message.value() for message in records(self.place.rig.bootstrap, self.place.rig.topic)}
        return {key: value.decode() for key, value in newest.items() if value is not None}


@pytest.mark.parametrize(
    "options", [{}, {"lanes": 2}, {"transaction_bytes": 300}, {"keyed": True}], ids=["one lane", "lanes", "parts", "keyed"]
)
def test_random_changes_equal_a_replay_in_memory(topic, options):
    """Several changes of a key in one batch, by drivers that lose answers and are replaced, applied as a reader applies them."""
    print("seed", SEED)
    chance = random.Random(f"{SEED} {options}")
    changes = Changes(topic(schema=ROWS, partitions=3, deletes=True, **options))
    place, decided = changes.place, 0
    sink = place.sink()
    for number in range(12):
        rows = [(f"{chance.randrange(30)}", chance.choice([GONE, f"{number}-{at}"])) for at in range(chance.choice([1, 20, 80]))]
        attempts = [[row for row in rows if int(row[0]) % 2 == part] for part in range(2)]
        publication = changes.decided(sink, *attempts, batch_id=number)
        faults.arm(chance.choice(FAULTS[options.get("keyed", False)]))
        for _ in range(3):
            try:
                sink.publish(publication)
            except Exception:  # noqa: BLE001 - of whatever kind it is, the next try goes on
                sink = place.sink()
        faults.arm("")
        assert sink.publish(publication).already
        if chance.random() < 0.3:
            sink.close()
            sink = place.sink()
        decided += len(rows)
        assert changes.read() == changes.wanted, number
    found = records(place.rig.bootstrap, place.rig.topic)
    assert options.get("keyed") or len(found) == decided
    report = place.verify(place.sink())
    assert report.ok, report
    assert report.unread is options.get("keyed", False)


def test_a_tombstone_keeps_all_but_its_value(topic):
    place = topic(schema=spark_schema(value="string", key="string", headers=HEADERS), deletes=True)
    changes, headers = Changes(place), [{"key": "why", "value": b"left"}]
    sink = place.sink()
    rows = [
        {"value": GONE, "key": "1", "headers": headers},
        {"value": GONE, "key": "2", "headers": []},
        {"value": "stays", "key": "3", "headers": []},
        {"value": None, "key": "4", "headers": None},
    ]
    shown = place.decide((rows, place.stage(sink, rows, batch_id=0)), batch_id=0)
    sink.publish(shown.publication)
    found = as_rows(records(place.rig.bootstrap, place.rig.topic))
    assert found == [
        {"value": None, "key": "1", "headers": headers},
        {"value": None, "key": "2", "headers": []},
        {"value": b"stays", "key": "3", "headers": []},
        {"value": None, "key": "4", "headers": []},
    ]
    assert place.verify(sink).ok
    assert changes.read() == {"3": "stays"}


def test_a_value_that_is_not_written_need_not_fit(topic):
    """It may be larger than the topic takes."""
    changes = Changes(topic(schema=ROWS, deletes=True, settings={"max_message_bytes": "2000"}))
    place = changes.place
    place.rig.deletes = lambda row: row["value"].startswith(GONE)
    sink = place.sink()
    sink.publish(changes.decided(sink, [("1", GONE + "x" * 3000)], batch_id=0))
    assert [message.value() for message in records(place.rig.bootstrap, place.rig.topic)] == [None]
    assert place.verify(sink).ok


def test_a_batch_is_published_as_it_was_decided_whether_rows_delete_or_not(topic):
    changes = Changes(topic(schema=ROWS, deletes=True))
    place = changes.place
    publication = changes.decided(place.sink(), [("1", GONE), ("2", "a")], batch_id=0)
    place.rig.options["deletes"] = place.rig.has_deletes = False
    sink = place.sink()
    sink.publish(publication)
    plain = changes.decided(sink, [("2", GONE)], batch_id=1)
    place.rig.options["deletes"] = True
    sink = place.sink()
    sink.publish(plain)
    assert changes.read() == {"2": GONE}
    assert place.verify(sink).ok


def test_a_row_deletes_by_its_key(topic):
    changes = Changes(topic(schema=ROWS, deletes=True))
    sink = changes.place.sink()
    with pytest.raises(StageFailed, match="NULL in column 'key' of a row that deletes"):
        changes.decided(sink, [(None, GONE)], batch_id=0)
    keyless = topic(schema=spark_schema(value="string"), deletes=True)
    for act in (keyless.sink, lambda: keyless.rig.make().require_schema_accepted(pipeline=PIPELINE, schema=keyless.rig.schema)):
        with pytest.raises(Usage, match="`delete_when` is given, and the rows have no column 'key'"):
            act()


def test_what_is_staged_of_a_tombstone_has_the_hash_of_what_a_topic_shows():
    rows = as_batch([{"value": "a", "key": "1"}, {"value": GONE, "key": "2"}], ROWS)
    given = with_deletes(rows, pa.array([False, True]))
    staged, hashes = Tombstones(row_digest=NEWEST_ROW_DIGEST).bare(given, row_hashes(rows, NEWEST_ROW_DIGEST))
    shown = as_batch([{"value": "a", "key": "1"}, {"value": None, "key": "2"}], ROWS)
    assert Counter(hashes.to_pylist()) == Counter(row_hashes(shown, NEWEST_ROW_DIGEST).to_pylist())
    assert staged.to_pylist() == shown.to_pylist()
    assert Tombstones(row_digest=NEWEST_ROW_DIGEST).schema_of(schema_with_deletes(rows.schema)).names == ["value", "key"]
