"""Bugs planted in sinks into many tables: how rows find theirs, when one is opened, and what shows a batch."""

from tests.mutation.mutant import Mutant

DATABASE = "src/penstock/sink/many/database.py"
LAKE = "src/penstock/sink/many/lake.py"
NAMES = "src/penstock/core/table_names.py"
SHARES = "src/penstock/sink/many/shares.py"
STAGER = "src/penstock/sink/many/stager.py"
OPENING = "src/penstock/stage/opening.py"

TESTS = "tests/unit/test_many_tables.py"
APPEAR = f"{TESTS}::test_tables_appear_with_their_rows_and_a_replay_changes_nothing"
STEP = f"{TESTS}::test_a_failure_at_any_step_is_made_good"
WHICH = f"{TESTS}::TestWhichTablesThereMayBe"
WHOSE = f"{TESTS}::TestWhoseTablesTheyAre"
TAKEN = f"{TESTS}::test_batches_are_taken_back_from_every_table"

MUTANTS_OF_MANY_TABLES = (
    Mutant(
        bug=1,
        name="a-batch-that-is-in-one-table-is-taken-for-shown-in-all",
        file=LAKE,
        find="is_first=table == tables[0]) for table in tables]",
        replace="is_first=table == tables[0]) for table in tables[:1]]",
        tests=(f"{APPEAR}[delta]",),
    ),
    Mutant(
        bug=17,
        name="rows-of-tables-that-were-opened-meanwhile-are-decided-without-those-that-waited",
        file=OPENING,
        find="        if not waiting:\n            return staged\n        _open(sinks, waiting)\n",
        replace="        _open(sinks, waiting)\n        return staged\n",
        tests=(f"{TESTS}::test_a_batch_is_staged_again_once_its_tables_are_open",),
    ),
    Mutant(
        bug=30,
        name="a-value-may-have-any-characters",
        file=NAMES,
        find="        if not self.fits(name):\n",
        replace="        if not name:\n",
        tests=(f"{WHICH}::test_a_value_that_makes_no_table_fails_the_batch",),
    ),
    Mutant(
        bug=30,
        name="names-that-differ-by-case-are-two-tables",
        file=STAGER,
        find="        other = self._by_folded_name.get(name.lower())\n",
        replace="        other = None\n",
        tests=(f"{WHICH}::test_names_that_differ_by_case_only_are_never_two_tables",),
    ),
    Mutant(
        bug=35,
        name="what-is-decided-for-a-table-that-is-not-allowed-any-more-is-not-published",
        file=DATABASE,
        find="for table in tables_of(publication)}\n        shown",
        replace="for table in tables_of(publication) if table in self._children.opened}\n        shown",
        tests=(f"{WHICH}::test_what_is_decided_for_a_table_is_published_though_it_is_not_allowed_any_more[sqlite]",),
    ),
    Mutant(
        bug=2,
        name="a-sink-whose-tables-have-other-names-now-begins-anew",
        file=LAKE,
        find="        if self._children.misfit is not None:\n",
        replace='        if self._children.misfit == "":\n',
        tests=(f"{WHOSE}::test_a_template_that_was_changed_is_refused[delta]",),
    ),
    Mutant(
        bug=2,
        name="the-marker-of-all-tables-is-not-compared-with-their-names",
        file=DATABASE,
        find="        elif not self._target.is_table(marker.table_name):\n",
        replace="        elif not marker.table_name:\n",
        tests=(f"{WHOSE}::test_a_template_that_was_changed_is_refused[sqlite]",),
    ),
    Mutant(
        bug=1,
        name="a-lost-marker-of-all-tables-is-made-again",
        file=DATABASE,
        find="            require_never_marked(markers, pipeline, self._name, self._target.table)\n",
        replace="",
        tests=(f"{WHOSE}::test_a_marker_that_is_gone_is_refused",),
    ),
    Mutant(
        bug=17,
        name="rows-are-taken-back-from-the-first-table-only",
        file=DATABASE,
        find="        for table in tables_in(taken):\n            child, own",
        replace="        for table in tables_in(taken)[:1]:\n            child, own",
        tests=(f"{TAKEN}[sqlite-given0]",),
    ),
    Mutant(
        bug=17,
        name="the-totals-of-a-table-are-those-of-all",
        file=SHARES,
        find="        return {ONLY_ACCOUNT: self.whole.totals(position).get(self.table, Totals())}\n",
        replace="        return {ONLY_ACCOUNT: sum(self.whole.totals(position).values(), Totals())}\n",
        tests=(f"{APPEAR}[sqlite]",),
    ),
    Mutant(
        bug=17,
        name="a-table-that-got-no-rows-since-is-taken-for-one-that-nobody-widened",
        file="src/penstock/sink/table/columns.py",
        find="    return pa.schema([lying(field) for field in filled])\n",
        replace="    return filled\n",
        tests=("tests/unit/test_many_compared.py::test_a_table_that_no_row_names_meanwhile_becomes_wider_twice",),
    ),
)
