"""What the commands show on a terminal, from values made here: a pipeline in trouble, so that every part of a screen is there."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Group, RenderableType

from penstock.cli import check, doctor, history, run, status, verify
from penstock.cli.output import SafeConsole
from penstock.core.guarantee import at_least_once, exactly_once
from penstock.core.model import (
    AccountName,
    AccountReport,
    BatchId,
    Finding,
    Generation,
    Guarantee,
    Position,
    Problem,
    QueryId,
    RequestEstimate,
    SinkName,
    SinkReport,
    SourceName,
    Totals,
)
from penstock.core.topics import OpenTransaction
from penstock.observe.batch_life import BatchLife
from penstock.observe.driver import Driver
from penstock.observe.history import HistoryRow
from penstock.observe.last_error import LastError
from penstock.observe.progress import BatchProgress, RunSummary, SinkProgress
from penstock.observe.status import CheckpointPosition, PlaceState, Status, WaitingFiles
from penstock.observe.supervision import Supervision
from penstock.run.check import CheckReport
from penstock.run.doctor import AccountState, Diagnosis, PendingPieces
from penstock.run.explain import Costs
from penstock.run.operations import Verification
from penstock.run.preflight.change import PipelineChange, Preflight, breaking
from penstock.run.preflight.sink_rules import removed_sink
from penstock.run.preflight.source_rules import NEW_CHECKPOINT, source_ruling
from penstock.source.kafka.lag import TopicLag

FOLDER = Path(__file__).parent / "screens"
WIDTHS = (80, 140)
NOW_MS = 1_796_000_000_000
LAKE, WAREHOUSE, AUDIT = SinkName("lake"), SinkName("warehouse"), SinkName("audit")
EUROPE, ASIA, ONLY = AccountName("europe"), AccountName("asia"), AccountName("")
LEDGER = "/srv/flights/state/ledger.db"
QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
DENIED = (
    'The login at PostgreSQL db.example:5432/shop fails: password authentication failed for user "penstock". '
    "Correct user and password in the URL."
)

WAITING = Supervision(
    owner="db01 process 4021",
    at_ms=NOW_MS - 120_000,
    state="waiting",
    restarts=1,
    ended="was killed by signal 9",
    next_start_ms=NOW_MS + 12_000,
    log="/srv/flights/state/run.log",
)


def checked() -> RenderableType:
    denied = [
        Finding(subject=subject, ok=False, message=DENIED)
        for subject in ("sink warehouse", "rows for warehouse", "sink audit", "rows for audit", "sink shop", "places")
    ]
    claims = (
        exactly_once(
            "source orders (csv)",
            "Spark lists each file once and logs its name before a batch reads it.",
            "A file is changed or removed while a batch waits.",
            warnings=("All files that are there come in the first batch: set maxFilesPerTrigger.",),
        ),
        at_least_once("trigger continuous", "It has no batches that could be recognised.", "Use processing_time."),
        exactly_once("sink lake (parquet)", "Files are staged out of sight, decided once, and published by a rename."),
    )
    findings = (
        *denied,
        Finding(subject="checkpoint", ok=False, message="The ledger expects batch 17, but there is no checkpoint."),
        Finding(
            subject="lifecycle of s3://lake",
            ok=True,
            warns=True,
            message="Rule tidy deletes objects after 3 days, sooner than a batch waits to be published.",
        ),
        Finding(subject="account /data/lake/europe", ok=True, message="can be written; 812.3 GB are free."),
        Finding(subject="executors", ok=True, message="import penstock 0.1.0"),
    )
    estimate = RequestEstimate(small=10.125, uploaded=14.125, look=3)
    costs = Costs(requests_per_batch=14.0, measured_batches=20, estimated=estimate, interval_ms=10_000)
    demanded, given = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
    report = CheckReport(
        pipeline="flights",
        demanded=demanded,
        given=given,
        claims=claims,
        findings=findings,
        costs=costs,
        preflight=PREFLIGHT,
    )
    return check._report(report)


PREFLIGHT = Preflight(
    last_run=Generation(7),
    described=True,
    changes=(
        PipelineChange.by(
            breaking("The checkpoint holds offsets of files, which Spark cannot read as those of kafka.", action=NEW_CHECKPOINT),
            "sources.orders.format",
            before="csv",
            now="kafka",
        ),
        PipelineChange.by(removed_sink("audit", None), "sinks.audit", before="", now=None),
        PipelineChange.by(
            source_ruling("watermark.delay", {}, {}, stateful=True), "sources.orders.watermark.delay", before=None, now="60000"
        ),
    ),
    uncompared=("sources.orders.options.nullValue",),
)


def ran() -> RenderableType:
    first = BatchProgress(
        batch_id=17,
        rows_out=12_345,
        sinks={LAKE: SinkProgress(rows=12_345, files=6, bytes=812_345), WAREHOUSE: SinkProgress(rows=12_345)},
        stage_ms=2_000,
        decide_ms=20,
        publish_ms=280,
        path="distributed",
    )
    already = {LAKE: SinkProgress(already_committed=1), WAREHOUSE: SinkProgress(already_committed=1)}
    recovered = {LAKE: SinkProgress(rows=12_345, files=6, bytes=1), WAREHOUSE: SinkProgress(already_committed=1)}
    batches = (
        BatchProgress(batch_id=15, recovered=True, sinks=recovered, path="recovery"),
        BatchProgress(batch_id=16, already=True, sinks=already, path="none"),
        first,
        replace(first, batch_id=18, warnings=("The ledger could not be pruned: the database is locked. It is tried again.",)),
    )
    summary = RunSummary(pipeline="flights", generation=3, sinks={})
    for batch in batches:
        summary = summary.plus(batch)
    ended = run.summary_text(summary, spent_s=61.0)
    return Group(*(run.batch_line(batch) for batch in batches), ended)


def _status() -> Status:
    """The newest batch waits for one place, and no driver runs."""
    totals = {
        LAKE: {
            EUROPE: Totals(rows=120_000, files=48, size_bytes=3_456_789),
            ASIA: Totals(rows=80_000, files=44, size_bytes=2_345),
        },
        WAREHOUSE: {ONLY: Totals(rows=200_000, size_bytes=7_654_321)},
    }
    return Status(
        pipeline="flights",
        ledger=LEDGER,
        health="replay",
        text="Spark will run batch 17 again; it is decided already and will not be delivered twice.",
        generation=Generation(3),
        owner="driver-7 process 411",
        last_batch_id=BatchId(17),
        unsettled=BatchId(17),
        last_written_at_ms=NOW_MS - 240_000,
        tail=Position(21),
        totals=totals,
        checkpoint=CheckpointPosition(query_id=QUERY, planned=BatchId(17), committed=BatchId(16)),
        driver=Driver(state="stopped", text="none runs: process 411 of this machine has ended", host="driver-7", pid=411),
        opened_at_ms=NOW_MS - 7_200_000,
        batches=18,
        lacking=("warehouse",),
        supervision=WAITING,
        last_error=LastError(
            at_ms=NOW_MS - 180_000,
            owner="driver-7 process 411",
            kind="NotPublishedYet",
            message="Batch 17 is decided, and not published in warehouse: PostgreSQL db.example:5432/shop does not answer.",
            remedy="Start the server or mend the network, and start again.",
            exit_code=75,
        ),
        waiting=(WaitingFiles(source=SourceName("orders"), files=12, size_bytes=4_567_890, oldest_ms=NOW_MS - 3_600_000),),
        lag=(
            TopicLag(
                source=SourceName("events"),
                topic="shop.events.v1",
                topic_id=None,
                partitions=6,
                records=1_200,
                behind_ms=200_000,
                loss_in_ms=500_000_000,
                retention_ms=604_800_000,
                lost=0,
                gaps=0,
            ),
        ),
        places=(
            PlaceState(sink=LAKE, account=EUROPE, state="own", mark=Position(21)),
            PlaceState(sink=LAKE, account=ASIA, state="own", mark=Position(21)),
            PlaceState(sink=WAREHOUSE, account=ONLY, state="own", mark=Position(20)),
        ),
    )


def stood() -> RenderableType:
    return status.text_of(_status(), now_ms=NOW_MS)


def watched() -> RenderableType:
    """Beside a running driver, which publishes the newest batch."""
    running = replace(
        _status(),
        health="ok",
        text="Batch 17 is decided, and the driver is publishing it; Spark commits it then.",
        driver=Driver(state="running", text="process 411 of this machine runs", host="driver-7", pid=411),
        last_error=None,
        lacking=None,
    )
    return status.text_of(running, now_ms=NOW_MS)


def recorded() -> RenderableType:
    decided = HistoryRow(
        position=Position(21),
        generation=Generation(3),
        kind="decided",
        written_at_ms=NOW_MS,
        text="batch 17: 12345 rows",
        batch_id=BatchId(17),
        query_id=QUERY,
        rows_out=12_345,
        sinks={LAKE: Totals(rows=12_345, files=6, size_bytes=812_345), WAREHOUSE: Totals(rows=12_345, size_bytes=61_000)},
        stage_ms=2_000,
        stage_requests=0,
    )
    before = replace(decided, position=Position(20), batch_id=BatchId(16), publish_ms=280, publish_requests=14)
    opened = HistoryRow(
        position=Position(19), generation=Generation(3), kind="opened", written_at_ms=NOW_MS - 60_000, text="by driver-7"
    )
    return history._table([BatchLife(entry=entry) for entry in (decided, before, opened)])


def verified() -> RenderableType:
    right = Totals(rows=120_000, digest=0xFEDCBA9876543210)
    short = replace(right, rows=119_999, digest=0x0123456789ABCDEF)
    lake = SinkReport(
        accounts={
            EUROPE: AccountReport(expected=right, found=right),
            ASIA: AccountReport(expected=right, found=short),
        },
        problems=(
            Problem(
                message="The file is missing.",
                account=ASIA,
                file="month=3/part-00000-5f0c9f0e.zstd.parquet",
                batch_id=BatchId(12),
            ),
        ),
        as_of=Position(21),
    )
    return verify._text(Verification(sinks={LAKE: lake}, batches={Position(21): BatchId(17)}, unsettled=BatchId(18)))


def diagnosed() -> RenderableType:
    dead = PendingPieces(pieces=2, size_bytes=1_240, oldest_generation=Generation(1), oldest_batch=BatchId(1))
    accounts = (
        AccountState(sink=LAKE, account=EUROPE, state="published", mark=Position(21), batch_id=BatchId(17), dead=dead),
        AccountState(
            sink=LAKE,
            account=ASIA,
            state="unwritable",
            mark=Position(21),
            batch_id=BatchId(17),
            trouble="/data/lake/asia cannot be written: grant access, or use another path.",
        ),
        AccountState(sink=WAREHOUSE, account=ONLY, state="outstanding", mark=Position(20), batch_id=BatchId(16)),
        AccountState(sink=AUDIT, account=ONLY, state="empty"),
    )
    hanging = OpenTransaction(
        topic="orders",
        partition=1,
        offset=4,
        transactional_id=None,
        producer_id=7,
        producer_epoch=0,
        open_ms=41_000,
        timeout_ms=None,
    )
    return doctor.text_of(
        Diagnosis(
            pipeline="flights",
            ledger=LEDGER,
            entries=21,
            generation=Generation(3),
            owner="driver-7 process 411",
            position=Position(21),
            batch_id=BatchId(17),
            accounts=accounts,
            findings=(),
            transactions=(hanging,),
        )
    )


SCREENS: Mapping[str, Callable[[], RenderableType]] = {
    "check": checked,
    "run": ran,
    "status": stood,
    "watch": watched,
    "history": recorded,
    "verify": verified,
    "doctor": diagnosed,
}


def shown(name: str, *, width: int) -> str:
    """Return the text of a screen on a terminal that is so wide, without colours and blanks at the ends of lines."""
    out = StringIO()
    SafeConsole(file=out, width=width, highlight=False).print(SCREENS[name](), markup=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
