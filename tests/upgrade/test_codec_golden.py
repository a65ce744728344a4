"""Every version of every durable value, byte by byte: what was once written must be read for ever.

A golden file is never changed. A new version adds a file and a line to the table.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint.act import Change
from penstock.checkpoint.act_record import ActRecord, Checksum, RecordedStep, decode_act, encode_act
from penstock.core.backfill import Backfilled, BackfillProgress
from penstock.core.codec import (
    decode_document,
    decode_entry,
    decode_marker,
    decode_owner,
    encode_document,
    encode_entry,
    encode_marker,
    encode_owner,
)
from penstock.core.high_water_mark import AccountOwner, MarkedFile, Marker
from penstock.core.model import (
    AccountName,
    Adopted,
    Batch,
    BatchId,
    Body,
    Decided,
    Decision,
    Entry,
    Generation,
    LedgerId,
    Nonce,
    OffsetRange,
    Opened,
    PipelineName,
    Position,
    QueryId,
    Removal,
    RemovalAccepted,
    Rewound,
    RowDigest,
    SinkName,
    SourceName,
    Staged,
    Summary,
    Totals,
)
from penstock.core.topics import Evidence, FilesRead, GapAccepted, GapKind, InputFile, PartitionRead, TopicRead
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
FLIGHTS, LAKE, NEWARK = PipelineName("flights"), SinkName("lake"), AccountName("EWR")
QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
TOTALS = Totals(rows=1000, files=1, size_bytes=54_321, digest=0xFEDC_BA98_7654_3210)
LEDGER_ID = LedgerId("8d969eef6ecad3c29a3a629280e686cf")
TOKEN = "g2-b7-p0-t3-0123456789abcdef"

DECIDED_BODY = Decided(
    decision=Decision(
        batch=Batch(
            query_id=QUERY,
            batch_id=BatchId(7),
            offsets=(
                OffsetRange(source=SourceName("flights"), start=None, end='{"logOffset":7}', content="9f86d081884c7d65"),
                OffsetRange(source=SourceName("weather"), start='{"w":{"0":5}}', end='{"w":{"0":9}}'),
            ),
        ),
        staged=(
            Staged(
                sink=LAKE,
                account=NEWARK,
                name=f"origin=EWR/caf\u00e9/part-{TOKEN}.parquet",
                attempt=TOKEN,
                totals=TOTALS,
                ref={"upload": "abc", "parts": [{"number": 1, "etag": '"x"'}], "last": None, "share": 0.5, "whole": True},
            ),
            Staged(
                sink=SinkName("table"),
                account=AccountName(""),
                name="piece",
                attempt=TOKEN,
                totals=Totals(),
                inline=b"\x00\xffrows",
            ),
        ),
        rows_in=1001,
        schema='{"type":"struct","fields":[]}',
        stage_ms=412,
        previous_publish_ms=88,
    )
)
COUNTED_BODY = Decided(decision=replace(DECIDED_BODY.decision, stage_requests=3, previous_publish_requests=11))
GAPS = (
    GapAccepted(
        kind=GapKind.EXPIRED,
        source=SourceName("weather"),
        topic="w",
        topic_id="Jx/+2Q",
        partition=0,
        first=5,
        end=7,
    ),
)
TOPICS_BODY = Decided(
    decision=replace(
        COUNTED_BODY.decision,
        previous_publish_requests=None,
        evidence=Evidence(
            topics=(
                TopicRead(
                    source=SourceName("weather"),
                    topic="w",
                    topic_id="Jx/+2Q",
                    partitions={
                        0: PartitionRead(start=5, end=9, low=7, high=12),
                        2: PartitionRead(start=0, end=0, low=0, high=0),
                        10: PartitionRead(start=1, end=1, low=1, high=1),
                    },
                ),
            ),
            gaps=GAPS,
        ),
    )
)
SELECTED_BODY = Decided(
    decision=replace(DECIDED_BODY.decision, schemas={LAKE: '{"type":"struct","fields":[]}', SinkName("caf\u00e9"): "{}"})
)
FILES_BODY = Decided(
    decision=replace(
        SELECTED_BODY.decision,
        evidence=Evidence(
            files=(
                FilesRead(
                    source=SourceName("flights"),
                    files=(
                        InputFile("file:///in/month=3/caf%C3%A9.csv", 1_767_225_600_123),
                        InputFile("file:///in/month=4/a.csv", 1_767_225_601_000),
                    ),
                ),
                FilesRead(source=SourceName("weather"), files=(InputFile("file:///w/b.csv", 1_767_225_602_000),)),
            ),
        ),
    )
)
DROPPED = {SourceName("flights"): {"delay": 3, "from_new_york": 40}}
DROPPED_BODY = Decided(decision=replace(SELECTED_BODY.decision, dropped=DROPPED))
OPENED_BODY = Opened(
    owner="host:4711",
    checkpoint="/state/flights/checkpoint",
    pipeline_digest="2c26b46b68ffc68f",
    sinks=(LAKE, SinkName("table")),
    versions={"penstock": "0.1.0", "pyspark": "4.3.0"},
)
ADOPTED_BODY = Adopted(query_id=QUERY, next_batch_id=BatchId(3), reason="checkpoint lost", operator="ann")
ADOPTED_ANY_BODY = Adopted(query_id=None, next_batch_id=BatchId(0), reason="a new one", operator="ann")

REMOVAL_BODY = RemovalAccepted(
    removals=(
        Removal(
            sink=LAKE,
            account=NEWARK,
            decided=((Position(1), Position(5)), (Position(7), Position(7))),
            files=(f"origin=EWR/part-{TOKEN}.parquet",),
            totals=TOTALS,
            unchecked=Totals(rows=3, files=1, size_bytes=400),
        ),
    ),
    reason="older than 90 days",
    operator="ann",
)


def entry(body: Body, summary: Summary) -> Entry:
    return Entry(
        pipeline=FLIGHTS,
        position=Position(12),
        generation=Generation(2),
        nonce=Nonce("00112233aabbccdd"),
        written_at_ms=1_767_225_600_000,
        body=body,
        summary=summary,
    )


SUMMARY = Summary(
    query_id=QUERY,
    next_batch_id=BatchId(8),
    decided_at=Position(12),
    published_at=Position(11),
    adopted_at=Position(9),
    totals={LAKE: {NEWARK: TOTALS}},
)
REMOVED_SUMMARY = replace(SUMMARY, ledger_id=LEDGER_ID, removed={LAKE: {NEWARK: TOTALS}}, removed_at=Position(10))
REWOUND_BODY = Rewound(batch_id=BatchId(5), to=Position(9), kept=(SinkName("table"),), reason="a wrong join", operator="operator")
REWOUND_SUMMARY = replace(
    REMOVED_SUMMARY,
    next_batch_id=BatchId(6),
    rewound_at=Position(13),
    rewinding_at=Position(13),
    ahead={SinkName("table"): BatchId(7)},
)
BACKFILLED_BODY = Backfilled(
    sink=LAKE,
    original=Position(5),
    previous=Position(11),
    decision=replace(SELECTED_BODY.decision, evidence=TOPICS_BODY.decision.evidence),
)
BACKFILLED_SUMMARY = replace(
    REMOVED_SUMMARY,
    backfills={
        LAKE: BackfillProgress(first=Position(3), through=Position(5), newest=Position(12), ended=False),
        SinkName("table"): BackfillProgress(first=Position(2), through=Position(9), newest=Position(10), ended=True),
    },
)
DROPPED_SUMMARY = replace(REMOVED_SUMMARY, dropped=DROPPED)
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
ENTRIES = {
    "entry-1-opened": entry(OPENED_BODY, Summary()),
    "entry-1-decided": entry(DECIDED_BODY, SUMMARY),
    "entry-2-decided": entry(COUNTED_BODY, SUMMARY),
    "entry-3-decided": entry(TOPICS_BODY, SUMMARY),
    "entry-3-adopted": entry(replace(ADOPTED_BODY, gaps=GAPS), SUMMARY),
    "entry-1-adopted": entry(ADOPTED_BODY, SUMMARY),
    "entry-1-adopted-any": entry(ADOPTED_ANY_BODY, SUMMARY),
    "entry-4-opened": entry(OPENED_BODY, replace(SUMMARY, ledger_id=LEDGER_ID)),
    "entry-4-decided": entry(DECIDED_BODY, replace(SUMMARY, ledger_id=LEDGER_ID, row_digest=RowDigest.XXHASH64_NULLS)),
    "entry-4-adopted": entry(ADOPTED_BODY, replace(SUMMARY, ledger_id=LEDGER_ID)),
    "entry-5-decided": entry(SELECTED_BODY, replace(SUMMARY, ledger_id=LEDGER_ID, row_digest=RowDigest.XXHASH64_NULLS)),
    "entry-6-removal": entry(REMOVAL_BODY, REMOVED_SUMMARY),
    "entry-6-decided": entry(SELECTED_BODY, REMOVED_SUMMARY),
    "entry-6-opened": entry(OPENED_BODY, REMOVED_SUMMARY),
    "entry-6-adopted": entry(ADOPTED_BODY, REMOVED_SUMMARY),
    "entry-7-rewound": entry(REWOUND_BODY, REWOUND_SUMMARY),
    "entry-7-decided": entry(SELECTED_BODY, replace(REWOUND_SUMMARY, rewinding_at=None)),
    "entry-7-opened": entry(OPENED_BODY, replace(REWOUND_SUMMARY, rewinding_at=None, ahead={})),
    "entry-7-removal": entry(REMOVAL_BODY, replace(REWOUND_SUMMARY, removed_at=Position(13))),
    "entry-8-decided": entry(FILES_BODY, replace(SUMMARY, ledger_id=LEDGER_ID, row_digest=RowDigest.XXHASH64_NULLS)),
    "entry-9-backfilled": entry(BACKFILLED_BODY, BACKFILLED_SUMMARY),
    "entry-9-decided": entry(SELECTED_BODY, BACKFILLED_SUMMARY),
    "entry-9-opened": entry(OPENED_BODY, BACKFILLED_SUMMARY),
    "entry-9-adopted": entry(ADOPTED_BODY, BACKFILLED_SUMMARY),
    "entry-9-removal": entry(REMOVAL_BODY, BACKFILLED_SUMMARY),
    "entry-10-decided": entry(DROPPED_BODY, DROPPED_SUMMARY),
    "entry-10-decided-nothing-dropped": entry(SELECTED_BODY, DROPPED_SUMMARY),
    "entry-10-opened": entry(OPENED_BODY, DROPPED_SUMMARY),
    "entry-10-adopted": entry(ADOPTED_BODY, DROPPED_SUMMARY),
    "entry-10-removal": entry(REMOVAL_BODY, DROPPED_SUMMARY),
}


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
