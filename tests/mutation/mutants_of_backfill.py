"""Bugs planted in backfills."""

from tests.mutation.mutant import Mutant

BACKFILL = "src/penstock/commit/backfill.py"
OF_BACKFILL = "tests/unit/test_commit_backfill.py"

MUTANTS_OF_BACKFILL = (
    Mutant(
        bug=4,
        name="the-sweep-takes-what-a-backfill-decided",
        file="src/penstock/commit/publication.py",
        find="    kept = (*(() if newest is None else (newest,)), *waiting)\n",
        replace="    kept = () if newest is None else (newest,)\n",
        tests=(f"{OF_BACKFILL}::test_what_a_failed_call_decided_is_published_by_the_next",),
    ),
    Mutant(
        bug=5,
        name="a-backfill-goes-on-without-what-was-decided-before",
        file=BACKFILL,
        find="    recovered = coordinator.publish_backfilled(sink)  # I1\n",
        replace="    recovered = None\n",
        tests=(f"{OF_BACKFILL}::test_what_a_failed_call_decided_is_published_by_the_next",),
    ),
    Mutant(
        bug=19,
        name="a-backfill-gives-what-it-gave-before",
        file=BACKFILL,
        find="is_in = progress is not None and progress.first <= entry.position <= progress.through",
        replace="is_in = False",
        tests=(f"{OF_BACKFILL}::test_batches_come_in_their_order",),
    ),
    Mutant(
        bug=5,
        name="a-sink-with-a-part-of-its-past-goes-on",
        file=BACKFILL,
        find="if progress is not None and not progress.ended:",
        replace="if progress is not None and False:",
        tests=(
            f"{OF_BACKFILL}::test_a_start_with_the_sink_is_refused_until_the_backfill_has_ended_and_the_driver_goes_on_behind_it",
        ),
    ),
    Mutant(
        bug=19,
        name="the-driver-does-not-know-what-a-backfill-gave",
        file="src/penstock/commit/publication.py",
        find="Position(0) if backfill is None else backfill.newest)",
        replace="Position(0))",
        tests=(
            f"{OF_BACKFILL}::test_a_start_with_the_sink_is_refused_until_the_backfill_has_ended_and_the_driver_goes_on_behind_it",
        ),
    ),
)
