"""Accounts in object stores: one pass to N of them against N passes of Arrow writers, and what a small batch costs.

The stores are those of the tests, on this machine: they share its cores, and there is no network. What carries over are the
ratios and the numbers of requests. The peers write with Arrow's own file systems, straight to where readers look: at-least-once.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from pyspark.sql import DataFrame, SparkSession
from tests.servers.fixtures import server
from tests.servers.server import Outside, Place

import penstock
from bench.content import fingerprint, of_directories
from bench.servers import those_there
from bench.session import COLUMNS, counted, stream, write_input
from bench.table import Table, median, ratio
from penstock.bloburl import parse
from penstock.observe.history import history
from penstock.run.operations import reading
from penstock.sink.parquet.sink import ParquetSink

ROWS, FILES, ROUNDS = 1_000_000, 4, 3
BATCH_ROWS, BATCHES, WARM_UP = 1_000, 25, 12
NAMES = {"s3": "S3 (versitygw)", "az": "Azure (Azurite)", "gs": "Google (fake-gcs-server)", "hdfs": "HDFS"}

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


def measure(spark: SparkSession, scratch: Path) -> list[Table]:
    """A table of one large batch per store, and one of small batches."""
    there = those_there(NAMES)
    large = [_large(spark, scratch / kind, kind) for kind in there if kind in WITH_PEER]
    return [*large, _small(spark, scratch, there)] if there else []


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


def _large(spark: SparkSession, scratch: Path, kind: str) -> Table:
    rows = []
    for number in (2, 4, 8):
        write_input(spark, scratch / "input", rows=ROWS, accounts=number, files=FILES)
        expected = fingerprint(spark.read.parquet(str(scratch / "input")))
        seconds: dict[str, list[float]] = {"one pass": [], "N passes": [], "N passes, cached": []}
        for turn in range(ROUNDS + 1):  # the first round warms up
            for way, times in seconds.items():
                accounts = _accounts(kind, number)
                took = _run(spark, way, accounts, scratch)
                assert _found(spark, accounts, scratch) == expected, way
                times.extend([took] if turn else [])
        ours, plain, cached = (median(times) for times in seconds.values())
        rows.append([str(number), f"{ours:.1f}", f"{plain:.1f}", f"{cached:.1f}", ratio(plain / ours), ratio(cached / ours)])
    return Table(
        f"{ROWS:,} rows x 7 columns to N accounts on {NAMES[kind]}, one batch, seconds (median)",
        [
            "accounts",
            "one pass (Penstock)",
            "N passes",
            "N passes, cached",
            "N passes / Penstock",
            "cached / Penstock",
        ],
        rows,
        "The N passes filter the batch for one account after the other and write it with Arrow's own file system for that store.",
    )


def _run(spark: SparkSession, way: str, accounts: Mapping[str, Stored], scratch: Path) -> float:
    home, frame = scratch / "home", stream(spark, scratch / "input")
    shutil.rmtree(home, ignore_errors=True)
    started = time.perf_counter()
    if way == "one pass":
        _delivery(accounts, home).start(frame.writeStream.trigger(availableNow=True)).awaitTermination()
    else:
        writer = frame.writeStream.foreachBatch(_passes(accounts, cached=way.endswith("cached")))
        writer.option("checkpointLocation", str(home)).trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - started


def _passes(accounts: Mapping[str, Stored], *, cached: bool) -> Any:
    def write(rows: DataFrame, batch_id: int) -> None:
        source = rows.persist() if cached else rows
        for name, stored in accounts.items():
            source.where(f"account = '{name}'").mapInArrow(_writer(stored, batch_id), "rows LONG").collect()
        if cached:
            source.unpersist()

    return write


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


def _found(spark: SparkSession, accounts: Mapping[str, Stored], scratch: Path) -> tuple[int, int]:
    """The content, fetched by the store's own client and read by Spark."""
    roots = [_fetched(stored.outside, scratch / "fetched" / name) for name, stored in accounts.items()]
    found = of_directories(spark, roots)
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


def _small(spark: SparkSession, scratch: Path, kinds: Sequence[str]) -> Table:
    return Table(
        f"{BATCH_ROWS:,} rows a batch to three accounts in a store, milliseconds per batch (median of whole triggers)",
        ["store", "in the decision", "requests a batch", "uploaded", "requests a batch", "three Arrow files, at-least-once"],
        [_small_row(spark, kind, scratch) for kind in kinds],
        "The ledger is a local file. On Azure and S3 small files travel in the decision and are put once, which is switched off "
        "for `uploaded`, the only way elsewhere. Requests are those that the ledger has, tasks included. The peer "
        "writes with Arrow's file systems, which has none for the others.",
    )


def _small_row(spark: SparkSession, kind: str, scratch: Path) -> list[str]:
    ways = ("in the decision", "uploaded") if kind in WITH_PEER else ("uploaded",)
    spent: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in ways}
    plain: list[float] = []
    for _ in range(ROUNDS):
        for way, (times, requests) in spent.items():
            with _inline_limit(0 if way == "uploaded" else None):
                took, asked = _penstock_ms(spark, kind, scratch)
            times.extend(took)
            requests.extend(asked)
        plain += _plain_ms(spark, kind, scratch) if kind in WITH_PEER else []
    shown = [_shown(*spent[way]) if way in spent else ["-", "-"] for way in ("in the decision", "uploaded")]
    return [NAMES[kind], *shown[0], *shown[1], f"{median(plain):.0f}" if plain else "-"]


def _shown(times: list[float], requests: list[float]) -> list[str]:
    return [f"{median(times):.0f}", f"{median(requests):.0f}"]


@contextmanager
def _inline_limit(limit_bytes: int | None) -> Iterator[None]:
    """The pipeline file has no setting for it, on purpose: which way is used was chosen by this measurement."""
    defaults = ParquetSink.__init__.__kwdefaults__
    changed = {} if limit_bytes is None else {"inline_limit_bytes": limit_bytes}
    with patch.dict(defaults, changed):
        yield


def _penstock_ms(spark: SparkSession, kind: str, scratch: Path) -> tuple[list[float], list[float]]:
    """Milliseconds and requests of each batch after the first ones."""
    accounts = _accounts(kind, 3)
    delivery = _delivery(accounts, scratch / "home")
    query = delivery.start(counted(spark, BATCH_ROWS).writeStream)
    _await(query, WARM_UP + BATCHES)
    query.stop()
    _require_whole_batches(spark, accounts, scratch)
    with reading(delivery.plan) as ledger:
        batches = [row for row in history(ledger.newest_first()) if (row.batch_id or 0) >= WARM_UP]
    counted_both = [(row.stage_requests, row.publish_requests) for row in batches]
    requests = [float(staged + published) for staged, published in counted_both if staged is not None and published is not None]
    return _triggers_ms(query), requests


def _plain_ms(spark: SparkSession, kind: str, scratch: Path) -> list[float]:
    accounts = _accounts(kind, 3)
    opened = {name: (stored.file_system(), stored.root) for name, stored in accounts.items()}

    def write(rows: DataFrame, batch_id: int) -> None:
        table = rows.toArrow()
        for name, (file_system, root) in opened.items():
            part = table.filter(pc.equal(table["account"], name))
            pq.write_table(part, f"{root}/batch-{batch_id}.parquet", filesystem=file_system, compression="zstd")

    shutil.rmtree(scratch / "home", ignore_errors=True)
    writer = counted(spark, BATCH_ROWS).writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(scratch / "home")).start()
    _await(query, WARM_UP + BATCHES)
    query.stop()
    return _triggers_ms(query)


def _batch(query: Any) -> int:
    return -1 if query.lastProgress is None else int(query.lastProgress.batchId)


def _await(query: Any, batch_id: int) -> None:
    while _batch(query) < batch_id and query.isActive:
        time.sleep(0.05)


def _triggers_ms(query: Any) -> list[float]:
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= WARM_UP]


def _require_whole_batches(spark: SparkSession, accounts: Mapping[str, Stored], scratch: Path) -> None:
    roots: Sequence[Path] = [_fetched(stored.outside, scratch / "fetched" / name) for name, stored in accounts.items()]
    rows = spark.read.schema(COLUMNS).parquet(*[str(root) for root in roots]).agg({"id": "sum", "*": "count"}).first()
    shutil.rmtree(scratch / "fetched")
    assert rows is not None
    assert rows["count(1)"] % BATCH_ROWS == 0, rows
    assert rows["sum(id)"] == sum(range(rows["count(1)"])), rows
