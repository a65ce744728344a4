"""The page about Kinesis, on an emulator: splits, merges, expired records, a stream made anew: exact or refused with numbers."""

import json
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.source.kinesis.data_source import COLUMNS
from penstock.spec.kinesis_options import _KNOWN
from tests.architecture.reading import ROOT
from tests.crash.commandline import Ended, penstock
from tests.servers.fixtures import server
from tests.servers.kinesis import Stream
from tests.unit.test_kinesis_aggregated import aggregated

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "kinesis.md").read_text()
[PIPELINE] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line.partition("#")[0].split()[1:] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]


class World:
    """The page's pipeline over a stream of its own."""

    def __init__(self, root: Path, stream: Stream, **more: object) -> None:
        self.root, self.stream = root, stream
        self.write(**more)

    def write(self, **more: object) -> None:
        options = {**self.stream.options, "secret_access_key": "${KEY}", **more}
        lines = "".join(f"      {key}: {json.dumps(at)}\n" for key, at in options.items())
        text = PIPELINE.replace("      maxRecordsPerTrigger: 10000\n", "").replace("      streamName: clicks\n", lines)
        (self.root / "kinesis.yaml").write_text(text)

    def __call__(self, *arguments: str, faults: str = "") -> Ended:
        return penstock(
            *arguments, faults=faults, directory=self.root, environment={"KEY": self.stream.options["secret_access_key"]}
        )

    def deliver(self) -> Ended:
        done = self("run", "kinesis.yaml", "--json")
        assert done.code == 0, str(done)
        return done

    def delivered(self) -> list[str]:
        with sqlite3.connect(self.root / "clicks.db") as connection:
            return [data for (data,) in connection.execute("SELECT data FROM clicks")]

    def assert_exact(self, sent: int) -> None:
        assert Counter(self.delivered()) == Counter(map(str, range(sent)))
        assert self("verify", "kinesis.yaml").code == 0

    def status(self) -> dict[str, Any]:
        [found] = json.loads(self("status", "kinesis.yaml", "--json").out)["streams"]
        return dict(found)


@pytest.fixture
def stream() -> Stream:
    server("kinesis").set_clock(ahead_h=0)
    return server("kinesis").stream(shards=2)  # type: ignore[no-any-return]


def test_the_page_names_all_columns_and_options() -> None:
    shown = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Options")[0], re.MULTILINE)
    assert shown == re.findall(r"(?:^|, )(\w+) (?=[A-Z])", COLUMNS)
    options = re.findall(r"^\| (`.*?) \|", PAGE.partition("## Options")[2].partition("\n##")[0], re.MULTILINE)
    assert sorted(name for cell in options for name in re.findall(r"`(\w+)`", cell)) == sorted(_KNOWN)


def test_the_page_works_through_splits_and_merges(tmp_path: Path, stream: Stream) -> None:
    world = World(tmp_path, stream, maxRecordsPerTrigger=40)
    stream.put(*range(100))
    assert "2 open shards" in world("check", "kinesis.yaml").out
    ended = world("run", "kinesis.yaml", "--json", faults="sqlite.commit=error@2")
    assert ended.code in {0, 75}, str(ended)
    stream.split()
    stream.put(*range(100, 150))
    stream.merge(1)
    stream.put(*range(150, 200))
    for command in COMMANDS:
        done = world(*command)
        assert done.code == 0, str(done)
    world.assert_exact(200)
    found = world.status()
    assert (found["shards"], found["waiting"], found["gap"]) == (2, 0, None)
    stream.put(200, 201, 202, key="one shard")
    assert world.status()["waiting"] == 1
    assert "records in 1 shard of" in world("status", "kinesis.yaml").out
    world.deliver()
    world.assert_exact(203)
    assert world("checkpoint", "inspect", "state/clicks/checkpoint").out.count("kinesis") >= 1
    assert "secret" not in (tmp_path / "state/clicks/checkpoint/offsets/0").read_text()


def test_a_batch_is_read_again_for_a_new_sink_and_what_expired_is_refused(tmp_path: Path, stream: Stream) -> None:
    world = World(tmp_path, stream)
    stream.put(*range(20))
    world.deliver()
    text = (tmp_path / "kinesis.yaml").read_text()
    more = "sinks:\n  late: {type: sqlite, url: sqlite:///late.db, table: clicks}\n"
    (tmp_path / "kinesis.yaml").write_text(text.replace("sinks:\n", more))
    done = world("backfill", "kinesis.yaml", "--sink", "late")
    assert done.code == 0, str(done)
    with sqlite3.connect(tmp_path / "late.db") as connection:
        assert Counter(data for (data,) in connection.execute("SELECT data FROM clicks")) == Counter(map(str, range(20)))
    server("kinesis").set_clock(ahead_h=30)
    lost = world("run", "kinesis.yaml", "--json")
    assert lost.code == 3, str(lost)
    assert re.search(r"was read up to sequence number \d+, and everything that arrived before .*, 30\.\d hours ago", lost.err)
    assert "The stream does not keep records for so long" in world.status()["gap"]
    assert world("check", "kinesis.yaml").code != 0


def test_a_stream_made_anew_is_refused_until_its_checkpoint_is_put_aside(tmp_path: Path, stream: Stream) -> None:
    world = World(tmp_path, stream)
    stream.put(*range(5))
    world.deliver()
    stream.delete()
    server("kinesis").set_clock(ahead_h=0.01)  # a creation time has whole seconds here
    stream.create(shards=2)
    stream.put(*range(5, 9))
    lost = world("run", "kinesis.yaml", "--json")
    assert lost.code == 3, str(lost)
    assert "was deleted and created again" in lost.err
    checkpoint = tmp_path / "state/clicks/checkpoint"
    checkpoint.rename(tmp_path / "aside")
    assert world("adopt", "kinesis.yaml", "--yes", "--reason", "the stream was made anew").code == 0
    world.deliver()
    world.assert_exact(9)


def test_records_of_the_producer_library_come_one_by_one(tmp_path: Path, stream: Stream) -> None:
    stream.put_data(aggregated(("k", b"0"), ("k", b"1")), key="k")
    stream.put(2)
    world = World(tmp_path, stream)
    world.deliver()
    world.assert_exact(3)
