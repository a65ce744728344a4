"""`penstock metrics` over real ledgers, asked by HTTP as Prometheus asks, and parsed by its own parser."""

import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.servers.certificates import certify

from penstock.cli.app import main
from penstock.core.model import BatchId, Generation, PipelineName, SinkName, SourceName
from penstock.errors import Retryable
from penstock.ledger.open import open_ledger
from penstock.observe.batch_metrics import BatchCollector
from penstock.observe.batch_record import BatchRecords, DeliveryRecord, SparkRecord
from penstock.observe.driver import Driver
from penstock.observe.endpoint import server_of
from penstock.observe.last_error import LastError
from penstock.observe.listening import Listening
from penstock.observe.look import Look
from penstock.observe.metrics import StatusCollector
from penstock.observe.page.watched import Watched
from penstock.observe.state_samples import OperatorSample, StateSample
from penstock.observe.state_size import size_of
from penstock.observe.status import PlaceState, Status, WaitingFiles
from penstock.observe.status_reader import PLACES_EVERY_S, StatusReader
from penstock.run.pipeline import Pipeline
from penstock.source.chain.lag import TableLag
from penstock.source.journal.journals import JournalLag
from penstock.source.kafka.lag import TopicLag
from penstock.spec.state_limits import StateLimits
from penstock.testing.entries import decided_entry, opened_entry

PAGE = Path(__file__).parents[2] / "docs/howto/metrics.md"
FILE = """\
pipeline: shop
home: ./state
sources: {orders: {format: rate}}
sinks: {lake: {type: parquet, accounts: {EWR: ./lake}}}
"""
TOKEN = "not-for-everyone"


@pytest.fixture(name="file", autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline with three decisions, whose checkpoint is not there: a start would be refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(FILE)
    (tmp_path / "state").mkdir()
    ledger = open_ledger(f"sqlite:///{tmp_path}/state/ledger.db", pipeline=PipelineName("shop"))
    entries = [opened_entry(pipeline=PipelineName("shop"))]
    for rows in (10, 20, 30):
        entries.append(decided_entry(after=entries[-1], rows=rows))
    for entry in entries:
        ledger.append(entry)
    ledger.close()
    return tmp_path / "f.yaml"


def reader_of(path: Path) -> StatusReader:
    return Pipeline.from_file(path).status_reader()


def reader_that_fails(error: Exception, *, pipeline: str = "away") -> StatusReader:
    def fail(_known: object) -> Status:
        raise error

    return StatusReader(fail, pipeline=pipeline)


def watched_by(reader: StatusReader) -> Watched:
    """What the page needs besides is not asked for here."""
    return Watched(reader=reader, open_ledger=lambda: open_ledger("memory", pipeline=PipelineName("none")), home="", file="FILE")


@contextmanager
def serving(*readers: StatusReader, watched: Sequence[Watched] = (), **listening: Any) -> Iterator[int]:
    pipelines = watched or [watched_by(reader) for reader in readers]
    with server_of(Listening(host="127.0.0.1", port=0, **listening), pipelines) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def asked(port: int, path: str = "/metrics", *, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples(text: str, parse: Callable[[str], Any] = parse_text) -> dict[tuple[str, str], float]:
    """Value by name and the labels' values, those of `pipeline` left out."""
    return {
        (sample.name, " ".join(value for name, value in sorted(sample.labels.items()) if name != "pipeline")): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_prometheus_reads_where_the_pipeline_stands(file: Path) -> None:
    with serving(reader_of(file)) as port:
        code, text = asked(port)
        _, open_text = asked(port, Accept="application/openmetrics-text; version=1.0.0")
    found = samples(text)
    assert code == 200
    assert found["penstock_up", ""] == 1
    assert {state: found["penstock_health", state] for state in ("ok", "new", "replay", "conflict")} == {
        **dict.fromkeys(("ok", "new", "replay"), 0),
        "conflict": 1,
    }
    assert found["penstock_generation", ""] == 1
    assert found["penstock_decided_batch_id", ""] == 2
    assert found["penstock_newest_batch_published", ""] == 0
    assert ("penstock_driver_running", "") not in found
    assert found["penstock_ledger_position", ""] == 4
    assert found["penstock_sink_rows_total", "EWR lake"] == 60
    assert found["penstock_sink_files_total", "EWR lake"] == 3
    assert found["penstock_sink_state", "EWR lake lost"] == 1
    assert not any(name.startswith("penstock_spark_") for name, _ in found)
    assert samples(open_text, parse_openmetrics) == found


def test_the_newest_batch_is_told_as_history_and_page_tell_it(file: Path) -> None:
    """By one value: of the newest batch that was measured to its end. Without any notes, what the ledger knows."""
    with serving(watched=[Pipeline.from_file(file).watched()]) as port:
        assert samples(asked(port)[1])["penstock_batch_id", ""] == 2
        records = BatchRecords(str(file.parent / "state"))
        delivered = DeliveryRecord(
            generation=Generation(1),
            batch_id=BatchId(1),
            at_ms=1,
            rows_read=21,
            decide_ms=10,
            publish_ms=290,
            sink_ms={SinkName("lake"): 240},
        )
        spark = {f"{step}_ms": 1_000 for step in ("began", "fetch", "offset_log", "plan", "execute", "commit_log", "total")}
        records.write(delivered)
        records.write(SparkRecord(generation=Generation(1), batch_id=BatchId(1), **spark))
        records.write(replace(delivered, batch_id=BatchId(2)))
        found = {key: value for key, value in samples(asked(port)[1]).items() if key[0].startswith("penstock_batch_")}
    [life] = Pipeline.from_file(file).lives(batch_id=1)
    assert found == {
        ("penstock_batch_id", ""): 1,
        ("penstock_batch_rows", ""): 20,
        ("penstock_batch_rows_read", ""): 21,
        ("penstock_batch_replays", ""): 0,
        ("penstock_batch_duration_seconds", ""): life.duration_ms / 1000,
        **{
            ("penstock_batch_step_duration_seconds", f"{step.sink or ''} {step.kind.name.lower()}"): step.duration_ms / 1000
            for step in life.steps
        },
    }
    assert found["penstock_batch_step_duration_seconds", "lake publish"] == 0.24


def test_a_pipeline_that_cannot_be_read_hides_no_other(file: Path) -> None:
    with serving(reader_of(file), reader_that_fails(Retryable("The ledger does not answer.", remedy="Look at it."))) as port:
        found = {
            (sample.name, sample.labels["pipeline"]): sample.value
            for family in parse_text(asked(port)[1])
            for sample in family.samples
        }
        assert found["penstock_up", "shop"] == 1
        assert found["penstock_up", "away"] == 0
        assert found["penstock_ledger_position", "shop"] == 4
        assert ("penstock_ledger_position", "away") not in found
        code, text = asked(port, "/readyz")
        assert (code, text.splitlines()[1][:46]) == (503, "away unreadable: The ledger does not answer. L")
        assert asked(port, "/livez") == (200, "ok\n")


def test_an_error_that_nobody_expected_hides_no_other_pipeline(file: Path) -> None:
    with serving(reader_that_fails(ValueError("postgres://me:s3cret-word@db/x")), reader_of(file)) as port:
        code, text = asked(port, "/readyz")
        assert (code, asked(port)[0]) == (503, 200)
    assert "ValueError" in text
    assert "s3cret-word" not in text


def test_health_is_of_starts_and_places_and_readiness_of_reading(file: Path) -> None:
    status = replace(Pipeline.from_file(file).status(), health="ok", text="Fine.", places=())
    gone = PlaceState(sink=SinkName("lake"), account=None, state="unreachable", trouble="No answer.")
    cases = {"fine": status, "conflict": replace(status, health="conflict"), "away": replace(status, places=(gone,))}
    answers = {}
    for name, found in cases.items():
        with serving(StatusReader(lambda _, found=found: found, pipeline="shop")) as port:  # type: ignore[misc]
            answers[name] = [asked(port, path)[0] for path in ("/livez", "/readyz", "/healthz")]
    assert answers == {"fine": [200, 200, 200], "conflict": [200, 200, 503], "away": [200, 200, 503]}


def test_with_a_token_metrics_are_for_those_who_have_it(file: Path) -> None:
    with serving(reader_of(file), token=TOKEN) as port:
        for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer é"}):
            code, text = asked(port, **wrong)
            assert (code, "penstock_" in text) == (401, False)
        assert asked(port, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert asked(port, "/healthz") == (503, "conflict\n")
        assert "shows no trace of the 30 rows" in asked(port, "/healthz", Authorization=f"Bearer {TOKEN}")[1]
    assert TOKEN not in repr(Listening(host="127.0.0.1", port=1, token=TOKEN))


def test_other_paths_and_methods_are_refused(file: Path) -> None:
    with serving(reader_of(file)) as port:
        assert asked(port, "/../../etc/passwd") == (404, "Here are a page at /, and /metrics, /livez, /readyz and /healthz.\n")
        assert asked(port, "/metrics", method="POST")[0] == 405
        assert asked(port, "/livez", method="HEAD") == (200, "")


def test_a_client_that_stalls_in_its_handshake_holds_up_nobody(file: Path, tmp_path: Path) -> None:
    certify(tmp_path / "ca.pem", tmp_path / "server.pem")
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with ExitStack() as stack:
        port = stack.enter_context(serving(reader_of(file), certificate=tmp_path / "server.pem"))
        stack.enter_context(create_connection(("127.0.0.1", port)))
        connection = HTTPSConnection("localhost", port, timeout=30, context=trusting)
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_hostile_names_stay_names() -> None:
    name = 'a"} 1\npenstock_up{pipeline="evil'
    found = [Look(pipeline=name, error="gone")]
    (up,) = [family for family in StatusCollector(lambda: found).collect() if family.name == "penstock_up"]
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: found))
    (read,) = [sample for family in parse_text(generate_latest(registry).decode()) for sample in family.samples]
    assert (read.labels, read.value) == (up.samples[0].labels, 0) == ({"pipeline": name}, 0)


def lag(**changed: Any) -> TopicLag:
    of = {"source": SourceName("orders"), "topic": "t", "topic_id": "x", "partitions": 2, "lost": 0, "gaps": 0}
    return TopicLag(**(of | {"records": 7, "behind_ms": 1_500, "loss_in_ms": 60_000, "retention_ms": 90_000} | changed))


def test_lag_is_in_records_and_seconds(file: Path) -> None:
    status = Pipeline.from_file(file).status()
    idle = lag(topic="idle", records=0, behind_ms=None, loss_in_ms=None)
    source = SourceName("orders")
    journal = JournalLag(source=source, journal="./j", journal_id="i", records=5, behind_ms=2_000, lost=1)
    table = TableLag(source=source, table="first/lake", records=8, behind_ms=3_000, loss_in_ms=9_000, lost=2, forgotten=1)
    waiting = WaitingFiles(source=source, files=2, size_bytes=30, oldest_ms=4_000)
    status = replace(
        status,
        lag=(lag(lost=3), idle),
        journals=(journal,),
        tables=(table,),
        waiting=(waiting, replace(waiting, source=SourceName("none"), files=0, size_bytes=0, oldest_ms=None)),
        lag_unknown=("Kafka does not answer.",),
        waiting_unknown=("No such bucket.",),
    )
    with serving(StatusReader(lambda _: status, pipeline="shop")) as port:
        found = {key: value for key, value in samples(asked(port)[1]).items() if key[0].startswith("penstock_source")}
    assert found == {
        ("penstock_source_lag_records", "t orders"): 7,
        ("penstock_source_lag_records", "idle orders"): 0,
        ("penstock_source_lag_records", "./j orders"): 5,
        ("penstock_source_lag_records", "first/lake orders"): 8,
        ("penstock_source_lag_seconds", "first/lake orders"): 3,
        ("penstock_source_seconds_to_loss", "first/lake orders"): 9,
        ("penstock_source_lost_records", "first/lake orders"): 2,
        ("penstock_source_lag_seconds", "t orders"): 1.5,
        ("penstock_source_lag_seconds", "idle orders"): 0,
        ("penstock_source_lag_seconds", "./j orders"): 2,
        ("penstock_source_seconds_to_loss", "t orders"): 60,
        ("penstock_source_lost_records", "t orders"): 3,
        ("penstock_source_lost_records", "idle orders"): 0,
        ("penstock_source_lost_records", "./j orders"): 1,
        ("penstock_source_waiting_files", "orders"): 2,
        ("penstock_source_waiting_files", "none"): 0,
        ("penstock_source_waiting_bytes", "orders"): 30,
        ("penstock_source_waiting_bytes", "none"): 0,
        ("penstock_source_oldest_waiting_timestamp_seconds", "orders"): 4,
        ("penstock_source_lag_unknown", ""): 1,
        ("penstock_source_uncounted", ""): 1,
    }


def test_the_driver_and_the_newest_batch_are_told_where_they_are_known(file: Path) -> None:
    status = Pipeline.from_file(file).status()
    found = []
    for state, lacking in (("running", ()), ("stopped", ("lake EWR",)), ("unknown", None)):
        seen = replace(status, driver=Driver(state=state, text=""), lacking=lacking)
        families = {
            family.name: family for family in StatusCollector(lambda seen=seen: [Look(pipeline="shop", status=seen)]).collect()
        }
        told = [families[name].samples for name in ("penstock_driver_running", "penstock_newest_batch_published")]
        found.append([sample.value for samples in told for sample in samples])
    assert found == [[1, 1], [0, 0], []]


def test_the_last_error_is_told_until_a_run_goes_on(file: Path) -> None:
    status = replace(Pipeline.from_file(file).status(), last_written_at_ms=5_000)
    error = LastError(at_ms=5_000, owner="", kind="StageFailed", message="", remedy="", exit_code=1)
    found = []
    for seen in (replace(status, last_error=error), replace(status, last_error=replace(error, at_ms=4_999))):
        families = StatusCollector(lambda seen=seen: [Look(pipeline="shop", status=seen)]).collect()
        (family,) = (family for family in families if family.name == "penstock_last_error_timestamp_seconds")
        found.append([(sample.labels["error"], sample.labels["exit_code"], sample.value) for sample in family.samples])
    assert found == [[("StageFailed", "1", 5)], []]


def test_places_are_looked_at_less_often_than_the_ledger(file: Path) -> None:
    now_s, given = [0.0], list[object]()
    status = Pipeline.from_file(file).status()

    def read(known: object) -> Status:
        given.append(known)
        return status

    reader = StatusReader(read, pipeline="shop", clock=lambda: now_s[0])
    for now_s[0] in (0.0, 1.0, PLACES_EVERY_S, PLACES_EVERY_S + 1, PLACES_EVERY_S + 2):
        reader.status()
    assert given == [None, status, status, None, status]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "9464"], "--listen is HOST:PORT, found '9464'"),
        (["--listen", "0.0.0.0:99999"], "--listen is HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "shows where the pipelines stand to everyone"),
        (["--listen", "[::]:0"], "shows where the pipelines stand to everyone"),
        (["--token-file", "absent"], "The token cannot be read from absent"),
        (["--token-file", "f.yaml"], "f.yaml holds no token"),
        (["--tls-key", "f.yaml"], "--tls-key without --tls-cert"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "f.yaml"], "The certificate f.yaml and its key cannot be used"),
        (["f.yaml"], "2 files are of the pipeline 'shop'"),
    ],
)
def test_what_cannot_be_served_is_told(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "f.yaml", *words])
    assert (ended.value.code, message in capsys.readouterr().err) == (2, True)


def test_an_address_in_use_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(reader_of(file)) as port, pytest.raises(SystemExit) as ended:
        main(["metrics", "f.yaml", "--listen", f"127.0.0.1:{port}"])
    assert (ended.value.code, "Address already in use" in capsys.readouterr().err) == (1, True)


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "penstock.observe.endpoint", None)
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "f.yaml"])
    assert (ended.value.code, "pip install 'prometheus-client<" in capsys.readouterr().err) == (1, True)


def test_the_url_of_an_address_of_ipv6() -> None:
    assert Listening(host="::1", port=80, certificate=Path("c")).url == "https://[::1]:80"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_of_the_page_answers_until_it_is_stopped(file: Path, number: signal.Signals) -> None:
    (command,) = re.findall(r"^\$ (penstock metrics \w+\.yaml .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    words = command.replace("flights.yaml orders.yaml", str(file)).split()[1:]
    (file.parent / "token").write_text(TOKEN)
    words = [sys.executable, "-m", "penstock", *words, "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(words, cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["pipelines"] == ["shop"]
        port = int(told["url"].rpartition(":")[2])
        assert asked(port, "/livez") == (200, "ok\n")
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


def test_state_is_told_with_its_limits() -> None:
    operators = [OperatorSample(name="dedupe", rows=7 + at, memory_bytes=1_000 + 100 * at, disk_bytes=50) for at in range(2)]
    samples = [
        StateSample(generation=Generation(1), batch_id=BatchId(at), at_ms=3_600_000 * at, operators=(operator, operator))
        for at, operator in enumerate(operators)
    ]
    status = replace(Pipeline.from_file("f.yaml").status(), state=size_of(samples, StateLimits(memory=2_400, disk=1_000)))
    found = {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "pipeline")): sample.value
        for family in StatusCollector(lambda: [Look(pipeline="shop", status=status)]).collect()
        for sample in family.samples
        if sample.name.startswith("penstock_state")
    }
    assert found == {
        ("penstock_state_rows", "dedupe", "0"): 8,
        ("penstock_state_rows", "dedupe", "1"): 8,
        ("penstock_state_memory_bytes", "dedupe", "0"): 1_100,
        ("penstock_state_memory_bytes", "dedupe", "1"): 1_100,
        ("penstock_state_disk_bytes", "dedupe", "0"): 50,
        ("penstock_state_disk_bytes", "dedupe", "1"): 50,
        ("penstock_state_limit_bytes", "memory"): 2_400,
        ("penstock_state_limit_bytes", "disk"): 1_000,
        ("penstock_state_seconds_to_limit", "memory"): 3_600,
    }


def test_the_page_names_every_metric() -> None:
    families = {
        family.name: family for collector in (StatusCollector(list), BatchCollector([])) for family in collector.collect()
    }
    told = re.findall(r"^\| `(penstock_\w+?)(?:_total)?(?:\{(.*?)\})?` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(told) == {
        name: ", ".join(label for label in family._labelnames if label != "pipeline")  # type: ignore[attr-defined]
        for name, family in families.items()
    }
