"""Bugs planted in `verify`: alarms beside a running driver, and differences that go unseen."""

from tests.mutation.mutant import Mutant

CLI = "src/penstock/cli/verify.py"
PARQUET = "src/penstock/sink/parquet/verification.py"
TABLE = "src/penstock/sink/table/verification.py"
KAFKA = "src/penstock/sink/kafka/verification.py"

OF_READERS = "tests/unit/test_read.py"
OF_ACCOUNTS = "tests/unit/test_parquet_verify.py"
OF_SINCE = "tests/unit/test_verify_since.py"
OF_TABLES = "tests/unit/test_table_verification.py"

ROWHASH = "src/penstock/core/row_hash.py"
OF_ROWHASH = "tests/unit/test_rowhash.py"
OF_MEMORY = "tests/conformance/test_memory_conformance.py::TestMemory"

MUTANTS_OF_VERIFY = (
    Mutant(
        bug=33,
        name="an-account-that-the-file-does-not-name-is-passed-over-in-silence",
        file=PARQUET,
        find="for account, totals in decided.items() if account not in tables and totals.rows}",
        replace="for account, totals in decided.items() if account in tables and not totals.rows}",
        tests=(f"{OF_ACCOUNTS}::test_an_account_that_the_file_no_longer_names_is_told_and_is_no_difference",),
    ),
    Mutant(
        bug=33,
        name="a-dictionarys-text-has-another-hash-than-the-text",
        file="src/penstock/core/value_hash.py",
        find="        steps.append(_step((lengths & 3) > byte, rest + byte,",
        replace="        steps.append(_step((lengths & 3) > byte + 1, rest + byte,",
        tests=(f"{OF_ROWHASH}::test_a_text_of_a_dictionary_has_the_hash_of_the_text",),
    ),
    Mutant(
        bug=19,
        name="since-a-batch-newer-files-that-nobody-decided-are-passed-over",
        file=PARQUET,
        find="(attempt is not None and (attempt.generation, attempt.batch_id) > after)",
        replace="(attempt is None and since is None)",
        tests=(f"{OF_SINCE}::test_since_a_batch_a_newer_file_that_nobody_decided_is_told",),
    ),
    Mutant(
        bug=34,
        name="since-a-batch-that-batch-is-expected-and-not-read",
        file="src/penstock/commit/verification.py",
        find="lambda each: each.position > self._since",
        replace="lambda each: each.position >= self._since - 1",
        tests=(f"{OF_SINCE}::test_since_a_batch_only_what_is_newer_is_read_and_expected",),
    ),
    Mutant(
        bug=33,
        name="a-value-may-move-into-a-null-column",
        file=ROWHASH,
        find="        return hash_long(present, seeds)",
        replace="        return seeds",
        tests=(
            f"{OF_ROWHASH}::test_a_value_that_moves_into_a_null_column_counts",
            f"{OF_MEMORY}::test_damage_is_found[swapped-MemoryRig]",
        ),
    ),
    Mutant(
        bug=33,
        name="an-empty-array-is-null",
        file=ROWHASH,
        find="    return hash_int(lengths.astype(np.uint32), folded)",
        replace="    return folded",
        tests=(f"{OF_ROWHASH}::test_elements_that_move_between_two_arrays_count",),
    ),
    Mutant(
        bug=33,
        name="which-elements-are-null-does-not-count",
        file=ROWHASH,
        find="    if elements.null_count:",
        replace="    if elements.null_count < 0:",
        tests=(f"{OF_ROWHASH}::test_where_nulls_are_inside_of_a_value_counts",),
    ),
    Mutant(
        bug=33,
        name="a-null-number-in-an-array-is-hashed",
        file=ROWHASH,
        find="np.where(valid[places], fold(places, seeds), seeds)",
        replace="fold(places, seeds)",
        tests=(f"{OF_ROWHASH}::test_a_null_in_an_array_leaves_the_seed_and_a_slice_has_its_own_elements",),
    ),
    Mutant(
        bug=33,
        name="a-slice-has-the-elements-of-another-one",
        file=ROWHASH,
        find="        return starts - starts[0], [",
        replace="        return starts, [",
        tests=(f"{OF_ROWHASH}::test_a_null_in_an_array_leaves_the_seed_and_a_slice_has_its_own_elements",),
    ),
    Mutant(
        bug=33,
        name="what-lies-under-a-null-list-is-hashed",
        file=ROWHASH,
        find="    if len(starts) and starts[-1] + lengths[-1] - starts[0] == ends[-1]:",
        replace="    if len(starts):",
        tests=(f"{OF_ROWHASH}::test_what_lies_under_a_null_list_is_not_looked_at",),
    ),
    Mutant(
        bug=33,
        name="verify-reads-every-ledger-as-a-new-one",
        file="src/penstock/sink/memory.py",
        find="        self._row_digest = row_digest",
        replace="        pass",
        tests=(f"{OF_MEMORY}::test_good_content_of_a_ledger_of_an_older_penstock_is_good",),
    ),
    Mutant(
        bug=33,
        name="accounts-may-exchange-rows",
        file=PARQUET,
        find="found=_totals(seen),",
        replace="found=expected if _totals(seen).rows == expected.rows else _totals(seen),",
        tests=(f"{OF_ACCOUNTS}::test_rows_that_two_accounts_exchanged_in_files_of_other_names_are_found",),
    ),
    Mutant(
        bug=33,
        name="files-of-one-directory-may-exchange-rows",
        file=PARQUET,
        find="self._unreadable(one) or self._changed(one)",
        replace="self._unreadable(one) or (None if self.report.ok else self._changed(one))",
        tests=(f"{OF_ACCOUNTS}::test_rows_that_moved_between_files_and_batches_of_one_directory_are_found_in_both",),
    ),
    Mutant(
        bug=33,
        name="verify-shows-an-account-whose-files-exchanged-rows-as-good",
        file=CLI,
        find="return each.ok and all(problem.account != account for problem in sink.problems)",
        replace="return each.ok",
        tests=("tests/unit/test_cli_verify.py::test_an_account_with_a_problem_is_different_though_its_sums_agree",),
    ),
    Mutant(
        bug=33,
        name="files-that-exchanged-rows-are-not-named",
        file=PARQUET,
        find="if (content.rows, content.digest) == (totals.rows, totals.digest):",
        replace="if content.rows == totals.rows:",
        tests=(f"{OF_ACCOUNTS}::test_rows_that_two_accounts_exchanged_are_found_in_both",),
    ),
    Mutant(
        bug=33,
        name="tables-may-exchange-rows",
        file=TABLE,
        find="return bool(difference.rows or difference.digest)",
        replace="return bool(difference.rows)",
        tests=(f"{OF_TABLES}::test_rows_that_two_tables_exchanged_are_found",),
    ),
    Mutant(
        bug=34,
        name="what-was-published-meanwhile-is-foreign",
        file=TABLE,
        find="position = max(marker.position, decisions.published_at)",
        replace="position = decisions.published_at",
        tests=(f"{OF_TABLES}::test_what_a_driver_published_meanwhile_and_what_it_has_not_yet_are_no_difference",),
    ),
    Mutant(
        bug=34,
        name="a-table-without-a-published-batch-is-good",
        file=TABLE,
        find="position = max(marker.position, decisions.published_at)",
        replace="position = marker.position",
        tests=(f"{OF_TABLES}::test_what_was_published_before_the_look_began_must_be_there",),
    ),
    Mutant(
        bug=34,
        name="rows-of-a-batch-in-the-making-are-foreign",
        file=TABLE,
        find="if not whole_batches and _differs(surplus):",
        replace="if False:",
        tests=(f"{OF_TABLES}::test_a_batch_that_is_there_in_part_is_neither_loss_nor_foreign",),
    ),
    Mutant(
        bug=34,
        name="files-of-a-batch-in-the-making-are-foreign",
        file=PARQUET,
        find="newer = ledger.newer_than(listed.as_of, account)",
        replace="newer = frozenset[str]()",
        tests=("tests/unit/test_parquet_verify.py::test_files_whose_marker_is_not_there_yet_are_no_difference",),
    ),
    Mutant(
        bug=34,
        name="an-account-is-not-asked-what-it-shows",
        file=PARQUET,
        find="marked_at = table.marked_at()",
        replace="marked_at = None",
        tests=(f"{OF_READERS}::test_verify_leaves_out_a_batch_that_an_account_does_not_show_yet",),
    ),
    Mutant(
        bug=34,
        name="records-of-a-transaction-meanwhile-are-foreign",
        file=KAFKA,
        find="is_whole=not (is_open or has_moved)",
        replace="is_whole=True",
        tests=(
            "tests/live/test_kafka_publish.py::test_a_batch_that_is_published_while_verify_looks_at_the_topics_is_no_difference",
        ),
    ),
    Mutant(
        bug=34,
        name="a-driver-that-moves-on-is-a-conflict",
        file="src/penstock/observe/status.py",
        find="first - 1 <= checkpoint.next_batch_id <= last",
        replace="False",
        tests=(f"{OF_READERS}::test_status_beside_a_driver_that_moves_on_between_two_looks_is_no_conflict",),
    ),
    Mutant(
        bug=34,
        name="what-a-driver-publishes-in-this-moment-wants-a-hand",
        file="src/penstock/run/doctor.py",
        find="stop=stop_after_attempt(_LOOKS),",
        replace="stop=stop_after_attempt(1),",
        tests=("tests/unit/test_run_doctor.py::test_what_a_running_driver_publishes_while_it_is_looked_at_wants_no_hand",),
    ),
    Mutant(
        bug=34,
        name="an-older-sink-must-show-the-newest-batch",
        file="src/penstock/commit/verification.py",
        find="positions = {decisions.published_at, ",
        replace="positions = {",
        tests=("tests/unit/test_sink_verification.py::test_an_older_sink_may_show_the_newest_batch_or_not",),
    ),
    Mutant(
        bug=34,
        name="after-an-adoption-every-row-is-there-once",
        file=CLI,
        find="if found.adopted_at is None:",
        replace="if True:",
        tests=("tests/unit/test_cli_verify.py::test_verify_after_an_adoption_says_what_it_can_know",),
    ),
    Mutant(
        bug=34,
        name="rows-are-counted-below-zero",
        file=TABLE,
        find="    return replace(difference, rows=max(difference.rows, 0))\n",
        replace="    return difference\n",
        tests=("tests/unit/test_sqlite_verify.py::test_rows_are_never_counted_below_zero",),
    ),
)
