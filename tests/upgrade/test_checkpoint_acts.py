"""Acts on real checkpoints of every version of Spark: done, taken back, and killed at every write."""

import json
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint.act import ACTS, Act, Change
from penstock.checkpoint.acting import carry_out, perform, undo
from penstock.checkpoint.catching_up import COPY
from penstock.checkpoint.copying import UNFINISHED, copy_checkpoint
from penstock.checkpoint.gc_plan import plan_gc
from penstock.checkpoint.inspection import Next
from penstock.checkpoint.repair_plan import plan_repair
from penstock.checkpoint.rewind_plan import plan_rewind, possible_batches
from penstock.checkpoint.source_log import logged_files
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from penstock.errors import CheckpointDamaged, Refused, Retryable, Usage

BATCHES_WITH_INPUT = 8
"""One file each. The last batch of a query with a watermark reads nothing."""

BY_NAME = pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))


def named(name: str) -> dict[str, bytes]:
    [archive] = [path for path in ARCHIVES if path.name.startswith(f"{name}.")]
    return content_of(archive)


def without_acts(files: MemoryFiles) -> dict[str, bytes]:
    return {name: data for name, data in files.content.items() if not name.startswith(f"{ACTS}/")}


def newest_of(content: dict[str, bytes], log: str) -> int:
    return max(int(name.rpartition("/")[2]) for name in content if name.startswith(f"{log}/") and name[8:].isdecimal())


def rewind(files: MemoryFiles, to_batch: int, *, yes: bool = True) -> Act:
    batch_id = BatchId(to_batch)
    return perform(
        files, verb="rewind", request={"to_batch": batch_id}, plan=lambda: plan_rewind(files, to_batch=batch_id), yes=yes
    ).act


@BY_NAME
def test_a_rewound_checkpoint_is_what_it_was_after_that_batch(archive: Path) -> None:
    whole = content_of(archive)
    newest = newest_of(whole, "commits")
    batches = list(possible_batches(MemoryFiles(whole)))
    assert batches == list(range(batches[0], newest + 1))
    assert len(batches) >= 4
    for batch_id in batches:
        files = MemoryFiles(dict(whole))
        act = rewind(files, batch_id)
        found, kept = verify_files(files), without_acts(files)
        assert (found.findings, found.outlook.next, found.outlook.batch_id) == ((), Next.NEW, batch_id + 1)
        assert [name for name in kept if name not in whole and not name.endswith(".compact")] == []
        assert (newest_of(kept, "offsets"), newest_of(kept, "commits")) == (batch_id, batch_id)
        assert bool(act.steps) is (batch_id < newest)
        assert len(list(logged_files(files))) == min(batch_id + 1, BATCHES_WITH_INPUT) * len(files.names("sources"))
        if act.steps:
            assert undo(files, verb="rewind", yes=True).files == len(act.steps)
        assert without_acts(files) == whole


KILLED = pytest.mark.parametrize("name", ["spark-3.5-files", "spark-4.1-unique"])


@KILLED
def test_an_act_that_is_killed_anywhere_is_finished_by_the_same_command_or_taken_back(name: str) -> None:
    whole = named(name)
    newest = newest_of(whole, "commits")
    done = MemoryFiles(dict(whole))
    rewind(done, newest - 1)
    kills = 0
    for changes in range(1_000):
        files = MemoryFiles(dict(whole), changes=changes)
        try:
            rewind(files, newest - 1)
        except KeyboardInterrupt:
            kills += 1
        else:
            break
        files.changes = None
        require_old_new_or_unreadable(without_acts(files), whole, without_acts(done))
        taken_back = MemoryFiles(dict(files.content))
        if verify_files(files).outlook.next is Next.FAIL:
            undo(taken_back, verb="rewind", yes=True)
        assert without_acts(rewound(files, newest - 1)) == without_acts(done)
        if verify_files(taken_back).outlook.batch_id == newest:
            undo(taken_back, verb="rewind", yes=True)
        assert without_acts(taken_back) == whole
    assert kills >= 19


@KILLED
def test_taking_back_that_is_killed_anywhere_can_be_finished_in_either_direction(name: str) -> None:
    whole = named(name)
    newest = newest_of(whole, "commits")
    done = rewound(MemoryFiles(dict(whole)), newest - 1)
    for changes in range(1_000):
        files = MemoryFiles(dict(done.content), changes=changes)
        try:
            undo(files, verb="rewind", yes=True)
        except KeyboardInterrupt:
            files.changes = None
        else:
            break
        require_old_new_or_unreadable(without_acts(files), whole, without_acts(done))
        again = rewound(MemoryFiles(dict(files.content)), newest - 1)
        assert without_acts(again) == without_acts(done)
        if without_acts(files) != whole:
            undo(files, verb="rewind", yes=True)
        assert without_acts(files) == whole
    assert changes >= 10


def rewound(files: MemoryFiles, to_batch: int) -> MemoryFiles:
    rewind(files, to_batch)
    return files


def require_old_new_or_unreadable(found: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Whenever `metadata` can be read, so that Spark starts, the checkpoint is wholly as before or wholly as afterwards."""
    if found["metadata"] == old["metadata"]:
        assert found in (old, new)
    else:
        assert verify_files(MemoryFiles(found)).outlook.next is Next.FAIL


def interrupted(whole: dict[str, bytes]) -> MemoryFiles:
    """A checkpoint in the middle of a rewind by one batch."""
    for changes in range(1_000):
        files = MemoryFiles(dict(whole), changes=changes)
        with pytest.raises(KeyboardInterrupt):
            rewind(files, newest_of(whole, "commits") - 1)
        files.changes = None
        if files.content["metadata"] != whole["metadata"]:
            return files
    raise AssertionError


def test_while_an_act_is_unfinished_nothing_starts_and_no_other_act_begins() -> None:
    whole = named("spark-4.3-aggregation")
    newest = newest_of(whole, "commits")
    files = interrupted(whole)
    [finding] = [one for one in verify_files(files).findings if one.file == "metadata"]
    assert "names the act penstock-acts/0001-rewind, which is not finished" in finding.meaning
    assert finding.remedy == (
        "Run the same `penstock checkpoint rewind` command again with --yes to finish it, or with --undo --yes to undo it."
    )
    with pytest.raises(Refused, match="was interrupted: The checkpoint goes back to the end of batch 7"):
        rewind(files, newest - 2)
    with pytest.raises(Refused, match="is no gc"):
        undo(files, verb="gc", yes=True)
    with pytest.raises(CheckpointDamaged, match="the act penstock-acts/0001-rewind is not finished"):
        copy_checkpoint(files, MemoryFiles({}))
    shown = rewind(files, newest - 1, yes=False)
    assert shown.steps
    assert verify_files(files).outlook.next is Next.FAIL, "a dry run finishes nothing"


def test_what_was_abandoned_before_it_changed_anything_is_forgotten() -> None:
    whole = named("spark-4.3-files")
    newest = newest_of(whole, "commits")
    files = MemoryFiles(dict(whole), changes=3)
    with pytest.raises(KeyboardInterrupt):
        rewind(files, newest - 1)
    files.changes = None
    with pytest.raises(Refused, match="No act on the checkpoint memory can be undone"):
        undo(files, verb="rewind", yes=True)
    rewind(files, newest - 2)
    assert {name.split("/")[1] for name in files.content if name.startswith(ACTS)} == {"0001-rewind"}


def test_an_act_is_not_taken_back_once_spark_has_gone_on() -> None:
    whole = named("spark-4.3-files")
    files = rewound(MemoryFiles(dict(whole)), newest_of(whole, "commits") - 2)
    files.content["offsets/6"] = whole["offsets/6"] + b" "
    before = dict(files.content)
    with pytest.raises(Refused, match=r"cannot be undone any more: offsets/6 is not what the act left"):
        undo(files, verb="rewind", yes=True)
    del files.content["offsets/6"]
    files.content["offsets/9"] = whole["offsets/7"]
    with pytest.raises(Refused, match="its logs ended with batches 5 and 5, and now end with 9 and 5"):
        undo(files, verb="rewind", yes=True)
    del files.content["offsets/9"], before["offsets/6"]
    assert files.content == before


def test_a_copy_that_is_not_what_was_kept_is_not_put_back() -> None:
    whole = named("spark-4.3-files")
    files = rewound(MemoryFiles(dict(whole)), newest_of(whole, "commits") - 1)
    files.content[f"{ACTS}/0001-rewind/before/offsets/7"] = b"v1"
    with pytest.raises(CheckpointDamaged, match="0001-rewind/before/offsets/7 is not what was kept"):
        undo(files, verb="rewind", yes=True)


def test_a_checkpoint_that_a_query_goes_on_with_is_left_alone() -> None:
    whole = named("spark-4.3-files")
    files = MemoryFiles(dict(whole))
    act = plan_rewind(files, to_batch=BatchId(newest_of(whole, "commits") - 1))
    files.content["offsets/8"] = whole["offsets/7"]
    with pytest.raises(Retryable, match="ended with batches 7 and 7, and now end with 8 and 7"):
        carry_out(files, act)
    assert without_acts(files) == {**whole, "offsets/8": whole["offsets/7"]}


def test_a_rewind_without_its_state_is_refused_and_names_the_oldest_batch() -> None:
    """Version 8 of the state is that after batch 7."""
    content = named("spark-4.3-aggregation")
    for name in [name for name in content if name.startswith("state/0/1/") and name[10:] in {"8.delta", "8.snapshot", "7.delta"}]:
        del content[name]
    before = dict(content)
    files = MemoryFiles(content)
    with pytest.raises(Refused, match=r"cannot go back to the end of batch 6") as refused:
        rewind(files, 6)
    assert refused.value.remedy == "Name batch 5, the only one that is possible."
    with pytest.raises(Refused, match=r"cannot go back to the end of batch 99: offsets/98 is missing"):
        rewind(files, 99)
    assert files.content == before


def test_with_the_plan_kept_spark_runs_the_next_batch_again() -> None:
    whole = named("spark-4.3-rocksdb")
    files = MemoryFiles(dict(whole))
    carry_out(files, plan_rewind(files, to_batch=BatchId(6), keeps_plan=True))
    found = verify_files(files)
    assert (found.ok, found.outlook.next, found.outlook.batch_id) == (True, Next.REPLAY, 7)
    assert files.content["offsets/7"] == whole["offsets/7"]
    assert "sources/0/7" in files.content


@BY_NAME
def test_gc_leaves_what_a_restart_and_every_rewind_within_reach_needs(archive: Path) -> None:
    whole = content_of(archive)
    before = list(possible_batches(MemoryFiles(whole)))
    assert plan_gc(MemoryFiles(whole)).steps == (), "Spark retains less than the 100 batches"
    for keep in (2, 3):
        files = MemoryFiles(dict(whole))
        act = plan_gc(files, keep_batches=keep)
        carry_out(files, act)
        found, original = verify_files(files), verify_files(MemoryFiles(whole))
        assert (found.findings, found.outlook) == ((), original.outlook)
        assert list(possible_batches(files)) == before[-keep:]
        for batch_id in before[-keep:]:
            assert plan_rewind(files, to_batch=batch_id).next_batch_id == batch_id + 1
        assert all(step.change is Change.REMOVE for step in act.steps)
        undo(files, verb="gc", yes=True)
        assert without_acts(files) == whole


LEFT = {
    "offsets/.7.aa-bb.tmp": b"v1",
    "offsets/..7.aa-bb.tmp.crc": b"crc",
    "commits/.metadata.copying": b"",
    "state/0/0/.4.delta.aa.tmp": b"",
    "commits/.1.crc": b"crc\0",
    "state/0/1/.1.delta.crc": b"crc\0",
}


def test_gc_and_repair_remove_what_writers_left_behind() -> None:
    whole = named("spark-4.3-aggregation")
    for plan in (plan_gc, plan_repair):
        files = MemoryFiles({**whole, **LEFT})
        act = plan(files)
        assert {step.place for step in act.steps} == LEFT.keys()
        carry_out(files, act)
        assert without_acts(files) == whole


def test_gc_removes_failed_attempts_and_tables_that_nothing_refers_to() -> None:
    whole = named("spark-4.3-unique")
    [version] = [name for name in whole if name.startswith("state/0/0/9_") and name.endswith(".changelog")]
    failed = f"state/0/0/9_{'0' * 8}-0000-4000-8000-{'0' * 12}.changelog"
    table = "state/0/0/SSTs/000099-00000000-0000-4000-8000-000000000000.sst"
    files = MemoryFiles({**whole, failed: whole[version], table: b"x"})
    act = plan_gc(files)
    assert {step.place for step in act.steps} == {failed, table}


def test_gc_forgets_all_backups_but_the_newest() -> None:
    whole = named("spark-4.3-files")
    files = rewound(rewound(MemoryFiles(dict(whole)), 6), 5)
    carry_out(files, plan_gc(files))
    assert {name.split("/")[1] for name in files.content if name.startswith(f"{ACTS}/")} == {"0002-rewind", "0003-gc"}
    undo(files, verb="gc", yes=True)
    undo(files, verb="rewind", yes=True)
    assert newest_of(files.content, "commits") == 6


def test_gc_removes_the_copy_of_a_rebuild_that_was_interrupted() -> None:
    files = MemoryFiles(named("spark-4.3-files") | {f"{COPY}/offsets/7": b"v1", f"{COPY}/metadata": b"{}"})
    assert {step.place for step in plan_gc(files).steps} == {f"{COPY}/offsets/7", f"{COPY}/metadata"}


def test_of_a_damaged_checkpoint_nothing_is_collected() -> None:
    content = named("spark-4.3-files")
    del content["offsets/7"]
    with pytest.raises(Refused, match="what is left may be needed to repair it"):
        plan_gc(MemoryFiles(content))


def test_a_lost_metadata_is_written_again_with_the_query_id_that_its_checksum_confirms() -> None:
    whole = named("spark-4.3-files")
    content = {name: data for name, data in whole.items() if name != "metadata"}
    with pytest.raises(Refused, match="metadata is missing"):
        plan_repair(MemoryFiles(dict(content)))
    with pytest.raises(Refused, match="metadata is missing"):
        plan_repair(MemoryFiles(dict(content)), query_id="5f0c9f0e-0000-4000-8000-000000000001")
    with pytest.raises(Usage, match="expected a UUID"):
        plan_repair(MemoryFiles(dict(content)), query_id="flights")
    files = MemoryFiles(dict(content))
    carry_out(files, plan_repair(files, query_id=json.loads(whole["metadata"])["id"]))
    assert without_acts(files) == whole
    undo(files, verb="repair", yes=True)
    assert without_acts(files) == content


def test_a_hole_before_a_committed_batch_is_filled_and_no_rewind_goes_back_to_it() -> None:
    """Bug 24: entry 113258 was missing between 113257 and 113259."""
    whole = named("spark-4.3-files")
    files = MemoryFiles({name: data for name, data in whole.items() if name not in {"offsets/6", "offsets/.6.crc"}})
    carry_out(files, plan_repair(files))
    assert (verify_files(files).ok, verify_files(files).outlook.batch_id) == (True, 8)
    assert "commits/6" not in files.content
    assert 6 not in list(possible_batches(files))
    with pytest.raises(Refused, match="cannot go back to the end of batch 6: commits/6 is missing"):
        rewind(files, 6)
    del files.content["commits/7"], files.content["commits/.7.crc"], files.content["offsets/6"]
    with pytest.raises(Refused, match="offsets/6"):
        plan_repair(files)


def test_a_copy_that_is_not_finished_is_not_repaired() -> None:
    content = {**named("spark-4.3-files"), "metadata": UNFINISHED}
    with pytest.raises(Refused, match="metadata"):
        plan_repair(MemoryFiles(content), query_id="5f0c9f0e-0000-4000-8000-000000000001")


def test_a_compacted_entry_that_is_a_copy_of_another_is_removed() -> None:
    """As an object store's partial copy can leave it: Spark derives another interval from it, and looks for what is not there."""
    whole = named("spark-4.3-files")
    files = MemoryFiles({**whole, "sources/0/6.compact": whole["sources/0/5.compact"]})
    assert not verify_files(files).ok
    carry_out(files, plan_repair(files))
    assert without_acts(files) == whole
