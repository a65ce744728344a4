"""Compactions beside deliveries, in real tables of both libraries: no row changes, whoever dies, comes late or commits between.

What removes the files of former versions is in `test_lake_cleaning`.
"""

import logging
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from tests.attack.test_grown_tables import rows_gain
from tests.conformance import delta_rig, iceberg_rig
from tests.conformance.lake_rig import LakeRig
from tests.unit.maintained_lake import MaintainedLake, failures

from penstock.core import faults
from penstock.core.model import LedgerId, SinkName
from penstock.sink.lake.compaction import Compaction
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.table_writer import TableWriter
from penstock.sink.parquet.layout import attempt_of, is_owned, owner_of
from penstock.testing.conformance import PIPELINE, Bench

KINDS = ["delta", "iceberg"]
RIGS = pytest.mark.parametrize("rigs", [delta_rig, iceberg_rig], ids=KINDS)
WAYS = {
    "append": {},
    "upsert": {"write": "upsert", "key": ["id"]},
    "if absent": {"write": "insert_if_absent", "key": ["id"]},
    "replace": {"write": "replace"},
    "overwrite": {"write": "overwrite_partitions", "partition_by": ["name"]},
}


OF_LIBRARY = {
    "optimize": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["id"]),
    "overwrite": lambda table: write_deltalake(table, pa.table({"id": [9], "name": ["z"]}), mode="overwrite"),
}


class Died(BaseException):
    """The driver is killed there, as in tests/attack/test_grown_lakes.py."""


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, logger="penstock.sink.lake")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def kept(tmp_path, kind, monkeypatch):
    made = []

    def die():
        raise Died

    def kept(**settings):
        made.append(MaintainedLake(tmp_path, kind, **settings))
        return made[-1]

    monkeypatch.setattr(faults, "_kill", die)
    yield kept
    faults.arm("")
    for one in made:
        one.bench.close()


def opened(rig: LakeRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


def names_in(rig: LakeRig) -> set[str]:
    """Of the files of the newest version."""
    return {path for path, _ in rig.active()} if hasattr(rig, "uri") else {iceberg_rig.local(file).name for file in rig.active()}


class TestWhatBecomesOfFiles:
    @pytest.mark.parametrize("way", WAYS)
    def test_small_ones_become_large_ones_and_no_row_changes(self, kept, way, caplog) -> None:
        """Nor does a start, which publishes the newest batch again, take what was made after it for leftovers."""
        table = kept(**WAYS[way])
        table.deliver((1, "a"), (2, "b"))
        table.deliver((3, "c"), (1, "z"))
        table.deliver((4, "b"))
        expected = {
            "append": [(1, "a"), (2, "b"), (3, "c"), (1, "z"), (4, "b")],
            "upsert": [(1, "z"), (2, "b"), (3, "c"), (4, "b")],
            "if absent": [(1, "a"), (2, "b"), (3, "c"), (4, "b")],
            "replace": [(4, "b")],
            "overwrite": [(1, "a"), (3, "c"), (1, "z"), (4, "b")],
        }
        assert table.content("id", "name") == Counter(expected[way])
        assert len(table.active()) == (4 if way == "overwrite" else 1)
        assert table.verify().ok
        before = table.version()
        table.start()
        assert (table.version(), table.content("id", "name")) == (before, Counter(expected[way]))
        assert table.verify().ok
        assert table.garbage() == []
        assert failures(caplog) == []

    def test_rows_stay_in_their_partition(self, kept) -> None:
        table = kept(partition_by=["name"])
        batches = [[(1, "a"), (2, "b"), (3, None)], [(4, "a"), (5, None)], [(6, "b")]]
        for batch in batches:
            table.deliver(*batch)
        assert table.content("id", "name") == Counter(row for batch in batches for row in batch)
        assert len(table.active()) == 3
        assert table.verify().ok

    def test_their_names_tell_no_batch(self, kept) -> None:
        """Also a driver of a version from before removes files of the newest batch that another try of it wrote."""
        table = kept(**WAYS["upsert"])
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        [name] = table.active()
        assert (name.partition("-")[0], is_owned(name, owner_of(PIPELINE, SinkName("lake")))) == ("compact", True)
        assert attempt_of(name).generation not in {publication.generation for publication in table.publications()}

    @pytest.mark.parametrize("kind", ["delta"])
    def test_the_log_gets_checkpoints_though_the_librarys_turn_is_always_a_compaction(self, kept) -> None:
        table = kept()
        table.deliver((0, "a"))
        metadata, schema = table.rig.table().metadata(), table.rig.table().schema()
        for number in range(1, 13):
            table.deliver((number, "a"))
        checkpoints = [int(path.name[:20]) for path in (table.rig.root / "_delta_log").glob("*.checkpoint.parquet")]
        assert sorted(checkpoints) == [11, 23]
        assert str(table.rig.table().metadata()) == str(metadata)
        assert table.rig.table().schema() == schema
        assert table.content("id", "name") == Counter((number, "a") for number in range(13))
        assert table.verify().ok

    def test_large_ones_stay(self, kept) -> None:
        table = kept()
        table.target_bytes = 100
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        assert len(table.active()) == 2

    def test_who_follows_the_changes_of_the_table_passes_over_it(self, kept) -> None:
        table = kept()
        table.deliver((1, "a"))
        assert not table.is_last_commit_a_rewriting()
        table.deliver((2, "b"))
        assert table.is_last_commit_a_rewriting()

    def test_a_round_comes_after_so_many_batches_of_a_run(self, kept) -> None:
        table = kept(every=3)
        table.deliver_in_one_run(*([(number, "a")] for number in range(7)))
        assert len(table.active()) == 2  # of the rounds after the third and the sixth batch, and the seventh one's own
        table.deliver_in_one_run(*([(number, "a")] for number in range(7, 9)))
        assert len(table.active()) == 4
        assert table.content("id", "name") == Counter((number, "a") for number in range(9))
        assert table.verify().ok

    def test_they_lack_new_columns_and_are_merged_with_newer_ones(self, kept) -> None:
        table = kept()
        table.deliver((1, "a"))
        rows_gain(table, more="long")
        table.deliver((2, "b", 7))
        assert len(table.active()) == 1
        assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", 7)])
        assert table.verify().ok

    def test_those_whose_columns_stood_in_another_order_stay_apart(self, kept) -> None:
        """The hash of a row goes by it."""
        table = kept()
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        table.columns = {"name": "string", "id": "long"}
        table.deliver(("c", 3))
        table.deliver(("d", 4))
        assert len(table.active()) == 2
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
        assert table.verify().ok

    @pytest.mark.parametrize("kind", ["iceberg"])
    def test_those_whose_values_readers_find_no_more_stay_apart(self, kept) -> None:
        """A column was removed and added again, with another number. Nobody gets values back that he has removed."""
        table = kept(compacts=False)
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        table.rig.renumber("name")
        table.compacts = True
        table.deliver((3, "c"))
        table.deliver((4, "d"))
        assert len(table.active()) == 3
        rows = table.rig.scan()
        found = Counter(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        assert found == Counter([(1, None), (2, None), (3, "c"), (4, "d")])

    def test_a_late_driver_whose_rows_lacked_a_column_drops_none_of_its_values(self, kept) -> None:
        table = kept(compacts=False)
        table.deliver((1, "a"))
        rows_gain(table, more="long")
        table.deliver((2, "b", 7))
        table.deliver((3, "c", 8))
        table.compacts = True
        assert table.maintain_after(table.publications()[0]) == []
        assert len(table.active()) == 3
        assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", 7), (3, "c", 8)])
        assert table.verify().ok

    def test_those_of_another_ledger_are_left_alone(self, kept) -> None:
        table = kept(compacts=False)
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        table.compacts = True
        foreign = replace(table.publications()[-1], ledger_id=LedgerId("a7" * 16))
        assert table.maintain_after(foreign) == []
        assert len(table.active()) == 2

    @RIGS
    def test_those_of_other_writers_are_left_alone(self, tmp_path: Path, rigs) -> None:
        for bench in opened(rigs.MaintainedRig(tmp_path)):
            sink = bench.sink()
            bench.deliver(sink, bench.rows(range(20)), batch_id=0)
            own = names_in(bench.rig)
            bench.rig.repeat(3)
            [foreign] = names_in(bench.rig) - own
            bench.deliver(sink, bench.rows(range(100, 120)), batch_id=1)
            there = names_in(bench.rig)
            assert (foreign in there, len(there)) == (True, 2)
            report = bench.verify(bench.sink())
            assert foreign in {problem.file for problem in report.problems}

    def test_rows_that_would_be_written_as_others_are_not_committed(self, kept, monkeypatch, caplog) -> None:
        table = kept()
        table.deliver((1, "a"))
        real = FileReader.rows

        def fewer(self, file, columns=None):
            for batch in real(self, file, columns):
                yield batch.slice(1)

        with monkeypatch.context() as patched:
            patched.setattr(FileReader, "rows", fewer)
            table.deliver_in_one_run([(2, "b")], [(3, "c")])
        [failure] = failures(caplog)  # this run tries no other one: what each writes stays staged until the next start
        assert "nothing was committed" in failure
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        assert table.verify().ok
        table.deliver((4, "d"))
        assert (len(table.active()), table.garbage()) == (1, [])


KILLS = ("lakecompaction.write=kill", "rename.move=kill@2", "lakecompaction.commit=kill", "{kind}.commit=kill@2")
FAILURES = ("lakecompaction.write=error", "lakecompaction.write=lost", "lakecompaction.commit=error", "{kind}.commit=error@2")
LANDED = ("lakecompaction.commit=lost", "{kind}.commit=lost@2")


class TestFailures:
    @pytest.mark.parametrize("way", ["append", "upsert"])
    @pytest.mark.parametrize("fault", KILLS)
    def test_killed_at_each_step(self, kept, kind, way, fault) -> None:
        """The next run goes on, and removes what was left."""
        table = kept(**WAYS[way])
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        faults.arm(fault.format(kind=kind))
        with pytest.raises(Died):
            table.deliver((3, "c"))
        faults.arm("")
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        assert table.verify().ok
        table.deliver((4, "d"))
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
        assert table.verify().ok
        assert (len(table.active()), table.garbage()) == (1, [])

    @pytest.mark.parametrize("way", ["append", "upsert"])
    @pytest.mark.parametrize("fault", KILLS)
    def test_killed_at_each_step_and_the_next_run_before_it_publishes(self, kept, kind, way, fault) -> None:
        """So a decision is outstanding beside what the compaction left."""
        table = kept(**WAYS[way])
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        faults.arm(fault.format(kind=kind))
        with pytest.raises(Died):
            table.deliver((3, "c"))
        faults.arm("")
        table.deliver((4, "d"), killed=True)
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        table.deliver((5, "e"))
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")])
        assert table.verify().ok
        assert (len(table.active()), table.garbage()) == (1, [])

    @pytest.mark.parametrize("fault", FAILURES)
    def test_a_failure_is_a_warning_and_a_later_round_works(self, kept, kind, fault, caplog) -> None:
        table = kept()
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        faults.arm(fault.format(kind=kind))
        table.deliver((3, "c"))
        faults.arm("")
        [failure] = failures(caplog)
        assert "was not maintained, and is in a later round" in failure
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        assert table.verify().ok
        table.deliver((4, "d"))
        assert table.verify().ok
        assert (len(table.active()), table.garbage()) == (1, [])

    @pytest.mark.parametrize("fault", LANDED)
    def test_a_commit_that_landed_and_raised_is_found(self, kept, kind, fault, caplog) -> None:
        table = kept()
        table.deliver((1, "a"))
        table.deliver((2, "b"))
        faults.arm(fault.format(kind=kind))
        table.deliver((3, "c"))
        faults.arm("")
        assert failures(caplog) == []
        assert len(table.active()) == 1
        table.deliver((4, "d"))
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
        assert table.verify().ok
        assert (len(table.active()), table.garbage()) == (1, [])

    def test_whatever_fails_is_told_and_raises_nothing(self, kept, monkeypatch) -> None:
        table = kept()

        def broken(self):
            raise RuntimeError("it broke")

        monkeypatch.setattr(Compaction, "run", broken)
        table.deliver((1, "a"))
        [warning] = table.maintain_after(table.publications()[-1])
        assert warning.endswith("was not maintained, and is in a later round: it broke.")


class TestBesideOthers:
    @RIGS
    @pytest.mark.parametrize("name", ["MaintainedRig", "MaintainedOverlappingRig"])
    def test_a_compaction_that_a_batch_of_another_driver_overtakes(self, tmp_path, rigs, name, monkeypatch, caplog) -> None:
        """It comes to nothing, and leaves nothing."""
        for bench in opened(getattr(rigs, name)(tmp_path)):
            late, others = bench.sink(), iter([bench.sink()])
            bench.deliver(late, bench.rows(range(1, 20, 2)), batch_id=0)
            real = TableWriter.show

            def overtaken(self, pieces, *, real=real, others=others, bench=bench):
                real(self, pieces)
                if self.stager.settings.prefix.startswith("compact"):
                    for sink in others:
                        bench.deliver(sink, bench.rows(range(1001, 1020, 2)), batch_id=2)

            with monkeypatch.context() as patched:
                patched.setattr(TableWriter, "show", overtaken)
                bench.deliver(late, bench.rows(range(101, 120, 2)), batch_id=1)
            assert len(bench.decided) == 3
            bench.require_shown(*bench.decided)
            assert bench.verify(bench.sink()).ok
            assert bench.rig.leftovers() == []
            assert failures(caplog) == []

    def test_a_commit_of_others_in_between_is_no_failure(self, kept, monkeypatch, caplog) -> None:
        table = kept()
        table.deliver((1, "a"))
        real = TableWriter.show

        def overtaken(self, pieces):
            real(self, pieces)
            table.others_changed()

        with monkeypatch.context() as patched:
            patched.setattr(TableWriter, "show", overtaken)
            table.deliver((2, "b"))
        assert (len(table.active()), failures(caplog)) == (2, [])
        table.deliver((3, "c"))
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
        assert table.verify().ok
        assert (len(table.active()), table.garbage()) == (1, [])

    @pytest.mark.parametrize("kind", ["delta"])
    @pytest.mark.parametrize("act", OF_LIBRARY)
    def test_what_the_library_began_before_is_refused(self, kept, act) -> None:
        """It takes no notice of files that others removed, if that entry of the log says that no row changed."""
        table = kept(compacts=False)
        for number in range(3):
            table.deliver((number, "a"))
        before, table.compacts = table.rig.table(), True
        assert table.maintain_after(table.publications()[-1]) == []
        with pytest.raises(CommitFailedError):
            OF_LIBRARY[act](before)
        assert table.content("id", "name") == Counter((number, "a") for number in range(3))
        assert table.verify().ok

    def test_a_compaction_that_may_still_be_made_keeps_its_files(self, kept, monkeypatch, caplog) -> None:
        """Its driver stands still before the commit, while another one looks for leftovers."""
        table = kept()
        table.deliver((1, "a"))
        real = TableWriter.show

        def looked_at(self, pieces):
            real(self, pieces)
            table.every = 10
            assert table.maintain_after(table.publications()[-1]) == []

        with monkeypatch.context() as patched:
            patched.setattr(TableWriter, "show", looked_at)
            table.deliver((2, "b"))
        assert len(table.active()) == 1
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b")])
        assert table.verify().ok
        assert failures(caplog) == []

    def test_what_came_to_nothing_is_removed_by_the_run_that_saw_it_standing(self, kept) -> None:
        """It asks again what became of a version that was not there yet."""
        table = kept()
        table.deliver((1, "a"))
        [name] = table.active()
        [path] = table.rig.directory.rglob(name)
        coming = table.version() + 2  # after the next batch's
        shutil.copy(path, path.parent / re.sub(r"part-.*-[0-9a-f]{16}-", f"compact-{coming}-g0-b0-p0-t0-{'0' * 16}-", name))
        assert len(table.garbage()) == 1
        table.deliver_in_one_run([(2, "b")], [(3, "c")])
        assert table.garbage() == []

    def test_a_late_driver_compacts_what_a_newer_one_published(self, kept) -> None:
        """Which changes nothing either; a replay after it writes nothing."""
        table = kept(compacts=False)
        for number in range(4):
            table.deliver((number, "a"))
        table.compacts = True
        assert table.maintain_after(table.publications()[1]) == []
        assert len(table.active()) == 1
        before = table.version()
        table.start()
        assert table.version() == before
        assert table.content("id", "name") == Counter((number, "a") for number in range(4))
        assert table.verify().ok
