"""What a batch costs in requests is what a proxy before the real servers sees of it, request by request."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Condition

import pytest
from pyspark.sql import SparkSession

from penstock.blob import s3
from penstock.observe.history import HistoryRow, PieceCounts
from penstock.observe.progress import BatchProgress
from penstock.run.pipeline import Pipeline
from tests.crash.world import World, make_world
from tests.seed import SEED
from tests.servers import s3 as s3_server
from tests.servers.fixtures import accounts_on, server, unique
from tests.servers.proxy import Proxy, before

pytestmark = pytest.mark.spark

ENDPOINTS = {"az": "endpoint", "gs": "endpoint", "hdfs": "webhdfs", "s3": "endpoint"}
LARGE, SMALL = 8_000, 100
SIZES = (LARGE, LARGE, SMALL, SMALL, SMALL)
"""Rows of each batch: the first is staged by tasks, since nothing is known of the size, the others by the driver."""
WAIT_S = 300


@dataclass(frozen=True)
class Network:
    """All proxies of one pipeline."""

    proxies: dict[str, Proxy]

    def seen(self) -> int:
        """Requests so far; who is sent elsewhere by an answer goes there once."""
        return sum(len(proxy.seen) + proxy.redirected for proxy in self.proxies.values())

    def staging(self) -> int:
        """Those that only staging sends, where a path tells."""
        return sum(is_staging(method, path) for proxy in self.proxies.values() for method, path in proxy.seen)


def is_staging(method: str, path: str) -> bool:
    begun = method == "POST" and path.endswith("?uploads")
    return begun or (method == "PUT" and ("partNumber=" in path or "comp=block&" in path))


@pytest.fixture
def network() -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(Proxies(stack))
    s3._client.cache_clear()


class Proxies(dict[str, Proxy]):
    """One before the server of each kind, made when it is asked for."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, kind: str) -> Proxy:
        self[kind] = self._stack.enter_context(before(server(kind).options[ENDPOINTS[kind]]))
        return self[kind]


class Looks:
    """An observer that notes what the network saw up to the end of each batch."""

    def __init__(self, network: Network) -> None:
        self.network, self.paths = network, list[str]()
        self.total, self.staging = [network.seen()], [network.staging()]
        self._changed = Condition()

    def __call__(self, progress: BatchProgress) -> None:
        with self._changed:
            self.paths.append(progress.path)
            self.total.append(self.network.seen())
            self.staging.append(self.network.staging())
            self._changed.notify_all()

    def await_batches(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.paths) >= number, WAIT_S)

    def begin(self) -> None:
        """From here on; what came before was the opening."""
        self.total, self.staging = [self.network.seen()], [self.network.staging()]


def world_of(directory: Path, network: Network, kinds: dict[str, str], *, extra: str = "") -> World:
    """Accounts behind proxies; each batch is one file of the source, and has one file for each account and attempt."""
    stores = {}
    for name, (place, outside) in accounts_on(**kinds).items():
        option = ENDPOINTS[kinds[name]]
        path = place.options[option].partition("://")[2].partition("/")[2]
        endpoint = network.proxies[kinds[name]].endpoint
        there = {option: f"{endpoint}/{path}" if path else endpoint}
        stores[name] = (replace(place, options={**place.options, **there}), outside)
    world = make_world(directory, files=0, rows_per_file=0, seed=SEED, per_trigger=1, wide=True, stores=stores, extra=extra)
    world.rewrite(
        ("    partition_by: [month]\n", ""),
        ("trigger: {available_now: true}", "trigger: {processing_time: 50ms}"),
    )
    return world


def ledger_on_s3(network: Network, monkeypatch: pytest.MonkeyPatch) -> str:
    bucket = unique("requests")
    server("s3").client().create_bucket(Bucket=bucket)
    s3._client.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", network.proxies["s3"].endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return f"s3://{bucket}/ledger"


def delivered(world: World, spark: SparkSession, looks: Looks) -> list[HistoryRow]:
    """Deliver batches of SIZES; the ledger's rows for them, oldest first."""
    generator, pipeline = random.Random(SEED), Pipeline.from_file(world.file)
    query = pipeline.start(spark, observers=[looks])
    looks.begin()
    for number, rows in enumerate(SIZES, 1):
        world.feed(generator, files=1, rows_per_file=rows)
        looks.await_batches(number)
    query.stop()
    return [row for row in reversed(pipeline.history()) if row.kind == "decided"]


def steps(counts: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(counts)]


CLAIMING = {"s3": 7, "az": 7, "gs": 7, "hdfs": 15}
"""Looks at files, marks, the log of Spark's file sink and an owner above it; a look, a put, and a look at what is there then.

Some take several on HDFS.
"""


@pytest.mark.parametrize(
    "kinds",
    [{"EWR": "s3", "JFK": "az"}, {"EWR": "gs"}, {"EWR": "hdfs"}],
    ids=["s3, azure, a directory and a ledger on s3", "gs", "hdfs"],
)
def test_the_ledger_knows_what_the_network_saw(
    spark: SparkSession, tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, str]
) -> None:
    """All but what claims the accounts once a run, before the first batch."""
    on_s3 = "s3" in kinds.values()
    ledger = f"ledger: {ledger_on_s3(network, monkeypatch)}\n" if on_s3 else ""
    several_tasks = "transform: {sql: SELECT /*+ REPARTITION(3) */ * FROM flights}"
    world = world_of(tmp_path / "world", network, kinds, extra=ledger + several_tasks)
    looks = Looks(network)
    rows = delivered(world, spark, looks)

    assert looks.paths == ["distributed", "driver", "driver", "driver", "driver"]
    known, last = rows[:-1], rows[-1]
    counted = [(row.stage_requests or 0) + (row.publish_requests or 0) for row in known]
    print(f"{kinds}: {[(row.stage_requests, row.publish_requests) for row in rows]}")
    claiming = sum(CLAIMING[kind] for kind in kinds.values())
    assert [counted[0] + claiming, *counted[1:]] == steps(looks.total)[:-1]
    assert (last.stage_requests is not None, last.publish_requests) == (True, None)
    if on_s3:
        assert [row.stage_requests for row in rows] == steps(looks.staging)
        assert rows[0].stage_requests != 0
        assert [row.pieces["lake"]["EWR"] for row in rows[1:]] == [PieceCounts(staged=1), *[PieceCounts(in_decision=1)] * 3]  # type: ignore[index]

    costs = Pipeline.from_file(world.file).explain(spark).costs
    assert costs is not None
    assert (costs.measured_batches, costs.requests_per_batch) == (4, sum(counted) / 4)
    hint = 1 / 8 if on_s3 else 0
    assert counted[1:] == [costs.estimated.uploaded - hint, *[costs.estimated.small - hint] * 2]
