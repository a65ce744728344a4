"""Bugs planted where Spark knows sources by their names: rows of one that goes, comes back or is another one."""

from tests.mutation.mutant import Mutant

RULES = "src/penstock/run/named_sources.py"
MIGRATION = "src/penstock/checkpoint/migration.py"
IDENTITY = "src/penstock/commit/identity.py"
UNIT = "tests/unit/test_named_sources.py"
OF_MIGRATION = "tests/unit/test_migration.py"

MUTANTS_OF_NAMED_SOURCES = (
    Mutant(
        bug=63,
        name="another-source-is-taken-for-the-one-in-its-place",
        file=IDENTITY,
        find=" or not (are_places(mine) or are_places(names)):",
        replace=":",
        tests=(
            "tests/unit/test_commit_identity.py::test_other_sources_are_not_taken_for_the_ones_at_their_places[before4-now4]",
        ),
    ),
    Mutant(
        bug=63,
        name="a-planned-batch-runs-without-a-source-that-is-gone",
        file=RULES,
        find="    if gone and (committed is None or committed < planned):\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_a_planned_batch_keeps_its_sources",),
    ),
    Mutant(
        bug=63,
        name="a-name-that-comes-back-begins-anew",
        file=RULES,
        find="        if _was_read(ledger, checkpoint, name):\n",
        replace="        if False:\n",
        tests=(f"{UNIT}::test_a_log_of_files_shows_that_a_name_comes_back",),
    ),
    Mutant(
        bug=63,
        name="an-old-decision-does-not-show-that-a-name-comes-back",
        file=RULES,
        find="    for each in standing(ledger.newest_first()):\n",
        replace="    for each in list(standing(ledger.newest_first()))[:1_000]:\n",
        tests=(f"{UNIT}::test_a_decision_shows_that_a_name_comes_back_however_old_it_is",),
    ),
    Mutant(
        bug=63,
        name="a-renamed-source-of-a-query-in-code-is-read-again",
        file=RULES,
        find="    if gone and new and in_code:\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_names_come_go_and_move",),
    ),
    Mutant(
        bug=63,
        name="sides-of-a-join-are-exchanged",
        file=RULES,
        find=" or (len(operators) == 1 and (names is None or _JOIN in names))",
        replace="",
        tests=(f"{UNIT}::test_state_is_known_by_its_place[operators3-False]",),
    ),
    Mutant(
        bug=63,
        name="an-offset-log-by-places-goes-on-with-names",
        file=RULES,
        find="    if named and not entry.named:\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_places_and_names_are_told_apart",),
    ),
    Mutant(
        bug=63,
        name="a-source-that-is-new-begins-anywhere",
        file=IDENTITY,
        find=" if source in ended else starts[source] is not None for source in starts",
        replace=" if source in ended else False for source in starts",
        tests=(f"{UNIT}::test_a_batch_goes_on_with_sources_that_came_and_went",),
    ),
    Mutant(
        bug=24,
        name="with-names-a-batch-has-the-offsets-of-another-source",
        file=MIGRATION,
        find="dict(zip(names, entry.by_key().values(), strict=True))",
        replace="dict(zip(reversed(names), entry.by_key().values(), strict=True))",
        tests=(f"{OF_MIGRATION}::test_every_batch_is_the_same_with_names[True]",),
    ),
    Mutant(
        bug=24,
        name="with-names-spark-has-forgotten-which-files-were-read",
        file=MIGRATION,
        find='        _move(files, draft, f"sources/{number}", f"sources/{name}")\n',
        replace="        pass\n",
        tests=(f"{OF_MIGRATION}::test_every_batch_is_the_same_with_names[True]",),
    ),
)
