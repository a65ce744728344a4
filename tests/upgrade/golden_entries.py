"""Entries of every version of the ledger's format, as the golden files have them."""

from dataclasses import replace

from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened, BackfillProgress
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
from penstock.core.replay import Replayed
from penstock.core.topics import Evidence, FilesRead, GapAccepted, GapKind, InputFile, PartitionRead, TopicRead

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
ROWS_READ_BODY = Decided(decision=replace(DROPPED_BODY.decision, rows_read={SourceName("flights"): 1_044}))
REPLAYED_BODY = Replayed(records=5, previous=Position(11), decision=DROPPED_BODY.decision)
REPLAYED_SUMMARY = replace(DROPPED_SUMMARY, replayed_at=Position(12), replaying_at=Position(12))
BESIDE = BackfillProgress(
    first=Position(3),
    through=Position(5),
    newest=Position(12),
    ended=False,
    writer=Nonce("4455667788990011"),
    apart=True,
    lacking=Position(11),
    awaited=True,
)
BESIDE_SUMMARY = replace(
    REPLAYED_SUMMARY,
    replaying_at=None,
    backfills={
        LAKE: BESIDE,
        SinkName("table"): BackfillProgress(first=Position(2), through=Position(9), newest=Position(10), ended=True),
    },
)
JOINED_SUMMARY = replace(
    BESIDE_SUMMARY, backfills={LAKE: replace(BESIDE, through=Position(11), ended=True, apart=False, awaited=False)}
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
    "entry-11-decided": entry(ROWS_READ_BODY, DROPPED_SUMMARY),
    "entry-11-replayed": entry(REPLAYED_BODY, REPLAYED_SUMMARY),
    "entry-11-opened": entry(OPENED_BODY, replace(REPLAYED_SUMMARY, replaying_at=None)),
    "entry-11-adopted": entry(ADOPTED_BODY, replace(REPLAYED_SUMMARY, replaying_at=None)),
    "entry-11-removal": entry(REMOVAL_BODY, REPLAYED_SUMMARY),
    "entry-12-backfill-opened": entry(
        BackfillOpened(sink=LAKE, writer=Nonce("4455667788990011"), owner="host:4711"), BESIDE_SUMMARY
    ),
    "entry-12-backfilled": entry(BACKFILLED_BODY, BESIDE_SUMMARY),
    "entry-12-decided": entry(ROWS_READ_BODY, BESIDE_SUMMARY),
    "entry-12-opened": entry(OPENED_BODY, BESIDE_SUMMARY),
    "entry-12-adopted": entry(ADOPTED_BODY, BESIDE_SUMMARY),
    "entry-12-removal": entry(REMOVAL_BODY, BESIDE_SUMMARY),
    "entry-12-backfill-ended": entry(BackfillEnded(sink=LAKE, joins=True), JOINED_SUMMARY),
}
