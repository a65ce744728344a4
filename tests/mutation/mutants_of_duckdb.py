"""Bugs planted in the sink of DuckDB, and in what all sinks of tables have in common."""

from tests.mutation.mutant import Mutant

DATABASE = "src/penstock/sink/duckdb/database.py"
MOVE = "src/penstock/sink/duckdb/move.py"
PREPARATION = "src/penstock/sink/duckdb/preparation.py"
SINK = "src/penstock/sink/duckdb/sink.py"
STATEMENTS = "src/penstock/sink/duckdb/statements.py"

OF_SINK = "tests/unit/test_duckdb_sink.py"
OF_SERVED = "tests/unit/test_served_table.py"

MUTANTS_OF_DUCKDB = (
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
)
