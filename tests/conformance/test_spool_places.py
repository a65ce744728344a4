"""The spool on a real server of each kind, and in a directory: what is staged comes back, and nothing of a dead attempt stays."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.conformance.test_sqlite_conformance import TABLE, SpooledRig
from tests.servers.fixtures import server, unique
from tests.servers.proxy import before
from tests.servers.server import Outside, Place

from penstock.blob.azure import AzureStore
from penstock.blob.store import BlobStore
from penstock.core.model import Attempt, BatchId, Generation, PipelineName, SinkName, Staged, SweepCut, new_nonce
from penstock.core.row_hash import row_hashes
from penstock.errors import OutcomeUnknown, Retryable, StagedDataLost, StageFailed
from penstock.sink.spool import Spool, SpoolRoot
from penstock.sink.spool.writer import SpoolWriter
from penstock.sink.sqlite import SqliteSink
from penstock.testing.conformance import PIPELINE as BENCH_PIPELINE
from penstock.testing.conformance import Bench, CrashContract, SinkContract, StagingLossContract
from penstock.testing.conformance.bench import travelled
from penstock.testing.conformance.rig import LEDGER_ID
from penstock.testing.entries import opened_entry

PIPELINE, SINK = PipelineName("flights"), SinkName("warehouse")
SCHEMA = pa.schema([("id", pa.int64()), ("noise", pa.binary())])
STORES = ("az", "gs", "hdfs", "s3")


class Kept:
    """A spool on a store, and what lies there from outside."""

    def __init__(self, kind: str) -> None:
        self.place: Place = server(kind).place(unique("spool"))
        self.outside: Outside = server(kind).outside(self.place)
        self.root = SpoolRoot(url=self.place.url, options=self.place.options)

    def spool(self, *, pipeline: PipelineName = PIPELINE) -> Spool:
        spool = Spool(root=self.root, sink=SINK, inline_limit_bytes=0)
        spool.prepare(pipeline)
        return spool

    def names(self) -> list[str]:
        """Of everything but identities."""
        return sorted(key for key in self.outside.listing() if not key.endswith(".id"))


@pytest.fixture(params=STORES)
def kept(request: pytest.FixtureRequest) -> Kept:
    return Kept(request.param)


def attempt(*, batch_id: int = 1, generation: int = 1) -> Attempt:
    return Attempt(generation=Generation(generation), batch_id=BatchId(batch_id), partition=0, task_attempt=0, nonce=new_nonce())


def rows(size_bytes: int) -> pa.RecordBatch:
    """Rows that no compression makes smaller."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    each = 1 << 16
    noise = [random.Random(seed + number).randbytes(each) for number in range(max(1, size_bytes // each))]
    return pa.record_batch({"id": range(len(noise)), "noise": noise}, schema=SCHEMA)


def write(writer: SpoolWriter, *batches: pa.RecordBatch) -> None:
    for batch in batches:
        writer.write(batch, hashes=row_hashes(batch), accounts=None)


def stage(spool: Spool, *batches: pa.RecordBatch, of: Attempt | None = None) -> Staged:
    writer = travelled(spool.stager()).open(of or attempt(), SCHEMA)
    write(writer, *batches)
    [piece] = writer.finish()
    return piece


def read(spool: Spool, pieces: Sequence[Staged]) -> list[pa.RecordBatch]:
    return list(spool.read(pieces, pipeline=PIPELINE))


@pytest.mark.parametrize("parts", [0, 2.5], ids=["put at once", "in parts"])
def test_a_piece_comes_back_and_goes_when_it_is_discarded(kept: Kept, parts: float) -> None:
    spool = kept.spool()
    batches = [rows(int(parts * kept.root.store().part_bytes)), rows(1)]
    sent = sum(spool.root.requests_sent().values())
    piece = stage(spool, *batches)
    assert kept.names() == [f"flights/warehouse/{piece.name}"]
    assert kept.outside.uploads() == []
    assert read(spool, [piece]) == batches
    [waiting] = spool.waiting(PIPELINE)
    assert (waiting.name, waiting.size_bytes) == (f"{kept.place.url}/flights/warehouse/{piece.name}", piece.totals.size_bytes)
    for _ in range(2):
        spool.discard([piece], pipeline=PIPELINE)
        assert kept.names() == []
    assert sum(spool.root.requests_sent().values()) > sent


def test_the_sweep_takes_pieces_of_dead_attempts_of_its_own_pipeline_only(kept: Kept) -> None:
    spool, batch = kept.spool(), rows(100)
    decided = stage(spool, batch, of=attempt(generation=1))
    running = stage(spool, batch, of=attempt(generation=2))
    dead = stage(spool, batch, of=attempt(generation=1))
    other = stage(kept.spool(pipeline=PipelineName("other")), batch, of=attempt(generation=1))
    cut = SweepCut(
        pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=None, kept=frozenset({decided.attempt})
    )
    all_names = kept.names()
    named = spool.sweep(cut, dry_run=True)
    assert kept.names() == all_names
    assert spool.sweep(cut, dry_run=False) == named
    assert named == [f"{kept.place.url}/flights/warehouse/{dead.name}"]
    assert sorted(name.rpartition("/")[2] for name in kept.names()) == sorted([decided.name, running.name, other.name])
    assert read(spool, [decided, running]) == [batch] * 2


def test_an_upload_that_a_task_began_is_ended_by_the_sweep(kept: Kept) -> None:
    spool = kept.spool()
    writer = spool.stager().open(attempt(), SCHEMA)
    write(writer, rows(int(1.5 * kept.root.store().part_bytes)))
    upload = writer._target._file  # type: ignore[union-attr]
    assert upload.parts()
    writer.abandon()
    assert kept.names() == []
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=None, kept=frozenset())
    waiting = list(spool.waiting(PIPELINE))
    named = spool.sweep(cut, dry_run=False)
    assert [one.name for one in waiting] == named
    assert spool.sweep(cut, dry_run=False) == []
    assert kept.outside.uploads() == []


def test_spools_with_one_staging_directory_keep_out_of_each_other() -> None:
    """On HDFS, where uploads wait in it: each ledger would take those of the other for dead."""
    kept = Kept("hdfs")
    options = {**kept.place.options, "staging": f"/{unique('shared')}"}
    one, other = (
        Spool(root=SpoolRoot(url=f"{kept.place.url}/{root}/spool", options=options), sink=SINK, inline_limit_bytes=0)
        for root in ("one", "other")
    )
    for spool in (one, other):
        spool.prepare(PIPELINE)
    batches = [rows(int(1.5 * one.root.store().part_bytes)), rows(1)]
    writer = one.stager().open(attempt(), SCHEMA)
    write(writer, batches[0])
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(2), batch_id=None, kept=frozenset())
    assert other.sweep(cut, dry_run=False) == []
    assert len(list(one.waiting(PIPELINE))) == 1
    write(writer, batches[1])
    assert read(one, list(writer.finish())) == batches


def test_what_is_damaged_or_gone_is_told(kept: Kept) -> None:
    spool = kept.spool()
    piece = stage(spool, rows(1))
    key = f"flights/warehouse/{piece.name}"
    whole = kept.outside.get(key)
    for bad in (whole[:-1], whole[:50] + bytes([whole[50] ^ 1]) + whole[51:], b""):
        kept.outside.put(key, bad)
        with pytest.raises(StagedDataLost, match=r"is lost: it(s checksum is| has) .* expected"):
            next(spool.read([piece], pipeline=PIPELINE))
    kept.outside.put(key, whole)
    assert len(read(spool, [piece])) == 1
    kept.outside.delete(key)
    with pytest.raises(StagedDataLost, match="is lost: it is missing"):
        read(spool, [piece])


def test_a_task_that_reaches_another_place_fails(kept: Kept) -> None:
    spool = kept.spool()
    stager = spool.stager()
    [identity] = kept.outside.listing()
    kept.outside.delete(identity)
    with pytest.raises(StageFailed, match="is not the one the driver uses") as failed:
        write(stager.open(attempt(), SCHEMA), rows(1))
    assert "same endpoint" in failed.value.remedy
    assert kept.names() == []


def test_what_names_the_spool_comes_back_when_a_rule_of_the_store_has_deleted_it(
    monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    """It is older than any batch that waits, so a rule that spares these may delete it under a run."""
    spool, batch = kept.spool(), rows(1)

    def expire() -> None:
        for name in kept.outside.listing():
            kept.outside.delete(name)
        with pytest.raises(StageFailed, match="is not the one the driver uses"):
            stage(spool, batch)

    expire()
    spool.sign(opened_entry())
    assert stage(spool, batch).inline is None
    names = [name for name in kept.outside.listing() if name.endswith(".id")]
    assert len(names) == 2
    expire()
    monkeypatch.setattr("penstock.sink.spool.spool.REFRESH_S", 0.0)
    stage(spool, batch)
    assert [name for name in kept.outside.listing() if name.endswith(".id")] == names


def test_every_start_writes_what_names_the_spool_anew() -> None:
    """So that it is younger than what this run stages."""
    kept = Kept("s3")
    with before(kept.place.options["endpoint"]) as proxy:
        kept.root = SpoolRoot(url=kept.place.url, options={**kept.place.options, "endpoint": proxy.endpoint})
        for starts in (1, 2):
            kept.spool()
            assert len([path for method, path in proxy.seen if method == "PUT" and ".id" in path]) == starts
        assert len(kept.outside.listing()) == 1


def test_rows_in_a_store_are_not_held_in_memory(kept: Kept) -> None:
    """Whether they are still there would take a request, within a database's transaction."""
    assert kept.spool().stager().cache is None


def test_two_drivers_mean_the_same_spool(kept: Kept) -> None:
    assert kept.spool().stager().claimed == kept.spool().stager().claimed


@pytest.mark.parametrize("parts", [0, 1.5], ids=["put at once", "in parts"])
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_an_answer_that_was_lost_is_looked_for(monkeypatch: pytest.MonkeyPatch, *, parts: float, done: bool) -> None:
    """The task reports only what it has seen."""
    kept = Kept("az")
    spool, batch = kept.spool(), rows(int(parts * kept.root.store().part_bytes))
    for act in ("put", "complete"):
        monkeypatch.setattr(AzureStore, act, losing(getattr(AzureStore, act), done=done))
    if done:
        assert read(spool, [stage(spool, batch)]) == [batch]
        return
    with pytest.raises(Retryable, match="but what is there is None"):
        stage(spool, batch)


def losing(act, *, done):
    def lost(*arguments, **options):
        if done:
            act(*arguments, **options)
        raise OutcomeUnknown("The answer was lost.", remedy="Look.")

    return lost


def test_a_store_that_cannot_be_asked_is_told_as_it_says(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> None:
    """A publication and a task that meet it are to be tried again."""
    spool = kept.spool()
    piece = stage(spool, rows(1))

    def refuse(*_: object, **__: object) -> None:
        raise Retryable("The store is busy.", remedy="Try again.")

    kind = type(kept.root.store())
    assert issubclass(kind, BlobStore)
    for act in ("head", "put"):
        monkeypatch.setattr(kind, act, refuse)
    with pytest.raises(Retryable, match="busy"):
        read(spool, [piece])
    with pytest.raises(Retryable, match=r"Staging failed\. The store is busy\.") as failed:
        stage(spool, rows(1))
    assert type(failed.value) is Retryable
    assert failed.value.remedy == "Start again: nothing is lost."


def test_pieces_that_the_store_does_not_let_go_keep_no_batch_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their rows are durable in the table: what stays is garbage, told once and left to the sweep."""
    kept = Kept("s3")
    with before(kept.place.options["endpoint"]) as proxy:
        kept.root = SpoolRoot(url=kept.place.url, options={**kept.place.options, "endpoint": proxy.endpoint, "attempts": "1"})
        bench = Bench(StoreRig(tmp_path, kept))
        sink = bench.sink()
        proxy.arm("slow down", lambda method, _: method == "DELETE", times=-1)
        shown = [bench.deliver(sink, bench.rows(range(number * 10, number * 10 + 10)), batch_id=number) for number in range(3)]
        assert proxy.hits == 3
        bench.require_shown(*shown)
        [told] = [record.getMessage() for record in caplog.records if "published pieces" in record.getMessage()]
        assert "sink db" in told
        assert "penstock sweep" in told
        assert len(kept.names()) == 3
        proxy.arm("", lambda *_: False, times=0)
        cut = SweepCut(
            pipeline=BENCH_PIPELINE, ledger_id=LEDGER_ID, generation=Generation(1), batch_id=BatchId(2), kept=frozenset()
        )
        assert len(sink.sweep(cut, dry_run=False)) == 3
        assert kept.names() == []
        bench.close()


def test_the_check_leaves_nothing_behind(kept: Kept) -> None:
    reached, lifecycle = kept.root.check()
    [check] = kept.root.task_checks()
    assert (reached.subject, reached.ok) == (f"spool {kept.place.url}", True)
    assert lifecycle.ok
    assert [finding.ok for finding in check.findings()] == [True]
    assert list(kept.outside.listing()) == []


class StoreRig(SpooledRig):
    """A table whose rows wait in a store."""

    def __init__(self, directory: Path, kept: Kept) -> None:
        super().__init__(directory)
        self.kept = kept

    def make(self) -> SqliteSink:
        return SqliteSink(name=SinkName("db"), path=self.database, table=TABLE, spool=self.kept.root, inline_limit_bytes=0)

    def leftovers(self) -> Sequence[str]:
        return [*self.kept.names(), *self.kept.outside.uploads()]

    def lose_staging(self) -> None:
        for name in self.kept.names():
            self.kept.outside.delete(name)


def rig_on_any(directory: Path) -> StoreRig:
    """On a store that is drawn anew for every run."""
    seed = random.randrange(1 << 32)
    kind = random.Random(seed).choice(STORES)
    print(f"seed {seed}: {kind}")
    directory.mkdir(exist_ok=True)
    return StoreRig(directory, Kept(kind))


class TestSpooledInAStore(SinkContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> StoreRig:
        return rig_on_any(tmp_path)


class TestSpooledInAStoreStagingLost(StagingLossContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> StoreRig:
        return rig_on_any(tmp_path)


class TestSpooledInAStoreCrashes(CrashContract):
    fault_parts = ("spool",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> StoreRig:
        return rig_on_any(tmp_path / "rig")
