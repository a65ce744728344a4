"""The parquet sink over object stores passes the suite of all sinks, on a real server of each kind: uploaded and inline."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.architecture.reading import ROOT
from tests.conformance.beside_driver import looks_of
from tests.conformance.object_rig import InlineRig, ObjectRig
from tests.servers.fixtures import server, unique

from penstock.core.model import Position, SinkName
from penstock.sink.parquet import ParquetSink, object_account
from penstock.sink.parquet.object.area import OWNER, mark_key, own_folder
from penstock.testing.conformance import DAMAGES, CrashContract, IdentityContract, SinkContract, VerifyBesideDriverContract
from penstock.testing.conformance.bench import Bench
from penstock.testing.conformance.rig import PIPELINE, require_equal
from penstock.testing.conformance.story import live, rows_of, verify

KINDS = ("az", "gs", "hdfs", "s3")
SLICE = () if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else (None,)
"""Unless all is asked for, each fault, and `verify` beside a driver, is tried on one store, drawn anew for every run."""

RIGS = {"uploaded": ObjectRig, "inline": InlineRig}


def rig_on(kind: str, rig: type[ObjectRig], directory: Path) -> ObjectRig:
    """A rig with two empty accounts."""
    running = server(kind)
    places = {name: running.place(unique("lake")) for name in ("EWR", "JFK")}
    return rig(directory, places, {name: running.outside(place) for name, place in places.items()})


def drawn(kinds: Sequence[str]) -> str:
    seed = random.randrange(1 << 32)
    kind = random.Random(seed).choice(kinds)
    print(f"seed {seed}: {kind}")
    return kind


@pytest.fixture(
    params=[f"{kind}-{way}" for kind in KINDS for way in RIGS if (kind, way) not in {("gs", "inline"), ("hdfs", "inline")}]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectRig:
    kind, way = request.param.split("-")
    return rig_on(kind, RIGS[way], tmp_path)


class TestObjects(SinkContract, IdentityContract):
    damages = (*DAMAGES, "moved")


FURTHER = {
    "az": ("Each further small file is 1 more, each further uploaded one 3", 1, 3),
    "gs": ("Each further file is 4 more", 4, 4),
}
FURTHER |= {
    "hdfs": ("Each further file is 7 more", 7, 7),
    "s3": ("Each further small file is 1 more, each further uploaded one 4", 1, 4),
}
PAGES = {"az": "azure", "gs": "gcs", "hdfs": "hdfs", "s3": "s3"}


def test_a_batch_takes_as_many_requests_as_the_pages_say(rig: ObjectRig) -> None:
    kind = rig.places["EWR"].url.partition(":")[0]
    told, small, uploaded = FURTHER[kind]
    assert told in " ".join((ROOT / "docs" / "howto" / f"{PAGES[kind]}.md").read_text().split())
    bench = Bench(rig)
    sink = bench.sink()
    assert isinstance(sink, ParquetSink)
    bench.deliver(sink, rows_of(0), batch_id=0)
    before = sum(sink.requests_sent().values())
    shown = bench.deliver(sink, rows_of(1), batch_id=1)
    spent = sum(sink.requests_sent().values()) - before
    inline = isinstance(rig, InlineRig)
    files = len(shown.publication.staged)
    assert files > len(rig.places)
    assert all((piece.inline is not None) is inline for piece in shown.publication.staged)
    first = sum(each.small if inline else each.uploaded for each in sink.estimated_requests().values())
    assert spent == first + (files - len(rig.places)) * (small if inline else uploaded)
    bench.close()


def test_marks_of_long_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sink.parquet.object.area.KEPT_MARKS", 4)
    rig = rig_on("s3", InlineRig, tmp_path)
    live(rig, range(12))
    folder = f"_penstock/{PIPELINE}/lake/marks/"
    marks = [name for name in rig.outside["EWR"].listing() if name.startswith(folder)]
    assert 4 <= len(marks) <= 8
    assert verify(rig).ok
    live(rig, [11, 12])
    require_equal(rig.read_back(), rig.settle([rows_of(number) for number in range(13)]))


def test_a_mark_that_was_left_aside_is_collected(tmp_path: Path) -> None:
    rig = rig_on("hdfs", ObjectRig, tmp_path)
    live(rig, [0])
    store = object_account(rig.places["EWR"].url, options=rig.places["EWR"].options).store
    older, newer = (mark_key(own_folder(PIPELINE, SinkName("lake")), Position(number)) for number in (1, 999_999))
    for key in (older, newer):
        store.put_part(key, store.begin(key, tag="mark"), 0, b"{}")
    live(rig, [1])
    assert len(rig.leftovers()) == 1
    assert newer in rig.leftovers()[0]


def test_an_owner_that_was_left_aside_is_collected(tmp_path: Path) -> None:
    """By a driver that was killed while it claimed the account; once the account has one."""
    rig = rig_on("hdfs", ObjectRig, tmp_path)
    store = object_account(rig.places["EWR"].url, options=rig.places["EWR"].options).store
    store.put_part(OWNER, store.begin(OWNER, tag="owner"), 0, b"{}")
    live(rig, [])
    assert [pending.key for pending in store.pending("")] == [OWNER]
    live(rig, [0])
    live(rig, [])
    assert [pending.key for pending in store.pending("")] == []
    require_equal(rig.read_back(), rig.settle([rows_of(0)]))


class TestObjectsBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("objects", fewer=25), 3  # of several files each, which every look reads

    @pytest.fixture(params=SLICE or ("az", "s3"))
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectRig:
        return rig_on(request.param or drawn(("az", "s3")), ObjectRig, tmp_path)


class TestUploadsKilled(CrashContract):
    """Every point of staging, publishing and marking: object.prepare, object.stage.begin, and so on."""

    fault_parts = ("object",)

    @pytest.fixture(params=SLICE or KINDS)
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectRig:
        return rig_on(request.param or drawn(KINDS), ObjectRig, tmp_path)


class TestMultipartKilled(CrashContract):
    """What differs where uploads can be ended."""

    fault_parts = ("multipart",)

    @pytest.fixture(params=SLICE or ("gs", "hdfs", "s3"))
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectRig:
        return rig_on(request.param or drawn(("gs", "hdfs", "s3")), ObjectRig, tmp_path)


class TestInlineKilled(CrashContract):
    """What differs where files travel inside the decision."""

    fault_parts = ("inline",)

    @pytest.fixture(params=SLICE or ("az", "s3"))
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> InlineRig:
        return rig_on(request.param or drawn(("az", "s3")), InlineRig, tmp_path)
