"""What a mutant is, and the published bugs that mutants are named after."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One small change of our code that would bring the bug here.

    `find` stands exactly once in `file`, a path from the root of the repository, and gives way to `replace`. One at least of
    `tests` (pytest's node ids) must fail then; without any, the simulator must find a schedule that breaks an invariant.
    """

    bug: int
    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.bug}-{self.name}"


BUGS: Mapping[int, str] = {
    1: "sinks wrote a replayed batch twice: the crash came after the sink and before `commits/N` (Paimon, Hudi, Spark's files)",
    2: "a new checkpoint's batches were skipped, because their numbers were `already seen` (Delta)",
    3: "a lost `metadata` file gave a new query id, and sinks keyed by it took everything once more",
    4: "a pre-committed transaction was aborted because it was old, and its rows were lost (Flink's Kafka sink)",
    5: "an object in an unknown state was used on, and a late answer hit its next transaction (librdkafka)",
    6: "transactions of a dead run were left hanging, and readers waited for them for ever (Kafka)",
    7: "the token was checked first and the commit made later, so that two drivers both appended (Iceberg)",
    8: "an append was rebuilt and retried on a new head after its token had been checked (pyiceberg)",
    9: "the same application and version were accepted twice (delta-rs)",
    10: "a conditional write landed, its answer was lost, and the retry took its own write for another's (S3 clients)",
    11: "a store ignored the condition, or answered that all was well, and nobody had tried it (S3 look-alikes)",
    12: "the clean-up after a commit of unknown outcome deleted live data (Iceberg and others)",
    13: "`abort` came after a failed `commit` and removed what had been committed (Spark's data source writers)",
    14: "prepared transactions were orphaned and held their locks for ever (PostgreSQL, MySQL)",
    15: "COMMIT was sent, the connection was lost, and a blind retry wrote twice",
    16: "the last writer won, so that a stale coordinator rewound the offsets (Kafka Connect for Iceberg)",
    17: "some rows came twice and others never, and the count was right (Chronon)",
    18: "partition and epoch were taken for the identity of rows (Spark's own documentation)",
    19: "readers that only list the directory saw torn and doubled files (Spark's file sink)",
    20: "a batch number came again with other offsets: asynchronous progress and real-time mode (Spark)",
    21: "a transaction was none: a table of MyISAM, a session that commits each statement",
    22: "newer data was hidden by the late writes of an older batch, whose time stamp was that of a clock (Cassandra)",
    23: "records that were gone were passed over unseen, and a topic that was created again was read from its middle (Spark)",
    24: "an offsets entry between two others was missing after surgery by hand, and nobody noticed",
    25: "`sys.exit()` in foreachBatch hung the query for ever (Spark)",
    26: "a push source acknowledged an event that was not durable, or forgot what was not read (receivers)",
    27: "a store's own rule, or a vacuum, deleted what was staged and not yet published",
    28: "a replayed batch that foreachBatch skipped left its state uncommitted (Spark)",
    29: "an upgrade met an outstanding decision of the old format",
    30: "partition values with a slash or 300 bytes escaped the directory or broke the path",
    31: "two ledgers of one pipeline name delivered the same batch: only positions were compared",
    32: "a property was checked on the parent table only, and an unlogged partition was emptied by a crash",
    33: "the digest skipped NULLs, so that values which moved between columns were not seen",
    34: "`verify` beside a running driver told what was newer as foreign",
    35: "a decided batch could not be published any more once its table was altered, as the refusal had asked for",
    36: "a source file that was truncated between planning and replay was delivered torn",
    37: "the remedy that an error named doubled the rows",
    38: "secrets of Spark's settings stood in the JVM's command line, event log and UI",
    39: "the drop-in asked fewer questions than the pipeline file",
    40: "a URL of an unknown scheme became a local directory",
    41: "of several sinks that did not publish, only the first was named, and its class decided what to do",
    42: "a part of a password was shown, because its URL could not be taken apart",
    43: "a value was stored as another one, or under another name, which only other readers saw",
    50: "what a source had read was held against its options by another rule than it is read by, and a second start was refused",
    51: "an outage ended a run at once, with the code for what a person must mend, and no scheduler started it again",
    60: "a column was written in an encoding that wastes time and space, or that one of the readers does not know",
    61: "every thread that began made a client of the store for itself, and all but one were thrown away",
    62: "people were woken for nothing, not woken at all, or told of a consequence in place of its cause",
    63: "a query went on with the state of another one, or a pipeline with offsets of another source, without an error (Spark)",
    64: "what only watches a run held it up, ended it, or took values of rows out of it (exporters of telemetry)",
}
