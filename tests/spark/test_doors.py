"""Every way to start a query asks the same questions (R24): what a pipeline file is refused for, the drop-in is refused for.

A table of questions and doors, all in one session. A refused query stages nothing and leaves no ledger.
"""

import json
import logging
import socketserver
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.readwriter import DataStreamWriter

import penstock
from penstock.core.model import SourceName
from penstock.errors import Failed, Fenced, GuaranteeTooWeak, PenstockError, Usage
from penstock.run.query import start_streaming
from penstock.source.open import open_sources
from penstock.support.error_transport import decode_error
from tests.servers.fixtures import server, unique
from tests.servers.kafka import send
from tests.servers.serving import serving
from tests.spark.streams import numbers, put
from tests.spark.target import Target

pytestmark = pytest.mark.spark

TICKS = {"format": "rate-micro-batch", "options": {"rowsPerBatch": 2, "numPartitions": 1}}
MANY = ", ".join(f"value + {number} AS c{number}" for number in range(40))
TABLE = {"type": "sqlite", "url": "sqlite:///{root}/warehouse.db", "table": "numbers"}
LAKE = {"type": "parquet", "accounts": {"all": "{root}/lake"}}
GROUPS = "SELECT value % 2 AS k, COUNT(*) AS many FROM s GROUP BY value % 2"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A query that every door refuses.

    `{root}` and `{port}` stand for the test's directory and its socket, `{bootstrap}` and `{topic}` for Kafka. A broker
    runs only where the refusal comes in the first batch.
    """

    refused: type[PenstockError]
    says: str
    source: Mapping[str, Any] = field(default_factory=lambda: TICKS)
    sql: str = "SELECT value AS n FROM s"
    sink: Mapping[str, Any] = field(default_factory=lambda: TABLE)
    mode: str = "append"
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"processing_time": "0s"})
    options: Mapping[str, str] = field(default_factory=dict)
    not_by: tuple[str, ...] = ()


CLIENT = "a client of Spark Connect"
"""A door of its own: it sees the text of a plan, and no more of the server's."""

CASES = {
    "a socket": Case(
        source={"format": "socket", "options": {"host": "127.0.0.1", "port": "{port}"}},
        sql="SELECT CAST(value AS INT) AS n FROM s",
        refused=GuaranteeTooWeak,
        says=r"source s \(socket\) gives at_least_once: A socket hands out each line once",
    ),
    "a socket by its class": Case(
        source={
            "format": "org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider",
            "options": {"host": "127.0.0.1", "port": "{port}"},
        },
        sql="SELECT CAST(value AS INT) AS n FROM s",
        refused=GuaranteeTooWeak,
        says=r"source s \(.*TextSocketSourceProvider\) gives at_least_once: A socket",
    ),
    "files that may be missing": Case(
        source={"format": "csv", "path": "{root}/in", "schema": "n INT", "options": {"IgnoreMissingFiles": True}},
        sql="SELECT n FROM s",
        refused=GuaranteeTooWeak,
        says=r"source s \(csv\) may lose rows: ignoreMissingFiles",
    ),
    "random values below state": Case(
        sql=f"SELECT DISTINCT * FROM (SELECT {MANY}, CAST(rand() * 5 AS INT) AS n FROM s)",
        mode="update",
        sink={**TABLE, "write": "upsert", "key": ["c0"]},
        refused=GuaranteeTooWeak,
        says=r"operator \w+ gives at_least_once: rand below it gives other values",
    ),
    "a function declared nondeterministic below state": Case(
        sql="SELECT DISTINCT * FROM (SELECT value AS c0, dice(value) AS n FROM s)",
        mode="update",
        sink={**TABLE, "write": "upsert", "key": ["c0"]},
        refused=GuaranteeTooWeak,
        says=r"operator \w+ gives at_least_once: dice below it gives other values",
        not_by=(CLIENT,),
    ),
    "replace in append mode": Case(
        sink={**TABLE, "write": "replace"}, refused=Usage, says=r"sinks\.out\.write does not go with output_mode: append: replace"
    ),
    "append in update mode": Case(
        sql=GROUPS, mode="update", refused=Usage, says=r"sinks\.out\.write does not go with output_mode: update: in update mode"
    ),
    "files in complete mode": Case(
        sql=GROUPS, mode="complete", sink=LAKE, refused=Usage, says=r"sinks\.out\.type does not go with output_mode: complete"
    ),
    "its own output": Case(
        source={"format": "csv", "path": "{root}/lake/", "schema": "n INT"},
        sql="SELECT n FROM s",
        sink=LAKE,
        refused=Usage,
        says=r"sources\.s\.path \(.*lake/?\) (overlaps with|is the same place as) sinks\.out\.accounts\.all",
    ),
    "its own output by a wildcard": Case(
        source={"format": "csv", "path": "file:{root}/la*", "schema": "n INT"},
        sql="SELECT n FROM s",
        sink=LAKE,
        refused=Usage,
        says=r"sources\.s\.path \(.*la\*\) overlaps with sinks\.out\.accounts\.all",
    ),
    "asynchronous progress": Case(
        options={"asyncProgressTrackingEnabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"},
        refused=GuaranteeTooWeak,
        says=r"option asyncProgressTrackingEnabled gives at_least_once: Asynchronous progress",
        not_by=("pipeline file", "pipeline in code"),  # neither has options of the writer
    ),
    "records that may be missing": Case(
        source={
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": "{bootstrap}",
                "subscribe": "{topic}",
                "startingOffsets": "earliest",
                "failOnDataLoss": "false",
            },
        },
        sql="SELECT offset AS n FROM s",
        refused=GuaranteeTooWeak,
        says=r"source s \(kafka.*\) may lose rows: failOnDataLoss=false makes Spark skip records",
        not_by=(CLIENT,),  # whose server has no connector of Spark's
    ),
    "real time": Case(
        mode="update",
        sink={**TABLE, "write": "upsert", "key": ["n"]},
        trigger={"real_time": "5s"},
        refused=GuaranteeTooWeak,
        says="trigger real_time gives at_least_once: Real-time mode logs a batch's offsets only when it ends",
        not_by=("foreachBatch",),  # Spark itself starts no foreachBatch with it
    ),
    "continuous": Case(
        source={"format": "rate", "options": {"rowsPerSecond": 5}},
        sql="SELECT value AS n FROM s",
        trigger={"continuous": "1s"},
        refused=GuaranteeTooWeak,
        says="trigger continuous gives at_least_once: Continuous processing has no batches",
        not_by=("foreachBatch",),  # Spark itself starts no foreachBatch with it
    ),
}


def placed(value: Any, **places: object) -> Any:
    if isinstance(value, dict):
        return {key: placed(item, **places) for key, item in value.items()}
    return value.format(**places) if isinstance(value, str) and "{" in value else value


@dataclass(frozen=True, kw_only=True)
class World:
    """What a case is tried in."""

    spark: SparkSession
    root: Path
    case: Case
    port: int
    bootstrap: str = "127.0.0.1:9"
    topic: str = "t"

    def settings(self, home: str) -> dict[str, Any]:
        case = self.case
        return placed(
            {
                "pipeline": "numbers",
                "home": home,
                "sources": {"s": dict(case.source)},
                "transform": {"sql": case.sql},
                "sinks": {"out": dict(case.sink)},
                "output_mode": case.mode,
                "trigger": dict(case.trigger),
            },
            root=self.root,
            port=self.port,
            bootstrap=self.bootstrap,
            topic=self.topic,
        )

    def frame(self) -> DataFrame:
        settings = self.settings("unused")
        sources = open_sources(self.spark, {"s": penstock.Source(**settings["sources"]["s"])})
        return self.spark.sql(self.case.sql.replace("FROM s", "FROM {s}"), s=sources[SourceName("s")])

    def writer(self) -> DataStreamWriter:
        (kind,) = self.case.trigger
        trigger = {
            "processing_time": {"processingTime": "0 seconds"},
            "continuous": {"continuous": "1 second"},
            "real_time": {"realTime": "5 seconds"},
        }[kind]
        return self.frame().writeStream.outputMode(self.case.mode).options(**self.case.options).trigger(**trigger)

    def delivery(self) -> penstock.Delivery:
        sinks = self.settings("unused")["sinks"]
        return penstock.Delivery("numbers", home=self.root / "home", sinks=sinks, sources=["s"])


def by_file(world: World) -> None:
    file = world.root / "pipeline.yaml"
    file.write_text(json.dumps(world.settings("home")))  # YAML can be written so
    penstock.Pipeline.from_file(file).start(world.spark)


def by_code(world: World) -> None:
    penstock.Pipeline(penstock.PipelineSettings(**world.settings(str(world.root / "home")))).start(world.spark)


def by_start(world: World) -> None:
    world.delivery().start(world.writer())


def by_foreach_batch(world: World) -> None:
    delivery = world.delivery()
    query = world.writer().foreachBatch(delivery).option("checkpointLocation", delivery.checkpoint).start()
    with pytest.raises(StreamingQueryException) as ended:
        assert query.awaitTermination(40), "it was not refused, and runs on"
    error = decode_error(str(ended.value))
    assert error is not None, ended.value
    raise error


DOORS: Mapping[str, Callable[[World], None]] = {
    "pipeline file": by_file,
    "pipeline in code": by_code,
    "delivery.start": by_start,
    "foreachBatch": by_foreach_batch,
}


class _Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"1\n2\n")
        self.wfile.flush()
        self.rfile.read()


@pytest.fixture(autouse=True)
def ended(spark: SparkSession) -> Iterator[None]:
    """A query that was not refused does not run on beside the other tests."""
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(autouse=True, scope="module")
def dice(spark: SparkSession) -> None:
    spark.udf.register("dice", udf(lambda value: value % 6, "long").asNondeterministic())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Lines)
    with serving(server):
        yield server.server_address[1]


def asked() -> Iterator[Any]:
    for question, case in CASES.items():
        for door in DOORS.keys() - set(case.not_by):
            yield pytest.param(case, door, id=f"{question}, {door}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("case", "door"), sorted(asked(), key=lambda case: case.id or ""))
def test_every_door_refuses(spark: SparkSession, tmp_path: Path, port: int, case: Case, door: str) -> None:
    put(tmp_path / "in", "0.csv", 1, 2)
    put(tmp_path / "lake", "0.csv", 1, 2)
    world = World(spark=spark, root=tmp_path, case=case, port=port)
    if case.source["format"] == "kafka" and door == "foreachBatch":
        broker = server("kafka")
        world = replace(world, bootstrap=broker.bootstrap, topic=str(broker.topic(unique("doors"))))
        send(world.bootstrap, world.topic, value=b"1")
    with pytest.raises(case.refused, match=case.says):
        DOORS[door](world)
    left = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} - {"in", "lake", "pipeline.yaml"}
    below = {path.name for path in (tmp_path / "home").glob("*")} if left else set()
    assert left <= {"home"}
    assert below <= {"checkpoint", "last-error.json"}
    assert [path.name for path in tmp_path.glob("lake/**/*") if path.is_file()] == ["0.csv"]


def test_a_delivery_that_is_handed_to_query_after_query_checks_each(spark: SparkSession, tmp_path: Path) -> None:
    """As in a notebook, where a cell is run again. A refusal holds for the query that was refused, not for the next one."""
    target = Target(tmp_path)
    delivery = target.delivery()

    def deliver(**options: str) -> None:
        put(tmp_path / "in", f"{len(list((tmp_path / 'in').glob('*')))}.csv", 1)
        frame = spark.readStream.schema("n INT").options(**options).csv(str(tmp_path / "in"))
        writer = frame.writeStream.foreachBatch(delivery).option("checkpointLocation", delivery.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "in").mkdir()
    deliver()
    with pytest.raises(StreamingQueryException, match="ignoreMissingFiles makes Spark skip files"):
        deliver(ignoreMissingFiles="true")
    assert target.rows() == target.accounts() == {(1,): 1}
    deliver()
    delivery.release()
    assert target.rows() == target.accounts() == {(1,): 3}


@pytest.mark.parametrize("awaited", [False, True])
def test_the_end_of_an_older_query_of_a_delivery_is_not_the_end_of_the_newer(
    spark: SparkSession, tmp_path: Path, *, awaited: bool
) -> None:
    """Spark ends the older one when the newer starts. Whoever stopped or awaited it then ended the newer one in silence."""
    put(tmp_path / "in", "0.csv", 0)
    target = Target(tmp_path)
    delivery = target.delivery()
    older, newer = (delivery.start(numbers(spark, tmp_path).writeStream) for _ in range(2))
    with suppress(Fenced, Failed):  # Failed: Spark interrupted it where it wrote to its checkpoint
        assert not older.isActive
        older.awaitTermination() if awaited else older.stop()
    newer.processAllAvailable()
    put(tmp_path / "in", "1.csv", 1)
    newer.processAllAvailable()
    assert newer.isActive
    assert delivery.opened is not None
    newer.stop()
    assert target.rows() == target.accounts() == {(0,): 1, (1,): 1}


def test_what_an_older_query_leaves_of_its_first_offsets_does_not_refuse_the_newer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on until Spark starts the newer one, and is interrupted where it is."""
    (tmp_path / "in").mkdir()
    target = Target(tmp_path)
    delivery = target.delivery()
    older = delivery.start(numbers(spark, tmp_path).writeStream)

    def leave_and_start(*given: Any) -> Any:
        (tmp_path / "home" / "checkpoint" / "offsets" / ".0.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp").write_text("v1\n")
        return start_streaming(*given)

    monkeypatch.setattr("penstock.run.delivery.start_streaming", leave_and_start)
    newer = delivery.start(numbers(spark, tmp_path).writeStream)
    assert not older.isActive
    put(tmp_path / "in", "0.csv", 0)
    newer.processAllAvailable()
    newer.stop()
    assert target.rows() == target.accounts() == {(0,): 1}


def test_a_drop_in_that_demands_less_is_started(spark: SparkSession, tmp_path: Path, port: int) -> None:
    world = World(spark=spark, root=tmp_path, case=CASES["a socket"], port=port)
    delivery = penstock.Delivery(
        "numbers", home=tmp_path / "home", sinks=world.delivery().plan.settings.sinks, guarantee="at_least_once"
    )
    query = delivery.start(world.frame().writeStream)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_memory_sink_of_a_drop_in_shows_the_newest_result_in_complete_mode(spark: SparkSession, tmp_path: Path) -> None:
    """It is told the query's output mode, which a pipeline file says by itself."""
    for number in range(2):
        put(tmp_path / "in", f"{number}.csv", 1)
    counts = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in")).groupBy("n").count()
    target = Target(tmp_path, view=penstock.Memory())
    target.deliver(counts, mode="complete")
    assert penstock.memory_table("view").to_pylist() == [{"n": 1, "count": 2}]


def test_what_a_door_cannot_check_is_logged_at_the_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()
    delivery = penstock.Delivery(
        "numbers", home=tmp_path / "home", sinks={"out": penstock.Parquet(accounts={"a": tmp_path / "a"})}
    )
    with caplog.at_level(logging.WARNING, logger="penstock"):
        query = delivery.start(topic.selectExpr("offset").writeStream.trigger(availableNow=True))
        query._streaming.stop()  # before it looks for its brokers
    (line,) = [record.getMessage() for record in caplog.records if "not checked" in record.getMessage()]
    assert "what the brokers still hold for source source-1" in line
    assert "trigger" not in line


def test_the_drop_in_checks_everything_of_an_ordinary_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By both doors, and nothing is left unchecked: else Spark's classes have changed, and `query_facts` must follow."""
    put(tmp_path / "in", "0.csv", 1, 2)
    frame = spark.readStream.schema("n INT").csv(str(tmp_path / "in"))
    with caplog.at_level(logging.WARNING, logger="penstock"):
        Target(tmp_path).deliver(frame)
        delivery = Target(tmp_path / "other").delivery()
        writer = frame.writeStream.foreachBatch(delivery).option("checkpointLocation", delivery.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        delivery.release()
    assert [record.getMessage() for record in caplog.records if "not checked" in record.getMessage()] == []
    assert Target(tmp_path / "other").rows() == Target(tmp_path).rows() != {}
