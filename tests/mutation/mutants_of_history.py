"""Bugs planted in what decides which versions of a row a table has, and which rows of it are replaced."""

from tests.mutation.mutant import Mutant

HISTORY = "src/penstock/sink/table/history.py"
COMPARED = "src/penstock/sink/table/compared_load.py"
VERSIONS = "tests/unit/test_versions.py::test_random_changes_equal_a_replay_in_memory"
SQLITE = "tests/unit/test_sqlite_compared.py"
LAKES = "tests/unit/test_lake_compared.py"

MUTANTS_OF_HISTORY = (
    *(
        Mutant(bug=bug, name=name, file=HISTORY, find=find, replace=replace, tests=(f"{VERSIONS}[{of}]",))
        for bug, name, find, replace, of in (
            (
                22,
                "a-late-change-becomes-the-current-version",
                "np.lexsort((arrival, ranks, keys))",
                "np.lexsort((arrival, keys))",
                "time",
            ),
            (22, "a-version-that-ended-is-open-again", "ended = np.where(is_gone & (row >= 0), first, ended)", "pass", "time"),
            (
                43,
                "the-end-of-a-version-is-a-deletion-where-the-next-one-begins",
                "is_kept[total:] = _are_deletions(keys, ranks, at, known=known, total=total)",
                "is_kept[total:] = True",
                "time",
            ),
            (1, "a-version-that-did-not-change-is-written-again", "~is_same)", "True)", "time"),
            (
                43,
                "a-row-that-repeats-the-version-before-it-closes-that",
                "kept = ~self._repeats(row, keys)",
                "kept = np.ones(len(row), np.bool_)",
                "stream",
            ),
            (
                43,
                "a-deleted-row-that-comes-back-is-taken-for-a-repeat",
                "(row[:-1] >= 0) & (keys",
                "(keys",
                "stream",
            ),
        )
    ),
    Mutant(
        bug=22,
        name="versions-that-ended-after-a-late-change-are-not-read",
        file="src/penstock/sink/sqlite/statements.py",
        find="IS NULL OR t.{to} >= s.{start})",
        replace="IS NULL)",
        tests=(f"{SQLITE}::TestHistory::test_a_late_change_takes_its_place",),
    ),
    Mutant(
        bug=22,
        name="the-end-of-a-batch-says-which-versions-are-read",
        file=HISTORY,
        find="return self.as_versions().take(pa.array(order[_begins(keys[order])]))",
        replace="return self.as_versions().take(pa.array(order[::-1][_begins(keys[order[::-1]])]))",
        tests=(f"{VERSIONS}[time]",),
    ),
    Mutant(
        bug=34,
        name="databases-count-the-rows-of-a-batch-and-not-its-versions",
        file=COMPARED,
        find="displaced = minus(Totals(rows=decided.rows, digest=decided.digest) + loaded.displaced, kept)",
        replace="displaced = loaded.displaced",
        tests=(f"{SQLITE}::TestHistory::test_a_batch_that_repeats_what_is_there_writes_nothing",),
    ),
    Mutant(
        bug=33,
        name="verify-does-not-see-the-columns-of-the-history",
        file="src/penstock/sink/table/sql_sink.py",
        find="rows = table_columns(arrow_schema(schema), self._target)\n        return totals_of",
        replace="rows = arrow_schema(schema)\n        return totals_of",
        tests=(f"{SQLITE}::TestHistory::test_a_batch_that_repeats_what_is_there_writes_nothing",),
    ),
    Mutant(
        bug=29,
        name="an-older-penstock-fills-a-table-with-history",
        file="src/penstock/sink/table/marker.py",
        find="if marker.write == HISTORY:",
        replace="if False:",
        tests=(f"{SQLITE}::TestHistory::test_an_older_penstock_is_kept_away",),
    ),
    Mutant(
        bug=35,
        name="databases-write-a-decided-batch-by-the-condition-of-the-settings",
        file="src/penstock/sink/table/publication.py",
        find="update_when=None if condition is None else parse_condition(str(condition)),",
        replace="update_when=target.update_when,",
        tests=(f"{SQLITE}::TestUpdateWhen::test_a_batch_is_written_by_the_condition_that_it_was_decided_with",),
    ),
    Mutant(
        bug=22,
        name="databases-replace-rows-whatever-the-condition-says",
        file=COMPARED,
        find="written[met] = np.asarray",
        replace="np.asarray",
        tests=(f"{SQLITE}::TestUpdateWhen::test_random_changes_equal_a_replay_in_memory[plain-0]",),
    ),
    Mutant(
        bug=22,
        name="a-comparison-with-null-replaces-a-row",
        file="src/penstock/core/condition_value.py",
        find="return pc.fill_null(flat, fill_value=False)",
        replace="return pc.fill_null(flat, fill_value=True)",
        tests=("tests/unit/test_update_condition.py::test_what_is_true[new.name <> old.name-False]",),
    ),
    Mutant(
        bug=22,
        name="lakes-replace-rows-whatever-the-condition-says",
        file="src/penstock/sink/lake/merge.py",
        find="stays |= fails & ~np.concatenate(self._deleting)[numbers] if self._deleting else fails",
        replace="pass",
        tests=(f"{LAKES}::test_a_batch_is_written_as_it_was_decided",),
    ),
    Mutant(
        bug=17,
        name="a-history-takes-what-is-left-of-a-damaged-spool",
        file="src/penstock/sink/lake/keep_history.py",
        find="require_all(len(self._batch.rows), publication, expected=publication.totals.rows)",
        replace="pass",
        tests=(f"{LAKES}::test_rows_that_the_spool_lost_are_missed",),
    ),
    Mutant(
        bug=34,
        name="lakes-count-the-versions-of-a-batch-as-decided-rows",
        file="src/penstock/sink/lake/keep_history.py",
        find="decided = minus(change.content.decided + _plain(self.decided.publication), totals)",
        replace="decided = change.content.decided",
        tests=(f"{LAKES}::test_a_history_of_before_goes_on",),
    ),
)
