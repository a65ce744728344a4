"""A sink that writes a branch of an Iceberg table: `main` stays as it is until somebody brings it forward."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table
from tests.conformance.iceberg_layout_rig import BranchRig, MaintainedBranchRig, OverlappingBranchRig
from tests.conformance.iceberg_rig import IcebergRig, local

from penstock.errors import Refused
from penstock.testing.conformance import PIPELINE, SCHEMA, Bench, Row, require_equal


@pytest.fixture(params=[BranchRig, OverlappingBranchRig], ids=lambda rig: rig.__name__)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(request.param(tmp_path))
    yield bench
    bench.close()


def of_main(rig: IcebergRig) -> list[Row]:
    found: list[Row] = rig.table().scan().to_arrow().to_pylist()
    return found


def fast_forward(rig: IcebergRig) -> None:
    """Publish what was audited."""
    table = rig.table()
    head = table.snapshot_by_name("audit")
    assert head is not None
    table.manage_snapshots().set_current_snapshot(snapshot_id=head.snapshot_id).commit()


def on(bench: Bench, branch: str) -> Bench:
    bench.rig.branch = branch
    return bench


def test_main_stays_as_it_is_until_it_is_brought_forward(bench: Bench) -> None:
    sink = bench.sink()
    for at in range(3):
        bench.deliver(sink, bench.rows(range(at * 30, at * 30 + 40)), batch_id=at)
    bench.require_shown(*bench.decided)
    assert of_main(bench.rig) == []
    assert bench.verify(bench.sink()).ok
    fast_forward(bench.rig)
    require_equal(of_main(bench.rig), bench.rig.read_back())
    before = of_main(bench.rig)
    bench.deliver(bench.sink(), bench.rows(range(500, 520)), batch_id=3)
    require_equal(of_main(bench.rig), before)
    bench.require_shown(*bench.decided)
    assert bench.verify(bench.sink()).ok


def test_a_branch_begins_where_main_is(bench: Bench) -> None:
    """The setting may change from `main` to a branch, and back once `main` has what the branch has."""
    bench.deliver(on(bench, "main").sink(), bench.rows(range(20)), batch_id=0)
    first = of_main(bench.rig)
    bench.deliver(on(bench, "audit").sink(), bench.rows(range(20, 40)), batch_id=1)
    bench.require_shown(*bench.decided)
    require_equal(of_main(bench.rig), first)
    with pytest.raises(Refused, match=r"in its branch 'audit', but its branch 'main' lacks that batch"):
        on(bench, "main").sink()
    fast_forward(bench.rig)
    bench.deliver(on(bench, "main").sink(), bench.rows(range(40, 60)), batch_id=2)
    bench.require_shown(*bench.decided)
    with pytest.raises(Refused, match="in its branch 'main', but its branch 'audit' lacks that batch"):
        on(bench, "audit").sink()


def test_a_branch_that_was_removed_with_its_rows_is_not_begun_again(bench: Bench) -> None:
    bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
    bench.rig.table().manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(Refused, match="branch 'audit' is missing, and main lacks that batch"):
        bench.sink()


def test_a_branch_that_was_removed_after_main_was_brought_forward_begins_again(bench: Bench) -> None:
    bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
    fast_forward(bench.rig)
    bench.rig.table().manage_snapshots().remove_branch("audit").commit()
    bench.deliver(bench.sink(), bench.rows(range(20, 40)), batch_id=1)
    bench.require_shown(*bench.decided)
    assert bench.verify(bench.sink()).ok


def test_a_commit_on_main_in_between_is_no_loss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the number that the commit on the branch would have had."""
    sink = bench.sink()
    bench.deliver(sink, bench.rows(range(20)), batch_id=0)
    rows = bench.rows(range(20, 40))
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
    real, calls = Table._do_commit, []

    def overtaken(self: Table, **given: object) -> None:
        calls.append(given)
        if len(calls) == 1:
            transaction = bench.rig.table().transaction()
            with transaction.update_snapshot().fast_append():
                pass
            transaction.commit_transaction()
        real(self, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_do_commit", overtaken)
    assert not sink.publish(shown.publication).already
    bench.require_shown(*bench.decided)


def test_a_tag_is_no_branch(bench: Bench) -> None:
    bench.deliver(on(bench, "main").sink(), bench.rows(range(20)), batch_id=0)
    table = bench.rig.table()
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    with pytest.raises(Refused, match="has a tag named 'audit'"):
        on(bench, "audit").rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)


@pytest.mark.parametrize("bench", [MaintainedBranchRig], indirect=True, ids=["maintained"])
def test_compactions_rewrite_files_of_the_branch_alone(bench: Bench) -> None:
    bench.deliver(bench.sink(), bench.rows(range(20)), batch_id=0)
    fast_forward(bench.rig)
    before = [task.file.file_path for task in bench.rig.table().scan().plan_files()]
    for at in range(1, 4):
        bench.deliver(bench.sink(), bench.rows(range(at * 20, at * 20 + 20)), batch_id=at)
    assert [local(file).name.partition("-")[0] for file in bench.rig.active()] == ["compact"]
    assert [task.file.file_path for task in bench.rig.table().scan().plan_files()] == before
    assert all(local(task.file).exists() for task in bench.rig.table().scan().plan_files())
    bench.require_shown(*bench.decided)
    assert bench.verify(bench.sink()).ok
