"""`verify --since`: what the ledger decided after a batch, whatever became of what is older."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.parquet_target import Target
from tests.unit.removed_world import World
from tests.unit.test_parquet_verify import deliver, file_of, only

from penstock.commit.verification import DecisionsSince
from penstock.core.model import AccountName, BatchId, Position, Publication, Removal, SinkReport, Totals
from penstock.errors import Failed
from penstock.run.operations import Verification, verify
from penstock.sink.parquet import ParquetSink
from penstock.testing.conformance.bench import DecidedBatches


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path, "a", "b", partition_by=["place"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).delivered()


def since(world: World, batch_id: int) -> Verification:
    return verify(world.plan, since=BatchId(batch_id))


def rows(found: Verification) -> int:
    return sum(account.found.rows for account in found.sinks["lake"].accounts.values())


def test_only_later_batches_are_compared(world: World) -> None:
    world.remove(1)
    assert not verify(world.plan).ok
    found = since(world, 1)
    assert (found.ok, found.since, rows(found)) == (True, 1, 10)
    assert not since(world, 0).ok
    assert rows(since(world, 3)) == 0


def test_what_was_removed_on_purpose_is_not_expected(world: World) -> None:
    world.remove(2)
    assert not since(world, 1).ok
    assert world.accept().done
    found = since(world, 1)
    assert (found.ok, rows(found)) == (True, 7)


def test_a_batch_that_the_ledger_does_not_hold_is_refused(world: World) -> None:
    with pytest.raises(Failed, match="holds no decision of batch 99"):
        since(world, 99)


def verify_since(sink: ParquetSink, decided: Sequence[Publication], batch_id: int) -> SinkReport:
    last = decided[batch_id]
    return sink.verify_since(DecisionsSince(DecidedBatches(decided), last.position), last)


def test_since_a_batch_only_what_is_newer_is_read_and_expected(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    for publication in decided[:2]:
        file_of(target, publication).write_bytes(b"damaged")
    report = verify_since(sink, decided, 1)
    assert report.ok, report
    assert {account: found.found.rows for account, found in report.accounts.items()} == {"a": 3, "b": 2}
    assert not verify_since(sink, decided, 0).ok


def test_since_a_batch_what_is_wrong_with_a_newer_file_is_told(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    file_of(target, decided[2]).unlink()
    assert "is missing, with 3 rows" in only(verify_since(sink, decided, 1)).message
    assert verify_since(sink, decided, 2).ok


def test_since_a_batch_a_newer_file_that_nobody_decided_is_told(target: Target) -> None:
    """As an attempt that was never decided would leave it."""
    sink = target.sink()
    decided = deliver(sink)
    nonce = re.compile(r"-[0-9a-f]{16}-")
    for publication in decided[1:]:
        file = file_of(target, publication)
        shutil.copy(file, file.with_name(nonce.sub(f"-{'0' * 16}-", file.name)))
    problem = only(verify_since(sink, decided, 1))
    assert (problem.batch_id, "3 rows twice" in problem.message) == (2, True)


def test_since_a_batch_the_ledger_is_not_read_further_back(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink, 4)
    seen = list[int]()

    class Noting(DecidedBatches):
        def publications(self, position: Position | None = None) -> Iterator[Publication]:
            for each in super().publications(position):
                seen.append(each.position)
                yield each

    last = decided[2]
    assert sink.verify_since(DecisionsSince(Noting(decided), last.position), last).ok
    assert set(seen) == {decided[3].position, last.position}


def test_since_a_batch_what_was_removed_on_purpose_is_not_expected(target: Target) -> None:
    sink = target.sink()
    decided = deliver(sink)
    file = file_of(target, decided[2])
    file.unlink()
    [name] = [piece.name for piece in decided[2].staged if piece.account == "a"]

    class Removed(DecidedBatches):
        def removals(self) -> Iterator[Removal]:
            yield Removal(sink=sink.name, account=AccountName("a"), decided=(), files=(name,), totals=Totals(rows=3))

    last = decided[1]
    assert sink.verify_since(DecisionsSince(Removed(decided), last.position), last).ok
