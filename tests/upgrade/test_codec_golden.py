"""Every version of every durable value, byte by byte: what was once written must be read for ever.

A golden file is never changed. A new version adds a file and a line to the table.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.upgrade.golden_entries import ENTRIES, FLIGHTS, LAKE, LEDGER_ID, NEWARK, QUERY, TOKEN

from penstock.checkpoint.act import Change
from penstock.checkpoint.act_record import ActRecord, Checksum, RecordedStep, decode_act, encode_act
from penstock.core.adopted_files import AdoptedFiles
from penstock.core.codec import (
    decode_adopted_files,
    decode_document,
    decode_entry,
    decode_marker,
    decode_owner,
    encode_adopted_files,
    encode_document,
    encode_entry,
    encode_marker,
    encode_owner,
)
from penstock.core.high_water_mark import AccountOwner, MarkedFile, Marker
from penstock.core.model import (
    BatchId,
    Generation,
    LedgerId,
    Position,
    Totals,
)
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.run.preflight.description import RecordedRun, RunDescription, decode_run, encode_run
from penstock.sink.dbapi.trial import TrialResult
from penstock.sink.dbapi.trial_record import decode_trial, encode_trial
from penstock.sink.kafka.marker_store import Beginning, LaneMarker, Part, decode_lane_marker, encode_lane_marker
from penstock.sink.own.mark import Mark, decode_mark, encode_mark
from penstock.sink.table.marker import TableMarker
from penstock.supervise.lease import LeaseRecord, decode_lease, encode_lease
from penstock.testing.entries import chain
from penstock.transform.state_held import StateHeld

GOLDEN = Path(__file__).with_name("golden")

MARKER = Marker(
    pipeline=FLIGHTS,
    sink=LAKE,
    account=NEWARK,
    position=Position(12),
    generation=Generation(2),
    query_id=QUERY,
    batch_id=BatchId(7),
)
MARKERS = {
    "marker-1": MARKER,
    "marker-2": replace(MARKER, files=(MarkedFile(name=f"origin=EWR/part-{TOKEN}.parquet", rows=1000, size_bytes=54_321),)),
    "marker-2-no-files": replace(MARKER, files=()),
    "marker-3": replace(
        MARKER, files=(MarkedFile(name=f"origin=EWR/part-{TOKEN}.parquet", rows=1000, size_bytes=54_321),), ledger_id=LEDGER_ID
    ),
}
OWN_MARK = Mark(
    marker=TableMarker(
        pipeline=FLIGHTS,
        sink=LAKE,
        table_name="lake",
        write="append",
        position=Position(12),
        generation=2,
        query_id=QUERY,
        batch_id=7,
        offsets='[{"source":"flights","start":null,"end":{"logOffset":7}}]',
        schema='{"type":"struct","fields":[]}',
        decided=Totals(rows=1000, digest=0xFEDC_BA98_7654_3210),
        after=Totals(rows=1000, digest=0xFEDC_BA98_7654_3210),
    ),
    batches={Position(12): (QUERY, 7, "9f86d081884c7d65", 1000, "fedcba9876543210")},
)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_of_any_version_is_read_and_written_as_ever(name: str) -> None:
    assert decode_entry(golden(name)) == ENTRIES[name]
    assert encode_entry(ENTRIES[name]) == golden(name)


@pytest.mark.parametrize("name", sorted(MARKERS))
def test_a_marker_of_any_version_is_read_and_written_as_ever(name: str) -> None:
    assert decode_marker(golden(name)) == MARKERS[name]
    assert encode_marker(MARKERS[name]) == golden(name)


def test_whose_an_account_is_is_read_and_written_as_ever() -> None:
    owner = AccountOwner(pipeline=FLIGHTS, sink=LAKE, account=NEWARK, ledger_id=LEDGER_ID)
    assert decode_owner(golden("owner-1"), where="It") == owner
    assert encode_owner(owner) == golden("owner-1")


def test_what_an_account_was_taken_over_with_is_read_and_written_as_ever() -> None:
    adopted = AdoptedFiles(batch_id=BatchId(7), sizes={"origin=EWR/part-00000-c000.snappy.parquet": 54_321, "ü.parquet": 0})
    assert decode_adopted_files(golden("adopted-files-1"), where="It") == adopted
    assert encode_adopted_files(adopted) == golden("adopted-files-1")


def test_an_own_mark_of_version_1_is_read_and_written_as_ever() -> None:
    text = golden("own-mark-1").decode()
    assert decode_mark(text, pipeline=FLIGHTS, sink=LAKE) == OWN_MARK
    assert encode_mark(OWN_MARK) == text


def test_an_own_mark_of_version_2_carries_its_ledger() -> None:
    mark, text = named(OWN_MARK), golden("own-mark-2").decode()
    assert decode_mark(text, pipeline=FLIGHTS, sink=LAKE) == mark
    assert encode_mark(mark) == text


def test_a_marker_in_kafka_of_version_2_carries_its_ledger() -> None:
    topics = {"flights": Beginning(identity="VGhpc0lzQVRvcGljSWQ", offsets=(0, 12))}
    mark, data = LaneMarker(lane=1, mark=named(OWN_MARK), topics=topics), golden("kafka-marker-2")
    assert decode_lane_marker(data, pipeline=FLIGHTS, sink=LAKE) == mark
    assert encode_lane_marker(mark) == data


def named(mark: Mark) -> Mark:
    return replace(mark, marker=replace(mark.marker, ledger_id=LedgerId("5e" * 16)))


def test_a_marker_in_kafka_of_version_1_is_read_and_written_as_ever() -> None:
    data = golden("kafka-marker-1")
    mark = LaneMarker(
        lane=1,
        mark=OWN_MARK,
        topics={"flights": Beginning(identity="VGhpc0lzQVRvcGljSWQ", offsets=(0, 12))},
        part=Part(position=Position(13), digest=0xFEDCBA9876543210, rows=500),
    )
    assert decode_lane_marker(data, pipeline=FLIGHTS, sink=LAKE) == mark
    assert encode_lane_marker(mark) == data
    whole = replace(mark, part=None)
    assert decode_lane_marker(encode_lane_marker(whole), pipeline=FLIGHTS, sink=LAKE) == whole


def test_a_trial_of_version_1_is_read_and_written_as_ever() -> None:
    kept = TrialResult(required=("id",), lacking={"delay": ("NaN", "an infinity")}, longest={"origin": 100})
    text = golden("dbapi-trial-1").decode()
    assert decode_trial(text, shape="9f86d081884c7d65") == kept
    assert decode_trial(text, shape="another") is None
    assert encode_trial(kept, shape="9f86d081884c7d65") == text


@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("ledger-hint-1", "penstock.ledger.hint", {"position": 24}),
        ("ledger-floor-1", "penstock.ledger.floor", {"pipeline": "flights", "position": 20}),
        (
            "ledger-lease-1",
            "penstock.lease",
            {
                "pipeline": "flights",
                "holder": "00112233aabbccdd",
                "owner": "host process 7",
                "lease_ms": 5000,
                "released": False,
            },
        ),
    ],
)
def test_the_ledgers_own_documents_of_version_1_are_read_and_written_as_ever(
    name: str, kind: str, fields: dict[str, object]
) -> None:
    assert decode_document(golden(name), kind=kind, newest=1, where="It") == (1, fields)
    assert encode_document(kind, 1, fields) == golden(name)  # type: ignore[arg-type]


def test_the_lease_is_read_and_written_as_ever() -> None:
    record = LeaseRecord(pipeline=FLIGHTS, holder="00112233aabbccdd", owner="host process 7", lease_ms=5000, released=False)
    assert decode_lease(golden("ledger-lease-1"), where="It") == record
    assert encode_lease(record) == golden("ledger-lease-1")
    store = MemoryStore()
    assert LogLedger(store, pipeline=FLIGHTS).append_lease(7, encode_lease(record))
    assert store.get("lease/000000000007") == golden("ledger-lease-1")


def test_the_log_lays_its_objects_out_as_ever() -> None:
    store, flights = MemoryStore(), chain(pipeline=FLIGHTS)
    ledger = LogLedger(store, pipeline=FLIGHTS)
    for _ in range(24):
        ledger.append(next(flights))
    ledger.prune(below=Position(20))
    assert list(store.keys("")) == [*(f"entries/000000000/{at:012d}" for at in range(20, 25)), "floor/000000000020", "hint"]
    assert store.get("hint") == golden("ledger-hint-1")
    assert store.get("floor/000000000020") == golden("ledger-floor-1")


def test_the_record_of_an_act_on_a_checkpoint_is_read_and_written_as_ever() -> None:
    before, after = Checksum(sha256="9f" * 32, size_bytes=581), Checksum(sha256="0c" * 32, size_bytes=45)
    steps = (
        RecordedStep(change=Change.REMOVE, place="offsets/7", reason="later batches", before=before, after=None),
        RecordedStep(change=Change.WRITE, place="sources/0/6.compact", reason="input files", before=None, after=after),
    )
    record = ActRecord(
        verb="rewind",
        request={"to_batch": 6},
        sentence="The checkpoint goes back to the end of batch 6.",
        written_at_ms=1_760_000_000_000,
        metadata_before=after,
        metadata_after=after,
        newest_after=(6, -1),
        steps=steps,
    )
    assert decode_act(golden("checkpoint-act-1"), where="act.json") == record
    assert encode_act(record) == golden("checkpoint-act-1")
    always = replace(record, metadata_before=None, newest_after=None)
    assert decode_act(encode_act(always), where="act.json") == always


def test_a_run_s_description_of_version_1_is_read_and_written_as_ever() -> None:
    description = RunDescription(
        query={"output_mode": "append", "transform.sql": "SELECT 1", "trigger": "processing_time 10000"},
        sources={"flights": {"format": "csv", "options.sep": "|", "path": "/in/caf\u00e9"}},
        sinks={"lake": {"accounts.EWR.url": "/lake/ewr", "type": "parquet"}},
        versions={"penstock": "0.1.0", "spark": "4.3.0"},
        state=(
            StateHeld(kind="dedupe", keys="[id]", holds=""),
            StateHeld(kind="symmetricHashJoin", keys="x", holds="", opaque=1),
        ),
    )
    run = RecordedRun(pipeline=FLIGHTS, ledger_id=LEDGER_ID, generation=Generation(7), description=description)
    assert decode_run(golden("run-1")) == run
    assert encode_run(run) == golden("run-1")
    unseen = replace(run, ledger_id=None, description=replace(description, state=None))
    assert decode_run(encode_run(unseen)) == unseen


def test_every_golden_file_is_looked_at() -> None:
    names = {
        *ENTRIES,
        *MARKERS,
        "owner-1",
        "adopted-files-1",
        "own-mark-1",
        "own-mark-2",
        "kafka-marker-1",
        "kafka-marker-2",
        "dbapi-trial-1",
        "savepoint-1",
        "checkpoint-act-1",
        "ledger-hint-1",
        "ledger-floor-1",
        "run-1",
        "ledger-lease-1",
    }
    assert {path.stem for path in GOLDEN.iterdir()} == names
