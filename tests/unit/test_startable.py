"""What needs no Spark is found before Spark starts; and what ended Spark from outside is told as that."""

import json
import signal
import socket
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from tests.unit.parquet_target import SCHEMA, rows, stage

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.cli.app import main
from penstock.cli.run import StopSignals, _told_if_spark_was_stopped
from penstock.commit.outcome import StagedBatch
from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.errors import CheckpointMissing, Failed, Retryable
from penstock.kafka.reachable import require_reachable
from penstock.run import startable
from penstock.run.assembly import assemble
from penstock.run.failure import error_from_query, is_spark_gone
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import coordinator_of, opened_by_this_process
from penstock.run.session import quiet_when_java_ends, require_master, session_of, why_java_ended
from penstock.sink.parquet import ParquetSink
from penstock.source.kafka.connector import ConnectorMissing

FILE = """\
pipeline: flights
home: ./state
sources: {events: {format: csv, path: ./incoming, schema: id INT}}
sinks: {table: {type: duckdb, url: 'duckdb:///flights.duckdb', table: flights}}
"""
CSV, TABLE = "{format: csv, path: ./incoming, schema: id INT}", "{type: duckdb, url: 'duckdb:///flights.duckdb', table: flights}"
CONTINUOUS = "trigger: {continuous: 1s}\n"
SPARK = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Pipeline, "session", starts)
    for name in SPARK:
        monkeypatch.delenv(name, raising=False)
    Path("flights.yaml").write_text(FILE)


def ended(capsys: pytest.CaptureFixture[str], verb: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ending:
        main([verb, "flights.yaml"])
    return ending.value.code, capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_a_directory_that_is_not_there_or_is_a_file(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, err = ended(capsys, verb)
    assert code == 2
    assert f"sources.events.path {Path('incoming').resolve()} does not exist." in err
    Path("incoming").write_text("1\n")
    code, err = ended(capsys, verb)
    assert code == 2
    assert f"sources.events.path {Path('incoming').resolve()} is a file, expected a directory." in err
    Path("incoming").unlink()
    Path("incoming").mkdir()
    assert "Spark starts" in ended(capsys, verb)[1]


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_a_file_without_sources(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """It is for the commands beside a query that code starts, which only look or repair."""
    Path("flights.yaml").write_text(FILE.replace("sources:", "# sources:"))
    code, err = ended(capsys, verb)
    assert code == 2
    assert "The pipeline file has no sources" in err
    assert "Add the key sources." in err


@pytest.mark.parametrize("elsewhere", [*SPARK, "conf", "pattern", "url"])
def test_directories_that_only_spark_sees_are_left_to_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    conf = "spark: {conf: {spark.hadoop.fs.defaultFS: 'hdfs://name'}}\n"
    texts = {"conf": FILE + conf, "pattern": FILE.replace("incoming", "in*"), "url": FILE.replace("./incoming", "hdfs://name/in")}
    if elsewhere in SPARK:
        monkeypatch.setenv(elsewhere, "x")
    Path("flights.yaml").write_text(texts.get(elsewhere, FILE))
    assert "Spark starts" in ended(capsys, "run")[1]


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_a_package_that_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    Path("incoming").mkdir()
    for name in ("duckdb", "penstock.sink.duckdb.sink"):
        monkeypatch.setitem(sys.modules, name, None)
    code, err = ended(capsys, verb)
    assert code == 1
    assert "pip install 'duckdb<" in err


def test_a_database_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """One that refuses the login is told the same way: see the sinks' own tests. What an account lacks is left to the start."""
    Path("incoming").mkdir()
    lake, nobody = "{type: parquet, accounts: {all: ./lake}}", "{type: postgres, url: 'postgresql://me@127.0.0.1:1/db', table: t}"
    Path("flights.yaml").write_text(f"{FILE.partition('sinks:')[0]}sinks: {{lake: {lake}, nobody: {nobody}}}\n")
    code, err = ended(capsys, "run")
    assert code == 75, err
    assert "error: 127.0.0.1:1/db does not answer" in err
    assert not Path("lake").exists()


def deliver() -> Pipeline:
    """One batch of a query whose checkpoint is not there."""
    Path("incoming").mkdir()
    pipeline = Pipeline.from_file("flights.yaml")
    offsets = (OffsetRange(source=SourceName("events"), start=None, end="1"),)
    with closing(assemble(pipeline.plan)) as runtime:
        coordinator = coordinator_of(replace(runtime, sinks=()))
        coordinator.open(opened_by_this_process(runtime))
        batch = Batch(query_id=QueryId("query"), batch_id=BatchId(0), offsets=offsets)
        coordinator.deliver(batch, lambda _: StagedBatch(pieces=(), rows_in=0, schema='{"type":"struct","fields":[]}'))
    return pipeline


def test_a_checkpoint_that_is_not_there_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    deliver()
    code, err = ended(capsys, "run")
    assert code == 3
    assert "The ledger continues query query with batch 1, but the checkpoint" in err
    assert "Spark starts" in ended(capsys, "check")[1], "its report has the checkpoint among all the rest"
    checkpoint = Path("state/checkpoint")
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text("v1\n{}\n-")
    (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
    assert "Spark starts" in ended(capsys, "run")[1]


def test_a_sink_that_left_before_its_rows_were_noted_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    Path("incoming").mkdir()
    lake = FILE.partition("sinks:")[0] + "sinks: {NAME: {type: parquet, accounts: {only: ./lake}}}\n"
    Path("flights.yaml").write_text(lake.replace("NAME", "lake"))
    offsets = (OffsetRange(source=SourceName("events"), start=None, end="1"),)
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (sink,) = runtime.sinks
        assert isinstance(sink, ParquetSink)
        coordinator = coordinator_of(runtime)
        sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        staged = StagedBatch(pieces=stage(sink, rows(0), batch_id=0), rows_in=1, schema=SCHEMA)
        coordinator.deliver(Batch(query_id=QueryId("query"), batch_id=BatchId(0), offsets=offsets), lambda _: staged)
    for folder in ("offsets", "commits"):
        Path("state/checkpoint", folder).mkdir(parents=True)
        Path("state/checkpoint", folder, "0").write_text("v1\n{}\n-")
    Path("state/checkpoint/metadata").write_text(json.dumps({"id": "query"}))
    Path("flights.yaml").write_text(lake.replace("NAME", "other"))
    code, err = ended(capsys, "run")
    assert code == 3
    assert "Batch 0 holds rows for sink 'lake', which the pipeline file no longer has." in err
    Path("flights.yaml").write_text(lake.replace("NAME", "lake"))
    Pipeline.from_file("flights.yaml").recover()
    Path("flights.yaml").write_text(lake.replace("NAME", "other").replace("./lake", "./other"))
    assert "Spark starts" in ended(capsys, "run")[1], "the remedy helps"


def test_a_checkpoint_and_a_ledger_that_a_running_driver_moves_are_left_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = deliver()

    def refused(*_: object) -> None:
        with closing(assemble(pipeline.plan)) as runtime:
            coordinator_of(replace(runtime, sinks=())).open(opened_by_this_process(runtime))
        raise CheckpointMissing("It is not there.", remedy="Put it back.")

    monkeypatch.setattr(startable, "require_continuation", refused)
    pipeline.require_startable()


@pytest.mark.parametrize("changed", ["guarantee: at_least_once\n", f"{CONTINUOUS}guarantee: at_least_once\n"])
def test_a_checkpoint_that_need_not_continue_the_ledger(changed: str) -> None:
    deliver()
    file = FILE.replace(TABLE, "{type: memory}") if CONTINUOUS in changed else FILE
    Path("flights.yaml").write_text(file + changed)
    Pipeline.from_file("flights.yaml").require_startable()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (FILE + CONTINUOUS, "but trigger continuous gives at_least_once: Continuous processing has no batches"),
        (
            FILE.replace(CSV, "{format: socket, options: {host: h, port: 9}}"),
            "but source events (socket) gives at_least_once: A socket hands out each line once",
        ),
        (FILE.replace(TABLE, "{type: console}"), "but sink table (console) gives at_least_once"),
        (
            FILE.replace("INT}", "INT, options: {ignoreMissingFiles: true}}"),
            "but source events (csv) may lose rows: ignoreMissingFiles makes Spark skip files that it cannot read: their rows",
        ),
        (f"{FILE}{CONTINUOUS}guarantee: at_least_once\n", "with a single sink of type console, kafka or memory."),
    ],
)
def test_what_is_too_weak_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str], changed: str, said: str) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(changed)
    code, err = ended(capsys, "run")
    assert (code, said in err) == (3, True), err
    assert not Path("state").exists()


def test_a_database_file_in_a_directory_that_is_not_there_is_told_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE.replace(":///flights", ":///gone/flights"))
    code, err = ended(capsys, "run")
    assert code == 1
    assert (
        f"cannot be created: the directory {Path('gone').absolute()} does not exist.\nCreate or mount it, or name a file" in err
    )
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert "Spark starts" in ended(capsys, "run")[1], "its server writes the file"


def test_a_database_file_in_a_home_that_is_not_there_is_created_by_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(
        FILE.replace("home: ./state", "home: ./gone/state").replace(":///flights", ":///gone/flights")
    )
    assert "Spark starts" in ended(capsys, "run")[1]


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_a_misspelled_format_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE.replace("csv", "cvs"))
    code, err = ended(capsys, verb)
    assert code == 2
    assert err.startswith("error: sources.events.format cvs is not known to this Spark.\nDid you mean csv? Known are avro, ")


@pytest.mark.parametrize(
    ("name", "more", "arguments"),
    [
        ("CSV", "", ""),
        ("pulsar", "", ""),
        ("jdbc", "", ""),
        ("org.cvs", "", ""),
        ("cvs", "spark: {packages: ['org.cvs:cvs:1']}\n", ""),
        ("cvs", "spark: {conf: {spark.jars: cvs.jar}}\n", ""),
        ("cvs", "", "--jars cvs.jar pyspark-shell"),
    ],
)
def test_a_format_that_spark_may_know_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, more: str, arguments: str
) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE.replace("csv", name) + more)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert "Spark starts" in ended(capsys, "run")[1]


def test_a_format_that_a_module_of_python_may_have_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("incoming").mkdir()
    Path("flights.yaml").write_text(FILE.replace("csv", "cvs"))
    Path("pyspark_cvs.py").touch()
    monkeypatch.syspath_prepend(".")
    assert "Spark starts" in ended(capsys, "run")[1]


SOURCE = "{format: kafka, options: {subscribe: flights, kafka.bootstrap.servers: 'PLAINTEXT://127.0.0.1:1,localhost:1'}}"
SINK = "{type: kafka, bootstrap: '127.0.0.1:1,localhost:1', topic: flights}"


@pytest.mark.parametrize("place", ["source", "sink"])
def test_brokers_that_do_not_answer_are_told_at_once(capsys: pytest.CaptureFixture[str], place: str) -> None:
    """A client of Kafka would try for half a minute, after Spark has started."""
    Path("incoming").mkdir()
    text = f"{FILE.rpartition('sinks')[0]}sinks: {{out: {SINK}}}\n"
    if place == "source":
        text = FILE.replace("{format: csv, path: ./incoming, schema: id INT}", SOURCE)
    Path("flights.yaml").write_text(text)
    code, err = ended(capsys, "run")
    where = "Kafka of source 'events' at PLAINTEXT://127.0.0.1:1" if place == "source" else "Kafka at 127.0.0.1:1"
    assert (code, f"{where},localhost:1 does not answer: Connection refused." in err) == (75, True), err


def test_one_broker_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_reachable(f"127.0.0.1:1, SASL_SSL://127.0.0.1:{server.getsockname()[1]}", where="Kafka")


@pytest.mark.parametrize(("error", "times"), [(EOFError(), 0), (ConnectionResetError(), 0), (ValueError(), 1)])
def test_a_killed_java_leaves_no_traceback_of_accumulators(error: Exception, times: int) -> None:
    told = list[object]()
    server = SimpleNamespace(handle_error=lambda *of_request: told.append(of_request))
    quiet_when_java_ends(SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server)))  # type: ignore[arg-type]
    try:
        raise error
    except (EOFError, OSError, ValueError):
        server.handle_error("request", "address")
    assert len(told) == times


def test_a_master_that_does_not_answer_is_told_before_java_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        require_master(f"spark://127.0.0.1:{port}")
        require_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(Retryable, match=rf"No Spark master answers at spark://127.0.0.1:{port}: Connection refused") as refused:
        require_master(f"spark://127.0.0.1:{port}")
    assert "local[*]" in refused.value.remedy
    for other in ("", "local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        require_master(other)
    for wrong in ("spark://", "spark://h:x", "spark://127.0.0.1:99999"):
        with pytest.raises(Retryable, match="No Spark master answers"):
            require_master(wrong)


def of(error: Exception, cause: BaseException | None) -> Exception:
    error.__cause__ = cause
    return error


GONE = of(Failed("The start failed.", remedy="Mend it."), Py4JNetworkError("Answer from Java side is empty"))


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ConnectionRefusedError(111, "refused"), True),
        (GONE, True),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), True),
        (RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."), True),
        (of(Failed("x", remedy="y"), ValueError("z")), False),
    ],
)
def test_an_error_tells_whether_sparks_java_is_gone(error: Exception, *, gone: bool) -> None:
    assert is_spark_gone(error) is gone


def test_a_signal_that_ended_java_too_is_told_as_a_stop(capsys: pytest.CaptureFixture[str]) -> None:
    with StopSignals(lambda: None) as stop:
        with pytest.raises(Failed), _told_if_spark_was_stopped(stop):
            raise GONE
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(ValueError, match="another"), _told_if_spark_was_stopped(stop):
            raise ValueError("another error")
        assert capsys.readouterr().err == ""
        with pytest.raises(SystemExit) as exited, _told_if_spark_was_stopped(stop):
            raise GONE
    assert exited.value.code == 143
    assert "KillMode=mixed" in capsys.readouterr().err


def test_a_thread_of_spark_without_stack_is_told_with_the_setting_that_helps(tmp_path: Path) -> None:
    text = "[STREAM_FAILED] java.lang.StackOverflowError\n\tat java.base/java.util.regex.Pattern$GroupTail.match(Unknown Source)"
    error = error_from_query(text, checkpoint=SparkCheckpoint(tmp_path))
    assert "-Xss16m" in error.remedy


def test_input_that_was_moved_is_told_with_both_directories(tmp_path: Path) -> None:
    text = "java.lang.IllegalArgumentException: Wrong basePath /new/incoming for the root path: file:/old/incoming/g5.csv\n\tat x"
    error = error_from_query(text, checkpoint=SparkCheckpoint(tmp_path))
    assert "such as file:/old/incoming/g5.csv, and the source reads /new/incoming now" in error.message
    assert "put the input back there" in error.remedy


def test_a_session_that_a_notebook_stopped_is_told(tmp_path: Path) -> None:
    text = "while calling o7.start.\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    error = error_from_query(text, checkpoint=SparkCheckpoint(tmp_path), doing="start")
    assert error.message == "Spark could not start the query: its session was stopped."
    assert error.remedy.startswith("Make a session, and the streaming DataFrame by it")


THROWN = "org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            f'26/11/29 WARN Utils: x\nException in thread "main" {THROWN}\n\tat org.apache\n',
            "Master must either be yarn or start with spark, k8s, or local.",
        ),
        ("Invalid maximum heap size: -Xmx1xyz\nError: no machine.\n", "Invalid maximum heap size: -Xmx1xyz."),
        ("26/11/29 WARN Utils: x\n", None),
    ],
)
def test_what_ended_java_before_spark_started_is_told_from_its_log(log: str, told: str | None) -> None:
    assert why_java_ended(log) == told


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_reader_without_its_client_is_told_before_spark_starts_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def missing(**_: object) -> dict[str, str]:
        raise ConnectorMissing("No connector is here.", remedy="None.")

    monkeypatch.setattr(Pipeline, "session", lambda pipeline: session_of(pipeline.settings))
    monkeypatch.setattr("penstock.run.session.connector_settings", missing)
    monkeypatch.setattr("penstock.run.session._started", lambda *_, **__: pytest.fail("Spark starts"))
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    events = "{events: {format: kafka, options: {kafka.bootstrap.servers: 'localhost:1', subscribe: orders}}}"
    Path("flights.yaml").write_text(FILE.replace("{events: {format: csv, path: ./incoming, schema: id INT}}", events))
    code, err = ended(capsys, verb)
    assert code == 1
    assert "Penstock's own reader of Kafka needs the package confluent-kafka, which is not installed" in err
