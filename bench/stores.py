"""Accounts in object stores: one pass to N of them against N passes of Arrow writers, and what a small batch costs.

The stores are those of the tests, on this machine: they share its cores, and there is no network. What carries over are the
ratios and the numbers of requests. The peers write with Arrow's own file systems, straight to where readers look: at-least-once.
"""

import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame
from tests.servers.fixtures import server
from tests.servers.server import Outside, Place

import penstock
from bench.content import Fingerprint, fingerprint, of_directories
from bench.inputs import counted, expressions, numbers, stream, write_input
from bench.lakes import CACHED, UNCACHED
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available, run_until, trigger_ms
from bench.result import PENSTOCK, Case, Table
from bench.servers import those_there
from penstock.blob.url import parse
from penstock.observe.history import history
from penstock.run.assembly import ledger_of
from penstock.sink.parquet.sink import ParquetSink

ROWS, FILES = 500_000, 4
BATCH_ROWS, BATCHES, WARM_UP = 1_000, 6, 3
NAMES = {"s3": "S3 (versitygw)", "az": "Azure (Azurite)", "gs": "Google (fake-gcs-server)", "hdfs": "HDFS"}
DECIDED, UPLOADED, ARROW = "Penstock, in the decision", "Penstock, uploaded", "three Arrow files"

WITH_PEER = ("s3", "az")
"""Arrow has file systems of its own for these."""

_numbers = count()


@dataclass(frozen=True)
class Stored:
    """An account in a store, for Penstock, for Arrow, and for a look from outside."""

    place: Place
    outside: Outside

    @property
    def root(self) -> str:
        """As Arrow's file systems name it."""
        url = parse(self.place.url)
        return f"{url.bucket}/{url.prefix}"

    def file_system(self) -> "fs.FileSystem":
        """Arrow's own."""
        options, url = self.place.options, parse(self.place.url)
        endpoint = urlsplit(options["endpoint"])
        if url.kind == "s3":
            return fs.S3FileSystem(
                access_key=options["access_key_id"],
                secret_key=options["secret_access_key"],
                region=options.get("region", "us-east-1"),
                endpoint_override=endpoint.netloc,
                scheme="http",
            )
        return fs.AzureFileSystem(
            account_name=url.host,
            account_key=options["account_key"],
            blob_storage_authority=endpoint.netloc,
            blob_storage_scheme="http",
            dfs_storage_authority=endpoint.netloc,
            dfs_storage_scheme="http",
        )


def measure(bench: Bench) -> Iterator[Table]:
    """One large batch, and small batches with their requests, on every store that is there."""
    there = those_there(NAMES)
    with_peer = [kind for kind in there if kind in WITH_PEER]
    if with_peer:
        yield _large(bench, with_peer)
    if there:
        yield from _small(bench, there)


def _accounts(kind: str, number: int) -> Mapping[str, Stored]:
    running = server(kind)
    places = {f"account{index}": running.place(f"bench{next(_numbers)}") for index in range(number)}
    return {name: Stored(place, running.outside(place)) for name, place in places.items()}


def _delivery(accounts: Mapping[str, Stored], home: Path) -> "penstock.Delivery":
    shutil.rmtree(home, ignore_errors=True)
    urls = {name: {"url": stored.place.url, "options": dict(stored.place.options)} for name, stored in accounts.items()}
    lake = penstock.Parquet(accounts=urls, route={"column": "account"})
    return penstock.Delivery("bench", home=home, sinks={"lake": lake})


# --- one large batch


def _large(bench: Bench, kinds: list[str]) -> Table:
    rows = bench.sized(ROWS, 1_000)
    return Table(
        name="large",
        title=f"{ROWS:,} rows x 7 columns to several accounts in a store, one batch",
        unit="s",
        cases=tuple(_large_case(bench, kind, number, rows) for kind in kinds for number in (2, 8)),
        amounts="rows",
        note="The N passes filter the batch for one account after the other and write it with Arrow's own file "
        "system for that store.",
    )


def _large_case(bench: Bench, kind: str, number: int, rows: int) -> Case:
    scratch = bench.scratch / f"{kind}{number}"
    write_input(bench.spark, scratch / "input", rows=rows, columns=expressions(accounts=number), files=FILES)
    expected = fingerprint(bench.spark.read.parquet(str(scratch / "input")))

    def seconds(name: str, passes: Any) -> float:
        accounts, home = _accounts(kind, number), scratch / "home"
        shutil.rmtree(home, ignore_errors=True)
        start = passes(accounts, home) if passes else _delivery(accounts, home).start
        frame = stream(bench, scratch / "input")
        started = time.perf_counter()
        run_available(frame, start)
        took = time.perf_counter() - started
        require_content(_found(bench, accounts, scratch), expected, writer=name)
        return took

    ways = {PENSTOCK: None, UNCACHED: _passes, CACHED: _cached_passes}
    return Case(
        name=f"{NAMES[kind]}, {number} accounts", figures=bench.in_rounds(ways, seconds, warm_up=number == 2), amount=rows
    )


def _cached_passes(accounts: Mapping[str, Stored], home: Path) -> Any:
    return _passes(accounts, home, cached=True)


def _passes(accounts: Mapping[str, Stored], home: Path, *, cached: bool = False) -> Any:
    def write(rows: DataFrame, batch_id: int) -> None:
        source = rows.persist() if cached else rows
        for name, stored in accounts.items():
            source.where(f"account = '{name}'").mapInArrow(_writer(stored, batch_id), "rows LONG").collect()
        if cached:
            source.unpersist()

    return batchwise(write, home)


def _writer(stored: Stored, batch_id: int) -> Any:
    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows, writer = 0, None
        with stored.file_system().open_output_stream(f"{stored.root}/part-{batch_id}-{context.taskAttemptId()}.parquet") as file:
            for batch in batches:
                writer = writer or pq.ParquetWriter(file, batch.schema, compression="zstd")
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    return write


def _found(bench: Bench, accounts: Mapping[str, Stored], scratch: Path, *, where: str = "true") -> Fingerprint:
    """The content, fetched by the store's own client and read by Spark."""
    roots = [_fetched(stored.outside, scratch / "fetched" / name) for name, stored in accounts.items()]
    found = of_directories(bench.spark, roots, where=where)
    shutil.rmtree(scratch / "fetched")
    return found


def _fetched(outside: Outside, root: Path) -> Path:
    for key in outside.listing():
        data = outside.get(key) if not key.startswith("_penstock/") else b""
        if data:  # a task without rows leaves an empty object, which is no Parquet
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return root


# --- small batches


def _small(bench: Bench, kinds: list[str]) -> Iterator[Table]:
    spent = {kind: _small_figures(bench, kind) for kind in kinds}
    yield Table(
        name="small",
        title=f"{BATCH_ROWS:,} rows a batch to three accounts in a store, a batch (whole triggers)",
        unit="ms",
        cases=tuple(Case(name=NAMES[kind], figures=took, amount=BATCH_ROWS) for kind, (took, _) in spent.items()),
        ours=(DECIDED, UPLOADED),
        note="The ledger is a local file. On Azure and S3 small files travel in the decision and are put once, which is switched "
        "off for `uploaded`, the only way elsewhere. The peer writes with Arrow's file systems, which has none for the others, "
        "and is at-least-once.",
    )
    yield Table(
        name="requests",
        title="The same: requests of a batch",
        unit="requests",
        cases=tuple(Case(name=NAMES[kind], figures=asked) for kind, (_, asked) in spent.items()),
        ours=(DECIDED, UPLOADED),
        comparison="alone",
        note="Those that the ledger has, tasks included.",
    )


def _small_figures(bench: Bench, kind: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each writer, and requests of those that are ours."""
    ours: dict[str, Any] = {DECIDED: None, UPLOADED: 0} if kind in WITH_PEER else {UPLOADED: 0}
    requests: dict[str, list[float]] = {name: [] for name in ours}

    def batch_ms(name: str, limit_bytes: int | None) -> float:
        if name == ARROW:
            return _arrow_ms(bench, kind)
        with _inline_limit(limit_bytes):
            took, asked = _penstock_ms(bench, kind)
        requests[name].append(asked)
        return took

    figures = bench.in_rounds({**ours, **({ARROW: None} if kind in WITH_PEER else {})}, batch_ms)
    return figures, requests


@contextmanager
def _inline_limit(limit_bytes: int | None) -> Iterator[None]:
    """The pipeline file has no setting for it, on purpose: which way is used was chosen by this measurement."""
    defaults = ParquetSink.__init__.__kwdefaults__
    changed = {} if limit_bytes is None else {"inline_limit_bytes": limit_bytes}
    with patch.dict(defaults, changed):
        yield


def _penstock_ms(bench: Bench, kind: str) -> tuple[float, float]:
    """Milliseconds and requests of a batch after the first ones, in the median."""
    accounts = _accounts(kind, 3)
    delivery = _delivery(accounts, bench.scratch / "home")
    took = _counted_ms(bench, accounts, delivery.start, PENSTOCK)
    with closing(ledger_of(delivery.plan)) as ledger:
        batches = [row for row in history(ledger.newest_first()) if (row.batch_id or 0) >= _warm_up(bench)]
    both = [(row.stage_requests, row.publish_requests) for row in batches]
    asked = [staged + published for staged, published in both if staged is not None and published is not None]
    return took, float(statistics.median(asked))


def _arrow_ms(bench: Bench, kind: str) -> float:
    accounts = _accounts(kind, 3)
    opened = {name: (stored.file_system(), stored.root) for name, stored in accounts.items()}

    def write(rows: DataFrame, batch_id: int) -> None:
        table = rows.toArrow()
        for name, (file_system, root) in opened.items():
            part = table.filter(pc.equal(table["account"], name))
            pq.write_table(part, f"{root}/batch-{batch_id}.parquet", filesystem=file_system, compression="zstd")

    shutil.rmtree(bench.scratch / "home", ignore_errors=True)
    return _counted_ms(bench, accounts, batchwise(write, bench.scratch / "home"), ARROW)


def _counted_ms(bench: Bench, accounts: Mapping[str, Stored], start: Any, writer: str) -> float:
    """The median trigger; the rows of all finished batches are compared, of the one that was cut some may be there."""
    query = start(counted(bench, BATCH_ROWS).writeStream)
    rows = BATCH_ROWS * run_until(query, _warm_up(bench) + bench.sized(BATCHES, 1))
    found = _found(bench, accounts, bench.scratch, where=f"id < {rows}")
    require_content(found, fingerprint(numbers(bench.spark.range(rows))), writer=writer)
    return trigger_ms(query, warm_up=_warm_up(bench))


def _warm_up(bench: Bench) -> int:
    return bench.sized(WARM_UP, 1)
