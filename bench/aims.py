"""What was aimed at: the questions at the top of the page, each with the comparisons that answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.claims import Key, read
from bench.result import Comparison, Run, Table

_CACHED, _ONE_ROOT, _FILE_SINK = "N passes, cached", "`partitionBy` into one root", "Spark's own file sink"
_JDBC, _REWRITING = "JDBC", "JDBC, rewriting batches"
_BEHIND = "Penstock, `publish_behind`"
_SPARKS, _TUNED = "Spark's own sink", "Spark's own sink, tuned"
_LARGE, _WIDE, _KEYED = "100,000 rows x 7 columns, append", "100,000 rows x 9 columns, append", "50,000 rows x 7 columns, upsert"
_BYTES, _KILOBYTES = "100,000 records of 100 bytes", "50,000 records of 1,000 bytes"


@dataclass(frozen=True)
class Aim:
    """`keys` by what is said before their figures; the first one is measured against `limit`, where there is one."""

    question: str
    aim: str
    keys: Mapping[str, Key]
    limit: float | None = None

    def reached(self, comparison: Comparison, value: float) -> bool:
        """Whether a figure of that comparison is good enough."""
        assert self.limit is not None
        return value >= self.limit if comparison == "times" else value <= self.limit


def require_aims(part: str, tables: Sequence[Table]) -> None:
    """Raise KeyError where an aim names a comparison that the part does not measure."""
    runs = [Run(began="", minutes=0, rounds=0, tables=tuple(tables))]
    for key in (key for aim in AIMS for key in aim.keys.values() if key.part == part):
        read({part: runs}, key)


def _accounts(peer: str) -> Mapping[str, Key]:
    return {f"{count} accounts: ": Key("passes", "passes", f"{count} accounts", peer) for count in (8, 3)}


def _shapes(*cases: str) -> Mapping[str, Key]:
    return {f"{case}: ": Key("shapes", "shapes", case, _ONE_ROOT) for case in cases}


def _into(part: str, peer: str) -> Mapping[str, Key]:
    keys = {"": Key(part, "batches", _LARGE, peer), "`publish_behind`: ": Key(part, "batches", _LARGE, peer, _BEHIND)}
    return {**keys, "9 columns: ": Key(part, "batches", _WIDE, peer)} if part == "postgres" else keys


def _by_key(part: str) -> Mapping[str, Key]:
    peer = "JDBC into a table, then one statement"
    return {label: Key(part, "batches", _KEYED, peer, way) for label, way in (("", "Penstock"), ("`publish_behind`: ", _BEHIND))}


def _into_kafka(case: str, peer: str) -> Mapping[str, Key]:
    return {"": Key("kafka", "batches", case, peer), "`publish_behind`: ": Key("kafka", "batches", case, peer, _BEHIND)}


AIMS = (
    Aim("one pass to several accounts against N passes over a cached batch", "2x", _accounts(_CACHED), 2),
    Aim("the same against Spark's `partitionBy` into one root", "1x", _accounts(_ONE_ROOT), 1),
    Aim("the same against Spark's own file sink", "1x", _accounts(_FILE_SINK), 1),
    Aim("unusual rows against `partitionBy`", "1x", _shapes("one account", "nested columns", "skew"), 1),
    Aim(
        "many columns, accounts or partitions against `partitionBy`",
        "1x",
        _shapes("126 columns", "64 accounts", "200 partitions", "3 accounts x 200 partitions"),
        1,
    ),
    Aim(
        "exactly-once tax at 100,000 rows a batch",
        "5 %",
        {"": Key("tax", "tax", "100,000 rows", "the same pass, at-least-once")},
        5,
    ),
    Aim(
        "a batch at 100,000 ledger entries against 100",
        "2 %",
        {"": Key("ledger", "batch", "sqlite", "at 100 entries", "at 100,000 entries")},
        2,
    ),
    Aim("seconds that a restart takes more than with the noop sink", "+0.5", {"": Key("restart", "restart", "", "noop")}, 0.5),
    *(
        Aim(
            f"seconds from SIGKILL of the active driver to a warm standby's first batch, {quantile}",
            f"{limit:g} s",
            {
                label: Key("failover", "quantiles", f"{case}, {quantile}", None, "a warm standby")
                for label, case in (("", "its driver is killed"), ("with its supervisor: ", "supervisor and driver are killed"))
            },
            limit,
        )
        for quantile, limit in (("p50", 3.0), ("p99", 10.0))
    ),
    Aim(
        "milliseconds that a savepoint of 1 GB of state adds to a query that runs, beyond one batch and chance",
        "0",
        {
            "": Key("savepoint", "added", "the first", "one batch and chance"),
            "second: ": Key("savepoint", "added", "the second, after a few batches", "one batch and chance"),
        },
        0,
    ),
    Aim(
        "processor time of `verify` against DuckDB, which counts and hashes the rows of the same files",
        "0.67x",
        {f"{case}: ": Key("verify", "verify", case, "DuckDB, count and hash") for case in ("7 mixed columns", "4 long texts")},
        0.67,
    ),
    Aim("100,000 rows into PostgreSQL against JDBC", "3x", _into("postgres", _JDBC), 3),
    Aim("100,000 rows into PostgreSQL against JDBC that rewrites batches", "1.5x", _into("postgres", _REWRITING), 1.5),
    Aim("rows by key into PostgreSQL against JDBC and one statement", "none", _by_key("postgres")),
    Aim("100,000 rows into MariaDB against JDBC", "4x", _into("mysql", _JDBC), 4),
    Aim("100,000 rows into MariaDB against JDBC that rewrites batches", "1.5x", _into("mysql", _REWRITING), 1.5),
    Aim("rows by key into MariaDB against JDBC and one statement", "none", _by_key("mysql")),
    Aim(
        "rows into Cassandra against a loop of `execute_concurrent`",
        "1.5x",
        {
            label: Key("cassandra", "batches", f"{rows} rows x 7 columns, append", "a loop of `execute_concurrent`")
            for label, rows in (("", "10,000"), ("1,000 rows: ", "1,000"))
        },
        1.5,
    ),
    Aim("records of 100 bytes into Kafka against Spark's own sink", "1x", _into_kafka(_BYTES, _SPARKS), 1),
    Aim("records of 1 KB into Kafka against Spark's own sink", "1x", _into_kafka(_KILOBYTES, _SPARKS), 1),
    Aim("records of 1 KB into Kafka against Spark's own sink, tuned", "0.9x", _into_kafka(_KILOBYTES, _TUNED), 0.9),
    Aim(
        "records out of Kafka by Penstock's own reader against Spark's connector",
        "none",
        {
            f"{size}: ": Key("kafka_reader", "batches", case, "Spark's connector", "Penstock's own reader, without a jar")
            for size, case in (("100 bytes", _BYTES), ("1 KB", _KILOBYTES))
        },
    ),
    Aim(
        "seconds that readers of committed records wait behind a killed driver",
        "none",
        {
            f"{label}: ": Key("kafka_waiting", "stalls", case, None, "until the reader goes on")
            for label, case in (
                ("`recover`", "`penstock recover`"),
                ("`run`", "the next `penstock run`"),
                ("nobody starts", "nobody starts, the default of 1m"),
            )
        },
    ),
    Aim(
        "milliseconds from topic to topic, sent to committed, that Penstock adds to Spark's own sink",
        "none",
        {f"{at}: ": Key("kafka_waiting", "latency", at, _SPARKS) for at in ("p50", "p99")},
    ),
)
