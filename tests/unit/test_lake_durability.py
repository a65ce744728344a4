"""What a power cut or an expiry leaves of compactions, and what `penstock explain` tells of maintenance."""

import logging
from collections import Counter

import pytest
from tests.unit.maintained_lake import HOUR_MS, MaintainedLake, failures, files_at

from penstock.core import faults
from penstock.errors import PublishFailed
from penstock.sink.delta.log import DeltaLog


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, logger="penstock.sink.lake")


@pytest.fixture
def kept(tmp_path):
    made = []

    def kept(kind, **settings):
        made.append(MaintainedLake(tmp_path, kind, **settings))
        return made[-1]

    yield kept
    faults.arm("")
    for one in made:
        one.bench.close()


class TestFlushed:
    """A commit of a compaction to a Delta log is flushed as those of batches are: a power cut else leaves a log nobody reads."""

    def test_it_is_flushed_before_the_next_batch(self, kept, monkeypatch) -> None:
        flushed, real = [], DeltaLog.sync

        def sync(self, *, since, upto):
            flushed.extend(range(since + 1, upto + 1))
            real(self, since=since, upto=upto)

        monkeypatch.setattr(DeltaLog, "sync", sync)
        table = kept("delta")
        table.deliver_in_one_run([(1, "a")], [(2, "b")])
        assert flushed == [*range(table.version() + 1)]

    def test_one_that_could_not_be_flushed_ends_the_run(self, kept, caplog) -> None:
        """With the next batch, which is there. No other flush is tried: it may succeed although nothing was written."""
        table = kept("delta")
        table.deliver((1, "a"))
        faults.arm("deltalog.sync=error@3")  # after those of the start and of the first batch
        with pytest.raises(PublishFailed, match="may not be durable"):
            table.deliver_in_one_run([(2, "b")], [(3, "c")])
        faults.arm("")
        assert [failure for failure in failures(caplog) if "may not be durable" in failure] == failures(caplog) != []
        table.start()
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        assert table.verify().ok
        table.deliver((4, "d"))
        assert (len(table.active()), table.garbage()) == (1, [])

    def test_what_a_driver_left_that_died_before_its_link_is_removed(self, kept) -> None:
        table = kept("delta")
        table.deliver((1, "a"))
        left = table.rig.root / "_delta_log" / ".penstock-commit-0123456789abcdef"
        left.write_bytes(b"{")
        table.deliver((2, "b"))
        assert [path for path in left.parent.iterdir() if path.name.startswith(".")] == []
        assert (len(table.active()), table.verify().ok) == (1, True)

    def test_nothing_is_removed_before_the_commits_are_flushed_that_took_it_out(self, kept, caplog) -> None:
        table = kept("delta", compacts=False, cleans=True, write="upsert", key=["id"])
        for number in range(4):
            table.deliver((1, str(number)))
        table.ahead_ms = 2 * HOUR_MS
        faults.arm("deltalog.sync=error@3")
        table.deliver((1, "next"))
        faults.arm("")
        assert len(failures(caplog)) == 1
        assert len(table.stored()) == 5
        table.deliver((1, "last"))
        assert table.stored() == table.active()
        assert table.content("id", "name") == Counter([(1, "last")])
        assert table.verify().ok


def test_files_stay_that_only_a_tagged_snapshot_has_though_that_of_their_compaction_has_left(kept) -> None:
    """The table does not tell any more what became of that version."""
    table = kept("iceberg")
    table.deliver((1, "a"))
    table.deliver((2, "b"))
    [compacted] = table.active()
    of_compaction = table.rig.table().current_snapshot().snapshot_id
    table.others_changed()
    tagged = table.rig.table().current_snapshot().snapshot_id
    table.rig.table().manage_snapshots().create_tag(tagged, "kept").commit()
    table.deliver((3, "c"))
    assert compacted not in table.active()
    table.rig.table().maintenance.expire_snapshots().by_ids([of_compaction]).commit()
    table.deliver((4, "d"))
    assert files_at(table, tagged) == {compacted} < table.stored()
    assert len(table.rig.table().scan(snapshot_id=tagged).to_arrow()) == 2


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_explain_tells_what_is_done_and_when(kept, kind) -> None:
    table = kept(kind, every=7, write="upsert", key=["id"])
    table.cleans = True
    sink = table.rig.make(**table.settings)
    sink.close()
    cleaning = {
        "delta": "files leave that no version of the last 1 h has",
        "iceberg": "snapshots older than 1 h leave with their files, but for the newest one",
    }
    rounds, compaction = "after every 7 batches of a run", "small files become files of about 1 MB"
    assert sink.describe()["maintain"] == f"{rounds}: {compaction}; {cleaning[kind]}"
