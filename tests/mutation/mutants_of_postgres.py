"""Bugs planted in the sink of PostgreSQL."""

from tests.mutation.mutant import Mutant

MARKS = "src/penstock/sink/postgres/marks.py"
MOVE = "src/penstock/sink/postgres/move.py"
SINK = "src/penstock/sink/postgres/sink.py"
STATEMENTS = "src/penstock/sink/postgres/statements.py"
TABLE_STATEMENTS = "src/penstock/sink/postgres/table_statements.py"

OF_PUBLISHING = "tests/unit/test_postgres_publish.py"
OF_TABLES = "tests/unit/test_postgres_table.py"

MUTANTS_OF_POSTGRES = (
    Mutant(
        bug=7,
        name="the-marker-of-postgres-is-read-and-not-locked",
        file=STATEMENTS,
        find='self._of(f"{_READ_MARKER} FOR UPDATE")',
        replace='self._of(f"{_READ_MARKER}")',
        tests=(f"{OF_PUBLISHING}::test_a_zombie_that_holds_the_marker_open_loses_to_the_first_that_commits",),
    ),
    Mutant(
        bug=15,
        name="rows-and-marker-are-two-transactions-of-postgres",
        file=MARKS,
        find="        with MARK.around(error=cut_off, lost=cut_off):\n",
        replace="""\
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        with MARK.around(error=cut_off, lost=cut_off):
""",
        tests=(f"{OF_PUBLISHING}::test_after_any_fault_the_next_try_shows_the_batch_once",),
    ),
    Mutant(
        bug=15,
        name="a-commit-of-postgres-without-an-answer-is-taken-for-done",
        file=SINK,
        find="        except psycopg.Error as cause:\n            raise OutcomeUnknown(",
        replace="        except psycopg.Error as cause:\n            return\n            raise OutcomeUnknown(",
        tests=(f"{OF_PUBLISHING}::test_after_a_commit_without_an_answer_the_marker_decides",),
    ),
    Mutant(
        bug=16,
        name="an-older-generation-fills-a-table",
        file="src/penstock/sink/table/publication.py",
        find="    _require_no_older_generation(marker, publication)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_generation_that_was_overtaken_cannot_commit",),
    ),
    Mutant(
        bug=17,
        name="nobody-counts-the-rows-that-postgres-took",
        file=MOVE,
        find="            return Moved(rows=connection.execute(statements.insert(columns.casts)).rowcount, displaced=Totals())\n",
        replace="            connection.execute(statements.insert(columns.casts))\n"
        "            return Moved(rows=staged, displaced=Totals())\n",
        tests=(f"{OF_PUBLISHING}::test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown",),
    ),
    Mutant(
        bug=17,
        name="a-column-that-was-altered-is-not-looked-at-again",
        file=SINK,
        find="        require_fit(shape, schema, self._target)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_column_that_was_altered_since_would_change_values_and_is_refused",),
    ),
    Mutant(
        bug=17,
        name="the-first-of-several-rows-with-one-key-counts",
        file=TABLE_STATEMENTS,
        find='SQL("max" if last else "min")',
        replace='SQL("min")',
        tests=(f"{OF_TABLES}::test_keys_that_come_again_and_again",),
    ),
    Mutant(
        bug=17,
        name="a-row-that-came-in-meanwhile-is-replaced-uncounted",
        file=MOVE,
        find="    if row[1] != replaced.rows:\n",
        replace="    if row[1] < replaced.rows:\n",
        tests=(f"{OF_PUBLISHING}::test_a_key_that_another_session_inserts_meanwhile_is_counted_anew",),
    ),
)
