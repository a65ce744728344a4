"""Bugs planted in what decides which rows of a table are newer, and what another program delivered there before."""

from tests.mutation.mutant import Mutant

BATCH_KEYS = "src/penstock/sink/lake/batch_keys.py"
STAGED_FILES = "src/penstock/sink/lake/staged_files.py"
SEQUENCE = "src/penstock/sink/table/sequence.py"
STAGED = "src/penstock/sink/table/table_statements.py"
SQLITE = "src/penstock/sink/sqlite/statements.py"
NEWER = "tests/unit/test_lake_changes.py::TestWhatIsNewer"
TAKEN_OVER = "tests/unit/test_delta_taken_over.py"
WRITES = "tests/unit/test_sqlite_writes.py"
SERVED = "tests/live/test_served_table.py"

MUTANTS_OF_NEWER_ROWS = (
    Mutant(
        bug=22,
        name="sqlite-replaces-newer-rows-by-older-ones",
        file=SQLITE,
        find="WHERE ({self._is_older('excluded')}) IS NOT TRUE",
        replace="WHERE TRUE",
        tests=(f"{WRITES}::test_an_older_change_never_wins[0]",),
    ),
    Mutant(
        bug=22,
        name="sqlite-keeps-rows-without-a-sequence-before-newer-ones",
        file=SQLITE,
        find="IS NOT TRUE",
        replace="IS FALSE",
        tests=(f"{WRITES}::test_a_row_without_a_sequence_is_older_than_every_other",),
    ),
    Mutant(
        bug=22,
        name="databases-take-rows-without-a-sequence",
        file="src/penstock/sink/table/target.py",
        find="return self.row_key if self.sequence_by is None else (*self.row_key, self.sequence_by)",
        replace="return self.key",
        tests=(f"{WRITES}::test_a_row_without_a_sequence_is_older_than_every_other",),
    ),
    Mutant(
        bug=35,
        name="databases-write-a-decided-batch-in-the-sequence-of-the-settings",
        file="src/penstock/sink/table/publication.py",
        find="sequence_by=None if sequence is None else str(sequence),",
        replace="sequence_by=target.sequence_by,",
        tests=(f"{WRITES}::test_a_batch_is_published_in_the_sequence_that_it_was_decided_with",),
    ),
    *(
        Mutant(
            bug=29,
            name=f"an-older-penstock-may-publish-what-is-decided-in-a-sequence-{when}",
            file=f"src/penstock/sink/table/{file}.py",
            find=find,
            replace=replace,
            tests=(f"{WRITES}::test_an_older_penstock_publishes_nothing_that_may_be_decided_with_a_sequence",),
        )
        for when, file, find, replace in (
            ("later", "preparation", "marker.is_in_sequence or is_in_sequence)", "marker.is_in_sequence)"),
            ("by-an-earlier-run", "publication", "if target.has_staged and publication.staged and", "if publication.staged and"),
        )
    ),
    Mutant(
        bug=22,
        name="databases-replace-newer-rows-by-older-ones-of-another-batch",
        file=STAGED,
        find="WHERE {self._is_older}",
        replace="WHERE 1 = 0",
        tests=(f"{SERVED}::test_an_older_change_never_wins[duckdb-0]",),
    ),
    Mutant(
        bug=22,
        name="databases-take-the-last-row-of-a-batch-for-the-newest",
        file=STAGED,
        find="{self._sequence('')} DESC, {self._number} DESC",
        replace="{self._number} DESC",
        tests=(f"{SERVED}::test_an_older_change_never_wins[duckdb-0]",),
    ),
    *(
        Mutant(
            bug=22,
            name=f"{kind}-compares-texts-by-the-collation-of-their-column",
            file=f"src/penstock/sink/{kind}/table_schema.py",
            find=find,
            replace=replace,
            tests=(f"{SERVED}::test_texts_are_newer_by_their_code_points_whatever_the_collation[{kind}-{collation}]",),
        )
        for kind, collation, find, replace in (
            ("duckdb", "NOCASE", '"encode({})"', '"{}"'),
            ("mysql", "utf8mb4_general_ci", '"CAST({} AS BINARY)"', '"{} COLLATE utf8mb4_general_ci"'),
            ("postgres", "en-x-icu", """'{}::text COLLATE "C"'""", '"{}"'),
        )
    ),
    Mutant(
        bug=22,
        name="mysql-takes-texts-of-which-a-sort-compares-a-part",
        file="src/penstock/sink/mysql/table_schema.py",
        find="name: min(SORTED_BYTES, sizes.get(name, SORTED_BYTES))",
        replace="name: sizes.get(name, 1 << 30)",
        tests=(f"{SERVED}::test_a_text_of_which_a_sort_compares_only_a_part_is_refused[mysql]",),
    ),
    Mutant(
        bug=17,
        name="sqlite-counts-what-a-trigger-of-the-user-sets-as-replaced",
        file=SQLITE,
        find="AFTER UPDATE OF {self._list(self.columns)} ON",
        replace="AFTER UPDATE ON",
        tests=(f"{WRITES}::test_a_trigger_of_the_user_that_sets_another_column_does_not_count[INSERT]",),
    ),
    Mutant(
        bug=22,
        name="sqlite-compares-texts-by-the-collation-of-their-column",
        file=SQLITE,
        find="< {column} COLLATE BINARY",
        replace="< {column}",
        tests=(f"{WRITES}::test_texts_are_newer_by_their_code_points_whatever_the_collation",),
    ),
    Mutant(
        bug=17,
        name="databases-count-rows-as-shown-that-they-left-out",
        file="src/penstock/sink/table/publication.py",
        find="displaced=self.displaced + rows)",
        replace="displaced=self.displaced)",
        tests=(f"{SERVED}::test_an_older_change_never_wins[duckdb-0]",),
    ),
    Mutant(
        bug=8,
        name="databases-compare-before-others-write-and-replace-afterwards",
        file=SEQUENCE,
        find="(outdated := totals(statements.read_outdated())).rows:",
        replace="(outdated := Totals()).rows:",
        tests=(f"{SERVED}::test_a_newer_row_that_another_session_writes_meanwhile_stays[postgres]",),
    ),
    Mutant(
        bug=22,
        name="lakes-replace-newer-rows-by-older-ones",
        file="src/penstock/sink/lake/merge.py",
        find="            stays |= older_than(old, new, sequence_by)",
        replace="            pass",
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
