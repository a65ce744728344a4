"""Bugs planted in the sink of DuckDB, and in what all sinks of tables have in common."""

from tests.mutation.mutant import Mutant

DATABASE = "src/penstock/sink/duckdb/database.py"
MOVE = "src/penstock/sink/duckdb/move.py"
PREPARATION = "src/penstock/sink/duckdb/preparation.py"
PUBLICATION = "src/penstock/sink/table/publication.py"
SINK = "src/penstock/sink/duckdb/sink.py"
STATEMENTS = "src/penstock/sink/duckdb/statements.py"

OF_DECIDED = "tests/attack/test_decided_columns.py"
OF_DECIDED_TABLES = "tests/attack/test_decided_tables.py"
OF_SINK = "tests/unit/test_duckdb_sink.py"
OF_SERVED = "tests/unit/test_served_table.py"

OF_VALUES = "tests/attack/test_values.py::test_every_value_is_delivered_as_it_is_or_refused_before_the_decision"

MUTANTS_OF_DUCKDB = (
    Mutant(
        bug=43,
        name="the-last-days-of-the-calendar-become-infinity",
        file="src/penstock/sink/duckdb/admission.py",
        find="high=(1 << 31) - 2,",
        replace="high=(1 << 31) - 1,",
        tests=(f"{OF_VALUES}[duckdb-spooled]",),
    ),
    Mutant(
        bug=43,
        name="the-calendar-ends-nowhere-inside-of-lists",
        file="src/penstock/sink/duckdb/admission.py",
        find="for inside in _leaves(column) if pa.types.is_nested(column.type) else ():",
        replace="for inside in ():",
        tests=("tests/unit/test_duckdb_sink.py::test_the_ends_of_the_calendar_are_refused_at_any_depth",),
    ),
    Mutant(
        bug=43,
        name="an-empty-map-becomes-a-list",
        file="src/penstock/sink/table/nested.py",
        find="len(as_object) == len(pairs) else pairs",
        replace="len(as_object) == len(pairs) and pairs else pairs",
        tests=(f"{OF_VALUES}[sqlite-inline]",),
    ),
    Mutant(
        bug=1,
        name="an-older-copy-under-a-run-that-goes-on-is-filled-further",
        file="src/penstock/sink/table/publication.py",
        find="    if marker.position < since:\n",
        replace="    if False:\n",
        tests=(f"{OF_SERVED}::test_an_older_copy_under_a_run_that_goes_on_is_noticed[duckdb]",),
    ),
    Mutant(
        bug=14,
        name="the-file-of-duckdb-stays-open-after-a-publication",
        file=SINK,
        find="        self._database.drop()\n\n    def _content",
        replace="\n    def _content",
        tests=(f"{OF_SINK}::test_others_read_between_publications_and_the_sink_waits_for_them",),
    ),
    Mutant(
        bug=17,
        name="any-row-of-a-key-goes-into-duckdb",
        file=STATEMENTS,
        find="""self._chosen('max')} ON CONFLICT""",
        replace="""self._chosen('min')} ON CONFLICT""",
        tests=(f"{OF_SERVED}::test_keys_that_come_again_and_again[duckdb-0-upsert]",),
    ),
    Mutant(
        bug=2,
        name="a-file-of-duckdb-that-is-gone-is-made-anew",
        file=DATABASE,
        find="            if not self.exists:\n                raise kind(",
        replace="            if False:\n                raise kind(",
        tests=(f"{OF_SINK}::test_a_file_that_is_gone_is_not_made_anew",),
    ),
    Mutant(
        bug=8,
        name="a-table-of-duckdb-is-not-tried-before-the-first-decision",
        file=PREPARATION,
        find="    _rehearse(connection, rows, target)\n    content",
        replace="    content",
        tests=(f"{OF_SINK}::test_a_table_that_does_not_fit[no key]",),
    ),
    Mutant(
        bug=35,
        name="a-column-that-may-be-null-is-demanded-of-a-decided-batch",
        file="src/penstock/sink/table/columns.py",
        find="if column.not_null and not column.fills_itself",
        replace="if not column.fills_itself",
        tests=(f"{OF_DECIDED}::test_a_start_works_or_says_how[mysql-rows_and_table_gain_a_column-outstanding]",),
    ),
    Mutant(
        bug=35,
        name="a-decided-batch-is-written-as-the-sink-is-configured-now",
        file=PUBLICATION,
        find='    if "write" not in ref:\n',
        replace="    if True:\n",
        tests=(f"{OF_DECIDED}::test_an_update_stays_one_when_the_sink_only_inserts_by_now[sqlite]",),
    ),
    Mutant(
        bug=35,
        name="the-key-of-a-decision-is-the-one-that-is-configured-now",
        file=PUBLICATION,
        find="write=write, key=key, merge",
        replace="write=write, merge",
        tests=(f"{OF_DECIDED}::test_the_key_of_the_decision_counts[sqlite]",),
    ),
    Mutant(
        bug=35,
        name="an-empty-batch-of-an-earlier-run-is-written-as-the-sink-says-now",
        file=PUBLICATION,
        find="(target.has_staged and publication.generation != marker.generation)",
        replace="publication.generation != marker.generation",
        tests=(f"{OF_DECIDED}::test_an_empty_batch_of_an_earlier_run_clears_only_what_was_replaced_before[sqlite-append]",),
    ),
    Mutant(
        bug=35,
        name="an-empty-batch-clears-a-table-that-was-appended-to",
        file=PUBLICATION,
        find="    return target.write if is_told else marker.write\n",
        replace="    return target.write\n",
        tests=(f"{OF_DECIDED}::test_an_empty_batch_clears_no_table_that_was_appended_to[sqlite]",),
    ),
    Mutant(
        bug=35,
        name="rows-may-lose-a-column-that-the-table-was-filled-with",
        file="src/penstock/sink/table/preparation.py",
        find="    if not left_out or",
        replace="    if True or",
        tests=(f"{OF_DECIDED}::test_a_start_works_or_says_how[duckdb-rows_lose_a_column-published]",),
    ),
    Mutant(
        bug=35,
        name="a-table-of-sqlite-is-not-looked-at-before-a-decided-batch",
        file="src/penstock/sink/sqlite/sink.py",
        find="move(cursor, decided_rows(cursor, rows, publication.schema, target), target)",
        replace="move(cursor, rows, target)",
        tests=(f"{OF_DECIDED}::test_a_table_that_would_hold_other_values_is_not_filled_by_recover[sqlite]",),
    ),
    Mutant(
        bug=37,
        name="a-statement-that-is-told-names-a-column-without-quotes",
        file="src/penstock/sink/table/columns.py",
        find="column=self.alter.quoted(column)",
        replace="column=column",
        tests=(f"{OF_DECIDED}::test_a_column_of_any_name_comes_in_as_the_refusal_says[sqlite-order-outstanding]",),
    ),
    Mutant(
        bug=37,
        name="a-column-that-is-told-to-be-null-is-named-without-quotes",
        file="src/penstock/sink/table/preparation.py",
        find="return name if _PLAIN_NAME.fullmatch(name) else quoted(name)",
        replace="return name.split()[0]",
        tests=(f"{OF_DECIDED}::test_a_column_of_any_name_is_left_out_as_the_refusal_says[two words-sqlite]",),
    ),
    Mutant(
        bug=35,
        name="a-generated-column-is-to-be-left-out-of-a-batch-that-is-decided",
        file="src/penstock/sink/table/columns.py",
        find='self.made_anew(column, "as an ordinary one") if self.decided else',
        replace='self.made_anew(column, "as an ordinary one") if False else',
        tests=(f"{OF_DECIDED_TABLES}::test_a_column_that_the_database_makes_by_now_is_made_an_ordinary_one[sqlite]",),
    ),
    Mutant(
        bug=35,
        name="duckdb-does-not-say-which-decided-column-is-generated",
        file=SINK,
        find="            require_written(connection, shape, schema, target)\n",
        replace="",
        tests=(f"{OF_DECIDED_TABLES}::test_a_column_that_the_database_makes_by_now_is_made_an_ordinary_one[duckdb]",),
    ),
    Mutant(
        bug=35,
        name="behind-any-driver-a-generated-column-is-told-as-a-database-in-the-way",
        file="src/penstock/sink/dbapi/preparation.py",
        find="        if column is None:\n",
        replace="        if True:\n",
        tests=(f"{OF_DECIDED_TABLES}::test_a_column_that_the_database_makes_by_now_is_made_an_ordinary_one[dbapi]",),
    ),
    Mutant(
        bug=43,
        name="blanks-are-cut-off-a-decided-text",
        file="src/penstock/sink/table/lengths.py",
        find="if found is not None and found > most:",
        replace="if False:",
        tests=(f"{OF_DECIDED_TABLES}::test_blanks_of_a_decided_text_are_not_cut_off[copied-postgres]",),
    ),
    Mutant(
        bug=43,
        name="a-decided-null-becomes-the-number-of-a-row",
        file="src/penstock/sink/sqlite/table.py",
        find=" and batch.column(name).null_count:",
        replace=" and False:",
        tests=(f"{OF_DECIDED_TABLES}::test_a_decided_null_does_not_become_the_number_of_a_row[sqlite]",),
    ),
    Mutant(
        bug=43,
        name="null-becomes-the-number-of-a-row-of-sqlite",
        file="src/penstock/sink/sqlite/table.py",
        find="if column.not_null or column is self.row_number)",
        replace="if column.not_null)",
        tests=("tests/unit/test_sqlite_table.py::test_no_row_gets_a_number_in_place_of_null",),
    ),
    Mutant(
        bug=35,
        name="a-key-of-duckdb-takes-different-texts-for-equal",
        file=PREPARATION,
        find="            if row is not None and row[0]:\n",
        replace="            if False:\n",
        tests=(f"{OF_SINK}::test_a_table_that_does_not_fit[collation]",),
    ),
    Mutant(
        bug=17,
        name="rows-that-a-database-behind-any-driver-left-out-are-not-missed",
        file="src/penstock/sink/dbapi/driver.py",
        find="return len(bound) if written < 0 else int(written)",
        replace="return len(bound)",
        tests=(f"{OF_DECIDED_TABLES}::test_rows_that_a_trigger_drops_are_counted[dbapi]",),
    ),
    Mutant(
        bug=17,
        name="a-table-of-sqlite-behind-any-driver-replaces-rows-by-itself",
        file="src/penstock/sink/dbapi/statements.py",
        find='"INSERT INTO", "INSERT OR ABORT INTO"',
        replace='"INSERT INTO", "INSERT INTO"',
        tests=("tests/unit/test_dbapi_sink.py::test_a_conflict_is_an_error_whatever_the_table_says_of_it[REPLACE]",),
    ),
    Mutant(
        bug=35,
        name="rows-are-not-compared-with-the-batch-that-a-start-published",
        file="src/penstock/sink/table/sink.py",
        find="self._is_recovered |= not (published.already or self._is_staging)",
        replace="self._is_recovered = False",
        tests=(f"{OF_DECIDED}::test_rows_without_a_column_of_the_outstanding_batch_are_refused_before_they_are_staged[sqlite]",),
    ),
    Mutant(
        bug=17,
        name="a-temporary-table-of-duckdb-hides-the-users",
        file="src/penstock/sink/duckdb/statements.py",
        find='"penstock_offsets", STAGE, INCOMING}',
        replace='"penstock_offsets"}',
        tests=("tests/unit/test_duckdb_sink.py::test_rows_that_no_table_could_hold",),
    ),
)
