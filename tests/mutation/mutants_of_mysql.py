"""Bugs planted in the sink and in the ledger of MySQL."""

from tests.mutation.mutant import Mutant

DATABASE = "src/penstock/sql/mysql/database.py"
LEDGER = "src/penstock/ledger/mysql.py"
MARKS = "src/penstock/sink/table/marker_store.py"
MOVE = "src/penstock/sink/mysql/load.py"
SHAPE = "src/penstock/sink/mysql/table_schema.py"
SESSION_STATEMENTS = "src/penstock/sql/mysql/statements.py"
SINK = "src/penstock/sink/mysql/sink.py"
STATEMENTS = "src/penstock/sink/mysql/statements.py"

OF_LEDGER = "tests/live/test_ledger_mysql.py"
OF_LEDGERS = "tests/conformance/test_ledger_conformance.py"
OF_NARROWED = "tests/attack/test_decided_narrowed.py"
OF_PUBLISHING = "tests/live/test_mysql_publish.py"
OF_STORAGE = "tests/live/test_mysql_storage.py"
OF_SERVED = "tests/live/test_served"
OF_TABLES = "tests/live/test_mysql_table.py"

MUTANTS_OF_MYSQL = (
    Mutant(
        bug=7,
        name="the-marker-of-mysql-is-read-and-not-locked",
        file=STATEMENTS,
        find='for_update = " FOR UPDATE"',
        replace='for_update = ""',
        tests=(f"{OF_SERVED}_publish.py::test_a_zombie_that_holds_the_marker_open_loses_to_the_first_that_commits[mysql]",),
    ),
    Mutant(
        bug=15,
        name="rows-and-marker-are-two-transactions-of-mysql",
        file=MARKS,
        find="        with self._marking():\n",
        replace="""\
        self._execute("COMMIT", {})
        self._execute("BEGIN", {})
        with self._marking():
""",
        tests=(f"{OF_SERVED}_publish.py::test_after_any_fault_the_next_try_shows_the_batch_once[mysql-mark-error]",),
    ),
    Mutant(
        bug=15,
        name="a-commit-of-mysql-without-an-answer-is-taken-for-done",
        file="src/penstock/sql/session.py",
        find="            raise OutcomeUnknown(",
        replace="            return\n            raise OutcomeUnknown(",
        tests=(f"{OF_SERVED}_publish.py::test_after_a_commit_without_an_answer_the_marker_decides[mysql-append-after]",),
    ),
    Mutant(
        bug=17,
        name="texts-are-loaded-as-bytes-of-another-character-set",
        file=MOVE,
        find=" and all(column.takes_bytes_as_sent for column in table_schema.columns)\n",
        replace="\n",
        tests=(f"{OF_STORAGE}::test_mysql_itself_changes_no_value_however_lenient_the_server_is",),
    ),
    Mutant(
        bug=17,
        name="a-constraint-is-told-as-a-change-of-values",
        file=MOVE,
        find="    if warnings and warnings[0][1] in CONSTRAINTS | UNPARTITIONED:\n",
        replace="    if False:\n",
        tests=(f"{OF_PUBLISHING}::test_rows_that_the_table_refuses_stop_the_batch_until_it_is_mended",),
    ),
    Mutant(
        bug=17,
        name="nobody-heeds-what-mysql-warns-of",
        file=MOVE,
        find="    if written.warning_count:\n",
        replace="    if written.warning_count < 0:\n",
        tests=(f"{OF_STORAGE}::test_mysql_itself_changes_no_value_however_lenient_the_server_is",),
    ),
    Mutant(
        bug=17,
        name="a-table-that-no-transaction-covers-is-filled",
        file=SHAPE,
        find="    if table_schema.engine.lower() != ENGINE.lower():\n",
        replace='    if table_schema.engine == "none":\n',
        tests=(f"{OF_TABLES}::test_what_will_not_do_is_refused_before_the_start_and_nothing_is_created",),
    ),
    Mutant(
        bug=17,
        name="the-first-of-several-rows-with-one-key-counts-in-mysql",
        file="src/penstock/sink/table/table_statements.py",
        find="{'MAX' if last else 'MIN'}",
        replace="MIN",
        tests=(f"{OF_SERVED}_table.py::test_keys_that_come_again_and_again[mysql-0-upsert]",),
    ),
    Mutant(
        bug=17,
        name="texts-that-differ-in-case-are-one-key",
        file="src/penstock/sql/mysql/server.py",
        find='"utf8mb4_nopad_bin"',
        replace='"utf8mb4_general_ci"',
        tests=(f"{OF_TABLES}::test_keys_that_most_collations_would_take_for_one",),
    ),
    Mutant(
        bug=15,
        name="a-transaction-of-mysql-that-ended-early-is-committed",
        file=DATABASE,
        find="        if not connection.in_transaction:\n",
        replace="        if connection is None:\n",
        tests=(f"{OF_PUBLISHING}::test_a_transaction_that_something_ended_is_not_taken_for_committed",),
    ),
    Mutant(
        bug=17,
        name="staging-in-mysql-is-not-tried-before-the-start",
        file="src/penstock/sink/table/sql_sink.py",
        find="            self._dry_run_staging(connection, rows)\n",
        replace="",
        tests=(
            "tests/live/test_mysql_refusals.py::test_rows_that_fit_the_table_and_not_its_staging_are_refused_before_the_start",
        ),
    ),
    Mutant(
        bug=17,
        name="keys-of-mysql-are-grouped-by-how-they-begin",
        file=SESSION_STATEMENTS,
        find=",\n    max_sort_length = {SORTED_BYTES + 64}",
        replace="",
        tests=(f"{OF_TABLES}::test_long_keys_that_end_differently_are_two_however_the_server_groups_them",),
    ),
    Mutant(
        bug=16,
        name="an-occupied-position-is-overwritten-in-mysql",
        file="src/penstock/ledger/mysql.py",
        find='"INSERT INTO penstock_ledger',
        replace='"REPLACE INTO penstock_ledger',
        tests=(f"{OF_LEDGERS}::test_an_occupied_position_is_taken_and_keeps_its_first_entry[mysql]",),
    ),
    Mutant(
        bug=17,
        name="a-server-of-mysql-says-whether-statements-commit",
        file=SESSION_STATEMENTS,
        find="    autocommit = 1, ",
        replace="    ",
        tests=(f"{OF_LEDGER}::test_what_a_server_says_of_sessions_changes_nothing",),
    ),
    Mutant(
        bug=17,
        name="a-ledger-that-no-transaction-covers",
        file=LEDGER,
        find='        if kind == "table" and engine.lower() != ENGINE.lower():\n',
        replace='        if engine == "none":\n',
        tests=("tests/live/test_ledger_served.py::test_a_table_that_loses_entries_is_refused[mysql-MyISAM]",),
    ),
    Mutant(
        bug=17,
        name="what-was-tried-stays-in-mysql",
        file=SESSION_STATEMENTS,
        find='ROLLBACK = "ROLLBACK"',
        replace='ROLLBACK = "COMMIT"',
        tests=("tests/live/test_served_merge.py::test_what_was_tried_is_taken_back[mysql]",),
    ),
    Mutant(
        bug=35,
        name="mysql-makes-up-a-number-for-a-decided-null",
        file=SHAPE,
        find="values.null_count and column.not_null",
        replace="False",
        tests=(f"{OF_NARROWED}::test_mysql_makes_up_no_number_for_a_decided_null[key-mysql]",),
    ),
    Mutant(
        bug=35,
        name="mysql-cuts-blanks-off-and-notes-nothing",
        file=SHAPE,
        find="        batches = lengths.required(batches)\n",
        replace="        pass\n",
        tests=(f"{OF_NARROWED}::test_mysql_cuts_no_blanks_off_a_decided_text_whatever_it_notes[copied-mysql]",),
    ),
    Mutant(
        bug=37,
        name="a-row-without-a-partition-in-mysql-is-told-as-a-changed-value",
        file=MOVE,
        find="CONSTRAINTS | UNPARTITIONED:",
        replace="CONSTRAINTS:",
        tests=("tests/attack/test_decided_tables.py::test_a_decided_row_without_a_partition_is_told_with_what_to_do",),
    ),
    Mutant(
        bug=8,
        name="a-row-that-is-there-is-inserted-beside-another-index",
        file=MOVE,
        find="        and table_schema.is_only_told_apart_by(target.key)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_row_under_another_index_is_never_taken_for_that_of_the_key",),
    ),
    Mutant(
        bug=8,
        name="a-row-that-is-there-is-inserted-with-the-defaults-of-other-columns",
        file=MOVE,
        find="        and table_schema.is_filled_by(rows)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_row_that_is_there_is_never_inserted_where_that_does_more[a column of theirs]",),
    ),
    Mutant(
        bug=8,
        name="a-row-that-is-there-is-inserted-beside-a-trigger",
        file=MOVE,
        find="        and not has_triggers(connection, target.table)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_row_that_is_there_is_never_inserted_where_that_does_more[a trigger]",),
    ),
    Mutant(
        bug=8,
        name="keys-of-a-batch-are-taken-for-distinct",
        file="src/penstock/sink/table/batch_keys.py",
        find="        return len(np.unique(np.concatenate(self._hashes))) == self._rows\n",
        replace="        return True\n",
        tests=(
            "tests/unit/test_batch_keys.py::test_a_key_that_comes_again_is_seen",
            f"{OF_PUBLISHING}::test_a_key_that_comes_in_after_the_look_is_counted_anew[repeated]",
        ),
    ),
)
