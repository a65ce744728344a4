"""Bugs planted in what decides which rows of a lake table are newer, and what another program delivered there before."""

from tests.mutation.mutant import Mutant

BATCH_KEYS = "src/penstock/sink/lake/batch_keys.py"
STAGED_FILES = "src/penstock/sink/lake/staged_files.py"
NEWER = "tests/unit/test_lake_changes.py::TestWhatIsNewer"
TAKEN_OVER = "tests/unit/test_delta_taken_over.py"

MUTANTS_OF_NEWER_ROWS = (
    Mutant(
        bug=22,
        name="lakes-replace-newer-rows-by-older-ones",
        file="src/penstock/sink/lake/merge.py",
        find="            if keys.sequence_by is not None:\n                return",
        replace="            if False:\n                return",
        tests=(f"{NEWER}::test_an_older_row_leaves_the_newer_one_alone[delta-NewestRig]",),
    ),
    Mutant(
        bug=22,
        name="lakes-take-the-last-row-of-a-batch-for-the-newest",
        file=BATCH_KEYS,
        find='[(sequence_by, "ascending"), (_ROW, "ascending")]',
        replace='[(_ROW, "ascending")]',
        tests=(f"{NEWER}::test_an_older_row_leaves_the_newer_one_alone[delta-NewestRig]",),
    ),
    Mutant(
        bug=22,
        name="lakes-keep-rows-without-a-sequence-before-newer-ones",
        file=BATCH_KEYS,
        find="old.column(sequence_by)), fill_value=False)",
        replace="old.column(sequence_by)), fill_value=True)",
        tests=(f"{NEWER}::test_rows_without_a_value_are_older_than_all_others[delta]",),
    ),
    Mutant(
        bug=35,
        name="lakes-write-a-decided-batch-in-the-sequence-of-the-settings",
        file="src/penstock/sink/lake/write_mode.py",
        find='            noted["sequence_by"] = self.sequence_by\n',
        replace="            pass\n",
        tests=(f"{NEWER}::test_a_batch_is_published_in_the_sequence_that_it_was_decided_with[delta]",),
    ),
    Mutant(
        bug=17,
        name="lakes-do-not-count-the-rows-that-a-first-batch-found",
        file="src/penstock/sink/lake/change.py",
        find="            return True\n        return self.counts_first(snapshot)\n",
        replace="            return True\n        return False\n",
        tests=(f"{TAKEN_OVER}::TestKeepingRows::test_rows_that_were_there_are_counted_with_the_first_batch[DeltaRig]",),
    ),
    Mutant(
        bug=8,
        name="delta-counts-the-rows-that-a-first-batch-found-and-commits-on-others",
        file=STAGED_FILES,
        find=" or self.decided.counts_first(snapshot)",
        replace="",
        tests=(f"{TAKEN_OVER}::TestKeepingRows::test_rows_that_come_before_the_first_commit_are_counted[DeltaRig]",),
    ),
    Mutant(
        bug=17,
        name="lakes-take-the-rows-that-a-first-batch-found-for-decided-ones",
        file="src/penstock/sink/lake/change.py",
        find="decided=NO_ROWS if is_first else there",
        replace="decided=there",
        tests=(f"{TAKEN_OVER}::TestKeepingRows::test_rows_that_were_there_are_replaced_by_key[OverlappingRig]",),
    ),
    Mutant(
        bug=2,
        name="adopts-a-batch-that-the-other-program-delivered",
        file="src/penstock/run/application.py",
        find="    if version == upcoming and position.is_replay:\n",
        replace="    if False:\n",
        tests=(f"{TAKEN_OVER}::TestAdopting::test_a_batch_that_was_written_and_not_committed_would_come_twice",),
    ),
    Mutant(
        bug=2,
        name="adopts-an-older-copy-of-the-other-program-s-checkpoint",
        file="src/penstock/run/application.py",
        find="    if version >= upcoming:\n",
        replace="    if False:\n",
        tests=(f"{TAKEN_OVER}::TestAdopting::test_an_older_copy_of_the_checkpoint",),
    ),
)
