"""The reader of Kinesis on an emulator, by the client of AWS: splits, merges, kills, expired records, a stream made anew.

CI kills it a few times; `make soak` PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.live import kinesis_reader
from tests.seed import SEED
from tests.servers.fixtures import server
from tests.servers.kinesis import Stream

from penstock.core.model import SourceName
from penstock.errors import Failed, InputLost
from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.lag import lag_of
from penstock.source.kinesis.settings import BEGINS, NAME, settings_in

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3"))
MOST_SHARDS = 5


@pytest.fixture
def stream() -> Stream:
    server("kinesis").set_clock(ahead_h=0)
    return server("kinesis").stream(shards=2)  # type: ignore[no-any-return]


def options(stream: Stream, **more: str) -> dict[str, str]:
    return {BEGINS: "TRIM_HORIZON", **stream.options, "maxRecordsPerTrigger": "30", **more}


def read(stream: Stream, directory: Path, **more: str) -> None:
    kinesis_reader.main(options(stream, **more), directory, 0)


def rows(directory: Path) -> list[tuple[int, str, str, str]]:
    with sqlite3.connect(directory / "rows.db") as sink:
        return sink.execute("SELECT batch, number, shard, data FROM delivered ORDER BY rowid").fetchall()


def assert_exact(directory: Path, sent: int) -> None:
    found = rows(directory)
    assert Counter(data for *_, data in found) == Counter(map(str, range(sent))), SEED
    assert max(Counter(number for _, number, *_ in found).values()) == 1, SEED


def test_a_key_keeps_its_order_through_splits_and_merges(stream: Stream, tmp_path: Path) -> None:
    """All records of a key have one hash, so each goes to the shard that is the child of the one before."""
    for part in range(4):
        for number in range(part * 20, part * 20 + 20):
            stream.put(number, key=f"key {number % 7}")
        if part == 2:
            stream.merge()
        else:
            stream.split(0)
    read(stream, tmp_path)
    assert_exact(tmp_path, 80)
    found = [int(data) for *_, data in rows(tmp_path)]
    for key in range(7):
        of_key = [number for number in found if number % 7 == key]
        assert of_key == sorted(of_key)
    with sqlite3.connect(tmp_path / "rows.db") as sink:
        assert len(sink.execute("SELECT DISTINCT shard FROM delivered").fetchall()) >= 3


@pytest.mark.crash
@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_reader_killed_while_shards_are_split_and_merged_reads_each_record_once(stream: Stream, tmp_path: Path) -> None:
    chosen = random.Random(f"{SEED} kinesis reader")
    ends, sent = Counter[int](), 0
    while ends[-signal.SIGKILL] < KILLS:
        count, shards = chosen.randint(20, 60), len(stream.open_shards())
        stream.put(*range(sent, sent + count))
        sent += count
        act = chosen.choice(["split", "merge", "neither"])
        if act == "split" and shards < MOST_SHARDS:
            stream.split(chosen.randrange(shards))
        elif act == "merge" and shards > 1:
            stream.merge(chosen.randrange(shards - 1))
        command = ["-m", kinesis_reader.__name__, json.dumps(options(stream)), str(tmp_path), str(chosen.randint(1, 12))]
        ended = subprocess.run([sys.executable, *command], check=False, capture_output=True, text=True)
        assert ended.returncode in {-signal.SIGKILL, 0}, ended.stderr
        ends[ended.returncode] += 1
    read(stream, tmp_path)
    print(f"PENSTOCK_SEED={SEED}: {sent} records, {len(list(kinesis_reader.offsets(tmp_path)))} batches, ends {dict(ends)}")
    assert_exact(tmp_path, sent)


def test_what_expired_is_refused_with_numbers(stream: Stream, tmp_path: Path) -> None:
    stream.put(*range(10))
    read(stream, tmp_path)
    *_, end = kinesis_reader.offsets(tmp_path)
    settings = settings_in({NAME: "orders", **options(stream)})
    assert lag_of(SourceName("orders"), settings, json.dumps(end), connect=connect).gap is None
    stream.put(10, 11)
    waiting = lag_of(SourceName("orders"), settings, json.dumps(end), connect=connect)
    assert waiting.waiting >= 1
    assert waiting.loss_in_ms is not None
    assert waiting.loss_in_ms > 23 * 3_600_000
    server("kinesis").set_clock(ahead_h=25)
    with pytest.raises(InputLost, match=r"was read up to sequence number \d+, .* 25\.0 hours ago.*holds no record now"):
        read(stream, tmp_path)
    read(stream, tmp_path, failOnDataLoss="false")
    assert_exact(tmp_path, 10)


def test_a_stream_made_anew_is_refused(stream: Stream, tmp_path: Path) -> None:
    stream.put(*range(10))
    read(stream, tmp_path)
    stream.delete()
    with pytest.raises(Failed, match="does not exist"):
        read(stream, tmp_path)
    server("kinesis").set_clock(ahead_h=0.01)  # a creation time has whole seconds in the emulator
    stream.create(shards=2)
    stream.put("other")
    with pytest.raises(InputLost, match="was deleted and created again"):
        read(stream, tmp_path)
    assert_exact(tmp_path, 10)


def test_latest_begins_with_what_comes(stream: Stream, tmp_path: Path) -> None:
    stream.put("before", key="a")
    settings = settings_in({NAME: "orders", **options(stream), BEGINS: "LATEST"})
    query = kinesis_reader.KinesisStream(settings, lambda: connect(settings))
    first = query.advance(query.begin())
    stream.put(*range(5))
    end = query.advance(first)
    found = [
        row["data"]
        for piece in query.planned(first, end)
        for batch in kinesis_reader.batches_of(piece, settings, connect(settings))
        for row in batch.to_pylist()
    ]
    assert Counter(found) == Counter(str(number).encode() for number in range(5))


def test_wrong_credentials_streams_and_places_are_told(stream: Stream) -> None:
    missing = settings_in({NAME: "orders", **options(stream), "streamName": "nothing"})
    with pytest.raises(Failed, match=r"Stream 'nothing' of source 'orders' does not exist at http://127"):
        connect(missing).summary()
    with pytest.raises(Failed, match="The client of source 'orders'"):
        connect(settings_in({NAME: "orders", **options(stream), "profile": "nobody"}))
