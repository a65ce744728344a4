"""Bugs planted in what gives the columns of a table wider types, and counts its rows with them."""

from tests.mutation.mutant import Mutant

PUBLICATION = "src/penstock/sink/table/publication.py"
OF_WIDENED = "tests/attack/test_widened_tables.py"

MUTANTS_OF_WIDER_TYPES = (
    Mutant(
        bug=35,
        name="rows-that-are-there-are-not-counted-with-wider-types",
        file=PUBLICATION,
        find="    if new is old:\n",
        replace="    if True:\n",
        tests=(f"{OF_WIDENED}::test_the_column_takes_wider_values_and_every_row_is_proved[sqlite-int-published]",),
    ),
    Mutant(
        bug=33,
        name="rows-that-somebody-changed-are-counted-as-published-once-types-are-wider",
        file=PUBLICATION,
        find='    require_unchanged(marker, narrow, then="The batch is published then.")\n',
        replace="",
        tests=(f"{OF_WIDENED}::test_a_wide_batch_waits_until_rows_that_were_changed_are_right[sqlite-changed]",),
    ),
    Mutant(
        bug=29,
        name="an-older-penstock-may-publish-the-first-batch-with-wider-types",
        file="src/penstock/sink/table/marker.py",
        find="_WIDENING if marker.is_widening else ",
        replace="",
        tests=(f"{OF_WIDENED}::test_an_older_penstock_does_not_publish_the_first_wide_batch[sqlite]",),
    ),
    Mutant(
        bug=35,
        name="mysql-drops-what-a-wider-column-has-besides-its-type",
        file="src/penstock/sink/mysql/table_schema.py",
        find="            if has_more_than_type(connection, target.table, name):\n",
        replace="            if False:\n",
        tests=(f"{OF_WIDENED}::test_what_modify_would_drop_is_left_to_a_person[INVISIBLE-mysql]",),
    ),
    Mutant(
        bug=35,
        name="a-type-is-altered-though-another-is-refused",
        file="src/penstock/sink/table/sql_sink.py",
        find="            require_same_types(marker, rows, self._target)  # before anything is altered\n",
        replace="            pass\n",
        tests=(f"{OF_WIDENED}::test_what_is_not_wider_is_refused_before_anything_is_altered[mysql-long-integer]",),
    ),
    Mutant(
        bug=35,
        name="a-decimal-of-another-scale-counts-as-wider",
        file="src/penstock/sink/table/target.py",
        find="kind.scale == than.scale and kind.precision > than.precision",
        replace="kind.precision > than.precision",
        tests=(
            f"{OF_WIDENED}::test_what_is_not_wider_is_refused_before_anything_is_altered[sqlite-decimal(10,2)-decimal(12,4)]",
        ),
    ),
    Mutant(
        bug=35,
        name="a-column-with-a-default-is-altered",
        file="src/penstock/sink/table/columns.py",
        find="column.not_null or column.fills_itself or column.declared",
        replace="column.declared",
        tests=(f"{OF_WIDENED}::test_a_column_that_has_more_than_its_type_is_left_to_a_person[DEFAULT 5-duckdb]",),
    ),
)
