"""A pipeline of every kind of sink, watched by page, Prometheus and `watch` at once: sums agree, it is cheap, nothing leaks.

CI runs some seconds, with the sinks that need no server; `make soak` runs PENSTOCK_SOAK_MINUTES with all of them.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

import pyarrow.dataset as ds
import pytest
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.crash.watchers import Process, Screen, screen
from tests.servers.fixtures import server, unique
from tests.servers.prometheus import asked, scraping
from tests.servers.server import NotInstalledError, free_port
from tests.unit.receivers import Receiver, receiving

MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES", "0"))
ROWS_PER_S = int(os.environ.get("PENSTOCK_SOAK_ROWS", "10000"))
IS_SERVED = MINUTES > 0
SLICE_S, PATIENCE_S, LOOK_S = 5.0, 180.0, 5.0
FEWER = 100
"""HTTP and Cassandra get one row of so many."""
MORE_MB, LARGEST_SHARE = 15, 0.01
"""By which a watcher may grow in the last third of ten minutes, and what it may use of the machine's processors."""

SECRETS = {name: f"planted-{name}-s3cret" for name in ("spark", "hook", "metrics", "webhook")}
FILE = """\
pipeline: night
home: ./state
spark:
  master: local[2]
  conf:
    spark.sql.shuffle.partitions: 2
    spark.ui.enabled: false
    spark.driver.memory: 1g
    spark.eventLog.enabled: true
    spark.eventLog.dir: file://{directory}/events
    spark.hadoop.fs.s3a.secret.key: ${{SPARK}}
sources: {{numbers: {{format: rate, options: {{rowsPerSecond: {rate}}}}}}}
transform: {{sql: "SELECT value, CAST(value % 3 AS STRING) AS account FROM numbers"}}
sinks:
  lake: {{type: parquet, accounts: {{"0": ./lake0, "1": ./lake1, "2": ./lake2}}, route: {{column: account}}}}
  lite: {{type: sqlite, url: 'sqlite:///lite.db', table: numbers}}
  duck: {{type: duckdb, url: 'duckdb:///duck.db', table: numbers}}
  delta: {{type: delta, path: ./delta}}
  ice: {{type: iceberg, catalog: 'sqlite:///catalog.db', table: shop.numbers, warehouse: ./warehouse}}
  hook: {{type: http, url: "${{HOOK_URL}}", token: "${{HOOK}}", receiver: idempotent, where: value % {fewer} = 0}}
{more}
trigger: {{processing_time: {trigger}}}
quarantine: ./quarantine
on_event: {{pager: {{url: "${{HOOK_URL}}", token: "${{HOOK}}"}}}}
metrics: {{listen: "127.0.0.1:{port}", token: "${{METRICS}}"}}
"""
SERVED = """\
  postgres: {{type: postgres, url: "${{POSTGRES_URL}}", table: numbers}}
  maria: {{type: mysql, url: "${{MARIA_URL}}", table: numbers}}
  topic: {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, select: [CAST(value AS STRING) AS value]}}
  wide: {{type: cassandra, url: "${{CASSANDRA_URL}}", table: numbers, key: [value], where: value % {fewer} = 0}}
"""

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(7200)]


class Night:
    """The pipeline in a directory, and what its sinks hold, read without Penstock."""

    def __init__(self, directory: Path, receiver: Receiver) -> None:
        self.directory, self._receiver = directory, receiver
        self.environment = {name.upper(): secret for name, secret in SECRETS.items()}
        self.environment["HOOK_URL"] = f"{receiver.url}/{SECRETS['webhook']}"
        self.topic = server("kafka").topic(unique("night")) if IS_SERVED else ""
        if IS_SERVED:
            kinds = {"POSTGRES_URL": "postgres", "MARIA_URL": "mysql", "CASSANDRA_URL": "cassandra"}
            self.environment |= {name: server(kind).database(unique("night")) for name, kind in kinds.items()}
        bootstrap = server("kafka").bootstrap if IS_SERVED else ""
        more = SERVED.format(bootstrap=bootstrap, topic=self.topic, fewer=FEWER) if IS_SERVED else ""
        rate, trigger = (ROWS_PER_S, "10s") if IS_SERVED else (1_000, "1s")
        text = FILE.format(directory=directory, more=more, fewer=FEWER, rate=rate, trigger=trigger, port=free_port())
        (directory / "night.yaml").write_text(text)
        (directory / "events").mkdir()
        (directory / "token").write_text(SECRETS["metrics"])

    def said(self, verb: str, *words: str) -> str:
        """What a command prints, which is also one of the artefacts."""
        command = [sys.executable, "-m", "penstock", verb, "night.yaml", *words]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, cwd=self.directory, env=environment, capture_output=True, text=True, check=False)
        (self.directory / f"{verb}{''.join(words).replace('/', '')}.said").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def logs(self) -> str:
        """What the driver and Spark say."""
        return "".join((self.directory / name).read_text() for name in ("run.err", "state/spark.log"))

    def contents(self) -> Iterator[tuple[str, "Counter[int]"]]:
        """The numbers in each sink."""
        lake = ds.dataset([str(path) for path in self.directory.glob("lake?/**/*.parquet")]).to_table(columns=["value"])
        yield "lake", Counter(lake["value"].to_pylist())
        with closing(sqlite3.connect(self.directory / "lite.db")) as lite:
            yield "lite", Counter(number for (number,) in lite.execute("SELECT value FROM numbers"))
        yield from self._of_libraries()
        sent = (line for request in self._of_hook() for line in request)
        yield "hook", Counter(json.loads(line)["value"] for line in sent)
        if IS_SERVED:
            yield from self._of_servers()

    def _of_libraries(self) -> Iterator[tuple[str, "Counter[int]"]]:
        import deltalake
        import duckdb
        from pyiceberg.catalog import load_catalog

        with duckdb.connect(str(self.directory / "duck.db"), read_only=True) as duck:
            yield "duck", Counter(number for (number,) in duck.execute("SELECT value FROM numbers").fetchall())
        delta = deltalake.DeltaTable(self.directory / "delta").file_uris()
        yield "delta", Counter(ds.dataset(delta).to_table(columns=["value"])["value"].to_pylist())
        ice = load_catalog("default", type="sql", uri=f"sqlite:///{self.directory}/catalog.db").load_table("shop.numbers")
        yield "ice", Counter(ice.scan(selected_fields=("value",)).to_arrow()["value"].to_pylist())

    def _of_hook(self) -> Iterator[list[bytes]]:
        """The lines of one request of each key: others of it are repetitions. Events have none."""
        keyed = {key: each for each in self._receiver.requests if (key := each.headers.get("idempotency-key")) is not None}
        yield from (request.body.splitlines() for request in keyed.values())

    def _of_topic(self) -> Iterator[int]:
        """As a `read_committed` consumer gets them: there are too many to hold all records at once."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": server("kafka").bootstrap, **settings})
        try:
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            while found := consumer.consume(10_000, timeout=60):
                yield from (int(record.value()) for record in found if record.error() is None)
                if any(record.error() is not None for record in found):
                    return
        finally:
            consumer.close()

    def _of_servers(self) -> Iterator[tuple[str, "Counter[int]"]]:
        import psycopg

        with psycopg.connect(self.environment["POSTGRES_URL"]) as postgres:
            yield "postgres", Counter(number for (number,) in postgres.execute("SELECT value FROM numbers"))
        maria_database = self.environment["MARIA_URL"].partition("?")[0].rpartition("/")[2]
        with closing(server("mysql").admin(maria_database)) as maria:
            cursor = maria.cursor()
            cursor.execute("SELECT value FROM numbers")
            yield "maria", Counter(number for (number,) in cursor.fetchall())
        yield "topic", Counter(self._of_topic())
        session = server("cassandra").session(self.environment["CASSANDRA_URL"].rpartition("/")[2])
        yield "wide", Counter(row[0] for row in session.execute("SELECT value FROM numbers"))


def test_watched_for_long(tmp_path: Path) -> None:
    with ExitStack() as opened:
        night = Night(tmp_path, opened.enter_context(receiving()))
        rows = watched(night, opened)
        total = sum(count for place, count in rows.items() if place.startswith("lake "))
        print(f"{total:,} rows in each sink, {-(-total // FEWER):,} in those of a part")
        for name, found in night.contents():
            told = sum(count for place, count in rows.items() if place.split()[0] == name)
            step = FEWER if name in {"hook", "wide"} else 1
            assert found == Counter(range(0, total, step)), f"{name} has {found.total():,} rows of {total:,}"
            assert (found.total(), sum(found)) == (told, sum(range(0, total, step))), name
        assert json.loads(night.said("verify", "--json"))["ok"]
        for verb in ("history", "doctor", "check"):
            night.said(verb)
        assert_no_secret(night)


def watched(night: Night, opened: ExitStack) -> Mapping[str, int]:
    """Run the pipeline and those who watch; return the rows of each place, which all of them say in the end."""
    ports = {"prometheus": free_port(), "page": free_port()}
    shown = opened.enter_context(screen(night.directory / "watch.screen"))
    everyone = {name: Process(name, "night.yaml", *more, name=name) for name, *more in (("run", "--json"), ("watch",))}
    for name, port in ports.items():
        words = ("metrics", "night.yaml", "--listen", f"127.0.0.1:{port}", "--token-file", "token")
        everyone[name] = Process(*words, name=name)
    for name, process in everyone.items():
        process.open(night.directory, night.environment, terminal=shown.theirs if name == "watch" else None)
        opened.callback(process.kill)
    driver = everyone["run"]
    page = f"http://127.0.0.1:{ports['page']}"

    def has_begun() -> bool:
        assert driver.process.poll() is None, night.logs()
        return "batch 1" in shown.last and "night" in got(page)

    awaited(has_begun, what=lambda: shown.last)
    try:
        prometheus = opened.enter_context(scraping(night.directory, settings=scraped(ports["prometheus"])))
    except NotInstalledError as missing:
        pytest.skip(str(missing))
    look_at(night, everyone, page)
    assert driver.end() == 0, night.logs()
    return agreed(night, page, prometheus, shown)


def look_at(night: Night, everyone: Mapping[str, Process], page: str) -> None:
    """Ask for the page as somebody does who leaves it open, and measure everyone."""
    for process in everyone.values():
        process.begin()
    begun_s = time.monotonic()
    until_s = begun_s + (60 * MINUTES or SLICE_S)
    while (left_s := until_s - time.monotonic()) > 0:
        for number, path in enumerate(("/", "/pipelines/night", "/pipelines/night/history")):
            (night.directory / f"page{number}.html").write_text(got(page + path))
        with suppress(subprocess.TimeoutExpired):
            everyone["run"].process.wait(min(LOOK_S, left_s))
            raise AssertionError(night.logs())
        for process in everyone.values():
            process.look()
    there_s = (time.monotonic() - begun_s) * len(os.sched_getaffinity(0))
    seen = {name: (process.used_s / there_s, process.memory_by_thirds) for name, process in everyone.items()}
    for name, (share, memory) in seen.items():
        print(f"{name}: {share:.2%} of the processors, memory {memory} MB")
    for name, (share, memory) in seen.items():
        if MINUTES >= 5 and name != "run":
            assert memory[2] <= memory[1] + MORE_MB, name
            assert share < LARGEST_SHARE, name


def scraped(port: int) -> Mapping[str, Any]:
    every = dict.fromkeys(("scrape_interval", "scrape_timeout"), "15s" if IS_SERVED else "1s")
    job = {"job_name": "penstock", "authorization": {"credentials": SECRETS["metrics"]}}
    return {"global": every, "scrape_configs": [{**job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}


def agreed(night: Night, page: str, prometheus: str, shown: Screen) -> Mapping[str, int]:
    """What `status` says of each place, once Prometheus, page and `watch` say the same."""
    status = json.loads(night.said("status", "--json"))
    rows = {
        f"{sink} {account}".strip(): totals["rows"]
        for sink, accounts in status["totals"].items()
        for account, totals in accounts.items()
    }
    query = f"{prometheus}/api/v1/query?query={quote('penstock_sink_rows_total')}"

    def scraped_rows() -> Mapping[str, int]:
        found = ((each["metric"], int(each["value"][1])) for each in asked(query)["result"])
        return {f"{labels['sink']} {labels.get('account', '')}".strip(): value for labels, value in found}

    awaited(lambda: scraped_rows() == rows, what=lambda: f"Prometheus has {scraped_rows()}, not {rows}")
    numbers = {f"{count:,}" for count in rows.values()}
    assert numbers <= set(re.findall(r"[\d,]+", got(f"{page}/pipelines/night")))
    awaited(lambda: all(number in shown.last for number in numbers), what=lambda: f"{numbers} are not all in {shown.last}")
    (night.directory / "metrics.txt").write_text(got(f"{page}/metrics"))
    night.said("report", "-o", "report.html")
    return rows


def got(url: str) -> str:
    request = Request(url, headers={"Authorization": f"Bearer {SECRETS['metrics']}"})
    with urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def awaited(happened: Callable[[], bool], *, what: Callable[[], str]) -> None:
    """Wait until it `happened`; a server that does not answer yet is asked again. `what` says what is there instead."""

    def has_happened() -> bool:
        with suppress(OSError):
            return happened()
        return False

    trying = Retrying(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.2), retry=retry_if_result(lambda found: not found))
    try:
        trying(has_happened)
    except RetryError:
        pytest.fail(what())


def assert_no_secret(night: Night) -> None:
    """In no file that came of it: pages, metrics, logs, status, history, ledger, checkpoint, event log, what was printed."""
    passwords = [url.partition("@")[0].rpartition(":")[2] for url in night.environment.values() if "@" in url]
    secrets = [secret.encode() for each in (*SECRETS.values(), *passwords) for secret in {each, unquote(each)}]
    mine = {"token", "prometheus.yml"}
    scanned = [path for path in night.directory.rglob("*") if path.is_file() and path.name not in mine]
    names = {path.relative_to(night.directory).parts[0] for path in scanned}
    assert names >= {
        "state",
        "events",
        "lake0",
        "run.out",
        "run.err",
        "watch.screen",
        "page0.html",
        "metrics.txt",
        "report.html",
    }
    leaks = {str(path): secret for path in scanned for secret in secrets if secret in path.read_bytes()}
    assert leaks == {}
    size_bytes = sum(path.stat().st_size for path in scanned)
    print(f"{len(scanned)} files of {size_bytes // 1_000_000} MB hold none of {len(secrets)} secrets")
